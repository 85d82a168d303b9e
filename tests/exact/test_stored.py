"""Windows that were stored go on where they were."""

import exact_cases
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lately as lt
from lately.exact import aggregates

batches = st.lists(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 200)), min_size=1, max_size=30), min_size=2, max_size=8
)


@pytest.mark.parametrize("build", [*exact_cases.BUILDS.values(), lambda: exact_cases.windows(lateness=15)])
@given(stream=batches, cut=st.integers(0, 7), start=st.sampled_from([0, -1000]))
@example(stream=[[(0, 1)] * 3, [(0, 1)]], cut=0, start=-1000)  # stored before the first arrival, which is before 1970
def test_what_was_stored_goes_on_as_if_nothing_had_happened(build, stream, cut, start):
    straight, stored, now = build(), build(), start
    for i, batch in enumerate(stream):
        if i == cut:
            stored = lt.from_bytes(stored.to_bytes())
        batch = [(now + tick, number) for tick, number in sorted(batch)]
        for w in (straight, stored):
            exact_cases.feed(w, [number for _, number in batch], [tick for tick, _ in batch])
        now = batch[-1][0]
        assert exact_cases.ask(stored) == exact_cases.ask(straight)
    assert stored.late == straight.late
    assert stored.queries == straight.queries


@pytest.mark.parametrize("condition", [lt.agg.count() > 1, lt.agg.sum("x") > 1, lt.agg.max("x") > 0, lt.agg.min("x") < 9])
def test_filters_copied_before_the_first_arrival_take_negative_ticks(condition):
    w = lt.Windows(tick=1)
    w.add("keys", condition, per="k", last=10)
    twin = w.copy()
    twin.update({"k": ["a", "a", "b"], "x": [1.0, 2.0, 0.0]}, [-100, -99, -99])
    assert [key for key, _ in twin["keys"].value if key == "a"] == ["a"]


def test_queries_added_before_and_after_storing_know_what_they_have_seen():
    w = lt.Windows(tick=1)
    w.add("short", lt.agg.sum("x"), last=5)
    w.update({"x": [1.0, 2.0, 4.0], "y": [1, 2, 3]}, [0, 10, 12])
    w.add("long", lt.agg.sum("x"), last=20)
    w.add("other", lt.agg.max("y"), last=5)
    twin = lt.from_bytes(w.to_bytes())
    for each in (w, twin):
        each.add("newest", lt.agg.count(), last=100)
        each.update({"x": [8.0], "y": [3]}, 14)
    assert [(n, a.value, a.covered) for n, a in twin.answers().items()] == [
        (n, a.value, a.covered) for n, a in w.answers().items()
    ]
    assert (twin["short"].value, twin["long"].value, twin["other"].value) == (14.0, None, None)


def test_aggregates_of_users_are_found_by_name_and_missed_by_name(monkeypatch):
    monkeypatch.setattr(aggregates, "_DEFINED", {})
    double = lt.agg.custom("double", lift=lambda x: 2 * x, combine=lambda a, b: a + b, lower=lambda s: s, identity=0.0)
    w = lt.Windows(tick=1)
    w.add("twice", double("x"), last=5)
    w.update({"x": [1.5, 2.0]}, [0, 1])
    blob = w.to_bytes()
    assert lt.from_bytes(blob)["twice"].value == 7.0
    aggregates._DEFINED.clear()
    with pytest.raises(lt.FormatError, match=r"'twice' asks for 'double'; define it with lt.agg.custom\('double'"):
        lt.from_bytes(blob)


def test_a_users_aggregate_that_fails_on_stored_values_is_a_format_error(monkeypatch):
    monkeypatch.setattr(aggregates, "_DEFINED", {})
    options = {"combine": lambda a, b: a | b, "lower": len, "identity": frozenset()}
    w = lt.Windows(tick=1)
    w.add("n", lt.agg.custom("kinds", lift=lambda x: frozenset([x]), **options)("x"), last=5)
    w.update({"x": [1.5, 2.0]}, [0, 1])
    lt.agg.custom("kinds", lift=lambda x: frozenset(x), **options)  # another meaning of the name: floats have no members
    with pytest.raises(lt.FormatError, match="the aggregate 'kinds' fails on its values"):
        lt.from_bytes(w.to_bytes())


def test_memory_that_wild_values_would_take_is_counted_before_it_is_taken():
    w = lt.Windows(tick=1)
    w.add("sum", lt.agg.variance("x"), last=lt.arrivals(20_000))
    w.update({"x": [1e300, 1e-300] * 10_000})
    with pytest.raises(lt.FormatError, match="more than 1,000,000; if you trust it, pass limit="):
        lt.from_bytes(w.to_bytes(), limit=1_000_000)
    assert lt.from_bytes(w.to_bytes(), limit=2**30)["sum"] == w["sum"]
