"""The site of the scheme "ship", which sends every event."""

from typing import Any

import numpy as np

from lately.core.keys import Hashes
from lately.core.times import tick_of
from lately.counters.base import Counts
from lately.monitor import messages as m
from lately.monitor.messages import Message
from lately.monitor.site import Site


class ShippingSite(Site):
    """A site that sends every event; ``Site`` documents the parameters."""

    def warm(self, keys: Any, times: Any = None, counts: Any = None, stream: str | None = None) -> list[Message]:
        return self.update(keys, times, counts, stream)

    def update(self, keys: Any, times: Any = None, counts: Any = None, stream: str | None = None) -> list[Message]:
        self._join()  # before its first events
        batch = self._ingest(keys, times, counts, stream)
        if batch.hashes.size:
            ticks = np.zeros(0, np.int64) if batch.ticks is None else batch.ticks
            self._send_events(batch.stream, batch.hashes, ticks, batch.counts)
        return self._take_outbox()

    def advance(self, time: Any) -> list[Message]:
        had_joined = bool(self._sequence)
        messages = super().advance(time)
        if had_joined and self.monitor.window is not None and any(drift.norms().any() for drift in self.drifts):
            tick = tick_of(time, self.monitor.window)
            self._send_events(0, np.empty(0, np.uint64), np.array([tick]), np.empty(0, np.int64))
        return messages + self._take_outbox()

    def _send_events(self, stream: int, hashes: Hashes, ticks: Counts, counts: Counts) -> None:
        for drift in self.drifts:
            drift.take_changes()
        self._send(m.Events, stream, hashes, ticks, counts)
