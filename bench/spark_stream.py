"""A pipeline over files that come one by one: events a second, what a batch of nothing costs, how large its state is."""

import os
import statistics
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lately as lt
from bench.data import UNIVERSE, texts, zipf
from bench.report import Options, Report, Table, Verdict
from bench.spark_jobs import SITES
from bench.spark_rows import START

BATCHES = 6  # the first warms up
TINY = 7  # the first of them warms up too
#: Seconds of the stream in a batch, and in a tiny one: the window stays as full as it was.
STEP, LITTLE = 900, 1
COLUMNS = {
    "what": "", "batches": "d", "rows a batch": ",", "seconds a batch": ".2f", "in the pipeline": ".2f",
    "M events/s": ".2f", "slowest": ".2f",
}  # fmt: skip
STATE = {"keys": "", "sketches": ",", "KB": ",.0f", "version on disk, KB": ",.0f", "ratio": ".3f", "all versions, KB": ",.0f"}


def streaming(report: Report, options: Options, folder: Path, spark: Any) -> None:
    """Add the tables, and the verdicts on integer keys; text keys are beside them."""
    rows = min(options.size(2_500_000, 3_000), 2_500_000)
    table = Table(f"a pipeline of top keys, quantiles and a self-join at {SITES} sites, eps 0.01, a window of an hour", COLUMNS)
    state = Table("the state of that pipeline, after the last batch", STATE)
    for keys in ("integer", "text"):
        stream = _Stream(folder / keys, keys, rows, spark, options)
        large, tiny = stream.run()
        shown = (f"{keys} keys", large, rows), (f"{keys} keys, a row from each site", tiny, SITES)
        for what, batches, size in shown:
            cycle = statistics.median(wall for wall, _ in batches)
            inside = statistics.median(inner for _, inner in batches)
            sustained = size * len(batches) / sum(wall for wall, _ in batches) / 1e6
            slowest = size / max(wall for wall, _ in batches) / 1e6
            table.add(what, len(batches), size, cycle, inside, sustained, slowest)
        state.add(f"{keys} keys", *stream.state())
    report.tables += [table, state]
    events, nothing = (table.as_dicts()[i] for i in (0, 1))
    report.verdicts += [
        Verdict.at_least("streaming: million events a second, sustained", events["M events/s"], 1),
        Verdict.below("streaming: seconds of a batch with a row from each site", nothing["seconds a batch"], 1),
        Verdict.at_most("streaming: state on disk / its sketches", max(row["ratio"] for row in state.as_dicts()), 1.2),
    ]
    report.notes.append(
        "Streaming: Parquet files, one a batch, available-now; a batch takes from the end of the one before to its own, with "
        "all that Spark does in between; in the pipeline: BatchReport.seconds. M events/s: of all batches but the first. "
        "A version on disk: its JSON and all parts that it needs. All versions: three are kept."
    )


class _Stream:
    """A folder of files, and a pipeline over it."""

    def __init__(self, folder: Path, keys: str, rows: int, spark: Any, options: Options) -> None:
        self._folder, self._keys, self._rows, self._spark, self._options = folder, keys, rows, spark, options
        self._files, self._clock = 0, START
        (folder / "in").mkdir(parents=True)

    def run(self) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        """Seconds of each batch, all and in the pipeline: of large ones, then of tiny ones."""
        batches = 2 if self._options.quick else BATCHES
        self._options.tell(f"streaming, {self._keys} keys: writing {batches} × {self._rows:,} rows")
        self._write([self._rows] * batches, STEP)
        self._options.tell(f"streaming, {self._keys} keys: {batches} batches")
        large = self._measure()
        self._write([SITES] * (2 if self._options.quick else TINY), LITTLE)
        self._options.tell(f"streaming, {self._keys} keys: batches of {SITES} rows")
        return large, self._measure()

    def _write(self, sizes: list[int], step: int) -> None:
        names = None if self._keys == "integer" else texts(UNIVERSE)
        for size in sizes:
            number = self._files
            rng = np.random.default_rng(number)
            keys = zipf(size, seed=number)
            sites = np.arange(SITES) if size == SITES else rng.integers(0, SITES, size)
            columns = {
                "ts": self._clock + np.arange(size) * step // size,
                "site": sites.astype(np.int32),
                "key": keys if names is None else names.take(pa.array(keys)),
                "value": np.minimum(rng.exponential(200.0, size), 59_999.0),
            }
            path = self._folder / "in" / f"{number:03d}.parquet"
            pq.write_table(pa.table(columns), path)
            os.utime(path, (START + number, START + number))  # Spark takes the oldest first
            self._files, self._clock = number + 1, self._clock + step

    def _pipeline(self) -> Any:
        from lately.spark import Pipeline

        key = "bigint" if self._keys == "integer" else "string"
        return Pipeline.of({
            "name": f"lately-bench-{self._keys}",
            "source": {
                "format": "parquet", "path": str(self._folder / "in"), "mode": "available-now",
                "columns": f"ts bigint, site int, key {key}, value double", "options": {"maxFilesPerTrigger": 1},
            },
            "columns": {"time": "ts", "key": "key", "site": "site", "value": "value"},
            "window": {"length": "1h"},
            "guarantee": {"eps": 0.01, "delta": 0.01},
            "queries": [
                {"name": "top", "kind": "top", "k": 20, "last": "10m"},
                {"name": "values", "kind": "quantiles", "lo": 0, "hi": 60_000, "resolution": 1},
                {"name": "skew", "kind": "self-join"},
            ],
            "store": {"path": str(self._folder / "store")},
            "run": {"checkpoint": str(self._folder / "state")},
        })  # fmt: skip

    def _measure(self) -> list[tuple[float, float]]:
        """Seconds of all batches but the first, which warms up and has no beginning."""
        ends: list[tuple[float, float]] = []
        self._pipeline().run(self._spark, on_batch=lambda report: ends.append((perf_counter(), report.seconds)))
        return [(end - begin, inside) for (begin, _), (end, inside) in pairwise(ends)]

    def state(self) -> tuple[int, float, float, float, float]:
        """Sketches and their bytes, and what the newest version and all versions take on disk."""
        versions = self._pipeline().versions
        batch = versions.batches()[-1]
        version = versions.read(batch)
        places = list(version.all_places())
        sketches = sum(len(lt.from_bytes(blob).to_bytes()) for blob in versions.blobs(places).values())
        home = Path(versions.path)
        files = [home / f"{batch:012d}.json", *(home / "parts" / part for part in version.parts)]
        disk = sum(file.stat().st_size for file in files)
        everything = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
        return len(places), sketches / 1e3, disk / 1e3, disk / sketches, everything / 1e3
