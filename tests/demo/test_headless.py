"""The whole demo: run by itself for half a minute, and stopped with Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from cli_cases import run
from patience import PATIENCE

from lately.demo.display import sentences, summary
from lately.demo.pipeline_file import FLOOD

pytestmark = pytest.mark.usefixtures("wide_and_plain")

COMMAND = [sys.executable, "-m", "lately", "demo"]


@pytest.fixture(scope="module")
def headless(tmp_path_factory):
    """The demo as a script runs it, once for all tests."""
    folder = tmp_path_factory.mktemp("demo") / "kept"
    command = [*COMMAND, "--headless", "--seconds", "28", "--json", "--keep", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder, json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON")), done.stderr


def test_it_keeps_its_bounds(headless):
    _, found, _ = headless
    answers = found["answers"]
    assert found["ok"]
    assert answers["checked"] > 100
    assert answers["misses"] <= answers["allowed_misses"]
    assert {row["query"] for row in found["last"]} >= {"hot pages", "latency", "funnel", "skew", "seen and bought", "requests"}
    exact = [row for row in found["last"] if row["query"].startswith("requests")]
    assert len(exact) == 9
    assert all(row["exact"] == row["value"] for row in exact)


def test_no_row_is_lost(headless):
    _, found, _ = headless
    (all_rows,) = (row["exact"] for row in found["last"] if row["query"] == "requests")
    assert found["rows"] == all_rows > 250_000
    assert found["seconds"] == 28
    assert (found["late"], found["rejected"]) == (0, 0)


def test_it_hears_of_the_attack(headless):
    _, found, _ = headless
    assert found["detection"]["delay"] > 0
    assert found["detection"]["false_alerts"] == 0
    assert any(row["monitor"] == FLOOD and row["state"] == "firing" for row in found["alerts"])


def test_its_monitors_send_a_small_part_of_the_rows(headless):
    _, found, _ = headless
    sent = found["bytes"]
    assert sent["every_row"] == 8 * found["rows"]
    assert 0 < 10 * sent["monitors"] < sent["every_row"]
    assert sent["answers"] > 0
    assert found["memory"]["state"] > 0


def test_its_store_can_be_asked_when_it_is_over(headless):
    folder, found, _ = headless
    assert Path(found["folder"]) == folder
    result = run("query", "count", "/login", "--store", folder / "store", "--json")
    assert result.exit_code == 0, result.output
    assert "/login" in result.stdout


def test_it_says_where_the_dashboard_is(headless):
    _, _, said = headless
    assert re.search(r"lately: the dashboard is at http://127\.0\.0\.1:\d+/\n", said), said


def test_what_it_came_to_can_be_read(headless):
    _, found, _ = headless
    text = " ".join(sentences(found))
    assert "rows of eight sites in 28 s" in text
    assert "the exact value within their bounds" in text
    assert "s after the attack began" in text
    assert summary(found) is not None


def test_ctrl_c_ends_all_processes_and_removes_the_store(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen([*COMMAND, "--no-open"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        url = first_url(demo)
        with urllib.request.urlopen(f"{url}api/about", timeout=PATIENCE) as answer:
            assert json.load(answer)["name"] == "demo"
        demo.send_signal(signal.SIGINT)
        out, _ = demo.communicate(timeout=PATIENCE)
    finally:
        demo.kill()
    assert demo.returncode == 0
    assert "answers had the exact value within their bounds" in out
    assert "The store was removed" in out
    assert not list(tmp_path.glob("lately-demo-*"))
    assert writers_in(tmp_path) == []


def first_url(demo):
    for line in demo.stderr:
        if found := re.search(r"http://\S+/", line):
            return found[0]
    raise AssertionError("the demo ended before it had a dashboard")


def writers_in(folder):
    """The processes that still simulate sites there."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "lately.demo.writer" in line and str(folder) in line]
