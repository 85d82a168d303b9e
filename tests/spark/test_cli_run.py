"""``lately run``: what it prints, how it refuses, and that Ctrl-C loses nothing."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from lately import cli
from lately.cli import shown
from lately.spark import runner
from lately.spark.pipeline import Done
from lately.spark.runner import plainly
from lately.spark.shown import Watched
from lately.store import Store

pytestmark = pytest.mark.usefixtures("wide_and_plain")

START = np.datetime64("2026-01-01T00:00:00", "us")
PIPELINE = """
name = "shop"

[source]
format = "parquet"
path = "{folder}/events"
mode = "{mode}"
columns = "ts timestamp, url string, site string, ms double"
options = {{ maxFilesPerTrigger = 1 }}

[columns]
time = "ts"
key = "url"
site = "site"

[window]
length = "1h"

[[queries]]
name = "hot"
kind = "top"
k = 2

[[queries]]
name = "rows"
kind = "exact"
aggregate = "count"
by = "site"
{more}

[store]
path = "{folder}/store"

[run]
checkpoint = "{folder}/state"
"""


def add_events(folder, number, rows=300):
    (folder / "events").mkdir(exist_ok=True)
    steps = np.arange(number * rows, (number + 1) * rows)
    table = {
        "ts": pa.array(START + steps * np.timedelta64(1, "s"), pa.timestamp("us", "UTC")),
        "url": pa.array([f"/{step % 3}" if step % 2 else "/hot" for step in steps.tolist()]),
        "site": pa.array([("paris", "lima")[step % 3 == 0] for step in steps.tolist()]),
        "ms": steps % 100 / 1.0,
    }
    path = folder / "events" / f"{number}.parquet"
    pq.write_table(pa.table(table), path)
    os.utime(path, (2**30 + number, 2**30 + number))  # Spark takes the oldest first


@pytest.fixture
def shop(tmp_path):
    for number in range(2):
        add_events(tmp_path, number)

    def write(mode="available-now", more=""):
        path = tmp_path / "shop.toml"
        path.write_text(PIPELINE.format(folder=tmp_path, mode=mode, more=more))
        return path

    return write


def run(*args):
    return CliRunner().invoke(cli.app, ["run", *(str(arg) for arg in args)])


def started(*args, **options):
    command = [sys.executable, "-W", "error", "-m", "lately.cli", "run", *(str(arg) for arg in args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def json_of(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def assert_refused(result, *names, lines=1):
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert re.fullmatch(rf"(?:lately: .+\n){{{lines}}}", result.stderr), result.stderr
    for name in names:
        assert str(name) in result.stderr


# -- what it says ------------------------------------------------------------------------------------------------------


def test_a_batch_in_a_process_of_its_own(shop):
    process = started(shop("batch"), "--json", "--master", "local[2]")
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert re.fullmatch(r"shop: batch 0, 600 rows \([\d,]+ rows/s\), 0 late, 0 rejected, 2 sites, .+\n", err)
    said = json_of(out)
    assert (said["stopped"], said["notes"], said["alerts"]) == (False, [], [])
    assert {name: said["totals"][name] for name in ("batches", "rows", "counted")} == {
        "batches": 1,
        "rows": 600,
        "counted": 600,
    }
    assert [(row["site"], row["value"]) for row in said["answers"] if row["query"] == "rows"] == [("lima", 200), ("paris", 400)]
    assert said["answers"][-2]["item"] == "/hot"
    assert said["answers"][-2]["low"] <= 300 <= said["answers"][-2]["high"]


def test_a_stream_ends_with_its_answers_and_goes_on_with_what_is_new(spark, shop, tmp_path):
    path = shop()
    first = run(path)
    assert first.exit_code == 0, first.output
    assert re.findall(r"shop: batch (\d), 300 rows", first.stderr) == ["0", "1"]
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in first.stdout.splitlines() if "│" in line]
    assert ["rows", "lima", "–", "200", "exact", ""] in rows
    assert [row[:3] for row in rows if row[0] == "hot"][:1] == [["hot", "all", "/hot"]]
    assert "2 batches, 600 rows: 600 counted, 0 late, 0 rejected" in first.stdout
    again = run(path, "--json")
    assert (json_of(again.stdout)["totals"]["batches"], again.stderr) == (0, "")
    assert run(path).stdout.startswith("no new rows; answers are in ")
    add_events(tmp_path, 2)
    other = shop(more='[[queries]]\nname = "new"\nkind = "counts"\nkeys = ["/hot"]\n')
    third = run(other)
    assert third.exit_code == 0, third.output
    assert third.stderr.splitlines()[0] == "note: query 'new' is new and counts from now on"
    assert "batch 2, 300 rows" in third.stderr
    assert "│ rows  │ paris │ –    │   600 │" in third.stdout
    quiet = run(other, "--quiet")
    assert (quiet.exit_code, quiet.stderr) == (0, "")


def test_on_a_terminal_it_can_be_watched(spark, shop, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(shown, "err", Console(file=screen, width=120, force_terminal=True, color_system=None))
    result = run(shop("batch"), "--json")
    assert result.exit_code == 0, result.output
    assert "waiting for the first batch" in screen.getvalue()
    assert json_of(result.stdout)["totals"]["rows"] == 600


def test_check_explains_and_starts_nothing(shop, monkeypatch):
    monkeypatch.setattr(runner, "session", lambda *args, **settings: pytest.fail("Spark was started"))
    path = shop()
    said = json_of(run(path, "--check", "--json", "--arrivals", "5000").stdout)
    assert (said["name"], said["arrivals"]) == ("shop", 5000)
    result = run(path, "--check", "--arrivals", "5000", "--master", "spark://far:7077")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for words in (
        "nothing is wrong",
        "TopK(eps=0.01, delta=0.01)",
        "5,000 arrivals",
        "within 1% of the rows in the range, 99% sure",
    ):
        assert words in result.stdout
    assert "spark://far:7077" in result.stdout


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--check"], ["--json"]], ids=["run", "check", "json"])
def test_a_bad_file_is_refused_with_a_line_for_each_mistake(options, shop):
    path = shop()
    path.write_text(path.read_text().replace('kind = "top"', 'kind = "tpo"').replace('length = "1h"', 'lenth = "1h"'))
    assert_refused(run(path, *options), f"{path}:", "lenth", "tpo", lines=2)
    assert_refused(run(path.parent / "nowhere.toml", *options), "nowhere.toml", "no such file")


def test_what_spark_cannot_read_is_told_in_one_line(spark, shop):
    path = shop("batch")
    text = path.read_text()
    path.write_text(text.replace("/events", "/nowhere"))
    assert_refused(run(path), "nowhere")
    path.write_text(text.replace('key = "url"', 'key = "uri"'))
    assert_refused(run(path), "columns.key = 'uri'", "url")
    path.write_text(text.replace('path = "' + str(path.parent) + '/store"', 'path = "/proc/store"'))
    assert_refused(run(path), "/proc/store")


def test_what_fails_while_it_runs_is_told_in_one_line(spark, shop, tmp_path):
    result = run(shop("batch", more="where = \"if(ms > 50, raise_error('boom'), true)\""))
    assert_refused(result, "boom")
    (log,) = re.findall(r"what Spark said is in (\S+)", result.stderr)
    os.unlink(log)
    shutil.rmtree(tmp_path / "store")
    result = run(shop("available-now", more="where = \"if(ms > 50, raise_error('boom'), true)\""))
    assert_refused(result, "boom")
    for log in re.findall(r"what Spark said is in (\S+)", result.stderr):
        os.unlink(log)


def test_the_error_of_a_worker_is_found_in_what_spark_tells():
    text = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 3, in main
lately.core.errors.InputError: the state is gone; restore it

\tat org.apache.spark.api.python.BasePythonRunner
"""
    assert plainly(RuntimeError(text)) == "the state is gone; restore it"
    assert plainly(RuntimeError("[X] first\n\tat java")) == "RuntimeError: [X] first"
    assert plainly(RuntimeError()) == "RuntimeError: RuntimeError"


def test_without_spark_it_says_what_to_install(shop):
    code = f"import sys; sys.modules['pyspark'] = None; sys.argv[1:] = ['run', {str(shop())!r}]\n"
    code += "from lately.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"lately: .+ run pip install 'lately\[spark\]'\n", done.stderr)


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------

RATE = """
[source]
format = "rate"
mode = "continuous"
options = {{ rowsPerSecond = 40 }}

[columns]
time = "timestamp"
key = "value % 4"

[window]
length = "1h"

[[queries]]
name = "all"
kind = "exact"
aggregate = "count"

[store]
path = "{folder}/store"

[run]
checkpoint = "{folder}/state"
trigger = "500ms"
"""


def interrupted(path):
    """Press Ctrl-C, which a terminal sends to all processes, Java and its workers too, in the middle of a batch."""
    process = started(path, "--json", "--master", "local[2]", start_new_session=True)
    heard = []
    try:
        for line in process.stderr:
            heard.append(line)
            if re.search(r"batch \d+, [1-9]", line):
                os.killpg(process.pid, signal.SIGINT)
                break
        out, rest = process.communicate(timeout=240)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, json_of(out), "".join([*heard, rest])


def test_ctrl_c_stops_after_the_batch_and_the_next_run_goes_on(tmp_path):
    path = tmp_path / "rate.toml"
    path.write_text(RATE.format(folder=tmp_path))
    counted = 0
    for _ in range(2):
        code, said, err = interrupted(path)
        assert code == 130, err
        assert f"lately: stopped; the state is kept in {tmp_path}/state" in err
        assert "Traceback" not in err
        assert said["stopped"]
        counted += said["totals"]["counted"]
        assert said["answers"][-1]["value"] == counted  # nothing is lost, nothing counts twice
    runs = Store(str(tmp_path / "store")).read("runs")
    assert runs["batch"].to_pylist() == list(range(runs.num_rows))
    assert sum(runs["counted"].to_pylist()) == counted


# -- a run, as it is shown ---------------------------------------------------------------------------------------------


def done(batch=0, **changes):
    answer = {
        "query": "q",
        "site": None,
        "item": None,
        "value": 2.0,
        "low": -float("inf"),
        "high": float("inf"),
        "confidence": 0.9,
    }
    given = {"batch": batch, "time": datetime(2026, 1, 1, tzinfo=UTC), "rows": 10, "counted": 8, "late": 1, "rejected": 1}
    given |= {"sites": 2, "seconds": 0.5, "state_bytes": 2048, "answers": [answer], "alerts": []}
    return Done(**given | changes)


def test_what_is_shown_of_a_run_so_far():
    watched = Watched("shop", continuous=True)
    assert watched.line() == "shop: no rows yet"
    alert = {"monitor": "m", "item": None, "raised": True, "value": None, "low": None, "high": None, "confidence": 0.9}
    for batch in range(3):
        watched.take(done(batch, alerts=[alert | {"time": None, "batch": batch}]))
    assert watched.totals["rows"] == 30
    later = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=90)
    assert watched.line(later).endswith("2 sites, state 2.0 KiB, up to 2026-01-01 00:00:00, 90 s behind the clock")
    screen = Console(width=150, file=io.StringIO(), color_system=None)
    screen.print(watched.view(later, ["query 'x' is new"]), *watched.tables())
    shown = screen.file.getvalue()
    for words in ("note: query 'x' is new", "30 rows", "20 rows/s", "3 alerts", "-∞ … ∞", "raised"):
        assert words in shown
    said = watched.as_dict([], stopped=True)
    assert json.loads(json.dumps(said, allow_nan=False)) == said
    assert said["answers"][0]["high"] is None
    assert "behind" not in Watched("x", continuous=False).line(later)


def test_a_run_of_years_is_remembered_in_part():
    watched = Watched("shop", continuous=False)
    for batch in range(1500):
        watched.take(done(batch, answers=[]))
    assert (watched.totals["batches"], len(watched.batches), watched.batches[-1]["batch"]) == (1500, 1000, 1499)


def test_many_answers_are_cut_in_the_table_only():
    watched = Watched("shop", continuous=False)
    row = done().answers[0]
    watched.take(done(answers=[row | {"item": str(i)} for i in range(50)]))
    screen = Console(width=150, file=io.StringIO(), color_system=None)
    screen.print(*watched.tables())
    assert "… 30 more" in screen.file.getvalue()
    assert len(watched.as_dict([], stopped=False)["answers"]) == 50
