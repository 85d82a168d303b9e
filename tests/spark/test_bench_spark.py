"""The benchmark of Spark runs in the session of the tests, and what it finds beside time is as promised."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lately import LatelyError, cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _as_from_the_root(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])


@pytest.mark.long
def test_it_runs_on_a_file(spark, tmp_path):
    rng = np.random.default_rng(2)
    ts, keys = np.sort(rng.integers(0, 5000, 3000)), [f"/page/{page}" for page in rng.zipf(1.3, 3000)]
    pq.write_table(pa.table({"ts": ts, "key": keys}), tmp_path / "mine.parquet")
    command = ["bench", "spark", "--quick", "--json", "--rows", "2000", "--data", str(tmp_path / "mine.parquet")]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["reports"]["spark"]
    crossing, ticks, windows, stream, state, scaling, traffic, counted = (table["rows"] for table in report["tables"])
    assert [row["what"] for row in crossing] == [
        f"{job}, {what}" for what in ("integer keys", "text keys", "keys of mine.parquet") for job in ("sketch", "sketch_files")
    ]
    assert all(row["M/s"] > 0 and row["ratio"] > 0 for row in (*crossing, *counted))
    assert [row["stored sketches"] for row in ticks][1:3] == [16, 16]
    assert ticks[0]["stored sketches"] > 1000
    assert max(row["largest error"] for row in ticks) <= 0.02
    assert [row["of the true top 10"] is None for row in ticks] == [True, True, True, False, False]
    assert [row["what"].split()[0] for row in windows] == ["Spark:", "sketch", "sketch_files"]
    assert windows[0]["shuffled KB"] > windows[2]["shuffled KB"]
    assert [row["rows a batch"] for row in stream] == [2000, 16, 2000, 16]
    assert {row["sketches"] for row in state} == {3 * 16}
    assert [row["master"] for row in scaling] == ["local[1]", "local[2]"]
    assert [(row["sites"], row["rows"]) for row in traffic] == [(sites, rows) for sites in (4, 16) for rows in (125, 2000)]
    assert all(row["shuffled KB"] > 0 for row in traffic)
    verdicts = {verdict["claim"]: verdict["ok"] for verdict in report["verdicts"]}
    assert verdicts["exact windows: share of answers outside their bounds"]
    assert verdicts["streaming: state on disk / its sketches"]
    assert spark.range(3).count() == 3  # the session is still there


@pytest.mark.long
def test_what_a_site_costs(spark):
    result = CliRunner().invoke(cli.app, ["bench", "sites", "--quick", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["reports"]["sites"]
    (sites,) = (table["rows"] for table in report["tables"])
    assert [(row["sites"], row["rows a batch"]) for row in sites] == [(8, 500), (16, 500)]
    assert all(row[name] > 0 for row in sites for name in row)
    assert [verdict["claim"].partition(":")[0] for verdict in report["verdicts"]] == [
        "seconds a batch",
        "state, KB",
        "all processes, MB",
    ]
    assert spark.range(3).count() == 3  # the session is still there


@pytest.mark.slow
def test_an_application_of_its_own(tmp_path):
    jobs, rows = importlib.import_module("bench.spark_jobs"), importlib.import_module("bench.spark_rows")
    path = rows.integers(tmp_path / "integers.parquet", 5000, 100)
    app = jobs.Apart("local[1]")
    try:
        taken = app.run("frame", path=str(path))
        assert taken.seconds > 0
        assert taken.resident > 10**8
        with pytest.raises(LatelyError, match="failed at 'luck'"):
            app.run("luck")
    finally:
        app.close()
