"""Windows against a look at every row, whatever is done to them in whatever order: queries come and go, rows come late."""

import math
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from naive import NaiveWindows, agrees

import lately as lt
from lately.exact import plans

WORDS = lt.agg.custom(
    "machine_words", identity="", lift=lambda x: f"{x:g} ", combine=lambda a, b: a + b, lower=lambda s: s, inverse=None
)
TOTAL = lt.agg.custom(
    "machine_total",
    identity=0.0,
    lift=lambda x: math.floor(x) % 1000.0 if abs(x) < 1e6 else 1.0,
    combine=lambda a, b: a + b,
    lower=lambda s: s,
    inverse=lambda a, b: a - b,
)
#: Alike in twos, so that not every column keeps what the longest window of all needs.
COLUMNS = ("x", "y", "x2", "y2")
AGGREGATES = [
    make(column)
    for column in COLUMNS
    for make in (
        lt.agg.count,
        lt.agg.sum,
        lt.agg.avg,
        lt.agg.min,
        lt.agg.max,
        lt.agg.first,
        lt.agg.last,
        lt.agg.stddev,
        TOTAL,
        WORDS,
        lambda c: lt.agg.variance(c, ddof=0),
        lambda c: lt.agg.quantile(c, 0.5),
        lambda c: lt.agg.quantile(c, 0.9),
    )
] + [lt.agg.count()]

aggregates = st.sampled_from(AGGREGATES)
sizes = st.sampled_from([1, 2, 3, 7, 8, 16, 30, 40, 100])
# Windows far enough in the past that rows leave them in the middle of a block, with nothing but gaps behind.
ages = st.tuples(sizes, st.integers(0, 20) | st.sampled_from([8, 30, 60])).map(lambda pair: (pair[0] + pair[1], pair[1]))
spans = st.one_of(
    sizes.map(lambda n: {"last": n}),
    ages.map(lambda pair: {"between": pair}),
    sizes.map(lambda n: {"last": lt.arrivals(n)}),
    ages.map(lambda pair: {"between": (lt.arrivals(pair[0]), lt.arrivals(max(pair[1], 1)))}).filter(
        lambda span: span["between"][0].n > span["between"][1].n
    ),
)
values = st.integers(-5, 5).map(float) | st.sampled_from([0.1, 1e15, -1e-9, math.nan, math.nan, math.inf, -math.inf])
gaps = st.sampled_from([0, 0, 0, 1, 1, 2, 5, 9, 17, 40])
ROWS = 12  # of a batch: with many, no window is without any


class WindowsMachine(RuleBasedStateMachine):
    """The fast one and its twin take every step together; every answer of one is compared with the other's."""

    lateness = 0

    def __init__(self):
        super().__init__()
        self.fast = lt.Windows(tick=1, lateness=self.lateness or None)
        self.twin = NaiveWindows(self.lateness)
        self.asked = {}  # by name: aggregate, span, how much had come when it was added (rows, now)
        self.names = 0

    @initialize(first=st.lists(st.tuples(aggregates, spans), max_size=3))
    def ask_before_the_stream_begins(self, first):
        for aggregate, span in first:
            self.add_query(aggregate, span)

    # -- steps ---------------------------------------------------------------------------------------------------------

    @rule(aggregate=aggregates, span=spans)
    def add_query(self, aggregate, span):
        """Ask once for each algorithm, and once with the planner left to choose."""
        for using in (None, *aggregate.function.algorithms):
            name = f"q{self.names}"
            self.names += 1
            self.fast.add(name, aggregate, using=using, **span)
            self.asked[name] = (aggregate, span, len(self.twin.rows), self.twin.now)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def drop_query(self, data):
        name = data.draw(st.sampled_from(sorted(self.asked)))
        self.fast.drop(name)
        del self.asked[name]
        assert name not in self.fast

    @rule(rows=st.lists(st.tuples(gaps, values, values), min_size=1, max_size=ROWS))
    def update_in_order(self, rows):
        tick, ticks = self.twin.now or 0, []
        for gap, _, _ in rows:
            tick += gap
            ticks.append(tick)
        self._update(ticks, rows)

    @rule(rows=st.lists(st.tuples(st.integers(-8, 12), values, values), min_size=1, max_size=ROWS))
    def update_in_any_order(self, rows):
        """Ahead, within the lateness, and too late."""
        self._update([(self.twin.now or 0) + ahead for ahead, _, _ in rows], rows)

    @rule(size=st.sampled_from([1, 70, 200]), value=values)
    def update_at_once(self, size, value):
        """More than a ring holds, all of one time."""
        self._update([self.twin.now or 0] * size, [(0, value, float(i % 7)) for i in range(size)])

    @rule(ahead=st.sampled_from([-10, 0, 1, 3, 20, 500]))
    def advance(self, ahead):
        tick = (self.twin.now or 0) + ahead
        self.fast.advance(tick)
        self.twin.advance(tick)

    @rule(seed=st.integers(0, 2**32), scale=st.sampled_from([3, 8, 20, 50]))
    def update_one_by_one(self, seed, scale):
        """Gaps as long as windows, and a look at everything after each row: also at a time that is then not over yet."""
        draw = random.Random(seed)
        for _ in range(12):
            self.advance(draw.choice([0, draw.randint(0, scale)]))
            self.look_all_up()
            ahead = draw.randint(-draw.choice([0, min(scale, self.lateness)]), scale)
            self._update([self.twin.now + ahead], [(0, float(draw.randint(0, 999)), float(draw.randint(0, 9)))])
            self.look_all_up()

    @rule(how=st.sampled_from(["copy", "bytes"]))
    def go_on_with_a_copy(self, how):
        self.fast = self.fast.copy() if how == "copy" else lt.from_bytes(self.fast.to_bytes())

    def _update(self, ticks, rows):
        x, y = [x for _, x, _ in rows], [y for _, _, y in rows]
        batch = {"x": x, "y": y, "x2": x, "y2": y}
        self.fast.update(batch, ticks)
        self.twin.update(batch, ticks)
        assert (self.fast.now, self.fast.late) == (self.twin.now, self.twin.late)

    # -- questions -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), times=st.sampled_from([1, 1, 60]))
    def look_one_up(self, data, times):
        name = data.draw(st.sampled_from(sorted(self.asked)))
        for _ in range(times):
            answer = self.fast[name]
        self._check(name, answer)

    @rule()
    def look_all_up(self):
        answers = self.fast.answers()
        assert list(answers) == list(self.asked) == list(self.fast.queries)
        for name, answer in answers.items():
            self._check(name, answer)

    def teardown(self):
        self.look_all_up()

    def _check(self, name, answer):
        aggregate, span, rows_before, now_before = self.asked[name]
        assert answer.covered == 1 or self._may_be_uncovered(span, rows_before, now_before), (aggregate, span, answer)
        if answer.covered < 1:
            assert answer.covered >= 0
            assert answer.value is None
            return
        expected = (0 if aggregate.kind == "count" else None, 0, 0)
        if self.twin.now is not None:
            expected = self.twin.answer(aggregate, **span)
        assert (answer.rows, answer.missing) == expected[1:], (aggregate, span, answer)
        assert agrees(aggregate, answer.value, expected[0]), (aggregate, span, answer, expected)

    def _may_be_uncovered(self, span, rows_before, now_before):
        """A window may reach back before its query was added, if rows had come before; late rows may push it back."""
        if not rows_before:
            return False
        older = span["last"] if "last" in span else span["between"][0]
        if isinstance(older, lt.arrivals):
            return len(self.twin.rows) - older.n < rows_before or self.lateness > 0
        return self.twin.now - older < now_before


class LateMachine(WindowsMachine):
    lateness = 5


class VeryLateMachine(WindowsMachine):
    lateness = 60


SETTINGS = settings(max_examples=settings().max_examples // 2, stateful_step_count=30)
for machine in (WindowsMachine, LateMachine, VeryLateMachine):
    machine.TestCase.settings = SETTINGS

TestInOrder = WindowsMachine.TestCase
TestLate = LateMachine.TestCase


class TestPlannedOften(VeryLateMachine.TestCase):
    """The choice of algorithms is looked at again after every few arrivals and lookups."""

    @pytest.fixture(autouse=True)
    def _often(self, monkeypatch):
        for name in ("_SOON", "_LATE"):
            monkeypatch.setattr(plans, name, 30)
