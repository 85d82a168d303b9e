"""The finished batches of a store, read file by file: each row once, whatever upkeep does meanwhile, and no file twice.

A batch is finished when its file in ``runs`` is there, which is written last; what later batches have left so far is not shown.
Files do not change, so what was read of them is remembered. Upkeep may remove one after it was listed, when its rows are in
another file already: then the listing was old, and is made again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from threading import RLock
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lately.core.times import EPOCH
from lately.store.files import File
from lately.store.remembered import Remembered
from lately.store.store import Store
from lately.store.tables import numbered

Row = dict[str, Any]
T = TypeVar("T")

#: How often the store is looked at anew because a file of it has gone, before that is an error.
TRIES = 20
#: So many files are looked through at once, the newest first: a few, then more and more.
_FEW, _MANY = 4, 64


@dataclass(frozen=True)
class Seen:
    """What a look at the store found, and what was worked out from it."""

    store: Store
    about: dict[str, Any]
    newest: File | None = None
    run: Row = field(default_factory=dict)
    #: Listings of tables, the answers of the newest batch, the newest version.
    known: dict[str, Any] = field(default_factory=dict)


class Reading:
    """Base of the view: what was seen at the last look, and how the rows of tables are found."""

    def __init__(self, path: str, memory: int) -> None:
        self.path = path
        self._tables = Remembered[pa.Table](memory)
        self._lock = RLock()
        self._seen = self._opened()
        self.refresh()

    def refresh(self) -> bool:
        """Look for a new batch, or for one that was run again; True if there is one. It takes one listing of a folder."""
        with self._lock:
            for left in reversed(range(TRIES)):
                before = self._seen
                newest = max(before.store.all_files("runs"), key=lambda one: (one.last, one.first), default=None)
                if newest == before.newest:
                    return False
                try:
                    seen = self._opened(newest)
                except FileNotFoundError:  # it is about to be run again
                    if not left:
                        raise
                    continue
                self._seen = seen
                return seen.run != before.run
        raise AssertionError("unreachable")

    def _opened(self, newest: File | None = None) -> Seen:
        store = Store.open(self.path)
        about = store.about()
        assert about is not None
        if newest is None:
            return Seen(store, about)
        rows = self._rows_of(store, "runs", newest)
        return Seen(store, about, newest, plain(rows.slice(rows.num_rows - 1))[0])

    # -- tables --------------------------------------------------------------------------------------------------------

    def _newest(
        self,
        table: str,
        limit: int,
        wanted: dict[str, Any] | None = None,
        after: int | None = None,
        begins: dict[str, str] | None = None,
    ) -> list[Row]:
        """The newest rows that have the wanted values, or texts that begin so; oldest first.

        Files are opened as far back as needed.
        """

        def take(seen: Seen, files: list[File]) -> list[Row]:
            found: list[pa.Table] = []
            missing, few = limit, _FEW
            left = [one for one in files if after is None or one.last > after]
            while left and missing > 0:
                # In one piece, as filters take time for each piece of each column.
                rows = pa.concat_tables([self._rows(seen, table, one) for one in left[-few:]]).combine_chunks()
                for name, value in (wanted or {}).items():
                    rows = rows.filter(pc.equal(rows[name], value))
                for name, value in (begins or {}).items():
                    rows = rows.filter(pc.starts_with(rows[name], value))
                if after is not None:
                    rows = rows.filter(pc.greater(rows["batch"], after))
                found.append(rows.slice(max(rows.num_rows - missing, 0)))
                missing -= rows.num_rows
                left, few = left[:-few], min(2 * few, _MANY)
            return [row for rows in reversed(found) for row in plain(rows)]

        return self._take(table, take)

    def _take(self, table: str, take: Callable[[Seen, list[File]], T], anew: bool = False) -> T:
        """What can be taken from the files of a table, of finished batches; listed anew when one of them has gone."""
        for left in reversed(range(TRIES)):
            seen = self._seen
            try:
                return take(seen, self._files(seen, table, anew))
            except FileNotFoundError:
                if not left:
                    raise
                anew = True
        raise AssertionError("unreachable")

    def _files(self, seen: Seen, table: str, anew: bool) -> list[File]:
        found: list[File] | None = None if anew else seen.known.get(f"files of {table}")
        if found is None:
            newest = seen.run.get("batch", -1)
            found = [one for one in seen.store.files(table) if one.first <= newest]
            seen.known[f"files of {table}"] = found
        return found

    def _rows(self, seen: Seen, table: str, file: File, columns: tuple[str, ...] | None = None) -> pa.Table:
        """The rows of a file, without those of batches that have finished since."""
        rows, newest = self._rows_of(seen.store, table, file, columns), seen.run["batch"]
        return rows if file.last <= newest else rows.filter(pc.less_equal(rows[numbered(table)], newest))

    def _rows_of(self, store: Store, table: str, file: File, columns: tuple[str, ...] | None = None) -> pa.Table:
        """The rows of a file, remembered."""
        key = table, file, columns
        rows = self._tables.get(key)
        if rows is None:
            rows = store.read_file(table, file, columns)
            self._tables.put(key, rows, rows.nbytes)
        return rows


def plain(rows: pa.Table) -> list[Row]:
    """Rows as Python has them; times are dates in UTC.

    Arrow does the same, but takes several times as long.

    >>> plain(pa.table({"time": pa.array([0, None], pa.timestamp("us", "UTC")), "batch": [1, 2]}))[0]
    {'time': datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), 'batch': 1}
    """
    names, columns = rows.column_names, [_values(column.combine_chunks()) for column in rows.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_string(kind):  # the same few texts again and again
        coded = column.dictionary_encode()
        texts = [*coded.dictionary.to_pylist(), None]
        return [texts[code] for code in coded.indices.fill_null(-1).to_numpy().tolist()]
    if pa.types.is_timestamp(kind):
        moments = _values(column.cast(pa.int64()))
        return [None if one is None else EPOCH + timedelta(microseconds=one) for one in moments]
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return list(column.to_numpy().tolist())
    return list(column.to_pylist())
