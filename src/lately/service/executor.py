"""Runs questions to the store: in the event loop if they are known to be short, else in a thread, within a time limit.

The first question about a range has to add up what all sites know of it; later ones read the sum. So the first question runs
in a thread, and others about the same range wait for it. A question that was measured to be short runs in the event loop from
then on, because handing it to a thread would take longer than answering it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, thread_time
from typing import TypeVar

from lately.service.http_errors import HttpError

T = TypeVar("T")

#: Seconds that a request may take.
TIME_LIMIT = 10.0
#: A call is short if it takes at most these many seconds of CPU time and of elapsed time, which is longer on a busy machine.
SHORT_CPU, SHORT_ELAPSED = 0.002, 0.02
#: Keys whose calls run in threads at the same time.
_MAX_RUNNING = 64
#: Keys that are remembered as short.
_MAX_SHORT = 4096


class _Stopwatch:
    """Measures how long the current thread takes for something."""

    __slots__ = ("_cpu_start", "_start")

    def __init__(self) -> None:
        self._start, self._cpu_start = perf_counter(), thread_time()

    def is_short(self) -> bool:
        return thread_time() - self._cpu_start <= SHORT_CPU and perf_counter() - self._start <= SHORT_ELAPSED


class TimedExecutor:
    """Runs calls for the event loop. Calls with the same key run one after another until they are known to be short.

    Parameters
    ----------
    limit
        Seconds after which a call is answered with an error; it continues, so that its result is there when it is asked again.
    """

    def __init__(self, limit: float = TIME_LIMIT) -> None:
        self._limit = limit
        self._threads = ThreadPoolExecutor(2, "lately-query")
        self._running: dict[Hashable, asyncio.Future[None]] = {}
        self._short: OrderedDict[Hashable, None] = OrderedDict()

    def close(self) -> None:
        """Release the threads; calls that have not started never will."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, key: Hashable, call: Callable[[], T]) -> T:
        """The result of a call, or HTTP error 503 if it takes longer than the limit.

        Parameters
        ----------
        key
            Calls with the same key share the work that makes the first of them slow, and are expected to take equally long.
        call
            A function without parameters. It may run in a thread.
        """
        if key in self._short:
            return self._run_in_loop(key, call)
        deadline = perf_counter() + self._limit
        while (earlier := self._running.get(key)) is not None:
            await self._wait(earlier, deadline)
        if key in self._short:
            return self._run_in_loop(key, call)
        return await self._run_in_thread(key, call, deadline)

    def _run_in_loop(self, key: Hashable, call: Callable[[], T]) -> T:
        stopwatch = _Stopwatch()
        try:
            return call()
        finally:
            if not stopwatch.is_short():
                self._short.pop(key, None)

    async def _run_in_thread(self, key: Hashable, call: Callable[[], T], deadline: float) -> T:
        if len(self._running) >= _MAX_RUNNING:
            raise HttpError(503, "busy", f"{_MAX_RUNNING} questions are being worked on", "ask again in a second")
        loop = asyncio.get_running_loop()
        short = False

        def timed_call() -> T:
            nonlocal short
            stopwatch = _Stopwatch()
            value = call()
            short = stopwatch.is_short()
            return value

        result = loop.run_in_executor(self._threads, timed_call)
        # Later calls wait for a future of their own, so that they do not see the exception of this one.
        done: asyncio.Future[None] = loop.create_future()
        self._running[key] = done

        def finished(future: asyncio.Future[T]) -> None:
            del self._running[key]
            if not future.cancelled() and future.exception() is None and short:
                self._short[key] = None
                if len(self._short) > _MAX_SHORT:
                    self._short.popitem(last=False)
            if not done.done():
                done.set_result(None)

        result.add_done_callback(finished)
        await self._wait(result, deadline)
        return result.result()

    async def _wait(self, future: asyncio.Future[T], deadline: float) -> None:
        finished, _ = await asyncio.wait({future}, timeout=max(0.0, deadline - perf_counter()))
        if not finished:
            raise HttpError(
                503, "too_slow", f"it takes more than {self._limit:g} seconds", "ask again: the answer is being prepared"
            )
