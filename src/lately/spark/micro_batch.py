"""One micro-batch of a pipeline: from the rows of the source to tables in the store and a new version of the state.

The batch reads version n - 1 of the state, and names all that it writes by its own number n. Publishing version n is its last
step but one: a batch that was interrupted before is run again and writes the same files; afterwards it is done, whether or not
Spark has noted that. The last step is upkeep of the store, which may be repeated too.
"""

import json
import time as clock
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from lately.config import Config
from lately.core.times import instant_of
from lately.pipeline.batch_report import BatchReport
from lately.pipeline.plan import PipelinePlan
from lately.pipeline.site_assignment import SiteAssignment
from lately.pipeline.site_record import SiteRecord
from lately.pipeline.state_versions import StateVersion, StateVersions, with_places
from lately.pipeline.task_payload import packed
from lately.pipeline.task_report import REPORT, TaskReport, all_reasons
from lately.spark.arrow_types import arrow_schema
from lately.spark.bundles import BUNDLES, bundle
from lately.spark.fast_clock_rows import write_fast_clock_rows
from lately.spark.partial_answers import Row, combine_answers, partial_answers_job
from lately.spark.rounds import settle
from lately.spark.rows import RowValidator
from lately.spark.run_guard import RunGuard
from lately.spark.run_task import TaskInput, run_task
from lately.spark.stored_sketches import store_sketches
from lately.store import Store
from lately.store.tables import Alert, Answer, Run, SiteRow, Time
from lately.store.upkeep import is_due, tidy


@dataclass(frozen=True)
class RunContext:
    """What the batches of a run share.

    Parameters
    ----------
    config
        The pipeline file.
    plan
        What sites keep, and what answers which query.
    store
        The tables.
    versions
        The state.
    validator
        Validates and converts the rows of the source.
    guard
        Checks that no other run has taken over.
    """

    config: Config
    plan: PipelinePlan
    store: Store
    versions: StateVersions
    validator: RowValidator
    guard: RunGuard


class MicroBatch:
    """Processes one micro-batch.

    Parameters
    ----------
    context
        The run.
    rows
        The rows of the batch, as the source returns them.
    number
        Its number, from 0 on.
    stream
        Spark's identifier of the stream.
    """

    def __init__(self, context: RunContext, rows: DataFrame, number: int, stream: str) -> None:
        self._context, self._rows, self._number, self._stream = context, rows, number, stream
        self._plan, self._store, self._versions = context.plan, context.store, context.versions
        self._spark: SparkSession = rows.sparkSession
        self._began, self._started_at = clock.perf_counter(), datetime.now(UTC)
        self._after: StateVersion | None = None
        self._now_before: int | None = None

    def process(self) -> BatchReport | None:
        """Count the rows, answer the queries, and publish the new version of the state.

        Returns None if an earlier run published this batch, but Spark did not note it.
        """
        number, published = self._number, self._versions.batches()
        self._context.guard.protect(number, published=number in published)
        if number in published:
            self._now_before = self._versions.read(number - 1).now if number - 1 in published else None
            self._after = self._versions.read(number)
            return None
        before = self._previous_version()
        self._store.clear(number)
        reports = self._run_tasks(before)
        write_fast_clock_rows(self._rows, self._context.validator, reports, self._store, number)
        after = self._next_version(before, reports)
        monitored = settle(self._plan, self._versions, after, reports, self._spark)
        rows, shipped = self._answers(after, reports)
        after = self._versions.compacted(after)
        time = None if after.now is None else cast(Time, instant_of(after.now, self._plan.window))
        answers, alerts = self._write_answers([*rows, *monitored.answers], monitored.alerts, time)
        self._store.put("sites", number, _site_rows(self._plan, after))
        after = store_sketches(self._context.config, self._plan, self._store, self._versions, after)
        self._write_run(reports, after, time, (shipped, monitored.message_bytes))
        self._publish(after)
        self._now_before, self._after = before.now, after
        return BatchReport(
            number,
            time,
            **_counts(reports),
            sites=len(after.places),
            seconds=self._seconds(),
            state_bytes=after.live_bytes,
            answers=answers,
            alerts=alerts,
            reasons=all_reasons(reports),
        )

    def _previous_version(self) -> StateVersion:
        """Return the version that this batch continues; the first batch of a stream claims the store."""
        if self._number > 0:
            return self._versions.read(self._number - 1)
        if self._context.config.source.mode != "batch":
            self._store.claim(f"stream {self._stream}")
        return StateVersion(-1, self._stream, {})

    def _publish(self, version: StateVersion) -> None:
        """Publish the new version of the state: from here on the batch is done."""
        self._versions.write(version, self._context.guard.check_lease)
        self._context.guard.protect(self._number, published=True)
        self._versions.tidy()

    def _seconds(self) -> float:
        return clock.perf_counter() - self._began

    def upkeep(self) -> None:
        """Remove old rows from the store and merge small files, if that is due after this batch. Call it after ``process``."""
        after, keep = self._after, self._context.config.store.keep
        if after is not None and is_due(after.batch, self._now_before, after.now, self._plan.keep):
            self._context.guard.check()
            tidy(self._store, keep, after.batch)

    # -- counting ------------------------------------------------------------------------------------------------------------

    def _run_tasks(self, before: StateVersion) -> list[TaskReport]:
        """Count the rows on the executors, and return the reports of the tasks."""
        prepared = self._context.validator.prepare(self._rows, _late_before(self._plan, before))
        tasks = self._spark.sparkContext.defaultParallelism
        assignment = SiteAssignment(before.places, tasks)
        task_input = TaskInput(
            self._number,
            self._versions.path,
            self._store.path,
            pack_site_states(before, assignment, tasks),
            before.now,
            self._store.schema("rejected").field("time").type,
            arrow_schema(prepared.schema),
            self._context.validator.hashed,
            bundles=self._context.config.source.mode != "batch",
            fence=self._context.guard.fence,
        )
        if task_input.bundles:
            by_task = prepared.mapInArrow(bundle(assignment), BUNDLES).repartitionById(tasks, "task")
        else:  # the rows of a micro-batch fit into the memory of a task, those of a whole source do not: Spark sorts them
            order = ["time", *(name for name in prepared.columns if name not in ("time", "bad"))]
            by_task = prepared.repartition(tasks, "site").sortWithinPartitions(*order)
        cells = by_task.mapInArrow(run_task(self._plan, task_input), REPORT).collect()
        return [TaskReport.read(bytes(row.report)) for row in cells]

    def _next_version(self, before: StateVersion, reports: list[TaskReport]) -> StateVersion:
        """Return the version of the state after the tasks; monitors and stored sketches change it further."""
        clocks, records, parts = dict(before.clocks), dict(before.sites), dict(before.parts)
        micros = int(self._started_at.timestamp() * 1e6)
        changed: dict[str, Any] = {}
        for report in reports:
            clocks.update(report.clocks)
            changed.update({site: {name: tuple(at) for name, at in places.items()} for site, places in report.places.items()})
            if report.part is not None:
                parts[report.part[0]] = report.part[1]
            # A rejected row may name any site, so the state includes only sites with counted rows or with rows that are ahead.
            rows_of = {site: rows for site, rows in report.sites.items() if site in clocks or rows[3]}
            records |= {site: records.get(site, SiteRecord()).after(rows, micros) for site, rows in rows_of.items()}
        names = {spec.name for spec in self._plan.specs}
        totals = {name: before.totals.get(name, 0) + _sum(reports, name) for name in ("counted", "late", "rejected")}
        return StateVersion(
            self._number,
            self._stream,
            self._plan.compatibility(),
            now=max(clocks.values(), default=None),
            clocks=clocks,
            places=with_places(before.places, changed, names),
            coordinators={name: place for name, place in before.coordinators.items() if name in names},
            firing={name: items for name, items in before.firing.items() if f"monitor {name}" in names},
            stored=before.stored,
            sites=records,
            totals=totals,
            parts=parts,
        )

    # -- answers -------------------------------------------------------------------------------------------------------------

    def _answers(self, version: StateVersion, reports: list[TaskReport]) -> tuple[list[Row], int]:
        """Return all answers, and how many bytes were sent for those over all sites.

        Tasks that knew the newest tick of all sites have answered already. All other sites are read in a job of their own.
        """
        if version.now is None or not self._plan.bindings:
            return [], 0
        up_to_date = [report for report in reports if report.now == version.now and report.partial_answers]
        parts = [report.partial_answers for report in up_to_date]
        sites = self._unanswered_sites(version, {site for report in up_to_date for site in report.places})
        if sites:
            tasks = min(self._spark.sparkContext.defaultParallelism, len(sites))
            chunks = [packed({site: version.places[site] for site in sites[i::tasks]}) for i in range(tasks)]
            job = partial_answers_job(self._plan, self._versions.path, version.now, chunks)
            cells = self._spark.range(0, tasks, 1, tasks).mapInArrow(job, REPORT).collect()
            parts += [json.loads(bytes(row.report)) for row in cells]
        return combine_answers(self._plan, parts)

    def _unanswered_sites(self, version: StateVersion, answered: set[str]) -> list[str]:
        """Return the other sites that answers depend on.

        A site all of whose rows have left the window adds nothing to answers over all sites, so it is read only if a query asks
        about every site separately.
        """
        assert version.now is not None
        others = sorted(version.places.keys() - answered)
        if any(binding.query.by == "site" for binding in self._plan.bindings):
            return others
        oldest = version.now - self._plan.window.ticks
        return [site for site in others if version.clocks.get(site, version.now) > oldest]

    def _write_answers(
        self, answer_rows: list[Row], alert_rows: list[Row], time: Time | None
    ) -> tuple[list[Answer], list[Alert]]:
        """Write answers and alerts into the store, and return them with time and batch."""
        answers = [Answer(time, self._number, **row) for row in answer_rows]
        alerts = [Alert(time, self._number, **row) for row in alert_rows]
        self._store.put("answers", self._number, answers)
        self._store.put("alerts", self._number, alerts)
        return answers, alerts

    def _write_run(self, reports: list[TaskReport], after: StateVersion, time: Time | None, sent: tuple[int, int]) -> None:
        """Write the row of the table ``runs``. ``sent`` has the bytes that answers and monitors have sent."""
        run = Run(
            self._number,
            time,
            self._started_at,
            self._seconds(),
            **_counts(reports),
            sites=len(after.places),
            state_bytes=after.live_bytes,
            shipped_bytes=sent[0],
            monitor_bytes=sent[1],
            everything_bytes=_sum(reports, "everything"),
        )
        self._store.put("runs", self._number, [run])


def _counts(reports: list[TaskReport]) -> dict[str, int]:
    return {name: _sum(reports, name) for name in ("rows", "counted", "late", "rejected")}


def _sum(reports: list[TaskReport], name: str) -> int:
    return sum(getattr(report, name) for report in reports)


def _late_before(plan: PipelinePlan, before: StateVersion) -> int | None:
    """Return the time, in the unit of the source, from which on no row is late; None if no row can be late.

    A row is late if it is before the floor of its site, so this is the highest floor of all sites.
    """
    floors = [tick - plan.lateness for tick in before.clocks.values()]
    if not floors:
        return None
    unit = plan.window.unit
    return -(-max(floors) * unit // 1000) if plan.window.kind == "time" else max(floors) * unit


def _site_rows(plan: PipelinePlan, version: StateVersion) -> list[SiteRow]:
    """Return the rows of the table ``sites`` after a batch."""

    def instant(micros: int | None) -> datetime | None:
        return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)

    clocks, window = version.clocks, plan.window
    return [
        SiteRow(
            version.batch,
            site,
            cast(Time, instant_of(clocks[site], window)) if site in clocks else None,
            instant(record.seen),
            record.counted,
            record.late,
            record.rejected,
            record.ahead,
            instant(record.ahead_seen),
        )
        for site, record in sorted(version.sites.items())
    ]


def pack_site_states(before: StateVersion, assignment: SiteAssignment, tasks: int) -> tuple[bytes, ...]:
    """Return, for each task, what it needs to know about its sites: places, newest ticks and longest gaps, packed.

    Parameters
    ----------
    before
        The version of the state before the batch.
    assignment
        The task of every site.
    tasks
        How many tasks there are.
    """
    states: list[tuple[dict[str, Any], ...]] = [({}, {}, {}) for _ in range(tasks)]
    gaps = {site: record.gap for site, record in before.sites.items() if record.gap}
    columns: tuple[dict[str, Any], ...] = (before.places, before.clocks, gaps)
    for index, column in enumerate(columns):
        for site, value in column.items():
            states[assignment.task_of(site)][index][site] = value
    return tuple(packed(state) for state in states)
