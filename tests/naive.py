"""Slow and obvious twins of the fast code. Nothing here knows a trick; every line can be checked by eye."""

import functools
import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import xxhash


@dataclass
class NaiveWindow:
    """Keeps every arrival. ``span`` is how many ticks before now are still inside."""

    span: int
    events: list[tuple[int, object, int]] = field(default_factory=list)
    now: int | None = None

    def add(self, tick, key, count=1):
        self.events.append((int(tick), key, int(count)))
        self.now = int(tick) if self.now is None else max(self.now, int(tick))

    def since(self, tick, key=None):
        """Arrivals (of a key) at this tick or later."""
        return sum(c for t, k, c in self.events if t >= tick and (key is None or k == key))

    def frequencies(self, start, stop=None):
        """How often each key was seen from tick ``start`` on and before ``stop``."""
        found = Counter()
        for t, k, c in self.events:
            if t >= start and (stop is None or t < stop):
                found[k] += c
        return found


@dataclass
class NaiveWave:
    """A deterministic wave as the paper draws it: the newest ``capacity`` positions of each level, by position."""

    capacity: int
    stamps: list[int] = field(default_factory=list)  # of every arrival: only to look the retained ones up

    def add(self, stamp, count=1):
        self.stamps.extend([stamp] * count)

    def retained(self):
        """Positions that a wave with enough levels still has, oldest first."""
        kept = []
        for level in range(64):
            positions = list(range(1 << level, len(self.stamps) + 1, 2 << level))
            if not positions:
                break
            kept += positions[-self.capacity :]
        return sorted(kept)

    def since(self, stamp):
        """The bracket that the retained positions leave around the first arrival at ``stamp`` or later."""
        n = len(self.stamps)
        if n and self.stamps[0] >= stamp:
            return n, n
        before, after = 0, n + 1
        for p in self.retained():
            if self.stamps[p - 1] < stamp:
                before = max(before, p)
            else:
                after = min(after, p)
        return n + 1 - after, n - before


@dataclass
class NaiveHistogram:
    """An exponential histogram as a plain list of buckets [size, end], newest first."""

    k: int
    buckets: list[list[int]] = field(default_factory=list)

    def add(self, stamp, count=1):
        for _ in range(count):
            self.buckets.insert(0, [1, stamp])
            size = 1
            while True:
                same = [i for i, b in enumerate(self.buckets) if b[0] == size]
                if len(same) <= (2 * self.k if size == 1 else self.k + 1):
                    break
                oldest, second = same[-1], same[-2]
                self.buckets[second][0] = 2 * size  # keeps the end of the newer one
                del self.buckets[oldest]
                size *= 2


def replayed(segments_of_each_input, bits=8):
    """The log that merging replays, as (stamp, count) in time order.

    A range that begins in a segment has at least the arrivals after it and its last one, ``a`` in all, and at most all of
    them, ``b``. What is replayed at the segment's end makes it a + (b - a)·3a/(4a + 2b), and the rest is at its start.
    A start of None has left the window, and with it what would be replayed there. Weights are cut off after ``bits``
    bits, and how many arrivals came at a stamp or later is rounded.
    """
    points = Counter()
    for starts, ends, sizes in segments_of_each_input:
        later = 0
        for start, end, size in reversed(list(zip(starts, ends, sizes, strict=True))):
            others = size - 1
            at_end = int((1 + others / (2 + others / (1.5 * (later + 1)))) * 2**bits)
            points[end] += at_end
            if start is not None:
                points[start] += size * 2**bits - at_end
            later += size
    log, weight, counted = [], 0, 0
    for stamp in sorted(points, reverse=True):
        weight += points[stamp]
        whole, rest = divmod(weight, 2**bits)
        whole += rest > (whole * 0x9E3779B97F4A7C15 % 2**64) >> (64 - bits)
        log.append((stamp, whole - counted))
        counted = whole
    return log[::-1]


def noted(levels, lost):
    """Shared notes as what merging replays: each stands for its run at the finest level that was complete at its time.

    ``levels`` has for each level its notes as (stamp, cell, run), ``lost`` the stamp of the newest that is gone, or 0.
    """
    events = []
    for level, notes in enumerate(levels):
        for stamp, cell, run in notes:
            finest = max((i + 1 for i, gone in enumerate(lost) if gone >= stamp), default=0)
            if level >= finest:
                events.append((stamp, cell, run << finest))
    return sorted(events)


def key_hash(key):
    """Spark's xxhash64 of a key, by the xxhash package."""
    parts = key if isinstance(key, tuple) else (key,)
    value = 42
    for part in parts:
        raw = (
            part
            if isinstance(part, bytes)
            else part.encode()
            if isinstance(part, str)
            else int(part).to_bytes(8, "little", signed=True)
        )
        value = xxhash.xxh64(raw, seed=value).intdigest()
    return value


def cell(key, words, width):
    """The cell of a key in one row, in Python's integers."""
    a, b, c = (int(w) for w in words)
    hashed = key_hash(key)
    mixed = ((a + (hashed >> 32)) * (b + (hashed & 0xFFFFFFFF)) + c) % 2**64
    return ((mixed >> 32) * width) >> 32


def count_min(frequencies, words, width):
    """The Count-Min table of known frequencies."""
    table = np.zeros((len(words), width), np.int64)
    for key, count in frequencies.items():
        for row, word in enumerate(words):
            table[row, cell(key, word, width)] += count
    return table


def polynomial(hashed, coefficients):
    """A cubic polynomial modulo 2^61 - 1, in Python's integers."""
    a, b, c, d = (int(word) for word in coefficients)
    return (a * hashed**3 + b * hashed**2 + c * hashed + d) % (2**61 - 1)


def signed_cell(hashed, coefficients, width):
    """(bucket, sign) of a hashed key in one row of a Fast-AMS sketch."""
    value = polynomial(hashed, coefficients)
    return ((value >> 29) * width) >> 32, -1 if value % 2 else 1


def fast_ams(frequencies, coefficients, width, signed=True):
    """The Fast-AMS table of known frequencies; without signs it tells how many arrivals meet in each cell."""
    table = np.zeros((len(coefficients), width), np.int64)
    for key, count in frequencies.items():
        for row, words in enumerate(coefficients):
            bucket, sign = signed_cell(key_hash(key), words, width)
            table[row, bucket] += count * (sign if signed else 1)
    return table


def ams(frequencies, coefficients, width, depth):
    """The AMS table of known frequencies: a polynomial for each 61 cells of a row, and each of its bits a sign."""
    table = np.zeros((depth, width), np.int64)
    for row in range(depth):
        words = coefficients[row * len(coefficients) // depth : (row + 1) * len(coefficients) // depth]
        for key, count in frequencies.items():
            for cell in range(width):
                minus = polynomial(key_hash(key), words[cell // 61]) >> cell % 61 & 1
                table[row, cell] += -count if minus else count
    return table


def inner_product(left, right):
    """The sum over all keys of the product of their frequencies."""
    return sum(count * right.get(key, 0) for key, count in left.items())


def hoeffding(trials, p, doubt=1e-9):
    """More failures than this in so many trials of probability p have a chance below ``doubt``."""
    return trials * p + math.sqrt(trials * math.log(1 / doubt) / 2)


@dataclass
class NaiveSharedRow:
    """A row of shared waves that forgets nothing: each arrival with the levels of the numbers that its cell gave it."""

    numbers: list[int]  # the last number that each cell gave; at first its phase
    arrivals: list[tuple[int, int, Counter]] = field(default_factory=list)

    def add(self, stamp, cell, count=1):
        levels = Counter()
        for _ in range(count):
            self.numbers[cell] += 1
            levels[(self.numbers[cell] & -self.numbers[cell]).bit_length() - 1] += 1
        self.arrivals.append((stamp, cell, levels))

    def notes(self, level, top):
        """What is noted on a level, oldest first, as (stamp, cell, run); the top takes all higher levels too."""
        found = []
        for stamp, cell, levels in self.arrivals:
            run = sum(levels.values()) - sum(levels[i] for i in range(top)) if level == top else levels[level]
            if run:
                found.append((stamp, cell, run))
        return found

    def retained(self, levels, size):
        """For each of so many levels the newest ``size`` notes; at the top all."""
        top = levels - 1
        return [self.notes(level, top)[-size if level < top else 0 :] for level in range(levels)]

    def lost(self, levels, size):
        """For each level the stamp of the newest note that is not retained, or 0."""
        newest = [max((stamp for stamp, _, _ in self.notes(i, levels - 1)[:-size]), default=0) for i in range(levels - 1)]
        return [*newest, 0]

    def since(self, cell, stamp, levels, size):
        """(low, value, high) that these notes leave, found by trying every count."""
        finest = max((level + 1 for level, lost in enumerate(self.lost(levels, size)) if lost >= stamp), default=0)
        kept = self.retained(levels, size)[finest:]
        passed = sum(run for level in kept for s, c, run in level if s >= stamp and c == cell)
        newest, most = self.numbers[cell], sum(sum(x.values()) for _, c, x in self.arrivals if c == cell)
        fitting = [c for c in range(most + 1) if (newest >> finest) - ((newest - c) >> finest) == passed]
        return fitting[0], passed << finest, fitting[-1]


def quantile(frequencies, q):
    """The least key up to which a share of q came, and at least one arrival."""
    wanted, seen = max(q * sum(frequencies.values()) - 1e-9, 1), 0
    for key in sorted(frequencies):
        seen += frequencies[key]
        if seen >= wanted:
            return key
    raise ValueError("nothing came")


def between_keys(frequencies, lo, hi):
    """How many arrivals had a key from lo to hi."""
    return sum(count for key, count in frequencies.items() if lo <= key <= hi)


def second_moment(frequencies):
    return sum(count * count for count in frequencies.values())


def entropy(frequencies):
    """In bits."""
    total = sum(frequencies.values())
    return sum(-count / total * math.log2(count / total) for count in frequencies.values() if count)


def hierarchical(frequencies, bits, step, least):
    """Prefixes that are heavy without the heavy ones below them, as (prefix, bits, count, own), from the keys up.

    The discounted hierarchical heavy hitters of Cormode et al.: what is listed takes its arrivals away from what lies above.
    """
    left, listed = Counter(frequencies), []
    for shift in range(0, bits, step):
        own, count = Counter(), Counter()
        for key in frequencies:
            own[key >> shift] += left[key]
            count[key >> shift] += frequencies[key]
        heavy = sorted(prefix for prefix in own if own[prefix] >= least)
        listed += [(prefix << shift, bits - shift, count[prefix], own[prefix]) for prefix in heavy]
        left = Counter({key: 0 if key >> shift in heavy else left[key] for key in left})
    return listed


@dataclass
class EagerPeriods:
    """SIMPLE and PROPORTIONAL as the paper lists them: every cell is visited at every step."""

    steps: int
    cells: int

    def __post_init__(self):
        self.simple, self.value, self.snapshot = (np.zeros(self.cells) for _ in range(3))

    def step(self, number, arrivals):
        """One step, whose number decides where periods begin, and the (cell, count) pairs that arrive in it."""
        if (number - 1) % self.steps == 0:
            self.snapshot = self.value / self.steps
            self.simple[:] = 0
        self.value -= self.snapshot
        for cell, count in arrivals:
            self.simple[cell] += count
            self.value[cell] += count


@dataclass
class EagerSplitter:
    """SPLITTER as Listing 3.4 has it, with the rates of the text: every cell is visited at every step."""

    steps: int
    cells: int
    mu: float

    def __post_init__(self):
        self.queues = [[] for _ in range(self.cells)]  # of [init, last, counter]
        self.value = np.zeros(self.cells)

    def step(self, now, arrivals, least):
        """One step: what left N steps ago drains, then the (cell, count) pairs arrive; ``least`` is tau·N/columns."""
        for cell, queue in enumerate(self.queues):
            if queue and queue[0][0] == now - self.steps:
                first = queue[0]
                rate = first[2] / (first[1] - first[0] + 1)
                self.value[cell] -= rate
                first[2] -= rate
                first[0] += 1
                if first[0] > first[1]:
                    queue.pop(0)
        for cell, count in arrivals:
            self.value[cell] += count
            self._arrive(self.queues[cell], now, count, least)

    def _arrive(self, queue, now, count, least):
        if queue and queue[-1][2] < least:
            queue[-1][1] = now
            queue[-1][2] += count
        elif len(queue) > 1 and self._error(queue[-2], queue[-1]) <= self.mu:
            queue[-2][1] = queue[-1][1]
            queue[-2][2] += queue[-1][2]
            queue[-1] = [now, now, count]
        else:
            queue.append([now, now, count])

    @staticmethod
    def _error(before, last):
        old, new = before[2] / (last[0] - before[0]), last[2] / (last[1] - last[0] + 1)
        return max(old, new) / min(old, new)


@dataclass
class NaiveCollectiveMax:
    """Keeps every arrival of every substream, and looks at all of them."""

    sign: int = 1
    events: list[tuple[int, int, float]] = field(default_factory=list)

    def update(self, ids, ticks, values):
        self.events += zip(ids, ticks, values, strict=True)

    def forget(self, ids):
        self.events = [event for event in self.events if event[0] not in ids]

    def values(self, since):
        """The maximum, or minimum, of each substream that had an arrival since a tick."""
        best = max if self.sign == 1 else min
        ids = {i for i, tick, _ in self.events if tick >= since}
        return {i: best(value for j, tick, value in self.events if j == i and tick >= since) for i in ids}

    def lookup(self, since, low, high):
        return {i: value for i, value in self.values(since).items() if low <= value <= high}


@dataclass
class NaiveWindows:
    """Keeps every row and answers every query by looking at all of them. Times are ticks; ``lateness`` too."""

    lateness: int = 0
    rows: list[tuple[int, dict]] = field(default_factory=list)  # in time order, equal times as they came
    now: int | None = None
    late: int = 0

    def update(self, columns, ticks=None):
        """A batch of columns by name; without ticks rows are numbered."""
        count = len(next(iter(columns.values()))) if columns else len(ticks)
        ticks = range(len(self.rows), len(self.rows) + count) if ticks is None else ticks
        rows = [(int(tick), {name: column[i] for name, column in columns.items()}) for i, tick in enumerate(ticks)]
        taken = [row for row in rows if self.now is None or row[0] >= self.now - self.lateness]
        self.late += len(rows) - len(taken)
        self.rows = sorted(self.rows + taken, key=lambda row: row[0])
        self.now = max([*([] if self.now is None else [self.now]), *(tick for tick, _ in taken)], default=None)

    def advance(self, tick):
        self.now = tick if self.now is None else max(self.now, tick)

    def window(self, last=None, between=None):
        """The rows in a window; lengths are ticks, or objects with an ``n`` for numbers of arrivals."""
        older, newer = (last, None) if between is None else between
        if hasattr(older, "n"):
            start, end = (max(len(self.rows) - age, 0) for age in (older.n, newer.n if newer else 0))
            return [row for _, row in self.rows[start:end]]
        return [row for tick, row in self.rows if self.now - older < tick <= self.now - (newer or 0)]

    def answer(self, aggregate, last=None, between=None):
        """(value, rows, missing)."""
        rows = self.window(last, between)
        if aggregate.column is None:
            return len(rows), len(rows), 0
        values = present([row[aggregate.column] for row in rows])
        return aggregated(aggregate, values), len(rows), len(rows) - len(values)

    def passing(self, condition, per, last):
        """The substreams whose aggregate lies between a condition's bounds, and their aggregates."""
        aggregates = self.substreams(condition.aggregate, per, last)
        return {key: value for key, value in aggregates.items() if condition.low <= value <= condition.high}

    def substreams(self, aggregate, per, last):
        """The aggregate of each substream with a value in the window."""
        groups = {}
        for row in self.window(last):
            groups.setdefault(row[per], []).append(row)
        if aggregate.column is None:
            return {key: len(rows) for key, rows in groups.items()}
        columns = {key: present([row[aggregate.column] for row in rows]) for key, rows in groups.items()}
        return {key: aggregated(aggregate, values) for key, values in columns.items() if values}


def present(values):
    """Those that are not missing."""
    return [value for value in values if value is not None and value == value]


def aggregated(aggregate, values):
    """An aggregate of values by its definition; None where there is none, or where it is undefined."""
    kind = aggregate.kind
    if kind == "count":
        return len(values)
    if not values:
        return None
    if aggregate.function.user_defined:
        algebra = aggregate.function.algebra
        return algebra.lower(functools.reduce(algebra.combine, map(algebra.lift, values)))
    if kind in ("min", "max", "first", "last"):
        return {"min": min, "max": max, "first": lambda v: v[0], "last": lambda v: v[-1]}[kind](values)
    if kind == "quantile":
        share, ordered = Fraction(repr(aggregate.function.parameter)), sorted(values)
        return next(value for i, value in enumerate(ordered, 1) if Fraction(i, len(values)) >= share)
    infinite = {value for value in values if math.isinf(value)}
    if kind in ("sum", "avg"):
        if infinite:
            return infinite.pop() if len(infinite) == 1 else None
        if kind == "sum" and all(isinstance(value, int) for value in values):
            return sum(values)
        return nearest(sum(map(Fraction, values)) / (len(values) if kind == "avg" else 1))
    ddof = int(aggregate.function.parameter)
    if infinite or len(values) <= ddof:
        return None
    mean = sum(map(Fraction, values)) / len(values)
    variance = nearest(sum((Fraction(value) - mean) ** 2 for value in values) / (len(values) - ddof))
    return math.sqrt(variance) if kind == "stddev" else variance


def nearest(value):
    """The float nearest to a fraction, which may be infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def agrees(aggregate, value, expected, ulps=4):
    """Whether an answer is the expected one: exactly, but for the rounding of means, variances and users' floats."""
    if expected is not None and expected != expected:
        return value is None  # undefined, such as a product of zero and infinity
    if value is None or expected is None or not isinstance(expected, float) or math.isinf(expected):
        return value == expected and (value is None) == (expected is None)
    if aggregate.function.user_defined:
        return math.isclose(value, expected, rel_tol=1e-9)
    if aggregate.kind in ("avg", "variance", "stddev"):
        return abs(value - expected) <= ulps * math.ulp(expected)
    return value == expected


# -- safe zones of monitors --------------------------------------------------------------------------------------------


def golden(function, low, high, steps=120):
    """The least value of a function with one minimum between two places, by golden sections."""
    cut = (math.sqrt(5) - 1) / 2
    left, right = high - cut * (high - low), low + cut * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - cut * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + cut * (high - low)
            at_right = function(right)
    return min(at_left, at_right)


def hyperbola_distance(alpha, beta, tau):
    """How far a point is from p·q = tau: every p of a dense grid, and the best ones refined."""
    if tau == 0:
        return min(abs(alpha), abs(beta))  # two straight lines
    size = abs(alpha) + abs(beta) + math.sqrt(abs(tau))
    grid = np.log(size) + np.linspace(-46, 46, 4001)  # e^±46 is 10^±20
    best = math.inf
    for sign in (1, -1):

        def distance(power, sign=sign):
            p = sign * np.exp(power)
            return np.hypot(p - alpha, tau / p - beta)

        for i in np.argsort(distance(grid))[:3]:
            best = min(best, golden(distance, grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)]))
    return float(best)


def row_holds(form, row, point):
    """Whether a row of a zone holds, as its form is written down."""
    if form == "linear":
        return point[0] <= row[0]
    (a, b, room), (x, y) = row, point
    return a * x + b * y + (x * y if form == "bilinear" else 0) <= room


def zone_holds(form, rows, quorum, points):
    """Whether enough rows hold."""
    return sum(row_holds(form, row, point) for row, point in zip(rows, points, strict=True)) >= quorum


def row_break(form, row, point):
    """(distance, place) of the nearest place where a row has no room left, by looking in all directions; infinite if none."""
    point = np.asarray(point, float)
    if form == "linear":
        return max(row[0] - point[0], 0.0), np.maximum(row[:1], point)
    a, b, room = row
    x, y = point
    if a * x + b * y + (x * y if form == "bilinear" else 0) >= room:
        return 0.0, point

    def reach(angle):
        """How far to go before room is used up: the least root ≥ 0 of square·t² + slope·t = left."""
        c, s = np.cos(angle), np.sin(angle)
        bend = 1.0 if form == "bilinear" else 0.0
        slope, square, left = a * c + b * s + bend * (x * s + y * c), bend * c * s, room - a * x - b * y - bend * x * y
        with np.errstate(all="ignore"):
            under = slope * slope + 4 * square * left
            root = 2 * left / (slope + np.sqrt(np.maximum(under, 0)))
        return np.where((under >= 0) & (root >= 0) & np.isfinite(root), root, np.inf)

    turn = np.linspace(0, 2 * np.pi, 2881)
    found = reach(turn)
    if not np.isfinite(found).any():
        return math.inf, np.full(2, math.inf)
    best = (math.inf, 0.0)
    for start in turn[np.argsort(found)[:3]]:
        wide, angle = turn[1], start
        for _ in range(8):  # look closer and closer
            near = angle + np.linspace(-wide, wide, 41)
            angle, wide = near[np.argmin(reach(near))], wide / 15
        best = min(best, (float(reach(angle)), float(angle)))
    return best[0], point + best[0] * np.array([math.cos(best[1]), math.sin(best[1])])


def zone_break(form, rows, quorum, points):
    """(distance, place) of the nearest place where too few rows hold, trying every set of rows that may break."""
    each = [row_break(form, row, point) for row, point in zip(rows, points, strict=True)]
    breaking = len(rows) - quorum + 1
    distance, chosen = min(
        (math.sqrt(sum(each[i][0] ** 2 for i in chosen)), chosen)
        for chosen in itertools.combinations(range(len(rows)), breaking)
    )
    place = np.array(points, float)
    for i in chosen:
        place[i] = each[i][1]
    return distance, place


def rise_and_fall(now, told, rows, signed):
    """How far each row of numbers has drifted: what rose and what fell, or both at once where numbers have signs."""
    drift = (np.asarray(now, float) - np.asarray(told, float)).reshape(rows, -1)
    if signed:
        return np.array([[math.sqrt(sum(x * x for x in row)) for row in drift]])
    return np.array(
        [
            [math.sqrt(sum(x * x for x in row if x > 0)) for row in drift],
            [math.sqrt(sum(x * x for x in row if x < 0)) for row in drift],
        ]
    )
