"""A key's identity is XXH64 with seed 42, the same in whatever form a column of keys comes. The oracle is xxhash."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from key_cases import NUMBER_COLUMNS, NUMBERS, TEXT_COLUMNS, WORDS, identities, identity, integers, texts

import lately as lt
from lately.core.keys import SEED, all_hashes, key_column


def hashed(column):
    found = lt.hash_keys(column)
    assert found.dtype == np.uint64
    return found.tolist()


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "bytes"])
def test_every_length_of_text_and_bytes(kind):
    raw = np.random.default_rng(1).integers(1, 128, 10_000, np.uint8).tobytes()
    keys = [raw[3 * size : 4 * size] for size in range(101)]
    keys = [key.decode() for key in keys] if kind == "text" else keys
    assert hashed(keys) == identities(keys)


@given(st.lists(texts, max_size=30))
def test_any_text(keys):
    assert hashed(keys) == identities(keys)


@given(st.lists(st.binary(max_size=120), max_size=30))
def test_any_bytes(keys):
    assert hashed(keys) == identities(keys)


@given(st.lists(integers, max_size=30))
def test_any_integers(keys):
    assert hashed(keys) == hashed(np.array(keys, np.int64)) == identities(keys)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", ">i4", ">u8"])
def test_an_integer_is_the_same_key_at_every_width(dtype):
    keys = np.array([0, 1, 42, 127], dtype)
    assert hashed(keys) == identities([0, 1, 42, 127])
    lowest, highest = np.iinfo(dtype).min, min(np.iinfo(dtype).max, 2**63 - 1)
    assert hashed(np.array([lowest, highest], dtype)) == identities([lowest, highest])


@given(st.lists(st.tuples(texts, integers, st.binary(max_size=40)), max_size=20))
def test_any_tuples(keys):
    assert hashed(keys) == identities(keys)


@given(st.lists(texts | integers | st.binary(max_size=40) | st.tuples(texts, integers), max_size=20))
def test_any_mixture(keys):
    tuples_first = keys and isinstance(keys[0], tuple)
    if tuples_first and not all(isinstance(key, tuple) for key in keys):
        with pytest.raises(lt.InputError, match="tuples"):
            lt.hash_keys(keys)
    else:
        assert hashed(keys) == identities(keys)


@given(st.lists(st.tuples(texts | integers, texts | integers), min_size=1, max_size=20))
def test_tuples_whose_parts_have_several_types(keys):
    assert hashed(keys) == identities(keys)


@given(texts | integers | st.binary(max_size=120) | st.tuples(texts, integers | texts) | st.tuples(st.tuples(integers), texts))
def test_a_scalar_is_a_column_of_one(key):
    assert hashed(key) == hashed([key]) == [identity(key)]


@pytest.mark.parametrize(
    "key", [np.int8(-3), np.uint64(7), np.str_("a"), np.bytes_(b"a"), pa.scalar("a"), pa.scalar(7)], ids=repr
)
def test_scalars_of_other_libraries(key):
    plain = key.as_py() if isinstance(key, pa.Scalar) else key.item()
    assert hashed(key) == [identity(plain)]


def test_text_and_its_utf8_are_one_key():
    assert hashed(["Grüße"]) == hashed(["Grüße".encode()])


def test_the_hashes_are_those_of_spark():
    # select xxhash64('a'), xxhash64('b'), xxhash64(1L), xxhash64('a', 1L)
    spark = [-8582455328737087284, -6391946315847899181, -7001672635703045582]
    assert lt.hash_keys(["a", "b", 1]).view(np.int64).tolist() == spark


# -- columns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", TEXT_COLUMNS.values(), ids=TEXT_COLUMNS)
def test_columns_of_text(column):
    assert hashed(column() if callable(column) else column) == identities(WORDS)


@pytest.mark.parametrize("column", NUMBER_COLUMNS.values(), ids=NUMBER_COLUMNS)
def test_columns_of_integers(column):
    assert hashed(column) == identities(NUMBERS)


def test_fixed_width_columns():
    # NumPy cannot tell trailing zero bytes from padding
    assert hashed(np.array(["ab", "", "Grüße"])) == identities(["ab", "", "Grüße"])
    assert hashed(np.array([b"ab", b"", b"abcde"])) == identities([b"ab", b"", b"abcde"])
    assert hashed(pa.array([b"ab", b"\0\0"], pa.binary(2))) == identities([b"ab", b"\0\0"])
    assert hashed(range(5)) == identities(range(5))


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_arrow_and_polars_at_every_width(kind):
    column = pa.array([0, 5, 127], kind)
    assert hashed(column) == hashed(pl.from_arrow(column)) == identities([0, 5, 127])


TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()),
]


@given(st.lists(texts, min_size=1, max_size=20), st.data())
def test_slices_of_arrow_arrays(keys, data):
    start = data.draw(st.integers(0, len(keys)))
    stop = data.draw(st.integers(start, len(keys)))
    column = pa.array([k.encode() for k in keys]) if data.draw(st.booleans()) else pa.array(keys)
    if pa.types.is_string(column.type):
        column = column.cast(data.draw(st.sampled_from(TYPES)))
    assert hashed(column.slice(start, stop - start)) == identities(keys[start:stop])
    wrapped = pa.array(range(len(keys)))
    assert hashed(wrapped.slice(start, stop - start)) == identities(range(start, stop))


@pytest.mark.parametrize("second", ["string", "dictionary", "integer"])
def test_rows_of_frames_and_structs_are_tuples(second):
    numbers, words = list(range(len(WORDS))), WORDS
    keys = list(zip(words, numbers if second == "integer" else reversed(words), strict=True))
    columns = {"a": pa.array([k[0] for k in keys]), "b": pa.array([k[1] for k in keys])}
    if second == "dictionary":
        columns = {name: column.dictionary_encode() for name, column in columns.items()}
    table = pa.table(columns)
    for frame in (
        table,
        table.to_batches()[0],
        table.to_struct_array(),
        table.to_pandas(),
        pl.from_arrow(table),
        pl.from_arrow(table).to_struct(),
        keys,
        np.array([*keys, None], object)[:-1],
        pd.Series(keys),
    ):
        assert hashed(frame) == identities(keys)
    assert hashed(table.slice(2, 5)) == hashed(table.to_struct_array().combine_chunks().slice(2, 5)) == identities(keys[2:7])


def test_a_column_is_hashed_in_any_slices_alike():
    rows = list(zip(WORDS, range(len(WORDS)), strict=True))
    mixed = [1, "a", (1, "b"), b"c"]
    for keys in (
        WORDS,
        NUMBERS,
        rows,
        mixed,
        pa.array(WORDS).dictionary_encode(),
        pd.DataFrame({"a": WORDS, "b": pd.Categorical(WORDS)}),
    ):
        column = key_column(keys)
        whole = all_hashes(column).tolist()
        for start in range(len(column)):
            out = np.full(min(3, len(column) - start), SEED, np.uint64)
            column.hash_into(start, out)
            assert out.tolist() == whole[start : start + 3]


def test_empty_columns_have_no_hashes():
    for empty in (
        [],
        np.array([], object),
        np.array([], np.int32),
        pa.array([], pa.string()),
        pa.array([]),
        pl.Series([], dtype=pl.String),
    ):
        assert hashed(empty) == []


# -- what is no key ----------------------------------------------------------------------------------------------------

REFUSED = {
    "None": (None, "None"),
    "a None in a list": (["a", None], "1 of the keys are null"),
    "a None among integers": ([1, None], "1 of the keys are null"),
    "a None in a tuple": (("a", None), "None"),
    "a None in tuples": ([("a", None)], "null"),
    "a null in Arrow": (pa.array(["a", None, None]), "2 of the keys are null"),
    "a null in a dictionary": (pa.array(["a", None]).dictionary_encode(), "1 of the keys are null"),
    "a null in a struct": (pa.array([{"a": 1}, None]), "null"),
    "a NaN in a pandas column": (pd.Series(["a", float("nan")]), "nan"),
    "an NA in a pandas column": (pd.Series(["a", None], dtype="string"), "null"),
    "a null in polars": (pl.Series(["a", None]), "1 of the keys are null"),
    "a float": (2.5, "2.5 is a float"),
    "floats": ([2.5, 3.5], "2.5 is a float"),
    "floats of numpy": (np.array([2.5]), "2.5 is a float"),
    "a float in a tuple": (("a", 2.5), "2.5 is a float"),
    "a float in tuples": ([("a", 2.5)], "2.5 is a float"),
    "a float among text": (["a", 2.5], "2.5 is a float"),
    "nan": (float("nan"), "nan"),
    "a bool": (True, "True is a bool"),
    "a bool of numpy": (np.True_, "True"),
    "bools": ([True, False], "True is a bool"),
    "a bool among integers": ([1, True], "True is a bool"),
    "a bool in a tuple": ((1, True), "True is a bool"),
    "bools of pandas": (pd.Series([False]), "False is a bool"),
    "an empty tuple": ((), r"\(\) is an empty tuple"),
    "empty tuples": ([()], r"\(\) is an empty tuple"),
    "an empty tuple inside": (("a", ()), r"\(\) is an empty tuple"),
    "an integer too large": (2**63, str(2**63)),
    "an integer too small": (-(2**63) - 1, str(-(2**63) - 1)),
    "integers too large": ([1, 2**63], str(2**63)),
    "much too large": ([2**70], str(2**70)),
    "too large in a tuple": ((1, 2**63), str(2**63)),
    "uint64 too large": (np.array([1, 2**63 + 5], np.uint64), str(2**63 + 5)),
    "uint64 of Arrow too large": (pa.array([2**63 + 5], pa.uint64()), str(2**63 + 5)),
    "a lone surrogate": ("a\ud800", r"ud800.*Unicode"),
    "lone surrogates": (["a", "a\ud800"], r"ud800.*Unicode"),
    "a lone surrogate in a tuple": ((1, "a\ud800"), r"ud800.*Unicode"),
    "a lone surrogate in tuples": ([(1, "a\ud800")], r"ud800.*Unicode"),
    "tuples of different lengths": ([("a",), ("a", "b")], r"\('a', 'b'\)"),
    "tuples and text": ([("a", 1), "b"], "'b'"),
    "lists": ([["a", "b"]], r"\['a', 'b'\]"),
    "a datetime": (pd.Timestamp(0), "Timestamp"),
    "datetimes": (np.array([0], "M8[s]"), "1970"),
    "an object": (object(), "object"),
    "objects": ([object()], "object"),
    "a bytearray": (bytearray(b"ab"), "bytearray"),
    "a dict": ({"a": 1}, "dict"),
    "a set": ({"a"}, "set"),
    "two dimensions": (np.zeros((2, 2), np.int64), "2 dimensions"),
    "two dimensions of text": (np.array([["a", "b"]]), "list"),
    "records": (np.zeros(2, "i4,i4"), "numpy type"),
    "an empty frame": (pd.DataFrame(), "without columns"),
    "an empty table": (pa.table({}), "without columns"),
    "an empty frame of polars": (pl.DataFrame(), "without columns"),
}


@pytest.mark.parametrize(("keys", "what"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_key_is_refused_by_value(keys, what):
    with pytest.raises(lt.InputError, match=what):
        lt.hash_keys(keys)


def test_a_refused_batch_changes_nothing():
    sketch = lt.EcmSketch(window=100, eps=0.2, delta=0.2)
    sketch.update(["a", "b"], [1, 2])
    before = sketch.to_bytes()
    for keys in (["a", None], ["a", 2.5], [1, 2**63], ["a", "\ud800"]):
        with pytest.raises(lt.InputError):
            sketch.update(keys, [3, 4])
    assert sketch.to_bytes() == before


def test_nothing_is_an_empty_column_whatever_its_type():
    for column in ([], pd.Series([], dtype=float), pd.Series([], dtype=object), np.empty(0), pl.Series([], dtype=pl.String)):
        assert len(key_column(column)) == 0


def test_nan_is_null_and_said_so():
    with pytest.raises(lt.InputError, match=r"a key is nan.*fill or drop"):
        key_column(pd.Series(["a", np.nan], dtype=object))
