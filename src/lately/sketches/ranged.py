"""What a sketch knows of one range of time: a few numbers, which add up over sites without any merge error.

For a question whose range is known beforehand a site need not ship its sketch. What it extracts is the bounds of every cell in
the range (of an ECM-sketch the Count-Min table of ECM-15 §4, with both its bounds), for a TopK also the keys that could be
heavy. The sums answer as a sketch over all sites would that had never been merged.

A tree's values are right on average over the random phases of its cells, which all sites share. A cell's error summed over
sites depends on its phase alone and lies within the sum of the sites' spreads, so Hoeffding's inequality holds with that sum.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import LIMIT, Reader, Writer
from lately.core.durations import Duration
from lately.core.errors import MergeError, QueryError
from lately.core.keys import all_hashes
from lately.core.stored_keys import read_column, write_column
from lately.counters.base import MAX_COUNT, Bounds, Cells
from lately.sketches.candidates import Found
from lately.sketches.dyadic import Dyadic
from lately.sketches.ecm import EcmSketch
from lately.sketches.quantiles import Quantiles
from lately.sketches.ranks import Range, Suffix
from lately.sketches.tally import tally
from lately.sketches.topk import TopK
from lately.sketches.windowed_tree import WindowedTree

Floats = NDArray[np.float64]
_NO_CELLS = np.empty(0, np.int64)
_WHOLE = (0, None)
#: Keys on the lists of sites that wait to be added up.
_WAITING = 2**15


@dataclass(frozen=True, slots=True)
class Extract:
    """What one sketch, or several together, counted in a range: bounds of all cells and of the total.

    >>> sites = [EcmSketch(window=100, eps=0.1, delta=0.1) for _ in range(2)]
    >>> for site in sites:
    ...     site.update(["a", "b", "a"], [10, 60, 90])
    >>> both = extract(sites[0], last=50) + extract(sites[1], last=50)
    >>> answering(sites[0], both).count("a")
    Estimate(2, 2..2, 90%)
    """

    #: A checksum of what the sketch was asked for; only what was built alike adds up.
    built: int
    cells: Bounds
    total: Bounds
    spread: Floats
    #: The keys that could be heavy, of sketches that list them.
    found: Found | None = None

    def __add__(self, other: "Extract") -> "Extract":
        both = ExtractSum()
        both.add(self)
        both.add(other)
        return both.result()

    def to_bytes(self) -> bytes:
        """The numbers, packed: bounds as what they are apart from the value."""
        out = Writer()
        out.u64(self.built)
        for low, value, high in (self.cells, self.total):
            out.integers(value)
            out.deltas(value - low)
            out.deltas(high - value)
        out.f64s(self.spread)
        out.u8(self.found is not None)
        if self.found is not None:
            order = np.argsort(self.found.hashes)
            write_column(out, self.found.keys.take(self.found.rows[order]))
            out.integers(self.found.least[order])
            out.integers(self.found.most[order])
            out.u64(self.found.missed)
        return out.bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Extract":
        """Read what ``to_bytes`` wrote."""
        source = Reader(memoryview(data), max(LIMIT, 32 * len(data)))
        built, parts = source.u64(), []
        for _ in range(2):
            value = source.integers(-MAX_COUNT, 2 * MAX_COUNT)
            below, above = source.deltas(value.size), source.deltas(value.size)
            parts.append(Bounds(value - below, value, value + above))
        spread, found = source.f64s(), None
        if source.choice(0, 1):
            keys = read_column(source)
            least, most = source.integers(0, MAX_COUNT), source.integers(0, MAX_COUNT)
            missed = source.within(source.u64(), 0, MAX_COUNT)
            found = Found(all_hashes(keys), np.arange(len(keys)), least, most, keys, missed)
        source.finish()
        return cls(built, parts[0], parts[1], spread, found)


def extract(sketch: Any, last: Duration | None = None) -> Extract:
    """What a sketch knows of the last so long: to be added to what other sites know, and asked with ``answering``."""
    return _since(sketch, sketch._range(last, None)[0])


def extract_at(sketch: Any, last: Duration | None, now: int) -> Extract:
    """The same of the last so long before the tick ``now``, which may be later than the sketch's own newest arrival.

    >>> silent = EcmSketch(window=100, eps=0.1, delta=0.1)
    >>> silent.update(["a", "a"], [10, 30])
    >>> [int(extract_at(silent, 50, now).total.value[0]) for now in (30, 70, 1000)]
    [2, 1, 0]
    """
    age = sketch._range(last, None)[0]
    # Of one that has been silent for longer than the range nothing is so new.
    return _since(sketch, age if sketch._now is None else age - (now - sketch._now))


def _since(sketch: Any, age: int) -> Extract:
    total = sketch._total_in_range((age, None))
    if isinstance(sketch, WindowedTree):
        return _of_tree(sketch, age, total)
    if not isinstance(sketch, EcmSketch | TopK):
        raise QueryError(f"a {type(sketch).__name__} has no extract; merge such sketches with lt.merge([...])")
    found = sketch._candidates((age, None)) if isinstance(sketch, TopK) else None
    return Extract(_built(sketch), sketch._cells_in_range(None, (age, None)), total, np.empty(0), found)


class ExtractSum:
    """Adds up extracts one by one. What it holds and what it takes grow with their number; a chain of ``+`` copies more.

    >>> sites, known = [EcmSketch(window=100, eps=0.1, delta=0.1) for _ in range(3)], ExtractSum()
    >>> for site in sites:
    ...     site.update(["a", "b", "a"], [10, 60, 90])
    ...     known.add(extract(site))
    >>> answering(sites[0], known.result()).count("a")
    Estimate(6, 6..6, 90%)
    """

    def __init__(self) -> None:
        self._sum: Extract | None = None
        self._lists: list[Found] = []
        self._waiting = 0

    def add(self, known: Extract) -> None:
        """Add an extract, which stays as it is."""
        if self._sum is None:
            cells, total = (Bounds(*(part.copy() for part in bounds)) for bounds in (known.cells, known.total))
            self._sum = Extract(known.built, cells, total, known.spread.copy(), None)
        elif known.built != self._sum.built:
            raise MergeError("extracts of sketches that were not built alike; give all sites the same options")
        else:
            mine: tuple[NDArray[Any], ...] = (*self._sum.cells, *self._sum.total, self._sum.spread)
            for part, more in zip(mine, (*known.cells, *known.total, known.spread), strict=True):
                np.add(part, more, out=part)
        if known.found is not None:
            self._lists.append(known.found)
            self._waiting += known.found.hashes.size
            # Lists wait until they are as long together as the first, which is the sum so far: no key is copied often.
            if self._waiting > 2 * max(_WAITING, self._lists[0].hashes.size):
                self._lists = [_united(self._lists)]
                self._waiting = self._lists[0].hashes.size

    def result(self) -> Extract:
        """The sum of all extracts, of which there must be one."""
        assert self._sum is not None
        return replace(self._sum, found=_united(self._lists) if self._lists else None)


def nothing_of(sketch: Any) -> Extract:
    """What a sketch that has seen nothing knows: the start of a sum."""
    return extract(sketch)


def _of_tree(sketch: WindowedTree, age: int, total: Bounds) -> Extract:
    array, held, now = sketch._parts[0], sketch._reorder_buffer, sketch._now
    snapshot = array.at(sketch._stamp_at(age, now) if now is not None else 2**32 - 1)
    bounds = snapshot.raw_all()
    newer = held.ticks >= (0 if now is None else sketch._tick_at(age, now))
    for level in sketch._layout.levels if newer.any() else ():
        for row in level.cells(held.hashes[newer].view(np.int64) >> level.shift):
            for part in bounds:
                np.add.at(part, row, held.counts[newer])
    # Where every arrival is still noted nothing spreads, and nothing may be added to what others spread.
    return Extract(_built(sketch), bounds, total, np.where(snapshot.spread == 1, 0.0, snapshot.spread))


def answering(sketch: Any, known: Extract) -> Any:
    """Something that answers like ``sketch``, a sketch of the same options, but from an extract: its range is the only one."""
    kind = next((ranged for plain, ranged in _RANGED.items() if isinstance(sketch, plain)), None)
    if kind is None:
        raise QueryError(f"a {type(sketch).__name__} does not answer from extracts; merge such sketches with lt.merge([...])")
    twin = object.__new__(kind)
    twin.__dict__.update(sketch.__dict__)
    twin._known, twin._now = known, None
    if known.built != _built(sketch):
        raise MergeError("an extract of a sketch that was built otherwise; build all sites alike, and what answers for them")
    return twin


def _built(sketch: Any) -> int:
    """A checksum of what a sketch was asked for."""
    out = Writer()
    out.u8(sketch.FAMILY)
    sketch._shape.write(out)
    return zlib.crc32(out.bytes())


class _FromExtract:
    """Answers about the whole of what was extracted, whatever range is asked for."""

    _known: Extract

    def _range(self: Any, last: Any, between: Any) -> Any:
        if last is not None or between is not None:
            raise QueryError("an extract has one range; leave last and between out")
        return _WHOLE

    def _total_in_range(self, ages: Any, now: Any = None) -> Bounds:
        return self._known.total


class _RangedCountMin(_FromExtract):
    def _cells_in_range(self: Any, cells: Cells | None, ages: Any, now: Any = None) -> Bounds:
        return self._known.cells if cells is None else Bounds(*(part[cells] for part in self._known.cells))

    def _candidates(self, ages: Any) -> Found:
        assert self._known.found is not None
        return self._known.found


class _RangedEcm(_RangedCountMin, EcmSketch):
    pass


class _RangedTopK(_RangedCountMin, TopK):
    pass


class _Sum:
    """The counts of an extract, as a tree asks for them."""

    def __init__(self, known: Extract) -> None:
        self._known, self.spread = known, known.spread

    def raw(self, cells: Cells) -> Bounds:
        return Bounds(*(part[cells] for part in self._known.cells))


class _RangedTree(_FromExtract):
    def _in_range(self: Any, last: Any, between: Any) -> Range:
        self._range(last, between)
        suffix = Suffix(self._layout, self.delta, _Sum(self._known), self._known.total, (_NO_CELLS, _NO_CELLS))
        return Range(self._layout, suffix, None)


class _RangedQuantiles(_RangedTree, Quantiles):
    pass


class _RangedDyadic(_RangedTree, Dyadic):
    pass


_RANGED: dict[type[Any], type[Any]] = {
    EcmSketch: _RangedEcm,
    TopK: _RangedTopK,
    Quantiles: _RangedQuantiles,
    Dyadic: _RangedDyadic,
}


def _united(lists: Sequence[Found]) -> Found:
    """The keys on any list; one that is not on a site's list came there at most as often as the site may have missed."""
    from lately.core.joined import JoinedKeys

    together = np.concatenate([one.hashes for one in lists])
    hashes, least, first = tally(together, np.concatenate([one.least for one in lists]))
    # A key may have come as often as those missed that do not list it, besides its counts on the lists that do.
    _, most, _ = tally(together, np.concatenate([one.most - one.missed for one in lists]))
    missed = sum(one.missed for one in lists)
    starts = np.cumsum([0, *(len(one.keys) for one in lists)])
    rows = np.concatenate([one.rows + start for one, start in zip(lists, starts, strict=False)])[first]
    keys = JoinedKeys([one.keys for one in lists]).take(rows)  # a copy: sites keep many more rows than could be heavy
    return Found(hashes, np.arange(rows.size), least, most + missed, keys, missed)
