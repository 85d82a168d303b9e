"""The ECM-sketch against exact answers: certain where it says certain, within eps as often as it says."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from ecm_cases import KINDS, build, duration, feed, first_tick
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow, count_min, hoeffding
from streams import FAMILIES, cuts, make, streams

import lately as lt
from lately.core.plan import count_min_size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counter", ["wave", "exphist", "exact"])
@given(stream=streams(most=200, cells=40), window=st.sampled_from([5, 60, 5000]), pieces=cuts, share=st.floats(0, 1))
def test_high_is_certain_for_every_key_and_range(kind, counter, stream, window, pieces, share):
    sketch, twin = build(kind, window, counter=counter)
    feed(sketch, twin, stream, pieces)
    age = int(share * window)
    for last in (None, duration(kind, age)):
        start = first_tick(kind, twin, window if last is None else age)
        exact = np.array([twin.since(start, k) for k in range(41)])
        answers = sketch.counts(np.arange(41), last=last)
        assert (answers.high >= exact).all()
        assert (answers.low <= answers.value).all()
        assert (answers.value <= answers.high).all()
        total = sketch.total(last=last)
        assert twin.since(start) in total
        assert total.confidence == 1


@pytest.mark.parametrize("kind", KINDS)
@given(
    stream=streams(most=200, cells=40),
    window=st.sampled_from([5, 60, 5000]),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_exact_counters_extract_the_plain_count_min(kind, stream, window, shares):
    sketch, twin = build(kind, window, counter="exact")
    feed(sketch, twin, stream)
    older, newer = sorted((int(s * window) for s in shares), reverse=True)
    for question, frequencies in (
        ({"last": duration(kind, older)}, twin.frequencies(first_tick(kind, twin, older))),
        (
            {"between": (duration(kind, older), duration(kind, newer))},
            twin.frequencies(first_tick(kind, twin, older), first_tick(kind, twin, newer) if newer else None),
        ),
    ):
        expected = count_min(frequencies, sketch.rows.words, sketch.width)
        extracted = sketch.extract(**question)
        assert (extracted.table == expected).all()
        for key in range(5):
            cells = expected[np.arange(sketch.depth), [int(c) for c in _cells(sketch, key)]]
            assert sketch.count(key, **question).value == cells.min() == extracted.count(key).value
        assert sketch.self_join(**question).value == (expected**2).sum(axis=1).min() == extracted.self_join().value


def _cells(sketch, key):
    from naive import cell

    return [cell(key, word, sketch.width) for word in sketch.rows.words]


@pytest.mark.parametrize("counter", FAMILIES)
def test_point_answers_miss_no_more_often_than_delta(counter):
    """Theorems 1 and 3, and the bounds, counted over seeds with Hoeffding's slack; three sizes of range."""
    eps, delta = 0.2, 0.3
    stream = make(7, 4000, 300, 1, 0)
    twin = NaiveWindow(3000)
    for tick, key in zip(stream.ticks.tolist(), stream.cells.tolist(), strict=True):
        twin.add(tick, key)
    now = int(stream.ticks[-1])
    off = outside = trials = 0
    for seed in range(40):
        sketch = lt.EcmSketch(window=3000, eps=eps, delta=delta, seed=seed, counter=counter, salt=seed)
        sketch.update(stream.cells, stream.ticks)
        for last in (30, 400, 3000):
            frequencies = twin.frequencies(now - last + 1)
            total = sum(frequencies.values())
            # One key a sketch and range: the keys of one sketch share their luck.
            key = int(list(frequencies)[seed % len(frequencies)])
            answer = sketch.count(key, last=last)
            off += abs(answer.value - frequencies[key]) > eps * total
            outside += frequencies[key] not in answer
            trials += 1
    assert off <= hoeffding(trials, delta)
    assert outside <= hoeffding(trials, delta)


@pytest.mark.parametrize("counter", ["wave", "exphist"])
@pytest.mark.parametrize("merged", [False, True])
def test_inner_products_miss_no_more_often_than_delta(counter, merged):
    """Theorem 2 and Lemma 4 over seeds, for two streams that overlap; also after a merge that was planned for."""
    eps, delta = 0.2, 0.3
    left, right = make(1, 3000, 50, 1, 0), make(2, 3000, 50, 1, 0)
    now = int(max(left.ticks[-1], right.ticks[-1]))
    off = outside = trials = 0
    for seed in range(60):
        sketches = []
        for stream in (left, right):
            parts = []
            for site in range(2 if merged else 1):
                sketch = lt.EcmSketch(
                    window=2000, eps=eps, delta=delta, seed=seed, counter=counter, query="inner", merge_height=int(merged)
                )
                mine = slice(site, None, 2 if merged else 1)
                sketch.update(stream.cells[mine], stream.ticks[mine])
                parts.append(sketch)
            sketches.append(lt.merge(parts))
        for last in (100, 2000):
            a, b = (np.bincount(s.cells[s.ticks > now - last], minlength=50) for s in (left, right))
            exact, scale = int(a @ b), int(a.sum()) * int(b.sum())
            answer = sketches[0].inner_product(sketches[1], last=last)
            off += abs(answer.value - exact) > eps * scale
            outside += exact not in answer
            own = sketches[0].self_join(last=last)
            if left.ticks[-1] >= now:
                outside += int(a @ a) not in own
            trials += 1
            assert answer.high >= exact
    assert off <= hoeffding(trials, delta)
    assert outside <= hoeffding(trials, delta)


@given(stream=streams(most=200, cells=20), lateness=st.sampled_from([1, 10, 90]), seed=st.integers(0, 999), pieces=cuts)
def test_lateness_sorts_in_what_comes_late(stream, lateness, seed, pieces):
    """A stream shuffled by less than the lateness gives, at every moment, the answers of the sorted one."""
    rng = np.random.default_rng(seed)
    order = np.argsort(stream.ticks + rng.integers(0, lateness + 1, len(stream)), kind="stable")
    held, _ = build("integer", 100, counter="exact", lateness=lateness)
    plain, _ = build("integer", 100, counter="exact")
    edges = sorted({c % (len(stream) + 1) for c in pieces} | {len(stream)})
    start = 0
    for stop in edges:
        mine = order[start:stop]
        if mine.size == 0:
            continue
        held.update(stream.cells[mine], stream.ticks[mine], stream.weights[mine])
        seen = np.sort(order[:stop])
        plain, _ = build("integer", 100, counter="exact")
        plain.update(stream.cells[seen], stream.ticks[seen], stream.weights[seen])
        plain.advance(int(held.now))
        for last in (0, 7, 100):
            assert (held.counts(np.arange(20), last=last).value == plain.counts(np.arange(20), last=last).value).all()
            assert held.total(last=last) == plain.total(last=last)
            assert held.self_join(last=last) == plain.self_join(last=last)
        between = (60, 20)
        assert held.count(0, between=between) == plain.count(0, between=between)
        twin = lt.from_bytes(held.to_bytes())
        assert twin.total() == held.total()
        start = stop
    assert held.late == 0
    both = lt.merge([held, held])
    assert both.total().value == 2 * held.total().value


@pytest.mark.parametrize("counter", FAMILIES)
def test_streams_outlive_32_bits_of_ticks(counter):
    """Starts counting 1,000 ticks before stamps run over, and goes on across the edge, several times."""
    sketch, twin = build("integer", 500, counter=counter)
    sketch.update("first", 0)
    start = 2**32 - 2 * 500 - 2 - 1000
    for lap in range(3):
        stream = make(lap, 3000, 10, 1, 3, start=start + lap * (2**32 - 700))
        before = sketch._origin
        feed(sketch, twin, stream, pieces=(700, 1500))
        assert sketch._origin > before  # the edge was crossed
        for last in (10, 100, 500):
            recent = twin.frequencies(twin.now - last + 1)
            total = sum(recent.values())
            assert total in sketch.total(last=last)
            answers = sketch.counts(np.arange(10), last=last)
            exact = np.array([recent[k] for k in range(10)])
            assert (np.abs(answers.value - exact) <= 0.2 * total + 1).all()
        twin.events = [e for e in twin.events if e[0] >= twin.now - 500]
    assert sketch.count("first").low == 0
    gap = sketch.copy()
    gap.update(["x", "y", "x"], [twin.now, twin.now + 2**33, twin.now + 2**40])  # one batch over several edges
    assert gap.total().value == 1
    far = sketch.copy()
    far.advance(twin.now + 2**34)
    assert far.total().value == 0
    assert lt.from_bytes(far.to_bytes()).total().value == 0
    far.update("x", twin.now + 2**34)
    assert far.total().value == 1


@given(stream=streams(most=150, cells=9), window=st.sampled_from([10, 200]), gap=st.integers(0, 300))
def test_advance_ages_a_quiet_stream(stream, window, gap):
    sketch, twin = build("integer", window, counter="exact")
    feed(sketch, twin, stream)
    later = twin.now + gap
    sketch.advance(later)
    once = sketch.to_bytes()
    sketch.advance(later)
    sketch.advance(later - 5)  # back in time: nothing happens
    assert sketch.to_bytes() == once
    assert sketch.total().value == twin.since(later - window + 1)


def test_all_kinds_of_columns_make_the_same_sketch():
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    names = [f"/page/{i % 7}?ü={i % 3}" for i in range(500)]
    seconds = np.arange(500)
    stamps = pd.to_datetime(seconds, unit="s", utc=True)
    expected = None
    for keys in (
        names,
        np.array(names),
        np.array(names, object),
        pd.Series(names),
        pd.Series(names, dtype="category"),
        pl.Series(names),
        pl.Series(names, dtype=pl.Categorical),
        pa.array(names),
        pa.array(names, pa.large_string()),
        pa.array(names).dictionary_encode(),
        pa.chunked_array([names[:100], names[100:]]),
        [n.encode() for n in names],
    ):
        for times in (
            seconds,
            seconds.astype(float) + 0.25,
            stamps,
            pd.Series(stamps.tz_convert("Asia/Tokyo")),
            pd.Series(stamps.tz_localize(None)),
            pl.Series(stamps.tz_localize(None)),
            pa.array(stamps.tz_convert("Europe/Paris")),
            seconds.astype("datetime64[s]").astype("datetime64[ms]"),
            [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(s)) for s in seconds],
        ):
            sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
            sketch.update(keys, times)
            expected = expected or sketch.to_bytes()
            assert sketch.to_bytes() == expected
    one_by_one = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    for name, second in zip(names, seconds.tolist(), strict=True):
        one_by_one.update(name, second)
    assert one_by_one.to_bytes() == expected


def test_ranges_by_dates():
    sketch = lt.EcmSketch(window="1d", eps=0.1, delta=0.1, counter="exact")
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    sketch.update(["a"] * 24, [noon + timedelta(hours=h) for h in range(24)])
    assert sketch.count("a", between=(noon + timedelta(hours=5), noon + timedelta(hours=8))).value == 3
    assert sketch.count("a", last=timedelta(hours=5)).value == 5
    assert sketch.count("a", between=("5h", "0s")).value == 5
    assert sketch.count("a", between=("5h", "2h")).value == 3
    assert sketch.count("a", between=(np.datetime64("2026-01-01T12"), np.datetime64("2026-01-01T13"))).value == 1


def test_an_empty_sketch_answers_nothing_seen():
    sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    assert sketch.count("x").value == sketch.total().value == sketch.self_join().value == 0
    assert lt.EcmSketch(window="1h", eps=0.1, delta=0.1, counter="wave").extract().total() == 0
    assert lt.merge([sketch, sketch]).total().value == 0
    assert lt.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()


def test_sizes_are_the_theorems():
    for eps, delta, query in ((0.1, 0.05, "point"), (0.02, 0.01, "inner")):
        sketch = lt.EcmSketch(window="1h", eps=eps, delta=delta, query=query, counter="wave")
        assert (sketch.width, sketch.depth) == count_min_size(eps / (1 + eps), delta)
        planned = lt.plan(eps, delta, "1h", query=query, counter="wave")
        assert (sketch.width, sketch.depth, sketch._parts[0].eps) == (planned.width, planned.depth, planned.eps_sw)


@pytest.mark.parametrize(("eps", "delta", "height"), [(0.2, 0.1, 0), (0.05, 0.01, 0), (0.01, 0.001, 2), (0.3, 0.6, 0)])
def test_sizes_of_shared_waves_keep_eps(eps, delta, height):
    """Collisions and the wave share eps, a row is off with the probability that all rows together allow, and a plan says so."""
    sketch, planned = lt.EcmSketch(window="1h", eps=eps, delta=delta, merge_height=height), None
    planned = lt.plan(eps, delta, "1h", merge_height=height)
    assert (sketch.counter, sketch.width, sketch.depth) == ("shared", planned.width, planned.depth)
    odds = planned.eps_cm * planned.width
    assert odds**-planned.depth == pytest.approx(delta)
    assert planned.eps_cm + planned.eps_sw <= eps * (1 + 1e-12)
    assert planned.eps_sw == sketch._parts[0].eps


@pytest.mark.parametrize("kind", ["time", "arrivals"])
@pytest.mark.parametrize(("nbytes", "delta"), [(20_000, 0.1), (60_000, 0.01), (300_000, 0.01)])
def test_a_sketch_takes_the_bytes_that_it_was_given(kind, nbytes, delta):
    window = lt.arrivals(1_000_000) if kind == "arrivals" else "1h"
    sketch = lt.EcmSketch(window=window, nbytes=nbytes, delta=delta)
    keys = np.random.default_rng(0).zipf(1.1, 1_500_000) % 200_000
    sketch.update(keys, None if kind == "arrivals" else np.arange(keys.size) * 3600 // 1_000_000)
    assert 0.9 * nbytes <= sketch.nbytes <= nbytes
    planned = lt.plan(None, delta, window, nbytes=nbytes)
    assert (planned.eps, planned.width) == (sketch.eps, sketch.width)
    assert sketch.nbytes <= planned.bytes <= nbytes


@pytest.mark.parametrize("options", [{}, {"eps": 0.1, "nbytes": 10_000}, {"nbytes": 999}, {"nbytes": 1_001, "delta": 1e-9}])
def test_a_size_that_cannot_be_is_refused(options):
    with pytest.raises(lt.ParameterError):
        lt.EcmSketch(**({"window": "1h", "delta": 0.1} | options))


@pytest.mark.parametrize("counter", FAMILIES)
def test_memory_stays_within_the_plan(counter):
    sketch = lt.EcmSketch(window=10**6, eps=0.3, delta=0.3, counter=counter, salt=3)
    sketch.update(np.random.default_rng(0).zipf(1.2, 30_000) % 10_000, np.arange(30_000))
    assert sketch.nbytes <= lt.plan(0.3, 0.3, 10**6, counter=counter, arrivals=30_000).bytes


def test_ranges_by_dates_are_half_open_wherever_now_is():
    sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1, counter="exact")
    sketch.update(["a"] * 10, np.arange(1000, 1010))

    def at(second):
        return datetime.fromtimestamp(second, UTC)

    def count(older, newer):
        return sketch.count("a", between=(older, newer)).value

    assert count(at(5000), at(6000)) == 0
    assert count(at(1000), at(1009)) == 9
    assert count(at(1009), at(1010)) == 1
    assert count(at(1000), at(2000)) == 10
    assert count("10s", "0s") == 10
    assert count("9s", "0s") == 9
    assert count("9s", "1s") == 8
    assert count("1970-01-01T00:16:40", "1970-01-01T00:16:45") == 5
    assert sketch.now == at(1009)
    sketch.advance(sketch.now)
    assert sketch.now == at(1009)


def test_no_key_has_more_than_all_of_them():
    """A short range long ago is the difference of two large answers; the total still bounds it."""
    sketch = lt.EcmSketch(window="1h", eps=0.05, delta=0.01)
    times = np.repeat(np.arange(3601), 100)
    sketch.update(np.zeros(times.size, int), times)
    answer, total = (ask(between=("1h", "59m")) for ask in (lambda **r: sketch.count(0, **r), sketch.total))
    assert 6000 in answer
    assert 6000 in total
    assert answer.high <= total.high
    assert answer.value <= answer.high
