"""The base of the schemes whose sites report how far they have drifted, so that few of them must send updates."""

from collections.abc import Sequence

import numpy as np

from lately.monitor.coordinator import Coordinator
from lately.monitor.region import Region
from lately.monitor.zones import Floats

#: With flush="lazy", sites send updates until the drift of the others leaves this share of the room.
ENOUGH_ROOM = 0.25


class DriftCoordinator(Coordinator):
    """Knows the drift norms of the sites, as they last reported them; ``Coordinator`` documents the parameters."""

    def _reported_norms(self, query: int, number: int) -> Floats:
        """The drift norms that a site reported for a query."""
        norms = self._members.states[number].norms
        return np.stack([norms[i] for i in self.monitor.channels[query]], axis=-1)

    def _mean_norms(self, query: int, without: set[int]) -> Floats:
        """The mean of the drift norms of all sites, if those ``without`` had none."""
        points = np.stack([self._reported_norms(query, number) * (number not in without) for number in self.sites])
        mean: Floats = points.mean(axis=0)
        return mean

    def _next_to_update(self, regions: Sequence[Region]) -> list[int]:
        """The fewest sites whose updates leave enough room under the present limits, those with most changes first."""
        rest, states = super()._next_to_update(regions), self._members.states
        rest.sort(key=lambda number: (-states[number].updates, number))
        low, high = 1, len(rest)
        while low < high:
            middle = (low + high) // 2
            if self._has_enough_room(regions, set(rest[:middle])):
                high = middle
            else:
                low = middle + 1
        return rest[:low]
