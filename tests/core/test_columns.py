"""Columns of whole numbers, and the counts of arrivals, in every form."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.core.columns import arrival_counts, arrow, is_arrow, signed_counts, whole_numbers

FORMS = {
    "list": lambda v: v,
    "tuple": tuple,
    "numpy": np.array,
    "uint8": lambda v: np.array(v, np.uint8),
    "float": lambda v: np.array(v, np.float32),
    "big-endian": lambda v: np.array(v, ">i8"),
    "strided": lambda v: np.repeat(v, 2)[::2],
    "Arrow": pa.array,
    "Arrow uint64": lambda v: pa.array(v, pa.uint64()),
    "chunked Arrow": lambda v: pa.chunked_array([v[:1], v[1:]]),
    "sliced Arrow": lambda v: pa.array([99, *v, 99]).slice(1, len(v)),
    "pandas": pd.Series,
    "nullable pandas": lambda v: pd.Series(v, dtype="Int64"),
    "pandas of Arrow": lambda v: pd.Series(v, dtype="int64[pyarrow]"),
    "polars": pl.Series,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_whole_numbers_of_every_form(form):
    found = whole_numbers(form([3, 0, 200]), "counts")
    assert found.dtype == np.int64
    assert found.tolist() == arrival_counts(form([3, 0, 200]), 3).tolist() == [3, 0, 200]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_every_int64_survives(values):
    assert whole_numbers(values, "times").tolist() == values
    assert whole_numbers(pa.array(values, pa.int64()), "times").tolist() == values


def test_a_column_is_not_copied_without_need():
    column = np.arange(5)
    assert whole_numbers(column, "times") is column


REFUSED = {
    "a fraction": ([1, 2.5], r"2\.5.*whole"),
    "nan": ([1.0, float("nan")], "nan"),
    "infinity": ([float("inf")], "inf"),
    "a float too large to be exact": ([2.0**60], "exact float"),
    "None": ([1, None], "None"),
    "a null of Arrow": (pa.array([1, None]), "1 of the counts are null"),
    "a null of polars": (pl.Series([None, 1, None]), "2 of the counts are null"),
    "NA of pandas": (pd.Series([1, None], dtype="Int64"), "nan"),
    "text": (["5"], "'5'"),
    "one text": ("5", "'5'"),
    "bool": ([True], "True"),
    "beyond int64": ([2**63], str(2**63)),
    "a mixture that NumPy makes floats of": ([-1, 2**63], "9.22"),
    "far beyond int64": ([2**70], str(2**70)),
    "uint64 beyond int64": (np.array([2**63], np.uint64), str(2**63)),
    "two dimensions": ([[1, 2]], "2 dimensions"),
    "ragged lists": ([[1], [2, 3]], "one column"),
    "a set": ({1}, r"\{1\}"),
}


@pytest.mark.parametrize(("values", "what"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_whole_number_is_refused_by_value(values, what):
    with pytest.raises(lt.InputError, match=what):
        whole_numbers(values, "counts")


def test_counts_left_out_are_one_each():
    assert arrival_counts(None, 5) is None


@pytest.mark.parametrize("one", [7, np.int32(7), 7.0, pa.scalar(7)], ids=repr)
def test_one_count_counts_for_all(one):
    assert arrival_counts(one, 3).tolist() == [7, 7, 7]
    assert arrival_counts(one, 1).tolist() == [7]


def test_a_column_of_one_is_not_spread_over_many():
    with pytest.raises(lt.InputError, match=r"1 counts for 3 keys.*one each"):
        arrival_counts([7], 3)


@pytest.mark.parametrize(
    ("counts", "what"),
    [
        ([1, -1, 0], r"-1.*0 or more"),
        ([1, 2], "2 counts for 3 keys"),
        ([], "0 counts for 3 keys"),
        ([2**61, 2**61, 2**61], r"2\*\*62"),
        ([0.5, 1, 1], r"0\.5"),
    ],
)
def test_counts_that_cannot_be_are_refused(counts, what):
    with pytest.raises(lt.InputError, match=what):
        arrival_counts(counts, 3)


def test_the_largest_counts_are_taken():
    assert arrival_counts([2**62, 0], 2).tolist() == [2**62, 0]


def test_arrow_is_told_by_its_module_and_not_by_import():
    assert is_arrow(pa.array([1]))
    assert is_arrow(pa.chunked_array([[1]]))
    assert not any(is_arrow(x) for x in ([1], np.array([1]), pd.Series([1]), pl.Series([1]), "pyarrow", None))


def test_any_column_becomes_one_arrow_array():
    for column in (
        ["a", "b"],
        np.array(["a", "b"]),
        pd.Series(["a", "b"]),
        pl.Series(["a", "b"]),
        pa.chunked_array([["a"], ["b"]]),
    ):
        found = arrow(column)
        assert isinstance(found, pa.Array)
        assert found.to_pylist() == ["a", "b"]
    assert arrow(pa.table({"x": [1, 2]})).to_pylist() == [{"x": 1}, {"x": 2}]
    assert arrow(pa.scalar(5)).to_pylist() == [5]


def test_signed_counts_may_take_away():
    assert signed_counts(None, 5) is None
    assert signed_counts([3, -(2**62) + 3], 2).tolist() == [3, -(2**62) + 3]
    assert signed_counts(-7, 3).tolist() == [-7, -7, -7]
    assert signed_counts([], 0).tolist() == []
    for counts, says in (
        ([-(2**63), 0], r"counts add up to 9.22e\+18 without their signs, more than 2\*\*62; scale them down"),
        ([2**62, -(2**62)], "9.22e"),
        ([2**62, 2**62], r"9.22e\+18, more than"),
        ([1, 2, 3], "3 counts for 2 keys"),
        ([1, 0.5], "0.5"),
    ):
        with pytest.raises(lt.InputError, match=says):
            signed_counts(counts, 2)
    with pytest.raises(lt.InputError, match="1 weights for 2 keys; give one each, or leave weights out"):
        signed_counts([1], 2, "weights")
