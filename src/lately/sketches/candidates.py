"""The keys that could be heavy in any range that ends now: a few lists, whatever the stream.

    older                                                                              newer
    [ block            ][ block     ][ block ][block][b]  ·· rows ···· rows ···· rows ·· rows
      lists of keys; none has more than a share 1/SHARE of what is newer than it       the newest, unaggregated

A block's list has every key that occurred more than ``error`` times in it, and error is at most its arrivals over ``size``
(Misra and Gries). A key that is heavy since some time is heavy in one of the blocks since then, or among the rows
(pigeonhole): so it is on a list. The block in which that time lies is small compared with what is newer, so that what it adds
does not matter. Blocks are joined as they age, and dropped when they leave the window: there are O(log arrivals) of them,
each of at most ``size`` keys.

Sites are merged by concatenating their blocks and rows: the argument does not depend on which site counted what.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lately.core.codec import Reader, Writer
from lately.core.columns import Ints
from lately.core.joined import JoinedKeys
from lately.core.keys import Hashes, Keys, all_hashes
from lately.core.stored_keys import read_column, write_column
from lately.counters.base import MAX_COUNT, MAX_STAMP, Counts, Part, Stamps
from lately.ingest.order import ReorderBuffer
from lately.ingest.windowed import BLOCK
from lately.sketches.tally import surplus, tally

#: A block has at most 1/SHARE of the arrivals that are newer than it.
SHARE = 2

#: Rows that become a block at a time; SHARE times as many newer ones stay as rows.
_FEWEST_ROWS = 16_384

#: Blocks are checked for neighbours to join each time that this many have been added.
_BETWEEN_JOINS = 4

#: Columns of keys that are kept side by side before they are copied into one.
_PIECES = 64


#: The counts of rows without counts: never written to, so that all can share them.
_ONES = np.ones(BLOCK, np.int64)


class Block(NamedTuple):
    """Arrivals from ``start`` to ``end``: a key that is not listed occurred at most ``error`` times."""

    start: int
    end: int
    weight: int
    error: int
    arrivals_before_end: int  # all arrivals of the sketch but those known to be at ``end`` or later
    hashes: Hashes
    counts: Counts
    keys: Keys


class Rows(NamedTuple):
    """Arrivals one by one, in time order."""

    hashes: Hashes
    stamps: Stamps
    counts: Counts
    keys: Keys

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self)

    def part(self, start: int, stop: int) -> "Rows":
        """A copy of some of them."""
        here = slice(start, stop)
        return Rows(self.hashes[here].copy(), self.stamps[here].copy(), self.counts[here].copy(), self.keys.part(start, stop))


class CandidateSet(NamedTuple):
    """The keys that could be heavy in a range.

    Parameters
    ----------
    hashes
        The hashes of the keys.
    rows
        Where each of them is in ``keys``.
    least, most
        How often each occurred, at least and at most.
    keys
        A column with these keys, and possibly others.
    missed
        How often any other key occurred, at most.
    """

    hashes: Hashes
    rows: Ints
    least: Counts
    most: Counts
    keys: Keys
    missed: int

    def only(self, selected: NDArray[np.bool_]) -> "CandidateSet":
        """The selected ones; the others count as missed."""
        missed = max(self.missed, int(self.most[~selected].max(initial=0)))
        columns = self.hashes[selected], self.rows[selected], self.least[selected], self.most[selected]
        return CandidateSet(*columns, self.keys, missed)


def with_buffered(listed: CandidateSet, buffer: ReorderBuffer, since: int, until: int | None) -> CandidateSet:
    """Add the keys in the reorder buffer that lie in the range; they are counted exactly, so any of them may be heavy."""
    assert buffer.keys is not None
    rows = np.flatnonzero((buffer.ticks >= since) & (True if until is None else buffer.ticks < until))
    all_hashes, counts = np.concatenate((listed.hashes, buffer.hashes[rows])), buffer.counts[rows]
    hashes, least, first = tally(all_hashes, np.concatenate((listed.least, counts)))
    # What is in the buffer adds to what a key that was on no list may have had.
    _, most, _ = tally(all_hashes, np.concatenate((listed.most, counts)))
    most[listed.hashes.size :] += listed.missed
    places = np.concatenate((listed.rows, rows + len(listed.keys)))
    return CandidateSet(hashes, places[first], least, most, JoinedKeys([listed.keys, buffer.keys]), listed.missed)


class Candidates(Part):
    """The lists of one sketch: no key with more than 2/``size`` of the arrivals since any time is missing."""

    def __init__(self, span: int, size: int) -> None:
        self.span, self.size, self.height = span, size, 0
        self.batch = max(_FEWEST_ROWS, 1 << (size // 2).bit_length())
        self.taken = 0  # all arrivals ever
        self.blocks: list[Block] = []
        self.rows: list[Rows] = []  # ``batch`` rows each, oldest first
        self.pieces: list[Rows] = []  # fewer rows, not yet concatenated

    # -- write ---------------------------------------------------------------------------------------------------------

    def add(self, keys: Keys, start: int, hashes: Hashes, stamps: Stamps, counts: Counts | None) -> None:
        """Take arrivals in time order, whose keys begin at ``start``; the arrays may be overwritten afterwards."""
        done, filled = 0, sum(piece.hashes.size for piece in self.pieces)
        while done < hashes.size:
            size = min(hashes.size - done, self.batch - filled)
            here = slice(done, done + size)
            weights = _ONES[:size] if counts is None else counts[here].copy()  # at most a block of rows at a time
            self.taken += size if counts is None else int(weights.sum())
            self.pieces.append(
                Rows(hashes[here].copy(), stamps[here].copy(), weights, keys.part(start + done, start + done + size))
            )
            done, filled = done + size, filled + size
            if filled == self.batch or len(self.pieces) > _PIECES:
                self.pieces = [_together(self.pieces)]
            if filled == self.batch:
                self.rows, self.pieces, filled = [*self.rows, *self.pieces], [], 0
                if len(self.rows) > SHARE:
                    self._age(self.rows.pop(0))

    def _age(self, rows: Rows) -> None:
        """Make blocks of the oldest rows, join those that have become small, drop what left the window."""
        alone = bool((rows.counts == 1).all())
        ends = np.arange(1, rows.counts.size + 1) if alone else np.cumsum(rows.counts)  # several times faster
        newer = sum(int(row.counts.sum()) for row in self.rows)
        total, start, before_all = int(ends[-1]) + newer, 0, len(self.blocks)
        while start < rows.hashes.size:
            # The longest run that is small compared with all that is newer: w ≤ (total - before - w) / SHARE. Runs of at most
            # ``size`` rows may have any weight: all their keys are listed, so they add no error.
            before = int(ends[start - 1]) if start else 0
            most = before + (total - before) // (SHARE + 1)
            stop = min(max(int(np.searchsorted(ends, most, "right")), start + self.size), rows.hashes.size)
            listed = self._listed(*tally(rows.hashes[start:stop], rows.counts[start:stop]))
            times = int(rows.stamps[start]), int(rows.stamps[stop - 1])
            weight, before_end = int(ends[stop - 1]) - before, self.taken - total + int(ends[stop - 1])
            names = rows.keys.take(listed.rows + start)
            self.blocks.append(Block(*times, weight, listed.error, before_end, listed.hashes, listed.counts, names))
            start = stop
        self.blocks.sort(key=_by_end)  # those of merged sites may reach into the rows' time
        if len(self.blocks) // _BETWEEN_JOINS > before_all // _BETWEEN_JOINS:
            self._join(int(self.rows[-1].stamps[-1]))

    def _join(self, now: int) -> None:
        """Join neighbours that are small compared with what is newer, from the newest to the oldest."""
        groups: list[list[Block]] = []
        weight = newer = 0  # of the current group, and of everything newer than it
        for block in sorted(self.blocks, key=_by_end, reverse=True):
            if block.end + self.span < now:
                continue
            weight += block.weight
            if groups and SHARE * weight <= newer:
                groups[-1].append(block)
            else:
                groups.append([block])
                weight, newer = block.weight, self.taken - block.arrivals_before_end
        self.blocks = [self._joined(group) for group in reversed(groups)]

    def _joined(self, group: list[Block]) -> Block:
        """One block of several, given newest first."""
        if len(group) == 1:
            return group[0]
        counts = np.concatenate([block.counts for block in group])
        listed = self._listed(*tally(np.concatenate([block.hashes for block in group]), counts))
        return Block(
            min(block.start for block in group),
            group[0].end,
            sum(block.weight for block in group),
            sum(block.error for block in group) + listed.error,
            group[0].arrivals_before_end,
            listed.hashes,
            listed.counts,
            JoinedKeys([block.keys for block in group]).take(listed.rows),
        )

    def _listed(self, hashes: Hashes, counts: Counts, rows: Ints) -> "_Listed":
        """Misra and Gries' step: subtract the count of the first key beyond ``size`` from all, and list the keys above 0."""
        error = surplus(counts, self.size)
        above = np.flatnonzero(counts > error)
        return _Listed(hashes[above], counts[above] - error, rows[above], error)

    def rebase(self, shift: int) -> None:
        move = np.uint32(min(shift, MAX_STAMP))
        for pieces in (self.rows, self.pieces):
            pieces[:] = [p._replace(stamps=np.where(p.stamps > move, p.stamps - move, 0).astype(np.uint32)) for p in pieces]
        self.blocks = [b._replace(start=max(b.start - shift, 0), end=max(b.end - shift, 0)) for b in self.blocks]

    # -- read ----------------------------------------------------------------------------------------------------------

    def between(self, since: int, until: int | None) -> CandidateSet:
        """The keys that could be heavy since a stamp, or since it and before another one."""
        stop = MAX_STAMP + 1 if until is None else until
        pieces = [*self.rows, *self.pieces]
        cuts = [np.searchsorted(piece.stamps, (since, stop)) for piece in pieces]
        starts = np.cumsum([0, *(piece.hashes.size for piece in pieces)])
        inside = [slice(first, last) for first, last in cuts]
        hashes, counts, first = tally(
            _joined_columns([piece.hashes[cut] for piece, cut in zip(pieces, inside, strict=True)], np.uint64),
            _joined_columns([piece.counts[cut] for piece, cut in zip(pieces, inside, strict=True)], np.int64),
        )
        places = _joined_columns([np.arange(a, b) + start for (a, b), start in zip(cuts, starts, strict=False)], np.int64)
        missed = surplus(counts, self.size)
        above = counts > missed
        blocks = [block for block in self.blocks if block.end >= since and block.start < stop]
        listed = _joined_columns([hashes[above], *(block.hashes for block in blocks)], np.uint64)
        rows = np.concatenate((places[first[above]], np.arange(listed.size - int(above.sum())) + starts[-1]))
        missed += sum(block.error for block in blocks)
        distinct, most, first = tally(listed, _joined_columns([counts[above], *(block.counts for block in blocks)], np.int64))
        # A block that is only partly inside says nothing about the least.
        certain = [block.counts * (block.start >= since and block.end < stop) for block in blocks]
        _, least, _ = tally(listed, _joined_columns([counts[above], *certain], np.int64))
        keys = JoinedKeys([*(piece.keys for piece in pieces), *(block.keys for block in blocks)])
        return CandidateSet(distinct, rows[first], least, most + missed, keys, missed)

    @property
    def nbytes(self) -> int:
        lists = sum(block.hashes.nbytes + block.counts.nbytes + block.keys.nbytes for block in self.blocks)
        return lists + sum(rows.nbytes for rows in (*self.rows, *self.pieces))

    # -- merging -------------------------------------------------------------------------------------------------------

    def merged(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> Self:
        inputs = [self, *others]
        result = type(self)(self.span, self.size)
        result.height = 1 + max(lists.height for lists in inputs)
        pieces: list[Rows] = []
        for lists, shift in zip(inputs, shifts, strict=True):
            moved = [b._replace(start=max(b.start + shift, 0), end=b.end + shift) for b in lists.blocks]
            result.blocks += [b for b in moved if b.end >= live_from]
            for rows in (*lists.rows, *lists.pieces):
                stamps = rows.stamps.astype(np.int64) + shift
                first = int(np.searchsorted(stamps, live_from))
                if first < stamps.size:
                    rest = rows.part(first, stamps.size)
                    pieces.append(rest._replace(stamps=stamps[first:].astype(np.uint32)))
        result.taken = sum(block.weight for block in result.blocks)
        if pieces:
            together = _together(pieces)
            order = np.argsort(together.stamps, kind="stable")
            rows = Rows(together.hashes[order], together.stamps[order], together.counts[order], together.keys.take(order))
            result.blocks = _with_arrivals_before_end(result.blocks, rows, result.taken + int(rows.counts.sum()))
            result.add(rows.keys, 0, rows.hashes, rows.stamps, rows.counts)
            result._join(int(rows.stamps[-1]))
        return result

    def copy(self) -> Self:
        twin = type(self)(self.span, self.size)
        twin.height, twin.taken = self.height, self.taken
        twin.blocks, twin.rows, twin.pieces = list(self.blocks), list(self.rows), list(self.pieces)
        return twin

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def write(self, out: Writer, now: int) -> None:
        live_from = self.live_from(now)
        rows = [*self.rows, *self.pieces]
        hashes = _joined_columns([piece.hashes for piece in rows], np.uint64)
        stamps = _joined_columns([piece.stamps for piece in rows], np.uint32)
        counts = _joined_columns([piece.counts for piece in rows], np.int64)
        live = stamps >= live_from
        blocks = [block for block in self.blocks if block.end >= live_from]
        listed = _joined_columns([hashes[live], *(block.hashes for block in blocks)], np.uint64)
        distinct, first = np.unique(listed, return_index=True)
        places = np.concatenate((np.flatnonzero(live), np.arange(listed.size - int(live.sum())) + live.size))
        keys = JoinedKeys([*(piece.keys for piece in rows), *(block.keys for block in blocks)])
        out.u8(self.height)
        out.u64(self.taken)
        write_column(out, keys.take(places[first]))
        out.integers(np.searchsorted(distinct, hashes[live]))
        out.integers(now - stamps[live].astype(np.int64))
        out.integers(counts[live])
        out.integers(np.array([now - max(block.start, live_from - 1) for block in blocks], np.int64))
        out.integers(np.array([now - block.end for block in blocks], np.int64))
        for field in ("weight", "error", "arrivals_before_end"):
            out.integers(np.array([getattr(block, field) for block in blocks], np.int64))
        out.integers(np.array([block.hashes.size for block in blocks], np.int64))
        for block in blocks:
            order = np.argsort(block.hashes)
            out.integers(np.searchsorted(distinct, block.hashes[order]))
            out.integers(block.counts[order])

    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        self.height, self.taken = source.u8(), source.within(source.u64(), 0, MAX_COUNT)
        names = read_column(source)
        distinct = all_hashes(names)
        source.check(bool((distinct[1:] > distinct[:-1]).all()), "keys are out of order")
        oldest, last = min(self.span, now - 1), distinct.size - 1
        places, ages = source.integers(0, last), source.integers(now - newest, oldest)
        counts = source.integers(0, MAX_COUNT)
        source.check(places.size == ages.size == counts.size, "rows are missing")
        source.check(places.size < (SHARE + 1) * self.batch, "too many rows")
        source.check(bool((np.diff(ages) <= 0).all()), "rows are out of order")
        starts, ends = source.integers(0, oldest + 1), source.integers(0, oldest)
        columns = [source.integers(0, MAX_COUNT) for _ in range(3)]
        sizes = source.integers(0, self.size)
        source.check(all(column.size == sizes.size for column in (starts, ends, *columns)), "blocks are missing")
        source.check(bool((starts >= ends).all() and (np.diff(ends) <= 0).all()), "blocks are out of order")
        arrivals = float(counts.sum(dtype=float) + columns[0].sum(dtype=float) + columns[1].sum(dtype=float))
        source.check(arrivals <= MAX_COUNT and bool((columns[2] <= self.taken).all()), "more arrivals than are possible")
        rows = Rows(distinct[places], (now - ages).astype(np.uint32), counts, names.take(places))
        for start in range(0, places.size, self.batch):
            piece = rows.part(start, min(start + self.batch, places.size))
            (self.rows if piece.hashes.size == self.batch else self.pieces).append(piece)
        listed = [places]
        for i, size in enumerate(sizes.tolist()):
            numbers, counted = source.integers(0, last), source.integers(1, MAX_COUNT)
            in_order = numbers.size == counted.size == size and bool((np.diff(numbers) > 0).all())
            source.check(in_order, "a list is out of order")
            source.check(float(counted.sum(dtype=float)) <= MAX_COUNT, "more arrivals than are possible")
            times, (weight, error, before_end) = (
                (int(now - starts[i]), int(now - ends[i])),
                (int(column[i]) for column in columns),
            )
            self.blocks.append(Block(*times, weight, error, before_end, distinct[numbers], counted, names.take(numbers)))
            listed.append(numbers)
        source.check(np.unique(np.concatenate(listed)).size == distinct.size, "keys that are on no list")


class _Listed(NamedTuple):
    """A list, and in which row each of its keys is."""

    hashes: Hashes
    counts: Counts
    rows: Ints
    error: int


def _joined_columns(columns: Sequence[NDArray[Any]], kind: type[Any]) -> NDArray[Any]:
    """Columns concatenated; an empty one if there are none."""
    return np.concatenate(columns) if columns else np.empty(0, kind)


def _together(pieces: Sequence[Rows]) -> Rows:
    if len(pieces) == 1:
        return pieces[0]
    hashes, stamps, counts = (np.concatenate([piece[i] for piece in pieces]) for i in range(3))
    return Rows(hashes, stamps, counts, JoinedKeys([piece.keys for piece in pieces]).part(0, hashes.size))


def _by_end(block: Block) -> tuple[int, int, int]:
    return block.end, block.start, block.arrivals_before_end


def _with_arrivals_before_end(blocks: Sequence[Block], rows: Rows, arrivals: int) -> list[Block]:
    """Blocks of several sites by their ends, each with the arrivals of all sites but those known to be after it."""
    after = np.concatenate((np.cumsum(rows.counts[::-1])[::-1], [0]))
    counted = []
    for block in sorted(blocks, key=_by_end):
        newer = sum(other.weight for other in blocks if other.start >= block.end and other is not block)
        newer += int(after[np.searchsorted(rows.stamps, block.end)])
        counted.append(block._replace(arrivals_before_end=arrivals - newer))
    return counted
