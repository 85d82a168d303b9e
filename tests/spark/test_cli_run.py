"""``lately run``: what it prints, how it refuses, and that Ctrl-C loses nothing."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE
from rich.console import Console
from typer.testing import CliRunner

from lately import cli, text_tables
from lately.cli import console
from lately.pipeline.batch_report import BatchReport
from lately.spark.console import RunProgress, alert_lines
from lately.store import Store, tables
from lately.store.tables import Alert, Answer

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


#: Every warning is an error, but for the connections that PySpark 4.1 leaves to the garbage collector.
STRICT = ("-W", "error", "-W", "ignore:unclosed <socket.socket:ResourceWarning")


def started(*args, **options):
    command = [sys.executable, *STRICT, "-m", "lately", "run", *(str(arg) for arg in args)]
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
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert re.fullmatch(r"shop: batch 0, 600 rows \([\d,]+ rows/s\), 0 late, 0 rejected, 2 sites, .+\n", err)
    document = json_of(out)
    assert {row["time"] for row in (*document["batches"], *document["answers"])} == {"2026-01-01T00:09:59Z"}
    assert (document["stopped"], document["notes"], document["alerts"]) == (False, [], [])
    assert {name: document["totals"][name] for name in ("batches", "rows", "counted")} == {
        "batches": 1,
        "rows": 600,
        "counted": 600,
    }
    assert [(row["site"], row["value"]) for row in document["answers"] if row["query"] == "rows"] == [
        ("lima", 200),
        ("paris", 400),
    ]
    hot = next(row for row in document["answers"] if row["query"] == "hot")
    assert hot["item"] == "/hot"
    assert hot["low"] <= 300 <= hot["high"]


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


def test_alerts_are_told_as_they_come_and_reasons_are_counted(spark, shop, tmp_path):
    flood = '[[monitors]]\nname = "flood"\nkind = "count"\nkey = "/hot"\nabove = 100\n'
    for number, age in ((2, 0), (3, 5000)):  # a file with rows that cannot be counted, and one of late rows
        add_events(tmp_path, number)
        file = tmp_path / "events" / f"{number}.parquet"
        table = pq.read_table(file)
        sites = pa.array([None if i < 7 and not age else site for i, site in enumerate(table["site"].to_pylist())])
        times = pa.array(table["ts"].cast(pa.int64()).to_numpy() - age * 10**6, pa.timestamp("us", "UTC"))
        pq.write_table(table.set_column(2, "site", sites).set_column(0, "ts", times), file)
        os.utime(file, (2**30 + number, 2**30 + number))
    result = run(shop(more=flood), "--json")
    assert result.exit_code == 0, result.output
    document = json_of(result.stdout)
    firing = [line for line in result.stderr.splitlines() if line.startswith("alert firing: ")]
    assert re.fullmatch(r"alert firing: 2026-01-01 00:\d\d:59 flood: [\d,.]+ \(.+ … .+\)", firing[0]), result.stderr
    assert document["alerts"][0]["state"] == "firing"
    assert (document["totals"]["rejected"], document["totals"]["late"]) == (7, 300)
    (stored,) = {row["reason"] for row in Store(str(tmp_path / "store")).read("rejected").to_pylist()}
    assert document["reasons"] == [{"reason": stored, "rows": 7}]


def test_every_table_can_be_read_right_after_the_first_batch(spark, shop, tmp_path):
    """There was no alert and no row was late or rejected, and no sketches are stored: those tables are empty."""
    assert run(shop("batch"), "--quiet").exit_code == 0
    store = Store(str(tmp_path / "store"))
    for table in tables():
        expected, folder = store.read(table), f"{store.path}/{table}"
        dataset = ds.dataset(folder).to_table()
        assert (dataset.schema, dataset.num_rows) == (expected.schema, expected.num_rows)
        frame = pd.read_parquet(folder)
        assert (list(frame.columns), len(frame)) == (expected.schema.names, expected.num_rows)
        rows = spark.read.parquet(folder)
        assert (rows.columns, rows.count()) == (expected.schema.names, expected.num_rows)
    assert store.read("alerts").num_rows == store.read("late").num_rows == store.read("rejected").num_rows == 0
    assert store.read("answers").num_rows > 0


def test_on_a_terminal_it_can_be_watched(spark, shop, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen, width=120, force_terminal=True, color_system=None))
    result = run(shop("batch"), "--json")
    assert result.exit_code == 0, result.output
    assert "waiting for the first batch" in screen.getvalue()
    assert json_of(result.stdout)["totals"]["rows"] == 600


def test_check_explains_and_runs_nothing(spark, shop, tmp_path, monkeypatch):
    path = shop()
    document = json_of(run(path, "--check", "--json", "--arrivals", "5000").stdout)
    assert (document["name"], document["arrivals"], document["sql_checked"]) == ("shop", 5000, True)
    result = run(path, "--check", "--arrivals", "5000", "--master", "spark://far:7077")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for words in (
        "no mistakes found",
        "TopK(eps=0.01, delta=0.01)",
        "5,000 arrivals",
        "within 1% of the rows in the range, 99% sure",
    ):
        assert words in result.stdout
    assert "spark://far:7077" in result.stdout
    numbers = set(re.findall(r"\d[\d,.]* (?:B|KiB|MiB)", result.stdout))
    for width in (60, 80):
        narrow = Console(width=width, file=io.StringIO(), color_system=None)
        monkeypatch.setattr(console, "out", narrow)
        run(path, "--check", "--arrivals", "5000")
        assert numbers <= set(re.findall(r"\d[\d,.]* (?:B|KiB|MiB)", narrow.file.getvalue()))
        assert "…" not in narrow.file.getvalue()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["events", "shop.toml"]


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
    assert_refused(run(path), f'{path}:13: columns.key = "uri": the source has no column "uri"; did you mean url?')
    path.write_text(text.replace('path = "' + str(path.parent) + '/store"', 'path = "/proc/store"'))
    assert_refused(run(path), "/proc/store")


@pytest.mark.parametrize("mode", ["batch", "available-now"])
def test_what_fails_while_it_runs_is_told_in_one_line(spark, shop, tmp_path, mode):
    path = shop(mode)
    (tmp_path / "events" / "1.parquet").write_bytes(b"not a Parquet file")
    os.utime(tmp_path / "events" / "1.parquet", (2**30 + 1, 2**30 + 1))
    result = run(path)
    assert result.exit_code == 1
    failed = r"lately: (?:the run|batch 1) failed: .*/events/1\.parquet is not a Parquet file.*; Spark's output is in (\S+)"
    (log,) = re.findall(rf"(?m)^{failed}$", result.stderr)
    assert "org.apache.spark" in Path(log).read_text()
    os.unlink(log)


def test_check_finds_all_that_spark_would_refuse_with_their_lines(spark, shop, tmp_path):
    path = shop()
    good = path.read_text()
    bad = good.replace('key = "url"', 'key = "uri"').replace('time = "ts"', 'time = "ts +"').replace("k = 2", 'where = "ms"')
    path.write_text(bad)
    for options in ([], ["--json"]):
        result = run(path, "--check", *options)
        assert_refused(result, f"{path}:12: ", f"{path}:13: ", f"{path}:22: ", lines=3)
        assert 'queries[0].where = "ms" of the query "hot": it is of type double; a filter is true or false' in result.stderr
    path.write_text(bad.replace("/events", "/nowhere").replace('mode = "available-now"', 'mode = "batch"'))
    assert_refused(
        run(path, "--check"), f"{path}:6: ", "there is nothing at this path", f"{path}:12: ", f"{path}:22: ", lines=4
    )
    path.write_text(good.replace('format = "parquet"', 'format = "delta"'))
    assert_refused(run(path, "--check"), f"{path}:5: ", "io.delta:delta-spark_")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["events", "shop.toml"]


def test_check_starts_a_session_of_its_own(shop):
    path = shop()
    path.write_text(path.read_text().replace('key = "url"', 'key = "uri"'))
    process = started(path, "--check", "--master", "spark://nowhere:7077")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert err == (
        f'lately: {path}:13: columns.key = "uri": the source has no column "uri"; did you mean url? '
        "Its columns are ts, url, site, ms\n"
    )


def test_packages_that_do_not_exist_are_named(shop, tmp_path):
    (tmp_path / "settings.xml").write_text(
        f"<ivysettings><settings defaultResolver='none'/><caches defaultCacheDir='{tmp_path}/ivy'/><resolvers>"
        f"<filesystem name='none'><artifact pattern='{tmp_path}/none/[artifact]-[revision].jar'/></filesystem>"
        "</resolvers></ivysettings>"
    )
    path = shop("batch")
    settings = {"spark.jars.packages": "org.example:connector:9.9.9", "spark.jars.ivySettings": tmp_path / "settings.xml"}
    settings["spark.jars.ivy"] = tmp_path / "ivy"
    path.write_text(path.read_text() + "[run.spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in settings.items()))
    process = started(path, "--check")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "{" in out) == (1, False)
    assert re.search(
        r"(?m)^lately: Spark cannot start: spark\.jars\.packages asks for org\.example:connector:9\.9\.9, .+$", err
    )


def test_without_spark_it_says_what_to_install(shop):
    code = f"import sys; sys.modules['pyspark'] = None; sys.argv[1:] = ['run', {str(shop())!r}]\n"
    code += "from lately.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
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
        out, rest = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, json_of(out), "".join([*heard, rest])


def test_ctrl_c_stops_after_the_batch_and_the_next_run_goes_on(tmp_path):
    path = tmp_path / "rate.toml"
    path.write_text(RATE.format(folder=tmp_path))
    counted = 0
    for _ in range(2):
        code, out, err = interrupted(path)
        assert code == 130, err
        assert f"lately: stopped; the state is kept in {tmp_path}/state" in err
        assert "Traceback" not in err
        assert out["stopped"]
        counted += out["totals"]["counted"]
        assert out["answers"][-1]["value"] == counted  # nothing is lost, nothing counts twice
    runs = Store(str(tmp_path / "store")).read("runs")
    assert runs["batch"].to_pylist() == list(range(runs.num_rows))
    assert sum(runs["counted"].to_pylist()) == counted


#: So much work for each row that a batch of a few rows takes minutes.
SLOW = 'where = "aggregate(sequence(1, 2000000), 0L, (sum, x) -> sum + x) > 0"'


def wait_for(condition, process):
    deadline = time.monotonic() + 600
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stopped_when(condition, path, *options, number=signal.SIGINT, times=1):
    """Send a signal to all processes, as a terminal does, once something is so; returns the exit code and what was said."""
    process = started(path, "--master", "local[2]", *options, start_new_session=True)
    try:
        wait_for(lambda: condition(process), process)
        for _ in range(times):
            assert process.poll() is None, process.communicate()
            os.killpg(process.pid, number)
            time.sleep(1)
        out, err = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in err
    assert "Exception" not in err
    return process.returncode, out, err


def runs_java(process):
    """Whether Java has been started, long before it has started Spark."""
    return any(child.name() == "java" for child in psutil.Process(process.pid).children(recursive=True))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("options", [[], ["--check"]], ids=["run", "check"])
def test_a_signal_while_spark_starts_does_not_wait_for_it(number, code, options, shop, tmp_path):
    path = shop()
    exit_code, out, err = stopped_when(runs_java, path, *options, number=number)
    assert exit_code == code, err
    if options:
        assert (out, err) == ("", "lately: stopped before the check was done\n")
    else:
        assert out.startswith("stopped before the first batch was done; answers are in ")
        assert re.fullmatch(
            r"lately: stopped before the first batch was done; the state is kept in .+; the next run goes on\n", err
        )
    assert sorted(one.name for one in tmp_path.iterdir()) == ["events", "shop.toml"]  # it had not begun


#: A Java that never gets to the end of its start, as far as this process can tell.
ENDLESS = """
import sys, time
from lately.spark import runner
def session(*args, **settings):
    print("starting", flush=True)
    time.sleep(3600)
runner.session = session
sys.argv[1:] = ["run", sys.argv[1]]
from lately.cli import main
main()
"""


def test_ctrl_c_ends_a_start_that_would_never_end(shop):
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(shop())], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "starting\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert (process.returncode, err.count("\n")) == (130, 1)
    assert out.startswith("stopped before the first batch was done")


def test_ctrl_c_before_the_first_batch_says_so(shop, tmp_path):
    path = shop("continuous")
    shutil.rmtree(tmp_path / "events")
    (tmp_path / "events").mkdir()  # nothing will ever come
    code, out, err = stopped_when(lambda _: (tmp_path / "state" / "spark" / "metadata").exists(), path)
    assert code == 130, err
    assert err.startswith("lately: stopped before the first batch was done; the state is kept in ")
    assert "no new rows" not in out


def test_ctrl_c_in_the_middle_of_a_batch_that_is_all_there_is(shop, tmp_path):
    code, out, err = stopped_when(lambda _: (tmp_path / "store" / "about.json").exists(), shop("batch", SLOW))
    assert (code, err) == (130, "lately: stopped before the first batch was done; nothing is kept\n")
    assert out.startswith("stopped before the first batch was done; ")


def test_the_second_ctrl_c_gives_up_the_batch_in_one_line(shop, tmp_path):
    path = shop("available-now", SLOW)
    code, out, err = stopped_when(lambda _: (tmp_path / "store" / "owner").exists(), path, times=2)
    words = "lately: stopped at once; a batch that was running is given up, and the next run does it again\n"
    assert (code, out, err) == (130, "", words)
    assert Store(str(tmp_path / "store")).read("runs").num_rows == 0


# -- a run, as it is shown ---------------------------------------------------------------------------------------------


def done(batch=0, **changes):
    time = datetime(2026, 1, 1, tzinfo=UTC)
    answer = Answer(time, batch, "q", value=2.0, low=-float("inf"), high=float("inf"), confidence=0.9)
    fields = {"batch": batch, "time": time, "rows": 10, "counted": 8, "late": 1, "rejected": 1}
    fields |= {"sites": 2, "seconds": 0.5, "state_bytes": 2048, "answers": [answer], "alerts": []}
    return BatchReport(**fields | changes)


def test_what_is_shown_of_a_run_so_far():
    progress = RunProgress("shop", continuous=True)
    assert progress.progress_line() == "shop: no rows yet"
    assert (progress.summary(), progress.summary(stopped=True)) == ("no new rows", "stopped before the first batch was done")
    for batch in range(3):
        progress.add(done(batch, alerts=[Alert(None, batch, "m", confidence=0.9)]))
    assert progress.totals["rows"] == 30
    later = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=90)
    assert progress.progress_line(later).endswith("2 sites, state 2.0 KiB, up to 2026-01-01 00:00:00, 90 s behind the clock")
    screen = Console(width=150, file=io.StringIO(), color_system=None)
    screen.print(progress.live_view(later, ["query 'x' is new"]), *progress.tables())
    shown = screen.file.getvalue()
    for words in ("note: query 'x' is new", "30 rows", "20 rows/s", "3 alerts", "-∞ … ∞", "firing"):
        assert words in shown
    document = progress.as_dict([], stopped=True)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["answers"][0]["high"] is None
    assert "behind" not in RunProgress("x", continuous=False).progress_line(later)


def test_exact_answers_have_all_digits_and_long_items_are_folded():
    progress = RunProgress("shop", continuous=False)
    items = [f"/a/long/path/of/which/only/the/end/differs/{end}" for end in ("one", "two")]
    exact = replace(done().answers[0], value=1234567.890625, low=1234567.890625, high=1234567.890625, confidence=1.0)
    close = replace(exact, query="avg", value=5482.75121, low=5482.7511, high=5482.7513, confidence=0.9)
    progress.add(done(answers=[replace(exact, item=item) for item in items] + [close]))
    for width in (60, 80, 200):
        screen = Console(width=width, file=io.StringIO(), color_system=None)
        text_tables.show(screen, *progress.tables())
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in screen.file.getvalue().splitlines() if "│" in line]
        assert [row[3] for row in rows if row[3]] == ["1,234,567.890625", "1,234,567.890625", "5,482.75121"]
        assert "5,482.7511 … 5,482.7513" in [row[4] for row in rows]
        assert "".join(row[2] for row in rows) == "".join(items) + "–"


def test_an_alert_is_a_line_with_its_state_time_monitor_item_and_value():
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    alert = Alert(moment, 3, "flood", value=1200.5, low=1100.0, high=1300.0, confidence=0.9)
    other = replace(alert, item="/\x1b[2J", state="resolved", value=7.0, low=None, high=None)
    assert alert_lines(done(alerts=[alert, other])) == [
        "alert firing: 2026-01-01 12:00:00 flood: 1,200.5 (1,100 … 1,300)",
        "alert resolved: 2026-01-01 12:00:00 flood /\\x1b[2J: 7 (-∞ … ∞)",
    ]
    many = alert_lines(done(alerts=[alert] * 50))
    assert (len(many), many[-1]) == (21, "… 30 more alerts; see lately query alerts")
    progress = RunProgress("shop", continuous=True)
    progress.add(done(alerts=[alert, other]))
    assert [row["state"] for row in progress.as_dict([], stopped=False)["alerts"]] == ["firing", "resolved"]


def test_the_most_frequent_reasons_are_told_and_they_stay_few():
    progress = RunProgress("shop", continuous=True)
    assert progress.uncounted_lines("store") == []
    for batch in range(3):
        progress.add(done(batch, late=2, rejected=40, reasons={"no key": 20, "no time": 10, f"bad row {batch}": 10}))
    late, rejected = progress.uncounted_lines("store")
    assert late == "6 late: older than the lateness of the window allows; see lately query late --store store"
    counts = "60 no key, 30 no time, 10 bad row 0, 10 bad row 1, 10 bad row 2"
    assert rejected == f"120 rejected: {counts}; see lately query rejected --store store"
    progress.add(done(3, late=0, rejected=2000, reasons={f"row {number}": 1 for number in range(2000)}))
    assert progress.uncounted_lines("store")[1].endswith("10 bad row 2, 2,000 others; see lately query rejected --store store")
    assert len(progress.reasons) == 1000
    assert progress.as_dict([], stopped=False)["reasons"][0] == {"reason": "no key", "rows": 60}


def test_a_run_of_years_is_remembered_in_part():
    progress = RunProgress("shop", continuous=False)
    for batch in range(1500):
        progress.add(done(batch, answers=[]))
    assert (progress.totals["batches"], len(progress.batches), progress.batches[-1]["batch"]) == (1500, 1000, 1499)


def test_many_answers_are_cut_in_the_table_only():
    progress = RunProgress("shop", continuous=False)
    row = done().answers[0]
    progress.add(done(answers=[replace(row, item=str(i)) for i in range(50)]))
    screen = Console(width=150, file=io.StringIO(), color_system=None)
    screen.print(*progress.tables())
    assert "… 30 more" in screen.file.getvalue()
    assert len(progress.as_dict([], stopped=False)["answers"]) == 50
