"""Frequent keys over all sites: who is listed is frequent enough, who is not is not too frequent, and limits are few."""

import math
import os
from collections import Counter

import numpy as np
import pytest
from carrier import Carrier
from hypothesis import given, settings
from hypothesis import strategies as st

import lately as lt
from lately.monitor import Ecm, Frequent, Monitor, SelfJoin
from lately.monitor.messages import KeyCount, KeyLimits

SOAK = os.environ.get("LATELY_SOAK", "") not in ("", "0")
pytestmark = [pytest.mark.slow] if SOAK else []
some = settings(max_examples=2_000 if SOAK else 25)

WINDOW, EPS = 30, 0.4
NAMES = ("text", 7, ("a", 1), "θ", 2**40, -3)


def watching(tau, theta, scheme="functional", **more):
    return Monitor(
        Ecm(window=WINDOW, eps=EPS, delta=0.2, seed=20_120_615),
        {"often": Frequent(tau=tau, theta=theta), **more},
        scheme=scheme,
    )


class Exact:
    """Beside the sites, every event: what is truly in the window of each site, as late as it is there."""

    def __init__(self, tau, theta, sites, scheme="functional", **carried):
        self.tau, self.theta = tau, theta
        self.carrier = Carrier(watching(tau, theta, scheme), range(sites), **carried)
        self.events = {number: [] for number in range(sites)}
        self.now = 100
        for number in range(sites):  # until all have joined, nobody has limits
            self.count(number, f"first of {number}")
        self.carrier.settle()

    def count(self, number, key, count=1):
        self.batch(number, [key] * count)

    def batch(self, number, keys, ticks=None):
        ticks = [self.now] * len(keys) if ticks is None else ticks
        self.events.setdefault(number, []).extend(zip(ticks, keys, strict=True))
        self.now = max(self.now, ticks[-1])
        tuples = any(isinstance(key, tuple) for key in keys)
        for key in keys if tuples else ():
            self.carrier.update(number, [key], self.now)
        if not tuples:
            self.carrier.update(number, keys, ticks)

    def pass_time(self, ticks):
        self.now += ticks
        self.carrier.advance(self.now)

    def frequencies(self):
        counts = Counter()
        for number, site in self.carrier.sites.items():
            now = site._streams.clocks[0]
            counts.update(key for tick, key in self.events.get(number, []) if now is not None and tick > now - WINDOW)
        return counts

    @property
    def listed(self):
        return self.carrier.coordinator["often"].counts

    def check(self, allowed=0.0):
        """``allowed`` is what sites that came later had before anybody watched them."""
        self.carrier.check()  # soundness
        if self.carrier.flying or not self.carrier.has_begun():
            return
        eps = math.sqrt(1 + EPS) - 1
        for key, count in self.frequencies().items():
            if key not in self.listed:
                assert count * (1 - eps) < (1 + self.theta) * self.tau + allowed, f"{key!r} came {count} times: {self.listed}"

    def rest(self):
        self.carrier.settle()
        self.carrier.check_rest()
        self.check()


events = st.lists(
    st.one_of(
        st.tuples(st.just("count"), st.integers(0, 4), st.sampled_from(NAMES), st.integers(1, 12)),
        st.tuples(st.just("everywhere"), st.sampled_from(NAMES), st.integers(1, 4)),
        st.tuples(st.just("time"), st.integers(1, WINDOW + 5)),
        st.tuples(st.just("tick by tick"), st.integers(1, WINDOW + 5)),
    ),
    min_size=1,
    max_size=20,
)
parameters = {
    "tau": st.sampled_from([1, 2, 3.5, 8, 20]),
    "theta": st.sampled_from([0.0, 0.1, 0.5]),
    "sites": st.integers(1, 5),
    "scheme": st.sampled_from(["functional", "geometric"]),
    "acts": events,
}


def play(exact, sites, acts, after):
    for act, *content in acts:
        if act == "count":
            number, key, count = content
            for _ in range(count):
                exact.count(number % sites, key)
                after()
        elif act == "everywhere":
            key, rounds = content
            for number in list(range(sites)) * rounds:
                exact.count(number, key)
                after()
        else:
            for _ in range(content[0] if act == "tick by tick" else 1):
                exact.pass_time(1 if act == "tick by tick" else content[0])
                after()


@some
@given(**parameters)
def test_event_by_event(tau, theta, sites, scheme, acts):
    exact = Exact(tau, theta, sites, scheme)
    play(exact, sites, acts, exact.rest)


@some
@given(**parameters, seed=st.integers(0, 2**32), share=st.sampled_from([0.1, 0.5, 0.9]))
def test_messages_late_twice_and_in_any_order(tau, theta, sites, scheme, acts, seed, share):
    exact = Exact(tau, theta, sites, scheme, twice=0.3, seed=seed)

    def after():
        exact.carrier.some(share)
        exact.check()

    play(exact, sites, acts, after)
    exact.rest()


@some
@given(seed=st.integers(0, 2**32), tau=st.sampled_from([2, 10, 40]), theta=st.sampled_from([0.0, 0.3]), sites=st.integers(1, 4))
def test_batches(seed, tau, theta, sites):
    """Within a batch keys leave the window and come again; their site is answered only afterwards."""
    rng, exact = np.random.default_rng(seed), Exact(tau, theta, sites)
    for _ in range(10):
        size = int(rng.choice([1, 10, 80]))
        ticks = exact.now + np.sort(rng.integers(0, int(rng.choice([1, 5, 3 * WINDOW])), size))
        keys = rng.zipf(1.5, size) % 9
        exact.batch(int(rng.integers(sites)), keys.tolist(), ticks.tolist())
        exact.rest()
        exact.pass_time(0)
        exact.rest()


def test_a_key_that_leaves_and_comes_again_in_one_batch_is_listed():
    """Its limits are dropped for what it was when it left; then it must be seen that it is back."""
    exact = Exact(10, 0.1, 1)
    exact.batch(0, ["x"] * 20)
    exact.rest()
    assert "x" in exact.listed
    exact.batch(0, ["y"] + ["x"] * 50, [exact.now + 2 * WINDOW] * 51)
    exact.rest()
    assert "x" in exact.listed


@pytest.mark.parametrize("key", NAMES)
def test_keys_are_listed_as_they_came(key):
    exact = Exact(5, 0.0, 3)
    for _ in range(3):
        for number in range(3):
            exact.count(number, key)
            exact.rest()
    assert list(exact.listed) == [key]
    assert type(next(iter(exact.listed))) is type(key)


def test_tau_and_no_tolerance_mean_exactly_tau():
    exact = Exact(6, 0.0, 3)
    for count in range(1, 10):
        exact.count(count % 3, "x")
        exact.rest()
        assert ("x" in exact.listed) == (count >= 6)


def test_fewer_than_one_for_every_site():
    """tau = 2 at 6 sites: a cap of one at each, so that every key is spoken of."""
    exact = Exact(2, 0.0, 6)
    exact.count(3, "x")
    exact.rest()
    assert "x" not in exact.listed
    exact.count(5, "x")
    exact.rest()
    assert exact.listed["x"] == 2


def test_silence_takes_keys_off_the_list():
    exact = Exact(10, 0.2, 3)
    for number in range(3):
        exact.batch(number, ["x"] * 5)
        exact.pass_time(3)
        exact.rest()
    assert "x" in exact.listed
    seen = []
    for _ in range(WINDOW + 1):
        exact.pass_time(1)
        exact.rest()
        seen.append("x" in exact.listed)
    assert seen[0]
    assert not seen[-1]
    assert seen == sorted(seen, reverse=True)


def test_the_most_frequent_come_first():
    exact = Exact(3, 0.0, 2)
    for key, count in (("few", 4), ("many", 12), ("some", 7)):
        exact.batch(0, [key] * count)
        exact.rest()
        exact.batch(1, [key] * count)
        exact.rest()
    assert list(exact.listed) == ["many", "some", "few"]
    assert exact.carrier.coordinator["often"].min_count == 3


def test_limits_of_keys_that_fade_are_dropped():
    """A long stream whose frequent keys change all the time: neither sites nor coordinator remember them all."""
    exact, most = Exact(15, 0.2, 3), 0
    for step in range(300):
        for _ in range(8):  # more than its share of tau, so that all sites get limits for it
            exact.count(step % 3, step)
            exact.carrier.settle()
        exact.pass_time(2)
        exact.rest()
        exact.events = {n: [e for e in es if e[0] >= exact.now - WINDOW] for n, es in exact.events.items()}
        most = max(most, *(len(site._frequent) for site in exact.carrier.sites.values()))
    assert len({message.key_hash for message in exact.carrier.log if isinstance(message, KeyCount)}) >= 300
    assert most < 100
    assert len(exact.carrier.coordinator._frequent._keys) < 100


def test_other_queries_beside():
    monitor = watching(10, 0.1, skew=SelfJoin(theta=0.3))
    carrier, now = Carrier(monitor, range(3)), 100
    rng = np.random.default_rng(1)
    for step in range(400):
        now += step % 2
        carrier.update(int(rng.integers(3)), rng.zipf(1.7, 3) % 50, now)
        carrier.settle()
        carrier.check_rest()
    assert carrier.coordinator["often"].counts
    assert carrier.coordinator["skew"].value > 0


# -- sites that come and go ----------------------------------------------------------------------------------------------


@some
@given(seed=st.integers(0, 2**32), tau=st.sampled_from([3, 10]), theta=st.sampled_from([0.0, 0.3]))
def test_sites_that_come_and_go(seed, tau, theta):
    """Whoever is listed is frequent, always; after a join the rest may be short by the new site's share, for one window."""
    rng, exact = np.random.default_rng(seed), Exact(tau, theta, 2)
    fresh, since = 2, -math.inf
    for _ in range(60):
        act, sites = rng.random(), sorted(exact.carrier.sites)
        if act < 0.06 and len(sites) < 5:
            exact.carrier.join(fresh)
            exact.count(fresh, int(rng.integers(4)), int(rng.integers(1, 8)))
            fresh, since = fresh + 1, exact.now
        elif act < 0.1 and len(sites) > 1:
            exact.carrier.leave(int(rng.choice(sites)))
        elif act < 0.3:
            exact.pass_time(int(rng.integers(1, WINDOW)))
        else:
            exact.count(int(rng.choice(sites)), int(rng.integers(4)), int(rng.integers(1, 3)))
        exact.carrier.settle()
        exact.carrier.check_rest()
        exact.check(allowed=(1 + theta) * tau + 8 if exact.now <= since + WINDOW else 0.0)


def test_a_leaver_takes_its_keys_along():
    exact = Exact(10, 0.0, 2)
    exact.batch(0, ["x"] * 12)
    exact.rest()
    exact.batch(1, ["y"] * 12)
    exact.rest()
    assert set(exact.listed) == {"x", "y"}
    exact.carrier.leave(0)
    exact.rest()
    assert set(exact.listed) == {"y"}


def test_the_last_leaver_leaves_an_empty_list():
    exact = Exact(10, 0.0, 1)
    exact.batch(0, ["x"] * 12)
    exact.rest()
    exact.carrier.leave(0)
    exact.carrier.settle()
    assert exact.listed == {}


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"tau": 0, "theta": 0.1}, r"tau=0.*at least 1"),
        ({"tau": True, "theta": 0.1}, "tau=True"),
        ({"tau": 10, "theta": 1.0}, r"theta=1\.0.*from 0 to below 1"),
        ({"tau": 10, "theta": -0.1}, "theta=-0.1"),
    ],
)
def test_bad_parameters_are_refused(parameters, match):
    with pytest.raises(lt.ParameterError, match=match):
        Frequent(**parameters)


def test_one_list_to_a_monitor_over_ecm_sketches():
    ecm, often = Ecm(window=WINDOW, eps=0.3, delta=0.3, seed=20_120_615), Frequent(tau=3, theta=0.1)
    for sketch, queries, scheme in (
        (ecm, {"a": often, "b": often}, "functional"),
        (lt.monitor.FastAms(eps=0.1, delta=0.1, seed=20_120_615), {"a": often}, "functional"),
        (ecm, {"a": often}, "push"),
        (ecm, {"a": often}, "ship"),
        (ecm, {"a": often}, "oracle"),
    ):
        with pytest.raises(lt.ParameterError, match=r"frequent keys|Ecm"):
            Monitor(sketch, queries, scheme=scheme)


def test_a_site_that_watches_no_keys_refuses_limits():
    monitor = Monitor(Ecm(window=WINDOW, eps=0.3, delta=0.3, seed=20_120_615), {"skew": SelfJoin(theta=0.3)})
    carrier = Carrier(monitor, [0])
    carrier.update(0, ["x"], 1)
    carrier.settle()
    with pytest.raises(lt.InputError, match="KeyLimits for another monitor than that of site 0"):
        carrier.sites[0].receive(KeyLimits(0, 2, 5, True, 3))
    with pytest.raises(lt.InputError, match="a KeyCount came to a coordinator of scheme='functional'"):
        carrier.coordinator.receive(KeyCount(0, 3, 5, 3))
