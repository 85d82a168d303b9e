"""The output of a pipeline: one directory with a folder of Parquet files for each table.

    store/about.json                        the pipeline, its queries and sketches, for readers of the tables
    store/owner                             the stream that the tables belong to
    store/answers/000000000042.parquet      the answers of batch 42; running a batch again replaces its files
    store/late/000000000042-0003.parquet    late rows of one of its tasks
    store/alerts/schema.parquet             no rows, so that an empty table can be read too

A file appears as a whole or not at all, so any reader of Parquet can read a table at any time.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace

import pyarrow as pa
from pyarrow import fs

from lately.core.errors import FormatError, InputError
from lately.core.json_encoding import encode, read_json
from lately.core.paths import filesystem_of, is_full, remove_all, write_new, write_whole
from lately.store import checksummed_parquet
from lately.store.about import FORMAT, About
from lately.store.files import SCHEMA, File, batches_of, effective_files, name_of
from lately.store.tables import STAMP, TIME_TYPES, TableRow, tables

#: How often a table is listed again because a file of it has disappeared, before that is an error.
_TRIES = 20


class Store:
    """The tables of one directory, on any filesystem that pyarrow or fsspec knows.

    Parameters
    ----------
    path
        The directory, or its URL.
    time_type
        The Arrow type of the stream's own time, one of ``lately.store.tables.TIME_TYPES``; timestamps by default.
    guard
        Called before anything is written or removed, as late as possible; it raises to prevent that. None by default.

    >>> from tempfile import mkdtemp
    >>> store = Store(mkdtemp())
    >>> store.put("answers", 7, [{"batch": 7, "query": "hot", "item": "/cart", "value": 12.0}])
    >>> store.put("answers", 7, [{"batch": 7, "query": "hot", "item": "/cart", "value": 12.0}])    # again, after a crash
    >>> store.read("answers").select(["batch", "query", "item", "value"]).to_pylist()
    [{'batch': 7, 'query': 'hot', 'item': '/cart', 'value': 12.0}]
    """

    def __init__(self, path: str, time_type: pa.DataType = STAMP, guard: Callable[[], None] | None = None) -> None:
        self.path = path
        self.guard = guard
        self._schemas = tables(time_type)
        self._fs, self._root = filesystem_of(path)

    @classmethod
    def open(cls, path: str) -> "Store":
        """An existing store, with the type of time that its stream has."""
        store = cls(path)
        about = store.about()
        if about is None:
            if store._fs.get_file_info(store._root).type != fs.FileType.Directory:
                raise InputError(f"there is no store at {path!r}", remedy="give the [store] path of a pipeline that has run")
            raise InputError(
                f"{path!r} has no about.json, which says what a store holds",
                remedy="run its pipeline once more, or give the [store] path of a pipeline that has run",
            )
        return cls(path, TIME_TYPES[about.time_type])

    # -- what it is about ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create the folders, each with a file of no rows that has the columns of the table; or raise InputError."""
        self._refuse_newer()
        try:
            for table in self._schemas:
                self._fs.create_dir(f"{self._root}/{table}", recursive=True)
                self._write_schema(table)
            write_whole(self._fs, f"{self._root}/.writable", b"")
            with suppress(FileNotFoundError):  # another run that begins has the same thought
                self._fs.delete_file(f"{self._root}/.writable")
        except OSError as error:
            remedy = "make space there" if is_full(error) else "give a [store] path that can be written to"
            raise InputError(f"cannot write to the store {self.path!r}: {error}", remedy=remedy) from error

    def _write_schema(self, table: str) -> None:
        """Write the file without rows, unless it exists and has the columns of the table."""
        empty = self._schemas[table].empty_table()
        content = self.schema_file(table)
        try:
            if content is not None and checksummed_parquet.read(content).schema.equals(empty.schema):
                return
        except FormatError:
            pass  # it is damaged, and replaced
        write_whole(self._fs, f"{self._root}/{table}/{SCHEMA}", checksummed_parquet.encode(empty), self.guard)

    def schema_file(self, table: str) -> bytes | None:
        """The bytes of a table's file without rows; None in a store of an earlier version."""
        return self._file(f"{table}/{SCHEMA}")

    def describe(self, about: About | Mapping[str, object]) -> None:
        """Write about.json, which says to readers what the tables are about; an earlier one is replaced.

        Parameters
        ----------
        about
            The description, or a mapping with the entries of about.json; entries that it leaves out have their defaults.
        """
        self._refuse_newer()
        content = about if isinstance(about, About) else read_json(About, about)
        text = encode(replace(content, format=FORMAT), indent=1)
        write_whole(self._fs, f"{self._root}/about.json", f"{text}\n".encode(), self.guard)

    def about(self) -> About | None:
        """The content of about.json; None if there is no such file.

        >>> from tempfile import mkdtemp
        >>> store = Store(mkdtemp())
        >>> store.describe(About("integer", "shop"))
        >>> Store.open(store.path).about().time_type
        'integer'
        """
        self._refuse_newer()
        content = self._file("about.json")
        if content is None:
            return None
        try:
            document = json.loads(content)
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']!r}")
            return read_json(About, document)
        except (ValueError, TypeError, KeyError) as error:
            wrong = str(error) or type(error).__name__
            raise InputError(
                f"about.json of the store {self.path!r} is damaged ({wrong})", remedy="run its pipeline, which rewrites it"
            ) from error

    def _refuse_newer(self) -> None:
        """A store of a later version of lately is neither read nor written."""
        try:
            known = json.loads(self._file("about.json") or b"{}")["format"]
        except (ValueError, TypeError, KeyError):
            return
        if isinstance(known, int) and known > FORMAT:
            raise InputError(
                f"the store {self.path!r} has format {known}, and this version of lately knows formats up to {FORMAT}",
                remedy="upgrade lately (pip install -U lately)",
            )

    def _file(self, name: str) -> bytes | None:
        try:
            with self._fs.open_input_stream(f"{self._root}/{name}") as source:
                return bytes(source.read())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def owner(self) -> str | None:
        """The stream that the tables belong to; None if they have no owner yet."""
        content = self._file("owner")
        return None if content is None else content.decode()

    def claim(self, owner: str) -> None:
        """Make a stream the owner of the tables; InputError if they belong to another."""
        if self.owner() is None:
            with suppress(FileExistsError):  # of two that claim it at the same moment, one does
                write_new(self._fs, f"{self._root}/owner", owner.encode(), self.guard)
        current = self.owner()
        if current != owner:
            raise InputError(
                f"the store {self.path!r} belongs to another run ({current}); this is {owner}",
                remedy="give another [store] path, or remove the store if it is not needed any more",
            )

    def schema(self, table: str) -> pa.Schema:
        """The columns of a table."""
        return self._schemas[table]

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(
        self, table: str, batch: int, rows: Sequence[TableRow] | Sequence[Mapping[str, object]] | pa.Table, part: str = ""
    ) -> None:
        """Write the rows that a batch, or a task of it, has for a table; nothing is written for no rows.

        Parameters
        ----------
        table
            The name of the table.
        batch
            The number of the batch.
        rows
            Rows of the table's dataclass (``lately.store.tables``), mappings with some of its columns, or an Arrow table.
        part
            The name of the task or site, where several write to the same table in one batch. The same part replaces what an
            earlier run of the batch has written.
        """
        content = rows if isinstance(rows, pa.Table) else self._table(table, rows)
        if content.num_rows:
            self._write(table, name_of(batch, part=part), content)

    def _table(self, table: str, rows: Sequence[TableRow] | Sequence[Mapping[str, object]]) -> pa.Table:
        mappings = [_columns(row) if is_dataclass(row) else row for row in rows]
        return pa.Table.from_pylist(mappings, self._schemas[table])

    def put_range(self, table: str, first: int, last: int, rows: pa.Table) -> None:
        """Write all rows of a range of batches for a table; from then on readers take it instead of their own files."""
        self._write(table, name_of(first, last), rows)

    def _write(self, table: str, name: str, content: pa.Table) -> None:
        data = checksummed_parquet.encode(content)
        self._fs.create_dir(f"{self._root}/{table}", recursive=True)
        write_whole(self._fs, f"{self._root}/{table}/{name}", data, self.guard)

    @property
    def replaces(self) -> bool:
        """Whether files can be replaced atomically; on Hadoop they cannot."""
        return not isinstance(self._fs, fs.HadoopFileSystem)

    def clear(self, batch: int) -> None:
        """Delete what an interrupted run of this batch, or of a later one, has written to any table."""
        files = [file for table in self._schemas for file in self.all_files(table) if file.last >= batch]
        for file in files:
            if file.is_range:
                raise InputError(
                    f"batch {batch} is to be run again, but the store {self.path!r} has put batches "
                    f"{file.first} to {file.last} into one file, as they were done for good: "
                    "the [run] checkpoint is older than the store",
                    remedy="give another [store] path, or restore both from the same moment",
                )
        remove_all(self._fs, [file.path for file in files], self.guard)

    def remove(self, file: File) -> None:
        """Delete a file; it is no error if it does not exist."""
        if self.guard is not None and isinstance(
            self._fs, fs.LocalFileSystem
        ):  # elsewhere a look costs as much as the deletion
            self.guard()
        with suppress(FileNotFoundError):
            self._fs.delete_file(file.path)

    # -- reading -------------------------------------------------------------------------------------------------------

    def all_files(self, table: str) -> list[File]:
        """The files of a table, including those that a file of more batches replaces."""
        return self._listed(table, batches_of)

    def unfinished(self, table: str) -> list[File]:
        """Unfinished files of writers that died or are still writing."""
        return self._listed(table, lambda name: batches_of(name[1:].rpartition(".")[0]) if name[0] == "." else None)

    def _listed(self, table: str, batches: Callable[[str], tuple[int, int] | None]) -> list[File]:
        entries = self._fs.get_file_info(fs.FileSelector(f"{self._root}/{table}", allow_not_found=True))
        numbered = ((entry, batches(entry.base_name)) for entry in entries if entry.type == fs.FileType.File)
        return sorted(
            File(*ends, entry.base_name, entry.path, entry.size or 0, entry.mtime_ns) for entry, ends in numbered if ends
        )

    def files(self, table: str) -> list[File]:
        """The files of a table that a reader must take, each row of the table in one of them, in the order of batches.

        Any of them may be gone when it is opened, as upkeep has written its rows into another one: list them again then.
        """
        files = self.all_files(table)
        for _ in range(_TRIES):
            # Compaction may run while a folder is listed: the listing can miss both some old files and the new one.
            again = self.all_files(table)
            if {file.name for file in again if file.is_range} <= {file.name for file in files if file.is_range}:
                break
            files = again
        return effective_files(files)

    def bytes_of(self, file: File) -> bytes:
        """The bytes of a file, all at one moment; FileNotFoundError if it is gone."""
        with self._fs.open_input_stream(file.path) as source:
            return bytes(source.read())

    def read_file(self, table: str, file: File, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a file, in the columns of its table or some of them.

        FileNotFoundError if it is gone, FormatError if it is damaged.
        """
        schema = self._schemas[table]
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        content = self.bytes_of(file)
        try:
            return checksummed_parquet.read(content, schema)
        except FormatError as error:
            raise FormatError(
                f"{table}/{file.name} of the store {self.path!r} is damaged: {error}",
                remedy="restore it, or remove it and do without (lately store check finds all such files)",
            ) from error

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A whole table, in the order of its batches."""
        for left in reversed(range(_TRIES)):
            try:
                parts = [self.read_file(table, one, columns) for one in self.files(table)]
                break
            except FileNotFoundError:
                if not left:
                    raise
        empty = self._schemas[table].empty_table()
        return pa.concat_tables([empty if columns is None else empty.select(columns), *parts])


def _columns(row: TableRow) -> dict[str, object]:
    return {field.name: getattr(row, field.name) for field in fields(row)}
