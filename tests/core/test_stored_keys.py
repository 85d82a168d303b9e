"""Keys as bytes: whatever was written comes back, key by key and type by type; whatever was not is a ``FormatError``."""

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from key_cases import COLUMNS, MIXED, identities, integers, texts

import lately as lt
from lately.core.codec import Reader, Writer
from lately.core.keys import MAX_DEPTH, all_hashes, key_column
from lately.core.stored_keys import column_of, read_keys, write_keys

scalars = texts | integers | st.binary(max_size=40)
keys_of_all_kinds = st.recursive(scalars, lambda inner: st.lists(inner, min_size=1, max_size=4).map(tuple), max_leaves=12)

INTEGER, TEXT, BYTES, TUPLE = range(4)


def written(keys):
    out = Writer()
    write_keys(out, keys)
    return out.bytes()


def read(data, limit=2**20):
    source = Reader(memoryview(data), limit)
    keys = read_keys(source)
    source.finish()
    return keys


def columns(kinds=(), widths=(), numbers=(), sizes=(), content=b""):
    """Columns as they lie in the bytes, whether or not they belong together."""
    out = Writer()
    for column in (kinds, widths, numbers, sizes):
        out.integers(np.array(column, np.int64))
    out.raw(content)
    return out.bytes()


# -- there and back ----------------------------------------------------------------------------------------------------


@given(st.lists(keys_of_all_kinds, max_size=20))
def test_any_keys_come_back(keys):
    data = written(keys)
    assert repr(read(data)) == repr(keys)
    assert written(read(data)) == data
    column = column_of(read(data))
    assert repr(column.pick(np.arange(len(keys)))) == repr(keys)
    assert all_hashes(column).tolist() == identities(keys)


@pytest.mark.parametrize(("column", "keys"), COLUMNS.values(), ids=COLUMNS)
def test_whatever_a_column_gives_back_can_be_stored(column, keys):
    found = key_column(column() if callable(column) else column)
    assert repr(read(written(found.pick(np.arange(len(found)))))) == repr(keys)


@pytest.mark.parametrize("keys", [[("a", 1), "b"], [("a",), ("a", 1)], [((1, 2), 3), ((1,), 3)], [], MIXED[::-1]], ids=repr)
def test_tuples_beside_anything_become_a_column_again(keys):
    assert repr(column_of(keys).pick(np.arange(len(keys)))) == repr(keys)
    assert all_hashes(column_of(keys)).tolist() == identities(keys)


def test_several_lists_follow_each_other():
    out = Writer()
    for keys in (MIXED, [], ["a"]):
        write_keys(out, keys)
    out.u8(7)
    source = Reader(memoryview(out.bytes()), 2**20)
    assert [read_keys(source) for _ in range(3)] == [MIXED, [], ["a"]]
    assert source.u8() == 7


def test_the_worked_example_of_the_format():
    expected = columns([INTEGER, TUPLE, TEXT, INTEGER], [2], [7, 1], [1], b"a")
    assert written([7, ("a", 1)]) == expected
    assert expected.hex(" ", 1) == (
        "04 00 00 00 00 00 00 00 00 06 03 01 01 00 00 00 00 00 00 00 04"
        " 02 00 00 00 00 00 00 00 0e 0b 01 00 00 00 00 00 00 00 02 61"
    )


def test_text_costs_two_bytes_beside_itself_and_near_integers_two_in_all():
    assert len(written([f"user {i:04}" for i in range(1_000)])) == 32 + 1_000 * (9 + 2)
    assert len(written(list(range(1_000)))) == 32 + 1_000 * 2


def test_what_is_no_key_is_not_written_as_one():
    for key in (True, None, 2.5, np.int64(1), ("a", False)):
        with pytest.raises(KeyError):
            written([key])


# -- forgeries ---------------------------------------------------------------------------------------------------------

FORGED = {
    "an unknown kind": (columns([4]), r"leaves 0\.\.3"),
    "a negative kind": (columns([-1]), r"leaves 0\.\.3"),
    "an integer too few": (columns([INTEGER, INTEGER], numbers=[1]), "different lengths"),
    "an integer too many": (columns([INTEGER], numbers=[1, 2]), "different lengths"),
    "a size too few": (columns([TEXT, BYTES], sizes=[0]), "different lengths"),
    "a size too many": (columns([TEXT], sizes=[0, 0]), "different lengths"),
    "a width too few": (columns([TUPLE, INTEGER], numbers=[1]), "different lengths"),
    "a width too many": (columns([INTEGER], widths=[1], numbers=[1]), "different lengths"),
    "an empty tuple": (columns([TUPLE], widths=[0]), "leaves 1"),
    "a tuple of less than nothing": (columns([TUPLE], widths=[-1]), "leaves 1"),
    "a tuple without its last part": (columns([TUPLE, INTEGER], widths=[2], numbers=[1]), "cut short"),
    "a tuple wider than memory": (columns([TUPLE, INTEGER], widths=[2**62], numbers=[1]), "cut short"),
    "a negative size": (columns([TEXT], sizes=[-1]), "leaves 0"),
    "a size past the end": (columns([TEXT], sizes=[2], content=b"a"), "past the end"),
    "sizes whose sum runs over": (columns([TEXT] * 5, sizes=[2**62] * 5, content=b"a"), "past the end"),
    "text that is not UTF-8": (columns([TEXT], sizes=[1], content=b"\xff"), "not UTF-8"),
    "text cut within a letter": (columns([TEXT, TEXT], sizes=[1, 1], content="ü".encode()), "not UTF-8"),
    "a lone surrogate": (columns([TEXT], sizes=[3], content=b"\xed\xa0\x80"), "not UTF-8"),
    "tuples too deep": (columns([TUPLE] * 33 + [INTEGER], widths=[1] * 33, numbers=[1]), "more than 32 deep"),
    "tuples without end": (columns([TUPLE] * 5_000 + [INTEGER], widths=[1] * 5_000, numbers=[1]), "more than 32 deep"),
    "a byte too many": (columns([TEXT], sizes=[1], content=b"ab"), "1 bytes too many"),
    "more keys than bytes": (struct.pack("<Q", 2**62), "past the end"),
}


@pytest.mark.parametrize(("data", "what"), FORGED.values(), ids=FORGED)
def test_what_was_not_written_is_refused(data, what):
    with pytest.raises(lt.FormatError, match=what):
        read(data)


def test_tuples_as_deep_as_a_column_takes_are_read():
    assert MAX_DEPTH == 32
    (key,) = read(columns([TUPLE] * 32 + [INTEGER], widths=[1] * 32, numbers=[1]))
    assert repr(key) == "(" * 32 + "1" + ",)" * 32


@given(st.lists(keys_of_all_kinds, min_size=1, max_size=8), st.data())
def test_every_cut_is_refused(keys, data):
    whole = written(keys)
    with pytest.raises(lt.FormatError):
        read(whole[: data.draw(st.integers(0, len(whole) - 1))])


def behaves(data):
    """Refused, or keys that can be written."""
    try:
        keys = read(data)
    except lt.FormatError:
        return
    assert repr(read(written(keys))) == repr(keys)
    assert all_hashes(column_of(keys)).tolist() == identities(keys)


@given(st.lists(keys_of_all_kinds, max_size=8), st.data())
def test_any_change_is_refused_or_gives_keys(keys, data):
    whole = bytearray(written(keys))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    behaves(bytes(whole))


@given(st.binary(max_size=100))
def test_foreign_bytes_are_refused_or_give_keys(data):
    behaves(data)


small = st.lists(st.integers(-1, 4), max_size=8)


@given(st.lists(st.integers(0, 3), max_size=8), small, st.lists(integers, max_size=8), small, st.binary(max_size=20))
def test_columns_that_do_not_belong_together_are_refused_or_give_keys(kinds, widths, numbers, sizes, content):
    behaves(columns(kinds, widths, numbers, sizes, content))


def test_reading_takes_memory_for_what_is_there_and_for_no_more_than_allowed():
    many = columns([TUPLE, INTEGER] * 50_000, widths=[1] * 50_000, numbers=[2**40] * 50_000)
    with pytest.raises(lt.FormatError, match="limit="):
        read(many)
    tracemalloc.start()
    try:
        for data in (many, FORGED["a tuple wider than memory"][0], FORGED["sizes whose sum runs over"][0]):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with pytest.raises(lt.FormatError):
                read(data)
            assert tracemalloc.get_traced_memory()[1] - before < 2**20 + 10 * len(data)
    finally:
        tracemalloc.stop()
    assert len(read(many, limit=2**24)) == 50_000


# -- bytes as they are -------------------------------------------------------------------------------------------------


def test_raw_bytes():
    out = Writer()
    out.raw(b"ab\0")
    out.raw(b"")
    assert out.bytes() == b"ab\0"
    buffer = bytearray(out.bytes())
    source = Reader(memoryview(buffer), 0)
    first = source.raw(2)
    buffer[:] = b"???"
    assert (first, source.raw(0)) == (b"ab", b"")
    for size in (2, 2**62, 2**64, -1):
        with pytest.raises(lt.FormatError, match=rf"{size} bytes run past the end.*offset 2"):
            source.raw(size)
    assert source.raw(1) == b"?"
    source.finish()
