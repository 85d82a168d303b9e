"""Runs a pipeline for a command: Java's output goes into a log, and signals stop the run without losing anything.

On Ctrl-C (SIGINT) or SIGTERM a stream finishes its current batch; everything else stops immediately. A second signal ends the
process immediately; the next run repeats an unfinished batch.
"""

import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark import SparkContext

from lately.config import Config
from lately.core.errors import LatelyError
from lately.pipeline.batch_report import BatchReport
from lately.spark.analysis import analyse
from lately.spark.failures import details, reason
from lately.spark.pipeline import OnBatch, Pipeline
from lately.spark.session import JavaStartError, java_start_error, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _StoppedError(Exception):
    """Ends a stream after a finished batch. Spark has not recorded that batch as done, and requests it again next time."""


def check(config: Config, log: Path) -> None:
    """Let Spark analyse a pipeline without running it; a LatelyError has a line for each mistake.

    Parameters
    ----------
    config
        The pipeline. Its [run.spark] is used; its master is not, since there is no work for a cluster.
    log
        The file that receives Java's output.
    """
    spark = start(config.with_master("local[1]"), log)
    analyse(config, spark)


def start(config: Config, log: Path) -> "SparkSession":
    """Return the active session, or start one.

    Parameters
    ----------
    config
        The pipeline, with the master and the settings of Spark.
    log
        The file that receives Java's output.
    """
    run = config.run
    with _stderr_into(log):
        try:
            return _interruptible(lambda: session(run.master, app=config.name, **run.spark))
        except JavaStartError as error:
            text = log.read_text(errors="replace")
            if missing := dict.fromkeys(re.findall(r"unresolved dependency: ([^\s:#]+)#([^;]+);([^:\s]+)", text)):
                jars = ", ".join(":".join(coordinates) for coordinates in missing)
                raise LatelyError(
                    f"Spark cannot start: spark.jars.packages asks for {jars}, which no reachable Maven repository has",
                    remedy="correct the name and version, or download the jars and give their paths in spark.jars",
                ) from error
            lines = [line.strip() for line in text.splitlines()]
            errors = [line for line in lines if re.search("rror|Invalid|Exception", line) and not line.startswith("at ")]
            raise java_start_error(f"it said: {errors[0].rstrip('.')}" if errors else "it said nothing") from None


def run(pipeline: Pipeline, spark: "SparkSession", on_batch: OnBatch, stop: "Stop | None" = None) -> int | None:
    """Run a pipeline until its end or until a signal stops it; return that signal, or None.

    Parameters
    ----------
    pipeline
        The pipeline.
    spark
        The session to run it in.
    on_batch
        Called with the report of each batch.
    stop
        What handles signals; by default a new one for this run.
    """
    if stop is None:
        with Stop() as own:
            return run(pipeline, spark, on_batch, own)

    def report_and_stop(report: BatchReport) -> None:
        on_batch(report)
        if stop.signal is not None:
            raise _StoppedError

    is_over = threading.Event()
    if pipeline.config.source.mode != "batch":
        # The main thread is inside a call to Java, so another thread must stop the stream.
        stop.first = lambda: threading.Thread(target=_stop_when_idle, args=(pipeline, is_over), daemon=True).start()
    try:
        pipeline.run(spark, report_and_stop)
    except BaseException:
        if stop.signal is None:
            raise
    finally:
        is_over.set()
        stop.first = None
    return stop.signal


class Stop:
    """Handles SIGINT and SIGTERM while a command runs; does nothing outside of the main thread, which gets no signals.

    Parameters
    ----------
    leave
        What the second signal does, given its number; it must not return. By default it raises KeyboardInterrupt.
    """

    def __init__(self, leave: Callable[[int], NoReturn] | None = None) -> None:
        self._leave = leave
        #: The first signal that was received.
        self.signal: int | None = None
        #: What the first signal does; without it, it raises KeyboardInterrupt.
        self.first: Callable[[], None] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        if self.signal is not None and self._leave is not None:
            return  # the process is ending, which takes Spark seconds; a second signal may still arrive
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.signal is not None
        if not again:
            self.signal = number
        if again and self._leave is not None:
            self._leave(number)
        if again or self.first is None:
            if self._leave is not None:
                logging.disable()  # the connection to Java would log a traceback of the interrupted call
            raise KeyboardInterrupt
        self.first()


def _stop_when_idle(pipeline: Pipeline, is_over: threading.Event) -> None:
    """Stop a stream while it waits for rows; during a batch, the stream stops when the batch is finished."""
    while not is_over.wait(0.05):
        query = pipeline._query
        if query is not None and not query.status["isTriggerActive"]:
            pipeline.stop()
            return


def with_log(error: BaseException, log: Path) -> LatelyError | None:
    """Return the error to print if Spark was involved: one sentence that names the log, which receives the whole text.

    Parameters
    ----------
    error
        What ended the run.
    log
        The file with Java's output. If Spark was not involved, or the sentence says everything, the file is removed and
        the result is None.
    """
    is_expected = isinstance(error, LatelyError | OSError)
    text = details(error) or (None if is_expected else "".join(traceback.format_exception(error)))
    if text is None:
        log.unlink(missing_ok=True)
        return None
    with log.open("a", encoding="utf-8") as file:
        file.write(text)
    return LatelyError(reason(error), remedy=f"Spark's output is in {log}")


def _interruptible(start: Callable[[], "SparkSession"]) -> "SparkSession":
    """Start a session, which takes seconds, in such a way that a signal interrupts it.

    Another thread starts Java with SIGINT blocked, which Java inherits: a terminal sends Ctrl-C to all processes, and Spark's
    Python workers would end. When this thread stops waiting and the process ends, Java ends because its input is closed.
    """
    if SparkContext._active_spark_context is not None or threading.current_thread() is not threading.main_thread():
        return start()
    made: Future[SparkSession] = Future()

    def work() -> None:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            made.set_result(start())
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=work, name="start of Spark", daemon=True).start()
    return made.result()


@contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """Redirect the standard error of processes that are started inside into a file."""
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
