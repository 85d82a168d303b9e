"""The ECM-sketch against exact answers: certain where it says certain, within eps as often as it says."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow, count_min, hoeffding
from streams import FAMILIES, cuts, make, streams

import lately as lt
from lately.core.plan import count_min_size, premerge_error

KINDS = ("time", "integer", "arrivals")


def build(kind, window, **options):
    """An empty sketch over a window of so many ticks of this kind, with its naive twin."""
    options = {"eps": 0.2, "delta": 0.2} | ({"salt": 1} if options.get("counter") == "randwave" else {}) | options
    if kind == "arrivals":
        return lt.EcmSketch(window=lt.arrivals(window), **options), NaiveWindow(window - 1)
    length = f"{window}s" if kind == "time" else window
    return lt.EcmSketch(window=length, **options), NaiveWindow(window)


def feed(sketch, twin, stream, pieces=()):
    for piece in stream.pieces(pieces):
        arrivals = sketch.window.kind == "arrivals"
        times = None if arrivals else piece.ticks
        sketch.update(piece.cells, times, piece.counts)
        for tick, key, count in zip(piece.ticks, piece.cells, piece.weights, strict=True):
            twin.add((twin.now or 0) + 1 if arrivals else tick, int(key), count)


def duration(kind, ticks):
    return f"{ticks}s" if kind == "time" else ticks


def first_tick(kind, twin, age):
    return twin.now - age + (kind == "arrivals")


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
        expected = count_min(frequencies, sketch._words, sketch.width)
        extracted = sketch.extract(**question)
        assert (extracted.table == expected).all()
        for key in range(5):
            cells = expected[np.arange(sketch.depth), [int(c) for c in _cells(sketch, key)]]
            assert sketch.count(key, **question).value == cells.min() == extracted.count(key).value
        assert sketch.self_join(**question).value == (expected**2).sum(axis=1).min() == extracted.self_join().value


def _cells(sketch, key):
    from naive import cell

    return [cell(key, word, sketch.width) for word in sketch._words]


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
            frequencies = twin.frequencies(now - last)
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
            a, b = (np.bincount(s.cells[s.ticks >= now - last], minlength=50) for s in (left, right))
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


def test_randomized_waves_refuse_inner_products():
    sketch, twin = build("integer", 100, counter="randwave")
    feed(sketch, twin, make(0, 50, 5, 1, 0))
    for question in (sketch.self_join, lambda: sketch.inner_product(sketch)):
        with pytest.raises(lt.QueryError, match="no guarantee for self-joins"):
            question()


@pytest.mark.parametrize("counter", ["wave", "exphist"])
@given(inputs=st.lists(streams(most=150, cells=20), min_size=1, max_size=5), window=st.sampled_from([20, 3000]))
def test_merged_sketches_bound_the_union(counter, inputs, window):
    """Sites whose clocks differ, merged flat and as a chain: high is certain, the total is bracketed, inputs untouched."""
    twin = NaiveWindow(window)
    sites = []
    for stream in inputs:
        site = lt.EcmSketch(window=window, eps=0.2, delta=0.2, counter=counter)
        site.update(stream.cells, stream.ticks, stream.counts)
        sites.append(site)
        for tick, key, count in zip(stream.ticks, stream.cells, stream.weights, strict=True):
            twin.add(tick, int(key), count)
    before = [site.to_bytes() for site in sites]
    flat = lt.merge(sites)
    chain = sites[0]
    for site in sites[1:]:
        chain = chain | site
    assert [site.to_bytes() for site in sites] == before
    assert flat.merges == 1
    assert chain.merges == len(sites) - 1
    assert flat.error == pytest.approx(2 * 0.2 + 0.2**2)
    for merged in (flat, chain):
        assert merged.now == twin.now
        for last in (window // 3, window):
            exact = np.array([twin.since(twin.now - last, k) for k in range(20)])
            assert (merged.counts(np.arange(20), last=last).high >= exact).all()
            assert twin.since(twin.now - last) in merged.total(last=last)


def test_merging_as_planned_ends_within_eps():
    """merge_height=3 and a tree of 8 sites: the counters' own error stays below eps for every key and range."""
    eps = 0.2
    streams_ = [make(seed, 3000, 30, 1, 0) for seed in range(8)]
    sites = []
    for stream in streams_:
        site = lt.EcmSketch(window=1500, eps=eps, delta=0.01, merge_height=3)
        site.update(stream.cells, stream.ticks)
        sites.append(site)
    assert sites[0]._counters[0].eps == premerge_error(eps, 3)
    while len(sites) > 1:
        sites = [a | b for a, b in zip(sites[::2], sites[1::2], strict=True)]
    merged = sites[0]
    assert merged.merges == 3
    assert merged.error == pytest.approx(eps)
    for last in (50, 400, 1500):
        union = sum(np.bincount(s.cells[s.ticks >= merged.now - last], minlength=30) for s in streams_)
        table = count_min({k: int(c) for k, c in enumerate(union)}, merged._words, merged.width).reshape(-1)
        found = merged.extract(last=last).table.reshape(-1)
        assert (np.abs(found - table) <= eps * table).all()


def test_windows_of_arrivals_refuse_to_merge():
    sketch, _ = build("arrivals", 100)
    with pytest.raises(lt.MergeError, match=r"windows of arrivals cannot be merged.*window='1h'"):
        lt.merge([sketch, sketch])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"eps": 0.1}, "eps is 0.2 in one and 0.1 in another"),
        ({"delta": 0.1}, "delta is 0.2 in one and 0.1"),
        ({"seed": 5}, "seed is .* in one and 5"),
        ({"counter": "exphist"}, "counter is 'wave' in one and 'exphist'"),
        ({"window": 200}, r"window is Window\(100, tick=1\) in one and Window\(200, tick=1\)"),
        ({"query": "inner"}, "query is 'point' in one and 'inner'"),
        ({"merge_height": 2}, "merge_height is 0 in one and 2"),
        ({"lateness": 5}, "lateness is 0 in one and 5"),
    ],
)
def test_merging_says_what_differs(change, says):
    one = {"window": 100, "eps": 0.2, "delta": 0.2}
    with pytest.raises(lt.MergeError, match=says):
        lt.merge([lt.EcmSketch(**one), lt.EcmSketch(**(one | change))])
    with pytest.raises(lt.MergeError, match="EcmSketch with a WindowCounter"):
        lt.merge([lt.EcmSketch(**one), lt.WindowCounter(window=100, eps=0.2)])


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


def test_late_arrivals_are_refused_and_told():
    sketch, _ = build("integer", 100)
    sketch.update(["a", "b"], [50, 40])  # within a batch any order is fine
    assert (sketch.late, sketch.total().value) == (0, 2)
    sketch.update(["a", "b", "c"], [49, 50, 51], [3, 1, 1])
    assert (sketch.late, sketch.total().value) == (3, 4)
    sketch.update("a", 10)
    assert (sketch.late, sketch.total().value, sketch.now) == (4, 4, 51)
    patient, _ = build("integer", 100, lateness=20)
    patient.update(["a"], [50])
    patient.update(["b", "c"], [30, 29])
    assert (patient.late, patient.total().value) == (1, 2)


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
            recent = twin.frequencies(twin.now - last)
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
    assert sketch.total().value == twin.since(later - window)


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
    assert sketch.count("a", last=timedelta(hours=5)).value == 6  # both ends count
    assert sketch.count("a", between=("5h", "0s")).value == 6
    assert sketch.count("a", between=("5h", "2h")).value == 3
    assert sketch.count("a", between=(np.datetime64("2026-01-01T12"), np.datetime64("2026-01-01T13"))).value == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eps": 0}, "eps=0"),
        ({"eps": 1.0}, "eps=1.0"),
        ({"eps": float("nan")}, "eps=nan"),
        ({"eps": "0.1"}, "eps='0.1'"),
        ({"delta": -0.5}, "delta=-0.5"),
        ({"delta": 1}, "delta=1"),
        ({"window": "10ms"}, "shorter than one tick"),
        ({"window": "0s"}, "longer than nothing"),
        ({"window": -5}, "longer than nothing"),
        ({"window": "soon"}, "cannot read the duration 'soon'"),
        ({"window": "100d", "tick": "1ms"}, "coarser tick="),
        ({"window": 10, "tick": "1s"}, "give both the same way"),
        ({"window": lt.arrivals(5), "tick": 1}, "leave tick out"),
        ({"window": lt.arrivals(5), "lateness": 1}, "none is late"),
        ({"lateness": "2h"}, "lateness='2h' is negative or longer"),
        ({"counter": "bucket"}, "counter='bucket': give one of wave, exphist, randwave, exact"),
        ({"query": "median"}, "query='median': give one of point, inner"),
        ({"seed": -1}, "seed=-1"),
        ({"merge_height": -1}, "merge_height=-1"),
        ({"eps": 1e-9}, "cells; give a larger eps"),
        ({"counter": "randwave", "samples": 0}, "samples=0"),
    ],
)
def test_what_cannot_be_built_is_refused(options, says):
    with pytest.raises(lt.ParameterError, match=says):
        lt.EcmSketch(**({"window": "1h", "eps": 0.1, "delta": 0.1} | options))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([], []), "empty column"),
        ((["a", "b"], [1]), "2 keys but 1 times"),
        ((["a"], [1, 2]), "1 keys but 2 times"),
        ((["a", "b"], [1, None]), "None"),
        ((["a"], [float("nan")]), "nan"),
        ((["a"], [np.datetime64("NaT")]), "NaT"),
        ((["a"], ["yesterday"]), "cannot read times"),
        ((["a"], None), "times is None"),
        ((["a"], [2.0**80]), "seconds since 1970"),
        (([None], [1]), "null"),
        (([1.5], [1]), "not supported|is a float"),
        (([True], [1]), "bool"),
        (([2**70], [1]), "does not fit in 64 bits"),
        ((["a", "b"], [1, 2], [1, -1]), "-1"),
        ((["a", "b"], [1, 2], [1, 0.5]), "0.5"),
        ((["a", "b"], [1, 2], [1]), "1 counts for 2 keys"),
        ((["a"], [1], [2**63]), "below 2\\*\\*63"),
        ((["a", "b"], [1, 2], [2**62, 2**62]), "more than 2\\*\\*62"),
        ((["a"], [[1]]), "dimensions"),
    ],
)
def test_bad_batches_are_refused_whole(arguments, says):
    sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    sketch.update(["x", "y"], [0, 100])
    before = sketch.to_bytes()
    with pytest.raises(lt.LatelyError, match=says):
        sketch.update(*arguments)
    assert sketch.to_bytes() == before


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ({"last": "2h"}, "does not lie in the window of 1h"),
        ({"last": 5}, "write it like '10m'"),
        ({"last": "-5m"}, "cannot read"),
        ({"last": "5m", "between": ("2m", "1m")}, "give one of them"),
        ({"between": ("1m", "2m")}, "runs backwards"),
        ({"between": ("2h", "1m")}, "does not lie in the window"),
        ({"between": "10m"}, "give two ages"),
    ],
)
def test_bad_ranges_are_refused(question, says):
    sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    with pytest.raises(lt.RangeError, match=says):
        sketch.count("x", **question)


def test_an_empty_sketch_answers_nothing_seen():
    sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    assert sketch.count("x").value == sketch.total().value == sketch.self_join().value == 0
    assert sketch.extract().total == 0
    assert lt.merge([sketch, sketch]).total().value == 0
    assert lt.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()


def test_sizes_are_the_theorems():
    for eps, delta, query in ((0.1, 0.05, "point"), (0.02, 0.01, "inner")):
        sketch = lt.EcmSketch(window="1h", eps=eps, delta=delta, query=query)
        assert (sketch.width, sketch.depth) == count_min_size(eps / (1 + eps), delta)
        planned = lt.plan(eps, delta, "1h", query=query)
        assert (sketch.width, sketch.depth, sketch._counters[0].eps) == (planned.width, planned.depth, planned.eps_sw)


@pytest.mark.parametrize("counter", FAMILIES)
def test_memory_stays_within_the_plan(counter):
    sketch = lt.EcmSketch(window=10**6, eps=0.3, delta=0.3, counter=counter, salt=3)
    sketch.update(np.random.default_rng(0).zipf(1.2, 30_000) % 10_000, np.arange(30_000))
    assert sketch.nbytes <= lt.plan(0.3, 0.3, 10**6, counter=counter, arrivals=30_000).bytes


def test_what_would_overflow_is_refused_before_it_is_merged():
    one = lt.EcmSketch(window=100, eps=0.3, delta=0.3)
    one.update("a", 5, 2**61)
    with pytest.raises(lt.MergeError, match=r"more than 2\*\*62"):
        lt.merge([one, one, one])
    deep = lt.EcmSketch(window=100, eps=0.3, delta=0.3)
    deep.update("a", 5)
    site = deep.copy()
    for _ in range(255):
        deep = deep | site
    assert lt.from_bytes(deep.to_bytes()).merges == 255
    with pytest.raises(lt.MergeError, match=r"more than 255 levels of merging; merge many sketches in one call"):
        deep | site


def test_count_answers_for_one_key():
    sketch = lt.EcmSketch(window=100, eps=0.3, delta=0.3, counter="exact")
    sketch.update([("a", 1), ("b", 2), ("a", 1)], [1, 2, 3])
    assert sketch.count(("a", 1)).value == 2
    for keys in (["a", "b"], []):
        with pytest.raises(lt.InputError, match=r"use counts\(\)"):
            sketch.count(keys)


@pytest.mark.parametrize("counter", ["wave", "exphist"])
def test_trees_of_merges_do_not_drift(counter):
    """Lumps of powers of two must not line up with what is retained: over 64 sites the mean error stays near zero."""
    ticks = np.arange(200_000)
    sites = np.random.default_rng(0).integers(0, 64, ticks.size)
    counters = []
    for site in range(64):
        one = lt.WindowCounter(window=10**6, eps=0.1, counter=counter)
        one.add(ticks[sites == site])
        counters.append(one)
    while len(counters) > 1:
        counters = [a | b for a, b in zip(counters[::2], counters[1::2], strict=True)]
    lasts = np.unique(np.geomspace(1000, 150_000, 300).astype(int))
    errors = [(counters[0].count(last=int(last)).value - (last + 1)) / (last + 1) for last in lasts]
    assert abs(np.mean(errors)) < 0.04  # without care for where lumps end it is -0.07
    assert np.mean(np.abs(errors)) < 0.07


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
    assert count("9s", "0s") == 10
    assert count("9s", "1s") == 8
    assert count("1970-01-01T00:16:40", "1970-01-01T00:16:45") == 5
    assert sketch.now == at(1009)
    sketch.advance(sketch.now)
    assert sketch.now == at(1009)


def test_ranges_in_the_past_are_extracted_from_exact_counters_only():
    sketch, twin = build("integer", 100)
    feed(sketch, twin, make(0, 50, 5, 1, 0))
    with pytest.raises(lt.QueryError, match=r"ask the sketch itself, or extract\(last=…\)"):
        sketch.extract(between=(50, 20))


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((np.ma.array([1, 2], mask=[0, 1]), [1, 2]), "1 of the keys are masked"),
        (([1, 2], np.ma.array([1, 2], mask=[1, 1])), "2 of the times are masked"),
        ((["a"] * 3, [1_774_744_200, 1_774_744_200, 1_774_744_200_123]), "1774744200123.*divide milliseconds by 1000"),
        ((np.array([]), []), "empty column"),
        ((("a", "b", "a"), [0, 1, 2]), "a tuple is one key"),
    ],
)
def test_common_slips_are_caught(arguments, says):
    sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    with pytest.raises(lt.InputError, match=says):
        sketch.update(*arguments)
    assert sketch.now is None


def test_what_is_no_whole_number_of_ticks_is_refused():
    for options in ({"window": "1500ms"}, {"window": "1h", "tick": "7s"}, {"window": 1000, "tick": 60}):
        with pytest.raises(lt.ParameterError, match="not a whole number of ticks"):
            lt.EcmSketch(eps=0.1, delta=0.1, **options)
    sketch = lt.EcmSketch(window="1h", tick="1m", eps=0.1, delta=0.1)
    for question in ({"last": "90s"}, {"between": ("10m", "10s")}):
        with pytest.raises(lt.RangeError, match="not a whole number of ticks of 1m"):
            sketch.count("a", **question)
