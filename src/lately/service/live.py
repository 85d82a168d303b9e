"""What happens, as it happens: one task looks for new batches, and everybody who listens is told.

An event's id is the number of its batch. Alerts go out before the batch that raised them and only the batch has an id, so
that a listener who comes back with the last id it saw has missed nothing; at worst it hears of an alert twice.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lately.core.words import with_state
from lately.service import plain
from lately.service.failures import LOG, UNREADABLE, RefusalError, refusal_of
from lately.service.metrics import Metrics
from lately.store.site_report import site_report
from lately.store.view import View

#: Seconds between two looks, and between two signs of life.
LOOK, PING = 0.5, 15.0
#: Listeners at the same time, and batches that one of them may be behind.
_LISTENERS, _BEHIND = 64, 256
#: The most that is told of the past.
_PAST = 500


@dataclass(frozen=True)
class Told:
    """A batch, as it goes out."""

    batch: int
    frames: bytes


class Live:
    """Looks for new batches and tells of them."""

    def __init__(self, view: View, metrics: Metrics, look: float = LOOK, ping: float = PING) -> None:
        self._view, self._metrics, self._look, self._ping = view, metrics, look, ping
        self._thread = ThreadPoolExecutor(1, "lately-look")
        self._listeners: set[asyncio.Queue[Told | None]] = set()
        self._closed = False
        #: Why the store could not be read at the last look.
        self.trouble: RefusalError | None = None
        metrics.ran(view.runs(limit=2**31), view.alerts(limit=2**31))
        metrics.see_sites(site_report(view))
        self._seen = view.batch

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._look)
            try:
                told = await loop.run_in_executor(self._thread, self._news)
            except UNREADABLE as error:
                if self.trouble is None:
                    LOG.warning("the store cannot be read: %s", error)
                found = refusal_of(error)
                self.trouble = RefusalError(503, "store_unreadable", found.message, found.remedy)
                continue
            self.trouble = None
            for one in told:
                self._tell(one)
                await asyncio.sleep(0)  # after a pause there may be many, and those who read must not be taken by surprise

    def dismiss(self) -> None:
        """Send everybody home, and let nobody in any more."""
        self._closed = True
        for queue in list(self._listeners):
            _dismiss(queue)

    def close(self) -> None:
        """Let go of the thread."""
        self.dismiss()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def listen(self, last: int | None) -> AsyncIterator[bytes]:
        """What goes out to one listener: first what it has missed since batch ``last``, then what comes."""
        if len(self._listeners) >= _LISTENERS:
            raise RefusalError(503, "busy", f"{_LISTENERS} are listening already", "close a page that you do not need")
        return self._frames(last)

    async def _frames(self, last: int | None) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[Told | None] = asyncio.Queue(_BEHIND)
        self._listeners.add(queue)
        self._metrics.listeners = len(self._listeners)
        try:
            yield b"retry: 2000\n\n"
            past = await self._missed(last)
            for one in past:
                yield one.frames
            while not self._closed:
                try:
                    async with asyncio.timeout(self._ping):
                        new = await queue.get()
                except TimeoutError:
                    yield b": ping\n\n"
                    continue
                if new is None:
                    return
                if new not in past:
                    yield new.frames
        finally:
            self._listeners.discard(queue)
            self._metrics.listeners = len(self._listeners)

    async def _missed(self, last: int | None) -> list[Told]:
        if last is None or self._closed:
            return []
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._since, last)
        except UNREADABLE:
            return []

    def _tell(self, told: Told) -> None:
        for queue in list(self._listeners):
            if queue.full():  # it does not read; it may come back and ask for what it missed
                _dismiss(queue)
                self._listeners.discard(queue)
            else:
                queue.put_nowait(told)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _news(self) -> list[Told]:
        if not self._view.refresh():
            return []
        batch, seen = self._view.batch, self._seen
        self._seen = batch
        if batch is None:
            return []
        self._metrics.see_sites(site_report(self._view))
        if seen is not None and batch <= seen:  # it was run again, or somebody began anew
            return _told(*self._after(batch - 1))
        runs, alerts = self._after(seen)
        self._metrics.ran(runs, alerts)
        return _told(runs, alerts)

    def _since(self, last: int) -> list[Told]:
        newest = self._view.batch
        # A listener that knows more than there is has seen another run's batches.
        return _told(*self._after(last if newest is None or last <= newest else newest - 1))

    def _after(self, batch: int | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return self._view.runs(limit=_PAST, after_batch=batch), self._view.alerts(limit=_PAST, after_batch=batch)


def _told(runs: list[dict[str, Any]], alerts: list[dict[str, Any]]) -> list[Told]:
    told = []
    for run in runs:
        number = run["batch"]
        raised = [_frame("alert", with_state(alert)) for alert in alerts if alert["batch"] == number]
        told.append(Told(number, b"".join([*raised, _frame("batch", run, number)])))
    return told


def _frame(event: str, row: dict[str, Any], number: int | None = None) -> bytes:
    named = "" if number is None else f"id: {number}\n"
    return f"{named}event: {event}\ndata: {plain.text(plain.row(row))}\n\n".encode(errors="replace")


def _dismiss(queue: asyncio.Queue[Told | None]) -> None:
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
