"""The promise of monitors: at every step the estimate is within what was announced, or a message is on its way.

Hypothesis looks for a counter-example, for every sketch, query, scheme and flush, with streams made to find one.
"""

import itertools
import os
from typing import ClassVar

import numpy as np
import pytest
from carrier import Carrier
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lately.monitor import Count, Ecm, FastAms, Frequent, InnerProduct, KeyRange, Monitor, RangeSum, SelfJoin

SOAK = os.environ.get("LATELY_SOAK", "") not in ("", "0")
EXAMPLES = int(os.environ.get("LATELY_EXAMPLES", "30"))
few = settings(max_examples=2_000 if SOAK else max(EXAMPLES // 3, 1))
#: All of this file is a soak test when it runs long.
pytestmark = [pytest.mark.slow] if SOAK else []

WINDOW, KEYS, SITES = 40, 8, 5
STREAMS = ("a", "b")

SKETCHES = {
    "ecm": Ecm(window=WINDOW, eps=0.5, delta=0.1, seed=20_120_615),  # three rows, in which keys collide
    "stream": FastAms(eps=0.3, delta=0.02, seed=20_120_615),  # three rows
    "window": FastAms(eps=0.3, delta=0.02, window=WINDOW, seed=20_120_615),
}
OF = ("a", "b")
OVER_ECM = {
    "skew": SelfJoin(theta=0.3, stream="a"),
    "skew of b": SelfJoin(theta=0.1, floor=3, stream="b"),
    "skewed": SelfJoin(above=60, theta=0.2, stream="a"),
    "barely skewed": SelfJoin(above=25, stream="a"),
    "key": Count(key=1, theta=0.2, stream="a"),
    "key often": Count(key=0, above=6, theta=0.1, stream="a"),
    "range": KeyRange(start=0, stop=3, theta=0.25, floor=2, stream="a"),
    "range often": KeyRange(start=1, stop=4, above=9, stream="a"),
    "join": InnerProduct(of=OF, theta=0.3),
    "floored join": InnerProduct(of=OF, theta=0.2, floor=5),
    "joined": InnerProduct(of=OF, above=20, theta=0.1),
    "even": SelfJoin(below=60, theta=0.2, stream="a"),
    "key seldom": Count(key=0, below=6, theta=0.1, stream="a"),
    "range seldom": KeyRange(start=1, stop=4, below=9, stream="a"),
    "apart": InnerProduct(of=OF, below=20, theta=0.1),
}
OVER_AMS = {
    "skew": SelfJoin(theta=0.6, stream="a"),
    "skew of b": SelfJoin(theta=0.4, floor=3, stream="b"),
    "skewed": SelfJoin(above=60, theta=0.7, stream="a"),
    "range": RangeSum(keys=range(3), theta=0.6, stream="a"),
    "weighted": RangeSum(keys=range(4), weights=[1, -2, 0, 5], theta=0.5, floor=1, stream="a"),
    "range often": RangeSum(keys=[1, 2], above=8, theta=0.5, stream="a"),
    "above nothing": RangeSum(keys=[0, 3], above=0, theta=0.5, stream="a"),
    "join": InnerProduct(of=OF, theta=0.6),
    "floored join": InnerProduct(of=OF, theta=0.4, floor=5),
    "joined": InnerProduct(of=OF, above=20, theta=0.6),
    "even": SelfJoin(below=60, theta=0.7, stream="a"),
    "range seldom": RangeSum(keys=[1, 2], below=8, theta=0.5, stream="a"),
    "below nothing": RangeSum(keys=[0, 3], weights=[1, -1], below=0, theta=0.5, stream="a"),
    "apart": InnerProduct(of=OF, below=20, theta=0.6),
}
QUERIES = {"ecm": OVER_ECM, "stream": OVER_AMS, "window": OVER_AMS}


# -- streams that look for trouble: lists of (site, key, count, stream), or of ticks that pass with nothing ---------------

site, key, stream = st.integers(0, SITES - 1), st.integers(0, KEYS - 1), st.sampled_from(STREAMS)


@st.composite
def bursts(draw):
    """Many of one key at one site, one by one or at once."""
    size, at_once = draw(st.integers(1, 15)), draw(st.booleans())
    event = draw(site), draw(key), size if at_once else 1, draw(stream)
    return [event] * (1 if at_once else size)


@st.composite
def cancelling(draw):
    """One site inserts what another deletes; the drift of each is large, that of both nothing."""
    inserting, deleting, what, where, size = draw(site), draw(site), draw(key), draw(stream), draw(st.integers(1, 12))
    return [(inserting, what, 1, where), (deleting, what, -1, where)] * size


@st.composite
def replacing(draw):
    """What comes at one site leaves the window at another."""
    first, second, what, where, size = draw(site), draw(site), draw(key), draw(stream), draw(st.integers(1, 8))
    return [(first, what, size, where), WINDOW - size, *([(second, what, 1, where), 1] * size)]


@st.composite
def together(draw):
    """All sites drift the same way, each by less than anybody would notice."""
    what, where, rounds, sign = draw(key), draw(stream), draw(st.integers(1, 5)), draw(st.sampled_from([1, 1, -1]))
    return [(number, what, sign, where) for _ in range(rounds) for number in range(SITES)]


@st.composite
def there_and_back(draw):
    """Up over any threshold and down again, a few times."""
    number, what, where, size = draw(site), draw(key), draw(stream), draw(st.integers(5, 12))
    return [(number, what, size, where), WINDOW // 2, (number, what, -size, where), WINDOW] * draw(st.integers(1, 3))


silence = st.one_of(st.just([1]), st.integers(2, 2 * WINDOW).map(lambda ticks: [ticks]), st.just([1] * (WINDOW + 2)))
single = st.tuples(site, key, st.just(1), stream).map(lambda event: [event])
deleted = st.tuples(site, key, st.integers(-9, -1), stream).map(lambda event: [event])
troubles = st.lists(
    st.one_of(bursts(), cancelling(), replacing(), together(), there_and_back(), silence, single, deleted),
    min_size=1,
    max_size=8,
).map(lambda parts: list(itertools.chain.from_iterable(parts)))


@st.composite
def watching(draw, kind, scheme, flush):
    """A monitor of one to three of the queries that fit."""
    names = [n for n, query in QUERIES[kind].items() if not (scheme == "ship" and isinstance(query, KeyRange))]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    return Monitor(SKETCHES[kind], {name: QUERIES[kind][name] for name in chosen}, streams=STREAMS, scheme=scheme, flush=flush)


def play(carrier, events, after):
    """Send the events through the sites, all of which see each tick; ``after`` is called with every step."""
    numbers, windowed, now = sorted(carrier.sites), carrier.monitor.window is not None, 100
    after()
    for number in numbers:
        for name in STREAMS:
            carrier.update(number, [KEYS + number], now if windowed else None, stream=name)
            after()
    for event in events:
        if isinstance(event, tuple):
            number, what, count, where = event
            if windowed and count < 0:
                continue
            carrier.update(number % len(numbers), [what], now if windowed else None, [count], where)
        elif windowed:
            now += event
            for number in numbers:
                carrier.advance(now, only=number)
                after()
        after()


SCHEMES = [(scheme, flush) for scheme in ("functional", "geometric", "oracle") for flush in ("lazy", "eager")]
of_every_kind = pytest.mark.parametrize("kind", SKETCHES)
by_every_scheme = pytest.mark.parametrize(("scheme", "flush"), [*SCHEMES, ("ship", "lazy")])


@of_every_kind
@by_every_scheme
@few
@given(data=st.data())
def test_messages_carried_at_once(kind, scheme, flush, data):
    """The promise event by event, and nobody is ever left waiting. Who ships everything knows everything."""
    monitor = data.draw(watching(kind, scheme, flush))
    carrier = Carrier(monitor, range(data.draw(st.integers(1, SITES))))

    def after():
        carrier.settle()
        carrier.check_rest()
        if scheme == "ship" and carrier.has_begun():
            truth = monitor.truth(carrier.joined)
            assert {name: said.value for name, said in carrier.coordinator.announcements().items()} == pytest.approx(truth)

    play(carrier, data.draw(troubles), after)


@of_every_kind
@by_every_scheme
@few
@given(
    data=st.data(),
    seed=st.integers(0, 2**32),
    share=st.sampled_from([0.1, 0.5, 0.9]),
    twice=st.sampled_from([0.0, 0.3]),
)
def test_messages_late_twice_and_in_any_order(kind, scheme, flush, data, seed, share, twice):
    """The promise whenever nothing happens to be on its way; in the end it is kept and everybody is at rest."""
    monitor = data.draw(watching(kind, scheme, flush))
    carrier = Carrier(monitor, range(data.draw(st.integers(1, SITES))), twice, seed)

    def after():
        carrier.some(share)
        carrier.check()

    play(carrier, data.draw(troubles), after)
    carrier.settle()
    carrier.check_rest()
    while carrier.echoes:
        carrier.deliver(echo=True)
    carrier.check_rest()


@of_every_kind
@pytest.mark.parametrize(("scheme", "flush"), SCHEMES[:4])
@few
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_batches(kind, scheme, flush, data, seed):
    """A site may take a whole batch before it is answered."""
    rng = np.random.default_rng(seed)
    monitor = data.draw(watching(kind, scheme, flush))
    carrier, now = Carrier(monitor, range(data.draw(st.integers(1, SITES)))), 100
    for _ in range(25):
        number, size = int(rng.integers(len(carrier.sites))), int(rng.choice([1, 5, 60]))
        keys, times, counts = rng.integers(0, KEYS, size), None, None
        if monitor.window is None:
            counts = rng.integers(-3, 4, size)
        else:
            times = now + np.sort(rng.integers(0, int(rng.choice([1, 10, 2 * WINDOW])), size))
            now = int(times[-1])
        carrier.update(number, keys, times, counts, str(rng.choice(STREAMS)))
        carrier.settle()
        carrier.check_rest()
        if monitor.window is not None:
            carrier.advance(now)
            carrier.settle()
            carrier.check_rest()


@pytest.mark.parametrize("kind", ["ecm", "window"])
@pytest.mark.parametrize("scheme", ["functional", "geometric"])
def test_only_time_passes(kind, scheme):
    """All that came leaves the window tick by tick, without an event: the sites must notice by themselves."""
    carrier = Carrier(Monitor(SKETCHES[kind], QUERIES[kind], streams=STREAMS, scheme=scheme), range(4))
    rng = np.random.default_rng(5)
    for number, name in itertools.product(range(4), STREAMS):
        carrier.update(number, rng.integers(0, KEYS, WINDOW), 100 + np.arange(WINDOW), stream=name)
        carrier.settle()
    messages_before = len(carrier.log)
    for now in range(100 + WINDOW, 101 + 2 * WINDOW):
        carrier.advance(now)
        carrier.settle()
        carrier.check_rest()
    assert len(carrier.log) > messages_before
    assert all(value == 0 for value in carrier.monitor.truth(carrier.joined).values())


# -- any interleaving ---------------------------------------------------------------------------------------------------


class Anything(RuleBasedStateMachine):
    """Sites come, count, let time pass and go, while messages are brought one by one, in any order, some of them again."""

    kind, scheme, flush = "ecm", "functional", "lazy"
    extra: ClassVar = {}

    def __init__(self):
        super().__init__()
        queries = {**{name: QUERIES[self.kind][name] for name in ("skew", "range", "floored join")}, **self.extra}
        monitor = Monitor(SKETCHES[self.kind], queries, streams=STREAMS, scheme=self.scheme, flush=self.flush)
        self.carrier, self.now, self.fresh = Carrier(monitor, [0, 1, 2], twice=0.5), 100, 3
        self.windowed = monitor.window is not None

    def pick(self, number):
        return sorted(self.carrier.sites)[number % len(self.carrier.sites)]

    @precondition(lambda self: self.carrier.sites)
    @rule(number=site, what=key, count=st.integers(-6, 12), where=stream, times=st.integers(1, 4))
    def count(self, number, what, count, where, times):
        count = max(count, 1) if self.windowed else count
        for _ in range(times):
            self.carrier.update(self.pick(number), [what], self.now if self.windowed else None, [count], where)

    @precondition(lambda self: self.carrier.sites)
    @rule(what=key, where=stream)
    def count_everywhere(self, what, where):
        for number in sorted(self.carrier.sites):
            self.carrier.update(number, [what], self.now if self.windowed else None, None, where)

    @precondition(lambda self: self.windowed)
    @rule(ticks=st.integers(1, WINDOW + 5))
    def pass_time(self, ticks):
        self.now += ticks
        self.carrier.advance(self.now)

    @precondition(lambda self: len(self.carrier.sites) < 6)
    @rule(what=key, size=st.integers(1, 20))
    def join(self, what, size):
        self.carrier.join(self.fresh)
        self.carrier.update(self.fresh, [what] * size, self.now if self.windowed else None, stream="a")
        self.fresh += 1

    @precondition(lambda self: any(site.number not in (0, 1, 2) or site._sequence for site in self.carrier.sites.values()))
    @rule(number=site)
    def leave(self, number):
        free = sorted(n for n, site in self.carrier.sites.items() if n > 2 or site._sequence)
        self.carrier.leave(free[number % len(free)])

    @precondition(lambda self: self.carrier.flying)
    @rule(index=st.integers(0, 50), again=st.integers(1, 6))
    def deliver(self, index, again):
        for _ in range(again):
            if self.carrier.flying:
                self.carrier.deliver(index % len(self.carrier.flying))

    @precondition(lambda self: self.carrier.echoes)
    @rule(index=st.integers(0, 50))
    def repeat(self, index):
        self.carrier.deliver(index % len(self.carrier.echoes), echo=True)

    @rule()
    def deliver_all(self):
        self.carrier.settle()
        self.carrier.check_rest()

    @invariant()
    def promise(self):
        self.carrier.check()

    def teardown(self):
        self.carrier.settle()
        self.carrier.check_rest()


def machine(kind, scheme, flush, **extra):
    name = f"{scheme}_{flush}_{kind}"
    test_class = type(name, (Anything,), {"kind": kind, "scheme": scheme, "flush": flush, "extra": extra})
    test_class.TestCase.settings = settings(
        max_examples=1_000 if SOAK else max(EXAMPLES // 3, 1), stateful_step_count=80 if SOAK else 30, deadline=None
    )
    return test_class.TestCase


TestFunctionalEcm = machine("ecm", "functional", "lazy", often=Frequent(tau=12, theta=0.2, stream="a"))
TestFunctionalStream = machine("stream", "functional", "lazy")
TestFunctionalWindow = machine("window", "functional", "eager")
TestGeometricEcm = machine("ecm", "geometric", "lazy", often=Frequent(tau=12, theta=0.2, stream="a"))
TestGeometricStream = machine("stream", "geometric", "lazy")
TestGeometricWindow = machine("window", "geometric", "eager")
