"""Where a pipeline leaves what it found: one directory with a folder of Parquet files for each table.

    store/answers/000000000042.parquet      what batch 42 said; a batch that is run again writes the same file again
    store/late/000000000042-0003.parquet    what a task of it could not count

A file appears whole or not at all, so that anything that reads Parquet can read a table at any time.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lately.core.errors import InputError
from lately.core.paths import filesystem_of, write_whole

_STAMP = pa.timestamp("us", "UTC")


def tables(moment: pa.DataType = _STAMP) -> dict[str, pa.Schema]:
    """The tables and their columns; ``moment`` is the type of the stream's own time."""
    answers = {"time": moment, "batch": pa.int64(), "query": pa.string(), "site": pa.string(), "item": pa.string()}
    numbers = {name: pa.float64() for name in ("value", "low", "high", "confidence")}
    lost = {"batch": pa.int64(), "site": pa.string(), "time": moment, "reason": pa.string(), "row": pa.string()}
    counts = (
        "rows",
        "counted",
        "late",
        "rejected",
        "sites",
        "state_bytes",
        "shipped_bytes",
        "monitor_bytes",
        "everything_bytes",
    )
    return {
        "answers": pa.schema(answers | numbers),
        "alerts": pa.schema(
            {"time": moment, "batch": pa.int64(), "monitor": pa.string(), "item": pa.string(), "raised": pa.bool_()} | numbers
        ),
        "late": pa.schema(lost),
        "rejected": pa.schema(lost),
        "runs": pa.schema(
            {"batch": pa.int64(), "time": moment, "began": _STAMP, "seconds": pa.float64()}
            | {name: pa.int64() for name in counts}
        ),
        "sketches": pa.schema(
            {
                "version": pa.int64(),
                "time": moment,
                "site": pa.string(),
                "sketch": pa.string(),
                "kind": pa.string(),
                "blob": pa.binary(),
            }
        ),
    }


class Store:
    """The tables of one directory, on any filesystem that pyarrow or fsspec knows.

    >>> from tempfile import mkdtemp
    >>> store = Store(mkdtemp())
    >>> store.put("answers", 7, [{"batch": 7, "query": "hot", "item": "/cart", "value": 12.0}])
    >>> store.put("answers", 7, [{"batch": 7, "query": "hot", "item": "/cart", "value": 12.0}])    # again, after a crash
    >>> store.read("answers").select(["batch", "query", "item", "value"]).to_pylist()
    [{'batch': 7, 'query': 'hot', 'item': '/cart', 'value': 12.0}]
    """

    def __init__(self, path: str, moment: pa.DataType = _STAMP) -> None:
        self.path = path
        self._schemas = tables(moment)
        self._fs, self._root = filesystem_of(path)

    def prepare(self) -> None:
        """Make the folders, or say why that cannot be."""
        try:
            for table in self._schemas:
                self._fs.create_dir(f"{self._root}/{table}", recursive=True)
            write_whole(self._fs, f"{self._root}/.writable", b"")
            self._fs.delete_file(f"{self._root}/.writable")
        except OSError as error:
            raise InputError(
                f"cannot write to the store {self.path!r}: {error}; give a [store] path that can be written to"
            ) from error

    def owner(self) -> str | None:
        """Which run the tables belong to; nobody's, if there are none yet."""
        try:
            with self._fs.open_input_stream(f"{self._root}/owner") as source:
                return bytes(source.read()).decode()
        except FileNotFoundError:
            return None

    def claim(self, owner: str) -> None:
        """Make the tables belong to a run; those of another are not touched."""
        known = self.owner()
        if known is None:
            write_whole(self._fs, f"{self._root}/owner", owner.encode())
        elif known != owner:
            raise InputError(
                f"the store {self.path!r} has the tables of another run ({known}, this is {owner}); "
                "give another [store] path, or remove it if nobody needs it any more"
            )

    def schema(self, table: str) -> pa.Schema:
        """The columns of a table."""
        return self._schemas[table]

    def put(self, table: str, batch: int, rows: Sequence[dict[str, Any]] | pa.Table, part: str = "") -> None:
        """Write what a batch, or a task of it, has for a table; nothing is written for no rows."""
        content = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), self._schemas[table])
        if not content.num_rows:
            return
        sink = pa.BufferOutputStream()
        pq.write_table(content, sink, compression="zstd")
        self._fs.create_dir(f"{self._root}/{table}", recursive=True)
        write_whole(self._fs, self._file(table, batch, part), sink.getvalue())

    def clear(self, batch: int) -> None:
        """Forget what an interrupted run of this batch, or a later one, has left in any table."""
        for table in self._schemas:
            for name in self._files(table):
                if int(name.removesuffix(".parquet").split("-")[0]) >= batch:
                    self._fs.delete_file(f"{self._root}/{table}/{name}")

    def read(self, table: str) -> pa.Table:
        """A whole table, in the order of its batches."""
        paths = [f"{self._root}/{table}/{name}" for name in sorted(self._files(table))]
        parts = [pq.read_table(self._fs.open_input_file(path), schema=self._schemas[table]) for path in paths]
        return pa.concat_tables(parts) if parts else self._schemas[table].empty_table()

    def _file(self, table: str, batch: int, part: str) -> str:
        suffix = f"-{part}" if part else ""
        return f"{self._root}/{table}/{batch:012d}{suffix}.parquet"

    def _files(self, table: str) -> Iterable[str]:
        from pyarrow import fs

        found = self._fs.get_file_info(fs.FileSelector(f"{self._root}/{table}", allow_not_found=True))
        return [one.base_name for one in found if one.base_name.endswith(".parquet") and one.base_name[0].isdigit()]
