"""One row of shared waves: how arrivals are noted, counted back, and handed on when rows merge.

Every cell numbers its arrivals, from a phase of its own on. Arrivals whose number is a multiple of 1 << level, and of no
higher power, are noted in the ring of that level; the top ring takes all higher ones too. Other than in a wave, a ring is
not a cell's own but the row's, in the order of time:

    cells[level, slot]   the cell of a note, counted from the first of the row; the newest notes, overwritten in a circle
    gaps[level, slot]    the ticks since the note before it, so that two bytes are enough; a longer
                         gap is bridged by fillers, which are notes of no cell
    runs[level, slot]    how many such numbers one arrival of a large count passed (empty while all passed one)
    marks[level]         the slot to write next, how many are in use, the stamps of the newest and the oldest, and of the newest
                         note that was overwritten while still in the window

Since any stamp newer than all that is lost on a level and above, the notes tell how many multiples each cell passed.
"""

import threading
from typing import Any, NamedTuple

import numpy as np

from lately.core.jit import helper, kernel
from lately.core.shared_sizes import fillers
from lately.core.splitmix64 import GAMMA, mix
from lately.counters.base import MAX_STAMP
from lately.counters.bits import newest_odd, trailing_zeros

_ZERO, _ONE, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
#: The columns of ``marks``.
HEAD, HELD, NEWEST, OLDEST, LOST = range(5)

#: Marks an empty place of a table; no cell has this number.
NO_CELL = np.uint32(2**32 - 1)


class _Scratch(threading.local):
    """Buffers for the selected arrivals of a block and their numbers, shared by all rows of a thread."""

    def __init__(self) -> None:
        self._selected, self._positions = np.empty(0, np.uint32), np.empty(0, np.uint64)

    def __call__(self, size: int) -> tuple[Any, Any]:
        if size > self._selected.size:
            self._selected, self._positions = np.empty(size, np.uint32), np.empty(size, np.uint64)
        return self._selected, self._positions


_scratch = _Scratch()


class RowState(NamedTuple):
    """The arrays of a row, as kernels take them."""

    marks: Any
    gaps: Any
    cells: Any
    runs: Any


class Limits(NamedTuple):
    """What a row was built with, as kernels take it."""

    start: Any  # the first cell of the row
    span: Any  # the age of the oldest stamp inside the window
    capacity: Any  # the entries of the largest ring
    longest: Any  # the longest gap
    filler: Any  # the cell of entries that bridge longer ones


@helper
def phase(cell: Any, height: Any) -> Any:
    """Where a cell's numbers begin: a random number of 61 bits, the same in every array of the same height."""
    return mix((np.uint64(height) << _32) + np.uint64(cell) + GAMMA) >> np.uint64(3)


@kernel
def phases(cells: Any, height: Any) -> Any:
    """The phases of the first ``cells`` cells."""
    out = np.empty(cells, np.uint64)
    for cell in range(cells):
        out[cell] = phase(cell, height)
    return out


def room(size: int, capacity: int) -> int:
    """How many entries a level has room for after it outgrew ``size``; at first 16, then four times as many."""
    return min(4 * size or 16, capacity)


class Row:
    """The notes of one row; see above. It begins with one level of a few notes.

    Parameters
    ----------
    start, width
        The first cell, and the number of cells.
    span
        The age of the oldest stamp inside the window, in ticks.
    notes
        How many notes a level must keep.
    """

    def __init__(self, start: int, width: int, span: int, notes: int) -> None:
        most = fillers(span, notes)
        self.capacity = notes + max(most, 0)
        narrow = np.uint16 if width < 2**16 else np.uint32
        short = np.uint16 if most >= 0 else np.uint32
        self.limits = Limits(
            np.uint32(start),
            np.uint32(min(span, MAX_STAMP)),
            np.uint32(self.capacity),
            np.uint32(np.iinfo(short).max),
            np.uint32(np.iinfo(narrow).max),
        )
        self._shape = start, width, span, notes
        self.arrived = 0  # all counts so far, of which ``n`` may have kept 32 bits
        size = room(0, self.capacity)
        self.marks = np.zeros((1, 5), np.uint32)
        self.gaps = np.zeros((1, size), short)
        self.cells = np.zeros((1, size), narrow)
        self.runs = np.zeros((0, 0), np.uint32)

    @property
    def state(self) -> RowState:
        return RowState(self.marks, self.gaps, self.cells, self.runs)

    @property
    def levels(self) -> int:
        return int(self.marks.shape[0])

    @property
    def size(self) -> int:
        """The entries for which a level has room."""
        return int(self.gaps.shape[1])

    @property
    def lost(self) -> Any:
        """For each level the stamp of the newest note that was overwritten while still in the window; 0 for none."""
        return self.marks[:, LOST]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.state)

    def copy(self) -> "Row":
        twin = Row(*self._shape)
        twin.marks, twin.gaps, twin.cells, twin.runs = (array.copy() for array in self.state)
        twin.arrived = self.arrived
        return twin

    def with_runs(self, longest: int) -> None:
        """Make room for runs of up to ``longest``; until now all were of one."""
        if not self.runs.size:
            self.runs = np.ones(self.gaps.shape, np.uint32)
        if longest >= 2**32:
            self.runs = self.runs.astype(np.uint64, copy=False)

    def rebase(self, shift: int) -> None:
        """Move the origin of the stamps."""
        _rebase(self.state, np.uint32(min(shift, MAX_STAMP)))

    def notes(self, level: int) -> tuple[Any, Any, Any]:
        """Stamps, cells of the row and runs of the notes of a level, the oldest first."""
        used = int(self.marks[level, HELD])
        stamps, cells, runs = np.empty(used, np.uint32), np.empty(used, np.uint32), np.empty(used, np.uint64)
        count = _oldest_first(self.state, level, self.limits.filler, (stamps, cells, runs))
        return stamps[:count], cells[:count], runs[:count]

    def entries(self, stamps: Any) -> int:
        """How many entries notes with these stamps take, fillers included."""
        return int(stamps.size + (np.diff(stamps) // self.limits.longest).sum())

    def put(self, level: int, stamps: Any, cells: Any, runs: Any) -> None:
        """Note many arrivals on a level that has room for them, the oldest first."""
        if runs.size and int(runs.max()) > 1:
            self.with_runs(int(runs.max()))
        _put_all(self.state, level, self.limits, stamps, cells, runs)

    def allocate(self, levels: int, size: int) -> None:
        """Empty rings: so many levels of this size, with what was lost on them."""
        marks, longest = np.zeros((levels, 5), np.uint32), self.runs.dtype
        marks[: self.levels, LOST] = self.lost[:levels]
        self.marks, weighted = marks, bool(self.runs.size)
        self.gaps, self.cells = np.zeros((levels, size), self.gaps.dtype), np.zeros((levels, size), self.cells.dtype)
        self.runs = np.ones((levels, size) if weighted else (0, 0), longest)

    def count(self, cells: Any, stamps: Any, n: Any) -> int:
        """Count one arrival each; returns how many were taken before the rings had to grow.

        Of a block that is much longer than the rings, only the newest arrivals of the fine levels are noted: the block would
        overwrite the notes of the others.
        """
        fine = 0
        if self.size == self.capacity:
            fine = max(0, min((cells.size // (2 * self.size)).bit_length() - 1, self.levels - 1))
        selected, positions = _scratch(cells.size)
        count = number(cells, n, np.uint64((1 << fine) - 1), selected, positions)
        noted = note(selected[:count], positions, cells, stamps, self.state, self.limits)
        taken = cells.size if noted == count else int(selected[noted])
        take_back(cells[taken:], n)
        if fine and taken:
            out = selected, positions, np.zeros(fine, np.int64)
            count = newest_fine(cells[:taken], stamps, n, self.state, self.limits, out)
            note(selected[:count][::-1], positions[:count][::-1], cells, stamps, self.state, self.limits)
        return taken

    def grow(self, n: Any) -> None:
        """Enlarge the rings up to their capacity, or split the top one in two."""
        levels, size = self.levels, self.size
        notes = [self.notes(level) for level in range(levels)]
        if size < self.capacity:
            self.allocate(levels, room(size, self.capacity))
        else:
            top = levels - 1
            stamps, cells, runs = notes.pop()
            odd = _odd_runs(cells, runs, n[int(self.limits.start) :], np.int64(top))
            for share in (odd, runs - odd):
                selected = share > 0
                notes.append((stamps[selected], cells[selected], share[selected]))
            self.allocate(levels + 1, size)
        for level, columns in enumerate(notes):
            self.put(level, *columns)


@helper
def place(cell: Any, keys: Any) -> Any:
    """Where in a table of open addresses, whose size is a power of two, a cell is or belongs."""
    mask = np.uint32(keys.size - 1)
    at = (cell * np.uint32(0x9E3779B1)) & mask
    while keys[at] != NO_CELL and keys[at] != cell:
        at = (at + np.uint32(1)) & mask
    return at


# -- write -----------------------------------------------------------------------------------------------------------------


@helper
def _has_room(row: Any, level: Any, stamp: Any, limits: Any) -> Any:
    """Whether an entry overwrites nothing that must be kept: in the top ring, and in rings that may grow, all of the window."""
    marks, size = row.marks, row.gaps.shape[1]
    return (
        marks[level, HELD] < size
        or stamp - marks[level, OLDEST] > limits.span
        or (size == limits.capacity and level < marks.shape[0] - 1)
    )


@helper
def _put(row: Any, level: Any, stamp: Any, cell: Any, run: Any, limits: Any) -> None:
    """Write an entry at the head of a ring; the gap to the newest is not too long."""
    marks, size = row.marks, np.uint64(row.gaps.shape[1])
    slot = np.uint64(marks[level, HEAD])
    after = slot + _ONE
    if after == size:
        after = _ZERO
    if marks[level, HELD] == size:
        oldest = marks[level, OLDEST]
        if stamp - oldest <= limits.span and row.cells[level, slot] != limits.filler:
            marks[level, LOST] = oldest
        marks[level, OLDEST] = oldest + row.gaps[level, after]
    else:
        if marks[level, HELD] == 0:
            marks[level, OLDEST] = stamp
        marks[level, HELD] += np.uint32(1)
    row.gaps[level, slot] = stamp - marks[level, NEWEST]
    row.cells[level, slot] = cell
    if row.runs.size:
        row.runs[level, slot] = run
    marks[level, NEWEST] = stamp
    marks[level, HEAD] = after


@kernel
def _bridge(row: Any, level: Any, stamp: Any, limits: Any) -> bool:
    """Shorten the gap to the newest note by fillers; False if the rings must grow first."""
    marks = row.marks
    if stamp - marks[level, NEWEST] > limits.span:  # all of it has left the window
        marks[level, HELD] = 0
        return True
    while stamp - marks[level, NEWEST] > limits.longest:
        at = marks[level, NEWEST] + limits.longest
        if not _has_room(row, level, at, limits):
            return False
        _put(row, level, at, limits.filler, _ONE, limits)
    return True


@helper
def _is_far(row: Any, level: Any, stamp: Any, limits: Any) -> Any:
    """Whether a stamp is too far from the newest note for one gap."""
    return stamp - row.marks[level, NEWEST] > limits.longest and row.marks[level, HELD] > 0


@kernel
def number(cells: Any, n: Any, mask: Any, selected: Any, positions: Any) -> int:
    """Number one arrival each, and choose those whose number has no bit of ``mask``; returns how many."""
    count = 0
    for i in range(cells.size):
        position = np.uint64(n[cells[i]]) + _ONE
        n[cells[i]] = position
        selected[count] = i  # without a branch, which would go wrong half of the time
        positions[count] = position
        count += position & mask == _ZERO
    return count


@kernel
def take_back(cells: Any, n: Any) -> None:
    """Take the last number of each cell back."""
    for i in range(cells.size):
        n[cells[i]] = np.uint64(n[cells[i]]) - _ONE


@kernel
def note(selected: Any, positions: Any, cells: Any, stamps: Any, row: Any, limits: Any) -> int:
    """Note the selected arrivals; returns how many were noted before the rings had to grow."""
    marks, gaps, noted, runs = row
    start, span, capacity, longest, filler = limits
    top, size = np.uint64(marks.shape[0] - 1), np.uint64(gaps.shape[1])
    full, weighted = size == capacity, runs.size > 0
    for k in range(selected.size):
        stamp = stamps[selected[k]]
        level = min(trailing_zeros(positions[k]), top)
        used = marks[level, HELD]
        if stamp - marks[level, NEWEST] > longest and used > 0:
            if not _bridge(row, level, stamp, limits):
                return k
            used = marks[level, HELD]
        # The rest is ``_has_room`` and ``_put``, in one piece: this is where the time goes.
        slot = np.uint64(marks[level, HEAD])
        after = slot + _ONE
        if after == size:
            after = _ZERO
        if used == size:
            oldest = marks[level, OLDEST]
            if stamp - oldest <= span:
                if not full or level == top:
                    return k
                if noted[level, slot] != filler:
                    marks[level, LOST] = oldest
            marks[level, OLDEST] = oldest + gaps[level, after]
        else:
            if used == 0:
                marks[level, OLDEST] = stamp
            marks[level, HELD] = used + _ONE
        gaps[level, slot] = stamp - marks[level, NEWEST]
        noted[level, slot] = cells[selected[k]] - start
        if weighted:
            runs[level, slot] = 1
        marks[level, NEWEST] = stamp
        marks[level, HEAD] = after
    return int(selected.size)


@kernel
def newest_fine(cells: Any, stamps: Any, n: Any, row: Any, limits: Any, out: Any) -> int:
    """Choose the newest arrivals of the fine levels, as many as their rings hold, the newest first; returns how many.

    The cells have numbered them already: walking back, numbers are taken back to know them, and then given again. A ring whose
    notes will all be overwritten is emptied.
    """
    selected, positions, counts = out
    marks, size = row.marks, row.gaps.shape[1]
    fine, filled, count, i = counts.size, 0, 0, cells.size
    while i > 0 and filled < fine:
        i -= 1
        position = np.uint64(n[cells[i]])
        n[cells[i]] = position - _ONE
        level = trailing_zeros(position)
        if level < fine and counts[level] <= size:
            if counts[level] < size:
                selected[count] = i
                positions[count] = position
                count += 1
            else:  # one more than the ring holds
                marks[level, HELD] = 0
                marks[level, LOST] = max(marks[level, LOST], np.uint32(stamps[i]))
                filled += 1
            counts[level] += 1
    for j in range(i, cells.size):
        n[cells[j]] = np.uint64(n[cells[j]]) + _ONE
    return count


@helper
def _passed(before: Any, after: Any, level: Any, top: Any) -> Any:
    """How many numbers of this level lie after ``before`` and up to ``after``."""
    if level == top:
        return (after >> top) - (before >> top)
    return newest_odd(after, level) - newest_odd(before, level)


@kernel
def add_weighted(cells: Any, stamps: Any, counts: Any, n: Any, row: Any, limits: Any) -> int:
    """Count ``counts[i]`` arrivals at once, in O(levels); the row must have room for runs."""
    top = np.uint64(row.marks.shape[0] - 1)
    for i in range(cells.size):
        cell, stamp = cells[i], stamps[i]
        before = np.uint64(n[cell])
        after = before + np.uint64(counts[i])
        for at in range(top + _ONE):  # first see whether there is room, so that an arrival is noted on all levels or none
            level = np.uint64(at)
            if _passed(before, after, level, top) > _ZERO:
                if _is_far(row, level, stamp, limits) and not _bridge(row, level, stamp, limits):
                    return i
                if not _has_room(row, level, stamp, limits):
                    return i
        for at in range(top + _ONE):
            level = np.uint64(at)
            run = _passed(before, after, level, top)
            if run > _ZERO:
                _put(row, level, stamp, cell - limits.start, run, limits)
        n[cell] = after
    return int(cells.size)


@kernel
def _put_all(row: Any, level: Any, limits: Any, stamps: Any, cells: Any, runs: Any) -> None:
    """Write the notes of one level, the oldest first, into a ring that has room for them and their fillers."""
    for i in range(stamps.size):
        if _is_far(row, level, stamps[i], limits):
            _bridge(row, level, stamps[i], limits)
        _put(row, level, stamps[i], cells[i], runs[i], limits)


@kernel
def _oldest_first(row: Any, level: Any, filler: Any, out: Any) -> int:
    """The notes of a level without its fillers, as stamps, cells and runs; returns how many."""
    stamps, cells, runs = out
    marks, size, count = row.marks, row.gaps.shape[1], 0
    stamp, slot = np.uint64(marks[level, OLDEST]), np.int64(marks[level, HEAD]) - np.int64(marks[level, HELD])
    if slot < 0:
        slot += size
    for i in range(marks[level, HELD]):
        if i > 0:
            stamp += np.uint64(row.gaps[level, slot])
        if row.cells[level, slot] != filler:
            stamps[count] = stamp
            cells[count] = row.cells[level, slot]
            runs[count] = row.runs[level, slot] if row.runs.size else _ONE
            count += 1
        slot += 1 if slot + 1 < size else 1 - size
    return count


@kernel
def _rebase(row: Any, shift: Any) -> None:
    """Move the origin of the stamps; entries up to there have left the window."""
    marks, size = row.marks, row.gaps.shape[1]
    for level in range(marks.shape[0]):
        slot = np.int64(marks[level, HEAD]) - np.int64(marks[level, HELD])
        slot += size if slot < 0 else 0
        while marks[level, HELD] > 0 and marks[level, OLDEST] <= shift:
            slot += 1 if slot + 1 < size else 1 - size
            marks[level, HELD] -= np.uint32(1)
            if marks[level, HELD] > 0:
                marks[level, OLDEST] += row.gaps[level, slot]
        for column in (NEWEST, OLDEST, LOST):
            marks[level, column] = marks[level, column] - shift if marks[level, column] > shift else 0


@kernel
def _odd_runs(cells: Any, runs: Any, n: Any, top: Any) -> Any:
    """How many of each note's multiples of 1 << top are odd ones, found by counting back from each cell's newest."""
    size = 4
    while size < 2 * cells.size:
        size *= 2
    keys, multiples = np.full(size, NO_CELL), np.zeros(size, np.int64)
    odd = np.zeros(cells.size, np.uint64)
    for i in range(cells.size - 1, -1, -1):
        at = place(cells[i], keys)
        keys[at] = cells[i]
        run = np.int64(runs[i])
        newest = np.int64(n[cells[i]] >> np.uint64(top)) - multiples[at]  # may be below 0 where 32 bits ran over
        odd[i] = ((newest + 1) >> 1) - ((newest - run + 1) >> 1)
        multiples[at] += run
    return odd
