"""What a pipeline says of its store, and how it looks after it: also if it is killed while it does."""

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipelines import WALL_CLOCK, content, events, in_order, run, table, write_files
from pyarrow import fs

from lately.config import MonitorTable, parse
from lately.core.errors import InputError
from lately.pipeline.plan import PipelinePlan
from lately.spark import micro_batch as module
from lately.spark.pipeline import Pipeline
from lately.store import Store, tables, upkeep
from lately.store.check import check

QUERIES = [
    {"name": "hot", "kind": "top", "k": 3, "last": "5m", "where": "event = 'buy'"},
    {"name": "pairs", "kind": "join", "left": "event = 'buy'", "right": "event = 'view'"},
    {"name": "n", "kind": "exact", "aggregate": "count"},
]
BATCHES = 14
PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
EXAMPLES = re.findall(r"(?ms)^```toml\n(.*?)^```", PAGE.read_text())


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_files(events(2_800, minutes=28), tmp_path_factory.mktemp("upkeep") / "source", BATCHES)


@pytest.fixture
def small(monkeypatch):
    """Blocks of a few batches; the driver alone knows of them."""
    for name, value in {"BLOCK": 4, "_SMALL_BLOCK": 2, "ALONE": 2}.items():
        monkeypatch.setattr(upkeep, name, value)


def everything(config):
    """All rows of all tables; of the snapshots of the sites, of which upkeep leaves a few, the newest."""
    rows = {name: table(config, name) for name in tables()}
    rows["sites"] = [row for row in rows["sites"] if row["batch"] == max(one["batch"] for one in rows["sites"])]
    return {name: in_order(its, leave=WALL_CLOCK) for name, its in rows.items()}


def names(config):
    store = Store(config["store"]["path"])
    return {name: [one.name for one in store.all_files(name)] for name in tables()}


def about_json(store):
    """What ``about.json`` says to those who read it without lately."""
    return json.loads((Path(store) / "about.json").read_text())


# -- what it says ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["batch", "available-now"])
def test_the_store_says_what_it_is_about(spark, source, tmp_path, mode):
    monitors = [{"name": "rush", "kind": "count", "key": 0, "above": 5}] if mode != "batch" else []
    config = content(
        source, tmp_path, mode, files=BATCHES, name="shop", queries=QUERIES, monitors=monitors, store={"keep": "1d"}
    )
    run(spark, config)
    about = about_json(config["store"]["path"])
    assert {name: about[name] for name in ("format", "name", "time_type", "keys", "keep", "stored")} == {
        "format": 1, "name": "shop", "time_type": "timestamp", "keys": "integer", "keep": "1d", "stored": "always",
    }  # fmt: skip
    assert about["window"] == {"length": "10m", "tick": None, "lateness": None}
    assert about["guarantee"] == {"eps": 0.1, "delta": 0.1}
    hot, pairs, n = about["queries"]
    assert {name: hot[name] for name in ("name", "kind", "last", "by", "k", "where")} == {
        "name": "hot", "kind": "top", "last": "5m", "by": "all", "k": 3, "where": "event = 'buy'",
    }  # fmt: skip
    assert [len(query["sketches"]) for query in (hot, pairs, n)] == [1, 2, 0]
    stored = {row["sketch"]: row["kind"] for row in table(config, "sketches")}
    assert {name: one["kind"] for name, one in about["sketches"].items()} == stored
    assert sorted((one["kind"], one["where"], one["query"]) for one in about["sketches"].values()) == [
        ("ams", "event = 'buy'", None), ("ams", "event = 'view'", None), ("topk", "event = 'buy'", None),
    ]  # fmt: skip
    assert [watch["name"] for watch in about["monitors"]] == (["rush"] if monitors else [])
    assert check(config["store"]["path"]).findings == []


@pytest.mark.parametrize("file", EXAMPLES)
def test_whatever_a_pipeline_asks_can_be_said(tmp_path, file):
    parsed = parse(file)
    store = Store(str(tmp_path))
    store.describe(PipelinePlan.of(parsed).about("text"))
    about = about_json(tmp_path)
    assert [query["name"] for query in about["queries"]] == [query.name for query in parsed.queries]
    for query, query_info in zip(parsed.queries, about["queries"], strict=True):
        assert type(query).model_validate_json(json.dumps({k: v for k, v in query_info.items() if k != "sketches"})) == query
        assert all(about["sketches"][name] for name in query_info["sketches"])
    assert [MonitorTable.model_validate(watch) for watch in about["monitors"]] == parsed.monitors


@pytest.mark.parametrize(
    ("key", "keys"), [("cast(key as string)", "text"), ("cast(cast(key as string) as binary)", "binary"), ("key", "integer")]
)
def test_the_store_says_what_keys_are(spark, source, tmp_path, key, keys):
    config = content(source, tmp_path, "batch", columns={"key": key}, queries=QUERIES[:1])
    run(spark, config)
    assert Store.open(config["store"]["path"]).about().keys == keys


def test_a_store_of_a_newer_version_is_not_written_to(spark, source, tmp_path):
    config = content(source, tmp_path, "batch", queries=QUERIES[:1])
    run(spark, config)
    store = Store(config["store"]["path"])
    before = names(config)
    about = tmp_path / "store" / "about.json"
    about.write_text(about.read_text().replace('"format": 1', '"format": 7'))
    with pytest.raises(InputError, match=r"has format 7, .*; upgrade lately"):
        run(spark, config)
    assert names(config) == before
    about.unlink()  # as an earlier version left it
    run(spark, config)
    assert store.about().name == "pipeline"


# -- how it looks after it ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(spark, source, tmp_path_factory):
    """What a run says that is never looked after."""
    config = content(source, tmp_path_factory.mktemp("alone"), queries=QUERIES)
    run(spark, config)
    assert not any(".." in name for files in names(config).values() for name in files)
    return everything(config)


class Faulty(fs.LocalFileSystem):
    """A disk on which the power fails before the n-th change."""

    def __init__(self, changes):
        super().__init__()
        self.left = changes

    def change(self):
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("the lights went out")

    def delete_file(self, path):
        self.change()
        super().delete_file(path)

    def move(self, src, dest):
        self.change()
        super().move(src, dest)


@pytest.mark.parametrize("keep", [None, "11m"])
def test_killed_in_its_upkeep_it_leaves_the_same_files(spark, source, alone, tmp_path, small, monkeypatch, keep):
    config = content(source, tmp_path / "peace", queries=QUERIES, store={"keep": keep})
    run(spark, config)
    peace, files = everything(config), names(config)
    newest = max(row["time"] for row in alone["runs"])
    if keep is None:
        assert peace == alone
        assert any(".." in name for name in files["runs"])
        for name in ("runs", "answers", "sketches"):  # Spark minds neither such files nor the checksums in them
            assert spark.read.parquet(f"{config['store']['path']}/{name}").count() == len(peace[name])
    else:  # up to a sixteenth of it more, as it is not looked at after each batch
        first = min(row["batch"] for row in peace["runs"])
        limit = newest - timedelta(minutes=11)
        assert 0 < first <= min(row["batch"] for row in alone["runs"] if row["time"] >= limit)
        assert newest - min(row["time"] for row in peace["runs"]) < timedelta(minutes=11) * 17 / 16 + timedelta(minutes=2)
        for name, rows in alone.items():
            number = "version" if name == "sketches" else "batch"
            assert peace[name] == [row for row in rows if row[number] >= first], name
    config = content(source, tmp_path / "killed", queries=QUERIES, store={"keep": keep})
    faults = [0, 2, 7]

    def interrupted(store, *args):
        faulty = Store(store.path, pa.timestamp("us", "UTC"))
        faulty._fs = Faulty(faults[0] if faults else 1_000_000)
        return upkeep.tidy(faulty, *args)

    monkeypatch.setattr(module, "tidy", interrupted)
    while faults:
        with pytest.raises(ConnectionError, match="the lights went out"):
            run(spark, config)
        faults.pop(0)
    run(spark, config)
    assert everything(config) == peace
    assert names(config) == files
    assert check(config["store"]["path"]).findings == []


def test_times_that_are_integers_grow_old_too(spark, source, tmp_path, small):
    """Retention goes by the stream's own time, whatever the clock says."""
    seconds = "cast(unix_seconds(ts) as bigint)"
    config = content(
        source, tmp_path, columns={"time": seconds}, window={"length": 60}, queries=[QUERIES[2]], store={"keep": 300}, files=2
    )
    run(spark, config)
    runs = table(config, "runs")
    times = [row["time"] for row in runs]
    assert runs[0]["batch"] > 0
    assert times[-1] - times[0] <= 300 * 17 / 16 + 240
    assert Store.open(config["store"]["path"]).read("runs")["time"].type == pa.int64()


def test_a_checkpoint_older_than_its_store_is_told(spark, source, tmp_path, small):
    """A state from a backup, beside a store that has put later batches together for good."""
    config = content(source, tmp_path, queries=[QUERIES[2]])
    few = tmp_path / "few"
    few.mkdir()
    for number in range(2):
        shutil.copy(f"{source}/{number:04d}.parquet", few)
    run(spark, config | {"source": config["source"] | {"path": str(few)}})
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    for number in range(2, 10):
        shutil.copy(f"{source}/{number:04d}.parquet", few)
    run(spark, config | {"source": config["source"] | {"path": str(few)}})
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    with pytest.raises(InputError, match=r"batch 2 is to be run again, .* the \[run\] checkpoint is older than the store"):
        Pipeline.of(config | {"source": config["source"] | {"path": str(few)}}).run(spark)
    assert pq.read_table(f"{config['store']['path']}/runs").num_rows == 10
