"""Killed at any moment, a stream goes on as if nothing had been: all tables and all sketches are those of a run in peace."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import killed
import numpy as np
import pytest
from patience import PATIENCE, wait_until
from pipelines import WALL_CLOCK, content, events, in_order, run, shuffled, table, write_files

from lately.pipeline.state_versions import StateVersions

BATCHES = 6
QUERIES = [
    {"name": "counts", "kind": "counts", "keys": list(range(10)), "by": "site"},
    {"name": "top", "kind": "top", "k": 5, "last": "5m"},
    {"name": "n", "kind": "exact", "aggregate": "count"},
    {"name": "sum", "kind": "exact", "aggregate": "sum", "of": "ms", "last": "1m"},
]
MONITORS = [{"name": "rush", "kind": "count", "key": 0, "above": 120, "last": "1m", "theta": 0.2}]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Rows of which some are late and some are bad, in so many files."""
    rows = shuffled(events(3_600, minutes=8), 12)
    site = np.array(rows["site"].to_pylist(), object)
    site[::97] = None
    rows = rows.set_column(2, "site", [site.tolist()])
    return write_files(rows, tmp_path_factory.mktemp("killed") / "source", BATCHES)


@pytest.fixture(scope="module")
def in_peace(spark, source, tmp_path_factory):
    """What a run says that nobody disturbs."""
    config = new_config(source, tmp_path_factory.mktemp("peace"))
    run(spark, config)
    tables = everything(config)
    assert len(tables["runs"]) == BATCHES
    assert all(tables[name] for name in ("answers", "alerts", "late", "rejected", "sketches"))
    return tables


def new_config(source, folder):
    window = {"length": "5m", "lateness": "5s"}
    return content(source, folder, name=folder.name, queries=QUERIES, monitors=MONITORS, window=window)


def everything(config):
    names = ("answers", "alerts", "late", "rejected", "runs", "sketches")
    return {name: in_order(table(config, name), leave=WALL_CLOCK) for name in names}


class Process:
    """The runner with a plan, in a process group of its own."""

    def __init__(self, folder, pipelines, master="local[2]", fails=None):
        folder.mkdir(parents=True)
        self.ready = folder / "ready"
        plan = {"folder": str(folder), "master": master, "ready": str(self.ready), "pipelines": pipelines, "fails": fails}
        (folder / "plan.json").write_text(json.dumps(plan))
        self.log = folder / "log"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, killed.__file__, str(folder / "plan.json")],
                start_new_session=True,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def wait_for(self, paths):
        """Wait until all of these are there; tells whether the process is still running."""

        def all_there():
            return all(Path(path).exists() for path in paths)

        wait_until(lambda: all_there() or self.process.poll() is not None, self.end_of_log)
        return all_there()

    def end_of_log(self):
        return self.log.read_text()[-5_000:]

    def kill(self):
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.mark.long
def test_killed_at_the_worst_moments(spark, source, in_peace, tmp_path):
    """Between the state and Spark's note of it, and between the answers and the state; then at random, twice."""
    aims = {
        "after": {"stop": "after version", "at": 3},
        "before": {"stop": "before version", "at": 4},
        "broken": {"stop": "after version", "at": 3, "broken": True},
    }
    plans = {
        name: aim | {"config": new_config(source, tmp_path / name), "marker": str(tmp_path / f"{name} marker")}
        for name, aim in aims.items()
    }
    with Process(tmp_path / "first", list(plans.values())) as process:
        assert process.wait_for([plan["marker"] for plan in plans.values()]), process.end_of_log()
    for name in ("after", "before"):
        checkpoint = plans[name]["config"]["run"]["checkpoint"]
        state = StateVersions(f"{checkpoint}/state")
        assert state.batches()[-1] == 3
        assert not Path(f"{checkpoint}/spark/commits/{'3' if name == 'after' else '4'}").exists()
    sound = [{"config": plans[name]["config"]} for name in ("after", "before")]
    dice = random.Random(7)
    for number in range(2):
        with Process(tmp_path / f"random {number}", sound) as process:
            if process.wait_for([process.ready]):
                time.sleep(dice.uniform(0.5, 4))
    for plan in sound:
        run(spark, plan["config"])
        assert_same(everything(plan["config"]), in_peace)
    # What everybody writes first fails here; else this test would prove nothing.
    config = plans["broken"]["config"]
    killed.prepared({"config": config, "broken": True}).run(spark)
    counted = sum(row["counted"] for row in in_peace["runs"])
    assert (
        sum(row["counted"] for row in table(config, "runs")) != counted or everything(config)["answers"] != in_peace["answers"]
    )
    last = [row["value"] for row in table(config, "answers") if row["query"] == "n"]
    truth = [row["value"] for row in in_peace["answers"] if row["query"] == "n"]
    assert max(last) > max(truth)  # rows that were counted twice


def assert_same(tables, expected):
    for name, rows in expected.items():
        assert len(tables[name]) == len(rows), name
        for row, expected_row in zip(tables[name], rows, strict=True):
            assert row == expected_row, name


@pytest.mark.long
def test_tasks_that_fail_once_are_run_again(source, in_peace, tmp_path):
    config = new_config(source, tmp_path / "it")
    fails = tmp_path / "fails"
    with Process(tmp_path / "process", [{"config": config}], master="local[2,2]", fails=str(fails)) as process:
        assert process.process.wait(timeout=PATIENCE) == 0, process.end_of_log()
    assert len(list(fails.iterdir())) == 2 * len(killed.FAILING)
    assert_same(everything(config), in_peace)


@pytest.mark.slow
def test_killed_at_random_again_and_again(spark, source, in_peace, tmp_path):
    dice = random.Random(11)
    config = new_config(source, tmp_path / "it")
    for number in range(20):
        with Process(tmp_path / f"run {number}", [{"config": config}]) as process:
            if process.wait_for([process.ready]):
                time.sleep(dice.uniform(0.2, 5))
    run(spark, config)
    assert_same(everything(config), in_peace)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["after version", "before version"])
def test_killed_in_every_batch(spark, source, in_peace, tmp_path, moment):
    config = new_config(source, tmp_path / "it")
    for batch in range(BATCHES):
        marker = str(tmp_path / f"marker {batch}")
        with Process(tmp_path / f"run {batch}", [{"config": config, "stop": moment, "at": batch, "marker": marker}]) as process:
            process.wait_for([marker])
    run(spark, config)
    assert_same(everything(config), in_peace)
