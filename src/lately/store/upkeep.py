"""Retention and compaction: old batches are removed, and the small files of many batches are merged into one.

Both may be interrupted at any moment and repeated. A file of many batches is written as a whole; from then on readers take it
instead of the files within its range, and only then are these deleted. Files of the newest batches are not merged, since a
batch that was interrupted is run again and replaces its own files.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lately.core.durations import nanoseconds
from lately.core.errors import FormatError, ParameterError
from lately.store.files import File, effective_files
from lately.store.store import Store
from lately.store.tables import batch_column, tables

#: The number of newest batches that keep their own files; Spark runs only the last one again.
ALONE = 16
#: The number of batches that are merged into one file, and of such files into a larger one.
BLOCK = 64
#: The number of batches that are merged if a full block is too large for one file.
_SMALL_BLOCK = 8
#: The maximum size of a merged file, in bytes; larger files are no faster to read.
MOST_BYTES = 16 * 2**20
#: The number of versions of the sketches that are kept if no retention is configured.
VERSIONS = 100
#: The number of snapshots of the sites that are kept; readers need only the newest.
SNAPSHOTS = 3
#: Expiry runs every keep/16 of the stream's time.
_SHARE = 16
#: Unfinished files this much older than the newest batch are deleted, in nanoseconds.
_HOUR = 3_600 * 10**9


@dataclass(frozen=True)
class Tidied:
    """The result of an upkeep.

    Parameters
    ----------
    merged
        Files that were merged into others.
    into
        Files that these became.
    expired
        Files that were removed because they were old.
    unreadable
        Files that cannot be read and were left as they are; ``lately store check`` says what is wrong with them.
    """

    merged: int = 0
    into: int = 0
    expired: int = 0
    unreadable: tuple[str, ...] = ()


def is_due(batch: int, was: int | None, now: int | None, keep: int | None) -> bool:
    """Whether there may be something to do after a batch, before which it was ``was``; times and lengths are in ticks.

    It depends on nothing else, so that a stream that was interrupted leaves the same files as one that was not.

    >>> [batch for batch in range(300) if is_due(batch, None, None, None)], is_due(7, 999, 1_000, keep=1_600)
    ([79, 143, 207, 271], True)
    """
    if batch >= BLOCK and batch % BLOCK == ALONE - 1:
        return True
    step = None if keep is None else max(1, keep // _SHARE)
    return step is not None and now is not None and (was is None or now // step != was // step)


def tidy(store: Store, keep: str | int | None = None, batch: int | None = None) -> Tidied:
    """Remove rows older than ``keep``, and merge small files of old batches.

    Parameters
    ----------
    store
        The store.
    keep
        How long rows are kept: a length of time, or an integer where times are integers; by default for ever.
    batch
        The newest finished batch; by default the newest in the table ``runs``.

    >>> from tempfile import mkdtemp
    >>> from lately.store.tables import TIME_TYPES
    >>> store = Store(mkdtemp(), TIME_TYPES["integer"])
    >>> for batch in range(100):
    ...     store.put("runs", batch, [{"batch": batch, "time": 10 * batch}])
    >>> tidy(store, keep=800)
    Tidied(merged=45, into=1, expired=19, unreadable=())
    >>> [file.name for file in store.files("runs")][:2]
    ['000000000000..000000000063.parquet', '000000000064.parquet']
    """
    runs = store.files("runs")
    if not runs:
        return Tidied()
    newest = runs[-1].last if batch is None else batch
    work = _Upkeep(store, newest)
    work.finish()
    if keep is not None:
        work.expire(runs, keep)
    else:
        work.thin_sketches()
    work.thin_sites()
    work.compact()
    work.sweep(runs[-1])
    return Tidied(work.merged, work.into, work.expired, tuple(dict.fromkeys(work.unreadable)))


class _Upkeep:
    """One pass over all tables."""

    def __init__(self, store: Store, newest: int) -> None:
        self._store, self._newest = store, newest
        self.merged = self.into = self.expired = 0
        self.unreadable: list[str] = []

    def finish(self) -> None:
        """Delete files that a merged file replaces, which an interrupted upkeep has left."""
        for table in _merged_tables():
            files = self._store.all_files(table)
            needed = {file.name for file in effective_files(files)}
            for file in files:
                if file.name not in needed:
                    self._store.remove(file)

    # -- what is old ---------------------------------------------------------------------------------------------------

    def expire(self, runs: list[File], keep: str | int) -> None:
        """Remove what batches have left whose time is older than the newest less ``keep``.

        ``runs`` goes last, from its oldest batch on: it says what is old, also to whoever does this again after a crash.
        """
        last = self._last_old(runs, keep)
        if last is None:
            return
        self._remove_versions([version for version in self._versions()[:-1] if version <= last])
        for table in (*(name for name in _merged_tables() if name != "runs"), "runs"):
            for file in self._store.all_files(table):
                if file.last <= last:
                    self._remove(file)
                elif file.first <= last:
                    self._cut(table, file, last)

    def _last_old(self, runs: list[File], keep: str | int) -> int | None:
        """The newest batch that is old; times never run back from batch to batch."""
        now = next((time for file in reversed(runs) for time in reversed(self._column(file, "time")) if time is not None), None)
        limit = None if now is None else _before(now, keep)
        last = None
        for file in runs if limit is not None else ():
            rows = self._read("runs", file, ["batch", "time"])
            if rows is None:
                continue
            is_old = pc.less(rows["time"], pa.scalar(limit, rows["time"].type))
            old = rows.filter(is_old)
            if old.num_rows:
                last = pc.max(old["batch"]).as_py()
            if old.num_rows + rows["time"].null_count < rows.num_rows:
                break
        return last

    def _column(self, file: File, name: str) -> list[Any]:
        rows = self._read("runs", file, [name])
        return [] if rows is None else list(rows[name].to_pylist())

    def _cut(self, table: str, file: File, last: int) -> None:
        """Write a file of many batches again, without those that are old."""
        rows = self._read(table, file)
        if rows is None:
            return
        young = rows.filter(pc.greater(rows[batch_column(table)], last))
        if not young.num_rows:
            self._remove(file)
        elif young.num_rows < rows.num_rows and self._store.replaces:
            self._store.put_range(table, file.first, file.last, young)

    def thin_sketches(self) -> None:
        """Remove all versions of the sketches but the newest ones: each is as large as the state."""
        self._remove_versions(self._versions()[:-VERSIONS])

    def thin_sites(self) -> None:
        """Remove all snapshots of the sites but the newest ones, however old these are: each replaces those before it."""
        self._remove_versions(self._versions("sites")[:-SNAPSHOTS], "sites")

    def _versions(self, table: str = "sketches") -> list[int]:
        """The stored versions, oldest first, without one that is still being written."""
        return sorted({file.first for file in self._store.all_files(table) if file.last <= self._newest})

    def _remove_versions(self, versions: Iterable[int], table: str = "sketches") -> None:
        gone = set(versions)
        for file in self._store.all_files(table) if gone else ():
            if file.first in gone:
                self._remove(file)

    def _remove(self, file: File) -> None:
        self._store.remove(file)
        self.expired += 1

    # -- what is small -------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Put files of old batches together; sketches and snapshots of the sites are deleted instead."""
        for table in _merged_tables():
            for first, last, files in blocks(self._store.files(table), self._newest - ALONE):
                self._merge(table, first, last, files)

    def _merge(self, table: str, first: int, last: int, files: list[File]) -> None:
        parts = [self._read(table, file) for file in files]
        if any(part is None for part in parts):
            return
        self._store.put_range(table, first, last, pa.concat_tables(parts))
        for file in files:
            self._store.remove(file)
        self.merged += len(files)
        self.into += 1

    def _read(self, table: str, file: File, columns: list[str] | None = None) -> pa.Table | None:
        """The rows of a file; None if another upkeep has deleted it, or if it is damaged and so must stay."""
        try:
            return self._store.read_file(table, file, columns)
        except FileNotFoundError:
            return None
        except FormatError:
            self.unreadable.append(f"{table}/{file.name}")
            return None

    def sweep(self, newest: File) -> None:
        """Delete unfinished files of writers that died; readers ignore their names."""
        for table in tables():
            for file in self._store.unfinished(table):
                if newest.written is not None and file.written is not None and file.written < newest.written - _HOUR:
                    self._store.remove(file)


def blocks(files: list[File], end: int) -> Iterator[tuple[int, int, list[File]]]:
    """Which files to put together: first and last batch of a block, and the files in it; none reaches beyond ``end``.

    Blocks are as large as they can be, and begin at multiples of their size, so that those of any two passes lie within
    each other or beside each other.
    """
    size = BLOCK
    while size * BLOCK <= end + 1:
        size *= BLOCK
    yield from _cut_into(files, size, end)


def _cut_into(files: list[File], size: int, end: int) -> Iterator[tuple[int, int, list[File]]]:
    grouped: dict[int, list[File]] = {}
    for file in files:
        grouped.setdefault(file.first // size, []).append(file)
    for number, group in grouped.items():
        first, last = number * size, (number + 1) * size - 1
        if len(group) < 2 or group[-1].last > last:
            continue
        if last <= end and sum(file.size for file in group) <= MOST_BYTES:
            yield first, last, group
        elif size > BLOCK:
            yield from _cut_into(group, size // BLOCK, end)
        elif size == BLOCK and last <= end:
            yield from _cut_into(group, _SMALL_BLOCK, end)


def _merged_tables() -> list[str]:
    return [name for name in tables() if name not in ("sites", "sketches")]


def _before(time: datetime | int, keep: str | int) -> datetime | int | None:
    """The moment before which everything is old; None if there is none such."""
    if isinstance(time, int):
        if not isinstance(keep, int):
            raise ParameterError(
                f"keep={keep!r}, but the times of this store are whole numbers", remedy="give one, such as 3600"
            )
        return time - keep if time - keep >= -(2**63) else None
    try:
        return time - timedelta(microseconds=nanoseconds(keep) // 1000)  # of a whole number it says what to write
    except OverflowError:
        return None
