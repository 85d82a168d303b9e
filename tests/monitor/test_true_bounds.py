"""Announcement bounds hold the true value, worked out from the events alone, at least as often as their confidence says."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from carrier import Carrier
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.monitor import (
    Count,
    DistributedCountMin,
    Ecm,
    FastAms,
    InnerProduct,
    KeyRange,
    Monitor,
    RangeSum,
    SelfJoin,
    simulate,
)
from lately.monitor.true_bounds import Evidence, true_bounds

SEEDS = 24
WINDOW, SITES, KEYS = 100, 3, 400


def allowed(failure, seeds):
    """How many of the seeds may fail, each as likely as this: more do with a probability of 0.001 at the most (Hoeffding)."""
    return 0 if failure <= 0 else (failure + math.sqrt(math.log(1000) / (2 * seeds))) * seeds


def uniform(rng, size):
    return rng.integers(0, KEYS, size)


def skewed(rng, size):
    return rng.zipf(1.5, size) % KEYS


def shifting(rng, size):
    """First all arrivals are of a few keys, then of many: the sum of squares falls, which collisions may hide."""
    return np.concatenate([rng.integers(0, 4, size // 2), rng.integers(0, 20 * KEYS, size - size // 2)])


STREAMS = {"uniform": uniform, "skewed": skewed, "shifting": shifting}


def events(draw, seed, *, timed, stream=True, size=160):
    rng = np.random.default_rng(seed)
    columns = {"key": draw(rng, size), "site": rng.integers(0, SITES, size)}
    if timed:
        columns["time"] = np.sort(rng.integers(0, 3 * WINDOW, size))
    else:
        columns["count"] = rng.choice([1, 1, 2, 9, -1], size)
    if stream:
        columns["stream"] = np.where(rng.random(size) < 0.5, "a", "b")
    return columns


def frequencies(columns, until, window, stream=None):
    """How often each key came, in whole numbers."""
    counts = Counter()
    now = columns["time"][until - 1] if window is not None else None
    for i in range(until):
        if window is not None and columns["time"][i] < now - window.span:
            continue
        if stream is None or columns["stream"][i] == stream:
            counts[int(columns["key"][i])] += int(columns["count"][i]) if "count" in columns else 1
    return counts


def true_value(query, columns, until, window):
    if isinstance(query, InnerProduct):
        left, right = (frequencies(columns, until, window, name) for name in query.of)
        return sum(count * right[key] for key, count in left.items())
    counts = frequencies(columns, until, window, query.stream)
    if isinstance(query, SelfJoin):
        return sum(count * count for count in counts.values())
    if isinstance(query, RangeSum):
        weights = query.weights or [1] * len(query.keys)
        return sum(weight * counts[key] for key, weight in zip(query.keys, weights, strict=True))
    if isinstance(query, KeyRange):
        return sum(count for key, count in counts.items() if query.start <= key < query.stop)
    return counts[query.key]


JOIN = ("a", "b")
SCHEMES = ("functional", "geometric", "push", "ship", "oracle")
OVER_ECM = {
    "self-join": SelfJoin(theta=0.2, stream="a"),
    "self-join alarm": SelfJoin(above=1_000, theta=0.1, stream="a"),
    "join": InnerProduct(of=JOIN, theta=0.2, floor=20),
    "join alarm": InnerProduct(of=JOIN, above=200, theta=0.1),
    "count": Count(key=1, theta=0.2, stream="a"),
    "count alarm": Count(key=1, above=12, theta=0.1, stream="a"),
    "range": KeyRange(start=0, stop=40, theta=0.2, stream="a"),
    "range alarm": KeyRange(start=0, stop=40, above=25, theta=0.1, stream="a"),
}
OVER_AMS = {
    "self-join": SelfJoin(theta=0.5, stream="a"),
    "self-join alarm": SelfJoin(above=1_000, theta=0.6, stream="a"),
    "join": InnerProduct(of=JOIN, theta=0.6),
    "join alarm": InnerProduct(of=JOIN, above=200, theta=0.6),
    "sum": RangeSum(keys=range(40), theta=0.6, stream="a"),
    "weighted sum": RangeSum(keys=[1, 2, 3], weights=[5, -2, 1], theta=0.6, stream="a"),
    "sum alarm": RangeSum(keys=range(40), above=60, theta=0.6, stream="a"),
}
SKETCHES = {
    "ecm": lambda seed: Ecm(window=WINDOW, eps=0.25, delta=0.1, seed=seed),
    "stream": lambda seed: FastAms(eps=0.3, delta=0.1, seed=seed),
    "window": lambda seed: FastAms(eps=0.3, delta=0.1, window=WINDOW, seed=seed),
}
CASES = [(kind, scheme) for kind in SKETCHES for scheme in SCHEMES if (kind, scheme) != ("ecm", "push")]


def watching(kind, scheme, seed):
    """A monitor of all queries that go together."""
    queries = {
        name: query
        for name, query in (OVER_ECM if kind == "ecm" else OVER_AMS).items()
        if not (scheme == "push" and query.above is not None) and not (scheme == "ship" and isinstance(query, KeyRange))
    }
    return queries, Monitor(SKETCHES[kind](seed), queries, streams=JOIN, scheme=scheme)


@pytest.mark.parametrize(("kind", "scheme"), CASES)
def test_bounds_hold_the_truth_as_often_as_they_say(kind, scheme):
    """Half way and at the end, where streams change, which is when an estimate and the truth part."""
    draws = list(STREAMS.values())
    outside, confidence = Counter(), Counter()
    seeds = SEEDS // 2 if scheme in ("push", "ship") else SEEDS  # which send most
    for seed in range(seeds):
        queries, monitor = watching(kind, scheme, seed)
        columns = events(draws[seed % 3], seed, timed=kind != "stream")
        history = simulate(columns, monitor, step=40).history
        steps = sorted({at for at, *_ in history})
        for at, name, announcement, _, flying in history[: -len(queries)]:
            if at in (steps[len(steps) // 2], steps[-1]):
                assert flying == 0
                confidence[name] = announcement.confidence
                outside[name, at] += true_value(queries[name], columns, at, monitor.window) not in announcement
    for (name, _), failed in outside.items():
        assert failed <= allowed(1 - confidence[name], seeds), name
        assert (confidence[name] == 1) == isinstance(queries[name], Count)


@pytest.mark.parametrize("kind", SKETCHES)
def test_bounds_are_of_some_use(kind):
    """A tracked value is bounded on both sides where it is skewed, an alarm on the side that it is about."""
    queries, monitor = watching(kind, "functional", 4)
    columns = events(skewed, 4, timed=kind != "stream", size=3_000)
    history = simulate(columns, monitor, step=300).history
    for name, announcement in {name: last for _, name, last, _, _ in history}.items():
        if queries[name].above is None:
            assert -math.inf < announcement.low <= announcement.value <= announcement.high < math.inf, name
        else:
            assert announcement.low > -math.inf if announcement.alarm else announcement.high < math.inf, name


def test_many_keys_that_collide_are_no_self_join():
    """The estimate of an ECM-sketch is a hundred times the truth where many keys share the traffic; the bounds know."""
    keys = np.arange(11_000) % 10_000
    columns = {"key": keys, "site": keys % 3, "time": np.sort(keys % 500)}
    monitor = Monitor(Ecm(window=1_000, eps=0.1, delta=0.1, seed=1), {"f2": SelfJoin(theta=0.1)})
    announcement = simulate(columns, monitor, step=500).history[-1][2]
    truth = 9_000 + 1_000 * 4
    assert announcement.value > 100 * truth
    assert truth in announcement
    assert announcement.low <= truth
    assert not announcement.tolerates(truth)


def test_alarms_say_what_is_proven():
    """Below its line a self-join over ECM-sketches is so for certain; above it collisions may have raised the estimate."""
    columns = {"key": np.zeros(60, int), "site": np.arange(60) % 3, "time": np.arange(60)}
    monitor = Monitor(Ecm(window=1_000, eps=0.1, delta=0.1, seed=1), {"f2": SelfJoin(above=1_000, theta=0.1)})
    history = simulate(columns, monitor, step=1).history
    for at, _, announcement, _, _ in history:
        if not math.isnan(announcement.value):
            assert (announcement.high == math.inf) == announcement.alarm
            assert announcement.alarm or announcement.low == 0
            assert at * at in announcement


def test_a_coordinator_stored_by_an_earlier_version_gets_its_bounds(monkeypatch):
    """Format version 1 stored a value, its tolerance and the alarm, but neither bounds nor ages, nor clocks of sites."""
    monitor = Monitor(Ecm(window=100, eps=0.2, delta=0.1, seed=1), {"f2": SelfJoin(theta=0.2), "low": Count(key=1, above=90)})
    carrier = Carrier(monitor, range(2))
    for number in range(2):
        carrier.update(number, [1, 1, 2, 3, number], 10)
        carrier.settle()

    def as_it_was(self, out):
        announcement = self.announcement
        for number in (announcement.value, *announcement.tolerance):
            out.f64(number)
        out.u8(2 if announcement.alarm is None else announcement.alarm)
        self.region.write(out)
        out.varint(self.subround)

    def without_clocks(self, out):
        out.u8(self.joined + 2 * self.waits)
        out.varint(self.sent)
        out.varint(self.updates)
        self.inbox.write(out)
        for vector, norms in zip(self.vectors, self.norms, strict=True):
            out.deltas(vector)
            out.f32s(norms)

    with monkeypatch.context() as patch:
        patch.setattr("lately.monitor.coordinator_state.QueryState.write", as_it_was)
        patch.setattr("lately.monitor.coordinator_state.SiteState.write", without_clocks)
        patch.setattr("lately.core.codec.VERSION", 1)
        earlier = carrier.coordinator.to_bytes()
    assert earlier[4] == 1
    announced = {name: replace(said, oldest=None, newest=None) for name, said in carrier.coordinator.announcements().items()}
    assert monitor.restore(earlier).announcements() == announced
    assert carrier.coordinator["f2"].confidence == 0.9


# -- DISTCM ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [lt.PerfectCountMin, lt.SimpleCountMin, lt.ProportionalCountMin, lt.SplitterCountMin])
def test_distcm_holds_the_truth(kind):
    draws, outside = list(STREAMS.values()), 0
    for seed in range(SEEDS):
        monitor = DistributedCountMin(kind(window=WINDOW, eps=0.25, delta=0.2, seed=seed), push=0.02)
        columns = events(draws[seed % 3], seed, timed=True, stream=False)
        at, _, announcement, estimate, _ = simulate(columns, monitor, step=30).history[-1]
        assert announcement.tolerates(estimate)
        outside += true_value(SelfJoin(theta=0.1), columns, at, monitor.coordinator([0])._template.window) not in announcement
        assert announcement.confidence == (0.8 if kind is lt.PerfectCountMin else 1.0)
    assert outside <= allowed(1 - announcement.confidence, SEEDS)


# -- bounds alone ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**40), st.floats(0, 1), st.floats(0, 0.5))
def test_bounds_are_whole_numbers_and_widen_with_the_tolerance(value, below, above):
    monitor = Monitor(Ecm(window=100, eps=0.1, delta=0.1, seed=1), {"one": Count(key=1, theta=0.1)})
    query, layout = monitor.query_and_layout(0)
    table = [np.array([[float(value)]])]
    narrow, wide = (
        true_bounds(query, Evidence(layout, 0.1, table, bounds))
        for bounds in ((float(value), float(value)), (value * (1 - below), value * (1 + above)))
    )
    assert wide[0] <= narrow[0] <= value <= narrow[1] <= wide[1]
    assert all(bound == math.floor(bound) for bound in (*narrow[:2], *wide[:2]))
    assert narrow[2] == wide[2] == 1.0
