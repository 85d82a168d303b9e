"""Merged ECM-sketches: bounds for the union of the streams, whatever the tree, the clocks and the counters."""

import functools
import operator

import numpy as np
import pytest
from ecm_cases import build
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow, count_min, hoeffding
from streams import make, streams

import lately as lt
from lately.core.plan import premerge_error


@pytest.mark.parametrize("counter", ["wave", "exphist"])
@given(inputs=st.lists(streams(most=150, cells=20), min_size=1, max_size=5), window=st.sampled_from([20, 3000]))
def test_merged_sketches_bound_the_union(counter, inputs, window):
    """Sites whose clocks differ, merged flat and as a chain: high is certain, the total is bracketed, inputs untouched."""
    twin = NaiveWindow(window)
    sites = []
    for stream in inputs:
        site = lt.EcmSketch(window=window, eps=0.2, delta=0.2, counter=counter)
        site.update(stream.cells, stream.ticks, stream.counts)
        sites.append(site)
        for tick, key, count in zip(stream.ticks, stream.cells, stream.weights, strict=True):
            twin.add(tick, int(key), count)
    before = [site.to_bytes() for site in sites]
    flat = lt.merge(sites)
    chain = sites[0]
    for site in sites[1:]:
        chain = lt.merge([chain, site])
    assert [site.to_bytes() for site in sites] == before
    # A level where two or more hold something: one that has only old arrivals, or none yet, costs nothing.
    start = twin.now - sites[0].window.span
    assert flat.merges == (sum(stream.weights[stream.ticks >= start].any() for stream in inputs) > 1)
    assert chain.merges <= len(sites) - 1
    assert flat.error == pytest.approx((1 + 0.2) ** (1 + flat.merges) - 1)
    for merged in (flat, chain, functools.reduce(operator.or_, sites)):
        assert merged.now == twin.now
        for last in (window // 3, window):
            exact = np.array([twin.since(twin.now - last + 1, k) for k in range(20)])
            assert (merged.counts(np.arange(20), last=last).high >= exact).all()
            assert twin.since(twin.now - last + 1) in merged.total(last=last)


def test_merging_as_planned_ends_within_eps():
    """merge_height=3 and a tree of 8 sites: the counters' own error stays below eps for every key and range."""
    eps = 0.2
    streams_ = [make(seed, 3000, 30, 1, 0) for seed in range(8)]
    sites = []
    for stream in streams_:
        site = lt.EcmSketch(window=1500, eps=eps, delta=0.01, merge_height=3, counter="wave")
        site.update(stream.cells, stream.ticks)
        sites.append(site)
    assert sites[0]._parts[0].eps == premerge_error(eps, 3)
    while len(sites) > 1:
        sites = [lt.merge(pair) for pair in zip(sites[::2], sites[1::2], strict=True)]
    merged = sites[0]
    assert merged.merges == 3
    assert merged.error == pytest.approx(eps)
    for last in (50, 400, 1500):
        union = sum(np.bincount(s.cells[s.ticks > merged.now - last], minlength=30) for s in streams_)
        table = count_min({k: int(c) for k, c in enumerate(union)}, merged.rows.words, merged.width).reshape(-1)
        found = merged.extract(last=last).table.reshape(-1)
        assert (np.abs(found - table) <= eps * table).all()


def test_merging_shared_waves_as_planned_ends_within_eps():
    """merge_height=3 and a tree of 8 sites: counts are within eps of all arrivals, but for a share of delta."""
    eps, delta, streams_ = 0.2, 0.2, [make(seed, 3000, 30, 1, 0) for seed in range(8)]
    off = trials = 0
    for seed in range(30):
        sites = []
        for stream in streams_:
            sites.append(lt.EcmSketch(window=1500, eps=eps, delta=delta, merge_height=3, seed=seed))
            sites[-1].update(stream.cells, stream.ticks)
        while len(sites) > 1:
            sites = [lt.merge(pair) for pair in zip(sites[::2], sites[1::2], strict=True)]
        (merged,) = sites
        assert merged.merges == 3
        assert merged.error <= eps
        for last in (50, 400, 1500):
            union = sum(np.bincount(s.cells[s.ticks > merged.now - last], minlength=30) for s in streams_)
            answer = merged.count(seed, last=last)
            assert answer.high >= union[seed]
            off += abs(answer.value - union[seed]) > eps * union.sum() or answer.low > union[seed]
            trials += 1
    assert off <= hoeffding(trials, delta)


def test_windows_of_arrivals_refuse_to_merge():
    sketch, _ = build("arrivals", 100)
    with pytest.raises(lt.MergeError, match=r"windows of arrivals cannot be merged.*window='1h'"):
        lt.merge([sketch, sketch])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"eps": 0.1}, "eps is 0.2 in one and 0.1 in another"),
        ({"delta": 0.1}, "delta is 0.2 in one and 0.1"),
        ({"seed": 5}, "seed is .* in one and 5"),
        ({"counter": "exphist"}, "counter is 'shared' in one and 'exphist'"),
        ({"window": 200}, r"window is Window\(100, tick=1\) in one and Window\(200, tick=1\)"),
        ({"counter": "wave"}, "counter is 'shared' in one and 'wave'"),
        ({"merge_height": 2}, "merge_height is 0 in one and 2"),
        ({"lateness": 5}, "lateness is 0 in one and 5"),
    ],
)
def test_merging_says_what_differs(change, says):
    one = {"window": 100, "eps": 0.2, "delta": 0.2}
    with pytest.raises(lt.MergeError, match=says):
        lt.merge([lt.EcmSketch(**one), lt.EcmSketch(**(one | change))])
    with pytest.raises(lt.MergeError, match="EcmSketch with a WindowCounter"):
        lt.merge([lt.EcmSketch(**one), lt.WindowCounter(window=100, eps=0.2)])


def test_what_would_overflow_is_refused_before_it_is_merged():
    one = lt.EcmSketch(window=100, eps=0.3, delta=0.3)
    one.update("a", 5, 2**61)
    with pytest.raises(lt.MergeError, match=r"more than 2\*\*62"):
        lt.merge([one, one, one])
    deep = lt.EcmSketch(window=100, eps=0.3, delta=0.3)
    deep.update("a", 5)
    site = deep.copy()
    for _ in range(255):
        deep = lt.merge([deep, site])
    assert lt.from_bytes(deep.to_bytes()).merges == 255
    for merge in (lambda: deep | site, lambda: lt.merge([site, deep]), lambda: site | site | deep):
        with pytest.raises(lt.MergeError, match=r"more than 255 levels of merging; merge many sketches in one call"):
            merge()


@pytest.mark.parametrize("counter", ["wave", "exphist"])
def test_trees_of_merges_do_not_drift(counter):
    """Lumps of powers of two must not line up with what is retained: over 64 sites the mean error stays near zero."""
    ticks = np.arange(200_000)
    sites = np.random.default_rng(0).integers(0, 64, ticks.size)
    counters = []
    for site in range(64):
        one = lt.WindowCounter(window=10**6, eps=0.1, counter=counter)
        one.add(ticks[sites == site])
        counters.append(one)
    while len(counters) > 1:
        counters = [lt.merge(pair) for pair in zip(counters[::2], counters[1::2], strict=True)]
    lasts = np.unique(np.geomspace(1000, 150_000, 300).astype(int))
    errors = [(counters[0].count(last=int(last)).value - (last + 1)) / (last + 1) for last in lasts]
    assert abs(np.mean(errors)) < 0.04  # without care for where lumps end it is -0.07
    assert np.mean(np.abs(errors)) < 0.07


@pytest.mark.parametrize("counter", ["wave", "exphist"])
def test_the_loosest_eps_can_be_merged_too(counter):
    """Found by forged bytes: just below 1 a wave had one entry a level, and merging it divided by zero."""
    one = lt.WindowCounter(window=100, eps=np.nextafter(1, 0), counter=counter)
    one.add(np.arange(300))
    for merged in (one | one, lt.merge([one | one, one]), lt.merge([lt.merge([one, one]), one])):
        assert merged.count(last=50).low <= merged.count(last=50).value
    twice = lt.merge([one, one])
    once = sum(t > 299 - 51 for t in range(300)) if 51 in one.count(last=50) else 50
    assert 2 * once in twice.count(last=50)
    assert 3 * once in lt.merge([twice, one]).count(last=50)
