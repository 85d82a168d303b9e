"""The finished batches of a store, read file by file: each row once, whatever upkeep does meanwhile, and no file twice.

A batch is finished when its file in ``runs`` exists, which is written last; earlier output of later batches is not shown.
Files do not change, so what was read of them is cached. Upkeep may delete a listed file once its rows are in another file;
then the listing was out of date, and the table is listed again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lately.core.times import EPOCH
from lately.store.about import About
from lately.store.byte_cache import ByteBoundedCache
from lately.store.files import File
from lately.store.store import Store
from lately.store.tables import Answer, Run, SiteRow, TableRow, batch_column

if TYPE_CHECKING:
    from lately.store.sketch_reader import SketchVersion

T = TypeVar("T")
Row = TypeVar("Row", bound=TableRow)

#: How often a table is listed again because a file of it has disappeared, before that is an error.
TRIES = 20
#: Files are searched in groups, the newest first, of a few at first and then of more and more.
_FIRST_GROUP, _LARGEST_GROUP = 4, 64


@dataclass
class Snapshot:
    """The store after its newest batch, and what has been read or computed of it so far."""

    store: Store
    about: About
    newest: File | None = None
    run: Run | None = None
    #: The listing of each table.
    files: dict[str, list[File]] = field(default_factory=dict)
    answers: list[Answer] | None = None
    sites: list[SiteRow] | None = None
    #: The newest version of the sketches in a list, which is empty where none is stored; None if it was not looked for yet.
    version: "list[SketchVersion] | None" = None

    @property
    def batch(self) -> int:
        """The newest finished batch; -1 before the first."""
        return -1 if self.run is None else self.run.batch


class TableReader:
    """Base of the view: the newest snapshot, and how rows of tables are found."""

    def __init__(self, path: str, cache_bytes: int) -> None:
        self.path = path
        self._tables = ByteBoundedCache[pa.Table](cache_bytes)
        self._lock = RLock()
        self._snapshot = self._read_snapshot()
        self.refresh()

    def refresh(self) -> bool:
        """Look for a new batch, or for one that was run again; True if there is one. It costs one listing of a folder."""
        with self._lock:
            for left in reversed(range(TRIES)):
                before = self._snapshot
                newest = max(before.store.all_files("runs"), key=lambda file: (file.last, file.first), default=None)
                if newest == before.newest:
                    return False
                try:
                    snapshot = self._read_snapshot(newest)
                except FileNotFoundError:  # the batch is about to be run again
                    if not left:
                        raise
                    continue
                self._snapshot = snapshot
                return snapshot.run != before.run
        raise AssertionError("unreachable")

    def _read_snapshot(self, newest: File | None = None) -> Snapshot:
        store = Store.open(self.path)
        about = store.about()
        assert about is not None
        if newest is None:
            return Snapshot(store, about)
        rows = self._rows_of(store, "runs", newest)
        return Snapshot(store, about, newest, to_rows(rows.slice(rows.num_rows - 1), Run)[0])

    @property
    def about(self) -> About:
        """What the pipeline keeps and answers: about.json."""
        return self._snapshot.about

    # -- tables --------------------------------------------------------------------------------------------------------

    def _newest_rows(
        self,
        table: str,
        row: type[Row],
        limit: int,
        equal: Mapping[str, str] | None = None,
        after: int | None = None,
        prefix: Mapping[str, str] | None = None,
    ) -> list[Row]:
        """The newest rows whose columns have these values, or begin with these texts; oldest first.

        Files are opened as far back as needed.
        """

        def search(snapshot: Snapshot, files: list[File]) -> list[Row]:
            matches: list[pa.Table] = []
            missing, group = limit, _FIRST_GROUP
            left = [file for file in files if after is None or file.last > after]
            while left and missing > 0:
                # In one piece, as filters take time for each piece of each column.
                rows = pa.concat_tables([self._rows(snapshot, table, file) for file in left[-group:]]).combine_chunks()
                for name, value in (equal or {}).items():
                    rows = rows.filter(pc.equal(rows[name], value))
                for name, value in (prefix or {}).items():
                    rows = rows.filter(pc.starts_with(rows[name], value))
                if after is not None:
                    rows = rows.filter(pc.greater(rows["batch"], after))
                matches.append(rows.slice(max(rows.num_rows - missing, 0)))
                missing -= rows.num_rows
                left, group = left[:-group], min(2 * group, _LARGEST_GROUP)
            return [match for rows in reversed(matches) for match in to_rows(rows, row)]

        return self._with_files(table, search)

    def _with_files(self, table: str, read: Callable[[Snapshot, list[File]], T], relist: bool = False) -> T:
        """What ``read`` returns for the files of a table; it is called again when one of them has disappeared."""
        for left in reversed(range(TRIES)):
            snapshot = self._snapshot
            try:
                return read(snapshot, self._files(snapshot, table, relist))
            except FileNotFoundError:
                if not left:
                    raise
                relist = True
        raise AssertionError("unreachable")

    def _files(self, snapshot: Snapshot, table: str, relist: bool) -> list[File]:
        """The files of a table that have rows of finished batches."""
        if relist or table not in snapshot.files:
            snapshot.files[table] = [file for file in snapshot.store.files(table) if file.first <= snapshot.batch]
        return snapshot.files[table]

    def _rows(self, snapshot: Snapshot, table: str, file: File, columns: tuple[str, ...] | None = None) -> pa.Table:
        """The rows of a file, without those of batches that have finished since the snapshot."""
        rows = self._rows_of(snapshot.store, table, file, columns)
        return rows if file.last <= snapshot.batch else rows.filter(pc.less_equal(rows[batch_column(table)], snapshot.batch))

    def _rows_of(self, store: Store, table: str, file: File, columns: tuple[str, ...] | None = None) -> pa.Table:
        """The rows of a file, cached."""
        key = table, file, columns
        rows = self._tables.get(key)
        if rows is None:
            rows = store.read_file(table, file, columns)
            self._tables.put(key, rows, rows.nbytes)
        return rows


def to_rows(rows: pa.Table, row: type[Row]) -> list[Row]:
    """The rows of an Arrow table as dataclasses.

    Parameters
    ----------
    rows
        A table with the columns of the dataclass.
    row
        The dataclass.

    >>> table = pa.table({"batch": [1], "site": ["lima"], "time": [7], "reason": ["no key"], "row": ["{}"]})
    >>> from lately.store.tables import UncountedRow
    >>> to_rows(table, UncountedRow)
    [UncountedRow(batch=1, site='lima', time=7, reason='no key', row='{}')]
    """
    columns = [values_of(rows[column.name]) for column in fields(row)]
    return [row(*values) for values in zip(*columns, strict=True)]


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python has them; times are datetimes in UTC.

    Arrow's ``to_pylist`` returns the same, but takes several times as long.

    >>> values_of(pa.chunked_array([pa.array([0, None], pa.timestamp("us", "UTC"))]))
    [datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), None]
    """
    return _values(column.combine_chunks())


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_string(kind):  # the same few texts again and again
        coded = column.dictionary_encode()
        texts = [*coded.dictionary.to_pylist(), None]
        return [texts[code] for code in coded.indices.fill_null(-1).to_numpy().tolist()]
    if pa.types.is_timestamp(kind):
        return [None if micros is None else _datetime(micros) for micros in _values(column.cast(pa.int64()))]
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return list(column.to_numpy().tolist())
    return list(column.to_pylist())


def _datetime(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)
