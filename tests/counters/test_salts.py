"""Randomized waves whose salts could coincide: copies, templates, stored ones. They merge like strangers, or are refused."""

import functools
import operator
import pickle

import numpy as np
import pytest

import lately as lt
from lately.counters import randwave


@pytest.fixture(autouse=True)
def the_same_salts_in_every_run(monkeypatch):
    rng = np.random.default_rng(17)
    monkeypatch.setattr(randwave, "_drawn_salt", lambda: int(rng.integers(0, 2**63)))


COPIES = {
    "copy": lambda one: one.copy(),
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
    "from_bytes": lambda one: lt.from_bytes(one.to_bytes()),
    "merge of one": lambda one: lt.merge([one]),
    "copy of a copy": lambda one: lt.from_bytes(one.copy().to_bytes()),
}
copies = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES.keys())


def wave(salt=None, **options):
    return lt.WindowCounter(**({"window": 10**6, "eps": 0.3, "counter": "randwave", "salt": salt, "samples": 2} | options))


@copies
def test_sites_that_begin_with_a_copy_of_one_template_are_independent(copied):
    """64 sites with one salt merge to far too little, or to nothing; these must be right on average and within their bounds."""
    ratios, inside = [], 0
    for seed in range(16):
        rng = np.random.default_rng(seed)
        template = wave()
        sites = [copied(template) for _ in range(64)]
        for site in sites:
            site.add(np.sort(rng.integers(0, 1000, 300)))  # all at the same positions
        answer = lt.merge(sites).count()
        ratios.append(answer.value / (64 * 300))
        inside += 64 * 300 in answer
    assert abs(np.mean(ratios) - 1) <= 4 * np.std(ratios) / np.sqrt(16) + 0.02
    assert inside >= 16 * answer.confidence - 3 * np.sqrt(16 * 0.95 * 0.05)


@copies
def test_what_a_copy_counts_is_independent_of_its_past(copied):
    """One past that only the original brings in, and copies that have outlived it: the union is unbiased."""
    ratios = []
    for seed in range(12):
        original = wave(window=1000)
        original.add(np.arange(500))
        later = [copied(original) for _ in range(16)]
        for site in later:
            site.add(np.sort(np.random.default_rng(seed).integers(5000, 5500, 400)))
        answer = lt.merge(later).count()
        ratios.append(answer.value / (16 * 400))
    assert abs(np.mean(ratios) - 1) <= 4 * np.std(ratios) / np.sqrt(12) + 0.02


@copies
def test_the_same_arrivals_are_not_merged_twice(copied):
    one = wave()
    one.add(np.arange(500))
    twin = copied(one)
    grown = copied(one)
    grown.add(np.arange(500, 600))
    other = wave()
    other.add(np.arange(50))
    both = lt.merge([one, other])
    for things in ([one, twin], [one, grown], [grown, twin], [both, twin], [other, both], [one, one], [copied(both), other]):
        for merge in (lt.merge, functools.partial(functools.reduce, operator.or_)):
            with pytest.raises(
                lt.MergeError, match=r"drawn with the same salt, \d+: .*leave salt= out or give each site its own"
            ):
                merge(things)
    assert lt.merge([twin, other]).count().value > 0


@copies
def test_given_salts_are_kept_and_refused_where_they_meet(copied):
    one, other, same = wave(7), wave(8), wave(7)
    for site in (one, other, same):
        site.add(np.arange(500))
    twin = copied(one)
    assert twin.to_bytes() == one.to_bytes()
    for site in (one, twin, same):  # reproducible: the same salt, the same draws
        site.add(np.arange(500, 900))
    assert one.to_bytes() == twin.to_bytes() == same.to_bytes()
    with pytest.raises(lt.MergeError, match="the same salt, 7"):
        lt.merge([one, same])
    assert lt.merge([one, other]).merges == 0
    assert lt.merge([wave(7), same]).to_bytes() == same.to_bytes()  # one that counted nothing has no samples
    same.advance(3 * 10**6)
    same.add([3 * 10**6])
    assert lt.merge([one, same]).count().value == 1  # the samples of one have left the window


@copies
def test_bytes_of_a_copy_are_those_of_the_original(copied):
    for one in (wave(), wave(3)):
        for _ in range(2):
            twin = copied(one)
            assert twin.to_bytes() == one.to_bytes()
            assert lt.from_bytes(twin.to_bytes()).to_bytes() == one.to_bytes()
            one.add(np.arange(300))
    with_others = lt.merge([wave(5), wave(6)])
    assert copied(with_others).to_bytes() == with_others.to_bytes()


def test_a_sketch_that_is_stored_after_every_batch_does_not_grow():
    """Read, updated, stored, again and again: the salts of what has left the window are forgotten, others are bounded."""
    one, sizes = wave(window=100), []
    for batch in range(300):
        one.add(np.arange(batch * 20, batch * 20 + 20))
        one = lt.from_bytes(one.to_bytes())
        sizes.append(len(one.to_bytes()))
        assert 101 in one.count() or 100 in one.count() or batch < 5
    assert max(sizes[150:]) < 1.5 * max(sizes[20:60])
    assert len(one._parts[0].salts) <= 10


def test_sketches_of_randomized_waves():
    build = functools.partial(lt.EcmSketch, window=1000, eps=0.5, delta=0.5, counter="randwave", samples=2)
    template = build()
    sites = [pickle.loads(pickle.dumps(template)) for _ in range(8)]
    for site in sites:
        site.update(np.arange(600) % 3, np.arange(600))
    merged = functools.reduce(operator.or_, sites)
    assert merged.merges == 0 or merged._parts[0].height == 0
    assert abs(merged.count(0).value - 1600) < 800
    with pytest.raises(lt.MergeError, match="the same salt"):
        merged | sites[3]
    stored = lt.from_bytes(merged.to_bytes())
    with pytest.raises(lt.MergeError, match="the same salt"):
        lt.merge([stored, sites[0]])
