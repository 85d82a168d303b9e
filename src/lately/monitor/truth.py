"""What the queries would estimate from the sites' sketches, without messages; for simulations and tests."""

from collections.abc import Sequence
from typing import Any

from lately.core.keys import hash_keys, one_key
from lately.monitor.definition import MonitorDefinition
from lately.monitor.drift import WindowDrift
from lately.monitor.site import Site


class TrueCounts:
    """The counts of all sites for any key."""

    def __init__(self, drifts: Sequence[WindowDrift]) -> None:
        self._drifts = drifts

    def get(self, key: Any, default: int = 0) -> int:
        """The sum of the sites' counts of a key."""
        hashes = hash_keys(one_key(key))
        return sum(int(drift.counts(drift.layout.cells(hashes))[0]) for drift in self._drifts)


def true_values(monitor: MonitorDefinition, sites: Sequence[Site]) -> dict[str, Any]:
    """The estimate of every query if all sites sent their updates now, and for frequent keys the counts of all keys."""
    vectors = [sum((site.drifts[i].numbers for site in sites), zeros) for i, zeros in enumerate(monitor.empty_vectors())]
    values: dict[str, Any] = {name: monitor.estimate(number, vectors) for number, name in enumerate(monitor.names)}
    if monitor.frequent:
        channel = monitor.frequent[1].channel(monitor.streams)
        drifts = [drift for site in sites if isinstance(drift := site.drifts[channel], WindowDrift)]
        values[monitor.frequent[0]] = TrueCounts(drifts)
    return values
