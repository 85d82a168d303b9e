"""Extracts: what a sketch counted in one range of time, as a few numbers that add up over sites without any merge error.

For a question whose range is known beforehand a site need not send its sketch. It extracts the bounds of every cell in the
range (of an ECM-sketch the Count-Min table of ECM-15 §4, with both its bounds), and a TopK also the keys that could be heavy.
The sums answer as a sketch over all sites would that had never been merged.

A tree's values are right on average over the random phases of its cells, which all sites share. A cell's error summed over
sites depends on its phase alone and lies within the sum of the sites' spreads, so Hoeffding's inequality holds with that sum.
"""

import zlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import LIMIT, Reader, Writer
from lately.core.durations import Duration
from lately.core.errors import MergeError, QueryError
from lately.core.joined import JoinedKeys
from lately.core.keys import all_hashes
from lately.core.stored_keys import read_column, write_column
from lately.counters.base import MAX_COUNT, Bounds, Cells
from lately.ingest.shape import WindowShape
from lately.sketches.candidates import CandidateSet
from lately.sketches.range_view import CellNoise, RangeView
from lately.sketches.tally import tally
from lately.sketches.windowed_sketch import WindowedSketch

Floats = NDArray[np.float64]
S = TypeVar("S", bound=WindowShape)

#: Keys on the lists of several sites that are collected before the lists are united.
_MOST_WAITING = 2**15


@dataclass(frozen=True, slots=True)
class Extract:
    """What one sketch, or several together, counted in a range.

    Parameters
    ----------
    fingerprint
        A checksum of the options that the sketch was built with: only extracts with equal ones add up.
    cells
        Bounds of all cells.
    total
        Bounds of the number of arrivals: arrays of one number.
    spread
        For each row of a tree, how far apart two values that one cell may be given can lie; of a ``WindowedAmsSketch`` of
        shared waves, what is known of the noise of its cells; empty for other sketches.
    candidates
        The keys that could be heavy, of a TopK; None for other sketches.
    sums
        The counts of all cells plus their random remainders, of an EcmSketch or TopK of shared waves; None for others.
    draws
        What the random phases of each ``WindowedAmsSketch`` were drawn from; empty for other sketches.

    >>> from lately import EcmSketch
    >>> sites = [EcmSketch(window=100, eps=0.1, delta=0.1) for _ in range(2)]
    >>> for site in sites:
    ...     site.update(["a", "b", "a"], [10, 60, 90])
    >>> both = extract(sites[0], last=50) + extract(sites[1], last=50)
    >>> view_of(sites[0], both).count("a")
    Estimate(2, 2..2, 90%)
    """

    fingerprint: int
    cells: Bounds
    total: Bounds
    spread: Floats = field(default_factory=lambda: np.empty(0))
    candidates: CandidateSet | None = None
    sums: Bounds | None = None
    draws: tuple[int, ...] = ()

    # -- what views read ---------------------------------------------------------------------------------------------------

    def total_bounds(self) -> Bounds:
        """Bounds of the number of arrivals: arrays of one number."""
        return self.total

    def cell_bounds(self, cells: Cells | None = None) -> Bounds:
        """Bounds of these cells, or of all."""
        return self.cells if cells is None else Bounds(*(part[cells] for part in self.cells))

    def dithered(self, cells: Cells | None = None) -> Bounds | None:
        """The counts of these cells, or of all, plus random remainders; None where counters leave none."""
        return self.sums if self.sums is None or cells is None else Bounds(*(part[cells] for part in self.sums))

    def noise(self, learn: Callable[[], CellNoise | None]) -> CellNoise | None:
        """The noise of the cells, as a view learns it from them."""
        return learn()

    def raw(self, cells: Cells) -> Bounds:
        """Bounds of these cells, as a tree reads them: values are right on average and may lie outside of the bounds."""
        return self.cell_bounds(cells)

    def candidate_set(self) -> CandidateSet:
        """The keys that could be heavy."""
        assert self.candidates is not None
        return self.candidates

    # -- sums and bytes ----------------------------------------------------------------------------------------------------

    def __add__(self, other: "Extract") -> "Extract":
        total = ExtractSum()
        total.add(self)
        total.add(other)
        return total.result()

    def to_bytes(self) -> bytes:
        """The numbers, packed: bounds as their distances from the value."""
        out = Writer()
        out.u64(self.fingerprint)
        for low, value, high in (self.cells, self.total):
            out.integers(value)
            out.deltas(value - low)
            out.deltas(high - value)
        out.f64s(self.spread)
        out.u8(self.sums is not None)
        if self.sums is not None:
            low, value, high = self.sums
            out.deltas(value - self.cells.high)
            out.deltas(value - low)
            out.deltas(high - value)
        out.u8(self.candidates is not None)
        if self.candidates is not None:
            order = np.argsort(self.candidates.hashes)
            write_column(out, self.candidates.keys.take(self.candidates.rows[order]))
            out.integers(self.candidates.least[order])
            out.integers(self.candidates.most[order])
            out.u64(self.candidates.missed)
        out.u64s(np.array(self.draws, np.uint64))
        return out.bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Extract":
        """Read what ``to_bytes`` wrote."""
        source = Reader(memoryview(data), max(LIMIT, 32 * len(data)))
        fingerprint, parts = source.u64(), []
        for _ in range(2):
            value = source.integers(-MAX_COUNT, 2 * MAX_COUNT)
            below, above = source.deltas(value.size), source.deltas(value.size)
            parts.append(Bounds(value - below, value, value + above))
        spread, candidates, sums = source.f64s(), None, None
        if source.choice(0, 1):
            size = parts[0].value.size
            value = parts[0].high + source.deltas(size)
            sums = Bounds(value - source.deltas(size), value, value + source.deltas(size))
        if source.choice(0, 1):
            keys = read_column(source)
            least, most = source.integers(0, MAX_COUNT), source.integers(0, MAX_COUNT)
            missed = source.within(source.u64(), 0, MAX_COUNT)
            candidates = CandidateSet(all_hashes(keys), np.arange(len(keys)), least, most, keys, missed)
        draws = tuple(source.u64s().tolist())
        source.finish()
        return cls(fingerprint, parts[0], parts[1], spread, candidates, sums, draws)


class ExtractSum:
    """Adds up extracts. Time and memory grow with their number; a chain of ``+`` would copy keys more often.

    >>> from lately import EcmSketch
    >>> sites, known = [EcmSketch(window=100, eps=0.1, delta=0.1) for _ in range(3)], ExtractSum()
    >>> for site in sites:
    ...     site.update(["a", "b", "a"], [10, 60, 90])
    ...     known.add(extract(site))
    >>> view_of(sites[0], known.result()).count("a")
    Estimate(6, 6..6, 90%)
    """

    def __init__(self) -> None:
        self._sum: Extract | None = None
        self._lists: list[CandidateSet] = []
        self._waiting = 0
        self._draws: list[int] = []

    def add(self, extract: Extract) -> None:
        """Add an extract, which is not changed."""
        if self._sum is None:
            cells, total = (Bounds(*(part.copy() for part in bounds)) for bounds in (extract.cells, extract.total))
            sums = None if extract.sums is None else Bounds(*(part.copy() for part in extract.sums))
            self._sum = Extract(extract.fingerprint, cells, total, extract.spread.copy(), None, sums)
        elif extract.fingerprint != self._sum.fingerprint:
            raise MergeError("extracts of sketches that were not built alike", remedy="give all sites the same options")
        else:
            for part, more in zip(_arrays(self._sum), _arrays(extract), strict=True):
                np.add(part, more, out=part)
        self._draws += extract.draws
        if extract.candidates is not None:
            self._lists.append(extract.candidates)
            self._waiting += extract.candidates.hashes.size
            # Lists wait until they are as long together as the first, which is the sum so far: no key is copied often.
            if self._waiting > 2 * max(_MOST_WAITING, self._lists[0].hashes.size):
                self._lists = [_united(self._lists)]
                self._waiting = self._lists[0].hashes.size

    def result(self) -> Extract:
        """The sum of all extracts, of which there must be at least one."""
        assert self._sum is not None
        return replace(self._sum, candidates=_united(self._lists) if self._lists else None, draws=tuple(sorted(self._draws)))


class ExtractableSketch(WindowedSketch[S]):
    """Base of the sketches whose counts of a range can be extracted and added up."""

    @property
    def fingerprint(self) -> int:
        """A checksum of the class and the options that the sketch was built with."""
        out = Writer()
        out.u8(self.FAMILY)
        self._shape.write(out)
        return zlib.crc32(out.bytes())

    def extract_range(self, last: Duration | None = None, now: int | None = None) -> Extract:
        """What the sketch counted in the most recent period, as numbers that add up over sites.

        Parameters
        ----------
        last
            The length of the period, such as "10m"; the whole window by default.
        now
            The tick at which the period ends, if it is later than the sketch's newest arrival; by default that arrival's.
        """
        age = self._range(last, None)[0]
        if now is not None and self._now is not None:
            age -= now - self._now  # negative where the sketch has had no arrival in the whole period
        extract = self._extract_since(age)
        for part in self._parts:
            part.forget()  # a task extracts from thousands of sites, and asks none of them again before its next batch
        return extract

    def view_of(self, extract: Extract) -> RangeView:
        """A view that answers like this sketch, from an extract of a sketch with the same options.

        Parameters
        ----------
        extract
            The extract, of one site or summed over several.
        """
        if extract.fingerprint != self.fingerprint:
            raise MergeError(
                "an extract of a sketch that was built otherwise", remedy="build all sites alike, and what answers for them"
            )
        return self._view_of(extract)

    @abstractmethod
    def _extract_since(self, age: int) -> Extract:
        """What the sketch counted in the last ``age`` ticks."""

    @abstractmethod
    def _view_of(self, extract: Extract) -> RangeView:
        """A view over an extract that fits."""


def extract(sketch: Any, last: Duration | None = None, now: int | None = None) -> Extract:
    """What a sketch counted in the most recent period: to be added to what other sites counted, and read with ``view_of``.

    Parameters
    ----------
    sketch
        An EcmSketch, TopK, Quantiles, Dyadic or WindowedAmsSketch.
    last
        The length of the period, such as "10m"; the whole window by default.
    now
        The tick at which the period ends, if it is later than the sketch's newest arrival; by default that arrival's.

    >>> from lately import EcmSketch
    >>> silent = EcmSketch(window=100, eps=0.1, delta=0.1)
    >>> silent.update(["a", "a"], [10, 30])
    >>> [int(extract(silent, 50, now).total.value[0]) for now in (30, 70, 1000)]
    [2, 1, 0]
    """
    if not isinstance(sketch, ExtractableSketch):
        raise QueryError(f"a {type(sketch).__name__} has no extract", remedy="merge such sketches with lt.merge([...])")
    return sketch.extract_range(last, now)


def view_of(sketch: Any, extract: Extract) -> Any:
    """A view that answers like ``sketch``, from an extract; its range is the extract's.

    Parameters
    ----------
    sketch
        A sketch with the options of those that were extracted; what it counted does not matter.
    extract
        The extract, of one site or summed over several.
    """
    if not isinstance(sketch, ExtractableSketch):
        raise QueryError(
            f"a {type(sketch).__name__} does not answer from extracts", remedy="merge such sketches with lt.merge([...])"
        )
    return sketch.view_of(extract)


def _arrays(extract: Extract) -> tuple[NDArray[Any], ...]:
    return (*extract.cells, *extract.total, extract.spread, *(extract.sums or ()))


def _united(lists: Sequence[CandidateSet]) -> CandidateSet:
    """The keys on any list; one that is not on a site's list came there at most as often as the site may have missed."""
    all_listed = np.concatenate([part.hashes for part in lists])
    hashes, least, first = tally(all_listed, np.concatenate([part.least for part in lists]))
    # A key may have come as often as those missed that do not list it, besides its counts on the lists that do.
    _, most, _ = tally(all_listed, np.concatenate([part.most - part.missed for part in lists]))
    missed = sum(part.missed for part in lists)
    starts = np.cumsum([0, *(len(part.keys) for part in lists)])
    rows = np.concatenate([part.rows + start for part, start in zip(lists, starts, strict=False)])[first]
    keys = JoinedKeys([part.keys for part in lists]).take(rows)  # a copy: sites keep many more rows than could be heavy
    return CandidateSet(hashes, np.arange(rows.size), least, most + missed, keys, missed)
