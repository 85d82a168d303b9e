"""Which algorithm a query gets: by its aggregate, the width of its window and how often it is asked; answers stay right."""

import numpy as np
import pytest
from naive import NaiveWindows, agrees

import lately as lt
from lately.exact import plans
from lately.exact.planner import choose

MINE = lt.agg.custom("planner_mine", identity=0.0, lift=lambda x: x, combine=lambda a, b: max(a, b), lower=lambda s: s)
BACK = lt.agg.custom(
    "planner_back", identity=0.0, lift=lambda x: x, combine=lambda a, b: a + b, lower=lambda s: s, inverse=lambda a, b: a - b
)
POSSIBLE = {
    lt.agg.count(): ["positions"],
    lt.agg.count("x"): ["positions"],
    lt.agg.sum("x"): ["R-INT"],
    lt.agg.avg("x"): ["R-INT"],
    lt.agg.variance("x"): ["R-INT"],
    lt.agg.stddev("x", ddof=0): ["R-INT"],
    lt.agg.quantile("x", 0.5): ["B-INT-QNT"],
    lt.agg.max("x"): ["B-INT", "L-INT"],
    lt.agg.min("x"): ["B-INT", "L-INT"],
    lt.agg.first("x"): ["B-INT", "L-INT"],
    lt.agg.last("x"): ["B-INT", "L-INT"],
    MINE("x"): ["B-INT", "L-INT"],
    BACK("x"): ["R-INT", "B-INT", "L-INT"],
}
every = pytest.mark.parametrize(("aggregate", "possible"), POSSIBLE.items(), ids=map(str, POSSIBLE))


def planned_often(monkeypatch):
    """The choices are looked at again after 500 arrivals and lookups."""
    for name in ("_SOON", "_LATE"):
        monkeypatch.setattr(plans, name, 500)


def one_of_each(w):
    return dict(zip(w.explain().query, w.explain().algorithm, strict=True))


@every
def test_what_can_serve_an_aggregate(aggregate, possible):
    assert list(aggregate.function.algorithms) == possible
    assert choose(aggregate, 1000, 0.0, None).algorithm == possible[0]


@every
def test_what_the_user_asks_for_is_what_is_used(aggregate, possible):
    for using in possible:
        for lookups in (0.0, 1.0, 1e6):
            assert choose(aggregate, 10, lookups, using, possible[0]).algorithm == using
    w = lt.Windows(tick=1)
    for using in possible:
        w.add(using, aggregate, last=9, using=using)
    assert list(w.explain().algorithm) == possible
    assert all(row.why.startswith("as requested") for row in w.explain())
    with pytest.raises(lt.ParameterError, match="it can use"):
        choose(aggregate, 10, 1.0, "magic")


@every
def test_an_inverse_or_quantiles_leave_no_choice(aggregate, possible):
    if possible[0] != "B-INT":
        assert {choose(aggregate, 2**k, 10.0**m, None).algorithm for k in range(20) for m in range(-3, 6)} == {possible[0]}


def test_more_lookups_and_wider_windows_make_landmarks_worth_while():
    for width in (2, 100, 10**6):
        chosen = [choose(lt.agg.max("x"), width, rate, None).algorithm for rate in 2.0 ** np.arange(-10, 12)]
        assert chosen == sorted(chosen)  # B-INT, and from some rate on L-INT
        assert chosen[0] == "B-INT"
    for rate in (0.3, 1.0, 10.0):
        chosen = [choose(lt.agg.max("x"), 2**bits, rate, None).algorithm for bits in range(1, 40)]
        assert chosen == sorted(chosen)
    assert choose(lt.agg.max("x"), 2, 1e9, None).algorithm == "B-INT"  # nothing is saved on so few
    assert choose(lt.agg.max("x"), 10**6, 10.0, None).algorithm == "L-INT"


def test_a_choice_has_inertia():
    """There are rates at which each of them stays what it is; a choice never changes back and forth at one rate."""
    undecided = []
    for rate in 2.0 ** np.arange(-6, 8, 0.1):
        stays = {present: choose(lt.agg.max("x"), 1000, rate, None, present).algorithm for present in ("B-INT", "L-INT")}
        assert (stays["B-INT"], stays["L-INT"]) != ("L-INT", "B-INT")
        if stays == {"B-INT": "B-INT", "L-INT": "L-INT"}:
            undecided.append(rate)
    assert max(undecided) > 1.5 * min(undecided)


def test_the_reason_names_the_mix():
    assert "5 lookups an arrival, 1,000 wide" in choose(lt.agg.max("x"), 1000, 5.0, None).why
    assert choose(lt.agg.sum("x"), 1000, 5.0, None).why == "it has an inverse"
    assert choose(lt.agg.quantile("x", 0.1), 1000, 5.0, None).why == "quantiles need sorted runs"


# -- as the stream runs --------------------------------------------------------------------------------------------------

ASKED = {
    "wide": (lt.agg.max("x"), {"last": 500}),
    "past": (lt.agg.max("x"), {"between": (800, 100)}),
    "many": (lt.agg.min("x"), {"last": lt.arrivals(700)}),
    "first": (lt.agg.first("x"), {"last": 600}),
    "mine": (MINE("x"), {"last": lt.arrivals(900)}),
    "narrow": (lt.agg.max("x"), {"last": 1}),
    "sum": (lt.agg.sum("x"), {"last": 500}),
}
CHANGING = ("wide", "past", "many", "first", "mine")


def test_the_choice_follows_the_mix_and_answers_stay_right(monkeypatch):
    """B-INT while there are only updates, L-INT while there are many lookups, and back."""
    planned_often(monkeypatch)
    w, twin = lt.Windows(tick=1), NaiveWindows()
    for name, (aggregate, span) in ASKED.items():
        w.add(name, aggregate, **span)
    w.add("stays", lt.agg.max("x"), last=500, using="B-INT")
    rng, tick = np.random.default_rng(8), 0

    def run(steps, lookups):
        nonlocal tick
        for _ in range(steps):
            values, ticks = rng.normal(5, 2, 25), tick + np.sort(rng.integers(0, 20, 25))
            tick = int(ticks[-1])
            w.update({"x": values}, ticks)
            twin.update({"x": values.tolist()}, ticks)
            for _ in range(lookups):
                found = w.answers()
            if lookups == 0:
                continue
            for name, (aggregate, span) in ASKED.items():
                value, rows, _ = twin.answer(aggregate, **span)
                assert found[name].rows == rows
                assert agrees(aggregate, found[name].value, value), name

    run(30, 1)
    assert set(one_of_each(w).values()) == {"B-INT", "R-INT"}
    run(40, 150)
    chosen = one_of_each(w)
    assert {chosen[name] for name in CHANGING} == {"L-INT"}
    assert (chosen["narrow"], chosen["sum"], chosen["stays"]) == ("B-INT", "R-INT", "B-INT")
    assert "worth slower updates" in {row.query: row.why for row in w.explain()}["wide"]
    run(60, 0)
    run(20, 1)
    assert set(one_of_each(w).values()) == {"B-INT", "R-INT"}


def test_an_index_that_nobody_uses_any_more_is_dropped(monkeypatch):
    planned_often(monkeypatch)
    w = lt.Windows(tick=1)
    w.add("wide", lt.agg.max("x"), last=lt.arrivals(1000))
    w.update({"x": np.arange(1500)})
    least = w.nbytes
    for step in range(100):
        w.update({"x": [step] * 10})
        for _ in range(200):
            w["wide"]
    assert one_of_each(w) == {"wide": "L-INT"}
    assert w.nbytes > least
    for step in range(1000):
        w.update({"x": [step] * 10})
    assert one_of_each(w) == {"wide": "B-INT"}
    assert w.nbytes == least


def test_a_choice_for_one_width_leaves_other_widths_alone(monkeypatch):
    planned_often(monkeypatch)
    w = lt.Windows(tick=1)
    w.add("asked", lt.agg.max("x"), last=lt.arrivals(1000))
    w.add("silent", lt.agg.max("x"), last=lt.arrivals(60))
    for step in range(100):
        w.update({"x": [step] * 20})
        for _ in range(300):
            w["asked"]
    assert one_of_each(w) == {"asked": "L-INT", "silent": "B-INT"}


def test_explain_tells_who_shares():
    w = lt.Windows(tick=1)
    for name, (aggregate, span) in {
        "sum": (lt.agg.sum("x"), {"last": 5}),
        "avg": (lt.agg.avg("x"), {"between": (50, 20)}),
        "sum of y": (lt.agg.sum("y"), {"last": 5}),
        "variance": (lt.agg.variance("x"), {"last": lt.arrivals(7)}),
        "stddev": (lt.agg.stddev("x", ddof=0), {"last": 5}),
        "max": (lt.agg.max("x"), {"last": 5}),
        "max of many": (lt.agg.max("x"), {"last": lt.arrivals(5000)}),
        "min": (lt.agg.min("x"), {"last": 5}),
        "median": (lt.agg.quantile("x", 0.5), {"last": 5}),
        "tail": (lt.agg.quantile("x", 0.99), {"last": 500}),
        "busy": (lt.agg.count() > 5, {"last": 5, "per": "k"}),
        "busier": (lt.agg.count() > 50, {"last": 500, "per": "k"}),
        "high": (lt.agg.max("x") > 5, {"last": 5, "per": "k"}),
    }.items():
        w.add(name, aggregate, **span)
    shared = {row.query: row.shared_by for row in w.explain()}
    assert shared == {
        "sum": 2, "avg": 2, "sum of y": 1, "variance": 2, "stddev": 2, "max": 2, "max of many": 2, "min": 1,
        "median": 2, "tail": 2, "busy": 2, "busier": 2, "high": 1,
    }  # fmt: skip
    w.drop("avg")
    w.drop("busier")
    shared = {row.query: row.shared_by for row in w.explain()}
    assert (shared["sum"], shared["busy"]) == (1, 1)
    row = w.explain()[0]
    assert (row.query, row.asks, row.window, row.algorithm) == ("sum", "sum('x')", "last 5", "R-INT")


def test_landmarks_are_shared_by_windows_of_about_one_width():
    w = lt.Windows(tick=1)
    for size in (16, 20, 31, 32, 100):
        w.add(str(size), lt.agg.max("x"), last=lt.arrivals(size), using="L-INT")
    w.add("time", lt.agg.max("x"), last=20, using="L-INT")
    assert {row.query: row.shared_by for row in w.explain()} == {"16": 3, "20": 3, "31": 3, "32": 1, "100": 1, "time": 1}


def test_nothing_to_explain():
    assert len(lt.Windows().explain()) == 0
    assert len(lt.Windows().answers()) == 0
