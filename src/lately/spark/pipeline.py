"""A pipeline: rows of any source into every site's sketches, answers and alerts into a store, exactly once.

    source ──> validated in the JVM ─by site, by time──> grown on the executors ──> version n
                    │                                                                │
                    └─> late, rejected                         answers, alerts <─────┘

A batch reads version n - 1 of the state and writes version n. Its outputs are named by its number. Whenever it dies, running it
again gives the same version and the same files; once its version is there, it is done, whatever Spark has noted. One run at a
time holds a lease, and a run that another one has overtaken stops before it writes or deletes (``fence.py``).
"""

import json
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lately.config import Config, load
from lately.config import of as config_of
from lately.core.errors import InputError, LeaseError, ParameterError
from lately.core.paths import filesystem_of, rooted
from lately.core.times import instant_of
from lately.pipeline.batch_report import BatchReport
from lately.pipeline.fence import Fence
from lately.pipeline.plan import PipelinePlan, SketchSpec
from lately.pipeline.site_assignment import SiteAssignment
from lately.pipeline.state_versions import SiteRecord, StateVersion, StateVersions, packed, with_places
from lately.pipeline.task_report import REPORT, TaskReport, all_reasons
from lately.spark.ahead_rows import write_ahead
from lately.spark.arrow_types import arrow_schema
from lately.spark.ask import Moment, answers_of, share_job
from lately.spark.bundles import BUNDLES, bundle
from lately.spark.failures import explained, in_batch, stopped
from lately.spark.grow import Batch, grow
from lately.spark.rounds import settle
from lately.spark.rows import ARRIVED, RowValidator
from lately.spark.session import session
from lately.spark.sources import read_source
from lately.store import Store
from lately.store.lease import Lease, Renewal, lease_folder
from lately.store.upkeep import is_due, tidy

#: Called after every batch.
OnBatch = Callable[[BatchReport], None]

#: Sketches of sites are stored in files of about this size, or a file for each site that has more.
_FILE_BYTES = 32 * 2**20


class Pipeline:
    """What a pipeline file describes, ready to run on Spark.

    >>> pipeline = Pipeline.of({
    ...     "source": {"format": "parquet", "path": "events", "mode": "batch"},
    ...     "columns": {"time": "ts", "key": "url"},
    ...     "window": {"length": "1h"},
    ...     "queries": [{"name": "hot", "kind": "top", "last": "10m"}],
    ...     "store": {"path": "answers"},
    ... })
    >>> [thing.name.split()[0] for thing in pipeline.plan.specs]
    ['topk']
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.plan = PipelinePlan.of(config)
        self._moment = pa.timestamp("us", "UTC") if config.window.window.kind == "time" else pa.int64()
        self.store = Store(rooted(config.store.path), self._moment)
        home = config.run.checkpoint if config.source.mode != "batch" else f"{config.store.path}/.state"
        assert home is not None
        self._home = rooted(home)
        self.versions = StateVersions(f"{self._home}/state" if config.source.mode != "batch" else self._home)
        #: What has changed against the run that left the state.
        self.notes: list[str] = []
        self._on_batch: OnBatch | None = None
        self._failure: BaseException | None = None
        self._query: Any = None
        self._lease: Lease | None = None
        self._fence: Fence | None = None

    @classmethod
    def from_file(cls, path: str | Path) -> "Pipeline":
        """Read a pipeline file; mistakes are told with their lines."""
        return cls(load(path))

    @classmethod
    def of(cls, content: dict[str, Any]) -> "Pipeline":
        """A pipeline from what a file would hold."""
        return cls(config_of(content))

    # -- running -------------------------------------------------------------------------------------------------------

    @explained
    def run(self, spark: SparkSession | None = None, on_batch: OnBatch | None = None) -> int:
        """Run until the source is exhausted, or for ever if it is continuous; returns how many batches it ran.

        ``on_batch`` is called after each batch. A run that was interrupted goes on where it stopped.
        """
        self._on_batch, self._failure, self._count, self._query = on_batch, None, 0, None
        self.notes = []
        self._fence = None
        with self._leased():
            try:
                self._run(spark)
            except Exception as error:
                # A run that was overtaken may fail in many ways, as files of its batch are gone: this is the reason.
                if not isinstance(error, LeaseError):
                    self._check_overtaken(error)
                raise
            self._check_overtaken()
        return self._count

    @contextmanager
    def _leased(self) -> Iterator[None]:
        """Hold the lease, where the filesystem has one, and do not write to the store without it."""
        is_batch = self.config.source.mode == "batch"
        folder = lease_folder(self.store.path, ".lease") if is_batch else lease_folder(self._home)
        if folder is None:
            try:
                yield
            finally:
                self.store.guard = None
            return
        try:
            lease = Lease.take(folder, self.config.run.lease_seconds)
        except OSError as error:
            if is_batch:
                self.store.prepare()  # says what is wrong with it
            self.versions.prepare()
            raise InputError(f"cannot write to {folder!r}: {error}; give a path that can be written to") from error
        self._lease, self.store.guard = lease, lease.check
        try:
            with Renewal(lease, self._stop_overtaken):
                yield
        finally:
            self._lease = self.store.guard = None
            lease.release()

    def _stop_overtaken(self) -> None:
        with suppress(Exception):  # it ends by itself, at the next write
            self.stop()

    def _check_overtaken(self, cause: Exception | None = None) -> None:
        """Raise LeaseError if another run has taken over or gone on."""
        try:
            if self._lease is not None:
                self._lease.check()
            if self._fence is not None:
                self._fence.check()
        except LeaseError as error:
            raise error from cause

    def _run(self, spark: SparkSession | None) -> None:
        config = self.config
        spark = spark or session(config.run.master, app=config.name, **config.run.spark)
        self.store.prepare()
        if config.source.mode == "batch":
            self._check_overtaken()
            self.versions.clear()
            self.versions.prepare()
            self.plan = PipelinePlan.of(config, self._seed())
            self.store.claim(f"batch {config.name}")
            rows = read_source(spark.read, config).withColumn(ARRIVED, F.current_timestamp())
            self._validator = self._described(rows)
            with in_batch(config, 0, self.versions):
                self._process(rows, 0, "batch")
            self._check_overtaken()
            self.versions.clear()
        else:
            self.versions.prepare()
            self.plan = PipelinePlan.of(config, self._seed())
            self._carry_over()
            if self.store.owner() is not None:
                self.store.claim(f"stream {self._known_stream() or 'that begins now'}")
            self._stream(spark)

    def stop(self) -> None:
        """Stop a stream at once; a batch that runs is given up, and done by the next run."""
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
        self._validator = self._described(rows)  # what is wrong is told before anything starts
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
            self._failure = error  # Spark tells only its text
            raise

    def _stream_id(self) -> str:
        """Spark's name for the stream, which a new checkpoint makes anew."""
        filesystem, path = filesystem_of(f"{self._home}/spark/metadata")
        with filesystem.open_input_stream(path) as source:
            return str(json.loads(source.read())["id"])

    def _known_stream(self) -> str | None:
        """The same before the stream begins, if it ever did."""
        try:
            return self._stream_id()
        except OSError:
            return None

    def _seed(self) -> int:
        """The seed of all sketches: that of the state, or of the file, or a secret one that is drawn."""
        given = self.config.run.seed
        if given is None:
            return self.versions.seed()
        if self.versions.batches() and self.versions.seed() != given:
            raise ParameterError(
                "run.seed is another one than when the state was written, all of which depends on it; change it back, leave it "
                "out, or start anew with another [run] checkpoint"
            )
        return given

    def _carry_over(self) -> None:
        """Compare with what an earlier run has left, before anything starts."""
        batches = self.versions.batches()
        if not batches:
            return
        earlier = self.versions.read(batches[-1])
        self.notes = self.plan.check_compatible(earlier.plan)
        stream = self._known_stream()
        if stream is None:
            raise ParameterError(
                f"{self._home!r} has the state of batch {earlier.batch}, but Spark's own log beside it is gone; "
                "restore it, or start anew with another [run] checkpoint"
            )
        if stream != earlier.stream:
            raise ParameterError(
                f"the state in {self._home!r} belongs to the stream {earlier.stream}, and Spark's log to {stream}; "
                "restore the one that is missing, or start anew with another [run] checkpoint"
            )

    # -- a batch -------------------------------------------------------------------------------------------------------

    def _process(self, rows: DataFrame, number: int, stream: str) -> None:
        began, at = clock.perf_counter(), datetime.now(UTC)
        done = self.versions.batches()
        self._fence_off(number, published=number in done)
        if number in done:  # all of it, but for the upkeep perhaps; Spark had not noted that yet
            was = self.versions.read(number - 1).now if number - 1 in done else None
            self._upkeep(was, self.versions.read(number))
            return
        before = StateVersion(-1, stream, {}) if number == 0 else self.versions.read(number - 1)
        if number == 0 and self.config.source.mode != "batch":
            self.store.claim(f"stream {stream}")
        self.store.clear(number)
        grown = self._grow(rows, number, before)
        write_ahead(rows, self._validator, grown, self.store, number)
        after = self._next_version(before, number, stream, grown, at)
        round_ = settle(self.plan, self.versions, after, grown, rows.sparkSession)
        answers, shipped = self._ask(after, grown, rows.sparkSession)
        after = self.versions.compacted(after)
        moment = None if after.now is None else instant_of(after.now, self.plan.window)
        alerts = [row | {"time": moment, "batch": number} for row in round_.alerts]
        answers = [row | {"time": moment, "batch": number} for row in (*answers, *round_.answers)]
        self.store.put("answers", number, answers)
        self.store.put("alerts", number, alerts)
        self.store.put("sites", number, self._site_rows(after))
        after = self._store_sketches(after, moment)
        counts = {name: sum(getattr(one, name) for one in grown) for name in ("rows", "counted", "late", "rejected")}
        seconds = clock.perf_counter() - began
        run = counts | {
            "batch": number,
            "time": moment,
            "began": at,
            "seconds": seconds,
            "sites": len(after.places),
            "state_bytes": after.live_bytes,
            "shipped_bytes": shipped,
            "monitor_bytes": round_.carried,
            "everything_bytes": sum(one.everything for one in grown),
        }
        self.store.put("runs", number, [run])
        self.versions.write(after, self._lease.check if self._lease is not None else None)
        self._fence_off(number, published=True)
        self.versions.tidy()
        self._count += 1
        if self._on_batch is not None:
            told = {name: run[name] for name in ("batch", "time", *counts, "sites", "state_bytes")}
            told |= {"answers": answers, "alerts": alerts, "reasons": all_reasons(grown)}
            self._on_batch(BatchReport(**told, seconds=clock.perf_counter() - began))
        self._upkeep(before.now, after)

    def _site_rows(self, version: StateVersion) -> list[dict[str, Any]]:
        """All sites after a batch, as the table ``sites`` has them."""

        def moment(micros: int | None) -> datetime | None:
            return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)

        clocks, window = version.clocks, self.plan.window
        return [
            {"batch": version.batch, "site": site, "time": instant_of(clocks[site], window) if site in clocks else None}
            | {"seen": moment(record.seen), "ahead_seen": moment(record.ahead_seen)}
            | {name: getattr(record, name) for name in ("counted", "late", "rejected", "ahead")}
            for site, record in sorted(version.sites.items())
        ]

    def _fence_off(self, batch: int, published: bool) -> None:
        """Refuse this batch if another run has taken over or gone on, now and before every write or deletion from here on."""
        self._fence = Fence(self._lease, self.versions.path, batch, published)
        self.store.guard = self._fence.check
        self._fence.check()

    def _upkeep(self, was: int | None, version: StateVersion) -> None:
        """Keep the store from growing for ever, now and then."""
        if is_due(version.batch, was, version.now, self.plan.keep):
            self._check_overtaken()
            tidy(self.store, self.config.store.keep, version.batch)

    def _grow(self, rows: DataFrame, number: int, before: StateVersion) -> list[TaskReport]:
        plan = self.plan
        floors = [tick - plan.lateness for tick in before.clocks.values()]
        unit = plan.window.unit
        # Late is what lies before a site's own floor, so rows before the highest of them may be.
        floor = None if not floors else -(-max(floors) * unit // 1000) if plan.window.kind == "time" else max(floors) * unit
        ready = self._validator.prepare(rows, floor)
        tasks = rows.sparkSession.sparkContext.defaultParallelism
        assignment = SiteAssignment(before.places, tasks)
        batch = Batch(
            number,
            self.versions.path,
            self.store.path,
            _by_task(before, assignment, tasks),
            before.now,
            self._moment,
            arrow_schema(ready.schema),
            self._validator.hashed,
            bundles=self.config.source.mode != "batch",
            fence=self._fence,
        )
        if batch.bundles:
            sites = ready.mapInArrow(bundle(assignment), BUNDLES).repartitionById(tasks, "task")
        else:  # all rows there are do not fit into a task's memory; those of a micro-batch do
            order = ["time", *(name for name in ready.columns if name not in ("time", "bad"))]
            sites = ready.repartition(tasks, "site").sortWithinPartitions(*order)
        return [TaskReport.read(bytes(row.report)) for row in sites.mapInArrow(grow(plan, batch), REPORT).collect()]

    def _next_version(
        self, before: StateVersion, number: int, stream: str, grown: list[TaskReport], at: datetime
    ) -> StateVersion:
        clocks, records, began = dict(before.clocks), dict(before.sites), int(at.timestamp() * 1e6)
        changed: dict[str, Any] = {}
        parts = dict(before.parts)
        for one in grown:
            clocks.update(one.clocks)
            changed.update({site: {name: tuple(at) for name, at in places.items()} for site, places in one.places.items()})
            if one.part is not None:
                parts[one.part[0]] = one.part[1]
            # A row that is rejected may name any site: the state has those that count, or would if their clocks were right.
            known = {site: rows for site, rows in one.sites.items() if site in clocks or rows[3]}
            records |= {site: records.get(site, SiteRecord()).after(rows, began) for site, rows in known.items()}
        names = {thing.name for thing in self.plan.specs}
        counts = {
            name: before.totals.get(name, 0) + sum(getattr(one, name) for one in grown)
            for name in ("counted", "late", "rejected")
        }
        return StateVersion(
            number,
            stream,
            self.plan.compatibility(),
            now=max(clocks.values(), default=None),
            clocks=clocks,
            places=with_places(before.places, changed, names),
            coordinators={name: place for name, place in before.coordinators.items() if name in names},
            raised={name: items for name, items in before.raised.items() if f"monitor {name}" in names},
            stored=before.stored,
            sites=records,
            totals=counts,
            parts=parts,
        )

    def _ask(self, version: StateVersion, grown: list[TaskReport], spark: SparkSession) -> tuple[list[dict[str, Any]], int]:
        """The answers now: from tasks that knew the newest tick, and for all other sites from a job of their own."""
        if version.now is None or not self.plan.bindings:
            return [], 0
        timely = [one for one in grown if one.now == version.now and one.share]
        sites = self._to_be_asked(version, {site for one in timely for site in one.places})
        shares = [one.share for one in timely]
        if sites:
            tasks = min(spark.sparkContext.defaultParallelism, len(sites))
            moment = Moment(self.versions.path, version.now)
            chunks = [packed({site: version.places[site] for site in sites[i::tasks]}) for i in range(tasks)]
            job = share_job(self.plan, moment, chunks)
            told = spark.range(0, tasks, 1, tasks).mapInArrow(job, REPORT).collect()
            shares += [json.loads(bytes(row.report)) for row in told]
        return answers_of(self.plan, shares)

    def _to_be_asked(self, version: StateVersion, answered: set[str]) -> list[str]:
        """The sites whose sketches must be read for the answers now.

        A site all of whose rows have left the window adds nothing to what is asked of all sites. It is read only where
        queries ask for every site by itself.
        """
        assert version.now is not None
        others = sorted(version.places.keys() - answered)
        if any(ask.query.by == "site" for ask in self.plan.bindings):
            return others
        oldest = version.now - self.plan.window.ticks
        return [site for site in others if version.clocks.get(site, version.now) > oldest]

    def _store_sketches(self, version: StateVersion, moment: Any) -> StateVersion:
        """Put the sketches of all sites into the store, if it is time to."""
        every = self.config.store.sketches
        if every == "never" or version.now is None:
            return version
        due = version.stored is None or every == "always" or version.now - version.stored >= self.plan.window.length(every)
        if not due:
            return version
        kept = {thing.name: thing.recipe.kind for thing in self.plan.specs if isinstance(thing, SketchSpec)}
        wanted = {
            site: {name: place for name, place in places.items() if name in kept}
            for site, places in sorted(version.places.items())
        }
        for part, sites in enumerate(_together({site: sum(at[2] for at in its.values()) for site, its in wanted.items()})):
            blobs = self.versions.blobs(place for site in sites for place in wanted[site].values())
            rows = [
                {
                    "version": version.batch,
                    "time": moment,
                    "site": site,
                    "sketch": name,
                    "kind": kept[name],
                    "blob": blobs[place],
                }
                for site in sites
                for name, place in wanted[site].items()
            ]
            self.store.put("sketches", version.batch, rows, f"{part:05d}")
        return StateVersion(**{name: getattr(version, name) for name in version.__dataclass_fields__} | {"stored": version.now})


def _by_task(before: StateVersion, assignment: SiteAssignment, tasks: int) -> tuple[bytes, ...]:
    """What each task has to know of its sites from the batch before: where their sketches are, their clocks and their gaps."""
    known: list[tuple[dict[str, Any], ...]] = [({}, {}, {}) for _ in range(tasks)]
    gaps = {site: record.gap for site, record in before.sites.items() if record.gap}
    contents: tuple[dict[str, Any], ...] = (before.places, before.clocks, gaps)
    for number, content in enumerate(contents):
        for site, what in content.items():
            known[assignment.task_of(site)][number][site] = what
    return tuple(packed(one) for one in known)


def _together(sizes: dict[str, int], most: int = _FILE_BYTES) -> Iterator[list[str]]:
    """Sites in groups of at most so many bytes together, where that can be.

    >>> list(_together({"lima": 4, "oslo": 3, "pune": 9, "rome": 1, "york": 2}, most=8))
    [['lima', 'oslo'], ['pune'], ['rome', 'york']]
    """
    group: list[str] = []
    total = 0
    for site, size in sizes.items():
        if group and total + size > most:
            yield group
            group, total = [], 0
        group.append(site)
        total += size
    if group:
        yield group
