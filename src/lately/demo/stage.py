"""Everything that a demo consists of, started and stopped: the sites' process, the pipeline on a local Spark, the service.

writer ──a file a second──> folder/events ──> pipeline ──> folder/store ──> web ──> the dashboard
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lately.core.errors import InputError, LatelyError
from lately.demo.asks import pipeline
from lately.demo.record import Record
from lately.demo.story import Story
from lately.demo.warm import warm
from lately.demo.web import Web
from lately.spark import runner
from lately.spark.pipeline import Done, Pipeline
from lately.spark.shown import Watched


class _OverError(Exception):
    """Ends the stream after the batch of the last second."""


class Demo:
    """One showing, of ``seconds`` or for ever; what it writes goes to ``keep``, or to a folder that it removes in the end."""

    def __init__(self, *, seconds: int | None, seed: int = 1, port: int | None = None, keep: Path | None = None) -> None:
        self.story, self.seconds, self.seed = Story.of(seconds), seconds, seed
        self.web = Web(port)
        self.kept, self.folder = keep is not None, _folder(keep)
        self.pipeline = Pipeline.of(pipeline(str(self.folder)))
        self.watched = Watched("demo", continuous=True)
        self.record = Record(self.pipeline.config, seed, self.story)
        #: When the stream began, in seconds since 1970.
        self.start: int | None = None
        self._writer: subprocess.Popen[bytes] | None = None
        self._spark: Any = None
        self._log = Path(tempfile.mkstemp(prefix="lately-demo-", suffix=".log")[1])

    @property
    def second(self) -> int:
        """The second of the stream that the newest batch came to; -1 before the first."""
        done = self.watched.last
        return -1 if done is None or self.start is None else int(done.time.timestamp()) - self.start

    @property
    def clock(self) -> float:
        """The second of the stream that it is now."""
        return -1.0 if self.start is None else time.time() - self.start

    # -- running -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Start Spark and all that it needs, which takes some seconds; a minute, if this machine has no kernels yet."""
        for name in ("events", "spark"):
            (self.folder / name).mkdir()
        self._spark = runner.start(self.pipeline.config, self._log)
        warm(self._spark, self.folder / "warm")

    def run(self, ready: Callable[[str], None], told: Callable[[Done], None]) -> int | None:
        """Run to the end, or until a signal, which is returned.

        ``ready`` hears the address of the dashboard as soon as there is something on it, ``told`` of every batch.
        """
        self.start = int(time.time()) + 1
        self._writer = writer = _started(self.folder / "events", self.start, self.seed, self.seconds)
        threading.Thread(target=self._end_with, args=(writer,), daemon=True).start()

        def heard(done: Done) -> None:
            self.watched.take(done)
            self.record.take(done, self.second, self.clock)
            if not self.web.started:
                self.web.start(self.pipeline.store.path)
                ready(self.web.url)
            told(done)
            if self.seconds is not None and self.second >= self.seconds - 1:
                raise _OverError

        try:
            stopped = runner.run(self.pipeline, self._spark, heard)
        except _OverError:
            return None
        except Exception as error:
            log, self._log = self._log, Path()
            told_error = runner.with_log(error, log)
            if told_error is None:
                raise
            raise told_error from error
        if stopped is None:  # the stream was stopped because nothing more will come
            raise LatelyError(f"the process that plays the sites ended with code {writer.wait()}; start the demo again")
        return stopped

    def _end_with(self, writer: "subprocess.Popen[bytes]") -> None:
        """A stream that nobody writes to any more would wait for ever."""
        if writer.wait() != 0 and writer is self._writer:
            self.pipeline.stop()

    def close(self) -> None:
        """End all processes, and remove what shall not stay."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.terminate()
            writer.wait()
        self.web.stop()
        if self._spark is not None:
            self._spark.stop()
            self._spark = None
        if self._log.is_file():
            self._log.unlink()
        if not self.kept:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "Demo":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _folder(keep: Path | None) -> Path:
    """Where all of it goes: to nobody's else."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="lately-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        taken = any(keep.iterdir())
    except OSError as error:
        raise InputError(f"cannot keep the demo in {str(keep)!r}: {error.strerror}; give another --keep") from error
    if taken:
        raise InputError(f"{str(keep)!r} is not empty; give --keep a new folder")
    return keep.resolve()


def _started(folder: Path, start: int, seed: int, seconds: int | None) -> "subprocess.Popen[bytes]":
    """The process that plays the sites, out of the reach of Ctrl-C: a last batch may still want what it wrote."""
    numbers = (start, seed, seconds or 0, os.getpid())
    command = [sys.executable, "-m", "lately.demo.writer", str(folder), *map(str, numbers)]
    return subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
