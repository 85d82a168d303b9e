"""Windows, copies of them and their twin, all fed the same and read at different times.

A query is asked once for each algorithm that can serve it and once with the planner left to choose. The windows are copied and
stored on the way; originals and copies go on side by side, and each of them is read at times when the others are not: neither
a copy nor a read may change what is answered later.
"""

import math
import random

from naive import NaiveWindows, agrees

import lately as lt

#: The values of a window one after the other: no row can be left out, taken twice or moved without being seen.
LISTED = lt.agg.custom(
    "listed_rows",
    identity="",
    lift=lambda x: f"{x:g} ",
    combine=lambda a, b: a + b,
    lower=lambda s: s,
    inverse=lambda total, part: total[len(part) :],
)
AGGREGATES = [
    LISTED,
    LISTED,
    lt.agg.max,
    lt.agg.min,
    lt.agg.first,
    lt.agg.last,
    lt.agg.sum,
    lt.agg.variance,
    lambda column: lt.agg.quantile(column, 0.5),
]


def any_float(random):
    return random.choice([random.randint(-9, 9), random.randint(100, 999), 0.1, 1e15, math.nan, math.inf, -math.inf])


class Race:
    """Windows, copies of them that were made on the way, and the twin that keeps every row.

    All is drawn from one seed, step by step, so that fewer steps are the beginning of more. Windows, gaps and lateness are of
    like size: rows leave from the middle of a block, blocks are empty, a window holds a row or two. Each column is read by one
    or two queries, so that it keeps no more than those need.
    """

    def __init__(self, seed, lateness, value=any_float, aggregates=AGGREGATES):
        self.random, self.value = random.Random(seed), value
        self.scale = self.random.choice([1, 8, 30, 60])
        self.start = self.random.choice([0, -500, 1000])
        self.columns = "abc"
        self.windows, self.twin, self.asked = [lt.Windows(tick=1, lateness=lateness or None)], NaiveWindows(lateness), {}
        for column in self.columns:
            for i in range(self.random.choice([1, 1, 2])):
                aggregate, span = self.random.choice(aggregates)(column), self._span()
                for using in (None, *aggregate.function.algorithms):
                    self.asked[f"{column}{i} {using}"] = aggregate, span
                    self.windows[0].add(f"{column}{i} {using}", aggregate, using=using, **span)

    def _span(self):
        draw, unit = self.random.randint, self.random.choice([int, int, lt.arrivals])
        length = draw(1, 2 * self.scale)
        newer = self.random.choice([0, 1, draw(1, 3 * self.scale)])
        return {"between": (unit(length + newer), unit(newer))} if newer else {"last": unit(length)}

    def run(self, count):
        for _ in range(count):
            steps = [self._rows, self._rows, self._any_order, self._behind, self._burst, self._advance, self._copy]
            self.random.choice(steps)()
            place = self.random.choice([None, 0, 0, 1, 2])
            if place is not None:
                self._check(place)
        for place in range(3):
            self._check(place)

    def _gap(self):
        return self.random.choice([0, 1, self.random.randint(0, 2 * self.scale)])

    def _rows(self):
        tick, ticks = self._now(), []
        for _ in range(self.random.choice([1, 1, 2, 5])):
            tick += self._gap()
            ticks.append(tick)
        self._update(ticks)

    def _any_order(self):
        back = self.random.choice([0, self.scale, 2 * self.twin.lateness])
        self._update([self._now() + self.random.randint(-back, self.scale) for _ in range(self.random.choice([1, 1, 4]))])

    def _behind(self):
        """Time moves on, somebody reads, and then comes a late row, though one newer than all before."""
        self._advance()
        self._check(0)
        oldest = self._now() - self.twin.lateness
        self._update([self.random.randint(max([oldest, *(tick for tick, _ in self.twin.rows[-1:])]), self._now())])

    def _burst(self):
        self._update([self._now()] * self.random.choice([2, 2, 20, 70]))

    def _advance(self):
        tick = self._now() + self._gap()
        for w in (*self.windows, self.twin):
            w.advance(tick)

    def _copy(self):
        newest = self.windows[-1]
        stored = newest.copy() if self.random.random() < 0.5 else lt.from_bytes(newest.to_bytes())
        self.windows = [*self.windows[-2:], stored]

    def _now(self):
        return self.start if self.twin.now is None else self.twin.now

    def _update(self, ticks):
        values = [self.value(self.random) for _ in ticks]
        for w in (*self.windows, self.twin):
            w.update(dict.fromkeys(self.columns, values), ticks)
        assert all((w.now, w.late) == (self.twin.now, self.twin.late) for w in self.windows)

    def _check(self, place):
        if place < len(self.windows):
            for name, answer in self.windows[place].answers().items():
                aggregate, span = self.asked[name]
                value, *rows = (None, 0, 0) if self.twin.now is None else self.twin.answer(aggregate, **span)
                said = aggregate, span, name, answer, value
                assert [answer.rows, answer.missing, answer.covered] == [*rows, 1.0], said
                assert self._agrees(aggregate, answer.value, value), said

    def _agrees(self, aggregate, value, expected):
        return agrees(aggregate, value, expected)
