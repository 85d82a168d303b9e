"""Every index answers what every other one and a look at every row answer, whatever the stream and whoever reads when."""

import pytest
from exact_race import Race
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import NaiveWindows

import lately as lt
from lately.exact import plans

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
    w.add("m", lt.agg.max("x"), between=(117, 61), using=using)
    w.update({"x": [100.0, 1.0]}, [5, 20])
    w.update({"x": [0.0]}, [125])
    assert w["m"].value == 1.0


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("using", ["B-INT", "L-INT"])
def test_a_late_row_is_seen_whether_or_not_its_block_was_read_as_complete(using, read):
    w = lt.Windows(tick=1, lateness=100)
    w.add("m", lt.agg.max("x"), last=50, using=using)
    w.update({"x": [7.0, 1.0]}, [2, 20])
    w.advance(60)
    if read:
        assert w["m"].value == 1.0
    w.update({"x": [100.0]}, [25])
    assert w["m"].value == 100.0


@pytest.mark.parametrize("using", [None, "L-INT"])
def test_the_planners_own_choice_is_right_over_the_past(using, monkeypatch):
    """Many maxima, read after each arrival: the planner turns to L-INT by itself."""
    for name in ("_SOON", "_LATE"):
        monkeypatch.setattr(plans, name, 200)
    w, twin = lt.Windows(tick=1), NaiveWindows()
    spans = [(200 + 7 * i, 100 + 3 * i) for i in range(20)]
    for i, span in enumerate(spans):
        w.add(f"{i}", lt.agg.max("x"), between=span, using=using)
    tick = 0
    for i in range(150):
        tick += (1, 3, 40, 0, 7)[i * i % 5] if i % 7 else 25
        for each in (w, twin):
            each.update({"x": [float(i * 37 % 101)]}, [tick])
        answers = w.answers()
        for name, span in enumerate(spans):
            assert answers[f"{name}"].value == twin.answer(lt.agg.max("x"), between=span)[0]
    assert set(w.explain().algorithm) == {"L-INT"}
