"""Every index answers what every other one and a look at every row answer, whatever the stream and whoever reads when.

A query is asked once for each algorithm that can serve it and once with the planner left to choose. The windows are copied and
stored on the way; originals and copies go on side by side, and each of them is read at times when the others are not: neither
a copy nor a read may change what is answered later.
"""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import NaiveWindows, agrees

import lately as lt
from lately.exact import plans
from lately.exact.planner import algorithms

#: The values of a window one after the other: no row can be left out, taken twice or moved without being seen.
LISTED = lt.aggregate(
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
    lt.max_,
    lt.min_,
    lt.first,
    lt.last,
    lt.sum_,
    lt.variance,
    lambda column: lt.quantile(column, 0.5),
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
                for using in (None, *algorithms(aggregate)):
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
                assert agrees(aggregate, answer.value, value), said


seeds, lengths = st.integers(0, 2**32), st.integers(1, 60)
some = settings(max_examples=settings().max_examples // 2)


@pytest.mark.parametrize("lateness", [0, 5, 40])
@some
@given(seed=seeds, steps=lengths)
def test_all_indexes_agree_with_a_look_at_every_row(lateness, seed, steps):
    Race(seed, lateness).run(steps)


@some
@given(seed=seeds, steps=lengths, lateness=st.sampled_from([0, 20]))
def test_they_agree_while_the_planner_changes_its_mind(seed, steps, lateness):
    with pytest.MonkeyPatch.context() as patched:
        for name in ("_SOON", "_LATE"):
            patched.setattr(plans, name, 8)
        Race(seed, lateness).run(steps)


# -- what went wrong once --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("using", ["B-INT", "L-INT"])
def test_a_block_whose_first_rows_have_been_dropped_no_longer_begins_with_them(using):
    w = lt.Windows(tick=1)
    w.add("m", lt.max_("x"), between=(117, 61), using=using)
    w.update({"x": [100.0, 1.0]}, [5, 20])
    w.update({"x": [0.0]}, [125])
    assert w["m"].value == 1.0


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("using", ["B-INT", "L-INT"])
def test_a_late_row_is_seen_whether_or_not_its_block_was_read_as_complete(using, read):
    w = lt.Windows(tick=1, lateness=100)
    w.add("m", lt.max_("x"), last=50, using=using)
    w.update({"x": [7.0, 1.0]}, [2, 20])
    w.advance(60)
    if read:
        assert w["m"].value == 1.0
    w.update({"x": [100.0]}, [25])
    assert w["m"].value == 100.0


@pytest.mark.parametrize("using", [None, "L-INT"])
def test_the_planners_own_choice_is_right_over_the_past(using):
    """Many maxima, read after each arrival: the planner turns to L-INT by itself."""
    w, twin = lt.Windows(tick=1), NaiveWindows()
    spans = [(200 + 7 * i, 100 + 3 * i) for i in range(20)]
    for i, span in enumerate(spans):
        w.add(f"{i}", lt.max_("x"), between=span, using=using)
    tick = 0
    with pytest.MonkeyPatch.context() as patched:
        for name in ("_SOON", "_LATE"):
            patched.setattr(plans, name, 200)
        for i in range(150):
            tick += (1, 3, 0, 29, 7)[i * i % 5]
            for each in (w, twin):
                each.update({"x": [float(i * 37 % 101)]}, [tick])
            answers = w.answers()
            for name, span in enumerate(spans):
                assert answers[f"{name}"].value == twin.answer(lt.max_("x"), between=span)[0]
    assert set(w.explain().algorithm) == {"L-INT"}
