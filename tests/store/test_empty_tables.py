"""Tables without rows can be read by everything that reads Parquet, and what makes that so is in nobody's way."""

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from store_builder import new_store, put_batch

from lately.store import Store, tables, upkeep
from lately.store.check import check
from lately.store.tables import TIME_TYPES


@pytest.fixture(params=TIME_TYPES)
def store(request, tmp_path):
    return new_store(tmp_path / "store", request.param, name="shop")


@pytest.mark.parametrize("table", tables())
def test_a_table_without_rows_can_be_read(store, table):
    dataset = ds.dataset(f"{store.path}/{table}").to_table()
    assert (dataset.schema, dataset.num_rows) == (store.schema(table), 0)
    frame = pd.read_parquet(f"{store.path}/{table}")
    assert (list(frame.columns), len(frame)) == (store.schema(table).names, 0)
    assert store.files(table) == []
    assert store.read(table).num_rows == 0


def test_it_stays_when_batches_are_cleared_compacted_and_expired(store):
    for batch in range(100):
        put_batch(store, batch, None, late=[{"row": "{}"}], run={"rows": 1})
    upkeep.tidy(store)
    store.clear(90)
    for table in ("runs", "late"):
        assert sorted(ds.dataset(f"{store.path}/{table}").to_table()["batch"].to_pylist()) == list(range(90))
        for file in store.all_files(table):
            store.remove(file)
        assert ds.dataset(f"{store.path}/{table}").to_table().schema == store.schema(table)
    assert check(store.path).findings == []


def test_a_run_of_a_later_version_adds_its_columns(store, tmp_path):
    path = tmp_path / "store" / "runs" / "schema.parquet"
    earlier = Store(store.path, store.schema("runs").field("time").type)
    earlier._schemas["runs"] = store.schema("runs").remove(0)
    earlier.prepare()
    (finding,) = check(store.path).findings
    assert finding.file == "runs/schema.parquet"
    store.prepare()
    assert ds.dataset(path).schema == store.schema("runs")
    before = path.stat().st_mtime_ns
    store.prepare()
    assert path.stat().st_mtime_ns == before  # what is right is not written again


def test_damage_is_found_and_mended_by_the_next_run(store, tmp_path):
    path = tmp_path / "store" / "alerts" / "schema.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    (finding,) = check(store.path).findings
    assert (finding.file, "next run" in finding.wrong) == ("alerts/schema.parquet", True)
    store.prepare()
    assert check(store.path).findings == []
    assert pa.types.is_string(ds.dataset(path).schema.field("state").type)


def test_a_store_of_an_earlier_version_is_sound(store, tmp_path):
    for path in (tmp_path / "store").glob("*/schema.parquet"):
        path.unlink()
    assert check(store.path).findings == []
