"""Sizes against the papers' closed forms, written out again here, and against numbers worked out by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.core import plan as sizes

COUNTERS = ("wave", "exphist", "randwave", "exact")
fractions = st.floats(1e-6, 0.999)
heights = st.integers(0, 255)


# -- theorem 1: point queries ------------------------------------------------------------------------------------------


@given(fractions)
def test_the_split_for_point_queries_gives_eps(eps):
    eps_cm, eps_sw = sizes.split(eps, "point")
    assert math.isclose(eps_cm, eps / (1 + eps))
    assert eps_sw == eps
    # A row holds its key to within ±eps_sw of what the cell counts, and others up to eps_cm of the rest.
    for share in (0.0, 0.1, 0.5, 1.0):  # of the arrivals that are the key's own
        cell = share + eps_cm * (1 - share)
        assert (1 + eps_sw) * cell - share <= eps + 1e-12
        assert share - (1 - eps_sw) * share <= eps + 1e-12


def test_numbers_for_point_queries():
    plan = lt.plan(0.1, 0.15, "1h", counter="wave")
    assert (plan.eps_sw, round(plan.eps_cm, 6)) == (0.1, 0.090909)
    assert plan.width == 30  # e / 0.0909 = 29.9
    assert plan.depth == 2  # ln(1/0.15) = 1.9
    assert (plan.delta_cm, plan.delta_sw) == (0.15, 0.0)
    plan = lt.plan(0.01, 0.01, "1h", counter="wave")
    assert (plan.width, plan.depth) == (275, 5)  # 274.5, 4.6


# -- theorem 2: inner products -----------------------------------------------------------------------------------------


@given(fractions)
def test_the_split_for_inner_products_gives_eps(eps):
    # ECM-15, Lemma 4: off by at most eps_sw² + 2·eps_sw, or eps_cm·(1 + eps_sw)², of the product of the arrivals.
    eps_cm, eps_sw = sizes.split(eps, "inner")
    assert math.isclose(eps_sw, math.sqrt(1 + eps) - 1)
    assert math.isclose(eps_sw**2 + 2 * eps_sw, eps, rel_tol=1e-6)
    assert math.isclose(eps_cm * (1 + eps_sw) ** 2, eps)
    # The most that can be, with a share s of the product being the true answer and the rest colliding:
    for share in (0.0, 0.3, 1.0):
        assert (1 + eps_sw) ** 2 * (share + eps_cm * (1 - share)) - share <= eps + 1e-12


def test_numbers_for_inner_products():
    plan = lt.plan(0.21, 0.15, "1h", query="inner")
    assert math.isclose(plan.eps_sw, 0.1)  # √1.21 - 1
    assert plan.width == math.ceil(math.e * 1.21 / 0.21) == 16
    assert plan.query == "inner"


# -- theorem 3: randomized waves ---------------------------------------------------------------------------------------


@given(fractions)
def test_randomized_counters_share_delta(delta):
    # Theorem 3: delta_cm + delta_sw, split evenly; the deterministic families need none of it.
    assert sizes.deltas(delta, "randwave") == (delta / 2, delta / 2)
    for counter in ("wave", "exphist", "exact"):
        assert sizes.deltas(delta, counter) == (delta, 0.0)


def test_numbers_for_randomized_waves():
    plan = lt.plan(0.1, 0.1, "1h", counter="randwave")
    assert (plan.delta_cm, plan.delta_sw) == (0.05, 0.05)
    assert plan.depth == 3  # ln 20 = 2.996
    assert sizes.randwave_capacity(0.1, 0.05, 36) == (3600, 109)  # 36/eps², 36·ln 20 = 107.8, made odd
    assert sizes.randwave_capacity(0.1, 0.05, 6) == (600, 19)  # 6·ln 20 = 17.97


# -- section 5.1: merging ----------------------------------------------------------------------------------------------


@given(st.floats(1e-6, 0.999), heights)
def test_the_error_before_merging_ends_at_the_error_wanted(eps, height):
    # Level by level, without rounding: a merge moves a share e of what the one before left, and the counter adds its own.
    before = sizes.premerge_error(eps, height)
    exact = Fraction(1)
    for _ in range(height + 1):
        exact *= 1 + Fraction(before)
    assert math.isclose(exact - 1, eps, rel_tol=1e-9)
    assert math.isclose(sizes.merged_error(before, height), eps, rel_tol=1e-9)
    # The paper's sum over levels, h·e(1 + e) + e, drops the terms of higher order: it allows a larger error before.
    additive = sizes.premerge_error(eps, height, additive=True)
    assert math.isclose(height * additive * (1 + additive) + additive, eps, rel_tol=1e-9)
    assert additive >= before
    assert height > 1 or additive == before
    if height:
        h = height
        closed = (math.sqrt(1 + 2 * h + h * h + 4 * h * eps) - 1 - h) / (2 * h)
        assert math.isclose(additive, closed, rel_tol=1e-6)


def test_numbers_for_merging():
    # h = 3, eps = 0.1: the fourth root of 1.1 is 1.0241136891…
    assert math.isclose(lt.plan(0.1, 0.05, "1h", merge_height=3, counter="wave").eps_sw, 0.0241136891, rel_tol=1e-8)
    # eps = 0.3, h = 8: by the paper's sum, 0.3 would become 0.33
    assert math.isclose((1 + sizes.premerge_error(0.3, 8, additive=True)) ** 9 - 1, 0.3324, rel_tol=1e-3)
    assert math.isclose((1 + sizes.premerge_error(0.3, 8)) ** 9 - 1, 0.3, rel_tol=1e-12)
    # one level: (√(4 + 0.4) - 2) / 2
    assert math.isclose(sizes.premerge_error(0.1, 1), 0.0488088482, rel_tol=1e-8)
    assert sizes.premerge_error(0.1, 0) == 0.1
    assert math.isclose(sizes.merged_error(0.1, 2), 0.331)


@pytest.mark.parametrize("height", [-1, 256, 1.0, True, "1", None])
def test_heights_that_cannot_be_are_refused(height):
    with pytest.raises(lt.ParameterError, match=r"merge_height=.*0 to 255"):
        lt.plan(0.1, 0.1, "1h", merge_height=height)


# -- sizes of cells ----------------------------------------------------------------------------------------------------


@given(fractions, st.floats(1e-9, 0.999))
def test_the_count_min_array_is_as_large_as_its_proof_needs(eps, delta):
    width, depth = sizes.count_min_size(eps, delta)
    assert math.e / width <= eps
    assert math.exp(-depth) <= delta
    assert width == 1 or math.e / (width - 1) > eps
    assert depth == 1 or math.exp(-(depth - 1)) > delta


@given(st.floats(1e-6, 0.999))
def test_the_capacities_keep_the_error(eps):
    # A wave's gap is at most 1/(2c - 1) of a range, half of which is the error; (1/eps + 1)/2 ≤ c makes the gap ≤ eps.
    wave = sizes.wave_capacity(eps)
    assert 1 / (2 * wave - 1) <= eps
    assert wave & (wave - 1) == 0
    assert wave == 1 or 1 / (wave - 1) > eps / 2
    # Invariant 1: C_j ≤ 2·eps·(1 + sum of smaller ones); k of each size are enough for k ≥ 1/(2·eps).
    k = sizes.exphist_capacity(eps)
    assert 1 / (2 * k) <= eps
    for level in range(1, 20):
        smaller = (2 * k - 1) + k * sum(2**i for i in range(1, level))
        assert 2**level / (2 * (1 + smaller)) <= eps + 1e-12


@given(st.integers(1, 2**62), st.integers(1, 2**20))
def test_levels_hold_all_arrivals(arrivals, capacity):
    levels = sizes.levels(arrivals, capacity)
    assert capacity * 2.0 ** (levels - 1) >= arrivals * (1 - 1e-12)
    assert levels == 1 or capacity * 2.0 ** (levels - 2) < arrivals * (1 + 1e-12)


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_finer_surer_longer_or_deeper_plan_is_no_smaller(counter):
    def size(eps=0.1, delta=0.1, **options):
        return lt.plan(eps, delta, "1h", counter=counter, **options).bytes

    for finer, coarser in ((0.01, 0.02), (0.02, 0.05), (0.05, 0.1), (0.1, 0.3), (0.3, 0.9)):
        assert size(eps=finer) >= size(eps=coarser)
        assert size(delta=finer) >= size(delta=coarser)
        assert size(eps=finer, query="inner") >= size(eps=finer)
    for fewer in (1, 10, 1_000, 10**6, 10**9):
        assert size(arrivals=10 * fewer) >= size(arrivals=fewer)
    for height in range(5):
        assert size(merge_height=height + 1) >= size(merge_height=height)


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_sketch_is_made_as_planned(counter):
    plan = lt.plan(0.2, 0.3, 1_000, counter=counter, arrivals=5_000, merge_height=1, samples=3)
    sketch = lt.EcmSketch(window=1_000, eps=0.2, delta=0.3, counter=counter, merge_height=1, samples=3, salt=1)
    assert (sketch.width, sketch.depth) == (plan.width, plan.depth)
    rng = np.random.default_rng(3)
    for start in range(0, 10_000, 1_000):
        sketch.update(rng.integers(0, 50, 4_900), np.sort(rng.integers(start, start + 1_000, 4_900)))
    assert sketch.total().high <= 2 * 4_900
    assert sketch.nbytes <= lt.plan(0.2, 0.3, 1_000, counter=counter, arrivals=9_800, merge_height=1, samples=3).bytes


def test_a_window_of_arrivals_knows_how_many_it_holds():
    assert lt.plan(0.1, 0.1, lt.arrivals(5_000)).arrivals == 5_000
    assert lt.plan(0.1, 0.1, lt.arrivals(5_000)).bytes == lt.plan(0.1, 0.1, "1h", arrivals=5_000).bytes


@pytest.mark.parametrize(
    ("arguments", "options", "what"),
    [
        ((0, 0.1, "1h"), {}, "eps=0"),
        ((1, 0.1, "1h"), {}, "eps=1"),
        ((-0.1, 0.1, "1h"), {}, "eps=-0.1"),
        ((1e-10, 0.1, "1h"), {}, "eps=1e-10"),
        ((float("nan"), 0.1, "1h"), {}, "eps=nan"),
        ((True, 0.1, "1h"), {}, "eps=True"),
        (("0.1", 0.1, "1h"), {}, "eps='0.1'"),
        ((None, 0.1, "1h"), {}, "eps=None"),
        ((0.1, 0.0, "1h"), {}, "delta=0.0"),
        ((0.1, 1.5, "1h"), {}, "delta=1.5"),
        ((0.1, 0.1, "1 parsec"), {}, "parsec"),
        ((0.1, 0.1, "1s"), {"tick": "1h"}, "shorter than one tick"),
        ((0.1, 0.1, "1h"), {"query": "median"}, "query='median'.*point, inner"),
        ((0.1, 0.1, "1h"), {"counter": "abacus"}, "counter='abacus'.*wave, exphist, randwave, exact"),
        ((0.1, 0.1, "1h"), {"arrivals": 0}, "arrivals=0"),
        ((0.1, 0.1, "1h"), {"arrivals": 2.5}, "arrivals=2.5"),
        ((0.1, 0.1, "1h"), {"arrivals": "many"}, "arrivals='many'"),
        ((0.1, 0.1, "1h"), {"counter": "randwave", "samples": 0}, "samples=0"),
        ((0.1, 0.1, "1h"), {"counter": "randwave", "samples": 256}, "samples=256"),
        ((0.1, 0.1, "1h"), {"counter": "randwave", "samples": 1.5}, "samples=1.5"),
    ],
)
def test_plans_that_cannot_be_are_refused_by_value(arguments, options, what):
    with pytest.raises(lt.ParameterError, match=what):
        lt.plan(*arguments, **options)


# -- AMS sketches ------------------------------------------------------------------------------------------------------


def median_is_wrong(depth, p):
    """How likely more than half of so many rows are wrong, exactly."""
    p = Fraction(p)
    return sum(math.comb(depth, k) * p**k * (1 - p) ** (depth - k) for k in range(depth // 2 + 1, depth + 1))


@given(st.floats(1e-3, 0.999), st.floats(1e-9, 0.999))
def test_an_ams_table_keeps_its_promise_and_no_smaller_one_does(eps, delta):
    width, depth = sizes.ams_size(eps, delta)
    assert depth % 2 == 1
    odds = 2 / (width * eps**2)  # Chebyshev
    assert odds <= 0.5 + 1e-12
    assert median_is_wrong(depth, odds) <= delta * (1 + 1e-9)
    narrower = 2 / ((width - 1) * eps**2) if width > 1 else 1
    assert narrower > 0.5 or median_is_wrong(depth, narrower) > delta * (1 - 1e-9)
    assert sizes.ams_error(width, depth, delta) <= eps * (1 + 1e-9)
    for other in range(1, 64, 2):
        assert width * depth <= other * math.ceil(2 / (sizes.row_odds(other, delta) * eps**2) + 1e-6)


def test_numbers_for_ams_tables():
    assert sizes.ams_size(0.1, 0.3) == (667, 1)  # 2/(0.3·0.01) = 666.7; three rows of 551 are more
    assert sizes.ams_size(0.1, 0.01) == (1894, 5)  # 10·p³(1-p)² + 5·p⁴(1-p) + p⁵ = 0.01 at p = 0.10564
    assert sizes.row_odds(5, 0.01) == pytest.approx(0.10564, abs=1e-5)
