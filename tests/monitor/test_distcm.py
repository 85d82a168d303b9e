"""DISTCM: at every moment the coordinator's cells are within the skew of what the sites have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.monitor.distcm import CountMinSite, DistributedCountMin
from lately.monitor.messages import CellsMessage, Message, decode

KINDS = (lt.PerfectCountMin, lt.SimpleCountMin, lt.ProportionalCountMin, lt.SplitterCountMin)


def coordinator(kind=lt.PerfectCountMin, push=0.1, window=100):
    return DistributedCountMin(kind(window=window, eps=0.3, delta=0.3), push=push)


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 2**32),
    sites=st.integers(1, 5),
    push=st.sampled_from([0.01, 0.1, 0.4]),
    arrivals=st.booleans(),
    silent=st.booleans(),
)
def test_the_skew_is_never_exceeded(kind, seed, sites, push, arrivals, silent):
    """Event by event, with bursts at one site, and also when streams fall silent and only time passes."""
    rng = np.random.default_rng(seed)
    everywhere = coordinator(kind, push, lt.arrivals(40) if arrivals else 30)
    places = [everywhere.site(number) for number in range(sites)]
    time = 100
    for step in range(120):
        site = places[int(rng.integers(0, sites)) if step % 40 > 15 else 0]
        time += int(rng.choice([0, 1, 3]))
        keys = rng.integers(0, 6, int(rng.choice([1, 1, 20])))
        messages = site.update(keys, None if arrivals else time)
        if not arrivals:
            for place in places:
                messages += place.advance(time) if place.sketch.now is not None else []
        for message in messages:
            assert everywhere.receive(decode(message.to_bytes())) == []
        truth = sum(place.sketch.cells() for place in places)
        assert np.abs(everywhere.cells() - truth).max() <= everywhere.skew
    if silent and not arrivals:
        for place in places:
            for message in place.advance(time + 1000):
                everywhere.receive(message)
        assert everywhere.cells().sum() <= everywhere.skew * everywhere.cells().size


def test_answers_and_bytes():
    everywhere = coordinator()
    sites = [everywhere.site(number) for number in range(4)]
    sent = 0
    for number, site in enumerate(sites):
        for message in site.update(["a"] * 10 + ["b"] * number, 50):
            sent += len(message.to_bytes())
            everywhere.receive(message)
    assert everywhere.nbytes == sent
    assert everywhere.messages == 4
    assert everywhere.sites == [0, 1, 2, 3]
    assert everywhere.skew == pytest.approx(0.1 * 46)
    assert 40 in everywhere.count("a")
    assert everywhere.counts(["a", "b"]).value.tolist() == [40, 6]


def test_it_sends_far_less_than_everything():
    everywhere = DistributedCountMin(lt.SplitterCountMin(window=lt.arrivals(20_000), eps=0.1, delta=0.5), push=0.1)
    site, rng = everywhere.site(7), np.random.default_rng(3)
    for _ in range(1000):
        for message in site.update(rng.zipf(1.5, 100) % 1000):
            everywhere.receive(message)
    assert everywhere.messages < 100_000 / 2_000 + 10
    assert everywhere.nbytes < 100_000 / 50


def test_old_and_repeated_messages_change_nothing():
    everywhere = coordinator(push=0.01)
    site = everywhere.site(1)
    first, second = (site.update(["a"], time)[0] for time in (10, 11))
    for message in (second, first, second):
        everywhere.receive(message)
    assert everywhere.count("a").value == 2
    assert everywhere.messages == 3


def test_foreign_messages_are_refused():
    everywhere = coordinator()
    with pytest.raises(lt.MergeError, match="sent 3 cells, not"):
        everywhere.receive(CellsMessage(1, 1, 3, np.ones(3, np.int64)))
    with pytest.raises(lt.InputError, match="a Message came to a DistributedCountMin"):
        everywhere.receive(Message(1, 1))
    with pytest.raises(lt.InputError, match="came to a site of DISTCM; carry it to the coordinator"):
        everywhere.site(0).receive(Message(1, 1))
    assert everywhere.messages == 0


def test_bad_parameters_are_refused():
    with pytest.raises(lt.ParameterError, match="EcmSketch is not a windowed Count-Min"):
        DistributedCountMin(lt.EcmSketch(window=100, eps=0.1, delta=0.1))
    with pytest.raises(lt.ParameterError, match="push=0"):
        coordinator(push=0)
    with pytest.raises(lt.ParameterError, match="site=-1"):
        coordinator().site(-1)


def test_sites_begin_empty_and_apart():
    sketch = lt.SimpleCountMin(window=100, eps=0.3, delta=0.3)
    sketch.update(["a"], [5])
    everywhere = DistributedCountMin(sketch)
    first, second = everywhere.site(1), everywhere.site(2)
    first.update(["b"], [6])
    assert isinstance(first, CountMinSite)
    assert second.sketch.total().value == 0
    assert first.sketch.total().value == 1
