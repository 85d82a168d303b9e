"""Weights up to 1e15 that come and go again: what the coordinator says is held against whole numbers of any size."""

import math

import numpy as np
import pytest
from carrier import Carrier
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.core.durations import Window
from lately.core.keys import hash_keys
from lately.monitor import FastAms, Monitor, RangeSum, SelfJoin
from lately.monitor.drift import StreamDrift, WindowDrift
from lately.monitor.layout import Layout

KEYS = 12
HASHES = hash_keys(np.arange(KEYS))
large = st.sampled_from([10**3, 10**6, 10**9, 10**12, 10**15])


@st.composite
def weights(draw):
    """A weight, and perhaps its opposite, nearly, so that sums of huge numbers come down to small ones."""
    size = draw(large)
    weight = draw(st.integers(-size, size))
    back = [-weight + draw(st.integers(-5_000, 5_000))] if draw(st.booleans()) else []
    return [weight, *back]


batches = st.lists(st.tuples(st.integers(0, KEYS - 1), weights()), min_size=1, max_size=12)


def exact_squares(numbers, reported, layout):
    """The sums of squares of what rose and of what fell in each row."""
    drift = [int(now) - int(then) for now, then in zip(numbers, reported, strict=True)]
    rows = [drift[row * layout.width : (row + 1) * layout.width] for row in range(layout.rows)]
    return [[sum(x * x for x in row if x > 0) for row in rows], [sum(x * x for x in row if x < 0) for row in rows]]


def check_norms(drift, reported):
    rose, fell = exact_squares(drift.numbers, reported, drift.layout)
    lines = [[up + down for up, down in zip(rose, fell, strict=True)]] if drift.layout.signed else [rose, fell]
    for line, norms in zip(lines, drift.norms().tolist(), strict=True):
        assert norms == pytest.approx([math.sqrt(square) for square in line], rel=1e-14, abs=0)


@given(st.lists(st.one_of(batches, st.none()), min_size=1, max_size=6))
def test_norms_of_a_stream_lose_nothing(steps):
    drift = StreamDrift(Layout(3, 4, 7, True))
    drift.set_threshold(math.inf)
    reported = np.zeros(drift.layout.size, np.int64)
    for batch in steps:
        if batch is None:
            drift.take_changes()
            reported = drift.numbers.copy()
            continue
        events = [(key, weight) for key, both in batch for weight in both]
        drift.begin(HASHES[[key for key, _ in events]], None, np.array([weight for _, weight in events]))
        assert drift.run() == 0
        check_norms(drift, reported)


@pytest.mark.parametrize("signed", [False, True])
@given(st.lists(st.tuples(st.integers(0, KEYS - 1), large, st.integers(0, 30)), min_size=1, max_size=20), st.integers(0, 20))
def test_norms_over_a_window_lose_nothing(signed, events, cut):
    """Huge counts leave the window; what is left is small."""
    drift = WindowDrift(Layout(3, 4, 7, signed, Window.of(40), 0.3))
    drift.set_threshold(math.inf)
    reported, now = np.zeros(drift.layout.size, np.int64), 100
    for number, (key, weight, gap) in enumerate(events):
        now += gap
        drift.begin(HASHES[[key, key]], np.array([now, now]), np.array([weight, 3]))
        assert drift.run() == 0
        check_norms(drift, reported)
        if number == cut:
            drift.take_changes()
            reported = drift.numbers.copy()
    for _ in range(6):
        now += 11
        drift.advance(now)
        assert drift.run() == 0
        check_norms(drift, reported)


@pytest.mark.parametrize("weight", [2**62, 2**61 + 12_345, 2**53 + 1])
def test_the_largest_weights(weight):
    drift = StreamDrift(Layout(3, 4, 7, True))
    drift.set_threshold(math.inf)
    for change in (weight // 2, -(weight // 2) + 1):
        drift.begin(HASHES[:1], None, np.array([change]))
        assert drift.run() == 0
        check_norms(drift, np.zeros(drift.layout.size, np.int64))
    assert drift.norms().tolist() == [[1.0] * 3]


@given(st.lists(st.tuples(st.integers(0, 11), st.sampled_from([1, 1, 5, 10**9, 10**15])), max_size=60), st.integers(1, 59))
def test_a_run_stops_where_rows_have_moved_too_far_however_batches_are_cut(events, cut):
    """It may look at fewer events than there are, but never later than at the one that moves rows too far."""
    keys = HASHES[[key for key, _ in events]] if events else HASHES[:0]
    counts = np.array([count * (-1) ** i for i, (_, count) in enumerate(events)], np.int64)
    stops = []
    for parts in ((slice(0, None),), (slice(0, cut), slice(cut, None)), tuple(slice(i, i + 1) for i in range(len(events)))):
        drift = StreamDrift(Layout(3, 4, 7, True))
        drift.set_threshold(20.0)
        stops_of_parts, done = [], 0
        for part in parts:
            if keys[part].size:
                drift.begin(keys[part], None, counts[part])
                while drift.run():
                    stops_of_parts.append(done + int(drift._at[0]))
                    drift.set_threshold(20.0)
                done += keys[part].size
        stops.append(stops_of_parts)
    assert stops[0] == stops[1] == stops[2]
    numbers, seen, expected = [0] * 12, [0.0] * 3, []
    for at, (key, count) in enumerate(zip(keys, counts.tolist(), strict=True), 1):
        for cell in Layout(3, 4, 7, True).cells(np.array([key]))[:, 0].tolist():
            numbers[cell >> 1] += -count if cell & 1 else count
        norms = [math.sqrt(sum(x * x for x in numbers[row * 4 : row * 4 + 4])) for row in range(3)]
        if sum((now - then) ** 2 for now, then in zip(norms, seen, strict=True)) > 400:
            expected.append(at)
            seen = norms
    assert stops[0] == expected


def estimates(monitor, events):
    """What the sketches of all sites say together, worked out from the events with whole numbers."""
    vectors = [np.zeros(layout.size, object) for layout in monitor.layouts]
    for _, key, weight in events:
        for row in monitor.layouts[0].cells(hash_keys([key])):
            vectors[0][int(row[0]) >> 1] += -weight if row[0] & 1 else weight
    return {name: monitor.estimate(number, vectors) for number, name in enumerate(monitor.names)}


@pytest.mark.parametrize("scheme", ["functional", "geometric"])
@given(data=st.data(), flush=st.sampled_from(["lazy", "eager"]))
def test_the_promise_is_kept_with_huge_weights(scheme, flush, data):
    """Batches that nearly cancel at a site or between sites; the estimate is worked out from the events."""
    queries = {"f2": SelfJoin(theta=0.6), "sum": RangeSum(keys=range(3), theta=0.7, floor=10)}
    monitor = Monitor(FastAms(eps=0.3, delta=0.02, seed=5), queries, scheme=scheme, flush=flush)
    carrier, events = Carrier(monitor, range(3)), []
    for number in range(3):
        carrier.update(number, [100 + number], counts=[30])
        events.append((number, 100 + number, 30))
    carrier.settle()
    steps = st.lists(st.tuples(st.integers(0, 2), batches, st.booleans()), min_size=1, max_size=6)
    for number, batch, elsewhere in data.draw(steps):
        for key, both in batch:
            for i, weight in enumerate(both):
                where = (number + (elsewhere and i)) % 3
                carrier.update(where, [key], counts=[weight])
                events.append((where, key, weight))
        carrier.settle()
        truth = estimates(monitor, events)
        for name, announcement in carrier.coordinator.announcements().items():
            assert announcement.tolerates(truth[name]), f"{name}: announced {announcement}, but it is {truth[name]}"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("huge", [10**12, 10**13, 10**15])
def test_one_batch_that_nearly_cancels_is_heard_of(seed, huge):
    monitor = Monitor(FastAms(eps=0.1, delta=0.05, seed=seed), SelfJoin(theta=0.3))
    carrier = Carrier(monitor, range(2))
    for number in range(2):
        carrier.update(number, np.arange(500), counts=np.full(500, 15))
        carrier.settle()
    carrier.update(0, [7, 7], counts=[huge, -huge + 5000])
    carrier.settle()
    assert 499 * 30**2 + 5030**2 in carrier.coordinator[""]


def test_sites_that_add_up_to_more_than_fits_are_refused():
    monitor = Monitor(FastAms(eps=0.3, delta=0.1, seed=5), SelfJoin(theta=0.6))
    coordinator = monitor.coordinator([0, 1, 2])
    for number in range(2):
        for message in monitor.site(number).update(["a"], counts=[2**61]):
            coordinator.receive(message)
    joining, telling = monitor.site(2).update(["a"], counts=[2**61])
    coordinator.receive(joining)
    with pytest.raises(lt.InputError, match=r"more than 2\*\*62 over all sites; scale"):
        coordinator.receive(telling)


def test_over_a_window_huge_counts_of_both_signs_cancel_exactly():
    sketch = lt.WindowedAmsSketch(window=100, eps=0.9, delta=0.45, counter="exact", seed=3)
    assert sketch.depth == 1
    cells = Layout(1, sketch.width, 3, True).cells(hash_keys(np.arange(400)))[0]
    plus, minus = next((a, b) for a in range(400) for b in range(400) if not cells[a] & 1 and cells[b] == cells[a] + 1)
    sketch.update([plus, minus], [5, 5], [2**60 + 12_345, 2**60 + 1])
    answer = sketch.self_join()
    assert answer.value == 12_344**2
    assert answer.low <= 12_344**2 <= answer.high
