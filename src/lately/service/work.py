"""Where a question is worked out: at once in the event loop if it is known to be short, else in a thread, within a time limit.

The first question about a range has to add up what all sites know of it; those that follow read the sum. So the first one
works in a thread and the others about the same range wait for it. What was found to be short is done in the loop from then
on: handing it to a thread would take longer than the answer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, thread_time
from typing import TypeVar

from lately.service.failures import RefusalError

T = TypeVar("T")

#: Seconds that a request may take.
LIMIT = 10.0
#: Seconds of work with which a question may keep all others waiting; and of waiting, which on a busy machine is longer.
SHORT, PAUSE = 0.002, 0.02
#: Ranges that are being prepared at the same time.
_MOST = 64
_REMEMBERED = 4096


class _Watch:
    """How long something takes this thread."""

    __slots__ = ("_began", "_used")

    def __init__(self) -> None:
        self._began, self._used = perf_counter(), thread_time()

    def was_short(self) -> bool:
        return thread_time() - self._used <= SHORT and perf_counter() - self._began <= PAUSE


class Work:
    """Runs calls; calls of the same range one after the other until they are known to be short."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._threads = ThreadPoolExecutor(2, "lately-work")
        self._running: dict[Hashable, asyncio.Future[None]] = {}
        self._short: OrderedDict[Hashable, None] = OrderedDict()

    def close(self) -> None:
        """Let go of the threads; what has not begun never will."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def do(self, range_: Hashable, call: Callable[[], T]) -> T:
        """What ``call`` gives; calls with the same ``range_`` share what makes the first of them slow."""
        if range_ in self._short:
            return self._here(range_, call)
        until = perf_counter() + self._limit
        while (before := self._running.get(range_)) is not None:
            await self._wait(before, until)
        if range_ in self._short:
            return self._here(range_, call)
        return await self._apart(range_, call, until)

    def _here(self, range_: Hashable, call: Callable[[], T]) -> T:
        watch = _Watch()
        try:
            return call()
        finally:
            if not watch.was_short():
                self._short.pop(range_, None)

    async def _apart(self, range_: Hashable, call: Callable[[], T], until: float) -> T:
        if len(self._running) >= _MOST:
            raise RefusalError(503, "busy", f"{_MOST} questions are being worked on", "ask again in a second")
        loop = asyncio.get_running_loop()
        short = False

        def timed() -> T:
            nonlocal short
            watch = _Watch()
            found = call()
            short = watch.was_short()
            return found

        asked = loop.run_in_executor(self._threads, timed)
        # Whoever waits for a turn must not be told of another's mistakes, so it waits for a future of its own.
        done: asyncio.Future[None] = loop.create_future()
        self._running[range_] = done

        def finished(future: asyncio.Future[T]) -> None:
            del self._running[range_]
            if not future.cancelled() and future.exception() is None and short:
                self._short[range_] = None
                if len(self._short) > _REMEMBERED:
                    self._short.popitem(last=False)
            if not done.done():
                done.set_result(None)

        asked.add_done_callback(finished)
        await self._wait(asked, until)
        return asked.result()

    async def _wait(self, future: asyncio.Future[T], until: float) -> None:
        finished, _ = await asyncio.wait({future}, timeout=max(0.0, until - perf_counter()))
        if not finished:
            raise RefusalError(
                503, "too_slow", f"it takes more than {self._limit:g} seconds", "ask again: it is being prepared"
            )
