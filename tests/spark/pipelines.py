"""Small pipelines for tests: files of rows from a few sites, what a pipeline file says about them, and what its store holds."""

import copy
import os
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lately.spark.pipeline import Pipeline
from lately.store import Store

START = datetime(2026, 1, 5, 12, tzinfo=UTC)
COLUMNS = "ts timestamp, key bigint, site string, event string, ms double, n bigint"
SITES = ("lima", "oslo", "pune")
#: Columns of a store's tables that no two runs agree on.
WALL_CLOCK = ("began", "seconds", "seen", "ahead_seen")


def micros(moment):
    return int(moment.timestamp()) * 10**6


def events(size=12_000, minutes=20, seed=1, sites=SITES, universe=1024):
    """Rows in time order, no two at a time: keys are skewed, and values are multiples of 1/8, whose sums are exact."""
    random = np.random.default_rng(seed)
    ticks = np.sort(random.choice(minutes * 60 * 1000, size, replace=False)) * 1000 + micros(START)
    return pa.table(
        {
            "ts": pa.array(ticks, pa.timestamp("us", "UTC")),
            "key": np.minimum(random.zipf(1.4, size) - 1, universe - 1).astype(np.int64),
            "site": pa.array(np.array(sites)[random.choice(len(sites), size)]),
            "event": pa.array(np.array(["view", "buy"])[(random.random(size) < 0.3).astype(int)]),
            "ms": np.round(random.gamma(2.0, 20.0, size) * 8).clip(0, 799) / 8,
            "n": random.integers(0, 4, size),
        }
    )


def shuffled(table, seconds, seed=2):
    """The rows in another order, none of them overtaken by one that is newer by more than this."""
    times = table["ts"].cast(pa.int64()).to_numpy()
    delays = np.random.default_rng(seed).integers(0, seconds * 10**6, times.size)
    return table.take(np.argsort(times + delays, kind="stable"))


def write_files(table, folder, files):
    """Cut rows into Parquet files, which Spark's streams take in this order."""
    os.makedirs(folder, exist_ok=True)
    for number, rows in enumerate(np.array_split(np.arange(table.num_rows), files)):
        add_file(table.take(rows), folder, number)
    return str(folder)


def add_file(table, folder, number):
    path = os.path.join(folder, f"{number:04d}.parquet")
    hidden = os.path.join(folder, f".{number:04d}")
    pq.write_table(table, hidden)
    os.utime(hidden, (1_700_000_000 + number,) * 2)
    os.rename(hidden, path)
    return path


def content(source, folder, mode="available-now", files=1, **changes):
    """What a pipeline file says: rows of ``events``, its store and state under ``folder``; tables of it may be replaced."""
    config = {
        "source": {"format": "parquet", "path": str(source), "mode": mode, "columns": COLUMNS},
        "columns": {"time": "ts", "key": "key", "site": "site"},
        "window": {"length": "10m"},
        "guarantee": {"eps": 0.1, "delta": 0.1},
        "store": {"path": f"{folder}/store", "sketches": "always"},
        "run": {"checkpoint": f"{folder}/state", "seed": 20_120_615},  # as sketches that are built by hand have it
    }
    if mode != "batch":
        config["source"]["options"] = {"maxFilesPerTrigger": files}
    for name, value in copy.deepcopy(changes).items():
        config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
    return config


def run(spark, config, **kwargs):
    """Run it to its end; returns the pipeline."""
    pipeline = Pipeline.of(config)
    pipeline.run(spark, **kwargs)
    return pipeline


def table(config, name):
    """The rows of a table of its store."""
    moment = pa.int64() if isinstance(config["window"]["length"], int) else pa.timestamp("us", "UTC")
    return Store(config["store"]["path"], moment).read(name).to_pylist()


def in_order(rows, leave=()):
    """Rows as a list that two stores can be compared by."""
    return sorted(({k: v for k, v in row.items() if k not in leave} for row in rows), key=lambda row: repr(sorted(row.items())))


def last_answers(config):
    """What the last batch answered, whatever its number."""
    rows = table(config, "answers")
    newest = max(row["batch"] for row in rows)
    return in_order([row for row in rows if row["batch"] == newest], leave=["batch"])


def last_sketches(config):
    """The sketches after the last batch: {(site, name): bytes}."""
    rows = table(config, "sketches")
    newest = max(row["version"] for row in rows)
    return {(row["site"], row["sketch"]): row["blob"] for row in rows if row["version"] == newest}


def answers_to(config, query):
    """The last answers to one query: {(site, item): (low, value, high)}."""
    rows = [row for row in last_answers(config) if row["query"] == query]
    return {(row["site"], row["item"]): (row["low"], row["value"], row["high"]) for row in rows}


def in_range(table, last, site=None, where=None):
    """Rows in the last so many seconds up to the newest, in ticks of a second: so many ticks, as sketches count them."""
    seconds = table["ts"].cast(pa.int64()).to_numpy() // 10**6
    keep = seconds > seconds.max() - last
    if site is not None:
        keep &= np.array(table["site"].to_pylist()) == site
    if where is not None:
        keep &= np.array(table["event"].to_pylist()) == where
    return table.filter(pa.array(keep))
