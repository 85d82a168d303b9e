"""Parquet files with a checksum: anybody reads them, and nobody believes a damaged one."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lately.core.errors import FormatError
from lately.store import checksummed_parquet

ROWS = pa.table({"batch": pa.array([1, 2, 3]), "item": ["a", None, "LATELY01"], "blob": pa.array([b"", b"\0", None])})


def test_others_read_it():
    assert pq.read_table(io.BytesIO(checksummed_parquet.encode(ROWS))) == ROWS
    assert checksummed_parquet.read(checksummed_parquet.encode(ROWS)) == ROWS


def test_columns_may_be_chosen_and_may_be_missing():
    data = checksummed_parquet.encode(ROWS)
    schema = pa.schema({"item": pa.string(), "batch": pa.int64()})
    assert checksummed_parquet.read(data, schema) == ROWS.select(["item", "batch"])
    more = pa.schema({"batch": pa.int64(), "new": pa.float64()})
    assert checksummed_parquet.read(data, more).to_pylist() == [{"batch": batch, "new": None} for batch in (1, 2, 3)]


def test_the_same_rows_give_the_same_bytes():
    assert checksummed_parquet.encode(ROWS) == checksummed_parquet.encode(pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)]))


def test_what_has_no_checksum_is_taken_as_it_is():
    sink = io.BytesIO()
    pq.write_table(ROWS.drop_columns(["item"]), sink)
    assert checksummed_parquet.read(sink.getvalue()) == ROWS.drop_columns(["item"])


@given(st.data())
def test_any_damage_is_found(data):
    whole = checksummed_parquet.encode(ROWS)
    start = data.draw(st.integers(0, len(whole) - 1))
    length = data.draw(st.integers(1, 40))
    new = data.draw(st.one_of(st.just(b""), st.binary(min_size=length, max_size=length)))
    damaged = whole[:start] + new + whole[start + length :]
    if damaged == whole:
        checksummed_parquet.verify(damaged)
    else:  # also in the mark of the checksum, as these rows have its text as well
        with pytest.raises(FormatError):
            checksummed_parquet.read(damaged)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1PAR1", b"PAR1\0\0\0\0\0\0\0\0PAR1", b"x" * 100, b"PAR1" + b"\xff" * 20 + b"PAR1"]
)
def test_what_is_no_parquet_is_told(content):
    with pytest.raises(FormatError):
        checksummed_parquet.read(content)
