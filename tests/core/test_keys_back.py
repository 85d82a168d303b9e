"""A column gives its keys back as Python has them, and so does a copy of some of its rows, which owes the caller nothing."""

import weakref

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from key_cases import COLUMNS, NUMBERS, WORDS, identities, integers, texts

import lately as lt
from lately.core.keys import MAX_DEPTH, DictionaryKeys, HashedKeys, all_hashes, key_column

one_by_one = pytest.mark.parametrize(("column", "keys"), COLUMNS.values(), ids=COLUMNS)


def read(column):
    return key_column(column() if callable(column) else column)


def everything(column):
    return column.pick(np.arange(len(column)))


def alike(found, keys):
    """Equal, and of the same types all the way down, which shows in how they print."""
    assert repr(everything(found)) == repr(list(keys))
    assert len(found) == len(keys)
    assert all_hashes(found).tolist() == identities(keys)


# -- every form --------------------------------------------------------------------------------------------------------


@one_by_one
def test_every_key_comes_back(column, keys):
    alike(read(column), keys)


@one_by_one
def test_rows_are_picked_in_any_order_and_any_number(column, keys):
    found = read(column)
    rows = np.random.default_rng(1).integers(0, max(len(keys), 1), 20 if keys else 0)
    assert repr(found.pick(rows)) == repr([keys[row] for row in rows])
    assert found.pick(rows[:0]) == []


@one_by_one
def test_every_part_is_a_column_like_the_slice(column, keys):
    found = read(column)
    for start in range(len(keys) + 1):
        for stop in range(start, len(keys) + 1):
            part = found.part(start, stop)
            alike(part, keys[start:stop])
            alike(part.part(0, len(part) // 2), keys[start : start + (stop - start) // 2])


@one_by_one
def test_rows_are_taken_in_any_order_and_any_number(column, keys):
    found = read(column)
    for size in (0, 1, 5, 40) if keys else (0,):
        rows = np.random.default_rng(size).integers(0, max(len(keys), 1), size)
        taken = found.take(rows)
        alike(taken, [keys[row] for row in rows])
        alike(taken.part(size // 4, size // 2), [keys[row] for row in rows[size // 4 : size // 2]])


scalars = texts | integers | st.binary(max_size=40)
rows_of_keys = (
    st.lists(texts)
    | st.lists(st.binary(max_size=40))
    | st.lists(integers)
    | st.lists(scalars)
    | st.lists(st.tuples(texts, integers))
    | st.lists(st.tuples(st.tuples(scalars, integers), scalars))
)


@given(rows_of_keys, st.data())
def test_any_keys(keys, data):
    found = key_column(keys)
    alike(found, keys)
    start = data.draw(st.integers(0, len(keys)))
    stop = data.draw(st.integers(start, len(keys)))
    alike(found.part(start, stop), keys[start:stop])
    rows = data.draw(st.lists(st.integers(0, len(keys) - 1))) if keys else []
    alike(found.take(np.array(rows, np.int64)), [keys[row] for row in rows])


@given(st.lists(texts, min_size=1, max_size=30), st.data())
def test_slices_of_arrow_arrays(keys, data):
    start = data.draw(st.integers(0, len(keys)))
    stop = data.draw(st.integers(start, len(keys)))
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))
    found = key_column(pa.array(keys).cast(data.draw(st.sampled_from(kinds))).slice(start, stop - start))
    alike(found, keys[start:stop])
    alike(found.part(0, len(found)), keys[start:stop])


def test_text_that_is_not_utf8_comes_back_as_the_bytes_that_are_the_same_key():
    column = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 3], "i4")), pa.py_buffer(b"a\xff\xfe")])
    found = key_column(column)
    assert everything(found) == everything(found.part(0, 2)) == ["a", b"\xff\xfe"]
    assert lt.hash_keys(everything(found)).tolist() == all_hashes(found).tolist()


def test_tuples_may_nest_but_not_without_end():
    def nested(depth):
        return 1 if depth == 0 else (nested(depth - 1),)

    alike(key_column([nested(MAX_DEPTH)] * 2), [nested(MAX_DEPTH)] * 2)
    alike(key_column(nested(MAX_DEPTH)), [nested(MAX_DEPTH)])
    endless = 1
    for _ in range(5_000):
        endless = (endless,)
    deep = nested(MAX_DEPTH + 1)
    struct = pa.array([1])
    for _ in range(MAX_DEPTH + 1):
        struct = pa.StructArray.from_arrays([struct], ["a"])
    for key in (deep, [deep], ["a", deep], [(1, 1), (deep, 1)], endless, [endless], struct):
        with pytest.raises(lt.InputError, match=f"more than {MAX_DEPTH} deep"):
            key_column(key)


# -- known hashes ------------------------------------------------------------------------------------------------------


def test_keys_with_known_hashes_ask_where_they_came_from():
    source, order = key_column(WORDS), np.random.default_rng(1).permutation(len(WORDS))
    plain, sorted_ = HashedKeys(all_hashes(source), source), HashedKeys(all_hashes(source)[order], source, order)
    shuffled = [WORDS[i] for i in order]
    alike(plain, WORDS)
    alike(plain.part(2, 7), WORDS[2:7])
    alike(plain.take(order), shuffled)
    alike(sorted_, shuffled)
    alike(sorted_.part(2, 7), shuffled[2:7])
    alike(sorted_.part(2, 7).part(1, 3), shuffled[3:5])
    alike(sorted_.take(np.array([5, 5, 0])), [shuffled[5], shuffled[5], shuffled[0]])


def test_keys_given_as_hashes_cannot_be_given_back():
    hashed = HashedKeys(np.arange(5, dtype=np.uint64))
    for column in (hashed, hashed.part(1, 3), hashed.take(np.array([1, 2]))):
        with pytest.raises(lt.InputError, match=r"given as hashes.*give the keys themselves"):
            column.pick(np.array([0]))
    assert all_hashes(hashed.part(1, 3)).tolist() == all_hashes(hashed.take(np.array([1, 2]))).tolist() == [1, 2]


# -- whose memory ------------------------------------------------------------------------------------------------------


def arrow_over(kind, keys):
    """An Arrow array over memory that we can overwrite, and that memory."""
    raw = [key.encode() for key in keys]
    offsets = np.cumsum([0, *map(len, raw)]).astype("i8" if "large" in str(kind) else "i4")
    data = np.frombuffer(b"".join(raw), np.uint8).copy()
    return pa.Array.from_buffers(kind, len(keys), [None, pa.py_buffer(offsets), pa.py_buffer(data)]), [offsets, data]


def owned_by_the_caller():
    numbers = np.array(NUMBERS)
    yield "numpy", numbers, NUMBERS, [numbers]
    numbers = np.array(NUMBERS)
    yield "Arrow integers", pa.array(numbers), NUMBERS, [numbers]
    series = pd.Series(np.array(NUMBERS))
    yield "pandas", series, NUMBERS, [series.to_numpy()]
    words = np.array(["ab", "", "Grüße"])
    yield "numpy U", words, ["ab", "", "Grüße"], [words]
    for kind in (pa.string(), pa.large_string()):
        column, memory = arrow_over(kind, WORDS)
        yield str(kind), column, WORDS, memory
    values, memory = arrow_over(pa.string(), WORDS)
    codes = np.arange(len(WORDS), dtype=np.int32)
    yield "dictionary", pa.DictionaryArray.from_arrays(codes, values), WORDS, [codes, *memory]
    column, memory = arrow_over(pa.string(), WORDS)
    numbers = np.arange(len(WORDS))
    yield "table", pa.table({"a": column, "b": numbers}), list(zip(WORDS, range(11), strict=True)), [numbers, *memory]


CALLERS = list(owned_by_the_caller())


@pytest.mark.parametrize(("column", "keys", "memory"), [case[1:] for case in CALLERS], ids=[case[0] for case in CALLERS])
def test_a_copy_does_not_change_with_the_callers_memory(column, keys, memory):
    found = key_column(column)
    hashed = HashedKeys(all_hashes(found), found, np.arange(len(found)))
    copies = [(c.part(1, stop), c.take(np.arange(1, stop)), stop) for c in (found, hashed) for stop in (2, len(keys))]
    memory = [*memory, hashed.hashes, hashed.rows]
    before = [array.copy() for array in memory]
    try:
        for array in memory:
            array.flags.writeable = True  # pandas hands its memory out for reading
            array[:] = np.zeros_like(array)
        for part, taken, stop in copies:
            alike(part, keys[1:stop])
            alike(taken, keys[1:stop])
    finally:
        for array, old in zip(memory, before, strict=True):
            array[:] = old


def test_a_copy_lets_the_callers_memory_go():
    numbers = np.arange(1_000)
    gone, kept = weakref.ref(numbers), key_column(numbers).part(5, 9)
    del numbers
    assert gone() is None
    assert everything(kept) == [5, 6, 7, 8]

    before = pa.total_allocated_bytes()
    for kind in (pa.string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        column = pa.array([f"user {i}" for i in range(10_000)]).cast(kind)
        parts = [key_column(column).part(5, 9), key_column(column).take(np.array([5, 6, 7, 8]))]
        del column
        assert pa.total_allocated_bytes() == before
        assert all(everything(part) == ["user 5", "user 6", "user 7", "user 8"] for part in parts)


MANY = [f"user {i:05}" for i in range(10_000)]
LARGE = {
    "integers": np.arange(10_000),
    "text": pa.array(MANY),
    "large_string": pa.array(MANY, pa.large_string()),
    "views": pa.array(MANY, pa.string_view()),
    "dictionary": pa.array(MANY).dictionary_encode(),
    "a few words": pa.array(["user 00001", "user 00002"] * 5_000).dictionary_encode(),
    "tuples": pa.table({"a": MANY, "b": pa.array(MANY).dictionary_encode(), "c": np.arange(10_000)}),
}


@pytest.mark.parametrize("column", LARGE.values(), ids=LARGE)
def test_a_copy_holds_no_more_than_its_rows(column):
    found = key_column(column)
    hashed = HashedKeys(all_hashes(found), found, np.arange(len(found)))
    for copy in (
        found.part(500, 600),
        found.take(np.arange(500, 600)),
        hashed.part(500, 600),
        hashed.part(9, 509).part(0, 100),
    ):
        assert copy.nbytes <= 100 * 80
        assert copy.nbytes < found.nbytes / 8
    assert found.part(0, 10_000).nbytes <= 10_000 * 80


def test_nbytes_is_what_the_arrays_take():
    assert key_column(np.arange(10)).nbytes == 80
    assert key_column(pa.array(["ab", "c"])).part(0, 2).nbytes == 3 + 3 * 8
    assert key_column([("ab", 1)]).part(0, 1).nbytes == 2 + 2 * 8 + 8
    assert HashedKeys(np.zeros(3, np.uint64)).nbytes == 24
    assert HashedKeys(np.zeros(3, np.uint64), key_column([1, 2, 3]), np.arange(3)).nbytes == 72
    assert key_column([1, "a"]).nbytes > 8 + 1


def test_parts_of_one_dictionary_share_one_copy_of_it():
    column = key_column(pa.array(["a", "b"] * 50).dictionary_encode())
    first, second = column.part(0, 10), column.part(10, 90).part(20, 40)
    assert isinstance(first, DictionaryKeys)
    assert first.values is second.values
    assert first.values is not column.values
    assert len(column.part(0, 0).values) == 0
