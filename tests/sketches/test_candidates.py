"""The lists of keys that could be heavy: nobody who is may be missing from them, whatever comes, merges and ages.

Blocks are made of 16 rows here instead of thousands, so that short streams have many of them.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import Stream, cuts

import lately as lt
from lately.core.codec import Reader, Writer
from lately.core.joined import JoinedKeys
from lately.core.keys import IntegerKeys, all_hashes, key_column
from lately.core.stored_keys import write_keys
from lately.counters.base import MAX_COUNT, MAX_STAMP
from lately.sketches import candidates
from lately.sketches.candidates import Candidates

ROWS = 16
SPAN = 10**6


@pytest.fixture(scope="module", autouse=True)
def _small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_FEWEST_ROWS", ROWS)
        yield


def hashed(keys):
    return all_hashes(IntegerKeys(np.asarray(keys, np.int64)))


def add(lists, stream):
    keys = IntegerKeys(stream.cells.astype(np.int64))
    lists.add(keys, 0, all_hashes(keys), stream.ticks.astype(np.uint32), stream.counts)


def build(stream, size=10, pieces=(), span=SPAN):
    lists = Candidates(span, size)
    for piece in stream.pieces(pieces):
        add(lists, piece)
    return lists


def merge(sites):
    return sites[0].merged(sites[1:], [0] * len(sites), 1) if len(sites) > 1 else sites[0]


def together(*streams):
    """What all of them saw, in time order."""
    ticks, cells, counts = (np.concatenate(c) for c in zip(*((s.ticks, s.cells, s.weights) for s in streams), strict=True))
    order = np.argsort(ticks, kind="stable")
    return Stream(ticks[order], cells[order], counts[order])


def moments(lists, stream, number=30):
    """Stamps to ask about: some of the stream's, and those around the ends of every block."""
    edges = {edge + step for block in lists.blocks for edge in (block.start, block.end) for step in (0, 1)}
    ticks = np.unique(stream.ticks)
    picked = ticks[np.unique(np.linspace(0, ticks.size - 1, number).astype(int))]
    return sorted({1, *picked.tolist(), int(ticks[-1]) + 1, *edges})


def in_range(stream, since, until=None):
    """(hashes, how often each came, how often all did) in a range."""
    inside = (stream.ticks >= since) & (True if until is None else stream.ticks < until)
    known, place = np.unique(hashed(stream.cells[inside]), return_inverse=True)
    sums = np.zeros(known.size, np.int64)
    np.add.at(sums, place, stream.weights[inside])
    return known, sums, int(sums.sum())


def is_certain(found, stream, since, until=None):
    known, sums, _ = in_range(stream, since, until)
    exact = dict(zip(known.tolist(), sums.tolist(), strict=True))
    came = np.array([exact.pop(key, 0) for key in found.hashes.tolist()], np.int64)
    assert max(exact.values(), default=0) <= found.missed
    assert (found.least <= came).all()
    assert (came <= found.most).all()
    only = found.only(found.most > np.median(found.most)) if found.most.size else found
    assert (
        max(
            (
                exact | dict(zip(found.hashes.tolist(), came.tolist(), strict=True)) | dict.fromkeys(only.hashes.tolist(), 0)
            ).values(),
            default=0,
        )
        <= only.missed
    )


def keeps_its_promise(lists, stream, since=1):
    """Whoever is not found came at most ``missed`` times, certainly; since any moment that is at most 2/size of all.

    And whoever is found came as often as is said of it, at the least and at the most.
    """
    asked = [moment for moment in moments(lists, stream) if moment >= since]
    for moment in asked:
        found = lists.between(moment, None)
        is_certain(found, stream, moment)
        assert found.missed * lists.size <= 2 * in_range(stream, moment)[2]
    for older, newer in itertools.pairwise([*asked[::3], *asked[::7]]):
        older, newer = sorted((older, newer))
        found = lists.between(older, newer)
        is_certain(found, stream, older, newer)
        assert found.missed * lists.size <= 2 * in_range(stream, older)[2]
        assert hashed(found.keys.pick(found.rows)).tolist() == found.hashes.tolist()
        assert np.unique(found.hashes).size == found.hashes.size


# -- streams -----------------------------------------------------------------------------------------------------------


def fresh(size, start=0):
    """Keys of which no two are the same."""
    return np.arange(start, start + size) * 7919 + 1


def a_key(shares, seed=1):
    """Fresh keys, but key 0 with these probabilities."""
    return np.where(np.random.default_rng(seed).random(len(shares)) < shares, 0, fresh(len(shares)))


N = 900
TICKS = np.arange(N) + 1
HALF = TICKS <= N // 2
ADVERSARIES = {
    "only fresh keys": Stream(TICKS, fresh(N), None),
    "only fresh keys at one tick": Stream(np.ones(N, int), fresh(N), None),
    "one key": Stream(TICKS, np.zeros(N, int), None),
    "one key in each block": Stream(TICKS, TICKS // ROWS, None),
    "one key once in each block": Stream(TICKS, np.where(TICKS % ROWS, fresh(N), 0), None),
    "as many keys as are listed, and one": Stream(TICKS, TICKS % 11, None),
    "weights that grow": Stream(TICKS, fresh(N), (2 ** np.linspace(0, 40, N)).astype(int)),
    "weights that shrink": Stream(TICKS, fresh(N), (2 ** np.linspace(40, 0, N)).astype(int)),
    "weights that grow and shrink": Stream(TICKS, fresh(N), (2 ** np.abs(np.linspace(-40, 40, N))).astype(int)),
    "weights that shrink a little": Stream(TICKS, fresh(N), 10_000 - TICKS),
    "one weight among ones": Stream(TICKS, fresh(N), np.where(TICKS == N // 3, 2**40, 1)),
    "weights of nothing": Stream(TICKS, fresh(N), np.where(HALF, 1, 0)),
    "weights of nothing at first": Stream(TICKS, fresh(N), np.where(HALF, 0, 1)),
    "a key spread thinly": Stream(TICKS, a_key(np.full(N, 0.25)), None),
    "a key early, then silence": Stream(TICKS, a_key(np.where(HALF, 0.9, 0)), None),
    "a key lately": Stream(TICKS, a_key(np.where(TICKS > N - 40, 0.9, 0)), None),
    "a key where a block straddles": Stream(TICKS, a_key(np.where((TICKS > 300) & (TICKS < 420), 0.9, 0)), None),
    "a key in bursts": Stream(TICKS // 50 * 50 + 1, a_key(np.where(TICKS // 50 % 3, 0.02, 0.8)), None),
    "a key with weights, others without": Stream(TICKS, a_key(np.full(N, 0.02)), None),
    "keys that drift": Stream(TICKS, np.where(TICKS % 2, TICKS // 100, fresh(N)), None),
    "as in life": Stream(np.sort(np.random.default_rng(2).integers(1, 400, N)), np.random.default_rng(3).zipf(1.3, N), None),
}
adversaries = pytest.mark.parametrize("stream", ADVERSARIES.values(), ids=ADVERSARIES)


def _make(seed, size, keys, pace, weight):
    rng = np.random.default_rng(seed)
    ticks = np.sort(rng.integers(1, {"at once": 2, "in bursts": 20, "slowly": 3000}[pace], size))
    cells = {"fresh": fresh(size, int(rng.integers(10**9))), "few": rng.integers(0, 15, size), "zipf": rng.zipf(1.2, size)}
    cells["one among many"] = np.where(rng.random(size) < rng.choice([0.05, 0.2, 0.6]), 0, cells["fresh"])
    counts = {
        "none": None,
        "small": rng.integers(0, 5, size),
        "rare": np.where(rng.random(size) < 0.02, 10**6, 1),
        "growing": (2 ** np.linspace(0, 40, size)).astype(int),
        "shrinking": (2 ** np.linspace(40, 0, size)).astype(int),
    }
    return Stream(ticks, cells[keys].astype(np.int64), counts[weight])


anything = st.builds(
    _make,
    seed=st.integers(0, 2**32),
    size=st.integers(1, 500),
    keys=st.sampled_from(["fresh", "few", "zipf", "one among many"]),
    pace=st.sampled_from(["at once", "in bursts", "slowly"]),
    weight=st.sampled_from(["none", "small", "rare", "growing", "shrinking"]),
)
sizes = st.sampled_from([1, 2, 5, 10, 40])


# -- nobody is missing -------------------------------------------------------------------------------------------------


@adversaries
@pytest.mark.parametrize("size", [3, 10])
def test_no_heavy_key_is_missing_whatever_comes(stream, size):
    lists = build(stream, size)
    assert lists.taken == stream.weights.sum()
    keeps_its_promise(lists, stream)


@given(stream=anything, size=sizes)
def test_no_heavy_key_is_missing_from_any_stream(stream, size):
    keeps_its_promise(build(stream, size), stream)


def test_few_keys_are_all_found_and_nothing_is_missed():
    stream = Stream(TICKS, TICKS % 10, None)
    lists = build(stream, size=10)
    assert len(lists.blocks) > 3
    for moment in (1, 333, N - 1):
        found = lists.between(moment, None)
        assert (found.missed, found.hashes.size) == (0, min(10, N - moment + 1))


def test_nothing_is_found_where_nothing_came():
    lists = Candidates(SPAN, 10)
    for moment in (1, MAX_STAMP):
        found = lists.between(moment, None)
        assert (found.hashes.size, found.rows.size, found.missed, found.keys.pick(found.rows)) == (0, 0, 0, [])
    add(lists, ADVERSARIES["only fresh keys"])
    assert lists.between(N + 1, None).hashes.size == lists.between(N + 1, None).missed == 0
    assert lists.between(5, 5).missed * 10 <= 2 * N


# -- merging -----------------------------------------------------------------------------------------------------------


@given(streams=st.lists(anything, min_size=1, max_size=5), size=sizes)
def test_no_heavy_key_of_the_union_is_missing(streams, size):
    """Flat and as a chain; and what was merged goes on, is stored and read."""
    sites = [build(stream, size) for stream in streams]
    union = together(*streams)
    flat, chain = merge(sites), sites[0]
    for site in sites[1:]:
        chain = merge([chain, site])
    later = Stream(union.ticks[-1] + TICKS[:100], fresh(100), None)
    for lists in (flat, chain):
        keeps_its_promise(lists, union)
        lists = lists.copy()
        add(lists, later)
        keeps_its_promise(lists, together(union, later))
        keeps_its_promise(stored(lists), together(union, later))


def spread(stream, number, seed=4):
    """A stream's arrivals dealt to so many sites."""
    site = np.random.default_rng(seed).integers(0, number, len(stream))
    return [Stream(stream.ticks[site == i], stream.cells[site == i], stream.weights[site == i]) for i in range(number)]


@pytest.mark.parametrize("number", [2, 7, 64])
@pytest.mark.parametrize("tree", [False, True])
def test_a_key_that_is_heavy_at_no_site_is_found_in_the_union(number, tree):
    """Its share of the union is 30 %, but it comes to each site when most else does."""
    rng = np.random.default_rng(number)
    size = 120 * number
    ticks = np.sort(rng.integers(1, 2000, size))
    cells = np.where(rng.random(size) < 0.3, 0, fresh(size))
    sites = spread(Stream(ticks, cells, None), number)
    union = together(*sites)
    lists = [build(site, 20) for site in sites]
    while tree and len(lists) > 1:
        lists = [merge(lists[i : i + 2]) for i in range(0, len(lists), 2)]
    merged = merge(lists)
    assert merged.height == (math.ceil(math.log2(number)) if tree else 1)
    keeps_its_promise(merged, union)
    for moment in (1, 500, 1500, 1900):
        assert hashed([0])[0] in merged.between(moment, None).hashes


def test_old_blocks_of_one_site_are_not_joined_with_new_ones_of_another():
    """One site is dense and recent, the other had heavy keys long ago, and more of them than are listed.

    In a block of both, its keys would push out all that came lately, and the block would be anything but small beside
    what is newer.
    """
    dense = Stream(np.sort(np.random.default_rng(0).integers(5000, 6001, 3000)), np.repeat([0, 1], [2800, 200]), None)
    ticks = np.concatenate([np.linspace(1, 100, 20), np.linspace(4000, 4500, 20)]).astype(int)
    old = Stream(ticks, fresh(40), np.full(40, 10_000))
    for sites in ([dense, old], [old, dense]):
        merged = merge([build(site, 4) for site in sites])
        keeps_its_promise(merged, together(*sites))
        assert hashed([0])[0] in merged.between(5000, None).hashes


@pytest.mark.parametrize("size", [160, 176, 192, 208])
def test_what_was_merged_and_goes_on_keeps_its_blocks_in_order(size):
    """Rows that waited longer than another site's blocks become blocks that are older than those."""
    dense, old = Stream(np.full(size, 1999), fresh(size), None), Stream(TICKS[:47], fresh(47), np.full(47, 1000))
    merged = merge([build(dense), build(old)])
    union = together(dense, old)
    for step in range(0, 60, 3):
        now = Stream(2000 + step + np.arange(3), fresh(3, step), None)
        add(merged, now)
        union = together(union, now)
        ends = [block.end for block in merged.blocks]
        assert ends == sorted(ends)
        keeps_its_promise(stored(merged), union)


@pytest.mark.parametrize("shift", [0, -40, -400, -5000])
def test_sites_with_other_origins_are_moved(shift):
    stream, other = ADVERSARIES["keys that drift"], ADVERSARIES["a key spread thinly"]
    moved = Stream(other.ticks + shift, other.cells, other.counts)
    kept = moved.ticks >= 1
    moved = Stream(moved.ticks[kept], moved.cells[kept], None)
    merged = build(stream).merged([build(other)], [0, shift], 1)
    keeps_its_promise(merged, together(stream, moved))
    assert merged.taken <= N + int(kept.sum()) + 2 * N // 3  # a block that straddles comes along whole
    if shift == -5000:
        assert merged.taken == N


def test_inputs_stay_as_they_are():
    sites = [build(ADVERSARIES[name]) for name in ("as in life", "one key", "weights that shrink")]
    before = [written(site) for site in sites]
    merged = merge(sites)
    add(merged, Stream(TICKS + N, fresh(N), None))
    assert [written(site) for site in sites] == before
    twin = sites[0].copy()
    add(twin, Stream(TICKS + N, fresh(N), None))
    twin.rebase(5)
    assert written(sites[0]) == before[0]


# -- memory ------------------------------------------------------------------------------------------------------------

LONG = np.arange(1, 40_001)
WEIGHTS = {
    "ones": None,
    "shrinking a little": 10**6 - LONG,
    "growing a little": 10**6 + LONG,
    "saws": 10_000 - LONG // ROWS % 100,
    "shrinking to nothing": (2 ** np.linspace(40, 0, LONG.size)).astype(int),
    "growing from nothing": (2 ** np.linspace(0, 40, LONG.size)).astype(int),
    "random": np.random.default_rng(5).integers(0, 1000, LONG.size),
    "random powers": 2 ** np.random.default_rng(5).integers(0, 30, LONG.size),
    "now and then": np.where(LONG % (3 * ROWS) == 0, 10**6, 1),
}


@pytest.mark.parametrize("counts", WEIGHTS.values(), ids=WEIGHTS)
def test_lists_are_as_many_as_the_logarithm_of_the_arrivals(counts):
    stream = Stream(LONG, fresh(LONG.size), counts)
    lists = build(stream)
    assert len(lists.blocks) <= 4 * math.log2(lists.taken)
    assert sum(rows.hashes.size for rows in (*lists.rows, *lists.pieces)) < 3 * ROWS
    assert max(block.hashes.size for block in lists.blocks) <= 10
    assert lists.nbytes <= 24 * (3 * ROWS + 10 * len(lists.blocks)) + 28 * ROWS
    keeps_its_promise(lists, stream)


@pytest.mark.parametrize("number", [2, 64])
def test_lists_of_many_sites_become_few(number):
    sites = spread(Stream(LONG, fresh(LONG.size), None), number)
    merged = merge([build(site) for site in sites])
    assert len(merged.blocks) <= 6 * math.log2(merged.taken)
    twice = merge([merged, merged.copy()])
    assert len(twice.blocks) <= 6 * math.log2(twice.taken)


def test_blocks_leave_with_the_window():
    stream = Stream(LONG, fresh(LONG.size), None)
    lists = build(stream, span=300)
    assert min(block.end for block in lists.blocks) >= LONG[-1] - 300 - 4 * ROWS
    assert len(lists.blocks) <= 16
    keeps_its_promise(lists, stream, since=int(LONG[-1]) - 300)
    silent = Stream(np.arange(10**5, 10**5 + 12 * ROWS), np.zeros(12 * ROWS, int), None)
    add(lists, silent)
    assert min(block.start for block in lists.blocks) >= 10**5
    assert lists.between(1, None).hashes.tolist() == hashed([0]).tolist()


# -- time --------------------------------------------------------------------------------------------------------------


@adversaries
@pytest.mark.parametrize("shift", [1, 350, N + 5, 2**33])
def test_rebasing_moves_everything(stream, shift):
    lists = build(stream)
    rebased = lists.copy()
    rebased.rebase(shift)
    for moment in moments(lists, stream):
        if moment > shift:
            one, other = lists.between(moment, None), rebased.between(moment - shift, None)
            assert (set(one.hashes.tolist()), one.missed) == (set(other.hashes.tolist()), other.missed)
    if shift > N:
        assert rebased.between(1, None).hashes.size == 0
    else:
        keeps_its_promise(rebased, Stream(np.maximum(stream.ticks - shift, 0), stream.cells, stream.counts))


# -- bytes -------------------------------------------------------------------------------------------------------------


def written(lists, now=None):
    out = Writer()
    lists.write(out, now or int(max([1, *(rows.stamps[-1] for rows in (*lists.rows, *lists.pieces))])))
    return out.bytes()


def stored(lists, now=None):
    """What comes back from bytes."""
    data = written(lists, now)
    now = now or int(max([1, *(rows.stamps[-1] for rows in (*lists.rows, *lists.pieces))]))
    source = Reader(memoryview(data), 2**30)
    again = Candidates(lists.span, lists.size)
    again.read(source, now, now, MAX_COUNT)
    source.finish()
    assert written(again, now) == data
    return again


@adversaries
def test_bytes_bring_everything_back(stream):
    lists = build(stream)
    again = stored(lists)
    assert (again.taken, again.height, len(again.blocks)) == (lists.taken, lists.height, len(lists.blocks))
    for moment in moments(lists, stream):
        for until in (None, moment + 100):
            one, other = lists.between(moment, until), again.between(moment, until)
            names = [dict(zip(f.hashes.tolist(), f.keys.pick(f.rows), strict=True)) for f in (one, other)]
            assert names[0] == names[1]
            assert one.missed == other.missed
    later = Stream(TICKS + N, a_key(np.full(N, 0.3)), None)
    add(again, later)
    keeps_its_promise(again, together(stream, later))


@given(stream=anything, span=st.sampled_from([5, 60, 2000]), wait=st.sampled_from([0, 3, 50, 10**4]))
def test_what_left_the_window_is_not_written(stream, span, wait):
    lists = build(stream, span=span)
    now = int(stream.ticks[-1]) + wait
    again = stored(lists, now)
    live_from = max(1, now - span)
    assert min([live_from, *(int(rows.stamps[0]) for rows in (*again.rows, *again.pieces))]) == live_from
    assert min([live_from, *(block.end for block in again.blocks)]) == live_from
    keeps_its_promise(again, stream, since=live_from)
    if wait > span:
        assert again.between(1, None).hashes.size == 0
        assert len(written(again, now)) < 200


@given(stream=anything, pieces=cuts)
def test_the_split_into_batches_does_not_matter(stream, pieces):
    assert written(build(stream, pieces=pieces)) == written(build(stream))


def test_one_by_one_is_the_same_too():
    """More pieces than are kept side by side."""
    stream = Stream(TICKS, fresh(N), None)
    assert written(build(stream, pieces=range(N))) == written(build(stream))
    lists = Candidates(SPAN, 400)  # whose rows come in batches of 256
    for piece in stream.pieces(range(N)):
        add(lists, piece)
        assert len(lists.pieces) <= 65
    assert written(lists) == written(build(stream, size=400))


def test_the_callers_arrays_are_not_kept():
    stream = ADVERSARIES["as in life"]
    expected = written(build(stream, size=5))
    lists = Candidates(SPAN, 5)
    cells, ticks, counts = stream.cells.astype(np.int64), stream.ticks.astype(np.uint32), stream.weights
    hashes = hashed(cells)
    lists.add(IntegerKeys(cells), 0, hashes, ticks, counts)
    for column in (cells, ticks, counts, hashes):
        column[:] = 0
    assert written(lists) == expected


@pytest.mark.parametrize("start", [0, 3])
def test_keys_of_every_kind_keep_their_names(start):
    mixed = ["a", 1, b"b", ("a", 1), (("x", b"y"), -(2**63)), "Grüße", 2**63 - 1, ""]
    columns = [mixed, [f"/{i}" for i in range(200)], list(range(200)), [(i, str(i)) for i in range(200)], [b"c"] * 20]
    lists = Candidates(SPAN, 700)
    for names in columns:
        keys = JoinedKeys([key_column([name]) for name in names])
        hashes = all_hashes(keys)[start:]
        lists.add(keys, start, hashes, np.ones(hashes.size, np.uint32), None)
    expected = sorted({repr(name) for names in columns for name in names[start:]})
    for one in (lists, lists.copy(), stored(lists), merge([lists, lists])):
        found = one.between(1, None)
        assert sorted(map(repr, found.keys.pick(found.rows))) == expected


# -- forgeries ---------------------------------------------------------------------------------------------------------

#: Four keys; two rows of the first, one of the second; a block of the third, then one of the third and the fourth.
NOW = 1000
NAMES = sorted(["a", 7, ("b", 1), "d"], key=lambda key: int(all_hashes(key_column([key]))[0]))
FIELDS = {
    "height": 0,
    "taken": 30,
    "keys": NAMES,
    "rows": [0, 1, 0],
    "ages": [5, 0, 0],
    "counts": [1, 1, 2],
    "starts": [101, 60],
    "ends": [60, 30],
    "weights": [10, 8],
    "errors": [1, 0],
    "marks": [19, 27],
    "sizes": [1, 2],
    "lists": [([2], [9]), ([2, 3], [5, 3])],
}


def forged(**changes):
    fields = FIELDS | changes
    out = Writer()
    out.u8(fields["height"])
    out.u64(fields["taken"])
    write_keys(out, fields["keys"])
    for name in ("rows", "ages", "counts", "starts", "ends", "weights", "errors", "marks", "sizes"):
        out.integers(np.array(fields[name], np.int64))
    for places, counts in fields["lists"]:
        out.integers(np.array(places, np.int64))
        out.integers(np.array(counts, np.int64))
    return out.bytes()


def read(data, newest=NOW):
    source = Reader(memoryview(data), 2**20)
    lists = Candidates(100, 2)
    lists.read(source, NOW, newest, MAX_COUNT)
    source.finish()
    return lists


def test_the_layout_is_as_documented():
    lists = read(forged())
    assert written(lists, NOW) == forged()
    found = lists.between(NOW - 60, None)
    assert dict(zip(found.hashes.tolist(), found.keys.pick(found.rows), strict=True)) == {
        int(all_hashes(key_column([key]))[0]): key for key in NAMES
    }
    assert found.missed == 1
    assert lists.between(NOW - 59, None).missed == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"taken": MAX_COUNT + 1}, "belongs"),
        ({"keys": NAMES[::-1]}, "keys are out of order"),
        ({"keys": [NAMES[0], NAMES[0], *NAMES[2:]]}, "keys are out of order"),
        ({"keys": [*NAMES[:3]]}, "leaves 0..2"),
        ({"rows": [0, 4, 0]}, "leaves 0..3"),
        ({"rows": [0, -1, 0]}, "leaves 0..3"),
        ({"rows": [0, 1]}, "rows are missing"),
        ({"counts": [1, 1]}, "rows are missing"),
        ({"ages": [5, 0]}, "rows are missing"),
        ({"ages": [0, 5, 0]}, "rows are out of order"),
        ({"ages": [101, 0, 0]}, "leaves 0..100"),
        ({"ages": [5, 0, -1]}, "leaves 0..100"),
        ({"counts": [1, -1, 2]}, "leaves 0..4611686018427387904"),
        ({"counts": [MAX_COUNT, MAX_COUNT, 2]}, "more arrivals than are possible"),
        ({"counts": [MAX_COUNT // 2] * 3, "weights": [MAX_COUNT // 2] * 2}, "more arrivals than are possible"),
        ({"rows": [0, 1] * 24, "ages": [0] * 48, "counts": [1] * 48}, "too many rows"),
        ({"starts": [102, 60]}, "leaves 0..101"),
        ({"starts": [59, 60]}, "blocks are out of order"),
        ({"ends": [30, 60]}, "blocks are out of order"),
        ({"ends": [-1, -1]}, "leaves 0..100"),
        ({"ends": [60]}, "blocks are missing"),
        ({"starts": []}, "blocks are missing"),
        ({"marks": [19]}, "blocks are missing"),
        ({"marks": [19, 31]}, "more arrivals than are possible"),
        ({"weights": [MAX_COUNT, MAX_COUNT]}, "more arrivals than are possible"),
        ({"errors": [MAX_COUNT, MAX_COUNT]}, "more arrivals than are possible"),
        ({"errors": [-1, 8]}, "leaves 0.."),
        ({"sizes": [1]}, "blocks are missing"),
        ({"sizes": [1, 3], "lists": [([2], [9]), ([1, 2, 3], [5, 3, 1])]}, "leaves 0..2"),
        ({"sizes": [1, 1]}, "a list is out of order"),
        ({"lists": [([2], [9]), ([3, 2], [5, 3])]}, "a list is out of order"),
        ({"lists": [([2], [9]), ([3, 3], [5, 3])]}, "a list is out of order"),
        ({"lists": [([2], [9]), ([2, 3], [5])]}, "a list is out of order"),
        ({"lists": [([2], [0]), ([2, 3], [5, 3])]}, "leaves 1.."),
        ({"lists": [([2], [9]), ([2, 3], [MAX_COUNT, MAX_COUNT])]}, "more arrivals than are possible"),
        ({"lists": [([2], [9]), ([1, 2], [5, 3])]}, "keys that are on no list"),
        ({"lists": [([2], [9])]}, "middle of a field"),
        ({"lists": [([2], [9]), ([2, 3], [5, 3]), ([], [])]}, "bytes too many"),
    ],
    ids=lambda value: ", ".join(f"{k}={v}" for k, v in value.items())[:60] if isinstance(value, dict) else "",
)
def test_forged_lists_are_refused(changes, says):
    with pytest.raises(lt.FormatError, match=says):
        read(forged(**changes))


def test_rows_newer_than_what_is_held_back_are_refused():
    assert read(forged(ages=[25, 20, 20]), newest=NOW - 20).between(1, None).hashes.size == 4
    with pytest.raises(lt.FormatError, match=r"leaves 20\.\.100"):
        read(forged(ages=[25, 20, 19]), newest=NOW - 20)
