"""Which substreams? CI-COUNT, CI-SUM, CI-MAX and CI-MIN through Windows find what a look at every row finds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindows

import lately as lt
from lately.exact.collective import Collective

AGGREGATES = {"count": lt.agg.count(), "sum": lt.agg.sum("v"), "max": lt.agg.max("v"), "min": lt.agg.min("v")}
WINDOWS = [1, 5, 30, 200]

bars = st.sampled_from([0, 1, 2, 3, 5, 7.5, 20, 21, 100, 300])
conditions = st.sampled_from([">", ">=", "<", "<=", "between"])
weights = st.integers(0, 9).map(float) | st.floats(0, 10) | st.sampled_from([0.0, 1e-8, 0.1, 1e9, math.nan])
anything = st.integers(-9, 9).map(float) | st.sampled_from([math.nan, math.inf, -math.inf, 0.1, -0.0, 1e300])


def condition(aggregate, sign, bar, width=3):
    if sign == "between":
        return aggregate.between(bar, bar + width)
    return {">": aggregate > bar, ">=": aggregate >= bar, "<": aggregate < bar, "<=": aggregate <= bar}[sign]


def batches_of(values):
    """Batches of rows: how much later than the one before, which key of a skewed few, what value; and silences."""
    rows = st.tuples(st.sampled_from([0, 0, 0, 1, 2, 30]), st.integers(0, 30).map(lambda i: i * i // 40), values)
    return st.lists(st.tuples(st.lists(rows, min_size=1, max_size=60), st.sampled_from([0, 0, 0, 3, 80])), max_size=8)


def feed(batches, *windows):
    """Give batches to the fast and the naive ones, and stop after each to compare."""
    tick = 0
    for rows, silence in batches:
        ticks = []
        for gap, _, _ in rows:
            tick += gap
            ticks.append(tick)
        batch = {"k": [f"key {key}" for _, key, _ in rows], "v": [value for _, _, value in rows]}
        for one in windows:
            one.update(batch, ticks)
        yield
        if silence:
            tick += silence
            for one in windows:
                one.advance(tick)
            yield


def check_exact(answer, expected, kind):
    """The very same substreams and aggregates, the largest (or smallest) first, without any doubt about them."""
    table = answer.value
    assert (answer.rows, answer.missing, answer.covered) == (len(table), 0, 1.0)
    assert len(set(table.key)) == len(table)
    found = dict(zip(table.key, table.value.tolist(), strict=True))
    assert set(found) == set(expected)
    assert all(math.isclose(found[key], value, rel_tol=1e-15) for key, value in expected.items())
    ordered = sorted(found.values(), reverse=kind != "min")
    assert list(found.values()) == ordered


@pytest.mark.parametrize("kind", AGGREGATES)
@given(data=st.data(), asked=st.lists(st.tuples(conditions, bars, st.sampled_from(WINDOWS)), min_size=1, max_size=5))
def test_exact_filters_find_exactly_those_that_pass(kind, data, asked):
    aggregate = AGGREGATES[kind]
    asked = {str(i): (condition(aggregate, sign, bar), window) for i, (sign, bar, window) in enumerate(asked)}
    asked = {name: (c, window) for name, (c, window) in asked.items() if kind in ("max", "min") or c.high >= 0}
    w, twin = lt.Windows(tick=1), NaiveWindows()
    for name, (what, window) in asked.items():
        w.add(name, what, per="k", last=window)
    for _ in feed(data.draw(batches_of(anything if kind in ("max", "min") else weights)), w, twin):
        for name, (what, window) in asked.items():
            check_exact(w[name], twin.passing(what, "k", window), kind)


@pytest.mark.parametrize("kind", ["count", "sum"])
@given(data=st.data(), sign=conditions, bar=bars, window=st.sampled_from(WINDOWS), eps=st.sampled_from([0.5, 0.1, 0.01]))
def test_approximate_filters_find_all_that_pass_and_some_that_nearly_do(kind, data, sign, bar, window, eps):
    what = condition(AGGREGATES[kind], sign, bar, width=40)
    if what.high < 0 or 0 < what.low < 1e-300:  # more than nothing: see below
        return
    w, twin = lt.Windows(tick=1), NaiveWindows()
    w.add("q", what, per="k", last=window, exact=False, eps=eps)
    for _ in feed(data.draw(batches_of(weights)), w, twin):
        truth = twin.substreams(what.aggregate, "k", window)
        answer = w["q"]
        found = {row.key: row.value for row in answer.value}
        assert len(found) == len(answer.value) == answer.rows
        assert set(twin.passing(what, "k", window)) <= set(found)
        for key, estimate in found.items():
            assert what.low * (1 - eps) <= truth[key] <= what.high * (1 + eps)
            assert estimate.low * (1 - 1e-12) <= truth[key] <= estimate.high * (1 + 1e-12)


@given(data=st.data(), kinds=st.lists(st.sampled_from(list(AGGREGATES)), min_size=2, max_size=6))
def test_filters_come_and_go_while_the_stream_runs(data, kinds):
    """What is covered is right, whatever was added or dropped before; in the end all is covered."""
    w, twin, asked = lt.Windows(tick=1), NaiveWindows(), {}
    for turn, _ in enumerate(feed(data.draw(batches_of(weights)), w, twin)):
        kind = kinds[turn % len(kinds)]
        name, window = f"{turn} {kind}", data.draw(st.sampled_from(WINDOWS))
        what = AGGREGATES[kind] >= data.draw(bars)
        w.add(name, what, per="k", last=window)
        asked[name] = (what, window, kind)
        if len(asked) > 3 and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(asked)))
            w.drop(gone)
            del asked[gone]
        for name, (what, window, kind) in asked.items():
            if w[name].covered < 1:
                assert w[name].value is None
            else:
                check_exact(w[name], twin.passing(what, "k", window), kind)
    if asked:
        w.advance(twin.now + 201)
        twin.advance(twin.now + 201)
        assert all(answer.covered == 1 and len(answer.value) == 0 for answer in w.answers().values())


def test_many_thresholds_share_one_index():
    w, twin = lt.Windows(tick=1), NaiveWindows()
    for bar in range(0, 200, 3):
        w.add(f"count {bar}", lt.agg.count() > bar, per="k", last=100)
        w.add(f"sum {bar}", lt.agg.sum("v") > bar, per="k", last=50 + bar)
    rng = np.random.default_rng(4)
    for start in range(0, 1000, 100):
        batch = {"k": rng.zipf(1.4, 500).tolist(), "v": rng.integers(0, 5, 500).astype(float).tolist()}
        ticks = np.sort(rng.integers(start, start + 100, 500))
        for one in (w, twin):
            one.update(batch, ticks)
    for bar in range(0, 200, 3):
        check_exact(w[f"count {bar}"], twin.passing(lt.agg.count() > bar, "k", 100), "count")
        check_exact(w[f"sum {bar}"], twin.passing(lt.agg.sum("v") > bar, "k", 50 + bar), "sum")
    assert set(w.explain().algorithm) == {"CI-COUNT", "CI-SUM"}
    assert set(w.explain().shared_by) == {67}


KEYS = {
    "text": ["a", "Grüße", "", "a", "a"],
    "integers": [1, -(2**63), 2**63 - 1, 1, 1],
    "bytes": [b"a", b"\xff", b"", b"a", b"a"],
    "tuples": [("a", 1), ("a", 2), ("b", 1), ("a", 1), ("a", 1)],
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_keys_come_back_as_what_they_were(keys):
    w = lt.Windows(tick=1)
    w.add("all", lt.agg.count() >= 1, per="k", last=10)
    w.add("busy", lt.agg.count() > 2, per="k", last=10)
    w.add("high", lt.agg.max("v") >= 4, per="k", last=10)
    w.update({"k": keys, "v": [1, 2, 3, 4, 5]}, [1, 2, 3, 4, 5])
    assert set(w["all"].value.key) == set(keys)
    assert w["busy"].value.key == w["high"].value.key == keys[:1]
    assert type(w["busy"].value.key[0]) is type(keys[0])


def test_values_that_are_missing_are_as_if_they_had_not_come():
    w = lt.Windows(tick=1)
    w.add("sum", lt.agg.sum("v") >= 0, per="k", last=10)
    w.add("some", lt.agg.sum("v") > 0, per="k", last=10)
    w.add("max", lt.agg.max("v") >= -math.inf, per="k", last=10)
    w.update({"k": ["a", "a", "b"], "v": [math.nan, 2.0, None]}, [1, 2, 3])
    assert w["sum"].value.key == w["some"].value.key == w["max"].value.key == ["a"]


@pytest.mark.parametrize("value", [-1.0, -5e-324, math.inf, -math.inf])
def test_a_filter_on_sums_refuses_what_it_cannot_sum(value):
    w = lt.Windows(tick=1)
    w.add("q", lt.agg.sum("v") > 2, per="k", last=10)
    w.update({"k": ["a"], "v": [3.0]}, [1])
    with pytest.raises(
        lt.InputError, match=r"'v' has the value .*finite values that are not negative; leave such rows out, or drop"
    ):
        w.update({"k": ["a", "b"], "v": [1.0, value]}, [2, 3])
    assert (w["q"].value.key, w["q"].value.value.tolist(), w.now) == (["a"], [3.0], 1)
    w.drop("q")
    w.add("q", lt.agg.max("v") >= -math.inf, per="k", last=10)
    w.update({"k": ["a", "b"], "v": [1.0, value]}, [2, 3])


def test_bars_of_infinity():
    w = lt.Windows(tick=1)
    for name, what in {
        ">": lt.agg.max("v") > math.inf,
        ">=": lt.agg.max("v") >= math.inf,
        "<": lt.agg.min("v") < -math.inf,
        "<=": lt.agg.min("v") <= -math.inf,
    }.items():
        w.add(name, what, per="k", last=10)
    w.update({"k": ["a", "b", "c"], "v": [math.inf, -math.inf, 1.0]}, 1)
    assert (w[">="].value.key, w["<="].value.key) == (["a"], ["b"])
    assert (w[">"].value.key, w["<"].value.key) == ([], [])


@pytest.mark.parametrize("values", [[1e308, 1e308], [1e308, 1e308, 1e308, 3.0], [1e40, 1e20, 0.25, 0.25, 0.25]], ids=str)
def test_sums_of_any_magnitude(values):
    """Also beyond the largest float, and long after what was large has left the window."""
    w, twin = lt.Windows(tick=1), NaiveWindows()
    for name in ("exact", "about"):
        w.add(name, lt.agg.sum("v") >= 0.5, per="k", last=2, exact=name == "exact")
    for tick, value in enumerate(values):
        for one in (w, twin):
            one.update({"k": ["a"], "v": [value]}, [tick])
        expected = twin.passing(lt.agg.sum("v") >= 0.5, "k", 2)
        check_exact(w["exact"], expected, "sum")
        assert set(expected) <= set(w["about"].value.key)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("bar", [0.0, 1e-320, 1e-310, 1e-305])
def test_nothing_is_not_more_than_nothing(bar, exact):
    """A substream whose values are all 0 misses any bar above 0 by all of it, not by a share eps."""
    w = lt.Windows(tick=1)
    w.add("q", lt.agg.sum("v") > bar, per="k", last=10, exact=exact)
    w.update({"k": ["a", "b", "c"], "v": [0.0, math.nan, 1.0]}, 1)
    assert w["q"].value.key == ["c"]


@pytest.mark.parametrize("value", [5e-324, 2.225073858507203e-309, 1e-305, 1e-300])
@pytest.mark.parametrize("exact", [True, False])
def test_the_smallest_weights_are_more_than_nothing(value, exact):
    w = lt.Windows(tick=1)
    w.add("q", lt.agg.sum("v") > 0, per="k", last=10, exact=exact)
    w.update({"k": ["a", "b"], "v": [value, 0.0]}, 1)
    assert w["q"].value.key == ["a"]


# -- memory and work -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["count", "sum", "max", "min", "about"])
def test_substreams_that_fade_do_not_leak(kind):
    """200,000 keys pass through a window that holds a few hundred of them at a time."""
    w = lt.Windows(tick=1)
    aggregate = AGGREGATES.get(kind, lt.agg.count())
    w.add("q", aggregate >= 2, per="k", last=100, exact=kind != "about")
    sizes = []
    for start in range(0, 200_000, 1_000):
        keys = np.arange(start, start + 1_000)
        w.update({"k": np.append(keys, -1), "v": np.full(1001, 3.0)}, np.append(keys, start + 999))
        sizes.append(w.nbytes)
    assert max(sizes[100:]) <= max(sizes[:20])
    assert -1 in w["q"].value.key or kind in ("count", "about")


@pytest.mark.parametrize("weighted", [False, True])
def test_the_work_follows_what_is_found(weighted):
    """A lookup takes those that pass and those within a tenth of the bar, of however many substreams there are."""
    rng = np.random.default_rng(6)
    index = Collective(weighted=weighted)
    keys, window = 20_000, 1_000
    bar = 200
    index.plan([(bar, math.inf)], window, None)
    shares = np.concatenate([np.full(keys - 60, 0.7 / (keys - 60)), np.linspace(0.0001, 0.01, 60)])
    ids_seen, ticks_seen = [], []
    for start in range(0, 3_000, 100):
        ids = rng.choice(keys, 4_000, p=shares / shares.sum())
        ticks = np.sort(rng.integers(start, start + 100, ids.size))
        index.update(ids, ticks, np.ones(ids.size) if weighted else None)
        ids_seen.append(ids)
        ticks_seen.append(ticks)
    since = 2_999 - window
    counts = np.bincount(np.concatenate(ids_seen)[np.concatenate(ticks_seen) >= since], minlength=keys)
    candidates, _ = index._levels[index._level(bar)].since(since)
    passing = np.flatnonzero(counts >= bar)
    assert passing.size > 20
    assert set(passing) <= set(candidates.tolist()) <= set(np.flatnonzero(counts >= 0.9 * bar))
    assert sorted(index.find(since, bar, math.inf).ids) == passing.tolist()
    assert sorted(index.find(since, bar, math.inf, values=False).ids) == passing.tolist()
