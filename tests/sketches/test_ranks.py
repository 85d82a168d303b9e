"""Bounds of quantiles against a search that looks into every node of the tree, and against sorted arrays."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import hoeffding

import lately as lt
from lately.sketches import ranks
from lately.sketches.extracts import extract, view_of
from lately.sketches.tree import FAN

WINDOW = 1000
SHARES = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]
RANGES = [(900, 200), (700, 600), (300, 250), (1000, 10)]


def integers(universe=600, **options):
    return lt.Dyadic(**({"universe": universe, "window": WINDOW, "eps": 0.3, "delta": 0.2} | options))


def numbers(universe=600, **options):
    return lt.Quantiles(**({"lo": 0, "hi": universe, "resolution": 1, "window": WINDOW, "eps": 0.3, "delta": 0.2} | options))


def drifting(seed, size, universe):
    """Keys around a centre that moves to and fro, so that the rank over a range does not grow with the key everywhere."""
    rng = np.random.default_rng(seed)
    centre = universe * (0.5 + 0.3 * np.sin(np.linspace(0, rng.uniform(2, 9), size)))
    keys = np.clip(rng.normal(centre, universe / 12), 0, universe - 1).astype(np.int64)
    return keys, np.append(np.sort(rng.integers(0, WINDOW, size - 1)), WINDOW - 1)


def true_quantile(values, q):
    return np.sort(values)[max(math.ceil(q * values.size - 1e-9), 1) - 1]


def could_pass(part, level_number, node, before, target, which):
    """Every key in which, and in all nodes above which, the rank could pass the target: nothing is left out."""
    level = part._layout.levels[level_number]
    children = range(level.nodes) if level_number == 0 else range(node * FAN, min((node + 1) * FAN, level.nodes))
    starts = [rows.copy() for rows in before]  # of each suffix, what every row counts left of the child
    keys = []
    for child in children:
        ends = [
            rows + suffix.raw(level, [child]).value.reshape(-1, 1)[:, 0]
            for rows, suffix in zip(starts, part._parts, strict=True)
        ]
        if which == "first":
            fits = ends[0].min() - starts[1].min() >= target
        else:
            fits = starts[0].min() - ends[1].min() < target
        if fits and level.shift == 0:
            keys.append(child)
        elif fits:
            keys += could_pass(part, level_number + 1, child, starts, target, which)
        starts = ends
    return keys


def outermost_keys(part, target, which):
    nothing = [np.zeros(part._layout.depth) for _ in part._parts]
    return could_pass(part, 0, 0, nothing, target, which)


@settings(max_examples=settings().max_examples // 3 + 1)
@given(
    seed=st.integers(0, 999),
    size=st.integers(50, 1000),
    between=st.sampled_from(RANGES),
    share=st.floats(-0.1, 1.1),
    build=st.sampled_from([integers, numbers]),
)
def test_bounds_over_a_past_range_are_those_of_a_search_through_all_nodes(seed, size, between, share, build):
    sketch = build(eps=0.1)
    sketch.update(*drifting(seed, size, 600))
    part = sketch.in_range(None, between).tree
    target = round(share * float(part.total().value[0]))
    for which, end in (("first", 0), ("last", -1)):
        keys = outermost_keys(part, target, which)
        assume(keys)
        assert part._descend(np.array([float(target)]), which).tolist() == [keys[end]]


@pytest.mark.parametrize("most", [1, 3, 16])
def test_a_search_that_gives_up_early_is_wider_and_never_narrower(most, monkeypatch):
    wider = 0
    for seed in range(4):
        sketch = integers(eps=0.05)
        sketch.update(*drifting(seed, 1500, 600))
        part = sketch.in_range(None, (700, 600)).tree
        for target in np.linspace(1, float(part.total().high[0]), 9).round():
            first, last = (part._outermost(target, which, -1) for which in ("first", "last"))
            with monkeypatch.context() as patch:
                patch.setattr(ranks, "_MOST_NODES", most)
                sooner, later = (part._outermost(target, which, -1) for which in ("first", "last"))
            assert first == -1 or sooner <= first
            assert last == -1 or later >= last
            wider += (sooner < first) + (later > last)
    assert wider > 0 or most == 16


@pytest.mark.parametrize("build", [integers, numbers])
@pytest.mark.parametrize(("universe", "eps"), [(600, 0.05), (70_000, 0.3)])
def test_bounds_of_past_ranges_hold_as_often_as_they_say(build, universe, eps):
    """Of one sketch, of merged ones, and read from bytes; over seeds, against the sorted arrivals of the range."""
    asked = missed = 0
    for seed in range(4):
        keys, ticks = drifting(seed, 2000, universe)
        where = np.arange(keys.size) % 2
        sites = [build(universe, eps=eps, seed=seed, merge_height=1) for _ in range(2)]
        for i, site in enumerate(sites):
            site.update(keys[where == i], ticks[where == i])
        whole = build(universe, eps=eps, seed=seed)
        whole.update(keys, ticks)
        for sketch in (whole, lt.from_bytes(whole.to_bytes()), lt.merge(sites)):
            for between in RANGES:
                inside = keys[(ticks > WINDOW - 1 - between[0]) & (ticks <= WINDOW - 1 - between[1])]
                for q, answer in sketch.quantile(SHARES, between=between):
                    missed += true_quantile(inside, q) not in answer
                    asked += 1
                    assert 0 <= answer.low <= answer.value <= answer.high <= universe
    assert missed <= hoeffding(asked, 0.2)
    assert missed <= asked / 100  # the proof is careful


def test_a_past_range_is_bounded_closely():
    """What a descent that stops at the first child without an answer would leave 37 % of the universe wide."""
    widths = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        keys = np.clip(rng.normal(1000 * np.linspace(0.3, 0.6, 6000), 100), 0, 999).astype(np.int64)
        sketch = integers(1000, eps=0.05, seed=seed)
        sketch.update(keys, np.append(np.sort(rng.integers(0, WINDOW, 5999)), WINDOW - 1))
        for between in RANGES[:3]:
            widths += [answer.high - answer.low for _, answer in sketch.quantile(SHARES, between=between)]
    assert np.mean(widths) < 200


@pytest.mark.parametrize("build", [integers, numbers])
def test_bounds_from_extracts_are_those_of_the_sketch(build):
    keys, ticks = drifting(3, 3000, 600)
    sketch = build(eps=0.1)
    sketch.update(keys, ticks)
    known = view_of(build(eps=0.1), extract(sketch, last=400))
    assert known.quantile(SHARES) == sketch.quantile(SHARES, last=400)
    for q, answer in known.quantile(SHARES):
        assert true_quantile(keys[ticks > WINDOW - 1 - 400], q) in answer
        assert 0 <= answer.low <= answer.high <= 600
