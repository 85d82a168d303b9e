"""AMS sketches against exact frequencies: the tables of their naive twins, and within eps as often as they say."""

import math
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import ams, fast_ams, hoeffding, inner_product, second_moment

import lately as lt
from lately.core.plan import row_odds

KINDS = (lt.AmsSketch, lt.FastAmsSketch)
both = pytest.mark.parametrize("kind", KINDS)
key = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=20), st.binary(max_size=20))
changes = st.lists(st.tuples(key, st.integers(-1000, 1000)), min_size=1, max_size=40)


def naive_table(sketch, frequencies):
    if isinstance(sketch, lt.FastAmsSketch):
        return fast_ams(frequencies, sketch._words, sketch.width)
    return ams(frequencies, sketch._words, sketch.width, sketch.depth)


def rows(sketch, left, right):
    """What each row says of an inner product, from two tables."""
    products = (left * right).sum(axis=1)
    return products if isinstance(sketch, lt.FastAmsSketch) else products / sketch.width


def frequencies_of(pairs):
    found = Counter()
    for k, count in pairs:
        found[k.encode() if isinstance(k, str) else k] += count
    return found


def filled(sketch, frequencies):
    sketch.update(np.array(list(frequencies)), counts=np.array(list(frequencies.values())))
    return sketch


@both
@given(pairs=changes, others=changes, seed=st.integers(0, 2**64 - 1))
def test_tables_and_answers_are_those_of_the_naive_twin(kind, pairs, others, seed):
    one, other = (kind(eps=0.9, delta=0.02, seed=seed) for _ in range(2))
    tables = []
    for sketch, changed in ((one, pairs), (other, others)):
        sketch.update([k for k, _ in changed], counts=[count for _, count in changed])
        tables.append(naive_table(sketch, frequencies_of(changed)))
        assert (sketch.table == tables[-1]).all()
        assert sketch.total() == sum(count for _, count in changed)
        assert sketch.weight == sum(abs(count) for _, count in changed)
    assert one.self_join().value == pytest.approx(np.median(rows(one, tables[0], tables[0])))
    assert one.inner_product(other).value == pytest.approx(np.median(rows(one, *tables)))


def test_a_wide_row_of_ams_has_several_polynomials():
    sketch = lt.AmsSketch(eps=0.15, delta=0.5)
    assert (sketch.width, sketch.depth, sketch._words.shape) == (178, 1, (3, 4))
    frequencies = {key: key - 7 for key in range(30)}
    assert (filled(sketch, frequencies).table == naive_table(sketch, frequencies)).all()


@both
@given(pairs=changes, seed=st.integers(0, 999))
def test_what_is_added_and_taken_away_leaves_exactly_nothing(kind, pairs, seed):
    sketch = kind(eps=0.9, delta=0.02)
    back = [(k, -count) for k, count in pairs]
    order = np.random.default_rng(seed).permutation(2 * len(pairs))
    mixed = [(pairs + back)[i] for i in order]
    sketch.update([k for k, _ in mixed], counts=[count for _, count in mixed])
    assert not sketch.table.any()
    assert sketch.total() == 0
    assert sketch.self_join() == lt.Estimate(0.0, 0.0, 0.0, 1 - 0.02)


@both
@given(pairs=changes, others=changes)
def test_sketches_are_linear_bit_for_bit(kind, pairs, others):
    one, other, whole, less = (kind(eps=0.9, delta=0.02) for _ in range(4))
    for sketch, changed in (
        (one, pairs),
        (other, others),
        (whole, pairs + others),
        (less, pairs + [(k, -count) for k, count in others]),
    ):
        sketch.update([k for k, _ in changed], counts=[count for _, count in changed])
    assert (one | other).to_bytes() == lt.merge([other, one]).to_bytes() == whole.to_bytes()
    assert (one - other).to_bytes() == less.to_bytes()
    assert not (whole - one - other).table.any()
    assert lt.merge([one, one, one]).table.tolist() == (3 * one.table).tolist()
    assert pickle.loads(pickle.dumps(one - other)).to_bytes() == less.to_bytes()


# -- the promise -------------------------------------------------------------------------------------------------------


def streams():
    """Two vectors that are hard: many equal frequencies, some below zero, which overlap in part."""
    left = {key: 5 if key % 3 else -5 for key in range(150)}
    right = {key: 3 + key % 2 for key in range(100, 250)}
    return left, right


def missed(make, trials, eps):
    """How often each answer is off by more than promised, and how often its bounds miss the truth."""
    left, right = streams()
    f2, product = second_moment(left), inner_product(left, right)
    norms = math.sqrt(f2 * second_moment(right))
    weights = {key: 1 + key % 4 for key in range(0, 300, 2)}
    reach = math.sqrt(f2 * second_moment(weights))
    off, outside = Counter(), Counter()
    for seed in range(trials):
        a, b = filled(make(seed), left), filled(make(seed), right)
        for name, answer, truth, scale in (
            ("self", a.self_join(), f2, f2),
            ("inner", a.inner_product(b), product, norms),
            ("range", a.range_sum(range(120)), inner_product(left, dict.fromkeys(range(120), 1)), math.sqrt(f2 * 120)),
            ("weighted", a.range_sum(list(weights), weights=list(weights.values())), inner_product(left, weights), reach),
        ):
            off[name] += abs(answer.value - truth) > eps * scale
            outside[name] += truth not in answer
    return off, outside


def sized(kind, depth, eps, delta, narrower=1):
    """A builder of sketches of so many rows that keep the promise, or of narrower ones that do not."""
    width = math.ceil(2 / (row_odds(depth, delta) * eps**2) / narrower)
    return lambda seed: kind._of(width, depth, eps, delta, seed, np.zeros(width * depth, np.int64), 0, 0)


@both
@pytest.mark.parametrize("depth", [1, 5])
def test_answers_miss_no_more_often_than_delta(kind, depth):
    eps, delta, trials = 0.4, 0.15, 300
    off, outside = missed(sized(kind, depth, eps, delta), trials, eps)
    assert max(off.values()) <= hoeffding(trials, delta)
    assert outside["self"] <= hoeffding(trials, delta)
    assert outside["inner"] <= hoeffding(trials, 3 * delta)
    assert max(outside["range"], outside["weighted"]) <= hoeffding(trials, 2 * delta)


@both
@pytest.mark.parametrize("depth", [1, 5])
def test_no_more_often_does_not_hold_for_narrow_tables(kind, depth):
    """Chebyshev is generous, but not that generous: the test above can fail."""
    eps, delta, trials = 0.4, 0.15, 300
    off, outside = missed(sized(kind, depth, eps, delta, narrower=20), trials, eps)
    assert off["self"] > hoeffding(trials, delta)
    assert outside["self"] > hoeffding(trials, delta)


@both
def test_rows_are_unbiased_with_the_variance_of_the_proof(kind):
    left, right = streams()
    product, squares = inner_product(left, right), second_moment(left) * second_moment(right)
    width, trials = 30, 2000
    said = []
    for seed in range(trials):
        a, b = (filled(kind._of(width, 1, 0.5, 0.5, seed, np.zeros(width, np.int64), 0, 0), f) for f in (left, right))
        said.append(a.inner_product(b).value)
    variance = (squares + product**2 - 2 * sum((left[k] * right.get(k, 0)) ** 2 for k in left)) / width
    assert abs(np.mean(said) - product) <= 6 * math.sqrt(variance / trials)
    assert np.var(said) == pytest.approx(variance, rel=0.25)
    assert variance <= 2 * squares / width


# -- ranges ------------------------------------------------------------------------------------------------------------


@both
def test_a_range_is_its_keys(kind):
    sketch = filled(kind(eps=0.5, delta=0.1), {key: key % 7 - 2 for key in range(-40, 200)})
    listed = sketch.range_sum(np.arange(-10, 90))
    assert sketch.range_sum(range(-10, 90)) == sketch.range_sum(range(89, -11, -1)) == listed
    assert sketch.range_sum(range(0, 90, 9)) == sketch.range_sum(list(range(0, 90, 9)))
    assert sketch.range_sum(range(2), weights=[1, 1]) == sketch.range_sum([0, 1])
    prepared = kind(eps=0.5, delta=0.1)
    prepared.update(np.arange(-10, 90))
    assert sketch.inner_product(prepared).value == listed.value
    assert sketch.inner_product(prepared).confidence == pytest.approx(0.7)
    assert listed.confidence == pytest.approx(0.8)


@pytest.mark.parametrize(
    "keys",
    [
        range(2**63 - 5, 2**63),
        range(-(2**63) + 2, -(2**63) - 1, -1),
        range(-(2**63), 2**63, 2**63 - 1),
        range(7, 2**80, 2**80),
        range(-(2**63), 2**63, 2**64 - 1),
    ],
    ids=repr,
)
def test_ranges_reach_as_far_as_integers(keys):
    sketch = filled(lt.FastAmsSketch(eps=0.2, delta=0.1), dict.fromkeys([2**63 - 1, -(2**63), 7], 3))
    assert sketch.range_sum(keys) == sketch.range_sum(list(keys))


def test_keys_that_are_named_twice_weigh_twice():
    sketch = filled(lt.FastAmsSketch(eps=0.2, delta=0.1), {"a": 3, "b": 5})
    assert sketch.range_sum(["a", "b", "a"]) == sketch.range_sum(["a", "b"], weights=[2, 1])
    assert sketch.range_sum(["a", "a"], weights=[4, -4]) == lt.Estimate(0.0, 0.0, 0.0, 1 - 2 * 0.1)
    answer = sketch.range_sum(["a", "b", "a"])
    width = 0.2 * math.sqrt(sketch.self_join().high * (2**2 + 1))
    assert (answer.low, answer.high) == pytest.approx((answer.value - width, answer.value + width))


def test_a_long_range_is_summed_in_parts():
    sketch = filled(lt.FastAmsSketch(eps=0.5, delta=0.4), dict.fromkeys([5, 2**20 - 1, 2**20, 2**21 + 7], 10**6))
    answer = sketch.range_sum(range(2**21 + 5))
    vector = lt.FastAmsSketch(eps=0.5, delta=0.4)
    vector.update(np.arange(2**21 + 5))
    assert answer.value == sketch.inner_product(vector).value
    assert 3 * 10**6 in answer


# -- refusals ----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eps": 0}, "eps=0"),
        ({"eps": 1.0}, "eps=1.0"),
        ({"delta": 1}, "delta=1"),
        ({"delta": "0.1"}, "delta='0.1'"),
        ({"seed": -1}, "seed=-1"),
        ({"eps": 1e-6}, "cells; give a larger eps"),
    ],
)
def test_what_cannot_be_built_is_refused(kind, options, says):
    with pytest.raises(lt.ParameterError, match=says):
        kind(**({"eps": 0.1, "delta": 0.1} | options))


@both
def test_bad_input_is_refused_and_changes_nothing(kind):
    sketch = kind(eps=0.8, delta=0.3)
    sketch.update(["a"], counts=[-3])
    before = sketch.to_bytes()
    for arguments, says in (
        ([[]], "empty column"),
        ([["a", "b"], [1]], "1 counts for 2 keys"),
        ([["a"], [0.5]], "0.5"),
        ([["a"], [None]], "None"),
        ([[None]], "null"),
        ([["a", "b"], [2**61, -(2**62)]], r"6.92e\+18 without their signs, more than 2\*\*62"),
        ([["a"], [-(2**63)]], "without their signs"),
        ([["a"], [2**62 - 2]], r"4,611,686,018,427,387,905 added and subtracted in total, more than 2\*\*62"),
    ):
        with pytest.raises(lt.InputError, match=says):
            sketch.update(arguments[0], counts=arguments[1] if len(arguments) > 1 else None)
    for arguments, says in (
        ([[]], "no keys"),
        ([range(0)], "no keys"),
        ([["a", "b"], [1]], "1 weights for 2 keys"),
        ([["a"], [0.5]], "weights has the value 0.5"),
        ([range(2**63, 2**63 + 2)], "does not fit"),
    ):
        with pytest.raises(lt.InputError, match=says):
            sketch.range_sum(arguments[0], weights=arguments[1] if len(arguments) > 1 else None)
    assert sketch.to_bytes() == before


@both
def test_no_cell_can_overflow(kind):
    full = kind(eps=0.8, delta=0.3)
    full.update("a", counts=2**62 - 1)
    full.update("a", counts=-1)
    assert full.weight == 2**62
    assert abs(full.table).max() == 2**62 - 2
    assert full.self_join().value == pytest.approx(2.0**124)
    assert lt.from_bytes(full.to_bytes()).to_bytes() == full.to_bytes()
    with pytest.raises(lt.InputError, match="more than 2"):
        full.update("b")
    one = kind(eps=0.8, delta=0.3)
    one.update("b", counts=1)
    for together in (lambda: full | one, lambda: full - one, lambda: lt.merge([one, full])):
        with pytest.raises(lt.MergeError, match=r"4,611,686,018,427,387,905 added and subtracted in total"):
            together()


def test_what_does_not_fit_is_refused():
    one = lt.FastAmsSketch(eps=0.2, delta=0.1)
    for other, says in (
        (lt.FastAmsSketch(eps=0.4, delta=0.1), "differ in eps: 0.2 and 0.4; build them alike"),
        (lt.FastAmsSketch(eps=0.2, delta=0.01), "differ in delta"),
        (lt.FastAmsSketch(eps=0.2, delta=0.1, seed=1), "differ in seed"),
        (lt.AmsSketch(eps=0.2, delta=0.1), "FastAmsSketch and AmsSketch cannot be combined; give two of one class"),
        ("x", "FastAmsSketch and str"),
    ):
        for use in (one.inner_product, one.__or__, one.__sub__, lambda other: lt.merge([one, other])):
            with pytest.raises(lt.MergeError, match=says):
                use(other)


def test_confidence_is_what_is_left_of_the_union_bound():
    sketch = lt.FastAmsSketch(eps=0.5, delta=0.4)
    sketch.update(["a"])
    assert sketch.self_join().confidence == pytest.approx(0.6)
    assert sketch.range_sum(["a"]).confidence == pytest.approx(0.2)
    assert sketch.inner_product(sketch).confidence == 0


def test_sizes_and_what_it_says_of_itself():
    sketch = lt.FastAmsSketch(eps=0.1, delta=0.01)
    assert (sketch.width, sketch.depth) == (1894, 5)
    assert sketch.nbytes == 8 * 1894 * 5 + 32 * 5
    assert repr(sketch) == "FastAmsSketch(eps=0.1, delta=0.01, width=1894, depth=5, total=0, nbytes=75_920)"
