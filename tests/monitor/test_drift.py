"""Drifts kept up event by event against drifts worked out from scratch, and what makes a run stop."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lately.core.durations import Window
from lately.core.keys import hash_keys
from lately.counters.base import MAX_STAMP
from lately.counters.wave import Wave, count_and_expiry
from lately.monitor.drift import CAP, COUNT, DUE, FLOOR, FLOOR_OF, MOVED, NEXT, StreamDrift, WindowDrift
from lately.monitor.drift_kernels import SPOKE_TICKS
from lately.monitor.layout import Layout

HASHES = hash_keys(np.arange(12))
HUGE = 2**62


def window_layout(signed, rows=2, width=3, window=40, eps=0.3):
    return Layout(rows, width, 7, signed, Window.of(window), eps)


events = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 9), st.sampled_from([1, 1, 1, 1, 0, 2, 7, 40])), min_size=1, max_size=40
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), events),
        st.tuples(st.just("batch"), events),
        st.tuples(st.just("tell"), st.none()),
        st.tuples(st.just("advance"), st.sampled_from([0, 1, 5, 30, 41, 200])),
        st.tuples(st.just("jump"), st.sampled_from([2**31, 2**32 - 90, 2**32, 2**40, 2**32 + 7])),
    ),
    min_size=1,
    max_size=8,
)


class Twin:
    """Keeps every event of every counter of a window, and what was told."""

    def __init__(self, drift, start=0):
        self.drift, self.layout, self.now = drift, drift.layout, start
        self.counters = [naive.NaiveWindow(drift.layout.window.span) for _ in range(drift.layout.counters)]
        self.told = np.zeros(drift.layout.size, np.int64)

    def begin(self, batch):
        """Give a batch of (key, gap, count) to the drift, to be run."""
        keys, gaps, counts = (np.array(column, np.int64) for column in zip(*batch, strict=True))
        ticks = self.now + np.cumsum(gaps)
        hashes = HASHES[keys]
        for row in self.layout.cells(hashes):
            for cell, tick, count in zip(row.tolist(), ticks.tolist(), counts.tolist(), strict=True):
                self.counters[cell].add(tick, None, count)
        self.now = int(ticks[-1])
        self.drift.begin(hashes, ticks, counts)

    def advance(self, gap):
        self.now += gap
        self.drift.advance(self.now)

    def take_changes(self):
        before = self.drift.numbers.copy()
        assert (self.drift.take_changes() == before - self.told).all()
        assert not self.drift.norms().any()
        self.told = before

    def check(self):
        drift, layout = self.drift, self.layout
        since = self.now - layout.window.span
        parts = drift._book[:, COUNT]
        for part, counter in zip(parts.tolist(), self.counters, strict=True):
            exact = counter.since(since)
            assert abs(part - exact) <= layout.eps * exact
        expected = parts[::2] - parts[1::2] if layout.signed else parts
        assert (drift.numbers == expected).all()
        expected = naive.rise_and_fall(drift.numbers, self.told, layout.rows, layout.signed)
        assert drift.norms() == pytest.approx(expected, abs=1e-6)
        assert drift.norms() == pytest.approx(expected)
        self.check_wheel(since)

    def check_wheel(self, since):
        """Every counter that will change hangs from the spoke of its due, once."""
        book, wheel, grain = self.drift._book, self.drift._wheel, self.drift._shape[SPOKE_TICKS]
        hanging = []
        for spoke, cell in enumerate(wheel.tolist()):
            while cell >= 0:
                hanging.append(cell)
                assert (book[cell, DUE] // grain) % wheel.size == spoke
                cell = int(book[cell, NEXT])
        assert sorted(hanging) == np.flatnonzero(book[:, DUE] != MAX_STAMP).tolist()
        # nobody is overdue, and who counts nothing is due never
        assert (book[:, DUE] >= max(since - self.drift._origin, 1)).all()
        assert ((book[:, DUE] == MAX_STAMP) == (book[:, COUNT] == 0)).all()


def run(drift):
    """Run to the end of the batch; what stopped it on the way."""
    drift.set_threshold(math.inf)
    while reason := drift.run():
        yield reason


# -- windows -----------------------------------------------------------------------------------------------------------


@given(steps, st.booleans(), st.sampled_from([-(2**50), -7, 0, 2**50]))
def test_a_window_drifts_as_worked_out_from_scratch(steps, signed, start):
    drift = WindowDrift(window_layout(signed))
    twin = Twin(drift, start)
    started = False
    for what, content in steps:
        if what == "batch":
            twin.begin(content)
        elif what == "tell":
            twin.take_changes()
        elif what == "jump":
            twin.now += content  # the next batch finds itself there
            continue
        elif started:
            twin.advance(content)
        else:
            continue
        if what != "tell":
            started = True
            assert list(run(drift)) == []
            assert drift.now == twin.now
        if started:
            twin.advance(0)
            assert list(run(drift)) == []
            twin.check()


@given(events, st.booleans(), st.data())
def test_batches_do_not_matter(batch, signed, data):
    whole, parts = (Twin(WindowDrift(window_layout(signed))) for _ in range(2))
    whole.begin(batch)
    list(run(whole.drift))
    at = 0
    while at < len(batch):
        size = data.draw(st.integers(1, len(batch) - at))
        parts.begin(batch[at : at + size])
        list(run(parts.drift))
        at += size
    assert (whole.drift.numbers == parts.drift.numbers).all()
    assert (whole.drift._book[:, [COUNT, DUE]] == parts.drift._book[:, [COUNT, DUE]]).all()
    assert whole.drift.updates == parts.drift.updates == len(batch)


@pytest.mark.parametrize("signed", [False, True])
def test_silence_alone_empties_a_window(signed):
    twin = Twin(WindowDrift(window_layout(signed)))
    rng = np.random.default_rng(1)
    twin.begin([(int(key), 1, 1) for key in rng.integers(0, 12, 300)])
    list(run(twin.drift))
    twin.take_changes()
    for _ in range(42):
        twin.advance(1)
        list(run(twin.drift))
        twin.check()
    assert not twin.drift.numbers.any()
    assert twin.drift.norms().any()


def test_a_long_stream_through_growing_rings_and_past_the_end_of_stamps():
    twin = Twin(WindowDrift(window_layout(False, window=1000, eps=0.1)), start=-(2**45))
    rng = np.random.default_rng(2)
    for size, jump in [(2000, 0), (2000, 2**32 - 3000), (500, 0), (500, 2**33), (500, 300)]:
        twin.now += jump
        twin.begin(
            [(int(key), int(gap), 1) for key, gap in zip(rng.integers(0, 12, size), rng.integers(0, 3, size), strict=True)]
        )
        list(run(twin.drift))
        twin.check()


@pytest.mark.parametrize("signed", [False, True])
def test_rings_grow_in_the_middle_of_an_event(signed, monkeypatch):
    drift = WindowDrift(window_layout(signed, rows=4, width=2))
    grown = []
    grow = Wave._grow
    monkeypatch.setattr(Wave, "_grow", lambda self: grown.append(int(drift._at[1])) or grow(self))
    twin = Twin(drift)
    twin.begin([(int(key), 0, 1) for key in np.random.default_rng(3).integers(0, 12, 60)])
    list(run(drift))
    twin.check()
    assert any(grown)  # some before the first row, some after


@pytest.mark.parametrize("signed", [False, True])
def test_where_stamps_begin_does_not_matter(signed):
    seen = []
    for jump in (2**20, 2**32 - 400):  # the second stream passes the end of stamps with a full window
        rng = np.random.default_rng(4)
        twin = Twin(WindowDrift(window_layout(signed)))
        twin.begin([(0, 0, 1)])
        list(run(twin.drift))
        origin, twin.now = twin.drift._origin, twin.now + jump
        seen.append([])
        for _ in range(30):
            twin.begin(
                [(int(key), int(gap), 1) for key, gap in zip(rng.integers(0, 12, 30), rng.integers(0, 3, 30), strict=True)]
            )
            list(run(twin.drift))
            seen[-1].append(twin.drift.numbers.tolist())
        assert (twin.drift._origin > origin) == (jump > 2**31)
    assert seen[0] == seen[1]


def test_a_batch_may_be_longer_than_stamps():
    twin = Twin(WindowDrift(window_layout(False)))
    twin.begin([(1, 0, 1), (2, 1, 1), (3, 2**32, 1)])
    list(run(twin.drift))
    twin.check()


# -- where a run stops -------------------------------------------------------------------------------------------------


def stops(drift, batch_size, room):
    """After which events a run stops because the rows moved further than a room, which is then set anew."""
    drift.set_threshold(room)
    events = []
    while reason := drift.run():
        assert reason == MOVED
        events.append(int(drift._at[0]) - 1)
        drift.set_threshold(room)
    assert drift._at[0] == batch_size
    return events


def moves(norms, room):
    """The same, from the norms before the first event and after each."""
    events, seen = [], norms[0]
    for i, now in enumerate(norms[1:]):
        if ((now - seen) ** 2).sum() > room * room:
            events.append(i)
            seen = now
    return events


@given(events, events, st.booleans(), st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0, 100.0]), st.booleans())
def test_a_window_stops_at_the_very_event_that_moves_it_too_far(first, second, signed, room, take_changes):
    fast, slow = (Twin(WindowDrift(window_layout(signed))) for _ in range(2))
    for twin in (fast, slow):
        twin.begin(first)
        list(run(twin.drift))
        if take_changes:
            twin.take_changes()
    norms = [slow.drift.norms()]
    for event in second:
        slow.begin([event])
        list(run(slow.drift))
        norms.append(slow.drift.norms())
    fast.begin(second)
    assert stops(fast.drift, len(second), room) == moves(norms, room)


@given(events, st.booleans(), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
def test_silence_stops_a_run_too(batch, signed, room):
    twin = Twin(WindowDrift(window_layout(signed)))
    twin.begin(batch)
    list(run(twin.drift))
    twin.take_changes()
    for _ in range(8):
        before = twin.drift.norms()
        twin.drift.set_threshold(room)
        twin.advance(7)
        assert twin.drift.run() == (MOVED if ((twin.drift.norms() - before) ** 2).sum() > room * room else 0)
        twin.drift.set_threshold(math.inf)
        assert twin.drift.run() == 0


signed_events = st.lists(st.tuples(st.integers(0, 11), st.integers(-5, 5)), min_size=1, max_size=40)


def begin_stream(drift, batch):
    keys, counts = (np.array(column, np.int64) for column in zip(*batch, strict=True))
    drift.begin(HASHES[keys], None, counts)
    return HASHES[keys], counts


@given(signed_events, signed_events, st.sampled_from([0.0, 1.0, 3.0, 20.0]))
def test_a_stream_stops_at_the_very_event_that_moves_it_too_far(first, second, room):
    layout = Layout(3, 4, 7, True)
    fast, slow = StreamDrift(layout), StreamDrift(layout)
    for drift in (fast, slow):
        begin_stream(drift, first)
        list(run(drift))
    norms = [slow.norms()]
    for event in second:
        begin_stream(slow, [event])
        list(run(slow))
        norms.append(slow.norms())
    begin_stream(fast, second)
    assert stops(fast, len(second), room) == moves(norms, room)
    assert (fast.numbers == slow.numbers).all()


def prepared(layout):
    """With rings that need not grow, so that a run stops between events only."""
    twin = Twin(WindowDrift(layout))
    for _ in range(14):
        twin.drift._waves._grow()
    return twin


@given(st.integers(0, 2**32 - 1))
def test_caps_and_floors_stop_a_run_at_the_very_event(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 60))
    batch = list(
        zip(
            rng.integers(0, 12, size).tolist(),
            rng.integers(0, 5, size).tolist(),
            rng.integers(0, 3, size).tolist(),
            strict=True,
        )
    )
    caps = {int(key): int(rng.integers(1, 40)) for key in rng.integers(0, 12, rng.integers(0, 8))}
    cap, floors = int(rng.choice([5, 20, HUGE])), rng.choice([0, 3, 10], 6)
    fast, slow = (prepared(window_layout(False)) for _ in range(2))
    listed = sorted((int(HASHES[key]), most) for key, most in caps.items())
    known = np.array([item for item, _ in listed], np.uint64)
    fast.drift.set_key_limits(known, np.array([cap, *(most for _, most in listed)], np.int64), np.array(floors, np.int64))
    fast.drift.set_threshold(math.inf)
    expected = []
    for i, event in enumerate(batch):
        before = slow.drift._book[:, COUNT].copy()
        slow.now += event[1]
        slow.drift.advance(slow.now) if i else None
        list(run(slow.drift)) if i else None
        left = slow.drift._book[:, COUNT]
        below = ((left < before) & (left < floors)).any()
        slow.begin([(event[0], 0, event[2])])
        list(run(slow.drift))
        over = slow.drift.counts(slow.layout.cells(HASHES[event[0]][None]))[0] >= caps.get(event[0], cap)
        if over or below:
            expected.append((i, (CAP if over else 0) | (FLOOR if below else 0)))
    fast.begin(batch)
    stops = []
    while reason := fast.drift.run():
        stops.append((fast.drift.position - 1, reason))
    assert stops == expected


def test_a_floor_passed_while_rings_grow_is_not_forgotten():
    layout = window_layout(False, rows=1, width=2)
    cells = layout.cells(HASHES)[0].tolist()
    left, right = cells.index(0), cells.index(1)
    twin = Twin(WindowDrift(layout))
    twin.begin([(left, 0, 1)] * 2 + [(right, 30, 1), (right, 0, 1)])
    list(run(twin.drift))
    size = twin.drift._waves.rings.size
    twin.drift.set_key_limits(np.empty(0, np.uint64), np.full(1, HUGE), np.full(2, 2))
    twin.drift.set_threshold(math.inf)
    assert (twin.drift._book[:, FLOOR_OF] == 2).all()
    twin.begin([(right, 11, 1)])  # what came left is gone, what comes right needs room
    assert twin.drift.run() == FLOOR
    assert twin.drift._waves.rings.size > size
    assert twin.drift.run() == 0
    twin.check()


# -- streams -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(signed_events, st.none()), min_size=1, max_size=6))
def test_a_stream_drifts_as_worked_out_from_scratch(steps):
    drift = StreamDrift(Layout(3, 4, 7, True))
    now, reported = np.zeros(12, np.int64), np.zeros(12, np.int64)
    for batch in steps:
        if batch is None:
            assert (drift.take_changes() == now - reported).all()
            reported = now
        else:
            hashes, counts = begin_stream(drift, batch)
            list(run(drift))
            now = now + drift.layout.sketch(hashes, counts)
        assert (drift.numbers == now).all()
        expected = naive.rise_and_fall(now, reported, 3, True)
        assert drift.norms() == pytest.approx(expected, abs=1e-6)
        assert drift.norms() == pytest.approx(expected)


@given(st.lists(signed_events, min_size=1, max_size=6), st.sampled_from([0.0, 2.0, 10.0]), st.data())
def test_keys_told_verbatim_sketch_to_the_numbers_told(batches, room, data):
    drift = StreamDrift(Layout(3, 40, 7, True))
    everything, updates = np.zeros(120, np.int64), 0

    def tell():
        hashes, counts = drift.verbatim()
        assert (np.diff(hashes.astype(object)) > 0).all()
        assert counts.all()
        numbers = drift.take_changes()
        assert (drift.layout.sketch(hashes, counts) == numbers).all()
        assert [column.size for column in drift.verbatim()] == [0, 0]
        return numbers

    for batch in batches:
        hashes, counts = begin_stream(drift, batch)
        updates += len(batch)
        assert drift.updates == updates
        everything -= drift.layout.sketch(hashes, counts)
        drift.set_threshold(room)
        while drift.run():
            if data.draw(st.booleans()):  # in the middle of a batch
                everything += tell()
                updates = len(batch) - int(drift._at[0])
            drift.set_threshold(room)
        if data.draw(st.booleans()):
            everything += tell()
            updates = 0
    everything += tell()
    assert not everything.any()


def test_many_keys_are_no_longer_told_verbatim_until_they_were_told():
    drift = StreamDrift(Layout(1, 4, 7, True))
    for _ in range(4):
        begin_stream(drift, [(1, 1)] * 40)
        list(run(drift))
    assert drift.verbatim() is None
    assert np.abs(drift.take_changes()).sum() == 160
    begin_stream(drift, [(2, 3), (2, 1), (3, 1), (3, -1)])
    list(run(drift))
    hashes, counts = drift.verbatim()
    assert (hashes.tolist(), counts.tolist()) == ([int(HASHES[2])], [4])


# -- counters ----------------------------------------------------------------------------------------------------------


def follow(wave, cell, since):
    value, due = count_and_expiry(cell, np.uint32(since), wave.n, wave.first, wave.base, wave.rings)
    return int(value), int(due)


def check_followed(wave, now):
    """At every stamp the value is that of ``since``, and due is the last stamp with that value."""
    for cell in range(wave.cells):
        values = {s: int(wave.since(np.array([cell], np.uint32), s).value[0]) for s in range(max(now - wave.span, 1), now + 2)}
        for since, value in values.items():
            value_at, due = follow(wave, cell, since)
            assert value_at == value
            if value == 0:
                assert due == MAX_STAMP
            else:
                assert since <= due <= now
                assert all(values[s] == value for s in range(since, due + 1))
                assert values[due + 1] < value


arrivals = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6), st.integers(0, 9)), max_size=40)


def wave_of(arrivals, span=60, eps=0.3):
    wave, now = Wave(2, span, eps), 100
    for cell, gap, count in arrivals:
        now += gap
        wave.add(np.array([cell], np.uint32), np.array([now], np.uint32), np.array([count]))
    return wave, now


@given(arrivals, st.sampled_from([0.05, 0.3, 0.9]))
def test_a_followed_counter_stays_as_it_is_until_it_is_due(arrivals, eps):
    check_followed(*wave_of(arrivals, eps=eps))


@given(arrivals, arrivals)
def test_a_merged_counter_can_be_followed_too(first, second):
    (wave, now), (other_wave, later) = wave_of(first), wave_of(second)
    now = max(now, later)
    check_followed(wave.merged([other_wave], [0, 0], max(now - wave.span, 1)), now)
