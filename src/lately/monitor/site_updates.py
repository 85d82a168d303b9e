"""The updates of a site: what has changed in its sketches since the last one, and whether to send one without being asked."""

from collections.abc import Set

import numpy as np

from lately.core.codec import Reader, Writer
from lately.counters.base import Counts
from lately.monitor import messages as m
from lately.monitor.definition import MonitorDefinition
from lately.monitor.drift import Drift
from lately.monitor.frequent_site import PATIENCE
from lately.monitor.query import row_norms


class SiteUpdates:
    """The changes of a site's sketches since its last update, and the unsolicited updates while it waits for an answer.

    Parameters
    ----------
    monitor
        The definition of the monitor.
    drifts
        What the site counts in each layout.
    """

    def __init__(self, monitor: MonitorDefinition, drifts: list[Drift]) -> None:
        self._monitor, self._drifts = monitor, drifts
        self._calls_waited = 0  # batches and advances since the site began to wait
        self._unsolicited: list[Counts] | None = None  # the numbers in the last unsolicited update since then

    def take_changes(self) -> tuple[m.Change, ...]:
        """What has changed since the last update; the next one begins here."""
        changes = []
        for drift in self._drifts:
            changes.append(_change(drift))
            drift.take_changes()
        self._unsolicited = None
        return tuple(changes)

    def unsolicited_changes(self) -> tuple[m.Change, ...]:
        """What has changed since the last update; the next update contains it again."""
        self._unsolicited = [drift.numbers.copy() for drift in self._drifts]
        return tuple(_change(drift) for drift in self._drifts)

    def is_due_while_waiting(self, more_channels: Set[int]) -> bool:
        """Whether to send an unsolicited update now; call it after every batch and advance while the site waits.

        ``more_channels`` are layouts to look at besides those that queries read.
        """
        self._calls_waited = min(self._calls_waited + 1, PATIENCE + 1)
        if self._calls_waited <= PATIENCE:
            return self._calls_waited == PATIENCE
        channels = {i for of_query in self._monitor.channels for i in of_query} | more_channels
        return any(map(self._has_changed, channels))

    def _has_changed(self, channel: int) -> bool:
        """Whether a row has risen or fallen by more than a share of itself since the last update of either kind."""
        drift, signed = self._drifts[channel], self._monitor.layouts[channel].signed
        table = drift.table()
        before = drift.sent if self._unsolicited is None else self._unsolicited[channel]
        change = (drift.numbers - before).astype(np.float64).reshape(table.shape)
        parts = (change,) if signed else (np.maximum(change, 0), np.minimum(change, 0))
        limits = self._monitor.impatience * row_norms(table)
        return any(bool((row_norms(part) > limits).any()) for part in parts)

    def stop_waiting(self) -> None:
        """The site was answered."""
        self._calls_waited, self._unsolicited = 0, None

    def write(self, out: Writer) -> None:
        """Write how long the site waits, and its last unsolicited update."""
        out.u8(self._calls_waited)
        out.u8(self._unsolicited is not None)
        for numbers in self._unsolicited or ():
            out.deltas(numbers)

    def read(self, source: Reader) -> None:
        """Read what ``write`` wrote."""
        self._calls_waited = source.u8()
        if source.choice(0, 1):
            self._unsolicited = [source.deltas(layout.size) for layout in self._monitor.layouts]


def _change(drift: Drift) -> m.Change:
    """The change of a layout in the smaller of its encodings: the numbers, or the keys that arrived."""
    numbers = drift.numbers - drift.sent
    keys = drift.verbatim()
    if keys is None or 8 * keys[0].size > 4 * numbers.size:
        return numbers
    if keys[0].size < numbers.size // 64:  # sparse numbers take more: an entry in every row
        return keys
    as_keys, as_numbers = m.SketchUpdate(0, 0, 0, (keys,)).nbytes, m.SketchUpdate(0, 0, 0, (numbers,)).nbytes
    return keys if as_keys < as_numbers else numbers
