"""Sketches of a task's rows: whatever their order, nothing is lost, and bounds hold; in time order they are the library's."""

import datetime
import itertools
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow, between_keys, quantile

import lately as lt
from lately.core.errors import InputError
from lately.pipeline.sketch_recipe import SketchRecipe
from lately.spark import partials
from lately.spark.partials import Partials, number_groups

WINDOW = 500
SURE = 1e-7  # so small that what is likely can be taken for certain
RECIPES = {
    "ecm": SketchRecipe.of("ecm", window=WINDOW, eps=0.1, delta=SURE),
    "topk": SketchRecipe.of("topk", phi=0.1, window=WINDOW, eps=0.05, delta=SURE),
    "quantiles": SketchRecipe.of("quantiles", window=WINDOW, eps=0.1, lo=0, hi=64, resolution=1, delta=SURE),
    "dyadic": SketchRecipe.of("dyadic", universe=1000, window=WINDOW, eps=0.1, delta=SURE),
    "wcm": SketchRecipe.of("wcm", window=WINDOW, eps=0.1, delta=0.1),
    "ams": SketchRecipe.of("ams", window=WINDOW, eps=0.3, delta=0.3),
}


@pytest.fixture(autouse=True)
def _restored():
    """Tests set BLOCK and OPEN as they like."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partials, "BLOCK", partials.BLOCK)
        patch.setattr(partials, "OPEN", partials.OPEN)
        yield


def crossing(recipe, keys):
    """Keys as they come from the JVM."""
    if recipe.key_encoding == "hash":
        hashes = lt.hash_keys(np.array([key or 0 for key in keys])).view(np.int64)
        return pa.array(hashes, mask=np.array([key is None for key in keys], bool))
    return pa.array(keys, pa.float64() if recipe.key_encoding == "number" else pa.int64())


def run(recipe, rows, cuts=(), counted=False):
    """A task that is given (key, time, count, group) rows, cut into batches."""
    task = Partials(recipe)
    edges = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    for start, stop in itertools.pairwise(edges):
        keys, times, counts, groups = zip(*rows[start:stop], strict=True) if stop > start else ((), (), (), ())
        task.add(
            crossing(recipe, keys),
            pa.array(times, pa.int64()),
            pa.array(counts, pa.int64()) if counted else None,
            [pa.array(groups, pa.string())],
        )
    made = {}
    for group, sketch in task.finish():
        made.setdefault(group, []).append(sketch)
    return made, task


def ordered(rows, how, rng):
    """The rows as files and partitions could have them."""
    if how == "in order":
        return sorted(rows, key=lambda row: (row[1] is None, row[1]))
    if how == "nearly":
        return [rows[i] for i in np.argsort(np.arange(len(rows)) + rng.integers(0, 40, len(rows)), kind="stable")]
    if how == "files":  # several files in order, read one after the other
        return [row for start in range(3) for row in rows[start::3]]
    if how == "backwards":
        return rows[::-1]
    return [rows[i] for i in rng.permutation(len(rows))]


def make_rows(seed, size, nulls):
    """Rows in time order; any of key, time and count may be missing in a few."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.integers(0, 8, size)).tolist()
    keys = np.where(rng.random(size) < 0.4, 7, rng.integers(0, 64, size)).tolist()
    counts = rng.integers(0, 5, size).tolist()
    groups = [[None, "lima", "rome"][g] for g in rng.integers(0, 3, size)]
    columns = [[None if nulls and rng.random() < 0.1 else value for value in column] for column in (keys, times, counts)]
    return list(zip(*columns, groups, strict=True)), rng


def naive(rows, counted):
    """Exact windows by group, and how many rows could not be counted."""
    windows, skipped = {}, Counter()
    for key, tick, count, group in rows:
        if key is None or tick is None or (counted and count is None):
            skipped[(group,)] += 1
        else:
            windows.setdefault((group,), NaiveWindow(WINDOW)).add(tick, key, count if counted else 1)
    return windows, dict(skipped)


def assert_within_bounds(kind, sketch, twin):
    since = twin.now - WINDOW + 1
    exact = twin.frequencies(since)
    total = sum(exact.values())
    assert total in sketch.total()
    if kind in ("ecm", "topk", "dyadic"):
        for key in range(64):
            assert exact[key] in sketch.count(key)
    if kind == "topk":
        listed = set(sketch.heavy_hitters().key)
        assert {key for key, count in exact.items() if count and count >= (0.1 + 0.05) * total} <= listed
    if kind == "dyadic":
        assert between_keys(exact, 5, 40) in sketch.count_range(5, 40)
    if kind == "quantiles" and total:
        assert quantile(+exact, 0.5) in sketch.quantile(0.5)
        assert between_keys(exact, 0, 20) in sketch.rank(20)


# -- any order ---------------------------------------------------------------------------------------------------------

task_shapes = {
    "seed": st.integers(0, 2**32),
    "size": st.integers(1, 250),
    "nulls": st.booleans(),
    "counted": st.booleans(),
    "how": st.sampled_from(["in order", "nearly", "files", "backwards", "any"]),
    "cuts": st.lists(st.integers(0, 300), max_size=6),
    "block": st.sampled_from([1, 16, 64, 10**6]),
    "piles": st.sampled_from([1, 2, 4]),
}


@pytest.mark.parametrize("kind", ["ecm", "topk", "quantiles", "dyadic"])
@given(**task_shapes)
def test_any_order_is_within_bounds_and_nothing_is_lost(kind, seed, size, nulls, counted, how, cuts, block, piles):
    partials.BLOCK, partials.OPEN = block, piles
    rows, rng = make_rows(seed, size, nulls)
    made, task = run(RECIPES[kind], ordered(rows, how, rng), cuts, counted)
    windows, skipped = naive(rows, counted)
    assert (set(made), task.skipped) == (set(windows), skipped)
    for group, sketches in made.items():
        assert sum(sketch._arrived for sketch in sketches) == windows[group].since(-1)
        assert all(sketch.late == 0 for sketch in sketches)
        assert_within_bounds(kind, sketches[0] if len(sketches) == 1 else lt.merge(sketches), windows[group])
    if not counted:
        assert sum(sketch._arrived for its in made.values() for sketch in its) + sum(task.skipped.values()) == size


@pytest.mark.parametrize("kind", RECIPES)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 300), max_size=6), counted=st.booleans())
def test_rows_in_order_are_bit_for_bit_what_the_library_makes(kind, seed, cuts, counted):
    partials.BLOCK = 32
    rows, _ = make_rows(seed, 200, False)
    made, _ = run(RECIPES[kind], rows, cuts, counted)
    for (group,), sketches in made.items():
        keys, times, counts, _ = map(list, zip(*(row for row in rows if row[3] == group), strict=True))
        plain = RECIPES[kind].empty()
        plain.update(keys, times, counts if counted else None)
        assert [sketch.to_bytes() for sketch in sketches] == [plain.to_bytes()]


def test_a_block_is_put_in_order_before_it_is_sketched():
    rows, rng = make_rows(1, 200, False)
    made, _ = run(RECIPES["ecm"], ordered(rows, "any", rng))
    assert [len(sketches) for sketches in made.values()] == [1, 1, 1]


def test_rows_nearly_in_order_need_few_sketches():
    partials.BLOCK = 32
    rows, rng = make_rows(1, 2000, False)
    made, _ = run(RECIPES["ecm"], ordered(rows, "nearly", rng), range(0, 2000, 32))
    assert max(len(sketches) for sketches in made.values()) <= 3


def test_more_piles_than_may_be_open_are_closed_and_none_is_lost():
    partials.BLOCK, partials.OPEN = 1, 4
    task = Partials(RECIPES["ecm"])
    for tick in range(400, 0, -10):  # backwards: each block needs a pile of its own
        task.add(crossing(RECIPES["ecm"], [tick % 3]), pa.array([tick]))
    assert len(task._open[()]) == 4
    sketches = [sketch for _, sketch in task.finish()]
    assert (len(sketches), sum(sketch._arrived for sketch in sketches)) == (40, 40)
    whole = lt.merge(sketches)
    assert 40 in whole.total()
    assert all(sum(tick % 3 == key for tick in range(400, 0, -10)) in whole.count(key) for key in range(3))


def test_a_block_goes_where_it_fits_best():
    """Two files in order, read in turns, need two sketches."""
    partials.BLOCK = 1
    task = Partials(RECIPES["ecm"])
    for tick in range(100):
        task.add(crossing(RECIPES["ecm"], [1]), pa.array([tick]))
        task.add(crossing(RECIPES["ecm"], [2]), pa.array([1000 + tick]))
    assert sorted((sketch._arrived, sketch.now) for _, sketch in task.finish()) == [(99, 99), (101, 1099)]  # but for one row


# -- columns -----------------------------------------------------------------------------------------------------------

ZONED = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
GROUPS = {
    "strings": (["lima", "", None], pa.string()),
    "large strings": (["lima", "Grüße", None], pa.large_string()),
    "integers": ([1, -(2**63), None], pa.int64()),
    "small integers": ([1, -128, None], pa.int8()),
    "booleans": ([True, False, None], pa.bool_()),
    "dates": ([datetime.date(2026, 1, 1), datetime.date(1969, 1, 1), None], pa.date32()),
    "timestamps": ([ZONED, ZONED + datetime.timedelta(microseconds=1), None], pa.timestamp("us", "UTC")),
    "bytes": ([b"\xff", b"", None], pa.binary()),
    "decimals": ([Decimal("1.10"), Decimal("-2.00"), None], pa.decimal128(10, 2)),
    "floats": ([1.5, -0.5, None], pa.float64()),
    "a dictionary": (["lima", "rome", None], pa.dictionary(pa.int8(), pa.string())),
}


def totals(task):
    counts = Counter()
    for group, sketch in task.finish():
        counts[group] += sketch._arrived
    return counts


@pytest.mark.parametrize(("values", "kind"), GROUPS.values(), ids=GROUPS)
def test_groups_of_all_types_with_nulls_as_one_of_them(values, kind):
    partials.BLOCK = 5
    task, rows = Partials(RECIPES["dyadic"]), [values[i % 3] for i in range(10)]
    for start in (0, 4):
        column = pa.array(rows[start : start + 4 + 2 * (start > 0)], kind)
        keys = pa.array([None if i == 7 else 1 for i in range(start, start + len(column))], pa.int64())
        task.add(keys, pa.array(range(start, start + len(column))), None, [column])
    assert totals(task) == Counter({(values[0],): 4, (values[1],): 2, (None,): 3})
    assert task.skipped == {(values[1],): 1}


def test_several_columns_to_group_by():
    rng = np.random.default_rng(3)
    a = [["x", "y", None][i] for i in rng.integers(0, 3, 300)]
    b = [[1, 2, None][i] for i in rng.integers(0, 3, 300)]
    c = [[True, None][i] for i in rng.integers(0, 2, 300)]
    task = Partials(RECIPES["ecm"])
    columns = [pa.array(a).dictionary_encode(), pa.array(b, pa.int16()), pa.array(c, pa.bool_())]
    task.add(crossing(RECIPES["ecm"], [1] * 300), pa.array(range(300)), None, columns)
    assert totals(task) == Counter(zip(a, b, c, strict=True))


def test_many_values_in_many_columns():
    """Their product does not fit into 64 bits."""
    rng = np.random.default_rng(5)
    columns = [rng.integers(0, 2**62, 4000) for _ in range(6)]
    codes, names = number_groups([pa.array(column) for column in columns], 4000)
    assert [names[code] for code in codes.tolist()] == list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_full_dictionary_of_narrow_codes_with_nulls_beside_it():
    words = [f"w{i}" for i in range(128)]
    column = pa.DictionaryArray.from_arrays(pa.array([*range(128), None], pa.int8()), words)
    codes, names = number_groups([column], 129)
    assert [names[code] for code in codes] == [(word,) for word in [*words, None]]


def test_what_a_dictionary_lists_and_no_row_has_is_no_group():
    column = pa.DictionaryArray.from_arrays(pa.array([2, 2, 0], pa.int32()), ["lima", "nobody", "rome"])
    codes, names = number_groups([column], 3)
    assert [names[code] for code in codes] == [("rome",), ("rome",), ("lima",)]
    assert sorted(names) == [("lima",), ("rome",)]


@pytest.mark.parametrize("size", [255, 256, 257, 65_536, 65_537])
def test_as_many_groups_as_there_are(size):
    column = pa.array(np.arange(size)[::-1])
    codes, names = number_groups([column], size)
    assert [names[code][0] for code in codes.tolist()] == column.to_pylist()


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_groups_that_are_integers_near_and_far(kind):
    far = 2 ** (kind.bit_width - 1)
    for values in ([-far, far - 1, 0, far - 1], [3, 1, 3, 7], [-1], [5, None, 5]):
        codes, names = number_groups([pa.array(values, kind)], len(values))
        assert [names[code][0] for code in codes] == values
        assert len(names) == len(set(values))


@pytest.mark.parametrize("narrow", [pa.int32(), pa.int64(), pa.float32(), pa.float64()])
def test_rows_of_groups_are_put_together_whatever_their_times_are(narrow):
    times, groups = pa.array([1, 2, 2, 3, 5], narrow), pa.array(["a", "b", "a", "b", "a"])
    task = Partials(SketchRecipe.of("ecm", window="1h", eps=0.1, delta=0.1))
    task.add(pa.array(list("xyxyz")), times, pa.array([1, 10, 2, 20, 4], pa.int16()), [groups])
    made = dict(task.finish())
    seen = {group: [sketch.count(key, last="4s").value for key in "xyz"] for (group,), sketch in made.items()}
    assert seen == {"a": [2, 0, 4], "b": [0, 30, 0]}


SECOND = 1_767_225_600
TIMES = {
    "us": pa.array([SECOND * 10**6, (SECOND + 60) * 10**6], pa.timestamp("us")),
    "zoned": pa.array([SECOND * 10**6, (SECOND + 60) * 10**6], pa.timestamp("us", "America/Lima")),
    "ns": pa.array([SECOND * 10**9, (SECOND + 60) * 10**9], pa.timestamp("ns", "UTC")),
    "ms": pa.array([SECOND * 10**3, (SECOND + 60) * 10**3], pa.timestamp("ms")),
    "s": pa.array([SECOND, SECOND + 60], pa.timestamp("s")),
    "seconds": pa.array([SECOND, SECOND + 60], pa.int64()),
    "narrow seconds": pa.array([SECOND, SECOND + 60], pa.int32()),
    "fractions": pa.array([SECOND + 0.25, SECOND + 60.5], pa.float64()),
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_times_of_all_types(times):
    recipe = SketchRecipe.of("ecm", window="1h", eps=0.1, delta=0.1)
    task = Partials(recipe)
    task.add(crossing(recipe, [1, 2]), times)
    ((_, made),) = task.finish()
    plain = recipe.empty()
    plain.update([1, 2], [SECOND, SECOND + 60])
    assert made.to_bytes() == plain.to_bytes()


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_are_their_midnights(kind):
    recipe = SketchRecipe.of("ecm", window="7d", tick="1h", eps=0.1, delta=0.1)
    task = Partials(recipe)
    task.add(crossing(recipe, [1, 2]), pa.array([datetime.date(2026, 1, 1), datetime.date(2026, 1, 3)], kind))
    ((_, made),) = task.finish()
    plain = recipe.empty()
    plain.update([1, 2], ["2026-01-01", "2026-01-03"])
    assert made.to_bytes() == plain.to_bytes()


def test_times_that_are_none_are_told():
    task = Partials(RECIPES["ecm"])
    task.add(crossing(RECIPES["ecm"], [1]), pa.array(["2026-01-01"]))
    with pytest.raises(InputError, match=r"times of the type string; give timestamps, dates or numbers \(in SQL: to_timestamp"):
        list(task.finish())


WORDS = ["/cart", "/", "Grüße", "/", "日本語", "/", ""]


@pytest.mark.parametrize("encode", [False, True])
@pytest.mark.parametrize("kind", ["ecm", "topk"])
def test_keys_as_text_are_the_same_keys(kind, encode):
    """Also with a dictionary for each batch, and split by groups."""
    partials.BLOCK = 10
    task = Partials(RECIPES[kind])
    for start in (0, 7, 14):
        words = WORDS if start < 14 else ["/", None, "new", "/", "/", "new", None]
        column = pa.array(words).dictionary_encode() if encode else pa.array(words)
        task.add(column, pa.array(range(start, start + 7)), None, [pa.array(["a", "b", "a", "a", "b", "a", "a"])])
    rows = [(w, t, g) for t, (w, g) in enumerate(zip([*WORDS, *WORDS, *words], "abaabaa" * 3, strict=True)) if w is not None]
    made = dict(task.finish())
    for group in "ab":
        plain = RECIPES[kind].empty()
        plain.update([w for w, _, g in rows if g == group], [t for _, t, g in rows if g == group])
        assert made[(group,)].to_bytes() == plain.to_bytes()
    assert task.skipped == {("a",): 1, ("b",): 1}


def test_keys_of_several_columns():
    recipe, task = RECIPES["topk"], Partials(RECIPES["topk"])
    column = pa.StructArray.from_arrays([pa.array(["a", "a", "b", "a"]), pa.array([1, 1, 2, 2], pa.int32())], names=["x", "y"])
    task.add(column, pa.array([1, 2, 3, 4]), None, [pa.array([1, 1, 2, 1])])
    made = dict(task.finish())
    assert made[(1,)].count(("a", 1)).value == 2
    assert sorted(made[(1,)].top().key) == [("a", 1), ("a", 2)]
    assert made[(2,)].top().key == [("b", 2)]
    assert recipe.empty().now is None


def test_chunked_columns_and_batches_without_rows():
    task = Partials(RECIPES["dyadic"])
    empty = pa.array([], pa.int64())
    task.add(empty, empty, None, [pa.array([], pa.string())])
    task.add(pa.chunked_array([], pa.int64()), pa.chunked_array([], pa.int64()), None, [pa.chunked_array([], pa.string())])
    task.add(pa.chunked_array([[1, 2], [3]]), pa.chunked_array([[1], [2, 3]]), None, [pa.chunked_array([["a"], ["b", "a"]])])
    assert totals(task) == Counter({("a",): 2, ("b",): 1})


def test_no_rows_make_no_sketches():
    assert list(Partials(RECIPES["ecm"]).finish()) == []
    task = Partials(RECIPES["ecm"])
    task.add(pa.array([None, None], pa.int64()), pa.array([1, 2]))
    assert (list(task.finish()), task.skipped) == ([], {(): 2})


def test_held_back_rows_are_not_lost():
    recipe = SketchRecipe.of("ecm", window=WINDOW, eps=0.1, delta=SURE, lateness=50)
    partials.BLOCK = 16
    rows, rng = make_rows(9, 200, False)
    made, _ = run(recipe, ordered(rows, "nearly", rng), range(0, 200, 10))
    windows, _ = naive(rows, False)
    for group, sketches in made.items():
        assert sum(sketch._arrived for sketch in sketches) == windows[group].since(-1)
        assert_within_bounds("ecm", lt.merge(sketches), windows[group])
