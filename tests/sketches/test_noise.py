"""Bounds and values that are learnt from the noise of the other cells: against twins, and as often right as they say."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import hoeffding

import lately as lt
from lately.sketches.noise import CollisionNoise

TRIALS = [300, pytest.param(2_000, marks=pytest.mark.long)]

tables = st.integers(1, 4).flatmap(
    lambda depth: st.integers(1, 30).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 40) | st.integers(0, 10**6), min_size=width, max_size=width),
            min_size=depth,
            max_size=depth,
        )
    )
)


def chances_of_all(table):
    """How likely the smallest of a key's cells has each amount of noise, if each row gives it a random cell."""
    amounts = sorted({amount for row in table for amount in row})
    above = [math.prod(sum(cell >= amount for cell in row) / len(row) for row in table) for amount in amounts]
    return amounts, [here - after for here, after in zip(above, [*above[1:], 0.0], strict=True)]


# -- twins -----------------------------------------------------------------------------------------------------------------


@given(tables, st.floats(1e-6, 0.999))
def test_a_margin_is_exceeded_as_rarely_as_it_says(table, chance):
    cells = np.array(table)
    margin = CollisionNoise(cells, cells).margin(chance)
    if margin is None:
        assert (1 / cells.shape[1]) ** cells.shape[0] > chance * (1 - 1e-9)
    else:
        # A key's noise is at most its cell of the sample, and any cell is as likely as any other.
        assert math.prod(float((row > margin).mean()) for row in cells) <= chance
        assert margin <= cells.max()


@given(tables, st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_values_are_medians_of_what_counts_may_be(table, smallest):
    """The count is the cell less the noise: weighted by its chance and by one over the count, half is on either side."""
    values = CollisionNoise(np.array(table), np.array(table)).estimates(np.array(smallest))
    amounts, chances = chances_of_all(table)
    for number, value in zip(smallest, values.tolist(), strict=True):
        weights = [(a, c / (number - a + 1)) for a, c in zip(amounts, chances, strict=True) if a <= number and c > 0]
        # Above 32, sizes are told apart to one part in sixteen, and the weight is steep where the noise is most of the cell.
        if not weights or (number > 32 and any(abs(amount - number) <= number / 2 for amount in amounts)):
            continue
        room = 2 + max(number, 33) / 16
        total, below = sum(w for _, w in weights), 0.0
        median_low = median_high = None
        for amount, weight in weights:
            below += weight
            if median_low is None and below >= 0.4 * total:
                median_low = amount
            if median_high is None and below >= 0.6 * total:
                median_high = amount
        assert number - median_high - room <= value <= number - median_low + room


def test_no_noise_is_subtracted_where_there_is_none():
    empty = np.zeros((2, 50), np.int64)
    assert CollisionNoise(empty, empty).estimates(np.array([0, 1, 70, 10**12])).tolist() == [0, 1, 70, 10**12]
    assert CollisionNoise(empty, empty).margin(0.01) == 0


def test_a_value_does_not_depend_on_what_else_is_asked():
    rng = np.random.default_rng(0)
    sketch = lt.EcmSketch(window=10**6, eps=0.05, delta=0.05)
    keys = rng.zipf(1.2, 50_000) % 3_000
    sketch.update(keys, np.arange(50_000))
    asked = np.unique(keys)
    answers = sketch.counts(asked)
    assert (sketch.counts(asked[::-1]).value[::-1] == answers.value).all()
    for at in rng.integers(0, asked.size, 50).tolist():
        assert sketch.count(int(asked[at])) == answers[at]


# -- promises --------------------------------------------------------------------------------------------------------------


def skewed(rng):
    return np.minimum(rng.zipf(1.3, 1_500), 500)


def uniform(rng):
    return rng.integers(0, 300, 1_500)


def one_heavy(rng):
    return np.where(rng.random(1_500) < 0.7, 0, rng.integers(1, 400, 1_500))


def distinct(rng):
    return np.arange(1_500)


def adversarial(rng):
    """Keys that share their lower bits, in bursts that end where levels of notes begin."""
    return np.repeat(np.arange(60) << 20, 25)


STREAMS = (skewed, uniform, one_heavy, distinct, adversarial)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", ["ecm", "topk"])
@pytest.mark.parametrize("trials", TRIALS)
def test_bounds_hold_as_often_as_they_say(trials, kind, stream, merged):
    """Counted over seeds with Hoeffding's slack: of a key that was chosen without a look at the sketch, in three ranges."""
    eps, delta = 0.1, 0.2
    keys = stream(np.random.default_rng(5))
    times = np.arange(keys.size) // 3
    now = int(times[-1])
    misses = {"bounds": 0, "eps": 0}
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        options = {"window": 400, "eps": eps, "delta": delta, "seed": seed, "merge_height": int(merged)}
        site_of = rng.integers(0, 3, keys.size) if merged else np.zeros(keys.size)
        sites = []
        for site in range(3 if merged else 1):
            sketch = lt.TopK(k=5, **options) if kind == "topk" else lt.EcmSketch(**options)
            sketch.update(keys[site_of == site], times[site_of == site])
            sites.append(sketch)
        sketch = lt.merge(sites) if merged else sites[0]
        between = [None, (100, None), (300, 50)][seed % 3]
        if between is None:
            inside, question = times > now - 400, {}
        elif between[1] is None:
            inside, question = times > now - 100, {"last": 100}
        else:
            inside, question = (times > now - 300) & (times <= now - 50), {"between": between}
        key = int(rng.choice(keys))
        truth = int((keys[inside] == key).sum())
        answer = sketch.count(key, **question)
        assert truth <= answer.high  # certain
        assert answer.low <= answer.value <= answer.high
        misses["bounds"] += truth < answer.low
        share = inside.sum() if between is None or between[1] is None else (times > now - 300).sum() + (times > now - 50).sum()
        misses["eps"] += abs(answer.value - truth) > eps * share
    assert misses["bounds"] <= hoeffding(trials, delta)
    assert misses["eps"] <= hoeffding(trials, delta)


@pytest.mark.parametrize(("eps", "delta"), [(0.1, 0.1), (0.02, 0.1), (0.02, 0.01)])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("trials", [60, pytest.param(2_000, marks=pytest.mark.long)])
def test_bounds_of_listed_keys_hold_as_often_although_they_were_chosen_for_their_estimates(trials, stream, eps, delta):
    """Where all keys are about as frequent, the keys on top are those with most collisions."""
    keys = np.tile(stream(np.random.default_rng(5)), 4)
    np.random.default_rng(1).shuffle(keys)
    times = np.arange(keys.size) // 3
    inside = times > times[-1] - 1_500
    truth = dict(zip(*np.unique(keys[inside], return_counts=True), strict=True))
    wrong = {"top": [], "heavy": []}
    for seed in range(trials):
        top = lt.TopK(k=5, window=3_000, eps=eps, delta=delta, seed=seed)
        top.update(keys, times)
        for name, rows in (("top", top.top(last=1_500)), ("heavy", top.heavy_hitters(phi=1.5 * eps, last=1_500))):
            assert all(truth.get(row.key, 0) <= row.count.high for row in rows)
            wrong[name] += [truth.get(row.key, 0) < row.count.low for row in rows]
    for misses in wrong.values():  # up to five of a sketch, which share their luck
        assert sum(misses) <= 5 * hoeffding(len(misses) / 5, delta)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("trials", TRIALS)
def test_sums_of_sites_hold_as_often_as_they_say(trials, stream):
    """Extracts of sites add up, their noise too."""
    delta, misses = 0.2, 0
    keys = stream(np.random.default_rng(6))
    times = np.arange(keys.size) // 3
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        site_of, total = rng.integers(0, 4, keys.size), lt.sketches.extracts.ExtractSum()
        for site in range(4):
            sketch = lt.EcmSketch(window=400, eps=0.1, delta=delta, seed=seed)
            sketch.update(keys[site_of == site], times[site_of == site])
            total.add(sketch.extract_range(last=200, now=int(times[-1])))
        key = int(rng.choice(keys))
        answer = sketch.view_of(total.result()).count(key)
        truth = int((keys[times > times[-1] - 200] == key).sum())
        assert truth <= answer.high
        misses += truth < answer.low
    assert misses <= hoeffding(trials, delta)


def test_values_are_nearer_than_upper_bounds_for_rare_keys_and_for_frequent_ones():
    """At equal bytes the average error of all keys and the relative error of the hundred most frequent: both halves count."""
    rng = np.random.default_rng(1)
    keys = rng.zipf(1.1, 400_000) % 60_000
    distinct_keys, truth = np.unique(keys[-200_000:], return_counts=True)
    top = np.argsort(-truth)[:100]
    for nbytes in (30_000, 150_000):
        new = lt.EcmSketch(window=lt.arrivals(200_000), nbytes=nbytes, delta=0.1)
        old = lt.EcmSketch(window=lt.arrivals(200_000), nbytes=nbytes, delta=0.1, counter="wave")
        errors = []
        for sketch in (new, old):
            sketch.update(keys)
            assert sketch.nbytes <= 1.02 * nbytes
            answers = sketch.counts(distinct_keys)
            off = np.abs(answers.value - truth)
            errors.append((off.mean(), (off / truth)[top].mean(), np.median(answers.high - answers.low)))
            assert (answers.low <= truth).mean() >= 0.9 - 0.02
            assert (answers.high >= truth).all()
        assert errors[0][0] < errors[1][0] / 10
        assert errors[0][1] < errors[1][1] / 5
        assert errors[0][2] < errors[1][2] / 5
