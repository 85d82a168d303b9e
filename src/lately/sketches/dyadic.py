"""Questions about ranges of integer keys: how many, which rank, which quantile, which keys and prefixes are heavy.

The dyadic ranges of ECM-15 §6.1, with sixteen children to a node instead of two; see ``tree`` and ``ranks``.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from lately.core import plots
from lately.core.answers import Answers, KeyCount, PrefixCount, QuantileAt
from lately.core.arguments import check_integer
from lately.core.codec import storable
from lately.core.columns import Ints, whole_numbers
from lately.core.durations import Duration, arrivals
from lately.core.errors import InputError, ParameterError, RangeError
from lately.core.estimate import Estimate, Estimates
from lately.core.keys import HashedKeys, Keys
from lately.core.plain_values import plain_key
from lately.counters.base import Bounds
from lately.ingest.shape import window_and_lateness
from lately.sketches.extracts import Extract
from lately.sketches.hashing import DEFAULT_SEED
from lately.sketches.heavy import check_at_least, check_phi, heavy_keys, heavy_nodes, heavy_prefixes, most_listed, threshold
from lately.sketches.moments import HeavyPart, Moments, MomentsView
from lately.sketches.ranks import check_shares, round_to_estimate
from lately.sketches.sketch_kind import ROWS, ROWS_IN_TIME, Options, SketchKind, Suitability
from lately.sketches.tree import MAX_UNIVERSE, merged_eps, tree_arrays, tree_shape
from lately.sketches.windowed_tree import TreeView, WindowedTree

Between = tuple[Any, Any]


class DyadicView(TreeView, MomentsView):
    """Answers of a ``Dyadic`` about one range; its methods are described there."""

    def count(self, key: Any) -> Estimate:
        """How often a key occurred."""
        if (size := self._integers(key).size) != 1:
            raise InputError(f"count() answers for one key and was given {size:,}", remedy="use counts() for a column")
        return self.counts(key)[0]

    def counts(self, keys: Any) -> Estimates:
        """How often each key of a column occurred; ``high`` is certain."""
        low, value, high = self.tree.nodes(self.levels[-1], self._integers(keys))
        return Estimates(value, low, high, 1 - self.delta)

    def count_range(self, lo: int, hi: int) -> Estimate:
        """How many arrivals had a key from ``lo`` to ``hi``, both included."""
        first, final = self._integers([lo, hi]).tolist()
        if first > final:
            raise RangeError(f"count_range({lo}, {hi}) runs backwards", remedy="give the smaller key first")
        if final - first == self.shape.universe - 1:
            return self.total()
        return round_to_estimate(self.count_between(first, final), 1 - self.delta)

    def rank(self, x: int) -> Estimate:
        """How many arrivals had a key of at most ``x``."""
        return self.count_range(0, x)

    def quantile(self, q: Any) -> Any:
        """The smallest key up to which a share of ``q`` of the arrivals lies; for several shares, a row for each."""
        shares = check_shares(q)
        low, value, high = self.tree.quantile(shares)
        answers = Answers(QuantileAt, (shares.tolist(), Estimates(value, low, high, 1 - self.delta)))
        return answers[0].value if np.ndim(q) == 0 else answers

    def heavy_hitters(self, phi: float | None = None, at_least: int | None = None) -> Answers[KeyCount]:
        """The keys with a share of ``phi`` or more of the arrivals, or with ``at_least`` arrivals."""
        if (phi is None) == (at_least is None):
            raise ParameterError(f"phi={phi!r} and at_least={at_least!r}", remedy="give one of them")
        eps = self.shape.eps
        share = None if phi is None else check_phi(phi, eps)
        fixed = None if at_least is None else check_at_least(at_least)
        least = threshold(share, eps, self.tree.total()) if share is not None else fixed or 1.0
        keys, bounds, least = heavy_keys(self.tree, self.levels, least, most_listed(eps))
        return _ranked(keys, bounds, 1 - self.delta, least)

    def hierarchical(self, phi: float, bits_per_level: int = 8) -> Answers[PrefixCount]:
        """The prefixes that are heavy beyond what the heavy ones below them explain, the longest first."""
        bits, eps = (self.shape.universe - 1).bit_length(), self.shape.eps
        check_integer("bits_per_level", bits_per_level, 1, bits, remedy=f"a key has {bits} bits")
        check_phi(phi, eps)
        least = threshold(phi, eps, self.tree.total())
        prefixes, lengths, count, own, least = heavy_prefixes(
            self.tree, self.levels, least, most_listed(eps), bits, bits_per_level
        )
        counts, owns = (Estimates(b.value, b.low, b.high, 1 - self.delta) for b in (count, own))
        return Answers(PrefixCount, [prefixes, lengths, counts, owns], missed=math.ceil(least) - 1)

    def heavy_part(self) -> HeavyPart:
        eps = self.shape.eps
        low, value, high = (int(part[0]) for part in self.tree.total())
        least = max(2 * eps * low, 1.0)
        nodes, least, looked_at = heavy_nodes(self.tree, self.levels, least, most_listed(eps))
        bounds = self.tree.nodes(self.levels[-1], nodes[-1], together=looked_at)
        keys = Estimates(bounds.value, bounds.low, bounds.high, 1 - self.delta)
        return HeavyPart(keys, least, Estimate(value, low, high, 1.0))

    def _integers(self, keys: Any) -> Ints:
        return _keys_below(self.shape.universe, keys, RangeError)


@storable(4)
class Dyadic(WindowedTree, Moments):
    """Counts, ranks, quantiles and heavy hitters of integer keys below ``universe``, over a sliding window; mergeable.

    Every answer about the most recent period is off by at most ``eps`` times the arrivals in it, with probability
    1 - ``delta``; an answer about a range in the past by ``eps`` times the arrivals since it began plus those since it ended.
    Keys are, for example, IPv4 addresses, identifiers, milliseconds or cents.

    Parameters
    ----------
    universe
        Keys are integers from 0 to ``universe`` - 1; at most 2**63.
    window
        How far back questions may reach: a duration such as "1h", an integer if times are integers, or
        ``lt.arrivals(n)`` for the last n arrivals.
    eps
        The error, as a share of the arrivals in the range that is asked for.
    delta
        The probability that an answer is off by more.
    tick
        The time resolution, such as "1s", which is the default; 1 if times are integers.
    merge_height
        How many levels of merging are planned. Counters are built finer, so that eps holds after that many; 0 by
        default.
    lateness
        How much older than the newest arrival an arrival may be, such as "5m". Arrivals wait in a buffer for that long;
        by default they do not wait, and older ones are late.
    seed
        The seed of the hash functions, an integer of 64 bits. Sketches that are merged need the same one; a fixed one
        by default.

    >>> sketch = Dyadic(universe=2**32, window="1h", eps=0.1, delta=0.1)
    >>> sketch.update([7, 80, 443, 443], [0, 10, 20, 30])
    >>> sketch.count_range(0, 99), sketch.quantile(0.5).value, sketch.heavy_hitters(phi=0.4)[0].key
    (Estimate(2, 2..2, 90%), 80, 443)
    """

    def __init__(
        self,
        *,
        universe: int,
        window: Duration | arrivals,
        eps: float,
        delta: float,
        tick: Duration | None = None,
        merge_height: int = 0,
        lateness: Duration | None = None,
        seed: int = DEFAULT_SEED,
    ) -> None:
        check_integer("universe", universe, 2, MAX_UNIVERSE, remedy="keys are integers from 0 to universe - 1")
        window_shape = window_and_lateness(window, tick, lateness)
        shape = tree_shape(window_shape, eps, delta, merge_height, int(universe), seed)
        self._begin(shape, tree_arrays(shape))

    @property
    def universe(self) -> int:
        """The number of possible keys: they are smaller than this."""
        return self._shape.universe

    def __repr__(self) -> str:
        return (
            f"Dyadic(universe={self.universe}, {self._window!r}, eps={self.eps}, delta={self.delta}, "
            f"merges={self.merges}, nbytes={self.nbytes:_})"
        )

    def update(self, keys: Any, times: Any = None, counts: Any = None) -> None:
        """Count a column of integer keys at their times, ``counts`` times each.

        Parameters
        ----------
        keys
            Integers from 0 to ``universe`` - 1: a list, a NumPy, pandas, polars or Arrow column, or a single one.
        times
            The time of each row: dates, text, or integers if the window is an integer. None in a window of arrivals,
            where each row is one arrival.
        counts
            How often to count each row; once by default.
        """
        key = plain_key(keys)
        if type(key) is int and 0 <= key < self.universe and self._add_waiting(key, times, counts):
            return
        self._ingest(HashedKeys(_keys_below(self.universe, keys, InputError).view(np.uint64)), times, counts)

    def _column_of(self, keys: list[Any]) -> Keys:
        return HashedKeys(np.array(keys, np.uint64))

    # -- read ----------------------------------------------------------------------------------------------------------

    def count(self, key: Any, last: Duration | None = None, between: Between | None = None) -> Estimate:
        """How often a key occurred.

        Parameters
        ----------
        key
            The key.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).count(key)

    def counts(self, keys: Any, last: Duration | None = None, between: Between | None = None) -> Estimates:
        """How often each key of a column occurred; ``high`` is certain.

        Parameters
        ----------
        keys
            A column of keys.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).counts(keys)

    def count_range(self, lo: int, hi: int, last: Duration | None = None, between: Between | None = None) -> Estimate:
        """How many arrivals had a key from ``lo`` to ``hi``, both included.

        Parameters
        ----------
        lo
            The smallest key that counts.
        hi
            The largest key that counts.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.

        >>> sketch = Dyadic(universe=1000, window=100, eps=0.1, delta=0.1)
        >>> sketch.update([100, 150, 200, 900], [1, 2, 3, 4])
        >>> sketch.count_range(100, 200, last=3)
        Estimate(2, 2..2, 90%)
        """
        return self.in_range(last, between).count_range(lo, hi)

    def rank(self, x: int, last: Duration | None = None, between: Between | None = None) -> Estimate:
        """How many arrivals had a key of at most ``x``.

        Parameters
        ----------
        x
            The largest key that counts.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).rank(x)

    def quantile(self, q: Any, last: Duration | None = None, between: Between | None = None) -> Any:
        """The smallest key up to which a share of ``q`` of the arrivals lies; for several shares, a row for each.

        The rank of the answer, as a share of the arrivals, is within eps of q.

        Parameters
        ----------
        q
            A share from 0 to 1, or several.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.

        >>> sketch = Dyadic(universe=1000, window=100, eps=0.1, delta=0.1)
        >>> sketch.update(range(100), 1)
        >>> sketch.quantile([0.1, 0.9])
        q    value  low..high, 90%
        0.1      9            9..9
        0.9     89          89..89
        """
        return self.in_range(last, between).quantile(q)

    def heavy_hitters(
        self,
        phi: float | None = None,
        at_least: int | None = None,
        last: Duration | None = None,
        between: Between | None = None,
    ) -> Answers[KeyCount]:
        """The keys with a share of ``phi`` or more of the arrivals, or with ``at_least`` arrivals or more; give one of them.

        Every key with a share of phi + eps is listed, for certain; with probability 1 - delta, none with less than phi
        (ECM-15 Theorem 5). With ``at_least``, every key with that many arrivals is listed, and none with eps·arrivals fewer.
        Where the bounds are too wide to separate heavy keys from others, as in a short range long ago, the list is cut to the
        largest; ``missed`` is always how often a key that is not listed occurred, at most.

        Parameters
        ----------
        phi
            The share of the arrivals from which on a key is heavy; it must be larger than eps.
        at_least
            A number of arrivals, from 1, instead of ``phi``.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).heavy_hitters(phi, at_least)

    def hierarchical(
        self, phi: float, last: Duration | None = None, between: Between | None = None, bits_per_level: int = 8
    ) -> Answers[PrefixCount]:
        """The prefixes that are heavy beyond what the heavy ones below them explain, the longest first.

        A prefix of b bits comprises all keys that begin with them (IPv4: /8, /16, /24, /32 with 8 bits a level). Its
        ``own`` arrivals are those under no listed prefix below it. With probability 1 - delta each, counts are within
        their bounds, and a prefix that is not listed has less than phi + eps of the arrivals of its own.

        Parameters
        ----------
        phi
            The share of the arrivals from which on a key is heavy; it must be larger than eps.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        bits_per_level
            The lengths of prefixes are those of a key less multiples of this many bits; 8 by default.
        """
        return self.in_range(last, between).hierarchical(phi, bits_per_level)

    def plot(self, bins: int = 32, last: Duration | None = None, between: Between | None = None, ax: Any = None) -> Any:
        """Draw a histogram of the keys with the bounds as error bars; needs matplotlib. Returns the axes.

        Parameters
        ----------
        bins
            How many bars, from 1 to 10,000; 32 by default.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        ax
            The axes of matplotlib to draw on; new ones by default.
        """
        check_integer("bins", bins, 1, 10_000)
        edges = sorted({self.universe * i // bins for i in range(bins + 1)})
        bounds, view = list(pairwise(edges)), self.in_range(last, between)
        low, value, high = np.array([view.count_between(a, b - 1) for a, b in bounds]).T
        labels = [f"{a}..{b - 1}" for a, b in bounds]
        ax = plots.bars(labels, Estimates(value, low, high, 1 - self.delta), ax)
        ax.set_xlabel("count")
        ax.set_ylabel("key")
        return ax

    # -- inside --------------------------------------------------------------------------------------------------------

    def in_range(self, last: Duration | None = None, between: Between | None = None) -> DyadicView:
        """A view of one range, which answers several questions about it.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return DyadicView(self._shape, self._tree_in_range(last, between))

    def _view_of(self, extract: Extract) -> DyadicView:
        return DyadicView(self._shape, self._tree_of(extract))


def _keys_below(universe: int, keys: Any, error: type[InputError] | type[RangeError]) -> Ints:
    """A column of integers from 0 to universe - 1."""
    column = whole_numbers(keys, "keys")
    if column.size and not (column.min() >= 0 and column.max() < universe):
        odd = column[(column < 0) | (column >= universe)][0]
        raise error(f"the key {odd} lies outside of 0..{universe - 1}", remedy="filter it, or build a larger universe")
    return column


def _ranked(keys: Ints, bounds: Bounds, confidence: float, least: float) -> Answers[KeyCount]:
    order = np.lexsort((keys, -bounds.value))
    low, value, high = (part[order] for part in bounds)
    return Answers(KeyCount, [keys[order], Estimates(value, low, high, confidence)], missed=math.ceil(least) - 1)


def _example_keys(keys: Ints, options: Options) -> Ints:
    return keys % int(options["universe"])


KIND = SketchKind(
    "dyadic",
    Dyadic,
    key_encoding="integer",
    questions={
        "count": Suitability(0, 3, ROWS),
        "quantiles": Suitability(1, 0, ROWS),
        "range": Suitability(0, 0, ROWS_IN_TIME),
        "self-join": Suitability(1, 1),
        "total": Suitability(0, 3),
    },
    guarantee=("eps", "delta", "universe"),
    merged_eps=merged_eps,
    example_keys=_example_keys,
)
