"""Server-sent events: one task polls the store for new batches and sends them to all connected clients.

The id of an event is the number of its batch. Alerts are sent before their batch, and only the batch has an id. So a client
that reconnects with the last id it received has missed nothing; at worst it receives an alert twice.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lately.core.json_encoding import encode
from lately.service.http_errors import LOG, STORE_ERRORS, HttpError, to_http_error
from lately.service.metrics import Metrics
from lately.store.site_report import site_report
from lately.store.tables import Alert, Run
from lately.store.view import View

#: Seconds between two polls of the store, and between two comments that keep an idle connection open.
POLL_INTERVAL, PING_INTERVAL = 0.5, 15.0
#: Clients that may be connected at the same time, and batches that may wait for one of them.
_MAX_CLIENTS, _MAX_WAITING = 64, 256
#: Batches, and alerts, that a client which reconnects receives of the past.
_MAX_PAST = 500


@dataclass(frozen=True)
class BatchEvents:
    """The events of one batch, encoded: its alerts, then the batch itself."""

    batch: int
    frames: bytes


class Broadcaster:
    """Polls a store for new batches and sends them to all connected clients.

    Parameters
    ----------
    view
        The store. It is refreshed here, and only here.
    metrics
        Is updated with every new batch.
    poll_interval
        Seconds between two polls of the store.
    ping_interval
        Seconds without an event after which a client is sent a comment.
    """

    def __init__(
        self, view: View, metrics: Metrics, poll_interval: float = POLL_INTERVAL, ping_interval: float = PING_INTERVAL
    ) -> None:
        self._view, self._metrics = view, metrics
        self._poll_interval, self._ping_interval = poll_interval, ping_interval
        self._thread = ThreadPoolExecutor(1, "lately-poll")
        self._clients: set[asyncio.Queue[BatchEvents | None]] = set()
        self._closed = False
        #: Why the store could not be read at the last poll; None if it could.
        self.store_error: HttpError | None = None
        metrics.add_batches(view.runs(limit=2**31), view.alerts(limit=2**31))
        metrics.set_sites(site_report(view))
        self._newest_sent = view.batch

    async def watch(self) -> None:
        """Poll the store until this task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._poll_interval)
            try:
                events = await loop.run_in_executor(self._thread, self._poll)
            except STORE_ERRORS as error:
                if self.store_error is None:
                    LOG.warning("the store cannot be read: %s", error)
                details = to_http_error(error)
                self.store_error = HttpError(503, "store_unreadable", details.message, details.remedy)
                continue
            self.store_error = None
            for batch_events in events:
                self._send(batch_events)
                await asyncio.sleep(0)  # there may be many after a pause: let clients empty their queues in between

    def disconnect_all(self) -> None:
        """Disconnect all clients, and accept no more."""
        self._closed = True
        for queue in list(self._clients):
            _disconnect(queue)

    def close(self) -> None:
        """Disconnect all clients and release the thread."""
        self.disconnect_all()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def connect(self, last: int | None) -> AsyncIterator[bytes]:
        """The byte stream for a new client, or HTTP error 503 if too many are connected.

        Parameters
        ----------
        last
            The batch whose event the client received last: it is sent what came after it first. None sends new events only.
        """
        if len(self._clients) >= _MAX_CLIENTS:
            raise HttpError(503, "busy", f"{_MAX_CLIENTS} clients are connected already", "close a page that you do not need")
        return self._frames(last)

    async def _frames(self, last: int | None) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[BatchEvents | None] = asyncio.Queue(_MAX_WAITING)
        self._clients.add(queue)
        self._metrics.listeners = len(self._clients)
        try:
            yield b"retry: 2000\n\n"
            past = await self._missed(last)
            for events in past:
                yield events.frames
            while not self._closed:
                try:
                    async with asyncio.timeout(self._ping_interval):
                        new = await queue.get()
                except TimeoutError:
                    yield b": ping\n\n"
                    continue
                if new is None:
                    return
                if new not in past:
                    yield new.frames
        finally:
            self._clients.discard(queue)
            self._metrics.listeners = len(self._clients)

    async def _missed(self, last: int | None) -> list[BatchEvents]:
        if last is None or self._closed:
            return []
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._events_since, last)
        except STORE_ERRORS:
            return []

    def _send(self, events: BatchEvents) -> None:
        for queue in list(self._clients):
            if queue.full():  # this client does not read; when it reconnects it can ask for what it missed
                _disconnect(queue)
                self._clients.discard(queue)
            else:
                queue.put_nowait(events)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _poll(self) -> list[BatchEvents]:
        if not self._view.refresh():
            return []
        batch, newest_sent = self._view.batch, self._newest_sent
        self._newest_sent = batch
        if batch is None:
            return []
        self._metrics.set_sites(site_report(self._view))
        if newest_sent is not None and batch <= newest_sent:  # the batch was run again, or the store was replaced
            return _encode(*self._rows_after(batch - 1))
        runs, alerts = self._rows_after(newest_sent)
        self._metrics.add_batches(runs, alerts)
        return _encode(runs, alerts)

    def _events_since(self, last: int) -> list[BatchEvents]:
        newest = self._view.batch
        # A client whose last batch is newer than all of them has received batches of another run.
        return _encode(*self._rows_after(last if newest is None or last <= newest else newest - 1))

    def _rows_after(self, batch: int | None) -> tuple[list[Run], list[Alert]]:
        return self._view.runs(limit=_MAX_PAST, after_batch=batch), self._view.alerts(limit=_MAX_PAST, after_batch=batch)


def _encode(runs: list[Run], alerts: list[Alert]) -> list[BatchEvents]:
    encoded = []
    for run in runs:
        number = run.batch
        frames = [_frame("alert", alert) for alert in alerts if alert.batch == number]
        encoded.append(BatchEvents(number, b"".join([*frames, _frame("batch", run, number)])))
    return encoded


def _frame(event: str, row: Run | Alert, number: int | None = None) -> bytes:
    id_line = "" if number is None else f"id: {number}\n"
    return f"{id_line}event: {event}\ndata: {encode(row)}\n\n".encode(errors="replace")


def _disconnect(queue: asyncio.Queue[BatchEvents | None]) -> None:
    """Drop what waits for a client, and end its stream."""
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
