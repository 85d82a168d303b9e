"""Monitors draw secret hash functions; those who belong together share them, also when stored and restored."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from carrier import Carrier

import lately as lt
from lately.core.codec import Writer, sealed
from lately.core.keys import hash_keys
from lately.monitor import Count, Ecm, FastAms, Frequent, Monitor, SelfJoin
from lately.sketches.hashing import DEFAULT_SEED

ECM, AMS = Ecm(window=100, eps=0.1, delta=0.1), FastAms(eps=0.2, delta=0.1)
HASHES = hash_keys(np.arange(200))


def watch(sketch=ECM, **changes):
    more = {"often": Frequent(tau=50, theta=0.1), "one": Count(key=1, above=5)} if isinstance(sketch, Ecm) else {}
    return Monitor(sketch, {"skew": SelfJoin(theta=0.4), **more}, **changes)


def cells(monitor):
    return monitor.layouts[0].cells(HASHES).tolist()


@pytest.mark.parametrize("sketch", [ECM, AMS], ids=["ecm", "ams"])
def test_two_monitors_have_different_hash_functions(sketch):
    first, second = watch(sketch), watch(sketch)
    assert first.seed != second.seed
    assert cells(first) != cells(second)
    assert first.fingerprint != second.fingerprint
    assert DEFAULT_SEED not in (first.seed, second.seed)


@pytest.mark.parametrize("sketch", [ECM, AMS], ids=["ecm", "ams"])
def test_a_seed_that_is_given_is_used(sketch):
    first, second = (watch(replace(sketch, seed=7)) for _ in range(2))
    assert first.seed == second.seed == 7
    assert cells(first) == cells(second)
    assert first.fingerprint == second.fingerprint


def test_sites_of_monitors_that_drew_their_own_do_not_mix():
    coordinator = watch().coordinator([0])
    joining = watch().site(0).join()[0]
    with pytest.raises(lt.MergeError, match="with the same seed"):
        coordinator.receive(joining)


def test_a_pickled_monitor_keeps_its_seed():
    monitor = watch()
    twin = pickle.loads(pickle.dumps(monitor))
    assert (twin.seed, twin.fingerprint, cells(twin)) == (monitor.seed, monitor.fingerprint, cells(monitor))


@pytest.mark.parametrize("sketch", [ECM, AMS, FastAms(eps=0.2, delta=0.1, window=100)], ids=["ecm", "stream", "window"])
@pytest.mark.parametrize("scheme", ["functional", "geometric"])
def test_a_restored_site_keeps_its_hash_functions(sketch, scheme):
    """In another process, where an equal monitor has drawn another seed; all go on as if nothing had been."""
    monitor, elsewhere = watch(sketch, scheme=scheme), watch(sketch, scheme=scheme)
    carrier, rng = Carrier(monitor, range(2)), np.random.default_rng(3)
    for step in range(12):
        if step == 6:
            blobs = [carrier.coordinator.to_bytes(), *(site.to_bytes() for site in carrier.sites.values())]
            carrier.coordinator, *sites = (elsewhere.restore(blob) for blob in blobs)
            carrier.sites = {site.number: site for site in sites}
            assert all(cells(one.monitor) == cells(monitor) for one in (carrier.coordinator, *sites))
            assert [one.to_bytes() for one in (carrier.coordinator, *sites)] == blobs
        times = None if monitor.window is None else 10 + step
        carrier.update(step % 2, rng.integers(0, 30, 40), times)
        carrier.settle()
        carrier.check_rest()


def test_another_seed_that_is_given_refuses_what_is_stored():
    data = watch(Ecm(window=100, eps=0.1, delta=0.1, seed=1)).site(0).to_bytes()
    with pytest.raises(lt.MergeError, match="another seed"):
        watch(Ecm(window=100, eps=0.1, delta=0.1, seed=2)).restore(data)
    with pytest.raises(lt.MergeError, match="another monitor"):
        watch(Ecm(window=100, eps=0.2, delta=0.1, seed=1)).restore(data)
    assert watch().restore(data).monitor.seed == 1


def test_bytes_of_earlier_versions_have_the_default_seed():
    """They began with the fingerprint, and had no seed."""
    monitor = watch(Ecm(window=100, eps=0.1, delta=0.1, seed=DEFAULT_SEED))
    site = monitor.site(3)
    site.update([1, 2, 3], 10)
    out = Writer()
    out.u64(monitor.fingerprint)
    site.write(out)
    earlier = sealed(16, out)
    for reader in (monitor, watch()):
        restored = reader.restore(earlier)
        assert restored.monitor.seed == DEFAULT_SEED
        assert restored.to_bytes() == site.to_bytes()


def test_a_known_seed_finds_keys_that_cancel():
    """What a secret seed is for: with the public one a pair of keys with the same cell and opposite signs hides any count."""
    known = FastAms(eps=0.2, delta=0.4, seed=DEFAULT_SEED).layout()
    assert known.rows == 1
    places = known.cells(hash_keys(np.arange(2_000)))[0]
    pair = next((int(a), int(b)) for a in range(2_000) for b in np.flatnonzero(places == (places[a] ^ 1))[:1])

    def announced(seed):
        carrier = Carrier(Monitor(FastAms(eps=0.2, delta=0.4, seed=seed), SelfJoin(theta=0.5)), range(1))
        carrier.update(0, list(pair), counts=[10**6, 10**6])
        carrier.settle()
        return carrier.coordinator[""].value

    assert announced(DEFAULT_SEED) == 0
    assert np.median([announced(None) for _ in range(7)]) == 2e12  # of secret ones hardly any puts the pair together
