"""A batch, on the executors: each site's rows, in time order, into each site's sketches.

Rows come hashed and judged by the JVM, all of a site's in one partition. Sorted by time, a sketch takes them as it would
outside of Spark: nothing is merged, and how a stream is cut into batches changes nothing. Most tasks can also say what
their sites answer, as the newest row that they have seen is mostly the newest of all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lately.core.columns import Ints
from lately.core.errors import LatelyError
from lately.core.keys import HashedKeys, Hashes, IntegerKeys, Keys, all_hashes, key_column
from lately.core.splitmix64 import GAMMA
from lately.core.times import instant_of, ticks_of
from lately.pipeline.fence import Fence
from lately.pipeline.plan import MonitorSpec, PipelinePlan, WindowsSpec
from lately.pipeline.state_versions import Places, StateVersions, unpacked
from lately.pipeline.task_report import TaskReport
from lately.spark.ahead import AHEAD, IN_THE_FUTURE, SiteClock
from lately.spark.ask import as_text, share
from lately.spark.bundles import site_name, unbundled
from lately.spark.partials import grouped, together
from lately.spark.side_tables import SideTable
from lately.spark.sites import load_sites, remember
from lately.store import Store

#: Rows that are counted at a time where they come sorted.
_ROWS = 2**18
#: Rows that a task sorts by itself.
_MOST = 2**25

#: Reasons of rejected rows that a task tells apart; the table `rejected` has them all.
_REASONS = 100
OTHER_REASONS = "other reasons"

_32 = np.uint64(32)


@dataclass(frozen=True)
class Batch:
    """What tasks have to know of a batch; it travels to the executors."""

    number: int
    state: str
    store: str
    #: Of each task's sites, packed, by task: where their sketches are, their newest ticks, and the longest gaps that they are
    #: known for, in ticks.
    known: tuple[bytes, ...]
    #: The newest tick of all sites before this batch.
    now: int | None
    moment: pa.DataType
    schema: pa.Schema
    #: Whether keys are hashes.
    hashed: bool
    #: Whether rows come in bundles, or as they are and sorted by time.
    bundles: bool
    #: What allows tasks to write into the store.
    fence: Fence | None = None


def grow(plan: PipelinePlan, batch: Batch) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What every task of a batch runs."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = _Task(plan, batch, 0 if context is None else context.partitionId())
        waiting: list[pa.RecordBatch] = []
        size = 0
        for rows in unbundled(batches, batch.schema) if batch.bundles else batches:
            waiting.append(rows)
            size += rows.num_rows
            if not batch.bundles and size >= _ROWS:
                task.take(waiting)
                waiting, size = [], 0
            if size > _MOST:
                raise LatelyError(
                    f"a batch has more than {_MOST:,} rows for one task; let it take fewer at a time, with the source's option "
                    "maxFilesPerTrigger or maxOffsetsPerTrigger, or give Spark more cores"
                )
        if size:
            task.take(waiting)
        yield task.finish().to_batch()

    return run


class _Task:
    """The sites of one partition."""

    def __init__(self, plan: PipelinePlan, batch: Batch, number: int) -> None:
        self._plan, self._batch = plan, batch
        guard = None if batch.fence is None else batch.fence.check
        self._versions, store = StateVersions(batch.state), Store(batch.store, batch.moment, guard)
        self._late, self._rejected = (SideTable(store, table, batch.number, f"{number:05d}") for table in ("late", "rejected"))
        self._places: Places
        self._newest: dict[str, int]
        self._gaps: dict[str, float]
        known = unpacked(batch.known[number]) if number < len(batch.known) else ({}, {}, {})
        self._places, self._newest, self._gaps = known
        self._sites: dict[str, dict[str, Any]] = {}
        self._clocks: dict[str, SiteClock] = {}
        self._ahead = plan.ahead
        self._done = TaskReport()
        self._outbox: dict[str, list[str]] = {}

    # -- rows --------------------------------------------------------------------------------------------------------------

    def take(self, batches: list[pa.RecordBatch]) -> None:
        """Count a block of rows; one that comes after another is nowhere older."""
        columns_of = zip(*(batch.columns for batch in batches), strict=True)
        rows = {name: together(list(parts)) for name, parts in zip(self._batch.schema.names, columns_of, strict=True)}
        size = len(rows["time"])
        self._done.rows += size
        if rows["bad"].null_count < size:
            rows, size = self._without_rejected(rows)
        if not size:
            return
        columns = _Columns(rows, self._plan, self._batch.hashed)
        codes, names = grouped([rows["site"]], size)
        self._load([str(name) for (name,) in names])  # those without one were rejected
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        for (name,), start, end in zip(names, [0, *ends[:-1]], ends, strict=True):
            site = site_name(name)
            assert site is not None  # those without one were rejected
            self._take_site(site, columns, columns.in_order(order[start:end]))

    def _without_rejected(self, rows: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Put rows that have a reason aside."""
        reasoned = pc.invert(pc.starts_with(rows["bad"], "\n")).fill_null(False)
        self._done.rejected += reasoned.true_count
        if reasoned.true_count:
            told = [text.split("\n", 1) for text in rows["bad"].filter(reasoned).to_pylist()]
            known = {name: self._shown(name, rows[name].filter(reasoned)) for name in ("site", "time")}
            self._rejected.add(known | {"reason": [reason for reason, _ in told], "row": [row for _, row in told]})
            for reason, rejected in Counter(reason for reason, _ in told).items():
                self._count_reason(reason, rejected)
            for (reason, _), site in zip(told, known["site"].to_pylist(), strict=True):
                if site is not None:
                    self._tally(site, 2, 1)
                    self._tally(site, 3, int(reason.endswith(IN_THE_FUTURE)))
            rows = {name: column.filter(pc.invert(reasoned)) for name, column in rows.items()}
        return rows, len(rows["time"])

    def _count_reason(self, reason: str, rows: int) -> None:
        """Count rows by their reason. A reason may quote the row, so only some are counted separately."""
        reasons = self._done.reasons
        known = reason if reason in reasons or len(reasons) < _REASONS else OTHER_REASONS
        reasons[known] = reasons.get(known, 0) + rows

    def _shown(self, name: str, column: Any) -> Any:
        """A column as side tables have it."""
        if name == "site":
            return column.cast(pa.string())
        return column.cast(self._batch.moment) if pa.types.is_timestamp(self._batch.moment) else column

    def _take_site(self, site: str, columns: "_Columns", mine: Ints) -> None:
        clock = self._newest.get(site)
        if clock is not None:  # what is late comes first
            first = int(np.searchsorted(columns.ticks[mine], clock - self._plan.lateness))
            if first:
                late = pa.array(mine[:first])
                known = {name: self._shown(name, columns.rows[name].take(late)) for name in ("site", "time")}
                told = [text[1:] for text in columns.rows["bad"].take(late).to_pylist()]
                self._late.add(known | {"reason": ["late"] * first, "row": told})
                self._done.late += first
                self._tally(site, 1, first)
                mine = mine[first:]
        if mine.size:
            for block, rows in self._clock(site).admit(columns, mine):
                self._count_site(site, block, rows)

    def _clock(self, site: str) -> SiteClock:
        if site not in self._clocks:
            self._clocks[site] = SiteClock(self._ahead, self._newest.get(site), self._gaps.get(site, 0.0))
        return self._clocks[site]

    def _tally(self, site: str, column: int, rows: int) -> None:
        self._done.sites.setdefault(site, [0, 0, 0, 0, 0.0])[column] += rows

    def _count_site(self, site: str, columns: "_Columns", mine: Ints) -> None:
        things = self._sites[site]
        self._done.counted += int(mine.size)
        self._tally(site, 0, int(mine.size))
        self._done.everything += int(mine.size) * columns.row_bytes
        newest, clock = int(columns.ticks[mine[-1]]), self._newest.get(site)
        self._done.clocks[site] = max(newest, self._done.clocks.get(site, newest if clock is None else clock))
        for thing in self._plan.specs:
            streams = thing.streams if isinstance(thing, MonitorSpec) else (("", thing.filter_bit),)
            for stream, bit in streams:
                passed = mine if bit is None else mine[columns.where[mine] >> bit & 1 == 1]
                if passed.size:
                    self._count(thing, stream, things[thing.name], columns, passed)

    def _count(self, thing: Any, stream: str, sketch: Any, columns: "_Columns", rows: Ints) -> None:
        times, counts = columns.times[rows], None if columns.counts is None else columns.counts[rows]
        if isinstance(thing, WindowsSpec):
            sketch.update(
                {name: column.take(pa.array(rows)) for name, column in columns.extras.items()} or {"time": times}, times
            )
        elif isinstance(thing, MonitorSpec):
            self._send(thing.name, sketch.update(columns.keys_at(rows), times, counts, stream))
        elif thing.recipe.key_encoding == "number":
            assert columns.values is not None
            sketch.update(columns.values[rows], times, counts)
        elif thing.recipe.key_encoding == "integer":
            sketch.update(columns.integers[rows], times, counts)
        else:
            sketch.update(columns.keys_at(rows), times, counts)

    def _load(self, sites: Iterable[str]) -> None:
        """Have the sketches of these sites here, all that are missing in one go."""
        missing = {site: self._places.get(site, {}) for site in sites if site not in self._sites}
        if missing:
            self._sites |= load_sites(self._versions, self._plan.specs, missing, take=True)

    def _send(self, monitor: str, messages: Iterable[Any]) -> None:
        said = self._outbox.setdefault(monitor, [])
        said += [as_text(message.to_bytes()) for message in messages]

    # -- the end -------------------------------------------------------------------------------------------------------------

    def finish(self) -> TaskReport:
        """Write what has changed, and tell where it is."""
        self._late.flush()
        self._rejected.flush()
        self._refuse()
        self._age()
        entries = [(site, name, thing) for site, things in sorted(self._sites.items()) for name, thing in things.items()]
        self._done.messages = self._outbox
        if entries:
            part, at = self._versions.write_part(self._batch.number, [thing.to_bytes() for _, _, thing in entries])
            self._done.part = part, sum(length for _, length in at)
            for (site, name, thing), where in zip(entries, at, strict=True):
                place = (part, *where)
                self._done.places.setdefault(site, {})[name] = place
                remember(place, thing)
        times = [tick for tick in (self._batch.now, *self._done.clocks.values()) if tick is not None]
        if times and self._plan.bindings:
            self._done.now = max(times)
            self._done.share = share(self._plan, self._done.now, sorted(self._sites.items()))
        return self._done

    def _refuse(self) -> None:
        """Count the rows that are ahead; the driver has them written, since they have not crossed as they were."""
        for site, clock in self._clocks.items():
            self._tally(site, 4, 0)
            self._done.sites[site][4] = clock.gap
            if clock.held_back_from is not None:
                self._done.rejected += clock.held_back
                self._count_reason(AHEAD, clock.held_back)
                self._tally(site, 2, clock.held_back)
                self._tally(site, 3, clock.held_back)
                self._done.ahead[site] = clock.held_back_from

    def _age(self) -> None:
        """Let monitors know of the time that has passed, and of new sites, where no row was for them."""
        for site, things in sorted(self._sites.items()):
            clock = self._done.clocks.get(site, self._newest.get(site))
            for thing in self._plan.monitors:
                if clock is not None:
                    moment = instant_of(clock, self._plan.window)
                    self._send(thing.name, things[thing.name].advance(moment))


class _Columns:
    """The columns of a block as sketches take them."""

    def __init__(self, rows: dict[str, Any], plan: PipelinePlan, hashed: bool) -> None:
        self.rows, self._plan, self._hashed = rows, plan, hashed
        raw = rows["time"].to_numpy(zero_copy_only=False)
        self.times = raw.view("datetime64[us]") if plan.window.kind == "time" else raw
        self.ticks = ticks_of(self.times, plan.window)
        self.where: Ints = rows["where"].to_numpy(zero_copy_only=False) if "where" in rows else np.empty(0, np.int64)
        self.counts = rows["count"].to_numpy(zero_copy_only=False) if "count" in rows else None
        self.values = rows["value"].to_numpy(zero_copy_only=False) if "value" in rows else None
        self.extras = {text: rows[f"x{i}"] for i, text in enumerate(plan.exact_columns)}
        self._column: Keys | None = None
        self._hashes: Hashes
        if hashed:
            self._hashes = rows["key"].to_numpy(zero_copy_only=False).view(np.uint64)
        else:
            self._column = key_column(rows["key"])
            self._hashes = all_hashes(self._column)

    @property
    def row_bytes(self) -> int:
        """What a row would take to be sent: a hash, a step of time, and the numbers that are asked for."""
        numbers = (self.counts is not None) + (self.values is not None) + len(self.extras)
        return 8 + 1 + 8 * numbers

    def part(self, rows: Ints) -> "_Columns":
        """Some of the rows, as a block that does not hold on to the others."""
        chosen = pa.array(rows)
        return _Columns({name: column.take(chosen) for name, column in self.rows.items()}, self._plan, self._hashed)

    def in_order(self, rows: Ints) -> Ints:
        """Rows by time, and those of one time by what they hold: shuffles hand them over in any order."""
        times = self.times.view(np.int64)[rows]
        ages, mixed = (times - times.min()).view(np.uint64), self._mixed[rows]
        bits = int(ages.max()).bit_length()
        # One word to sort by, the time above what fits of the rest: seldom do different rows have it in common.
        word = ages << np.uint64(64 - bits) | mixed >> np.uint64(bits) if bits else mixed
        order = np.argsort(word)
        word, mixed = word[order], mixed[order]
        if ((word[1:] == word[:-1]) & (mixed[1:] != mixed[:-1])).any():
            order = np.lexsort((self._mixed[rows], ages))
        return rows[order]

    @cached_property
    def _mixed(self) -> Hashes:
        """What tells apart rows of the same time: a number from all else that they hold."""
        numbers = [column for column in self.extras.values() if pa.types.is_primitive(column.type)]
        known = (self.where if self.where.size else None, self.counts, self.values)
        mixed = self._hashes
        for column in (*(column.to_numpy(zero_copy_only=False) for column in numbers), *known):
            if column is not None:
                mixed = (mixed ^ (mixed >> _32) ^ column.view(np.uint64)) * GAMMA
        return mixed

    @property
    def integers(self) -> Ints:
        assert isinstance(self._column, IntegerKeys)
        return self._column.values

    def keys_at(self, rows: Ints) -> HashedKeys:
        return HashedKeys(self._hashes[rows], self._column, None if self._column is None else rows)
