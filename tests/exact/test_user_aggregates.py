"""Aggregates that users define: compiled or as plain Python, with an inverse or without, also where their functions fail."""

import logging
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindows, agrees

import lately as lt
from lately.exact import operations


def product(name, **options):
    parts = {"identity": 1.0, "lift": lambda x: x, "combine": lambda a, b: a * b, "lower": lambda s: s}
    return lt.agg.custom(name, **(parts | options))


PRODUCT = product("user_product", inverse=lambda a, b: a / b)
PLAIN_PRODUCT = product("user_plain_product", lift=lambda x: eval("x"), inverse=lambda a, b: a / b)
MEAN = lt.agg.custom(
    "user_mean",
    identity=(0.0, 0.0),
    lift=lambda x: (x, 1.0),
    combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lower=lambda s: s[0] / s[1],
    inverse=lambda a, b: (a[0] - b[0], a[1] - b[1]),
)
RANGE = lt.agg.custom(
    "user_range",
    identity=(math.inf, -math.inf),
    lift=lambda x: (x, x),
    combine=lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    lower=lambda s: s[1] - s[0],
)
DISTINCT = lt.agg.custom(
    "user_distinct", identity=frozenset(), lift=lambda x: frozenset([x]), combine=lambda a, b: a | b, lower=len
)
SEQUENCE = lt.agg.custom("user_sequence", identity=(), lift=lambda x: (x,), combine=lambda a, b: a + b, lower=lambda s: s)
DIGITS = lt.agg.custom(
    "user_digits",
    identity="",
    lift=lambda x: str(int(abs(x)) % 10),
    combine=lambda a, b: a + b,
    lower=lambda s: s,
    inverse=lambda a, b: a[len(b) :],
)
PARITY = lt.agg.custom(
    "user_parity",
    identity=0,
    lift=lambda x: int(x) & 1,
    combine=lambda a, b: a ^ b,
    lower=lambda s: "odd" if s else "even",
    inverse=lambda a, b: a ^ b,
)
COMPILED = [PRODUCT, MEAN, RANGE]
PLAIN = [PLAIN_PRODUCT, DISTINCT, SEQUENCE, DIGITS, PARITY]
CASES = [(make, using) for make in (*COMPILED, *PLAIN) for using in make("x").function.algorithms]


def build(what, using=None, **window):
    w = lt.Windows(tick=1)
    w.add("q", what, using=using, **(window or {"last": lt.arrivals(4)}))
    return w


@pytest.mark.parametrize(("make", "using"), CASES, ids=[f"{make('x')} by {using}" for make, using in CASES])
@given(
    values=st.lists(st.integers(1, 9).map(float) | st.just(math.nan), min_size=1, max_size=120),
    cut=st.sampled_from([1, 3, 50]),
    size=st.sampled_from([1, 2, 5, 16, 40]),
)
def test_they_answer_as_their_functions_say(make, using, values, cut, size):
    """In the order of arrival: what is a string or a sequence shows it."""
    aggregate = make("x")
    w, twin = build(aggregate, using, last=lt.arrivals(size)), NaiveWindows()
    w.add("past", aggregate, using=using, between=(lt.arrivals(size + 3), lt.arrivals(2)))
    for start in range(0, len(values), cut):
        piece = {"x": values[start : start + cut]}
        w.update(piece)
        twin.update(piece)
        for name, window in {
            "q": {"last": lt.arrivals(size)},
            "past": {"between": (lt.arrivals(size + 3), lt.arrivals(2))},
        }.items():
            value, rows, missing = twin.answer(aggregate, **window)
            answer = w[name]
            assert (answer.rows, answer.missing) == (rows, missing)
            assert agrees(aggregate, answer.value, value), (answer, value)


@pytest.mark.parametrize("make", [PRODUCT, PLAIN_PRODUCT], ids=["compiled", "plain"])
def test_products_survive_zeros_and_overflow(make):
    """An inverse that divides by 0, or that takes out of infinity, is not trusted: the window is computed from its values."""
    w = build(make("x"), "R-INT", last=lt.arrivals(3))
    values = [
        2.0,
        0.0,
        3.0,
        4.0,
        5.0,
        0.0,
        0.0,
        7.0,
        1.0,
        2.0,
        1e200,
        1e200,
        1e200,
        2.0,
        3.0,
        4.0,
        math.inf,
        1.0,
        1.0,
        1.0,
        5.0,
    ]
    for i, value in enumerate(values):
        w.update({"x": value})
        inside = values[max(i - 2, 0) : i + 1]
        assert w["q"].value == pytest.approx(math.prod(inside)), inside
    w.update({"x": [0.0, math.inf]})
    assert w["q"].value is None  # zero times infinity


@pytest.mark.parametrize("make", [PRODUCT, PLAIN_PRODUCT], ids=["compiled", "plain"])
def test_products_survive_vanishing(make):
    """A product that fell below the smallest float has lost what it was made of; so has one near it."""
    w = build(make("x"), "R-INT", last=lt.arrivals(2))
    for value in (1e-200, 1e-200, 2.0, 3.0):
        w.update({"x": value})
    assert w["q"].value == pytest.approx(6.0)
    w = build(make("x"), "R-INT", last=lt.arrivals(2))
    for value in (1e-160, 1e-160, 2.0, 3.0):
        w.update({"x": value})
    assert w["q"].value == pytest.approx(6.0)


def test_rounding_does_not_pile_up():
    w = build(MEAN("x"), last=lt.arrivals(100))
    values = np.random.default_rng(1).uniform(0, 1, 300_000)
    for start in range(0, values.size, 1_000):
        w.update({"x": values[start : start + 1_000]})
    assert w["q"].value == pytest.approx(values[-100:].mean(), rel=1e-12)


def test_missing_values_never_reach_lift():
    def lift(x):
        assert x == x
        return (x,)

    seen = lt.agg.custom("user_seen", identity=(), lift=lift, combine=lambda a, b: a + b, lower=lambda s: s)
    w = build(seen("x"))
    w.update({"x": [math.nan, 1.0, math.nan, 2.0]})
    assert w["q"] == lt.Answer((1.0, 2.0), 4, 2)
    w.update({"x": [None] * 4})
    assert w["q"] == lt.Answer(None, 4, 4)
    w = build(MEAN("x"))
    w.update({"x": [math.nan] * 5})
    assert w["q"] == lt.Answer(None, 4, 4)


# -- functions that fail -------------------------------------------------------------------------------------------------


def _refuses(x):
    if x < 0:
        raise ValueError("below zero")
    return x


def _too_many(a, b):
    if a + b > 100:
        raise ValueError("too much")
    return a + b


FAILING = {
    "compiled lift": product("user_lift", lift=_refuses),
    "compiled combine": product("user_combine", identity=0.0, combine=_too_many),
    "plain lift": product("user_plain_lift", identity=(), lift=lambda x: (1 // max(int(x), 0),), combine=lambda a, b: a + b),
    "plain combine": product(
        "user_plain_combine", identity="", lift=lambda x: "abc"[int(x)] if 0 <= x < 3 else 7, combine=lambda a, b: a + b
    ),
}


@pytest.mark.parametrize("make", FAILING.values(), ids=FAILING)
def test_a_batch_on_which_they_fail_is_refused_whole(make):
    """Nothing of it stays: not its rows, nor its times, nor its late arrivals, nor what its columns were."""
    w = lt.Windows(tick=1)
    w.add("q", make("x"), last=lt.arrivals(5))
    w.add("sum", lt.agg.sum("x"), last=10)
    w.update({"x": [1.0, 2.0]}, [1, 2])
    before = (w.answers(), dict(w.answers()), w.now, w.late, w.nbytes)
    with pytest.raises(lt.InputError, match=r"the aggregate 'user_\w+' fails on these values.*correct lift or combine"):
        w.update({"x": [1.0, -1.0, 500.0], "more": [1, 2, 3]}, [1, 9, 10])
    assert (dict(w.answers()), w.now, w.late, w.nbytes) == before[1:]
    w.update({"x": 2.0}, 3)
    assert (w["sum"].value, w["q"].rows) == (5.0, 3)


@pytest.mark.parametrize("make", FAILING.values(), ids=FAILING)
def test_a_first_batch_that_is_refused_decides_nothing(make):
    w = build(make("x"))
    with pytest.raises(lt.InputError, match="fails on these values"):
        w.update({"x": [1.0, -1.0, 500.0]}, [1, 2, 3])
    assert (w.now, w.late) == (None, 0)
    w.update({"x": [1.0, 1.0]})  # a stream without times
    assert (w["q"].rows, w.now) == (2, 1)


def test_what_lower_cannot_answer_is_no_answer():
    plain = lt.agg.custom(
        "user_ratio", identity=(), lift=lambda x: (x,), combine=lambda a, b: a + b, lower=lambda s: 1 / sum(s)
    )
    fast = lt.agg.custom("user_root", identity=0.0, lift=lambda x: x, combine=lambda a, b: a + b, lower=lambda s: math.sqrt(s))
    for make in (plain, fast):
        w = build(make("x"))
        w.update({"x": [1.0, -1.0, -4.0, 4.0] if make is plain else [-4.0]})
        assert w["q"].value is None


# -- how they run --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", COMPILED, ids=lambda make: str(make("x")))
def test_explain_says_that_it_is_compiled(make):
    assert build(make("x")).explain()[0].why.endswith("; compiled")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (PLAIN_PRODUCT, "Numba cannot compile it"),
        (DISTINCT, "its states are no floats (frozenset())"),
        (DIGITS, "its states are no floats ('')"),
        (PARITY, "plain Python"),
    ],
    ids=["eval", "sets", "text", "text out"],
)
def test_explain_says_why_it_runs_as_plain_python(make, why):
    row = build(make("x")).explain()[0]
    assert "; as plain Python: " in row.why
    assert why in row.why


def test_functions_that_python_brings_along():
    """``max`` and ``float`` are functions too, though not ones that Numba compiles."""
    largest = lt.agg.custom("user_largest", identity=-math.inf, lift=float, combine=max, lower=lambda s: s)
    w = build(largest("x"))
    w.update({"x": [3.0, 5.0, 4.0]})
    assert w["q"].value == 5.0
    assert "compiled" in w.explain()[0].why or "plain Python" in w.explain()[0].why


def test_a_warning_says_that_it_is_slow(caplog):
    slow = lt.agg.custom("user_slow", identity="", lift=str, combine=lambda a, b: a + b, lower=lambda s: s)
    with caplog.at_level(logging.WARNING, "lately"):
        build(slow("x"))
        build(slow("x"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'user_slow' runs as plain Python, which is slow" in caplog.text


def test_an_aggregate_is_compiled_once():
    assert MEAN("x").function.operation is MEAN("y").function.operation


def test_a_notebook_that_defines_the_same_over_and_over_does_not_leak(monkeypatch):
    monkeypatch.setattr(operations, "_MAX_OPERATIONS", len(operations._OPERATIONS) + 3)
    for number in range(10):
        again = lt.agg.custom("user_again", identity="", lift=str, combine=lambda a, b: a + b, lower=lambda s, n=number: n)
        w = build(again("x"))
        w.update({"x": 1.0})
        assert w["q"].value == number
        assert len(operations._OPERATIONS) <= operations._MAX_OPERATIONS


def test_with_an_inverse_lookups_share_one_index():
    w = lt.Windows(tick=1)
    for size in (3, 50, 700):
        w.add(str(size), MEAN("x"), last=lt.arrivals(size))
    assert w.explain().algorithm == ["R-INT"] * 3
    assert w.explain().shared_by == [3, 3, 3]
    assert build(RANGE("x")).explain().algorithm == ["B-INT"]


def test_answers_that_are_no_numbers_stand_beside_those_that_are():
    w = build(SEQUENCE("x"))
    w.add("sum", lt.agg.sum("x"), last=lt.arrivals(2))
    w.add("distinct", DISTINCT("x"), last=lt.arrivals(9))
    w.update({"x": [3, 3, 5]})
    answers = w.answers()
    assert [answers[name].value for name in answers] == [(3.0, 3.0, 5.0), 8, 2]
    assert math.isnan(answers.value[0])
    assert answers.to_arrow().column("value").to_pylist() == ["(3.0, 3.0, 5.0)", "8", "2"]
    assert "(3.0, 3.0, 5.0)" in repr(answers)
    assert repr(w["q"])
    assert repr(w["distinct"]) == "Answer(2, 3 rows)"
