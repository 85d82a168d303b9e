"""Runs a pipeline as a command does: quietly, and so that it can be stopped without losing anything.

Ctrl-C (SIGINT) or SIGTERM stops everything at once but a batch of a stream, which may end.
The second signal ends the process in the middle of whatever it does, which the next run makes good.
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
    """Ends a stream after a batch that is done; Spark has not noted that batch yet, and asks for it again next time."""


def check(config: Config, log: Path) -> None:
    """Let Spark analyse a pipeline without running it; a LatelyError has a line for each mistake.

    Parameters
    ----------
    config
        The pipeline. Its [run.spark] counts, its master does not: there is nothing to do for a cluster.
    log
        Where Java writes what it would write to the terminal.
    """
    spark = start(config.with_master("local[1]"), log)
    analyse(config, spark)


def start(config: Config, log: Path) -> "SparkSession":
    """The session that is there, or a new one whose Java writes into ``log`` what it would write to the terminal."""
    run = config.run
    with _stderr_into(log):
        try:
            return _interruptible(lambda: session(run.master, app=config.name, **run.spark))
        except JavaStartError as error:
            text = log.read_text(errors="replace")
            if absent := dict.fromkeys(re.findall(r"unresolved dependency: ([^\s:#]+)#([^;]+);([^:\s]+)", text)):
                jars = ", ".join(":".join(one) for one in absent)
                raise LatelyError(
                    f"Spark cannot start: spark.jars.packages asks for {jars}, which no Maven repository has that it can "
                    "reach; correct the name and version, or download the jars and give their paths in spark.jars"
                ) from error
            lines = [line.strip() for line in text.splitlines()]
            said = [line for line in lines if re.search("rror|Invalid|Exception", line) and not line.startswith("at ")]
            told = f"it said: {said[0].rstrip('.')}" if said else "it said nothing"
            raise java_start_error(told) from None


def run(pipeline: Pipeline, spark: "SparkSession", told: OnBatch, stop: "Stop | None" = None) -> int | None:
    """Run to the end, or until a signal stops it; returns that signal.

    Parameters
    ----------
    pipeline
        What to run.
    spark
        The session to run it in.
    told
        Hears of each batch.
    stop
        What hears signals; by default one for this run alone.
    """
    if stop is None:
        with Stop() as own:
            return run(pipeline, spark, told, own)

    def heard(done: BatchReport) -> None:
        told(done)
        if stop.signal is not None:
            raise _StoppedError

    is_over = threading.Event()
    if pipeline.config.source.mode != "batch":
        # The main thread is in the middle of a call to Java, which another thread must make instead.
        stop.first = lambda: threading.Thread(target=_stop_when_idle, args=(pipeline, is_over), daemon=True).start()
    try:
        pipeline.run(spark, heard)
    except BaseException:
        if stop.signal is None:
            raise
    finally:
        is_over.set()
        stop.first = None
    return stop.signal


class Stop:
    """What SIGINT and SIGTERM do while a command runs; outside of the main thread, where Python hears none, nothing.

    Parameters
    ----------
    leave
        What the second signal does, given its number; it must not return. By default it raises KeyboardInterrupt.
    """

    def __init__(self, leave: Callable[[int], NoReturn] | None = None) -> None:
        self._leave = leave
        #: The first signal that was heard.
        self.signal: int | None = None
        #: What the first signal does; without it, it raises KeyboardInterrupt.
        self.first: Callable[[], None] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heard) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        if self.signal is not None and self._leave is not None:
            return  # the process is about to end, which takes Spark seconds; the second signal may still come
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        again = self.signal is not None
        if not again:
            self.signal = number
        if again and self._leave is not None:
            self._leave(number)
        if again or self.first is None:
            if self._leave is not None:
                logging.disable()  # the connection to Java logs a traceback of the call that ends here; the process ends, too
            raise KeyboardInterrupt
        self.first()


def _stop_when_idle(pipeline: Pipeline, is_over: threading.Event) -> None:
    """Stop a stream that waits for rows; one that has some stops after their batch."""
    while not is_over.wait(0.05):
        query = pipeline._query
        if query is not None and not query.status["isTriggerActive"]:
            pipeline.stop()
            return


def with_log(error: BaseException, log: Path) -> LatelyError | None:
    """The error as a command tells it if Spark had a part in it: one sentence, and the log, which gets all of the rest.

    Parameters
    ----------
    error
        What ended the run.
    log
        The file that Spark's Java has written into. For any other error, or one whose sentence says everything, it is
        removed, and None returned.
    """
    known = isinstance(error, LatelyError | OSError)
    whole = details(error) or (None if known else "".join(traceback.format_exception(error)))
    if whole is None:
        log.unlink(missing_ok=True)
        return None
    with log.open("a", encoding="utf-8") as file:
        file.write(whole)
    return LatelyError(f"{reason(error)}; what Spark said is in {log}")


def _interruptible(start: Callable[[], "SparkSession"]) -> "SparkSession":
    """Start a session, which takes seconds, so that a signal need not wait for it.

    Java is started by another thread with SIGINT blocked, which it inherits: a terminal sends Ctrl-C to all processes, and
    Spark's Python workers die of it. When this thread stops waiting and the process ends, Java ends as its input is closed.
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
