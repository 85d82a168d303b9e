"""The most frequent keys over a sliding window, for keys of any type.

key ──> uint64 ──> one cell in each of ``depth`` rows ──> shared waves      how often any key occurred
    └────────────> the newest rows, and lists of older ones                 which keys may be frequent
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from lately.core import plan
from lately.core.answers import Answers, KeyCount
from lately.core.arguments import check_integer, check_probability, check_word
from lately.core.codec import Reader, Writer, storable
from lately.core.columns import Ints
from lately.core.durations import Duration, arrivals
from lately.core.errors import ParameterError
from lately.core.estimate import Estimate, Estimates
from lately.core.key_types import KeyTypes
from lately.core.keys import Keys
from lately.counters.base import MAX_STAMP, Bounds, Counts, Stamps
from lately.counters.shared import SharedWave
from lately.counters.wave import Wave
from lately.ingest.shape import WindowShape, read_window_shape, window_and_lateness
from lately.sketches.candidates import Candidates, CandidateSet, with_buffered
from lately.sketches.extracts import Extract, ExtractableSketch
from lately.sketches.hashing import DEFAULT_SEED
from lately.sketches.heavy import check_phi, threshold
from lately.sketches.moments import HeavyPart, Moments, MomentsView
from lately.sketches.range_view import CellCounts, CountMinView, HashedRows
from lately.sketches.sketch_kind import ROWS, Options, SketchKind, Suitability
from lately.sketches.windowed_countmin import SketchCells, WindowedCountMin

Between = tuple[Any, Any]

#: The largest k: more than any screen shows, and the lists are longer only for a tiny eps.
_MOST_K = 1_000_000
_MOST_CELLS = 2**28

#: The shares of eps that collisions and the window's counters take; the rest is for what merging adds.
_COLLISIONS, _WINDOW = 3 / 4, 1 / 8
#: By which multiple of its error a level of merging makes a shared wave worse, as measured.
_MERGING = 1.2


@dataclass(frozen=True, slots=True)
class TopKShape(WindowShape):
    """The options: ``line`` is the share from which on no key is missed, ``k`` how many keys ``top`` gives."""

    k: int
    line: float
    seed: int

    @property
    def size(self) -> tuple[int, int]:
        """(width, depth): three quarters of eps for collisions."""
        odds, depth = plan.fewest_rows(self.delta)
        return math.ceil(odds / (_COLLISIONS * self.eps)), depth

    @property
    def eps_sw(self) -> float:
        """An eighth of eps for the window, so that it is good for either bound, merges included."""
        return self.eps * _WINDOW / (1 + _MERGING * self.merge_height)

    @property
    def listed(self) -> int:
        """Keys on a list: twice what the pigeonhole needs, for blocks that begin before a range does."""
        return math.ceil(2 / self.line)

    def write(self, out: Writer) -> None:
        WindowShape.write(self, out)
        out.u64(self.k)
        out.f64(self.line)
        out.u64(self.seed)


class CellsAndLists(CellCounts, Protocol):
    """What the cells counted in one range, and which keys could be heavy there."""

    def candidate_set(self) -> CandidateSet:
        """The keys that could be heavy."""


class TopKView(CountMinView, MomentsView):
    """Answers of a ``TopK`` about one range.

    Parameters
    ----------
    shape
        What the sketch was asked for.
    rows, key_types
        As in ``CountMinView``.
    counts
        What the cells counted in the range, and which keys could be heavy.
    """

    _counts: CellsAndLists

    def __init__(self, shape: TopKShape, rows: HashedRows, counts: CellsAndLists, key_types: KeyTypes = None) -> None:
        super().__init__(rows, shape.delta, counts, key_types)
        self.shape = shape

    def top(self, k: int | None = None) -> Answers[KeyCount]:
        """The ``k`` keys with the largest counts, by default as many as the sketch was built for."""
        most = self.shape.k if k is None else _check_k(k)
        candidates = self._counts.candidate_set()
        if candidates.hashes.size > most:  # drop those that certainly occurred less often than ``most`` others
            candidates = candidates.only(candidates.most >= np.partition(candidates.least, -most)[-most])
        listed = min(most, candidates.hashes.size)
        return self._answers(candidates, self._bounds(candidates, listed), np.arange(candidates.hashes.size), most)

    def heavy_hitters(self, phi: float | None = None) -> Answers[KeyCount]:
        """The keys with a share of ``phi`` or more of the arrivals, by default the phi that the sketch was built with."""
        eps, line = self.shape.eps, self.shape.line
        share = line if phi is None else phi
        if phi is None and share == eps:
            raise ParameterError(
                "this TopK was built with k=", remedy="say which share is heavy, as in heavy_hitters(phi=0.05)"
            )
        check_phi(share, eps)
        if share < line:
            raise ParameterError(f"phi={phi!r} is below {line:g}, from which on keys are listed", remedy="build it with less")
        least = threshold(share, eps, self.total_bounds())
        candidates = self._counts.candidate_set()
        candidates = candidates.only(candidates.most >= least)
        selected = np.flatnonzero(self.key_bounds(candidates.hashes).high >= least)
        return self._answers(candidates, self._bounds(candidates, selected.size), selected)

    def _bounds(self, candidates: CandidateSet, listed: int) -> Bounds:
        """Bounds of candidates of which so many will be listed; a listed one is wrong with a probability of at most delta.

        Keys are listed for their estimates, and those whose cells have most collisions are the first: where many candidates
        are about as frequent, those bounds are wrong more often. Candidates come from the lists, without a look at the cells.
        If each of m has bounds that are wrong with a probability of delta·k/m, at most delta·k of them are wrong on average,
        so no more than delta of the k that are listed (Benjamini and Yekutieli's false coverage rate).
        """
        low, value, high = self.key_bounds(candidates.hashes, candidates.hashes.size / max(listed, 1))
        high = np.minimum(high, candidates.most)  # the lists are certain
        return Bounds(np.clip(low, candidates.least, high), np.clip(value, candidates.least, high), high)

    def heavy_part(self) -> HeavyPart:
        eps, candidates = self.shape.eps, self._counts.candidate_set()
        low, value, high = (int(part[0]) for part in self.total_bounds())
        candidates = candidates.only(candidates.most >= 2 * eps * low)
        # One likely bound that is wrong would make the whole answer wrong, so they hold together; the lists are certain.
        likely = self.key_bounds(candidates.hashes, together=candidates.hashes.size)
        most = np.minimum(likely.high, candidates.most)
        bounds = Bounds(np.clip(likely.low, candidates.least, most), np.clip(likely.value, candidates.least, most), most)
        heavy = bounds.high >= max(2 * eps * low, 1.0)
        missed = max(int(bounds.high[~heavy].max(initial=0)), candidates.missed)
        # Bytes keep no order of the candidates, and sums of floats depend on it.
        order = np.flatnonzero(heavy)[np.argsort(candidates.hashes[heavy])]
        keys = Estimates(bounds.value[order], bounds.low[order], bounds.high[order], 1 - self.delta)
        return HeavyPart(keys, missed, Estimate(value, low, high, 1.0))

    def _answers(self, candidates: CandidateSet, bounds: Bounds, selected: Ints, most: int | None = None) -> Answers[KeyCount]:
        """The selected candidates, largest first."""
        order = selected[np.lexsort((candidates.hashes[selected], -bounds.value[selected]))][:most]
        low, value, high = (part[order] for part in bounds)
        rest = np.delete(bounds.high, order).max(initial=0)
        names = candidates.keys.pick(candidates.rows[order])
        missed = max(int(rest), candidates.missed)
        return Answers(KeyCount, [names, Estimates(value, low, high, 1 - self.delta)], missed=missed)


@storable(6)
class TopK(WindowedCountMin[TopKShape], ExtractableSketch[TopKShape], Moments):
    """The most frequent keys and their counts over a sliding window, for keys of any type; mergeable across sites.

    A count over the most recent period is off by at most ``eps`` times the arrivals in it, with probability 1 - ``delta``.
    Memory is bounded whatever the stream: a few lists of 2/phi keys (2/eps with ``k``), and O(1/eps) for the counts. Give
    either ``k`` or ``phi``.

    Parameters
    ----------
    k
        How many keys ``top`` gives by default.
    phi
        The share of the arrivals from which on a key is heavy, instead of ``k``; it must be larger than eps.
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

    >>> top = TopK(k=2, window="1h", eps=0.01, delta=0.01)
    >>> top.update(["/", "/cart", "/", "/help", "/", "/cart"], [0, 10, 20, 30, 40, 50])
    >>> top.top(last="10m")
    key    count  low..high, 99%
    /          3            3..3
    /cart      2            2..2
    not listed: 1 at most
    >>> [row.key for row in top.heavy_hitters(phi=0.4)]
    ['/']
    """

    _keeps_keys = True
    _parts: tuple[SharedWave, Wave, Candidates]

    def __init__(
        self,
        *,
        k: int | None = None,
        phi: float | None = None,
        window: Duration | arrivals,
        eps: float,
        delta: float,
        tick: Duration | None = None,
        merge_height: int = 0,
        lateness: Duration | None = None,
        seed: int = DEFAULT_SEED,
    ) -> None:
        check_probability("eps", eps)
        check_probability("delta", delta)
        plan.premerge_error(eps, merge_height)
        if (k is None) == (phi is None):
            raise ParameterError(f"k={k!r} and phi={phi!r}", remedy="give one of them")
        if phi is not None:
            check_phi(phi, eps)
        most, line = (_check_k(k), eps) if phi is None else (min(math.ceil(1 / phi), _MOST_K), float(phi))
        shape = TopKShape(
            *window_and_lateness(window, tick, lateness), eps, delta, merge_height, most, line, check_word("seed", seed)
        )
        if (cells := math.prod(shape.size)) > _MOST_CELLS:
            raise ParameterError(f"eps={eps!r}, delta={delta!r} need {cells:,} cells", remedy="give a larger eps")
        self._begin(shape, _parts(shape))

    def _begin(self, shape: TopKShape, parts: Any) -> Self:
        return self._begin_rows(shape.size, shape.seed, shape, parts, plan.fewest_rows(shape.delta)[0])

    @classmethod
    def _new_parts(cls, shape: TopKShape) -> tuple[SharedWave, Wave, Candidates]:
        return _parts(shape)

    @property
    def k(self) -> int:
        """How many keys ``top`` gives by default."""
        return self._shape.k

    def __repr__(self) -> str:
        options = f"k={self.k}, {self._window!r}, eps={self.eps}, delta={self.delta}"
        return f"TopK({options}, merges={self.merges}, nbytes={self.nbytes:_})"

    def _count(self, keys: Keys, start: int, stamps: Stamps, counts: Counts | None) -> None:
        hashes = self._count_rows(keys, start, stamps, counts)
        self._parts[2].add(keys, start, hashes, stamps, counts)

    # -- read ----------------------------------------------------------------------------------------------------------

    def top(self, k: int | None = None, last: Duration | None = None, between: Between | None = None) -> Answers[KeyCount]:
        """The ``k`` keys with the largest counts; ``missed`` is how often a key that is not listed occurred, at most.

        Parameters
        ----------
        k
            How many keys, from 1; by default as many as the sketch was built for.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).top(k)

    def heavy_hitters(
        self, phi: float | None = None, last: Duration | None = None, between: Between | None = None
    ) -> Answers[KeyCount]:
        """The keys with a share of ``phi`` or more of the arrivals.

        Every key with a share of phi + eps is listed, for certain; with probability 1 - delta each, none with less than phi.

        Parameters
        ----------
        phi
            A share of the arrivals; by default the ``phi`` that the sketch was built with, below which it cannot be.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        return self.in_range(last, between).heavy_hitters(phi)

    def plot(self, k: int | None = None, last: Duration | None = None, between: Between | None = None, ax: Any = None) -> Any:
        """Draw the top keys as bars with the bounds as error bars; needs matplotlib. Returns the axes.

        Parameters
        ----------
        k
            How many keys; by default as many as the sketch was built for.
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        ax
            The axes of matplotlib to draw on; new ones by default.
        """
        return self.top(k, last, between).plot(ax)

    # -- inside --------------------------------------------------------------------------------------------------------

    def in_range(self, last: Duration | None = None, between: Between | None = None) -> TopKView:
        """A view of one range, which answers several questions about it.

        Parameters
        ----------
        last
            The most recent period, such as "10m"; the whole window by default.
        between
            Two ages or times, the older first, such as ("2h", "1h"), instead of ``last``; None by default.
        """
        counts = _SketchCellsAndLists(self, self._range(last, between))
        return TopKView(self._shape, self._rows, counts, self._key_types)

    def _view_of(self, extract: Extract) -> TopKView:
        return TopKView(self._shape, self._rows, extract, self._key_types)

    def _extract_since(self, age: int) -> Extract:
        counts = _SketchCellsAndLists(self, (age, None))
        bounds, candidates = (counts.cell_bounds(), counts.total_bounds()), counts.candidate_set()
        return Extract(self.fingerprint, *bounds, candidates=candidates, sums=counts.dithered())

    def _candidates_in_range(self, ages: tuple[int, int | None]) -> CandidateSet:
        """The keys that could be heavy in a range."""
        (older, newer), now = ages, self._now
        # Before the first arrival, a stamp beyond all others selects nothing.
        since = MAX_STAMP if now is None else self._stamp_at(older, now)
        until = None if now is None or newer is None else self._stamp_at(newer, now)
        candidates = self._parts[2].between(since, until)
        if self._reorder_buffer.keys is not None and now is not None:
            ticks = self._tick_at(older, now), None if newer is None else self._tick_at(newer, now)
            candidates = with_buffered(candidates, self._reorder_buffer, *ticks)
        return candidates

    # -- bytes ---------------------------------------------------------------------------------------------------------

    @classmethod
    def _read(cls, source: Reader) -> Self:
        base = read_window_shape(source)
        k, line, seed = source.within(source.u64(), 1, _MOST_K), source.fraction(), source.u64()
        source.check(line >= base.eps, f"a share of {line} below eps")
        guarantee = base.window, base.lateness, base.eps, base.delta, base.merge_height
        shape = TopKShape(*guarantee, k, line, seed, additive=base.additive)
        cells = math.prod(shape.size)
        source.check(cells <= _MOST_CELLS, f"{cells} cells")
        source.fits(16 * cells + 256 * shape.listed)
        sketch = object.__new__(cls)._begin(shape, _parts(shape))
        sketch._read_state(source)
        return sketch


class _SketchCellsAndLists(SketchCells):
    """What a TopK counted in a range, and which keys could be heavy there."""

    def __init__(self, sketch: TopK, ages: tuple[int, int | None]) -> None:
        super().__init__(sketch, ages)
        self._top_k = sketch

    def candidate_set(self) -> CandidateSet:
        return self._top_k._candidates_in_range(self.ages)


def _parts(shape: TopKShape) -> tuple[SharedWave, Wave, Candidates]:
    width, depth = shape.size
    span = shape.window.span
    starts = range(0, width * depth, width)
    total = Wave(1, span, shape.before_merges(shape.eps * _WINDOW))
    return SharedWave(width * depth, span, shape.eps_sw, starts), total, Candidates(span, shape.listed)


def _check_k(k: object) -> int:
    return check_integer("k", k, 1, _MOST_K, remedy="give the number of keys to list")


def _merged_eps(options: Options) -> float:
    """The eps of sketches that are merged in one step: eps, and what merging adds to the counters' share of it."""
    return round(float(options["eps"]) * (1 + _MERGING * _WINDOW), 6)


KIND = SketchKind(
    "topk",
    TopK,
    key_encoding="key",
    questions={
        "count": Suitability(0, 1, ROWS),
        "top": Suitability(0, 0, ROWS),
        "self-join": Suitability(1, 0),
        "total": Suitability(0, 2),
    },
    merged_eps=_merged_eps,
)
