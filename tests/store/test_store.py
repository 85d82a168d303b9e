"""The tables that a pipeline leaves: written again without doubling, never seen in part, readable by everybody."""

import os
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lately.core.errors import InputError, LeaseError
from lately.store import Store, tables
from lately.store.files import SCHEMA

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path):
    made = Store(str(tmp_path / "store"))
    made.prepare()
    return made


def answer(batch, value, **more):
    return {"time": NOON, "batch": batch, "query": "hot", "item": "/cart", "value": float(value)} | more


def values(store, table="answers"):
    return [(row["batch"], row["value"]) for row in store.read(table).to_pylist()]


def files(store):
    """All that lies in the store, hidden or not, but for the files without rows."""
    paths = [os.path.relpath(f"{folder}/{name}", store.path) for folder, _, names in os.walk(store.path) for name in names]
    return sorted(set(paths) - {f"{table}/{SCHEMA}" for table in tables()})


def test_batches_are_read_in_their_order(store):
    for batch in (10, 2, 1):
        store.put("answers", batch, [answer(batch, batch), answer(batch, batch + 0.5)])
    assert values(store) == [(1, 1), (1, 1.5), (2, 2), (2, 2.5), (10, 10), (10, 10.5)]
    assert files(store) == [f"answers/{batch:012d}.parquet" for batch in (1, 2, 10)]


def test_a_batch_that_is_run_again_replaces_itself(store):
    store.put("answers", 1, [answer(1, 1)])
    store.put("answers", 2, [answer(2, 2), answer(2, 3)])
    before = files(store)
    store.put("answers", 2, [answer(2, 2), answer(2, 3)])
    assert (values(store), files(store)) == ([(1, 1), (2, 2), (2, 3)], before)
    store.put("answers", 2, [answer(2, 7)])
    assert values(store) == [(1, 1), (2, 7)]


def test_tasks_of_a_batch_write_beside_each_other(store):
    late_row = {"batch": 3, "site": "lima", "time": NOON, "reason": "late", "row": "{}"}
    for part in ("0001", "0000", "0001"):
        store.put("late", 3, [late_row | {"row": part}], part)
    assert [row["row"] for row in store.read("late").to_pylist()] == ["0000", "0001"]
    store.clear(3)
    assert store.read("late").num_rows == 0


def test_clear_forgets_this_batch_and_later_ones_in_all_tables(store):
    late_row = {"site": "lima", "time": NOON, "reason": "late", "row": "{}"}
    for batch in (1, 2, 3, 12):
        store.put("answers", batch, [answer(batch, batch)])
        store.put("late", batch, [late_row | {"batch": batch}], "0003")
        store.put("runs", batch, [{"batch": batch, "rows": 5}])
    store.clear(3)
    for table in ("answers", "late", "runs"):
        assert store.read(table).column("batch").to_pylist() == [1, 2]
    store.clear(0)
    assert files(store) == []
    store.clear(0)


def test_a_store_whose_guard_refuses_is_not_touched(store):
    store.describe({"time_type": "timestamp", "name": "shop"})
    store.claim("stream 1")
    for batch in (1, 2):
        store.put("answers", batch, [answer(batch, batch)])
    before = {str(path): path.read_bytes() for path in Path(store.path).rglob("*") if path.is_file()}

    def refuse():
        raise LeaseError("another run has taken over")

    store.guard = refuse
    for change in (
        lambda: store.clear(1),
        lambda: store.put("answers", 1, [answer(1, 7)]),
        lambda: store.put("answers", 3, [answer(3, 3)]),
        lambda: store.put_range("answers", 1, 2, store.read("answers")),
        lambda: store.remove(store.files("answers")[0]),
        lambda: store.describe({"time_type": "timestamp", "name": "other"}),
    ):
        with pytest.raises(LeaseError, match="another run has taken over"):
            change()
        assert {str(path): path.read_bytes() for path in Path(store.path).rglob("*") if path.is_file()} == before
    store.guard = None
    store.clear(1)
    assert values(store) == []


def test_of_runs_that_claim_a_store_at_the_same_moment_one_does(tmp_path):
    for number in range(60):
        store, won, barrier = Store(str(tmp_path / str(number))), [], threading.Barrier(4)
        store.prepare()

        def claim(owner, store=store, won=won, barrier=barrier):
            barrier.wait()
            with suppress(InputError):
                store.claim(owner)
                won.append(owner)

        threads = [threading.Thread(target=claim, args=(f"stream {i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [store.owner()]


def test_nothing_is_written_for_no_rows(store):
    store.put("answers", 1, [])
    store.put("answers", 1, store.schema("answers").empty_table())
    assert files(store) == []


@pytest.mark.parametrize("table", tables())
def test_tables_have_their_columns_even_when_empty(store, table):
    empty = store.read(table)
    assert (empty.num_rows, empty.schema) == (0, store.schema(table))
    store.put(table, 1, [{"batch": 1} if "batch" in empty.schema.names else {"version": 1}])
    assert store.read(table).schema == store.schema(table)
    assert store.read(table).num_rows == 1


def test_times_of_the_streams_own_kind(tmp_path):
    store = Store(str(tmp_path), time_type=pa.int64())
    store.put("answers", 1, [answer(1, 2, time=17)])
    assert store.read("answers").column("time").to_pylist() == [17]
    assert Store(str(tmp_path), time_type=pa.int64()).read("answers") == store.read("answers")


def test_arrow_tables_are_taken_as_they_are(store):
    blobs = pa.Table.from_pylist([{"version": 1, "sketch": "hot", "blob": b"\0\1"}], store.schema("sketches"))
    store.put("sketches", 1, blobs)
    assert store.read("sketches") == blobs


def test_a_write_that_fails_leaves_the_table_as_it_was(store):
    store.put("answers", 1, [answer(1, 1)])
    before = files(store)
    with pytest.raises((pa.ArrowException, TypeError)):
        store.put("answers", 1, [answer(1, 1, query=object())])
    assert (files(store), values(store)) == (before, [(1, 1)])


def test_files_that_are_not_whole_are_not_there(store):
    """What a crash left half-written has another name, which no reader takes for a part of the table."""
    store.put("answers", 1, [answer(1, 1)])
    for name in (".000000000002.parquet.1234abcd", "_SUCCESS"):
        with open(f"{store.path}/answers/{name}", "wb") as file:
            file.write(b"PAR1 and then the lights went out")
    assert values(store) == [(1, 1)]
    assert ds.dataset(f"{store.path}/answers").count_rows() == 1
    store.clear(0)
    assert values(store) == []


def test_files_of_others_are_left_alone(store):
    store.put("answers", 1, [answer(1, 1)])
    pq.write_table(store.read("answers"), f"{store.path}/answers/notes.parquet")
    assert values(store) == [(1, 1)]
    store.clear(0)
    assert files(store) == ["answers/notes.parquet"]


def test_a_path_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "taken").write_text("a file")
    for path in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(InputError, match=r"cannot write to the store '.*taken.*give a \[store\] path that can be"):
            Store(str(path)).prepare()
    assert (tmp_path / "taken").read_text() == "a file"


def test_preparing_leaves_folders_with_a_file_without_rows_each(store):
    assert sorted(os.listdir(store.path)) == sorted(tables())
    store.prepare()
    assert files(store) == []
    assert all(os.listdir(f"{store.path}/{table}") == [SCHEMA] for table in tables())


def test_everybody_can_read_it(store):
    for batch in (1, 2):
        store.put("answers", batch, [answer(batch, batch, low=0.5, high=9, confidence=0.99), answer(batch, 4)])
    folder = f"{store.path}/answers"
    expected = [(1, "/cart", 1.0), (1, "/cart", 4.0), (2, "/cart", 2.0), (2, "/cart", 4.0)]
    columns = ["batch", "item", "value"]
    read = {
        "pandas": pd.read_parquet(folder)[columns].itertuples(index=False, name=None),
        "polars": pl.read_parquet(f"{folder}/*.parquet").select(columns).iter_rows(),
        "polars scan": pl.scan_parquet(folder).select(columns).collect().iter_rows(),
        "duckdb": duckdb.sql(f"SELECT batch, item, value FROM '{folder}/*.parquet'").fetchall(),
        "pyarrow": zip(*ds.dataset(folder).to_table(columns=columns).to_pydict().values(), strict=True),
        "parquet": zip(*pq.read_table(folder, columns=columns).to_pydict().values(), strict=True),
    }
    for who, rows in read.items():
        assert sorted(rows) == expected, who
    assert pd.read_parquet(folder)["time"].iloc[0] == pd.Timestamp(NOON)
    newest = duckdb.sql(f"SELECT max(time AT TIME ZONE 'UTC') FROM '{folder}/*.parquet'").fetchone()
    assert newest == (NOON.replace(tzinfo=None),)


@pytest.mark.parametrize("scheme", ["file://{}", "{}/"])
def test_paths_of_other_spellings_are_the_same_store(store, scheme):
    store.put("answers", 1, [answer(1, 1)])
    assert values(Store(scheme.format(store.path))) == [(1, 1)]
