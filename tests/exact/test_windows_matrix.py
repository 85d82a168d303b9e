"""Every algorithm × every aggregate × every kind of window: the answers of a look at every row."""

import math

import exact_cases
import numpy as np
import pytest
from naive import NaiveWindows, agrees

import lately as lt

SPREAD = lt.agg.custom(
    "matrix_spread",
    identity=(math.inf, -math.inf),
    lift=lambda x: (x, x),
    combine=lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    lower=lambda s: s[1] - s[0],
)
TOTAL = lt.agg.custom(
    "matrix_total",
    identity=0.0,
    lift=lambda x: math.floor(x) % 1000.0 if abs(x) < 1e6 else 1.0,  # whole numbers: what an inverse takes out leaves no trace
    combine=lambda a, b: a + b,
    lower=lambda s: s,
    inverse=lambda a, b: a - b,
)
LETTERS = lt.agg.custom(
    "matrix_letters",
    identity="",
    lift=lambda x: "abcdefghij"[int(abs(x)) % 10] if math.isfinite(x) else "~",
    combine=lambda a, b: a + b,
    lower=lambda s: s,
)
AGGREGATES = [
    lt.agg.count(),
    *exact_cases.AGGREGATES,
    SPREAD("x"),
    TOTAL("x"),
    LETTERS("x"),
]
CASES = [(aggregate, using) for aggregate in AGGREGATES for using in aggregate.function.algorithms]

KINDS = {
    "last so long": [{"last": n} for n in (1, 2, 7, 8, 31, 300)],
    "between times": [{"between": ages} for ages in ((1, 0), (2, 1), (8, 7), (20, 3), (64, 32), (300, 100))],
    "last so many": [{"last": lt.arrivals(n)} for n in (1, 2, 15, 16, 17, 250)],
    "between arrivals": [
        {"between": (lt.arrivals(a), lt.arrivals(b))} for a, b in ((2, 1), (9, 8), (16, 4), (100, 99), (250, 17))
    ],
}


def batches(seed, *, odd, count=36):
    """Batches of 1 to 200 rows, with bursts, silences and repeated times, and if ``odd`` with what is no number."""
    rng = np.random.default_rng(seed)
    now = -20
    for _ in range(count):
        size = int(rng.choice([1, 1, 2, 3, 17, 60, 200]))
        ticks = now + np.cumsum(rng.choice([0, 0, 0, 1, 1, 2, 40], size, p=[0.3, 0.2, 0.1, 0.2, 0.1, 0.08, 0.02]))
        now = int(ticks[-1])
        values = np.round(rng.normal(0, 5, size), 1)
        values[rng.random(size) < 0.1] = rng.choice([0.0, 1e15, -1e-9, 0.1])
        if odd:
            values[rng.random(size) < 0.15] = math.nan
            values[rng.random(size) < 0.01] = math.inf
            values[rng.random(size) < 0.01] = -math.inf
        yield values, ticks, rng.random() < 0.3


@pytest.mark.parametrize("odd", [False, True], ids=["numbers", "NaN and infinities"])
@pytest.mark.parametrize("windows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("aggregate", "using"), CASES, ids=[f"{a} by {u}" for a, u in CASES])
def test_every_algorithm_answers_as_a_look_at_every_row(aggregate, using, windows, odd):
    w, twin = lt.Windows(tick=1), NaiveWindows()
    asked = {str(number): window for number, window in enumerate(windows)}
    for name, window in asked.items():
        w.add(name, aggregate, using=using, **window)
    for values, ticks, silence in batches(hash_of(aggregate, using), odd=odd):
        w.update({"x": values}, ticks)
        twin.update({"x": values.tolist()}, ticks)
        if silence:
            for one in (w, twin):
                one.advance(int(ticks[-1]) + int(abs(ticks[-1])) % 9)
        together = w.answers()
        for name, window in asked.items():
            value, rows, missing = twin.answer(aggregate, **window)
            answer = w[name]
            assert answer == together[name]
            assert (answer.rows, answer.missing, answer.covered) == (rows, missing, 1.0)
            assert agrees(aggregate, answer.value, value), (window, answer, value)


def hash_of(aggregate, using):
    return sum(f"{aggregate}{using}".encode())


def test_all_queries_at_once_give_what_each_gives_alone():
    """Sharing changes nothing: all cases of the matrix in one Windows, over one stream."""
    alone, shared = {}, lt.Windows(tick=1)
    for number, (aggregate, using) in enumerate(CASES):
        for kind, windows in KINDS.items():
            name = f"{number} {kind}"
            window = windows[number % len(windows)]
            shared.add(name, aggregate, using=using, **window)
            alone[name] = lt.Windows(tick=1)
            alone[name].add(name, aggregate, using=using, **window)
    for values, ticks, _ in batches(7, odd=False, count=12):
        shared.update({"x": values}, ticks)
        for one in alone.values():
            one.update({"x": values}, ticks)
    together = shared.answers()
    assert list(together) == list(alone) == list(shared.queries)
    for name, one in alone.items():
        assert one[name].rows == together[name].rows
        assert agrees(CASES[int(name.split()[0])][0], together[name].value, one[name].value), name


def test_one_row_at_a_time_is_the_same_as_a_batch():
    whole, single = lt.Windows(tick=1), lt.Windows(tick=1)
    for w in (whole, single):
        for number, (aggregate, using) in enumerate(CASES):
            w.add(f"time {number}", aggregate, using=using, last=30)
            w.add(f"arrivals {number}", aggregate, using=using, between=(lt.arrivals(40), lt.arrivals(9)))
    for values, ticks, _ in batches(11, odd=False, count=5):
        whole.update({"x": values}, ticks)
        for value, tick in zip(values.tolist(), ticks.tolist(), strict=True):
            single.update({"x": value}, tick)
    for name, answer in whole.answers().items():
        assert agrees(CASES[int(name.split()[1])][0], single[name].value, answer.value), name
        assert single[name].rows == answer.rows
