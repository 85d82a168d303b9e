"""The most frequent keys against exact counts: all that are heavy are found, by their names, wherever and whenever they came.

Rows become lists after 64 of them here instead of thousands, so that short streams have many lists.
"""

import itertools
import math
import sys
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow, entropy, hoeffding, second_moment
from streams import Stream, cuts, make, streams

import lately as lt
from lately.sketches import candidates

ROWS = 64


@pytest.fixture(scope="module", autouse=True)
def _small_lists():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_FEWEST_ROWS", ROWS)
        yield


def build(**options):
    return lt.TopK(**({"phi": 0.1, "window": 1000, "eps": 0.05, "delta": 0.05} | options))


def feed(sketch, stream):
    sketch.update(stream.cells, None if sketch.window.kind == "arrivals" else stream.ticks, stream.counts)
    return sketch


def frequencies(stream, since, until=None):
    """How often each key came in a range."""
    inside = (stream.ticks >= since) & (True if until is None else stream.ticks < until)
    keys, place = np.unique(stream.cells[inside], return_inverse=True)
    sums = np.zeros(keys.size, np.int64)
    np.add.at(sums, place, stream.weights[inside])
    return Counter(dict(zip(keys.tolist(), sums.tolist(), strict=True)))


def is_certain(sketch, exact, phi=None, at_least=0.0, **question):
    """What holds always: every heavy key is listed, no key came more often than is said of it or of those not listed."""
    total = sum(exact.values())
    assert total in sketch.total(**question)
    heavy = sketch.heavy_hitters(phi, **question)
    line = (sketch._shape.line if phi is None else phi) + sketch.eps
    assert {key for key, count in exact.items() if count and count >= max(line * total, at_least)} <= set(heavy.key)
    for answers in (heavy, sketch.top(**question), sketch.top(3, **question), sketch.top(10**6, **question)):
        assert all(exact[row.key] <= row.count.high for row in answers)
        assert max((count for key, count in exact.items() if key not in set(answers.key)), default=0) <= answers.missed
        assert (np.diff(answers.count.value) <= 0).all()
        assert len(set(answers.key)) == len(answers)
    assert len(sketch.top(3, **question)) <= 3
    assert max(exact.values(), default=0) <= sketch.largest(**question).high
    return heavy


# -- names -------------------------------------------------------------------------------------------------------------

TEXT = ["/cart", "/", "Grüße", "/", "日本語", "/", "/cart", ""]
COLUMNS = {
    "list": (TEXT, str),
    "numpy text": (np.array(TEXT), str),
    "numpy objects": (np.array(TEXT, object), str),
    "pandas": (pd.Series(TEXT), str),
    "pandas category": (pd.Series(TEXT, dtype="category"), str),
    "polars": (pl.Series(TEXT), str),
    "polars categorical": (pl.Series(TEXT, dtype=pl.Categorical), str),
    "Arrow": (pa.array(TEXT), str),
    "Arrow dictionary": (pa.array(TEXT).dictionary_encode(), str),
    "Arrow in chunks": (pa.chunked_array([TEXT[:3], TEXT[3:]]), str),
    "bytes": ([t.encode() for t in TEXT], bytes),
    "Arrow bytes": (pa.array([t.encode() for t in TEXT]), bytes),
    "integers": ([5, -1, 2**63 - 1, -1, 0, -1, 5, -(2**63)], int),
    "numpy uint8": (np.array([5, 1, 9, 1, 0, 1, 5, 7], np.uint8), int),
    "pandas integers": (pd.Series([5, 1, 9, 1, 0, 1, 5, 7]), int),
    "Arrow int32": (pa.array([5, 1, 9, 1, 0, 1, 5, 7], pa.int32()), int),
    "tuples": ([(t, len(t)) for t in TEXT], tuple),
    "nested tuples": ([((t, b"x"), len(t)) for t in TEXT], tuple),
    "pandas frame": (pd.DataFrame({"a": TEXT, "b": [len(t) for t in TEXT]}), tuple),
    "polars frame": (pl.DataFrame({"a": TEXT, "b": [len(t) for t in TEXT]}), tuple),
    "Arrow table": (pa.table({"a": pa.array(TEXT).dictionary_encode(), "b": [len(t) for t in TEXT]}), tuple),
}


@pytest.mark.parametrize(("column", "kind"), COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("lateness", [None, 4])
def test_keys_come_back_as_what_they_were(column, kind, lateness):
    """At once, in any order, from bytes, and after lists were made of them."""
    plain = build(window=100, lateness=lateness)
    plain.update(column, [10, 11, 12, 13, 14, 15, 16, 17])
    shuffled = build(window=100, lateness=lateness)
    shuffled.update(column, [10, 15, 12, 13, 14, 11, 17, 16])
    aged = build(window=10**6, lateness=lateness)
    for step in range(0, 600, 8):
        aged.update(column, np.arange(step, step + 8))
    assert aged._parts[2].blocks
    first, second = _most_frequent(column)
    for sketch in (plain, shuffled, aged, lt.from_bytes(aged.to_bytes()), aged | aged, lt.from_bytes(plain.to_bytes())):
        top = sketch.top(8)
        assert {type(key) for key in top.key} == {kind}
        assert (top.key[:2], len(top)) == ([first, second], 5)
        times = (600 if sketch.window.ticks > 100 else 8) * (1 + sketch.merges) // 8
        assert all(count * times in row.count for row, count in zip(top, (3, 2, 1, 1, 1), strict=True))
        assert 3 * times in sketch.count(top[0].key)


def _most_frequent(column):
    """The two keys that every column above has three times and twice: in rows 1 and 0, as Python has them."""
    if hasattr(column, "columns") or isinstance(column, pa.Table):
        return ("/", 1), ("/cart", 5)
    values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    return tuple(value.item() if isinstance(value, np.generic) else value for value in (values[1], values[0]))


def test_keys_of_all_kinds_live_side_by_side():
    sketch = build(k=9, phi=None, window=10**6, eps=0.02)
    names = ["a", 1, b"b", ("a", 1), (("x", b"y"), -(2**63)), "Grüße", 2**63 - 1]
    for step, name in enumerate(itertools.islice(itertools.cycle(names), 700)):
        sketch.update([name], [step])
    for one in (sketch, lt.from_bytes(sketch.to_bytes()), sketch | sketch):
        assert sorted(map(repr, one.top().key)) == sorted(map(repr, names))


def test_equal_counts_are_listed_in_one_order_however_they_came():
    keys = [f"key {i}" for i in range(40)]
    orders = []
    for seed in range(3):
        sketch = build(k=10, phi=None, window=100, eps=0.001)
        sketch.update(np.random.default_rng(seed).permutation(keys), 5)
        orders.append((sketch.top().key, sketch.top(100).key))
    assert orders[0] == orders[1] == orders[2]
    assert orders[0][0] == orders[0][1][:10]
    hashes = lt.hash_keys(orders[0][1])
    assert (np.diff(hashes.astype(object)) > 0).all()


# -- nobody is missing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["integer", "arrivals"])
@given(
    stream=streams(most=400, cells=60),
    window=st.sampled_from([20, 300, 5000]),
    pieces=cuts,
    shares=st.tuples(*2 * [st.floats(0, 1)]),
)
def test_every_heavy_key_is_listed_in_every_range(kind, stream, window, pieces, shares):
    sketch = build(window=lt.arrivals(window) if kind == "arrivals" else window)
    for piece in stream.pieces(pieces):
        feed(sketch, piece)
    if kind == "arrivals":
        stream = Stream(np.arange(1, len(stream) + 1), stream.cells, stream.counts)
    now = int(stream.ticks[-1])
    older, newer = sorted((int(share * window) for share in shares), reverse=True)
    first = now + 1
    for last in (older, newer, window):
        is_certain(sketch, frequencies(stream, first - last), last=last)
        is_certain(sketch, frequencies(stream, first - last), 0.3, last=last)
    if newer:
        exact = frequencies(stream, first - older, first - newer)
        after = sum(frequencies(stream, first - older).values())  # a past range is known as well as what came since it began
        is_certain(sketch, exact, at_least=math.inf if not after else 0.3 * after, between=(older, newer))


N = 3000
TICKS = np.arange(N)
FRESH = TICKS * 7919 + 100


def a_key(shares):
    return np.where(np.random.default_rng(3).random(N) < shares, 7, FRESH)


STREAMS = {
    "only fresh keys": Stream(TICKS, FRESH, None),
    "one key": Stream(TICKS, np.full(N, 7), None),
    "as many heavy keys as there can be": Stream(TICKS, TICKS % 6, None),
    "a key spread thinly": Stream(TICKS, a_key(np.full(N, 0.17)), None),
    "a key in every block": Stream(TICKS, np.where(TICKS % 6, FRESH, 7), None),
    "a key early, then silence": Stream(TICKS, a_key(np.where(TICKS < 1500, 0.8, 0)), None),
    "a key lately": Stream(TICKS, a_key(np.where(TICKS > N - 100, 0.9, 0)), None),
    "a key for a while": Stream(TICKS, a_key(np.where((TICKS > 2000) & (TICKS < 2300), 0.9, 0)), None),
    "keys that drift": Stream(TICKS, np.where(TICKS % 2, TICKS // 250, FRESH), None),
    "weights that grow": Stream(TICKS, a_key(np.full(N, 0.2)), (2 ** np.linspace(0, 40, N)).astype(int)),
    "weights that shrink": Stream(TICKS, a_key(np.full(N, 0.2)), (2 ** np.linspace(40, 0, N)).astype(int)),
    "a weight among ones": Stream(TICKS, FRESH, np.where(TICKS == 1500, 2**40, 1)),
    "bursts": Stream(TICKS // 100 * 100, a_key(np.where(TICKS // 100 % 3, 0.05, 0.6)), None),
    "as in life": Stream(TICKS, np.random.default_rng(5).zipf(1.3, N), None),
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("options", [{}, {"phi": None, "k": 4, "eps": 0.1}, {"lateness": 40}], ids=["phi", "k", "lateness"])
def test_every_heavy_key_is_listed_whatever_comes(stream, options):
    sketch = build(window=2000, **options)
    for piece in stream.pieces(range(0, N, 700)):
        feed(sketch, piece)
        now = int(piece.ticks[-1])
        seen = Stream(
            *(
                None if c is None else c[: np.searchsorted(stream.ticks, now, "right")]
                for c in (stream.ticks, stream.cells, stream.counts)
            )
        )
        if int(stream.ticks[min(len(seen), N - 1)]) == now:
            continue  # a burst that was cut
        for last in (0, 30, 400, 1300, 2000):
            is_certain(sketch, frequencies(seen, now - last + 1), options.get("k") and 0.2, last=last)


def test_what_was_heavy_long_ago_is_found_in_the_past_only():
    stream = STREAMS["a key for a while"]
    sketch = feed(build(window=2000), stream)
    now = N - 1
    assert sketch.top(1, between=(now - 2000, now - 2300)).key == [7]
    assert 7 in sketch.heavy_hitters(between=(now - 2000, now - 2300)).key
    assert 7 not in sketch.heavy_hitters(last=now - 2300).key
    sketch.advance(now + 1800)
    assert sketch.heavy_hitters().key == []
    sketch.advance(now + 3000)
    assert (len(sketch.top()), sketch.top().missed, sketch.total().value) == (0, 0, 0)


# -- how good the answers are ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [1, 4])
def test_answers_miss_no_more_often_than_delta(sites):
    """Over seeds: counts within eps and within their bounds, no key below phi listed, moments within their bounds."""
    eps, delta, phi = 0.1, 0.3, 0.2
    rng = np.random.default_rng(8)
    size = 4000
    cells = np.where(rng.random(size) < 0.75, rng.integers(0, 4, size), rng.integers(10, 10_000, size))  # four of 19 % each
    stream = Stream(np.arange(size), cells, None)
    off = outside = below = trials = 0
    far = Counter()
    for seed in range(40):
        parts = []
        for site in range(sites):
            mine = slice(site, None, sites)
            sketch = build(phi=phi, window=3000, eps=eps, delta=delta, seed=seed, merge_height=int(sites > 1))
            parts.append(feed(sketch, Stream(stream.ticks[mine], cells[mine], None)))
        sketch = lt.merge(parts) if sites > 1 else parts[0]
        for last in (99, 800, 3000):
            exact = frequencies(stream, size - last)
            total = sum(exact.values())
            heavy = is_certain(sketch, exact, last=last)
            key = list(exact)[seed % len(exact)]  # one a sketch and range: the keys of one sketch share their luck
            answer = sketch.count(key, last=last)
            off += abs(answer.value - exact[key]) > eps * total
            outside += exact[key] not in answer
            light = seed % 4
            below += exact[light] < phi * total and light in heavy.key
            assert max(exact.values()) <= sketch.largest(last=last).high
            far["largest"] += max(exact.values()) < sketch.largest(last=last).low
            far["self_join"] += second_moment(exact) not in sketch.self_join(last=last)
            far["entropy"] += entropy(exact) not in sketch.entropy(last=last)
            trials += 1
    assert off <= hoeffding(trials, delta)
    assert outside <= hoeffding(trials, delta)
    assert below <= hoeffding(trials, delta)
    assert all(missed <= hoeffding(trials, delta) for missed in far.values())


@pytest.mark.parametrize(("heavy", "light"), [(45, 0), (20, 2000)])
@pytest.mark.parametrize("delta", [0.5, 0.2])
def test_moments_miss_no_more_often_than_delta_however_many_keys_stand_out(heavy, light, delta):
    """Of many keys some share a cell, and their bounds are wrong: each rarely is, but hardly ever none of them."""
    seeds, size, missed = 40, 2000, Counter()
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        cells = rng.permutation(np.concatenate((np.arange(size) % heavy, np.arange(light) + 1000)))
        stream = Stream(np.arange(cells.size), cells, None)
        sketch = feed(build(k=5, phi=None, window=2 * size, eps=0.01, delta=delta, seed=seed), stream)
        exact = Counter(cells.tolist())
        for name, truth in (
            ("largest", max(exact.values())),
            ("self_join", second_moment(exact)),
            ("entropy", entropy(exact)),
        ):
            answer = getattr(sketch, name)()
            assert answer.low <= answer.value <= answer.high
            missed[name] += not answer.low - 1e-9 <= truth <= answer.high + 1e-9
    assert max(missed.values()) <= seeds * delta


def test_answers_of_small_sketches_are_useful():
    """Bounds that hold are cheap if they are wide. These are not."""
    rng = np.random.default_rng(9)
    cells = np.minimum(rng.zipf(1.5, 50_000), 10**6)
    stream = Stream(np.arange(50_000), cells, None)
    sketch = feed(lt.TopK(k=10, window=40_000, eps=0.005, delta=0.01), stream)
    exact = frequencies(stream, 9_999)
    total = sum(exact.values())
    assert sketch.top(5).key == [1, 2, 3, 4, 5]
    assert sketch.top().missed <= 2.5 * 0.005 * total
    assert (sketch.top().count.high - sketch.top().count.low <= 2 * 0.005 * total).all()
    largest, join, bits = sketch.largest(), sketch.self_join(), sketch.entropy()
    assert largest.high - largest.low <= 0.01 * total
    assert exact[1] in largest
    assert second_moment(exact) in join
    assert join.high <= 1.1 * join.low
    assert entropy(exact) in bits
    assert bits.high - bits.low <= 3
    assert bits.value == pytest.approx(entropy(exact), rel=0.15)


@given(stream=streams(most=300, cells=30), share=st.floats(0, 1))
def test_moments_of_few_keys_are_bounded(stream, share):
    sketch = feed(build(window=1000, eps=0.02, delta=0.01), stream)
    last = int(share * 1000)
    exact = frequencies(stream, int(stream.ticks[-1]) - last + 1)
    exact = Counter({key: count for key, count in exact.items() if count})
    for answer, truth in (
        (sketch.largest(last=last), max(exact.values(), default=0)),
        (sketch.self_join(last=last), second_moment(exact)),
        (sketch.entropy(last=last), entropy(exact)),
        (sketch.total(last=last), sum(exact.values())),
    ):
        assert answer.low * (1 - 1e-9) - 1e-9 <= truth <= answer.high * (1 + 1e-9) + 1e-9
        assert answer.low <= answer.value <= answer.high


# -- sites -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 7, 64])
@pytest.mark.parametrize("shape", ["flat", "tree"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_key_that_is_heavy_in_the_union_is_found_though_at_no_site(number, shape, seed):
    """Each site has a heavy key of its own and a share of key 7, below what is heavy there; in the union only 7 is heavy."""
    rng = np.random.default_rng(seed)
    height = math.ceil(math.log2(number)) if shape == "tree" else int(number > 1)
    parts, sites = [], []
    for site in range(number):
        size = int(rng.integers(100, 700))
        own = -1 - site if number > 1 else 7
        cells = rng.choice([7, own, 0], size, p=[0.22, 0.4, 0.38])
        cells = np.where(cells == 0, rng.integers(100, 10**9, size), cells)
        parts.append(Stream(np.sort(rng.integers(0, 900, size)), cells, None))
        sites.append(feed(build(phi=0.15, merge_height=height, seed=seed), parts[-1]))
    union = Stream(*(np.concatenate(c) for c in zip(*((p.ticks, p.cells) for p in parts), strict=True)), None)
    merged = sites
    while shape == "tree" and len(merged) > 1:
        merged = [lt.merge(merged[i : i + 2]) for i in range(0, len(merged), 2)]
    merged = lt.merge(merged) if len(merged) > 1 else merged[0]
    assert merged.merges == height
    for one in (merged, lt.from_bytes(merged.to_bytes())):
        for last in (100, 500, 1000):
            exact = frequencies(union, one.now - last + 1)
            heavy = is_certain(one, exact, last=last)
            if number > 2:
                assert 7 in heavy.key
                for row in heavy:
                    assert abs(row.count.value - exact[row.key]) <= one.eps * sum(exact.values())
    twice = lt.merge([merged, merged])
    assert {key for key, count in frequencies(union, 0).items() if count >= 0.2 * len(union)} <= set(twice.heavy_hitters().key)


def test_heavy_keys_survive_a_site_that_was_heavier_long_ago():
    """Blocks of two sites that lie far apart in time must not be taken for neighbours."""
    dense = Stream(
        np.sort(np.random.default_rng(0).integers(5000, 6001, 6000)), np.where(np.arange(6000) < 5400, 7, np.arange(6000)), None
    )
    old = Stream(
        np.linspace(0, 4500, 180).astype(int), np.arange(10**6, 10**6 + 180), np.where(np.arange(180) < 90, 10**5, 10**7)
    )
    union = Stream(*(np.concatenate((getattr(old, c), getattr(dense, c))) for c in ("ticks", "cells", "weights")))
    one, other = (feed(build(phi=0.4, eps=0.1, window=10_000), stream) for stream in (dense, old))
    for merged in (one | other, other | one):
        for last in (900, 1000, 5000, 10_000):
            is_certain(merged, frequencies(union, 6000 - last), last=last)


def test_what_was_merged_goes_on():
    """Merged, fed, stored, merged again: still no heavy key is missing, and what is written can be read."""
    rng = np.random.default_rng(4)
    whole, sketch = None, None
    for lap in range(6):
        parts = []
        for site in range(2):
            size = 300 * (1 + 5 * ((lap + site) % 2))
            ticks = np.sort(rng.integers(400 * lap, 400 * lap + 400, size))
            parts.append(
                Stream(
                    ticks, np.where(rng.random(size) < 0.3, lap // 2, rng.integers(100, 10**6, size)), rng.integers(0, 9, size)
                )
            )
        sites = [feed(build(window=2000), part) for part in parts]
        sketch = lt.from_bytes((lt.merge(sites) if sketch is None else lt.merge([sketch, *sites])).to_bytes())
        later = Stream(np.full(40, 400 * lap + 399), np.arange(40), np.full(40, 3))
        feed(sketch, later)
        columns = zip(
            *((p.ticks, p.cells, p.weights) for p in (*parts, later, *([] if whole is None else [whole]))), strict=True
        )
        whole = Stream(*(np.concatenate(column) for column in columns))
        for last in (0, 100, 1000, 2000):
            is_certain(sketch, frequencies(whole, sketch.now - last + 1), last=last)
            is_certain(lt.from_bytes(sketch.to_bytes()), frequencies(whole, sketch.now - last + 1), last=last)


def test_only_alike_sketches_merge():
    for change, says in (
        ({"phi": 0.2}, "k is 10 in one and 5"),
        ({"eps": 0.04}, "eps is"),
        ({"window": 10}, "window is"),
        ({"seed": 1}, "seed is"),
    ):
        with pytest.raises(lt.MergeError, match=says):
            lt.merge([build(), build(**change)])
    with pytest.raises(lt.MergeError, match="line is"):
        lt.merge([build(), build(phi=None, k=10)])
    with pytest.raises(lt.MergeError, match="windows of arrivals cannot be merged"):
        lt.merge([build(window=lt.arrivals(10)), build(window=lt.arrivals(10))])


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_stops_growing_with_only_fresh_keys(monkeypatch):
    """A million arrivals, no key twice, with lists as long as they are in life."""
    monkeypatch.setattr(candidates, "_FEWEST_ROWS", 16_384)
    sketch = lt.TopK(phi=0.05, window=10**7, eps=0.01, delta=0.1)
    sizes = []
    for start in range(0, 10**6, 10**5):
        sketch.update(np.arange(start, start + 10**5), np.arange(start, start + 10**5))
        sizes.append(sketch.nbytes)
    assert max(sizes) <= 1.4 * sizes[1]  # the logarithm of the arrivals goes on growing
    assert max(sizes) <= 2 * 2**20
    assert len(sketch.to_bytes()) <= max(sizes)
    assert sketch.heavy_hitters().key == []


@pytest.mark.parametrize("keys", ["text", "tuples", "mixed"])
def test_memory_stops_growing_with_keys_of_any_kind(keys):
    sketch = build(window=10**6)
    sizes = []
    for start in range(0, 20_000, 1000):
        names = [f"a rather long name of a key, {i}" for i in range(start, start + 1000)]
        column = {
            "text": names,
            "tuples": [(n, i) for i, n in enumerate(names)],
            "mixed": [n if i % 2 else i for i, n in enumerate(names)],
        }
        sketch.update(column[keys], start)
        sizes.append(sketch.nbytes)
    assert max(sizes) <= 1.5 * sizes[2]


def test_memory_stops_growing_whatever_the_weights():
    for counts in (
        10**6 - np.arange(30_000),
        10**4 - np.arange(30_000) // ROWS % 100,
        np.random.default_rng(1).integers(1, 1000, 30_000),
    ):
        sketch = build(window=10**6)
        sizes = []
        for start in range(0, 30_000, 1000):
            here = slice(start, start + 1000)
            sketch.update(np.arange(start, start + 1000), np.arange(start, start + 1000), counts[here])
            sizes.append(sketch.nbytes)
        assert max(sizes) <= 1.4 * sizes[3]


def test_memory_of_many_sites_is_that_of_few():
    sizes = {}
    for number in (1, 64):
        sites = []
        for site in range(number):
            sites.append(
                feed(
                    build(window=10**6, merge_height=1),
                    Stream(np.arange(site, 64_000, number), np.arange(site, 64_000, number), None),
                )
            )
        merged = lt.merge(sites)
        sizes[number] = merged.nbytes
        assert len(merged._parts[2].blocks) <= 6 * math.log2(64_000)
    assert sizes[64] <= 2 * sizes[1]


# -- time --------------------------------------------------------------------------------------------------------------


@given(stream=streams(most=300, cells=40), lateness=st.sampled_from([5, 60]), seed=st.integers(0, 999))
def test_what_is_held_back_is_found_and_named(stream, lateness, seed):
    order = np.argsort(stream.ticks + np.random.default_rng(seed).integers(0, lateness + 1, len(stream)), kind="stable")
    names = np.array([f"key {i}" for i in range(40)])
    sketch = build(window=200, lateness=lateness)
    for part in np.array_split(order, 4):
        if part.size:
            sketch.update(names[stream.cells[part]], stream.ticks[part], stream.weights[part])
    assert sketch.late == 0
    now = int(stream.ticks.max())
    named = Stream(stream.ticks, names[stream.cells], stream.counts)
    for one in (sketch, lt.from_bytes(sketch.to_bytes())):
        for last in (0, 3, lateness, 200):
            exact = frequencies(named, now - last + 1)
            is_certain(one, exact, last=last)
            found = one._candidates_in_range((last, None))
            came = np.array([exact[key] for key in found.keys.pick(found.rows)], np.int64)
            assert (found.least <= came).all()
            assert (came <= found.most).all()
        exact = frequencies(named, now - lateness + 1, now - 1)
        answers = one.top(1000, between=(lateness, 2))
        assert max((count for key, count in exact.items() if key not in answers.key), default=0) <= answers.missed
    sketch.advance(now + lateness)
    assert sketch._reorder_buffer.keys is None  # nothing is held back any more, and nothing was lost
    for last in (lateness, 200):
        is_certain(sketch, frequencies(named, now + lateness - last + 1), last=last)


def test_held_back_keys_of_every_site_are_found():
    sites = []
    for site in range(3):
        sketch = build(window=1000, lateness=100)
        sketch.update([f"site {site}"] * 50 + ["all"] * 30, np.arange(80) + 20 * site)
        sites.append(sketch)
    merged = lt.merge(sites)
    for one in (merged, lt.from_bytes(merged.to_bytes())):
        assert {row.key: row.count.value for row in one.top(9)} == {"all": 90, "site 0": 50, "site 1": 50, "site 2": 50}
    late = build(window=1000, lateness=100)
    late.update(["new"] * 500, [300] * 500)  # what the others hold back falls due by then
    merged = lt.merge([*sites, late])
    assert merged._reorder_buffer.keys.pick(np.array([0])) == ["new"]
    assert [row.key for row in merged.top(2)] == ["new", "all"]
    assert all(site._reorder_buffer.ticks.size for site in sites)


def test_late_keys_are_refused_and_told():
    sketch = build(window=100, lateness=10)
    sketch.update(["a", "b"], [50, 50])
    sketch.update(["c", "d", "e"], [39, 40, 60], [5, 2, 1])
    assert sketch.late == 5
    assert sorted(sketch.top().key) == ["a", "b", "d", "e"]


def test_streams_outlive_32_bits_of_ticks():
    """Starts counting 1,000 ticks before stamps run over, and goes on across the edge, several times."""
    sketch, twin = build(window=500), NaiveWindow(500)
    sketch.update("first", 0)
    start = 2**32 - 2 * 500 - 2 - 1000
    for lap in range(3):
        stream = make(lap, 3000, 10, 1, 3, start=start + lap * (2**32 - 700))
        before = sketch._origin
        for piece in stream.pieces((700, 1500)):
            feed(sketch, piece)
            for tick, key, count in zip(piece.ticks, piece.cells, piece.weights, strict=True):
                twin.add(tick, int(key), count)
        assert sketch._origin > before  # the edge was crossed
        for one in (sketch, lt.from_bytes(sketch.to_bytes()), sketch | sketch.copy()):
            times = 2 if one.merges else 1
            for last in (10, 100, 500):
                exact = Counter({key: times * count for key, count in twin.frequencies(twin.now - last + 1).items()})
                is_certain(one, exact, last=last)
        twin.events = [e for e in twin.events if e[0] >= twin.now - 500]
    assert "first" not in sketch.top(100).key
    gap = sketch.copy()
    gap.update(["x", "y", "x"], [twin.now, twin.now + 2**33, twin.now + 2**40])  # one batch over several edges
    assert gap.top().key == ["x"]
    far = sketch.copy()
    far.advance(twin.now + 2**34)
    for one in (far, lt.from_bytes(far.to_bytes())):
        assert len(one.top()) == 0
        one.update("z", twin.now + 2**34)
        assert one.top().key == ["z"]


def test_dates_and_ranges_are_those_of_every_sketch():
    sketch = lt.TopK(k=3, window="1h", eps=0.01, delta=0.01)
    sketch.update(["a", "b", "b", "c", "c", "c"], pd.date_range("2026-01-01", periods=6, freq="10min", tz="UTC"))
    assert sketch.top(last="25m").key == ["c"]
    assert sketch.top(between=("50m", "30m")).key == ["b"]
    assert sketch.top(between=("2026-01-01T00:00", "2026-01-01T00:30")).key == ["b", "a"]
    assert repr(sketch).startswith("TopK(k=3, Window('1h'")


def test_an_empty_sketch_answers_nothing_seen():
    sketch = build(window="1h")
    for one in (sketch, lt.from_bytes(sketch.to_bytes()), lt.merge([sketch, sketch])):
        assert (len(one.top()), len(one.heavy_hitters()), one.top().missed) == (0, 0, 0)
        assert one.largest().value == one.self_join().value == one.entropy().value == one.total().value == 0
        assert one.top(last="10m").key == one.heavy_hitters(between=("10m", "5m")).key == []


# -- bytes -------------------------------------------------------------------------------------------------------------


@given(stream=streams(most=1500, cells=300), pieces=cuts)
def test_the_split_into_batches_does_not_matter_across_many_lists(stream, pieces):
    whole, cut = feed(build(), stream), build()
    for piece in stream.pieces(pieces):
        feed(cut, piece)
    assert cut.to_bytes() == whole.to_bytes()


def test_a_big_sketch_comes_back_with_all_its_answers():
    rng = np.random.default_rng(3)
    sketch = lt.TopK(k=20, window=50_000, eps=0.002, delta=0.01, lateness=100)
    names = np.array([f"/page/{i}" for i in range(20_000)])
    for start in range(0, 60_000, 5000):
        sketch.update(
            names[np.minimum(rng.zipf(1.1, 5000), 19_999)], np.arange(start, start + 5000) + rng.integers(0, 50, 5000)
        )
    twin = lt.from_bytes(sketch.to_bytes())
    assert twin.to_bytes() == sketch.to_bytes()
    for question in (
        {},
        {"last": 10},
        {"last": 3000},
        {"last": 50_000},
        {"between": (40_000, 50)},
        {"between": (20_000, 10_000)},
    ):
        for mine, its in (
            (sketch.top(**question), twin.top(**question)),
            (sketch.top(1000, **question), twin.top(1000, **question)),
            (sketch.heavy_hitters(0.01, **question), twin.heavy_hitters(0.01, **question)),
        ):
            assert mine == its
            assert (mine.missed, len(mine) > 0) == (its.missed, True)
        for name in ("total", "largest", "self_join", "entropy"):
            assert getattr(sketch, name)(**question) == getattr(twin, name)(**question)
    later = ["/page/late"] * 3000
    for one in (sketch, twin):
        one.update(later, 61_000)
        assert one.top(1, last=900).key == ["/page/late"]


def test_the_finest_sketches_come_back_too():
    """Of a share below a millionth there are more heavy keys than can be listed at once."""
    sketch = lt.TopK(phi=9e-7, window=100, eps=8e-7, delta=0.5)
    sketch.update("a", 5)
    assert sketch.k == lt.from_bytes(sketch.to_bytes(), limit=2**40).k == 1_000_000
    assert sketch.top().key == sketch.heavy_hitters().key == ["a"]


@pytest.mark.parametrize("lateness", [None, 50])
def test_the_callers_arrays_may_be_overwritten(lateness):
    keys = np.random.default_rng(1).integers(0, 50, 500)
    text = np.array([f"key {i}" for i in keys])
    ticks, counts = np.arange(500), np.ones(500, np.int64)
    buffer = pa.py_buffer(bytearray(keys.tobytes()))
    arrow = pa.Array.from_buffers(pa.int64(), 500, [None, buffer])
    for column, spoil in (
        (keys, lambda: keys.fill(0)),
        (text, lambda: text.fill("?")),
        (arrow, lambda: np.frombuffer(buffer, np.int64).fill(0)),
    ):
        sketch = build(window=10**4, lateness=lateness)
        sketch.update(column, ticks, counts)
        before, top = sketch.to_bytes(), sketch.top(100)
        saved = ticks.copy()
        spoil()
        ticks[:], counts[:] = 0, 99
        assert sketch.to_bytes() == before
        assert sketch.top(100) == top
        ticks[:], counts[:] = saved, 1


# -- to look at --------------------------------------------------------------------------------------------------------


@pytest.fixture
def _no_figures_left():
    import matplotlib as mpl

    mpl.use("Agg")
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.mark.usefixtures("_no_figures_left")
def test_a_plot_draws_the_top_keys_with_their_bounds():
    from matplotlib.figure import Figure

    sketch = build(k=3, phi=None, window=1000)
    sketch.update(["a"] * 5 + ["b"] * 3 + ["c"] * 2 + ["d"], np.arange(11))
    ax = sketch.plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b", "c"]
    assert [bar.get_width() for bar in ax.patches] == [5, 3, 2]
    assert ax.get_xlabel() == "count"
    mine = Figure().subplots()
    assert sketch.plot(2, last=3, ax=mine) is mine
    assert [text.get_text() for text in mine.get_yticklabels()] == sketch.top(2, last=3).key
    assert len(build().plot(ax=Figure().subplots()).patches) == 0


def test_answers_become_tables():
    sketch = build(window=100)
    sketch.update(["a", "b", "a"], [1, 2, 3])
    assert sketch.top().to_arrow().to_pydict() == {
        "key": ["a", "b"],
        "count": [2, 1],
        "count_low": [2, 1],
        "count_high": [2, 1],
    }
    assert repr(sketch.top()).endswith("not listed: 0 at most")
