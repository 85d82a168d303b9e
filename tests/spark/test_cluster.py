"""A cluster of separate processes, a master and two workers on this machine, gives the answers that one process gives."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from patience import PATIENCE, wait_until
from pipelines import COLUMNS, events, write_files

import lately as lt
from lately.spark.java import ensure_java
from lately.store import Store

pytestmark = pytest.mark.long

SOURCE = Path(lt.__file__).parents[1]
BIN = Path(pyspark.__file__).parent / "bin"
PIPELINE = """
[source]
format = "parquet"
path = "{events}"
columns = "{columns}"
options = {{ maxFilesPerTrigger = 2 }}

[columns]
time = "ts"
key = "key"
site = "site"

[window]
length = "1h"

[[queries]]
name = "hot"
kind = "top"
k = 3

[[queries]]
name = "rows"
kind = "exact"
aggregate = "count"
by = "site"

[[monitors]]
name = "rush"
kind = "count"
key = 0
above = 1000

[store]
path = "{folder}/store"

[run]
checkpoint = "{folder}/state"
seed = 7

[run.spark]
"spark.executor.memory" = "512m"
"spark.driver.memory" = "512m"
"spark.driver.host" = "127.0.0.1"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.sql.shuffle.partitions" = 2
"""
#: What somebody hands to spark-submit; docs/cluster.md shows it.
SCRIPT = """
import sys
import lately as lt

pipeline = lt.Pipeline.from_file(sys.argv[1])
print("batches:", pipeline.run(on_batch=lambda report: print(report.batch, report.rows, report.state_bytes)))

from lately.spark import session, sketch_files
spark = session()
assert spark.sparkContext.master == sys.argv[2], spark.sparkContext.master
made = sketch_files(sys.argv[3], key="key", time="ts", by="site", window="1h", eps=0.01, delta=0.01).collect()
workers = spark.range(8).repartition(8).rdd.map(lambda row: __import__("os").getppid()).distinct().count()
print("sketched:", {row.site: lt.from_bytes(bytes(row.sketch)).total().value for row in made}, "daemons:", workers)
"""


class Processes:
    """Processes that end when the test does, each with all that it has started."""

    def __init__(self, folder, environment):
        self.folder, self.environment, self.running = folder, environment, []

    def start(self, name, *command):
        log = self.folder / f"{name}.log"
        with log.open("w") as sink:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        self.running.append(process)
        return log

    def finish(self):
        for process in reversed(self.running):
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(PATIENCE)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass


def wait_for(log, pattern):
    """What a pattern finds in a log, once it is there."""
    return wait_until(lambda: re.search(pattern, log.read_text()), lambda: log.read_text()[-3000:], pause=0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Where a master with two workers listens, and what plans that use it need to know."""
    ensure_java()
    folder = tmp_path_factory.mktemp("cluster")
    flags = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    ours = {"PYTHONPATH": str(SOURCE), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    ours |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": flags, "SPARK_DAEMON_MEMORY": "256m"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))} | ours
    processes = Processes(folder, environment)
    try:
        spark_class = (BIN / "spark-class", "org.apache.spark.deploy")
        where = ("--host", "127.0.0.1", "--webui-port", "0")
        master = processes.start("master", spark_class[0], f"{spark_class[1]}.master.Master", *where, "--port", "0")
        wait_for(master, "New state: ALIVE")
        address = wait_for(master, r"Starting Spark master at (spark://\S+)")[1]
        for number in range(2):
            words = (
                *where,
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                folder / f"work{number}",
                address,
            )
            worker = processes.start(f"worker{number}", spark_class[0], f"{spark_class[1]}.worker.Worker", *words)
            wait_for(worker, "Successfully registered with master")
        yield address, environment
    finally:
        processes.finish()


@pytest.fixture(scope="module")
def traffic(tmp_path_factory):
    return write_files(events(4000), tmp_path_factory.mktemp("traffic") / "events", 4)


def written(folder, traffic):
    folder.mkdir()
    path = folder / "pipeline.toml"
    path.write_text(PIPELINE.format(folder=folder, events=traffic, columns=COLUMNS))
    return path


def told_by(folder):
    """Answers and alerts, without what depends on when it ran."""
    store = Store(str(folder / "store"))
    order = ("batch", "query", "site", "item")
    answers = sorted(store.read("answers").to_pylist(), key=lambda row: [str(row[name]) for name in order])
    return answers, store.read("alerts").to_pylist()


def ran(command, environment):
    done = subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-1000:]
    return done


def test_a_cluster_answers_as_one_process_does(spark, cluster, traffic, tmp_path):
    master, environment = cluster
    local, submitted, commanded = (tmp_path / name for name in ("local", "submitted", "commanded"))
    assert lt.Pipeline.from_file(written(local, traffic)).run(spark) == 2
    expected = told_by(local)
    assert len(expected[0]) >= 10

    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    flags = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {"executor.memory": "512m", "driver.memory": "512m", "ui.enabled": "false"}
    settings |= {"driver.extraJavaOptions": flags, "executor.extraJavaOptions": flags, "sql.shuffle.partitions": "2"}
    # Tasks wait for both workers, else the first one may have done everything before the second one has started.
    settings |= {"scheduler.minRegisteredResourcesRatio": "1.0"}
    settings |= {"scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE}s"}
    options = [word for name, value in settings.items() for word in ("--conf", f"spark.{name}={value}")]
    done = ran(
        [BIN / "spark-submit", "--master", master, *options, script, written(submitted, traffic), master, traffic], environment
    )
    assert "batches: 2" in done.stdout
    assert "'lima':" in done.stdout
    counts = json.loads(re.search(r"sketched: (\{.*\})", done.stdout)[1].replace("'", '"'))
    rows = {row["site"]: row["value"] for row in expected[0] if row["query"] == "rows" and row["batch"] == 1}
    assert counts == rows
    assert "daemons: 2" in done.stdout  # both workers took part
    assert told_by(submitted) == expected

    done = ran([sys.executable, "-m", "lately", "run", written(commanded, traffic), "--master", master, "--json"], environment)
    assert json.loads(done.stdout)["totals"]["rows"] == 4000
    assert told_by(commanded) == expected
