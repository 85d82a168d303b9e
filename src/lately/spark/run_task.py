"""A task of a batch, on an executor: counts the rows of its sites, in time order, in what those sites keep.

Rows come hashed and validated by the JVM. All rows of a site are in one task, which sorts them by time, so that a sketch takes
them as it would outside of Spark: nothing is merged, and the result does not depend on how the stream is cut into batches. A
task also computes the partial answers of its sites, which are right if no other task has a newer row; mostly that is so.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lately.core.columns import Ints
from lately.core.errors import LatelyError
from lately.core.times import instant_of
from lately.pipeline.fence import Fence
from lately.pipeline.plan import MonitorSpec, PipelinePlan, StateSpec, WindowsSpec
from lately.pipeline.state_versions import Places, StateVersions
from lately.pipeline.task_payload import unpacked
from lately.pipeline.task_report import TaskReport
from lately.spark.ahead import AHEAD, IN_THE_FUTURE, SiteClock
from lately.spark.block import Block
from lately.spark.bundles import site_name, unbundle
from lately.spark.partial_answers import as_text, partial_answers
from lately.spark.partials import concatenate, number_groups
from lately.spark.side_tables import SideTable
from lately.spark.sites import load_sites, remember
from lately.store import Store

#: How many sorted rows are counted at a time.
_BLOCK_ROWS = 2**18
#: How many rows a task sorts at most.
_MAX_ROWS = 2**25

#: A task reports rejected rows by reason for at most this number of reasons; the table ``rejected`` has the reason of every
#: row.
_MAX_REASONS = 100
OTHER_REASONS = "other reasons"

#: Indices into the numbers that ``TaskReport.sites`` has for a site.
_COUNTED, _LATE, _REJECTED, _AHEAD, _GAP = range(5)


@dataclass(frozen=True)
class TaskInput:
    """What the tasks of a batch need besides rows and plan; it is sent to the executors.

    Parameters
    ----------
    number
        The number of the batch.
    state
        The directory of the state.
    store
        The path of the store.
    site_states
        For each task, packed: the places of its sites' state, their newest ticks, and their longest gaps in ticks.
    now
        The newest tick of all sites before this batch; None before the first row.
    time_type
        The type of times in the store.
    schema
        The columns of rows.
    hashed
        Whether the column ``key`` has hashes of keys.
    bundles
        Whether rows come in bundles; otherwise they come sorted by time.
    fence
        What allows tasks to write into the store; None without a fence.
    """

    number: int
    state: str
    store: str
    site_states: tuple[bytes, ...]
    now: int | None
    time_type: pa.DataType
    schema: pa.Schema
    hashed: bool
    bundles: bool
    fence: Fence | None = None


def run_task(plan: PipelinePlan, task_input: TaskInput) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that every task of a batch runs, for ``mapInArrow``. It yields one ``TaskReport``.

    Parameters
    ----------
    plan
        The pipeline.
    task_input
        The batch.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = Task(plan, task_input, 0 if context is None else context.partitionId())
        gathered: list[pa.RecordBatch] = []
        size = 0
        for rows in unbundle(batches, task_input.schema) if task_input.bundles else batches:
            gathered.append(rows)
            size += rows.num_rows
            if not task_input.bundles and size >= _BLOCK_ROWS:
                task.add(gathered)
                gathered, size = [], 0
            if size > _MAX_ROWS:
                raise LatelyError(
                    f"a batch has more than {_MAX_ROWS:,} rows for one task",
                    remedy="let it take fewer at a time, with the source's option maxFilesPerTrigger or maxOffsetsPerTrigger, "
                    "or give Spark more cores",
                )
        if size:
            task.add(gathered)
        yield task.finish().to_batch()

    return run


class Task:
    """Counts the rows of the sites of one partition.

    Parameters
    ----------
    plan
        The pipeline.
    task_input
        The batch.
    number
        The number of the partition.
    """

    def __init__(self, plan: PipelinePlan, task_input: TaskInput, number: int) -> None:
        self._plan, self._input = plan, task_input
        guard = None if task_input.fence is None else task_input.fence.check
        self._versions, store = StateVersions(task_input.state), Store(task_input.store, task_input.time_type, guard)
        self._late, self._rejected = (
            SideTable(store, table, task_input.number, f"{number:05d}") for table in ("late", "rejected")
        )
        self._places: Places
        self._newest: dict[str, int]
        self._gaps: dict[str, float]
        site_states = task_input.site_states
        self._places, self._newest, self._gaps = unpacked(site_states[number]) if number < len(site_states) else ({}, {}, {})
        #: What each site keeps, by the name of the spec.
        self._sites: dict[str, dict[str, Any]] = {}
        self._clocks: dict[str, SiteClock] = {}
        self._outbox: dict[str, list[str]] = {}
        self.report = TaskReport()

    # -- rows --------------------------------------------------------------------------------------------------------------

    def add(self, batches: list[pa.RecordBatch]) -> None:
        """Count a block of rows. If there are several blocks, no row is older than those of earlier blocks.

        Parameters
        ----------
        batches
            The rows, with the columns of the schema.
        """
        columns = zip(*(batch.columns for batch in batches), strict=True)
        rows = {name: concatenate(list(parts)) for name, parts in zip(self._input.schema.names, columns, strict=True)}
        size = len(rows["time"])
        self.report.rows += size
        if rows["bad"].null_count < size:
            rows, size = self._without_rejected(rows)
        if not size:
            return
        block = Block(rows, self._plan, self._input.hashed)
        codes, names = number_groups([rows["site"]], size)
        self._load([str(name) for (name,) in names])
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        for (name,), start, end in zip(names, [0, *ends[:-1]], ends, strict=True):
            site = site_name(name)
            assert site is not None  # rows without a site were rejected
            self._add_site(site, block, block.in_order(order[start:end]))

    def _without_rejected(self, rows: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Put rows with a reason into the table ``rejected``, and return the others."""
        has_reason = pc.invert(pc.starts_with(rows["bad"], "\n")).fill_null(False)
        self.report.rejected += has_reason.true_count
        if has_reason.true_count:
            texts = [text.split("\n", 1) for text in rows["bad"].filter(has_reason).to_pylist()]
            columns = {name: self._side_column(name, rows[name].filter(has_reason)) for name in ("site", "time")}
            self._rejected.add(columns | {"reason": [reason for reason, _ in texts], "row": [row for _, row in texts]})
            for reason, count in Counter(reason for reason, _ in texts).items():
                self.count_reason(reason, count)
            for (reason, _), site in zip(texts, columns["site"].to_pylist(), strict=True):
                if site is not None:
                    self._tally(site, _REJECTED, 1)
                    self._tally(site, _AHEAD, int(reason.endswith(IN_THE_FUTURE)))
            rows = {name: column.filter(pc.invert(has_reason)) for name, column in rows.items()}
        return rows, len(rows["time"])

    def count_reason(self, reason: str, rows: int) -> None:
        """Count rejected rows by reason. Reasons may quote rows, so only a limited number is counted separately.

        Parameters
        ----------
        reason
            Why they are rejected.
        rows
            How many.
        """
        reasons = self.report.reasons
        name = reason if reason in reasons or len(reasons) < _MAX_REASONS else OTHER_REASONS
        reasons[name] = reasons.get(name, 0) + rows

    def _side_column(self, name: str, column: Any) -> Any:
        """Convert the site or the time of rows to the type that side tables have."""
        if name == "site":
            return column.cast(pa.string())
        return column.cast(self._input.time_type) if pa.types.is_timestamp(self._input.time_type) else column

    def _add_site(self, site: str, block: Block, rows: Ints) -> None:
        """Count the rows of a site, which are in time order."""
        newest = self._newest.get(site)
        if newest is not None:
            late = int(np.searchsorted(block.ticks[rows], newest - self._plan.lateness))
            if late:
                self._add_late(site, block, rows[:late])
                rows = rows[late:]
        if rows.size:
            for admitted_block, admitted in self._clock(site).admit(block, rows):
                self._count_site(site, admitted_block, admitted)

    def _add_late(self, site: str, block: Block, rows: Ints) -> None:
        late = pa.array(rows)
        columns = {name: self._side_column(name, block.rows[name].take(late)) for name in ("site", "time")}
        texts = [text[1:] for text in block.rows["bad"].take(late).to_pylist()]
        self._late.add(columns | {"reason": ["late"] * rows.size, "row": texts})
        self.report.late += rows.size
        self._tally(site, _LATE, rows.size)

    def _clock(self, site: str) -> SiteClock:
        if site not in self._clocks:
            self._clocks[site] = SiteClock(self._plan.ahead, self._newest.get(site), self._gaps.get(site, 0.0))
        return self._clocks[site]

    def _tally(self, site: str, index: int, rows: int) -> None:
        self.report.sites.setdefault(site, [0, 0, 0, 0, 0.0])[index] += rows

    def _count_site(self, site: str, block: Block, rows: Ints) -> None:
        """Count rows of a site in everything that it keeps."""
        report, contents = self.report, self._sites[site]
        report.counted += int(rows.size)
        self._tally(site, _COUNTED, int(rows.size))
        report.everything += int(rows.size) * block.row_bytes
        newest, earlier = int(block.ticks[rows[-1]]), self._newest.get(site)
        report.clocks[site] = max(newest, report.clocks.get(site, newest if earlier is None else earlier))
        for spec in self._plan.specs:
            streams = spec.streams if isinstance(spec, MonitorSpec) else (("", spec.filter_bit),)
            for stream, bit in streams:
                passing = rows if bit is None else rows[block.where[rows] >> bit & 1 == 1]
                if passing.size:
                    self._update(spec, stream, contents[spec.name], block, passing)

    def _update(self, spec: StateSpec, stream: str, content: Any, block: Block, rows: Ints) -> None:
        times, counts = block.times[rows], None if block.counts is None else block.counts[rows]
        if isinstance(spec, WindowsSpec):
            columns = {name: column.take(pa.array(rows)) for name, column in block.exact_columns.items()}
            content.update(columns or {"time": times}, times)
        elif isinstance(spec, MonitorSpec):
            self._send(spec.name, content.update(block.keys_at(rows), times, counts, stream))
        elif spec.recipe.key_encoding == "number":
            assert block.values is not None
            content.update(block.values[rows], times, counts)
        elif spec.recipe.key_encoding == "integer":
            content.update(block.integers[rows], times, counts)
        else:
            content.update(block.keys_at(rows), times, counts)

    def _load(self, sites: Iterable[str]) -> None:
        """Load what these sites keep, except for those that are loaded already."""
        missing = {site: self._places.get(site, {}) for site in sites if site not in self._sites}
        if missing:
            self._sites |= load_sites(self._versions, self._plan.specs, missing, take=True)

    def _send(self, monitor: str, messages: Iterable[Any]) -> None:
        self._outbox.setdefault(monitor, []).extend(as_text(message.to_bytes()) for message in messages)

    # -- the end -------------------------------------------------------------------------------------------------------------

    def finish(self) -> TaskReport:
        """Write what sites keep into the state, and return the report."""
        report = self.report
        self._late.flush()
        self._rejected.flush()
        self._reject_ahead()
        self._advance_monitors()
        report.messages = self._outbox
        entries = [
            (site, name, content) for site, contents in sorted(self._sites.items()) for name, content in contents.items()
        ]
        if entries:
            part, ranges = self._versions.write_part(self._input.number, [content.to_bytes() for _, _, content in entries])
            report.part = part, sum(length for _, length in ranges)
            for (site, name, content), (offset, length) in zip(entries, ranges, strict=True):
                report.places.setdefault(site, {})[name] = (part, offset, length)
                remember((part, offset, length), content)
        ticks = [tick for tick in (self._input.now, *report.clocks.values()) if tick is not None]
        if ticks and self._plan.bindings:
            report.now = max(ticks)
            report.partial_answers = partial_answers(self._plan, report.now, sorted(self._sites.items()))
        return report

    def _reject_ahead(self) -> None:
        """Count the rows that are ahead. The driver writes them, since their text was not passed to Python."""
        for site, clock in self._clocks.items():
            self._tally(site, _GAP, 0)
            self.report.sites[site][_GAP] = clock.gap
            if clock.held_back_from is not None:
                self.report.rejected += clock.held_back
                self.count_reason(AHEAD, clock.held_back)
                self._tally(site, _REJECTED, clock.held_back)
                self._tally(site, _AHEAD, clock.held_back)
                self.report.ahead[site] = clock.held_back_from

    def _advance_monitors(self) -> None:
        """Advance the sites of monitors to their newest tick, which also announces new sites that had no row for a monitor."""
        for site, contents in sorted(self._sites.items()):
            tick = self.report.clocks.get(site, self._newest.get(site))
            for spec in self._plan.monitors:
                if tick is not None:
                    self._send(spec.name, contents[spec.name].advance(instant_of(tick, self._plan.window)))
