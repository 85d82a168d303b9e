"""A run that sleeps while another one goes on: when it wakes up it stops, and everything is as the other one left it.

One process (A) runs many pipelines, each stopped at a moment of its own; then all of it is put to sleep (SIGSTOP). B, in this
process, runs the same pipelines to their ends. Then A wakes up (SIGCONT).
"""

import json
import os
import re
import shutil
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest
from patience import wait_until
from pipelines import WALL_CLOCK, content, events, in_order, run, shuffled, table, write_files
from test_kill import Process, assert_same

from lately.core.errors import LeaseError

pytestmark = pytest.mark.long

#: One more than the versions that are kept, so that batch 0 is none of them in the end.
BATCHES = 4
TABLES = ("answers", "alerts", "late", "rejected", "runs", "sketches")
QUERIES = [
    {"name": "top", "kind": "top", "k": 5, "last": "5m"},
    {"name": "n", "kind": "exact", "aggregate": "count"},
]
MONITORS = [{"name": "rush", "kind": "count", "key": 0, "above": 60, "last": "1m", "theta": 0.2}]
#: The moment, the batch, and what is there to protect the results: where it is "versions", the lease is removed.
AIMS = [
    ("logged", 0, "lease"),
    ("cleared", 1, "lease"),
    ("before version", 0, "lease"),
    ("after version", 1, "lease"),
    ("logged", 0, "versions"),
    ("before version", 1, "versions"),
]


@dataclass
class Sleeper:
    """A pipeline of A: what its file says, where it stops, and what was found once A had woken up."""

    config: dict
    marker: Path
    outcome: Path
    left: dict | None = None
    error: list | None = None

    @property
    def folder(self):
        return Path(self.config["run"]["checkpoint"])


def everything(config):
    return {name: in_order(table(config, name), leave=WALL_CLOCK) for name in TABLES}


def on_disk(sleeper):
    """All files of the store and the versions of the state, byte by byte, without what is nobody's."""
    files = [*Path(sleeper.config["store"]["path"]).rglob("*"), *sleeper.folder.glob("state/*.json")]
    return {str(path): path.read_bytes() for path in files if path.is_file() and path.parent.name != ".lease"}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    rows = shuffled(events(2_000, minutes=8), 12)
    site = rows["site"].to_pylist()
    site[::97] = [None] * len(site[::97])
    return write_files(rows.set_column(2, "site", [site]), tmp_path_factory.mktemp("overtaken") / "source", BATCHES)


def new_config(source, folder, lease="1s", mode="available-now"):
    window = {"length": "5m", "lateness": "5s"}
    monitors = [] if mode == "batch" else MONITORS
    config = content(source, folder, mode, name=folder.name, queries=QUERIES, monitors=monitors, window=window)
    config["run"]["lease"] = lease
    return config


@pytest.fixture(scope="module")
def in_peace(spark, source, tmp_path_factory):
    config = new_config(source, tmp_path_factory.mktemp("peace"))
    assert run(spark, config).run(spark) == 0  # nothing is new
    tables = everything(config)
    assert len(tables["runs"]) == BATCHES
    assert all(tables.values())
    return tables


@pytest.fixture(scope="module")
def night(spark, source, in_peace, tmp_path_factory):
    """All sleepers after A woke up, and what B was told when it came while A was awake."""
    folder = tmp_path_factory.mktemp("night")
    sleepers, plans = {}, []

    def add(name, stop, at, **how):
        key = f"{len(plans)}"
        sleeper = Sleeper(new_config(source, folder / key, **how), folder / f"{key} marker", folder / f"{key} outcome")
        sleepers[name] = sleeper
        plans.append(
            {"config": sleeper.config, "stop": stop, "at": at, "marker": str(sleeper.marker), "outcome": str(sleeper.outcome)}
        )

    for moment, at, layer in AIMS:
        add((moment, at, layer), moment, at)
    add("batch", "before version", 0, mode="batch")
    add("awake", "before version", 1, lease="1h")
    awake = sleepers.pop("awake")
    with Process(folder / "A", plans) as process:
        assert process.wait_for([plan["marker"] for plan in plans]), process.end_of_log()
        with pytest.raises(LeaseError) as refused:
            run(spark, awake.config)
        os.killpg(process.process.pid, signal.SIGSTOP)
        for name, sleeper in sleepers.items():
            overtake(spark, sleeper, process)
            if name[-1] == "versions":
                shutil.rmtree(sleeper.folder / "lease")
            sleeper.left = on_disk(sleeper)
            Path(f"{sleeper.marker} go").touch()
        os.killpg(process.process.pid, signal.SIGCONT)
        wait_until(lambda: all(sleeper.outcome.exists() for sleeper in sleepers.values()), process.end_of_log)
        for sleeper in sleepers.values():
            sleeper.error = json.loads(sleeper.outcome.read_text())
        pid = process.process.pid
    # A was killed now, with its lease of an hour; who comes next does not wait for that.
    run(spark, awake.config)
    return sleepers, (awake, pid, str(refused.value))


def overtake(spark, sleeper, process):
    """Run it to its end as soon as the lease of A has expired."""

    def taken_over():
        try:
            run(spark, sleeper.config)
            return True
        except LeaseError:
            return False

    wait_until(taken_over, process.end_of_log)


@pytest.mark.parametrize(("moment", "at", "layer"), AIMS)
def test_a_run_that_wakes_up_stops_and_changes_nothing(spark, night, in_peace, moment, at, layer):
    sleeper = night[0][moment, at, layer]
    kind, text = sleeper.error
    assert kind == "LeaseError", text
    if layer == "lease":
        assert "has taken over while this one" in text
        assert f"process {os.getpid()} on {socket.gethostname()}" in text
    else:
        assert f"another run has continued to batch {BATCHES - 1} of the state" in text
        assert f"while this one was at batch {at}." in text
    assert on_disk(sleeper) == sleeper.left
    assert_same(everything(sleeper.config), in_peace)
    assert run(spark, sleeper.config)._count == 0  # nothing is new
    assert_same(everything(sleeper.config), in_peace)


def test_a_batch_that_wakes_up_stops_and_changes_nothing(night):
    sleeper = night[0]["batch"]
    kind, text = sleeper.error
    assert kind == "LeaseError", text
    assert "has taken over while this one" in text
    assert on_disk(sleeper) == sleeper.left
    assert len(table(sleeper.config, "runs")) == 1


def test_a_second_run_is_refused_with_who_holds_it_since_when_and_until_when(night):
    awake, pid, text = night[1]
    assert f"another run holds the lease in '{awake.folder}/lease': process {pid} on {socket.gethostname()}" in text
    holder = json.loads(sorted((awake.folder / "lease").glob("*.json"))[-1].read_text())
    assert holder["released"]  # by the run after it
    assert ", since 20" in text
    assert 0 < int(re.search(r"its lease expires in (\d+) s", text)[1]) <= 3600


def test_a_run_after_one_that_was_killed_does_not_wait_for_its_lease(night, in_peace):
    assert_same(everything(night[1][0].config), in_peace)
