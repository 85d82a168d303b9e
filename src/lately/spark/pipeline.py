"""A pipeline: rows of any source are counted in the sketches of their sites; answers and alerts go into a store, exactly once.

    source ──> validated in the JVM ──by site, by time──> counted on the executors ──> version n
                    │                                                                    │
                    └─> late, rejected                          answers, alerts <────────┘

A batch reads version n - 1 of the state and writes version n. All that it writes is named by its number. If it is interrupted
at any moment, running it again produces the same version and the same files; once its version is published, it is done, whether
or not Spark has noted that (``micro_batch.py``). One run at a time holds a lease, and a run that another one has overtaken
stops before it writes or deletes anything (``run_guard.py``).
"""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lately.config import Config, load
from lately.config import of as config_of
from lately.core.errors import LeaseError, ParameterError
from lately.core.paths import filesystem_of, rooted
from lately.pipeline.batch_report import BatchReport
from lately.pipeline.plan import PipelinePlan
from lately.pipeline.state_versions import StateVersions
from lately.spark.failures import explained, in_batch, stopped
from lately.spark.micro_batch import MicroBatch, RunContext
from lately.spark.rows import ARRIVED, RowValidator
from lately.spark.run_guard import RunGuard
from lately.spark.session import session
from lately.spark.sources import read_source
from lately.store import Store

#: Called after every batch.
OnBatch = Callable[[BatchReport], None]


class Pipeline:
    """A pipeline file, ready to run on Spark.

    Parameters
    ----------
    config
        The pipeline file; ``Pipeline.from_file`` and ``Pipeline.of`` read it.

    >>> pipeline = Pipeline.of({
    ...     "source": {"format": "parquet", "path": "events", "mode": "batch"},
    ...     "columns": {"time": "ts", "key": "url"},
    ...     "window": {"length": "1h"},
    ...     "queries": [{"name": "hot", "kind": "top", "last": "10m"}],
    ...     "store": {"path": "answers"},
    ... })
    >>> [spec.name.split()[0] for spec in pipeline.plan.specs]
    ['topk']
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.plan = PipelinePlan.of(config)
        time_type = pa.timestamp("us", "UTC") if config.window.window.kind == "time" else pa.int64()
        self.store = Store(rooted(config.store.path), time_type)
        home = config.run.checkpoint if config.source.mode != "batch" else f"{config.store.path}/.state"
        assert home is not None
        self._home = rooted(home)
        self.versions = StateVersions(f"{self._home}/state" if config.source.mode != "batch" else self._home)
        #: How the pipeline differs from that of the run that wrote the state; each note is a sentence.
        self.notes: list[str] = []
        self._guard = RunGuard(config, self._home, self.store, self.versions)
        self._on_batch: OnBatch | None = None
        self._failure: BaseException | None = None
        self._query: Any = None
        self._count = 0

    @classmethod
    def from_file(cls, path: str | Path) -> "Pipeline":
        """Read a pipeline file. Errors name the line.

        Parameters
        ----------
        path
            The path of the TOML file.
        """
        return cls(load(path))

    @classmethod
    def of(cls, content: dict[str, Any]) -> "Pipeline":
        """Return the pipeline of a file's content.

        Parameters
        ----------
        content
            The tables of the file as dictionaries.
        """
        return cls(config_of(content))

    # -- running -------------------------------------------------------------------------------------------------------

    @explained
    def run(self, spark: SparkSession | None = None, on_batch: OnBatch | None = None) -> int:
        """Run until the source is exhausted, or until ``stop`` if it is continuous; returns the number of batches.

        A run continues where the previous one ended or was interrupted.

        Parameters
        ----------
        spark
            The session; by default the active one, or a new one with the settings of the pipeline file.
        on_batch
            Called after every batch.
        """
        self._on_batch, self._failure, self._count, self._query = on_batch, None, 0, None
        self.notes = []
        with self._guard.held(self._stop_overtaken):
            try:
                self._run(spark)
            except Exception as error:
                # A run that was overtaken may fail in many ways, since files of its batch are deleted. Report the cause.
                if not isinstance(error, LeaseError):
                    self._guard.check(error)
                raise
            self._guard.check()
        return self._count

    def _stop_overtaken(self) -> None:
        with suppress(Exception):  # if this fails, the run ends at its next write
            self.stop()

    def _run(self, spark: SparkSession | None) -> None:
        config = self.config
        spark = spark or session(config.run.master, app=config.name, **config.run.spark)
        self.store.prepare()
        if config.source.mode == "batch":
            self._guard.check()
            self.versions.clear()
            self.versions.prepare()
            self.plan = PipelinePlan.of(config, self._seed())
            self.store.claim(f"batch {config.name}")
            rows = read_source(spark.read, config).withColumn(ARRIVED, F.current_timestamp())
            self._validator = self._described(rows)
            with in_batch(config, 0, self.versions):
                self._process(rows, 0, "batch")
            self._guard.check()
            self.versions.clear()
        else:
            self.versions.prepare()
            self.plan = PipelinePlan.of(config, self._seed())
            self._check_state()
            if self.store.owner() is not None:
                stream = self._known_stream()
                self.store.claim("a new stream" if stream is None else f"stream {stream}")
            self._stream(spark)

    def stop(self) -> None:
        """Stop a stream immediately. The batch that is running is interrupted; the next run processes it."""
        if self._query is not None:
            self._query.stop()

    def _described(self, rows: DataFrame) -> RowValidator:
        """Return the validator of the source's rows, and write what the store's tables are about."""
        validator = RowValidator(rows, self.plan)
        self.store.describe(self.plan.about(validator.key_type))
        return validator

    def _stream(self, spark: SparkSession) -> None:
        config = self.config
        rows = read_source(spark.readStream, config).withColumn(ARRIVED, F.current_timestamp())
        self._validator = self._described(rows)  # raises before anything starts
        trigger = (
            {"availableNow": True} if config.source.mode == "available-now" else {"processingTime": config.run.processing_time}
        )
        writer = rows.writeStream.foreachBatch(self._foreach).option("checkpointLocation", f"{self._home}/spark")
        self._query = writer.queryName(config.name).trigger(**trigger).start()
        try:
            self._query.awaitTermination()
        except KeyboardInterrupt:
            self._query.stop()
            raise
        except StreamingQueryException as error:
            if self._failure is not None:
                raise self._failure from self._failure.__cause__ or error
            raise stopped(error, config, self.versions) from error

    def _foreach(self, rows: DataFrame, batch: int) -> None:
        try:
            with in_batch(self.config, batch, self.versions):
                self._process(rows, batch, self._stream_id())
        except BaseException as error:
            self._failure = error  # Spark passes on only its text
            raise

    def _stream_id(self) -> str:
        """Return Spark's identifier of the stream; every new checkpoint has another."""
        filesystem, path = filesystem_of(f"{self._home}/spark/metadata")
        with filesystem.open_input_stream(path) as source:
            return str(json.loads(source.read())["id"])

    def _known_stream(self) -> str | None:
        """Return the identifier of the stream, or None if the stream has never started."""
        try:
            return self._stream_id()
        except OSError:
            return None

    def _seed(self) -> int:
        """Return the seed of all sketches: that of the file, or of the state; a new state draws a secret one."""
        seed = self.config.run.seed
        if seed is None:
            return self.versions.seed()
        if self.versions.batches() and self.versions.seed() != seed:
            raise ParameterError(
                "run.seed differs from that of the state, all of which depends on it",
                remedy="change it back, leave it out, or start over with another [run] checkpoint",
            )
        return seed

    def _check_state(self) -> None:
        """Compare the pipeline with the state of an earlier run, before anything starts."""
        batches = self.versions.batches()
        if not batches:
            return
        earlier = self.versions.read(batches[-1])
        self.notes = self.plan.check_compatible(earlier.plan)
        stream = self._known_stream()
        if stream is None:
            raise ParameterError(
                f"{self._home!r} has the state of batch {earlier.batch}, but Spark's own log beside it is missing",
                remedy="restore it, or start over with another [run] checkpoint",
            )
        if stream != earlier.stream:
            raise ParameterError(
                f"the state in {self._home!r} belongs to the stream {earlier.stream}, and Spark's log to {stream}",
                remedy="restore the one that is missing, or start over with another [run] checkpoint",
            )

    def _process(self, rows: DataFrame, number: int, stream: str) -> None:
        context = RunContext(self.config, self.plan, self.store, self.versions, self._validator, self._guard)
        batch = MicroBatch(context, rows, number, stream)
        report = batch.process()
        if report is not None:
            self._count += 1
            if self._on_batch is not None:
                self._on_batch(report)
        batch.upkeep()
