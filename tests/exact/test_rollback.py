"""Users' functions that fail in the middle of something: it is taken back whole, and all queries answer as before."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from naive import NaiveWindows, agrees

import lately as lt
from lately.exact import plans


class Fuse:
    """Counts the calls of users' functions down; the last one fails."""

    left = math.inf

    def burn(self):
        self.left -= 1
        if self.left < 0:
            raise LookupError("the fuse has blown")

    def run(self, action, left, kind=lt.QueryError):
        """Run an action in which the call after so many others fails: what it returns, or the message of this kind of error."""
        self.left = left
        try:
            return action(), None
        except kind as error:
            return None, str(error)
        finally:
            self.left = math.inf


FUSE = Fuse()


def fused(name, **functions):
    """An aggregate that runs as plain Python and any of whose functions may blow the fuse."""

    def burning(function):
        def run(*arguments):
            FUSE.burn()
            return function(*arguments)

        return run

    identity = functions.pop("identity")
    return lt.agg.custom(name, identity=identity, **{role: burning(function) for role, function in functions.items()})


def _at_most(a, b):
    if a + b > 60:
        raise ValueError("too much")
    return a + b


WORDS = fused("fused_words", identity="", lift=lambda x: f"{x:g} ", combine=lambda a, b: a + b, lower=lambda s: s)
TOTAL = fused(
    "fused_total",
    identity=0,
    lift=int,
    combine=lambda a, b: a + b,
    lower=lambda s: f"{s}",
    inverse=lambda a, b: a - b,
)
CAPPED = lt.agg.custom(
    "rollback_capped",
    identity=0.0,
    lift=lambda x: x,
    combine=_at_most,
    lower=lambda s: s,
    inverse=lambda a, b: a - b,
)
BUILT_IN = [lt.agg.sum, lt.agg.max, lt.agg.first, lt.agg.last, lt.agg.stddev, lambda c: lt.agg.quantile(c, 0.5), lt.agg.count]
time_spans = st.sampled_from([1, 3, 8, 30]).map(lambda n: {"last": n})
spans = time_spans | st.sampled_from([1, 2, 5, 16, 40, 60]).map(lambda n: {"last": lt.arrivals(n)})
columns = st.sampled_from(["x", "y"])
asked = st.one_of(
    st.tuples(st.sampled_from(BUILT_IN), columns, spans, st.none()),
    st.tuples(st.just(WORDS), columns, spans, st.sampled_from([None, "B-INT"])),
    st.tuples(st.just(TOTAL), columns, spans, st.sampled_from([None, "B-INT", "R-INT"])),
    st.tuples(st.just(CAPPED), columns, spans, st.sampled_from([None, "B-INT", "R-INT"])),
    st.tuples(
        st.sampled_from([WORDS, TOTAL, CAPPED, lt.agg.max]),
        columns,
        spans,
        st.just("L-INT"),
    ),
)
values = st.integers(0, 9).map(float) | st.just(math.nan)
rows = st.lists(st.tuples(st.integers(-6, 9), values, values), min_size=1, max_size=30)
fuses = st.integers(0, 120) | st.just(math.inf)


class FailingMachine(RuleBasedStateMachine):
    """A step on which a function fails has no effect; its twin takes only the others."""

    lateness = 0

    def __init__(self):
        super().__init__()
        self.fast = lt.Windows(tick=1, lateness=self.lateness or None)
        self.twin = NaiveWindows(self.lateness)
        self.asked, self.names = {}, 0
        self.capped = False  # whether an aggregate may refuse a batch by itself
        if not self.lateness:
            self.fast.add("busy", lt.agg.count() > 2, per="k", last=8)
            self.fast.add("high", lt.agg.max("x") >= 5, per="k", last=30)

    @initialize(first=st.lists(asked, min_size=1, max_size=4))
    def ask_before_the_stream_begins(self, first):
        for one in first:
            self.add(one, math.inf)

    @rule(one=asked, left=fuses)
    def add(self, one, left):
        make, column, span, using = one
        name, aggregate = f"q{self.names}", make(column)
        self.names += 1
        _, message = FUSE.run(lambda: self.fast.add(name, aggregate, using=using, **span), left, lt.InputError)
        if message is not None:
            assert "fails on the values of its column" in message
            assert make is CAPPED or left < math.inf
            assert name not in self.fast
            self._check_all()
        else:
            self.asked[name] = aggregate, span
            self.capped |= make is CAPPED

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def drop(self, data):
        name = data.draw(st.sampled_from(sorted(self.asked)))
        self.fast.drop(name)
        del self.asked[name]

    @rule(rows=rows, left=fuses, checked=st.booleans())
    def update(self, rows, left, checked):
        if checked:  # the fuse blows later than when the batch alone is looked at
            users = {self.asked[name][0].key for name in self.asked if self.asked[name][0].kind.startswith("fused")}
            left += 2 * len(rows) * len(users)
        now = self.twin.now or 0
        batch = {"x": [x for _, x, _ in rows], "y": [y for _, _, y in rows], "k": [int(gap) % 4 for gap, _, _ in rows]}
        self._update(batch, [now + ahead for ahead, _, _ in rows], left)

    @rule(count=st.sampled_from([70, 150]), value=st.sampled_from([0.0, 3.0]), left=fuses)
    def update_at_once(self, count, value, left):
        """More than a ring holds, all of one time."""
        self._update({"x": [value] * count, "y": [0.0] * count, "k": [1] * count}, [self.twin.now or 0] * count, left)

    def _update(self, batch, ticks, left):
        before = self.fast.to_bytes(), self.fast.now, self.fast.late, self.fast.nbytes
        _, message = FUSE.run(lambda: self.fast.update(batch, ticks), left, lt.InputError)
        if message is not None:
            assert "fails on these values" in message
            assert self.capped or left < math.inf
            assert (self.fast.to_bytes(), self.fast.now, self.fast.late, self.fast.nbytes) == before
            self._check_all()
        else:
            self.twin.update(batch, ticks)
        assert (self.fast.now, self.fast.late) == (self.twin.now, self.twin.late)

    @rule(ahead=st.sampled_from([0, 1, 5, 40]))
    def advance(self, ahead):
        for one in (self.fast, self.twin):
            one.advance((self.twin.now or 0) + ahead)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), left=fuses)
    def look_one_up(self, data, left):
        name = data.draw(st.sampled_from(sorted(self.asked)))
        answer, message = FUSE.run(lambda: self.fast[name], left)
        if message is not None:
            assert "fails on the values of a window" in message
            assert self.capped or left < math.inf
        else:
            self._check(name, answer)

    @rule(left=fuses)
    def look_all_up(self, left):
        answers, message = FUSE.run(self.fast.answers, left)
        if message is not None:
            assert self.capped or left < math.inf
        else:
            for name in self.asked:
                self._check(name, answers[name])
        self._check_all()

    def teardown(self):
        self._check_all()

    def _check_all(self):
        for name, (aggregate, _) in self.asked.items():
            answer, message = FUSE.run(lambda name=name: self.fast[name], math.inf)
            if message is None:
                self._check(name, answer)
            else:
                assert aggregate.kind == "rollback_capped"  # whose windows may hold too much
        if not self.lateness and self.twin.now is not None:
            for name, condition, last in (("busy", lt.agg.count() > 2, 8), ("high", lt.agg.max("x") >= 5, 30)):
                assert {row.key: row.value for row in self.fast[name].value} == self.twin.passing(condition, "k", last)

    def _check(self, name, answer):
        aggregate, span = self.asked[name]
        if answer.covered < 1 or self.twin.now is None:
            assert answer.value is None or self.twin.now is None
            return
        assert answer.rows == len(self.twin.window(**span))
        expected, message = FUSE.run(lambda: self.twin.answer(aggregate, **span), math.inf, ValueError)
        if message is not None:
            assert aggregate.kind == "rollback_capped"
            return
        value, _, missing = expected
        assert answer.missing == missing
        assert agrees(aggregate, answer.value, value), (name, aggregate, span, answer, value)


class LateFailingMachine(FailingMachine):
    lateness = 5


SETTINGS = settings(max_examples=max(settings().max_examples // 2, 1), stateful_step_count=25)
for machine in (FailingMachine, LateFailingMachine):
    machine.TestCase.settings = SETTINGS

TestInOrder = FailingMachine.TestCase
TestLate = LateFailingMachine.TestCase


class TestPlannedOften(FailingMachine.TestCase):
    """Algorithms are chosen anew all the time, which lays indexes while an update runs."""

    @pytest.fixture(autouse=True)
    def _often(self, monkeypatch):
        for name in ("_SOON", "_LATE"):
            monkeypatch.setattr(plans, name, 40)


# -- case by case --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lateness", [0, 4, 12])
@pytest.mark.parametrize("using", ["B-INT", "R-INT", "L-INT"])
def test_wherever_it_fails_all_is_as_before(using, lateness):
    """The batch takes slots of rings and indexes of which the oldest rows of the window were the owners.

    Late rows come into blocks of L-INT that were complete.
    """
    w, twin = lt.Windows(tick=1, lateness=lateness), NaiveWindows(lateness)
    asked = {"max": (lt.agg.max("x"), 60), "sum": (lt.agg.sum("x"), 60)}
    asked |= {f"last {size}": (TOTAL("x"), size) for size in (33, 60)} | {"of y": (TOTAL("y"), 60)}
    asked |= {"words": (WORDS("x"), 60), "newest words": (WORDS("x"), 35)} if using != "R-INT" else {}
    for name, (aggregate, size) in asked.items():
        w.add(name, aggregate, using=using if aggregate.function.user_defined else None, last=lt.arrivals(size))
    for start in range(0, 100, 10):
        batch = {"x": [float(i * 7 % 10) for i in range(start, start + 10)], "y": [1.0] * 10}
        for one in (w, twin):
            one.update(batch, list(range(start, start + 10)))
    batch, ticks = {"x": [float(i % 8) for i in range(15)], "y": [2.0] * 15}, [99 - lateness + i // 3 for i in range(15)]
    left, message = 0, ""
    while message is not None:
        _, message = FUSE.run(lambda left=left: w.update(batch, ticks), left, lt.InputError)
        if message is None:
            twin.update(batch, ticks)
        for name, (aggregate, size) in asked.items():
            expected, _, _ = twin.answer(aggregate, last=lt.arrivals(size))
            assert agrees(aggregate, w[name].value, expected), (name, left)
        left += 7
    assert left > 100


def test_a_block_of_landmarks_that_was_over_is_as_before_when_going_on_with_it_fails():
    """Time has left the block behind, and a read has noticed; then a late arrival goes on with it."""
    w = lt.Windows(tick=1, lateness=40)
    for column in ("x", "y"):
        w.add(column, TOTAL(column), last=30, using="L-INT")
    w.update({"x": [1.0, 2.0], "y": [1.0, 2.0]}, [0, 1])
    w.advance(20)
    assert (w["x"].value, w["y"].value) == ("3", "3")
    left, message = 0, ""
    while message is not None:
        _, message = FUSE.run(lambda left=left: w.update({"x": [4.0, 8.0], "y": [4.0, 8.0]}, [2, 17]), left, lt.InputError)
        expected = "15" if message is None else "3"
        assert (w["x"].value, w["y"].value) == (expected, expected), left
        left += 1
    assert left > 10


@pytest.mark.parametrize("using", ["B-INT", "R-INT", "L-INT"])
def test_a_combine_that_fails_on_what_has_come_so_far_leaves_no_trace(using):
    """The batch alone is harmless; beside it there are queries of every kind, some of which had taken it already."""
    w = lt.Windows(tick=1)
    for name, what in {
        "sum": lt.agg.sum("x"),
        "max": lt.agg.max("x"),
        "median": lt.agg.quantile("y", 0.5),
        "rows": lt.agg.count(),
    }.items():
        w.add(name, what, last=100)
    w.add("capped", CAPPED("y"), last=lt.arrivals(8), using=using)
    w.add("busy", lt.agg.count() > 1, per="k", last=100)
    w.update({"x": [1.0, 2.0], "y": [25.0, 25.0], "k": [1, 1]}, [1, 2])
    before = dict(w.answers()), w.now, w.late, w.nbytes, w.to_bytes()
    with pytest.raises(
        lt.InputError, match="'rollback_capped' fails on these values together with those before them"
    ) as caught:
        w.update({"x": [7.0, math.inf], "y": [15.0, 1.0], "k": [2, 2], "more": [1, 1]}, [50, 60])
    assert isinstance(caught.value.__cause__, ValueError)
    after = dict(w.answers()), w.now, w.late, w.nbytes, w.to_bytes()
    assert repr(after[0]) == repr(before[0])
    assert after[1:] == before[1:]
    w.update({"x": [3.0], "y": [5.0], "k": [1]}, [3])
    assert [w[name].value for name in ("sum", "max", "median", "rows", "capped")] == [6.0, 3.0, 25.0, 3, 55.0]
    assert [(row.key, row.value) for row in w["busy"].value] == [(1, 3)]


def test_what_is_in_no_window_any_more_does_not_make_a_batch_fail():
    """Running states go on over what has left the window; before a batch is refused they begin again."""
    w = lt.Windows(tick=1)
    w.add("capped", CAPPED("x"), last=lt.arrivals(2), using="R-INT")
    w.add("by intervals", CAPPED("x"), last=lt.arrivals(2), using="B-INT")
    for i in range(200):
        w.update({"x": [float(i % 3) * 10]})
        assert w["capped"].value == w["by intervals"].value == (i % 3 + (i - 1) % 3 * (i > 0)) * 10


def test_combine_meets_only_neighbours_that_are_in_the_column():
    """An interval that begins before what is held would mix values of different turns of the ring."""
    runs = lt.agg.custom(
        "rollback_runs",
        identity=(),
        lift=lambda x: (x, x),
        combine=_joined,
        lower=lambda s: s[1] - s[0],
    )
    w = lt.Windows(tick=1)
    w.add("length", runs("x"), last=lt.arrivals(62))
    at = 0
    for size in (50, 3, 70, 5, 1, 1, 64, 9, 200, 2, 31, *range(55, 100, 3)):
        w.update({"x": [float(i) for i in range(at, at + size)]})
        at += size
        assert w["length"].value == w["length"].rows - 1


def _joined(a, b):
    """Runs of whole numbers, one after the other."""
    if a and b and a[1] + 1 != b[0]:
        raise ValueError(f"{a} is not followed by {b}")
    return (a or b)[:1] + (b or a)[1:]


def test_a_query_that_fails_on_what_is_there_is_not_added():
    w = lt.Windows(tick=1)
    w.add("sum", lt.agg.sum("x"), last=lt.arrivals(10))
    w.update({"x": [50.0, 50.0]})
    with pytest.raises(lt.InputError, match=r"'capped' is not added: .* fails on the values of its column.*too much"):
        w.add("capped", CAPPED("x"), last=lt.arrivals(5))
    assert list(w.answers()) == list(w) == ["sum"]
    w.update({"x": [1.0]})
    assert w["sum"].value == 101.0
    w.drop("sum")
    with pytest.raises(lt.InputError, match="'sum' is not added"):
        w.add("sum", CAPPED("x"), last=lt.arrivals(5))  # under the name of one for which something is still arranged
    w.add("sum", lt.agg.max("x"), last=lt.arrivals(3))
    assert (w["sum"].value, list(w)) == (50.0, ["sum"])


def test_a_lower_that_fails_spoils_nothing():
    fails = lt.agg.custom("rollback_lower", identity=0.0, lift=lambda x: x, combine=lambda a, b: a + b, lower=_no_tens)
    w = lt.Windows(tick=1)
    w.add("fails", fails("x"), last=5)
    w.add("sum", lt.agg.sum("x"), last=5)
    w.update({"x": [4.0, 6.0]}, [1, 2])
    for read in (lambda: w["fails"], w.answers):
        with pytest.raises(lt.QueryError, match=r"rollback_lower\('x'\) fails on the values of a window.*drop the queries"):
            read()
    assert w["sum"].value == 10.0
    w.update({"x": [1.0]}, [3])
    assert (w["fails"].value, w["sum"].value) == (11.0, 11.0)


def _no_tens(state):
    if state == 10:
        raise ValueError("ten")
    return state


def test_an_interrupt_leaves_no_trace():
    def combine(a, b):
        if a + b == 9:
            raise KeyboardInterrupt
        return a + b

    slow = lt.agg.custom("rollback_slow", identity=0, lift=int, combine=combine, lower=str)
    w = lt.Windows(tick=1)
    w.add("sum", lt.agg.sum("x"), last=5)
    w.add("slow", slow("x"), last=5)
    w.update({"x": [4.0]}, [1])
    with pytest.raises(KeyboardInterrupt):
        w.update({"x": [5.0]}, [2])
    assert (w["sum"].value, w.now) == (4.0, 1)
    w.update({"x": [2.0]}, [2])
    assert (w["sum"].value, w["slow"].value) == (6.0, "6")
