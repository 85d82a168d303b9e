"""Columns one after the other answer like one column of all their keys, however often they are cut and joined again."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from key_cases import COLUMNS, identities, integers, texts

import lately as lt
from lately.core.joined import JoinedKeys
from lately.core.keys import SEED, HashedKeys, IntegerKeys, MixedKeys, TextKeys, TupleKeys, all_hashes, key_column


def alike(found, keys):
    assert repr(found.pick(np.arange(len(found)))) == repr(list(keys))
    assert len(found) == len(keys)
    assert all_hashes(found).tolist() == identities(keys)


def encoded(keys):
    return key_column(pa.array(keys).dictionary_encode())


def with_hashes(keys):
    """Keys as they are after sorting: known hashes, and rows of a column in another order."""
    source = key_column(keys[::-1])
    rows = np.arange(len(keys))[::-1].copy()
    return HashedKeys(all_hashes(source)[rows], source, rows)


scalars = texts | integers | st.binary(max_size=20)
one_column = (
    st.tuples(st.just(key_column), st.lists(integers, max_size=6))
    | st.tuples(st.just(key_column), st.lists(texts, max_size=6))
    | st.tuples(st.just(encoded), st.lists(texts, min_size=1, max_size=6))
    | st.tuples(st.just(key_column), st.lists(st.binary(max_size=20), max_size=6))
    | st.tuples(st.just(key_column), st.lists(scalars, max_size=6))
    | st.tuples(st.just(key_column), st.lists(st.tuples(texts, integers), max_size=6))
    | st.tuples(st.just(key_column), st.lists(st.tuples(scalars, st.tuples(scalars)), max_size=6))
    | st.tuples(st.just(key_column), st.lists(st.tuples(texts), max_size=6))
    | st.tuples(st.just(with_hashes), st.lists(texts, max_size=6))
)


@given(st.lists(one_column, max_size=6), st.data())
def test_any_columns(columns, data):
    keys = [key for _, part in columns for key in part]
    joined = JoinedKeys([make(part) for make, part in columns])
    alike(joined, keys)
    start = data.draw(st.integers(0, len(keys)))
    stop = data.draw(st.integers(start, len(keys)))
    alike(joined.part(start, stop), keys[start:stop])
    rows = data.draw(st.lists(st.integers(0, len(keys) - 1))) if keys else []
    assert repr(joined.pick(np.array(rows, np.int64))) == repr([keys[row] for row in rows])
    alike(joined.take(np.array(rows, np.int64)), [keys[row] for row in rows])
    out = np.full(stop - start, SEED, np.uint64)
    joined.hash_into(start, out)
    assert out.tolist() == identities(keys[start:stop])


def test_every_form_beside_every_other():
    forms = [(column() if callable(column) else column, keys) for column, keys in COLUMNS.values()]
    columns = [key_column(column) for column, _ in forms]
    keys = [key for _, part in forms for key in part]
    joined = JoinedKeys(columns)
    alike(joined, keys)
    alike(joined.part(0, len(keys)), keys)
    order = np.random.default_rng(1).permutation(len(keys))
    alike(joined.take(order), [keys[row] for row in order])
    assert joined.nbytes == sum(column.nbytes for column in columns)


KINDS = {
    "integers": (key_column, [[1, 2], [3], [4, 5]], IntegerKeys),
    "text": (key_column, [["a", "b"], ["c"], ["", "d"]], TextKeys),
    "bytes": (key_column, [[b"a", b"b"], [b"c"], [b"", b"d"]], TextKeys),
    "dictionaries": (encoded, [["a", "b"], ["c", "c"], ["a"]], TextKeys),
    "tuples": (key_column, [[("a", 1), ("b", 2)], [("c", 3)], [("d", 4)]], TupleKeys),
    "known hashes": (with_hashes, [["a", "b"], ["c"], ["", "d"]], HashedKeys),
    "text and integers": (key_column, [["a", "b"], [1], ["c"]], MixedKeys),
    "text and bytes": (key_column, [["a", "b"], [b"a"], ["c"]], MixedKeys),
    "tuples of several lengths": (key_column, [[("a", 1)], [("a",)], [("a", 1, 2)]], MixedKeys),
}


@pytest.mark.parametrize(("make", "parts", "kind"), KINDS.values(), ids=KINDS)
def test_copies_do_not_nest(make, parts, kind):
    keys = [key for part in parts for key in part]
    kept = JoinedKeys([make(part) for part in parts]).part(0, len(keys))
    once = kept.nbytes
    for _ in range(50):  # as arrivals that are held back: joined by a batch, put in order, cut
        joined = JoinedKeys([kept, make(parts[0])])
        kept = joined.take(np.arange(len(joined))[::-1].copy()).take(np.arange(len(joined))[::-1].copy()).part(0, len(keys))
    assert type(kept) is kind
    alike(kept, keys)
    assert kept.nbytes <= once
    if kind is MixedKeys:
        assert not any(isinstance(key, MixedKeys) for key in kept.keys)
    if kind is HashedKeys:
        assert isinstance(kept.source, TextKeys)


def test_hashes_alone_can_be_joined_but_not_given_back():
    hashed = HashedKeys(np.arange(5, dtype=np.uint64))
    assert JoinedKeys([hashed, hashed]).part(3, 7).hashes.tolist() == [3, 4, 0, 1]
    beside = JoinedKeys([hashed, key_column(["a"])]).part(0, 6)
    assert all_hashes(beside).tolist() == [0, 1, 2, 3, 4, *identities(["a"])]
    assert beside.pick(np.array([5])) == ["a"]
    with pytest.raises(lt.InputError, match="given as hashes"):
        beside.pick(np.array([4]))
