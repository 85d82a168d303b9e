"""The query for frequent keys: which keys arrive often over all sites (ECM-15 §6.3).

The monitor solves it with a small query for each key that is frequent somewhere. A site reports a key when its own count
reaches a cap; at first every key has the same cap, the site's share of tau. Then all sites report their counts of the key and
get limits of their own: floors if the counts add up to tau or more, else caps. A key's count can only rise when the key
arrives, so arrivals are checked; it falls when one of its counters expires, so the expiry of counters is checked too.

Caps add up to less than (1 + theta)·tau and floors to at least (1 - theta)·tau. So a listed key has a count of at least
(1 - theta)·tau, and a key that is not listed had less than (1 + theta)·tau whenever it arrived (Lemma 1).

A site remembers the keys that arrive before it has limits. If it has reported a key and waited for a few batches, it reports it
again when the count has grown by theta. So a site that never answers hides nothing: a key is listed as soon as the counts of
the other sites add up to tau, which happens before their true counts reach (1 + theta)·tau.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lately.core.codec import Reader
from lately.core.errors import ParameterError
from lately.core.keys import all_hashes
from lately.core.stored_keys import column_of, read_keys
from lately.counters.base import MAX_COUNT
from lately.monitor.query import stream_index


@dataclass(frozen=True, kw_only=True)
class Frequent:
    """The keys that arrive ``tau`` times or more within the window, over all sites. A monitor has at most one.

    Keys with a count within ``theta`` of tau may be listed or not.

    Parameters
    ----------
    tau
        The count from which on a key is frequent; 1 or more.
    theta
        The tolerance, as a share of tau; 0 or more, and below 1.
    stream
        The name of the stream; by default the only one.

    >>> Frequent(tau=1000, theta=0.1).tau
    1000
    """

    tau: float
    theta: float
    stream: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.tau, bool) or not isinstance(self.tau, int | float) or not 1 <= self.tau <= MAX_COUNT:
            raise ParameterError(f"Frequent(tau={self.tau!r}) is out of range", remedy="give a count of at least 1")
        if isinstance(self.theta, bool) or not isinstance(self.theta, int | float) or not 0 <= self.theta < 1:
            raise ParameterError(
                f"Frequent(theta={self.theta!r}) is out of range", remedy="give a tolerance from 0 to below 1, such as 0.1"
            )

    def channel(self, names: Sequence[str]) -> int:
        """The index of its stream."""
        return stream_index(names, self.stream)


def read_hashed_keys(source: Reader) -> list[tuple[int, Any]]:
    """Read keys that were written in the order of their hashes; returns hashes and keys."""
    keys = read_keys(source)
    hashes = all_hashes(column_of(keys)) if keys else np.empty(0, np.uint64)
    source.check(bool((hashes[1:] > hashes[:-1]).all()), "keys out of order")
    return list(zip(hashes.tolist(), keys, strict=True))
