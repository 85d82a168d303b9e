"""The process that simulates the sites."""

import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
from patience import PATIENCE, wait_until

from lately.demo.scenario import Scenario
from lately.demo.traffic import rows_of_second
from lately.demo.writer import write


def test_a_file_is_a_second_and_appears_whole(tmp_path):
    path = write(tmp_path, 3, 1, Scenario(), 1_780_000_000)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert pq.read_table(path).equals(rows_of_second(3, 1, Scenario()).table(1_780_000_000))


def started(folder, start, seconds):
    command = [sys.executable, "-m", "lately.demo.writer", str(folder), str(start), "1", str(seconds), str(os.getpid())]
    return subprocess.Popen(command)


def test_it_makes_up_for_what_has_passed_and_ends(tmp_path):
    start = int(time.time()) - 60
    assert started(tmp_path, start, 20).wait(timeout=PATIENCE) == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"{number:08d}.parquet" for number in range(20)]
    last = pq.read_table(tmp_path / "00000019.parquet")
    assert last.equals(rows_of_second(19, 1, Scenario.of(20)).table(start))


def test_it_does_not_run_ahead_of_the_clock_and_can_be_ended(tmp_path):
    start = int(time.time()) - 1
    writer = started(tmp_path, start, 0)
    try:
        wait_until(lambda: list(tmp_path.glob("*.parquet")))
        passed = int(time.time()) - start  # it makes up for these seconds; the next ones it has to wait for
        wait_until(lambda: (tmp_path / f"{passed + 1:08d}.parquet").exists())
        for path in tmp_path.glob("*.parquet"):
            over = start + int(path.stem) + 1  # when the second of a file is over
            assert path.stat().st_mtime > over - 0.1, path  # filesystems have a clock that ticks more slowly
    finally:
        writer.terminate()
    assert writer.wait(timeout=PATIENCE) == -signal.SIGTERM


def test_it_ends_with_the_process_that_started_it(tmp_path):
    code = f"""
import os, subprocess, sys
numbers = ["{int(time.time())}", "1", "0", str(os.getpid())]
made = subprocess.Popen([sys.executable, "-m", "lately.demo.writer", {str(tmp_path)!r}, *numbers], stdout=subprocess.DEVNULL)
print(made.pid)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True)
    wait_until(lambda: not is_running(int(done.stdout)))


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
