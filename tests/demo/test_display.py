"""How a demo looks in a terminal."""

import io
import re
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from rich.console import Console

from lately.demo import demo_run
from lately.demo.demo_run import Demo
from lately.demo.display import LiveDisplay
from lately.demo.pipeline_file import FLOOD
from lately.pipeline.batch_report import BatchReport
from lately.store.tables import Alert, Answer


@pytest.fixture
def running(tmp_path, monkeypatch):
    """A demo in its fortieth second, where the clock stands still, with a batch, but without processes."""
    now = int(time.time())
    monkeypatch.setattr(demo_run, "time", SimpleNamespace(time=lambda: now))
    with Demo(seconds=60, keep=tmp_path / "demo") as demo:
        demo.start = now - 40
        yield demo


def shown(demo):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(LiveDisplay(demo))
    return console.export_text()


def test_before_the_first_batch_it_says_what_it_waits_for(running):
    assert "the first batch takes some seconds" in shown(running)


def test_a_batch_is_shown_with_what_is_hot_and_what_is_told(running):
    now = datetime.fromtimestamp(running.start + 37, UTC)
    hot = [
        Answer(now, 3, "hot pages", None, item, value, value - 10, value + 1)
        for item, value in (("/login", 1500.0), ("/cart", 300.0))
    ]
    alert = Alert(now, 3, FLOOD, value=16_000.4)
    done = BatchReport(3, now, 20_000, 20_000, 0, 0, 8, 0.5, 4096, hot, [alert])
    running.progress.add(done)
    running.record.add_batch(done, running.second, running.clock)
    text = shown(running)
    for said in (
        running.dashboard.url,
        "batch 3",
        "20,000 rows",
        "40,000 rows/s",
        "8 sites",
        "attack on the login page",
        "s left",
    ):
        assert said in text
    assert re.search(r"/login +1,500 +1,490 … 1,501 +█{28}", text)
    assert re.search(rf"\d\d:\d\d:\d\d  {FLOOD} firing: crossed its threshold, at 16,000", text)


def test_when_the_time_is_over_it_waits_for_the_last_rows(running):
    running.start -= 60
    now = datetime.fromtimestamp(running.start + 57, UTC)
    running.progress.add(BatchReport(20, now, 10, 10, 0, 0, 8, 0.5, 4096, [], []))
    assert "finished; the last rows are being processed" in shown(running)
