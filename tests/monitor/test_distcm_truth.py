"""DISTCM and its four sketches against the exact truth: bounds hold it as often as they say, whatever the weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow

import lately as lt
from lately.monitor.distcm import DistributedCountMin
from lately.monitor.messages import decode

KINDS = (lt.PerfectCountMin, lt.SimpleCountMin, lt.ProportionalCountMin, lt.SplitterCountMin)
KEYS = np.arange(9)


class QueryState:
    """Sites, their coordinator, and every arrival of each site, driven step by step."""

    def __init__(self, kind, arrivals, sites, push, seed=1, **size):
        window = lt.arrivals(20) if arrivals else 30
        like = kind(window=window, **({"eps": 0.4, "delta": 0.3} | size), seed=seed)
        self.arrivals, self.everywhere = arrivals, DistributedCountMin(like, push=push)
        self.places = [self.everywhere.site(number) for number in range(sites)]
        self.twins = [NaiveWindow(like.window.span) for _ in range(sites)]

    def carry(self, messages):
        for message in messages:
            self.everywhere.receive(decode(message.to_bytes()))

    def update(self, number, keys, time, counts):
        place, twin = self.places[number], self.twins[number]
        self.carry(place.update(keys, None if self.arrivals else time, counts))
        for key, count in zip(keys, np.ones(len(keys), np.int64) if counts is None else counts, strict=True):
            twin.add((twin.now or 0) + 1 if self.arrivals else time, int(key), int(count))

    def advance(self, time):
        for place, twin in zip(self.places, self.twins, strict=True):
            if place.sketch.now is not None:
                self.carry(place.advance(time))
                twin.now = time

    def truth(self, number):
        twin = self.twins[number]
        counts = twin.frequencies(twin.now - twin.span) if twin.now is not None else {}
        return np.array([counts.get(int(key), 0) for key in KEYS])


def steps(rng, watched, count, heaviest):
    """Bursts, silences, batches and weights of any size; after each step the sites' and the common answers can be checked."""
    time = 100
    for step in range(count):
        time += int(rng.choice([0, 1, 3, 14]))
        number = int(rng.integers(0, len(watched.places))) if step % 20 > 7 else 0
        size = int(rng.choice([1, 1, 2, 25]))
        counts = None if heaviest == 0 else rng.integers(0, heaviest + 1, size)
        watched.update(number, rng.integers(0, rng.choice([2, 9]), size), time, counts)
        if not watched.arrivals:
            watched.advance(time)
        yield step


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 2**32),
    sites=st.integers(1, 4),
    push=st.sampled_from([0.01, 0.1, 0.4]),
    arrivals=st.booleans(),
    heaviest=st.sampled_from([0, 1, 1000, 10**12]),
)
def test_bounds_that_are_certain_hold_the_truth(kind, seed, sites, push, arrivals, heaviest):
    """``high`` always; both bounds where the confidence is 1; and a value is never outside of its own bounds."""
    watched = QueryState(kind, arrivals, sites, push)
    for _ in steps(np.random.default_rng(seed), watched, 40, heaviest):
        exact = [watched.truth(number) for number in range(sites)]
        answers = [(watched.everywhere.counts(KEYS), sum(exact))]
        answers += [(place.sketch.counts(KEYS), truth) for place, truth in zip(watched.places, exact, strict=True)]
        for bounds, truth in answers:
            assert (bounds.low <= bounds.value).all()
            assert (bounds.value <= bounds.high).all()
            assert (truth <= bounds.high).all()
            assert bounds.confidence < 1 or (bounds.low <= truth).all()
        for place, truth in zip(watched.places, exact, strict=True):
            assert truth.sum() in place.sketch.total()


@pytest.mark.parametrize("arrivals", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_that_are_likely_hold_as_often_as_they_say(kind, arrivals):
    """Over many hash functions, the share of lower bounds above the truth stays within delta and three deviations."""
    wrong = {"common": [], "own": []}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        watched = QueryState(kind, arrivals, 2, 0.1, seed, delta=0.5, eps=0.6)
        for _ in steps(rng, watched, 25, (0, 50)[seed % 2]):
            pass
        exact = [watched.truth(number) for number in range(2)]
        common = watched.everywhere.counts(KEYS)
        wrong["common"].append((common.low > sum(exact)).mean())
        own = [(place.sketch.counts(KEYS).low > truth).mean() for place, truth in zip(watched.places, exact, strict=True)]
        wrong["own"].append(np.mean(own))
    for rates in wrong.values():
        assert np.mean(rates) <= 0.5 + 3 * np.std(rates) / np.sqrt(len(rates))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_weights_count_in_windows_of_arrivals(kind):
    """One arrival that weighs 1,000 in a window of 16: the bounds were 0..16, and excluded their own value."""
    everywhere = DistributedCountMin(kind(window=lt.arrivals(16), eps=0.3, delta=0.3), push=0.1)
    site = everywhere.site(0)
    for message in site.update(["a"], counts=[1000]):
        everywhere.receive(message)
    assert everywhere.count("a").value == 1000
    assert 1000 in everywhere.count("a")


@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_estimated_total_is_no_ceiling(kind):
    """One key has all arrivals of a window of time, whose total is itself an estimate: the bounds were 0..9 for 10."""
    everywhere = DistributedCountMin(kind(window=20, eps=0.9, delta=0.5), push=1e-6)
    site, twin = everywhere.site(0), NaiveWindow(everywhere.site(0).sketch.window.span)
    for time in np.cumsum(np.random.default_rng(2).integers(0, 3, 300)).tolist():
        for message in site.update(["a"], time):
            everywhere.receive(message)
        twin.add(time, "a")
        assert twin.since(twin.now - twin.span) in everywhere.count("a")


def test_a_window_that_doubles_behind_equal_cells_is_told():
    """SIMPLE starts anew between two equal bursts: its cells are those that were sent, its window holds both."""
    everywhere = DistributedCountMin(lt.SimpleCountMin(window=30, eps=0.4, delta=0.3), push=0.01)
    site = everywhere.site(0)
    start = next(t for t in range(1000, 1060) if _restarts_at(t))
    for time in (start - 1, start):
        for message in site.update(["a"] * 100, time):
            everywhere.receive(message)
    assert 200 in everywhere.count("a")


def _restarts_at(time):
    sketch = lt.SimpleCountMin(window=30, eps=0.4, delta=0.3)
    sketch.update(["a"], time - 1)
    sketch.advance(time)
    return sketch.count("a").value == 0
