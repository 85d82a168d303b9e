"""What a Dyadic sketch promises, counted over seeds on streams that drift; alone, and merged from many sites."""

import math
import pickle
from collections import Counter

import numpy as np
import pytest
from dyadic_cases import SHARES, asked_once, build, drifting, frequencies_of, key_ranges, own_counts, pool, spread
from ecm_cases import feed
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow, between_keys, entropy, hoeffding, quantile, second_moment
from streams import streams

import lately as lt


@pytest.mark.parametrize("universe", [1000, 10**9])
def test_answers_miss_no_more_often_than_delta(universe):
    """Over seeds, a drifting stream each; counted with Hoeffding's slack for each kind of question and size of range."""
    eps, delta, seeds = 0.1, 0.2, 40
    missed, errors = {}, []
    for seed in range(seeds):
        stream = drifting(seed, 20_000, universe)
        now = int(stream.ticks[-1])
        sketch = lt.Dyadic(universe=universe, window=30_000, eps=eps, delta=delta, seed=1000 * seed)
        sketch.update(stream.cells, stream.ticks)
        rng = np.random.default_rng(seed)
        for question, start, stop in (
            ({}, now - 29_999, None),
            ({"last": 3000}, now - 2999, None),
            ({"last": 150}, now - 149, None),
            ({"between": (12_000, 4000)}, now - 11_999, now - 3999),
        ):
            frequencies = frequencies_of(stream, start, stop)
            scale = sum(frequencies_of(stream, start).values())
            scale += sum(frequencies_of(stream, stop).values()) if stop is not None else 0
            off, outside, *error = asked_once(sketch, frequencies, scale, rng, question)
            errors.append(error)
            for what, found in (("off", off), ("outside", outside)):
                for name, failed in found.items():
                    place = what, name, str(question)
                    missed[place] = missed.get(place, 0) + failed
    assert max(missed.values()) <= hoeffding(seeds, delta)
    # The proof is careful: in truth errors are a small part of what is promised.
    assert np.mean(errors, axis=0).max() < 0.25
    assert sum(missed.values()) <= 2


@pytest.mark.parametrize("universe", [1000, 2**32])
def test_a_key_with_a_share_of_just_phi_and_eps_is_listed_for_certain(universe):
    """However its nodes were counted: only what is certain may leave a key out."""
    eps = 0.1
    for seed in range(25):
        rng = np.random.default_rng(seed)
        keys = rng.choice(rng.integers(0, universe, 4), 6000)
        sketch = lt.Dyadic(universe=universe, window=10_000, eps=eps, delta=0.3, seed=1000 * seed)
        sketch.update(keys, np.arange(6000))
        for last in (500, 1777, 5998):
            found, counts = np.unique(keys[6000 - last :], return_counts=True)
            for key, count in zip(found.tolist(), counts.tolist(), strict=True):
                share = count / last
                if share > 2 * eps:
                    assert key in sketch.heavy_hitters(phi=share - eps, last=last).key.tolist()
                assert key in sketch.heavy_hitters(at_least=count, last=last).key.tolist()
                assert sketch.largest(last=last).high >= count


@pytest.mark.parametrize("universe", [1000, 2**32])
def test_light_keys_are_listed_no_more_often_than_delta(universe):
    """Theorem 5 of ECM-15: no key with a share of phi + eps is left out, ever; one with less than phi is rarely listed."""
    eps, delta, phi, seeds = 0.05, 0.2, 0.08, 40
    light = outside = trials = 0
    for seed in range(seeds):
        stream = drifting(seed, 8000, universe)
        now = int(stream.ticks[-1])
        sketch = lt.Dyadic(universe=universe, window=30_000, eps=eps, delta=delta, seed=1000 * seed)
        sketch.update(stream.cells, stream.ticks)
        for last in (400, 3000, 30_000):
            frequencies = frequencies_of(stream, now - last + 1)
            total = sum(frequencies.values())
            found = sketch.heavy_hitters(phi=phi, last=last)
            listed = set(found.key.tolist())
            assert listed >= {k for k, c in frequencies.items() if c >= (phi + eps) * total}
            assert all(row.count.high >= frequencies.get(row.key, 0) for row in found)
            assert max((c for k, c in frequencies.items() if k not in listed), default=0) <= found.missed
            fixed = {row.key for row in sketch.heavy_hitters(at_least=math.ceil(phi * total), last=last)}
            assert fixed >= {k for k, c in frequencies.items() if c >= phi * total}
            light += any(frequencies.get(k, 0) < phi * total for k in listed)
            light += any(frequencies.get(k, 0) < (phi - eps) * total for k in fixed)
            outside += any(frequencies.get(row.key, 0) not in row.count for row in found)
            trials += 1
    assert light <= hoeffding(2 * trials, delta)
    assert outside <= hoeffding(trials, delta)
    assert light + outside <= 2  # as above: the proof is careful


@pytest.mark.parametrize("universe", [1000, 2**32])
def test_moments_and_prefixes_miss_no_more_often_than_delta(universe):
    eps, delta, phi, seeds = 0.05, 0.2, 0.08, 25
    outside = trials = 0
    widths = []
    for seed in range(seeds):
        stream = drifting(seed, 8000, universe)
        now = int(stream.ticks[-1])
        sketch = lt.Dyadic(universe=universe, window=30_000, eps=eps, delta=delta, seed=1000 * seed)
        sketch.update(stream.cells, stream.ticks)
        for last in (400, 30_000):
            frequencies = frequencies_of(stream, now - last + 1)
            outside += max(frequencies.values()) not in sketch.largest(last=last)
            outside += second_moment(frequencies) not in sketch.self_join(last=last)
            outside += entropy(frequencies) not in sketch.entropy(last=last)
            listed = {(row.prefix, row.bits): row for row in sketch.hierarchical(phi, last=last)}
            threshold = (phi + eps) * sum(frequencies.values())
            own = own_counts(frequencies, listed, (universe - 1).bit_length(), 8)
            outside += any(count >= threshold for place, count in own.items() if place not in listed)
            outside += any(own.get(place, 0) not in row.own for place, row in listed.items())
            trials += 5
            largest = sketch.largest(last=last)
            widths.append((largest.high - largest.low) / sum(frequencies.values()))
    assert outside <= hoeffding(trials, delta)
    assert outside <= 2
    assert max(widths) <= 2 * eps


@pytest.mark.parametrize("delta", [0.5, 0.36])
def test_moments_miss_no_more_often_than_delta_however_many_keys_stand_out(delta):
    """A neighbour of a heavy key that shares a cell with another one looks heavy; of many neighbours, some do."""
    seeds, size, missed = 20, 150, Counter()
    for seed in range(seeds):
        sketch = lt.Dyadic(universe=2**20, window=1000, eps=0.003, delta=delta, seed=1000 * seed)
        keys = np.random.default_rng(seed).choice(2**20, size, replace=False)
        sketch.update(keys, 1, np.full(size, 100))
        missed["largest"] += 100 not in sketch.largest()
        missed["self_join"] += size * 100**2 not in sketch.self_join()
        missed["entropy"] += not sketch.entropy().low - 1e-9 <= math.log2(size) <= sketch.entropy().high + 1e-9
    assert max(missed.values()) <= seeds * delta


@pytest.mark.parametrize(("sites", "height"), [(1, 1), (2, 1), (7, 1), (64, 1), (8, 3)])
@pytest.mark.parametrize("universe", [1000, 2**32])
def test_merging_as_planned_ends_within_eps(universe, sites, height):
    """One stream scattered over sites whose clocks differ, merged at once or as a tree: as good as asked for."""
    eps, delta = 0.2, 0.2
    size, seeds = (400_000, 1) if sites >= 8 else (60_000, 4)
    missed, trials = 0, 0
    for seed in range(seeds):
        stream = drifting(seed, size, universe)
        now = int(stream.ticks[-1])
        rng = np.random.default_rng(seed)
        where = rng.integers(0, sites, len(stream))
        parts = []
        for site in range(sites):
            part = lt.Dyadic(universe=universe, window=10**6, eps=eps, delta=delta, seed=1000 * seed, merge_height=height)
            part.update(stream.cells[where == site], stream.ticks[where == site])
            parts.append(part)
        while len(parts) > 1:
            step = len(parts) if height == 1 else 2
            parts = [lt.merge(parts[i : i + step]) for i in range(0, len(parts), step)]
        (merged,) = parts
        assert merged.merges == (height if sites > 1 else 0)
        assert merged._parts[0].until.any() == (sites > 1)  # so many that merging did cost something
        for last in (2000, 20_000, 10**6):
            frequencies = frequencies_of(stream, now - last + 1)
            total = sum(frequencies.values())
            off, outside, *_ = asked_once(merged, frequencies, total, rng, {"last": last})
            heavy = merged.heavy_hitters(phi=0.25, last=last)
            assert set(heavy.key.tolist()) >= {k for k, c in frequencies.items() if c >= 0.45 * total}
            assert (merged.counts(heavy.key, last=last).high >= [frequencies.get(k, 0) for k in heavy.key.tolist()]).all()
            assert total in merged.total(last=last)
            missed += sum(off.values()) + sum(outside.values())
            trials += len(off) + len(outside)
    assert missed <= hoeffding(trials, delta)
    assert missed <= 1  # the proof is careful


@given(inputs=st.lists(streams(most=250, cells=41), min_size=1, max_size=5), window=st.sampled_from([20, 3000]))
def test_merged_sketches_bound_the_union(inputs, window):
    universe, twin, sites = 1000, NaiveWindow(window), []
    for stream in inputs:
        site, _ = build("integer", window, universe, eps=0.5)
        feed(site, twin, spread(stream, universe))
        sites.append(site)
    before = [site.to_bytes() for site in sites]
    flat, chain = lt.merge(sites), sites[0]
    for site in sites[1:]:
        chain = lt.merge([chain, site])
    assert [site.to_bytes() for site in sites] == before
    start = twin.now - sites[0].window.span
    live = sum(stream.weights[stream.ticks >= start].any() for stream in inputs)
    assert flat.merges == (live > 1)
    assert chain.merges <= len(sites) - 1
    keys = np.unique(pool(universe))
    for merged in (flat, chain, lt.from_bytes(flat.to_bytes()), pickle.loads(pickle.dumps(chain))):
        assert merged.now == twin.now
        for last in (window // 3, window):
            frequencies = twin.frequencies(twin.now - last + 1)
            answers = merged.counts(keys, last=last)
            exact = np.array([frequencies[k] for k in keys.tolist()])
            assert (answers.low <= exact).all()
            assert (exact <= answers.high).all()
            for lo, hi in key_ranges(universe, len(sites))[3:10]:
                assert between_keys(frequencies, lo, hi) in merged.count_range(lo, hi, last=last)
            if frequencies and sum(frequencies.values()):
                for q, answer in merged.quantile(SHARES, last=last):
                    assert quantile(frequencies, q) in answer


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"universe": 999}, "universe is 1000 in one and 999"),
        ({"eps": 0.1}, "eps is 0.3 in one and 0.1"),
        ({"seed": 5}, "seed is .* in one and 5"),
        ({"window": 200}, "window is .* in one and"),
        ({"merge_height": 2}, "merge_height is 0 in one and 2"),
    ],
)
def test_merging_says_what_differs(change, says):
    one = {"universe": 1000, "window": 100, "eps": 0.3, "delta": 0.3}
    with pytest.raises(lt.MergeError, match=says):
        lt.merge([lt.Dyadic(**one), lt.Dyadic(**(one | change))])
    with pytest.raises(lt.MergeError, match="Dyadic with a EcmSketch"):
        lt.merge([lt.Dyadic(**one), lt.EcmSketch(window=100, eps=0.3, delta=0.3)])
    with pytest.raises(lt.MergeError, match="windows of arrivals cannot be merged"):
        lt.merge([lt.Dyadic(**(one | {"window": lt.arrivals(5)}))] * 2)
