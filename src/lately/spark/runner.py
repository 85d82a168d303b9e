"""Runs a pipeline as a command does: quietly, and so that it can be stopped without losing anything.

Ctrl-C (SIGINT) or SIGTERM lets the running batch end; once more, and it is given up, which the next run makes good.
"""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from lately.config import Config
from lately.core.errors import LatelyError
from lately.spark.pipeline import Done, Pipeline, Told
from lately.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _StoppedError(Exception):
    """Ends a stream after a batch that is done; Spark has not noted that batch yet, and asks for it again next time."""


def on_master(config: Config, master: str | None) -> Config:
    """The same pipeline elsewhere."""
    if master is None:
        return config
    return config.model_copy(update={"run": config.run.model_copy(update={"master": master})})


def start(config: Config, log: Path) -> "SparkSession":
    """The session that is there, or a new one whose Java writes into ``log`` what it would write to the terminal."""
    run = config.run
    with _without_interrupts(), _stderr_into(log):
        try:
            return session(run.master, app=config.name, **run.spark)
        except LatelyError as error:
            said = [line.strip() for line in log.read_text(errors="replace").splitlines() if "rror" in line]
            told = f"it said: {said[0].rstrip('.')}" if said else "it said nothing"
            raise LatelyError(str(error).replace("what it said is above", told)) from None


def run(pipeline: Pipeline, spark: "SparkSession", told: Told) -> int | None:
    """Run to the end, or until a signal stops it; returns that signal."""
    with _Stop(pipeline) as stop:

        def heard(done: Done) -> None:
            told(done)
            if stop.signal is not None:
                raise _StoppedError

        try:
            pipeline.run(spark, heard)
        except BaseException:
            if stop.signal is None:
                raise
        return stop.signal


class _Stop:
    """What signals do while a pipeline runs; outside of the main thread, where Python hears none, nothing."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline, self._stream = pipeline, pipeline.config.source.mode != "batch"
        self.signal: int | None = None
        self._over = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Stop":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heard) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        again = self.signal is not None
        self.signal = number
        if again or not self._stream:
            raise KeyboardInterrupt
        # This thread is in the middle of a call to Java, which another thread must make instead.
        threading.Thread(target=self._stop_when_idle, daemon=True).start()

    def _stop_when_idle(self) -> None:
        """Stop a stream that waits for rows; one that has some stops after their batch."""
        while not self._over:
            query = self._pipeline._query
            if query is not None and not query.status["isTriggerActive"]:
                self._pipeline.stop()
                return
            time.sleep(0.05)


def plainly(error: BaseException) -> str:
    """What went wrong, in one line, of what Spark tells in a hundred.

    >>> plainly(RuntimeError("Job aborted: Traceback (most recent call last):\\n  …\\nKeyError: 'ts'\\n\\n\\tat java"))
    "KeyError: 'ts'"
    """
    text = str(error)
    if "Traceback (most recent call last)" in text:
        ends = re.findall(r"(?m)^(?:lately\.[\w.]*\.)?([A-Za-z][\w.]*(?:Error|Exception|Interrupt): .+)$", text)
        ours = re.findall(r"(?m)^lately\.[\w.]*Error: (.+)$", text)
        if ours or ends:
            return str((ours or ends)[-1]).strip()
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return first if isinstance(error, LatelyError) else f"{type(error).__name__}: {first}"


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """What is started here does not hear Ctrl-C: a terminal sends it to Spark's Python workers too, which die of it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """What is started here writes its complaints into a file, for as long as it lives."""
    sys.stderr.flush()
    before = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(file)
