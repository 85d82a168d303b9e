"""Starts and stops the parts of a demo: the process that simulates the sites, the pipeline on a local Spark, the service.

writer ──one file per second──> folder/events ──> pipeline ──> folder/store ──> service ──> dashboard
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from lately.core.errors import InputError, LatelyError
from lately.demo.dashboard import DashboardServer
from lately.demo.pipeline_file import pipeline_file
from lately.demo.record import Record
from lately.demo.scenario import Scenario
from lately.demo.warm_up import warm_up
from lately.pipeline.batch_report import BatchReport
from lately.spark import runner
from lately.spark.console import RunProgress
from lately.spark.pipeline import Pipeline


class _FinishedError(Exception):
    """Ends the stream after the batch of the last second."""


class Demo:
    """One run of the demo. A context manager: at its end all processes are stopped.

    Parameters
    ----------
    seconds
        How long it runs; None until a signal stops it.
    seed
        Another seed makes other traffic.
    port
        The TCP port of the dashboard; None for 8765, or any free one if that is in use.
    keep
        A new or empty folder for all files; None for a temporary one, which is removed at the end.
    """

    def __init__(self, *, seconds: int | None, seed: int = 1, port: int | None = None, keep: Path | None = None) -> None:
        self.scenario, self.seconds, self.seed = Scenario.of(seconds), seconds, seed
        self.dashboard = DashboardServer(port)
        self.keeps_files, self.folder = keep is not None, _folder(keep)
        self.pipeline = Pipeline.of(pipeline_file(str(self.folder)))
        self.progress = RunProgress("demo", continuous=True)
        self.record = Record(self.pipeline.config, seed, self.scenario)
        #: The start of the stream in seconds since 1970; None before it.
        self.start: int | None = None
        self._writer: subprocess.Popen[bytes] | None = None
        self._spark: Any = None
        self._log = Path(tempfile.mkstemp(prefix="lately-demo-", suffix=".log")[1])

    @property
    def second(self) -> int:
        """The newest second of the stream that the newest batch has read; -1 before the first batch."""
        time = None if self.progress.last is None else self.progress.last.time
        return int(time.timestamp()) - self.start if isinstance(time, datetime) and self.start is not None else -1

    @property
    def clock(self) -> float:
        """The time now in seconds since the start of the stream; -1 before it."""
        return -1.0 if self.start is None else time.time() - self.start

    # -- running -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Start Spark and run a small pipeline: some seconds, or a minute if kernels must be compiled on this machine first."""
        for name in ("events", "spark"):
            (self.folder / name).mkdir()
        self._spark = runner.start(self.pipeline.config, self._log)
        warm_up(self._spark, self.folder / "warm")

    def run(self, ready: Callable[[str], None], on_batch: Callable[[BatchReport], None]) -> int | None:
        """Run to the end; returns None, or the number of the signal that stopped it.

        Parameters
        ----------
        ready
            Is called with the address of the dashboard after the first batch, when there is something to see.
        on_batch
            Is called after every batch.
        """
        self.start = int(time.time()) + 1
        self._writer = writer = _start_writer(self.folder / "events", self.start, self.seed, self.seconds)
        threading.Thread(target=self._stop_after, args=(writer,), daemon=True).start()

        def handle(report: BatchReport) -> None:
            self.progress.add(report)
            self.record.add_batch(report, self.second, self.clock)
            if not self.dashboard.started:
                self.dashboard.start(self.pipeline.store.path)
                ready(self.dashboard.url)
            on_batch(report)
            if self.seconds is not None and self.second >= self.seconds - 1:
                raise _FinishedError

        try:
            stopped = runner.run(self.pipeline, self._spark, handle)
        except _FinishedError:
            return None
        except Exception as error:
            log, self._log = self._log, Path()
            error_with_log = runner.with_log(error, log)
            if error_with_log is None:
                raise
            raise error_with_log from error
        if stopped is None:  # the pipeline was stopped because the writer failed
            message = f"the process that simulates the sites ended with exit code {writer.wait()}"
            raise LatelyError(message, remedy="start the demo again")
        return stopped

    def _stop_after(self, writer: "subprocess.Popen[bytes]") -> None:
        """Stop the pipeline if the writer fails; it would wait for rows forever."""
        if writer.wait() != 0 and writer is self._writer:
            self.pipeline.stop()

    def close(self) -> None:
        """Stop all processes and remove the temporary files."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.terminate()
            writer.wait()
        self.dashboard.stop()
        if self._spark is not None:
            self._spark.stop()
            self._spark = None
        if self._log.is_file():
            self._log.unlink()
        if not self.keeps_files:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "Demo":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _folder(keep: Path | None) -> Path:
    """A new or empty folder for all files."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="lately-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        is_used = any(keep.iterdir())
    except OSError as error:
        message = f"cannot write the demo's files to {str(keep)!r}: {error.strerror}"
        raise InputError(message, remedy="give another folder with --keep") from error
    if is_used:
        raise InputError(f"{str(keep)!r} is not empty", remedy="give --keep a new folder")
    return keep.resolve()


def _start_writer(folder: Path, start: int, seed: int, seconds: int | None) -> "subprocess.Popen[bytes]":
    """Start the process that simulates the sites, in a session of its own: Ctrl-C must not stop it before the last batch."""
    numbers = (start, seed, seconds or 0, os.getpid())
    command = [sys.executable, "-m", "lately.demo.writer", str(folder), *map(str, numbers)]
    return subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
