"""Queries that come and go, filters among them, and copies in between, against a look at every row."""

import pickle

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from naive import NaiveWindows, agrees

import lately as lt
from lately.exact.requirements import LargestTracker

WORDS = lt.agg.custom("changing_words", identity="", lift=lambda x: f"{x:g} ", combine=lambda a, b: a + b, lower=lambda s: s)
NUMBERS = [
    make(column)
    for column in ("x", "y")
    for make in (
        lt.agg.count,
        lt.agg.sum,
        lt.agg.avg,
        lt.agg.max,
        lt.agg.first,
        lt.agg.variance,
        WORDS,
        lambda c: lt.agg.quantile(c, 0.5),
    )
] + [lt.agg.count()]
FILTERS = [
    *(lt.agg.count() > bar for bar in (0, 1, 5, 40, 300)),
    *(lt.agg.sum("x") >= bar for bar in (0, 0.5, 3, 25, 1000)),
    lt.agg.count().between(2, 6),
    lt.agg.sum("x").between(1, 9),
    *(make("y") > bar for make in (lt.agg.max, lt.agg.min) for bar in (0, 4)),
]
sizes = st.sampled_from([1, 2, 5, 9, 16, 60, 300])
spans = sizes.map(lambda n: {"last": n}) | sizes.map(lambda n: {"last": lt.arrivals(n)})
numbers = st.tuples(st.sampled_from(NUMBERS), spans)
filters = st.tuples(
    st.sampled_from(FILTERS), sizes.map(lambda n: {"last": n}), st.sampled_from(["k", "j"]), st.sampled_from([None, None, 0.2])
)
values = st.integers(0, 8).map(lambda n: n / 2)
rows = st.lists(st.tuples(st.sampled_from([0, 0, 1, 7]), values, values, st.integers(0, 5)), min_size=1, max_size=20)
COPIES = [
    lambda w: w.copy(),
    lambda w: lt.from_bytes(w.to_bytes()),
    lambda w: pickle.loads(pickle.dumps(w)),
]


class ChangingMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.fast, self.twin = lt.Windows(tick=1), NaiveWindows()
        self.asked, self.names = {}, 0

    # -- queries -------------------------------------------------------------------------------------------------------

    @rule(one=numbers | filters)
    def add(self, one):
        self.names += 1
        self._add(f"q{self.names}", *one)

    def _add(self, name, what, span, per=None, eps=None):
        if per is not None and eps is not None and what.aggregate.kind in ("count", "sum"):
            self.fast.add(name, what, per=per, exact=False, eps=eps, **span)
        else:
            eps = None
            self.fast.add(name, what, per=per, **span)
        self.asked[name] = what, span, per, eps, len(self.twin.rows), self.twin.now

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def drop(self, data):
        name = data.draw(st.sampled_from(sorted(self.asked)))
        self.fast.drop(name)
        del self.asked[name]

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), one=numbers | filters)
    def ask_something_else_by_the_same_name(self, data, one):
        name = data.draw(st.sampled_from(sorted(self.asked)))
        self.fast.drop(name)
        del self.asked[name]
        self._add(name, *one)

    @rule(many=st.lists(numbers | filters, min_size=5, max_size=25))
    def add_and_drop_many(self, many):
        """Most of them come and go before anything is arranged."""
        for one in many:
            self.add(one)
        for name in list(self.asked)[:-4]:
            self.fast.drop(name)
            del self.asked[name]

    @rule(copy=st.sampled_from(COPIES))
    def go_on_with_a_copy(self, copy):
        before, self.fast = self.fast, copy(self.fast)
        assert list(self.fast) == list(before) == list(self.asked)

    # -- arrivals ------------------------------------------------------------------------------------------------------

    @rule(rows=rows)
    def update(self, rows):
        tick, ticks = self.twin.now or 0, []
        for gap, *_ in rows:
            tick += gap
            ticks.append(tick)
        self._update(ticks, [row[1:] for row in rows])

    @rule(keys=st.sampled_from([3, 100, 700]), start=st.integers(0, 5))
    def update_with_a_burst(self, keys, start):
        """Of many keys at once, which will fade when time goes on."""
        tick = self.twin.now or 0
        self._update([tick] * keys, [(key % 3, key % 5, start + key) for key in range(keys)])

    def _update(self, ticks, rows):
        x, y, k = zip(*rows, strict=True)
        batch = {"x": list(x), "y": list(y), "k": list(k), "j": [str(key % 3) for key in k]}
        for one in (self.fast, self.twin):
            one.update(batch, ticks)
        assert self.fast.now == self.twin.now

    @rule(ahead=st.sampled_from([0, 1, 20, 400]))
    def advance(self, ahead):
        for one in (self.fast, self.twin):
            one.advance((self.twin.now or 0) + ahead)

    # -- questions -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def look_one_up(self, data):
        name = data.draw(st.sampled_from(sorted(self.asked)))
        self._check(name, self.fast[name])

    @rule()
    def look_all_up(self):
        answers = self.fast.answers()
        assert list(answers) == list(self.asked) == list(self.fast.queries) == [row.query for row in self.fast.explain()]
        for name, answer in answers.items():
            self._check(name, answer)

    def teardown(self):
        self.look_all_up()

    def _check(self, name, answer):
        what, span, per, eps, rows_before, now_before = self.asked[name]
        if answer.covered < 1:
            assert answer.value is None
            assert self._may_be_uncovered(span["last"], rows_before, now_before)
            return
        if self.twin.now is None:
            assert not answer.rows
        elif per is None:
            value, rows, missing = self.twin.answer(what, **span)
            assert (answer.rows, answer.missing) == (rows, missing), (what, span, answer)
            assert agrees(what, answer.value, value), (what, span, answer, value)
        else:
            found, expected = {row.key: row.value for row in answer.value}, self.twin.passing(what, per, **span)
            if eps is None:
                assert found == pytest.approx(expected), (what, span)
            else:
                assert found.keys() >= expected.keys()
                assert all(found[key].low <= value <= found[key].high for key, value in expected.items())

    def _may_be_uncovered(self, last, rows_before, now_before):
        """A window may reach back before its query was added, if rows had come before."""
        if not rows_before:
            return False
        return len(self.twin.rows) - last.n < rows_before if hasattr(last, "n") else self.twin.now - last <= now_before


ChangingMachine.TestCase.settings = settings(max_examples=settings().max_examples, stateful_step_count=30)
TestChanging = ChangingMachine.TestCase


class LargestMachine(RuleBasedStateMachine):
    """The largest of some numbers that come and go."""

    def __init__(self):
        super().__init__()
        self.fast, self.twin = LargestTracker(), []

    @rule(number=st.integers(0, 9))
    def add(self, number):
        self.fast.add(number)
        self.twin.append(number)
        self._check()

    @precondition(lambda self: self.twin)
    @rule(data=st.data())
    def remove(self, data):
        number = data.draw(st.sampled_from(self.twin))
        self.fast.remove(number)
        self.twin.remove(number)
        self._check()

    def _check(self):
        assert self.fast.largest(-1) == max(self.twin, default=-1)
        assert bool(self.fast) == bool(self.twin)


TestLargest = LargestMachine.TestCase
