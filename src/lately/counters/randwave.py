"""Randomized waves (Gibbons & Tirthapura; ECM-15 §4.2, §5.2): samples that halve from level to level.

Each arrival draws a level: l with probability 2^-(l+1). A level keeps the newest ``capacity`` arrivals that drew it, the
top level also those that drew higher. A range is answered from the lowest level from which on nothing in range has been
overwritten: the number of samples in range times 2^level. The median over independent repetitions is the answer.

    rings[level, repetition, cell, slot]   stamps, the oldest at the cursor
    drawn[repetition, cell, slot]          what the entries of the top level drew, so that it can be split when it overflows

An arrival stands on one level instead of on all up to its own: the levels above l hold the rest of sample l, so the same
entries give a sample twice as large. What is drawn depends on (salt, cell, position) only, never on how the stream was
batched. Merging unites the samples and keeps the newest of each level: nothing is lost, whatever the tree.

That needs samples that were drawn independently. Arrays with the same salt draw the same levels at the same positions: 64 of
them put 64 arrivals on a level or none, and the answer is far off. So a copy, or what is read from bytes, draws a salt of its
own before it counts its first arrival, unless the salt was given; the samples that it holds already do not change. ``salts``
has the salts that these were drawn with, and arrays that have one in common are not merged.
"""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lately.core import plan
from lately.core.arguments import check_word
from lately.core.codec import Reader, Writer
from lately.core.errors import MergeError
from lately.core.jit import helper, kernel
from lately.core.splitmix64 import GAMMA, mix
from lately.counters.base import MAX_COUNT, Bounds, Cells, CounterArray, Counts, Stamps

_ONE, _LAST = np.uint64(1), np.uint64(1) << np.uint64(63)
_CELL = np.uint64(0xD1B54A32D192ED03)
_MOST_LEVELS = 64

#: Salts that an array remembers; beyond that, those whose samples are the oldest are forgotten.
_MOST_SALTS = 1024


@helper
def _level(word: Any) -> Any:
    """The number of trailing ones: l with probability 2^-(l+1)."""
    level = 0
    word &= ~_LAST
    while word & _ONE:
        level += 1
        word >>= _ONE
    return level


@helper
def _uniform(word: Any) -> Any:
    return (np.float64(word >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@kernel
def _half(n: Any, word: Any) -> Any:
    """How many of n fair coins fall heads: by their bits if few, else by transformed rejection (Hörmann's BTRS)."""
    if n < 64:
        heads = 0
        for _ in range(n):
            heads += int(word & _ONE)
            word >>= _ONE
        return heads
    spread = math.sqrt(n * 0.25)
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.005
    alpha = (2.83 + 5.1 / b) * spread
    mode = math.floor((n + 1) * 0.5)
    peak = math.lgamma(mode + 1.0) + math.lgamma(n - mode + 1.0)
    while True:
        word = mix(word + GAMMA)
        u = _uniform(word) - 0.5
        word = mix(word + GAMMA)
        v = _uniform(word)
        edge = 0.5 - abs(u)
        k = math.floor((2 * a / edge + b) * u + n * 0.5 + 0.5)
        if k < 0 or k > n:
            continue
        if edge >= 0.07 and v <= 0.92 - 4.2 / b:
            return int(k)
        if math.log(v * alpha / (a / (edge * edge) + b)) <= peak - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0):
            return int(k)


@kernel
def _add(cells: Cells, stamps: Stamps, salt: Any, state: Any, span: Any, done: Any) -> int:
    """Count one arrival each; ``done`` counts (arrival, repetition) pairs. Returns where the rings had to grow."""
    n, rings, cursors, drawn = state
    top, repetitions, capacity = rings.shape[0] - 1, rings.shape[1], rings.shape[3]
    for i in range(done // repetitions, cells.size):
        cell, stamp = cells[i], stamps[i]
        seed = salt + np.uint64(cell) * _CELL + n[cell] * np.uint64(repetitions) * GAMMA
        for r in range(done - i * repetitions if i == done // repetitions else 0, repetitions):
            draw = _level(mix(seed + np.uint64(r) * GAMMA))
            level = min(draw, top)
            slot = cursors[level, r, cell]
            if level == top:
                if stamp - rings[level, r, cell, slot] <= span:
                    return int(i * repetitions + r)
                drawn[r, cell, slot] = draw
            rings[level, r, cell, slot] = stamp
            cursors[level, r, cell] = slot + 1 if slot + 1 < capacity else 0
        n[cell] += _ONE
    return int(cells.size * repetitions)


@kernel
def _add_weighted(cell: Any, stamp: Any, count: Any, key: Any, state: Any, span: Any) -> bool:
    """Count ``count`` arrivals at once in one repetition; ``key`` is (salt, repetition). False when the rings must grow.

    Each level gets half of what is left, so this is O(capacity · log count).
    """
    n, rings, cursors, drawn = state
    top, capacity = rings.shape[0] - 1, rings.shape[3]
    salt, r = key
    seed = mix(salt + np.uint64(cell) * _CELL + (n[cell] * np.uint64(rings.shape[1]) + np.uint64(r)) * GAMMA)
    # How many drew each level: known for all levels at once, so that it does not matter how many there are now.
    here = np.zeros(_MOST_LEVELS, np.int64)
    left = np.int64(count)
    for level in range(_MOST_LEVELS):
        here[level] = _half(left, mix(seed + np.uint64(level) * GAMMA)) if level < _MOST_LEVELS - 1 else left
        left -= here[level]
        if left == 0:
            break
    high = here[top:].sum()
    if high > 0:
        lost = (np.int64(cursors[top, r, cell]) + high - 1) % capacity  # the newest entry that would be overwritten
        if high > capacity or stamp - rings[top, r, cell, lost] <= span:
            return False
    for level in range(_MOST_LEVELS):
        at = min(level, top)
        slot = cursors[at, r, cell]
        for _ in range(min(here[level], capacity)):
            if at == top:
                drawn[r, cell, slot] = level
            rings[at, r, cell, slot] = stamp
            slot = slot + 1 if slot + 1 < capacity else 0
        cursors[at, r, cell] = slot
    return True


@kernel
def _count_since(cells: Cells, since: Any, state: Any, values: Counts, exact: Any) -> None:
    _, rings, cursors, _ = state
    levels, repetitions, capacity = rings.shape[0], rings.shape[1], rings.shape[3]
    answers = np.empty(repetitions, np.int64)
    for i in range(cells.size):
        cell = cells[i]
        exact[i] = False
        for r in range(repetitions):
            samples, answer = 0, 0
            for down in range(levels):
                level = levels - 1 - down
                oldest = cursors[level, r, cell]
                if level < levels - 1 and rings[level, r, cell, oldest] >= since:
                    break  # something in range was overwritten here
                left, right = 0, capacity  # the first entry in range, counted from the oldest
                while left < right:
                    middle = (left + right) >> 1
                    slot = oldest + middle
                    if rings[level, r, cell, slot if slot < capacity else slot - capacity] < since:
                        left = middle + 1
                    else:
                        right = middle
                samples += capacity - left
                answer = samples << level if samples <= MAX_COUNT >> level else MAX_COUNT
                if level == 0:
                    exact[i] = True
            answers[r] = answer
            if exact[i]:  # nothing was sampled away: this count is the truth
                values[i] = answer
                break
        if not exact[i]:
            answers.sort()
            values[i] = answers[repetitions // 2]


class RandomizedWave(CounterArray):
    """An array of randomized waves: any suffix of the window to within ``eps`` with probability 1 - ``delta``.

    Merging loses nothing, which no other family can say. Arrays whose samples were drawn with the same salt cannot be merged.

    Parameters
    ----------
    cells
        The number of counters.
    span
        The age of the oldest tick inside the window, in ticks; the newest has age 0.
    eps
        The error, as a share of the arrivals in the range, between 0 and 1.
    delta
        The probability that a count is off by more; 0.05 by default.
    samples
        The constant c of the analysis: c/eps² entries a level, c·ln(1/delta) repetitions. 36 buys the proven guarantee. 6, the
        default and what the paper measured with, has no proof but held in all its experiments and in ours, at a thirty-sixth of
        the memory.
    salt
        What decides the draws, an integer of 64 bits. By default it is random, and differs from array to array, and from an
        array to its copies, so that the samples of two sites are independent.

    >>> wave = RandomizedWave(cells=1, span=1000, eps=0.2, delta=0.1, salt=1)
    >>> wave.add(np.zeros(5000, np.uint32), np.arange(1001, 6001, dtype=np.uint32))
    >>> abs(wave.all_since(5201).value[0] - 800) <= 0.2 * 800
    np.True_
    """

    family = "randwave"
    certain = False
    shares = True

    def __init__(
        self, cells: int, span: int, eps: float, delta: float = 0.05, samples: int = plan.SAMPLES, salt: int | None = None
    ) -> None:
        super().__init__(cells, span, eps)
        self.delta, self.samples = delta, samples
        self.redraws = salt is None  # whether copies draw salts of their own
        self.fresh = True  # whether no other array is known to count with this salt
        self.salt = _drawn_salt() if salt is None else check_word("salt", salt)
        self.salts: dict[int, int] = {}  # the stamp of the newest sample that was drawn with each
        self.capacity, self.repetitions = plan.randwave_capacity(eps, delta, samples)
        self.n = np.zeros(cells, np.uint64)
        self._room(1, min(16, self.capacity))

    def _room(self, levels: int, capacity: int) -> None:
        self.rings = np.zeros((levels, self.repetitions, self.cells, capacity), np.uint32)
        self.cursors = np.zeros((levels, self.repetitions, self.cells), np.uint32)
        self.drawn = np.zeros((self.repetitions, self.cells, capacity), np.uint8)

    @property
    def _state(self) -> tuple[Any, ...]:
        return self.n, self.rings, self.cursors, self.drawn

    @property
    def merge_error(self) -> float:
        return 0.0

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._state)

    def add(self, cells: Cells, stamps: Stamps, counts: Counts | None = None) -> None:
        if not cells.size:
            return
        if not self.fresh:
            self.salt, self.fresh = _drawn_salt(), True
        self.salts[self.salt] = int(stamps.max())
        if counts is None:
            done, end = 0, cells.size * self.repetitions
            while done < end:
                done = _add(cells, stamps, np.uint64(self.salt), self._state, np.uint32(self.span), done)
                if done < end:
                    self._grow()
            return
        for cell, stamp, count in zip(cells.tolist(), stamps.tolist(), counts.tolist(), strict=True):
            for repetition in range(self.repetitions if count else 0):
                key = (np.uint64(self.salt), repetition)
                while not _add_weighted(cell, np.uint32(stamp), count, key, self._state, np.uint32(self.span)):
                    self._grow()
            self.n[cell] += np.uint64(count)

    def _since(self, cells: Cells, stamp: np.uint32) -> Bounds:
        value, exact = np.empty(cells.size, np.int64), np.empty(cells.size, np.bool_)
        _count_since(cells, stamp, self._state, value, exact)
        low = np.where(exact, value, np.ceil(value / (1 + self.eps)).astype(np.int64))
        high = np.where(exact, value, np.floor(np.minimum(value / (1 - self.eps), MAX_COUNT)).astype(np.int64))
        return Bounds(low, value, high)

    def _oldest_first(self, level: int) -> tuple[Stamps, NDArray[np.intp]]:
        """A level's entries in time order, and the slots they come from."""
        capacity = self.rings.shape[3]
        slots = (self.cursors[level][..., None].astype(np.intp) + np.arange(capacity)) % capacity
        return np.take_along_axis(self.rings[level], slots, -1), slots

    def _grow(self) -> None:
        """Double the only ring, or when it has its full capacity, split the top level by what its entries drew."""
        levels, _, _, capacity = self.rings.shape
        stamps, slots = self._oldest_first(levels - 1)
        drawn = np.take_along_axis(self.drawn, slots, -1)
        if capacity < self.capacity:
            self._room(1, min(2 * capacity, self.capacity))
            self._put(0, stamps, drawn)
            return
        rings, cursors = self.rings, self.cursors
        self._room(levels + 1, capacity)
        self.rings[: levels - 1], self.cursors[: levels - 1] = rings[:-1], cursors[:-1]
        stays = drawn < levels
        self._put(levels - 1, np.where(stays, stamps, 0), None)
        self._put(levels, np.where(stays, 0, stamps), drawn)

    def _put(self, level: int, stamps: Stamps, drawn: NDArray[np.uint8] | None) -> None:
        """Fill a level with the newest of these entries (in time order, zeros are no entries)."""
        capacity = self.rings.shape[3]
        order = np.argsort(stamps > 0, axis=-1, kind="stable")[..., -capacity:]  # zeros first, time order kept
        entries = np.take_along_axis(stamps, order, -1)
        self.rings[level, ..., capacity - entries.shape[-1] :] = entries
        self.cursors[level] = 0
        if drawn is not None:
            self.drawn[..., capacity - entries.shape[-1] :] = np.take_along_axis(drawn, order, -1)

    def rebase(self, shift: int) -> None:
        self.rings = np.where(self.rings > shift, self.rings - np.uint32(min(shift, 2**32 - 1)), 0).astype(np.uint32)
        self.salts = {salt: stamp - shift for salt, stamp in self.salts.items() if stamp > shift}

    def check_apart(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> None:
        earlier: set[int] = set()
        for array, shift in zip((self, *others), shifts, strict=True):
            salts = set(array._live_salts(live_from - shift))
            if shared := earlier & salts:
                raise MergeError(
                    f"cannot merge randomized waves whose samples were drawn with the same salt, {min(shared)}: they are not "
                    "independent, so no bound would hold",
                    remedy="leave salt= out or give each site its own, and do not merge a sketch with a copy that holds the "
                    "same arrivals",
                )
            earlier |= salts

    def _live_salts(self, live_from: int) -> dict[int, int]:
        """The salts of samples inside the window, the newest if there are too many."""
        live = [(stamp, salt) for salt, stamp in self.salts.items() if stamp >= live_from]
        return {salt: stamp for stamp, salt in sorted(live)[-_MOST_SALTS:]}

    def merged(self, others: Sequence[Self], shifts: Sequence[int], live_from: int) -> Self:
        inputs = [array.copy() for array in (self, *others)]
        while True:  # grow until the live entries of all top levels fit into one
            levels = max(a.rings.shape[0] for a in inputs)
            for array in inputs:
                while levels > 1 and array.rings.shape[0] < levels:
                    array._grow()
            live = sum((a.rings[-1] >= max(1, live_from - s)).sum(-1) for a, s in zip(inputs, shifts, strict=True))
            capacity = max(max(a.rings.shape[3] for a in inputs), min(int(live.max()), self.capacity))
            if int(live.max()) <= capacity:
                break
            for array in inputs:
                array._grow()
        result = self._fresh()
        result.n = np.sum([a.n for a in inputs], axis=0, dtype=np.uint64)
        for array, shift in zip(inputs, shifts, strict=True):
            result.salts |= {salt: stamp + shift for salt, stamp in array._live_salts(live_from - shift).items()}
        result._room(levels, capacity)
        for level in range(levels):
            moved, drawn = [], []
            for array, shift in zip(inputs, shifts, strict=True):
                stamps, slots = array._oldest_first(level)
                position = stamps.astype(np.int64) + shift
                moved.append(np.where((stamps > 0) & (position >= live_from), position, 0))
                drawn.append(np.take_along_axis(array.drawn, slots, -1))
            together = np.concatenate(moved, axis=-1)
            order = np.argsort(together, axis=-1, kind="stable")
            entries = np.take_along_axis(together, order, -1).astype(np.uint32)
            result._put(
                level, entries, np.take_along_axis(np.concatenate(drawn, axis=-1), order, -1) if level == levels - 1 else None
            )
        return result

    def _fresh(self) -> Self:
        twin = type(self)(self.cells, self.span, self.eps, self.delta, self.samples, self.salt)
        twin.redraws, twin.fresh = self.redraws, not self.redraws
        return twin

    def copy(self) -> Self:
        twin = self._fresh()
        twin.salts = dict(self.salts)
        for name in ("n", "rings", "cursors", "drawn"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def write(self, out: Writer, now: int) -> None:
        out.u64(self.salt)
        out.integers(self.n)
        out.u8(self.rings.shape[0])
        out.u64(self.rings.shape[3])
        for level in range(self.rings.shape[0]):
            stamps, slots = self._oldest_first(level)
            live = stamps >= self.live_from(now)
            out.integers(live.sum(-1))
            out.integers(now - stamps[live].astype(np.int64))
        out.integers(np.take_along_axis(self.drawn, slots, -1)[live])
        if out.extended:
            salts = sorted(self._live_salts(self.live_from(now)).items())
            out.u8(self.redraws)
            out.u64s(np.array([salt for salt, _ in salts], np.uint64))
            out.integers(np.array([now - stamp for _, stamp in salts], np.int64))

    def is_extended(self, now: int) -> bool:
        return self.redraws or bool(self._live_salts(self.live_from(now)).keys() - {self.salt})

    def read(self, source: Reader, now: int, newest: int, most: int) -> None:
        self.salt = source.u64()
        n = source.integers(0, most)
        source.check(n.size == self.cells, "cells are missing")
        self.n = n.astype(np.uint64)
        levels, capacity = source.within(source.u8(), 1, _MOST_LEVELS), source.within(source.u64(), 1, self.capacity)
        source.check(levels == 1 or capacity == self.capacity, "rings of a wrong size")
        # Five bytes an entry, and as much again while they are put in order.
        source.fits(10 * (levels + 1) * self.repetitions * self.cells * capacity)
        self._room(levels, capacity)
        entries = np.zeros((self.repetitions, self.cells), np.int64)
        places = []
        for level in range(levels):
            live, ages = source.integers(0, capacity), source.integers(now - newest, min(self.span, now - 1))
            source.check(live.size == self.repetitions * self.cells and int(live.sum()) == ages.size, "entries do not add up")
            entries += live.reshape(entries.shape)
            row = np.repeat(np.arange(live.size), live)
            step = np.arange(ages.size) - np.repeat(np.cumsum(live), live)
            inner = np.ones(ages.size, bool)
            inner[(np.cumsum(live) - live)[live > 0]] = False
            source.check(bool((np.diff(ages, prepend=0) <= 0)[inner].all()), "entries are out of order")
            places = [row, capacity + step]
            self.rings[level].reshape(-1, capacity)[row, capacity + step] = now - ages
        source.check(bool((entries <= n).all()), "more entries than arrivals")
        drawn = source.integers(levels - 1, _MOST_LEVELS - 1)
        source.check(drawn.size == len(places[0]), "entries do not add up")
        self.drawn.reshape(-1, capacity)[places[0], places[1]] = drawn
        self.redraws, self.fresh = False, True
        self.salts = {self.salt: int(self.rings.max())} if self.rings.any() else {}
        if source.extended:
            self.redraws = source.choice(0, 1) == 1
            salts, ages = source.u64s(), source.integers(now - newest, min(self.span, now - 1))
            source.check(salts.size == ages.size <= _MOST_SALTS and bool((salts[1:] > salts[:-1]).all()), "salts out of order")
            self.salts = dict(zip(salts.tolist(), (now - ages).tolist(), strict=True))
            self.fresh = not self.redraws


def _drawn_salt() -> int:
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
