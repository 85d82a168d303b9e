"""Whether a store is sound: reads every file of every table, and decodes every sketch."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lately.core.codec import from_bytes
from lately.core.errors import FormatError, LatelyError
from lately.store import checksummed_parquet
from lately.store.files import SCHEMA, File
from lately.store.store import Store
from lately.store.tables import batch_column, tables

#: Rows of a file that are held at a time; those of sketches are large.
_ROWS, _SKETCHES = 2**16, 64
#: What is raised about files that are not as they were written.
_UNREADABLE = (FormatError, pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)


@dataclass(frozen=True)
class Finding:
    """A fault: the file, relative to the directory of the store, and what is wrong with it."""

    file: str
    wrong: str


@dataclass
class Counted:
    """How much of a table was checked."""

    files: int = 0
    rows: int = 0
    blobs: int = 0


@dataclass(frozen=True)
class Checked:
    """The faults that a check found, and how much of each table it read."""

    findings: list[Finding] = field(default_factory=list)
    tables: dict[str, Counted] = field(default_factory=lambda: {name: Counted() for name in tables()})


def check(path: str) -> Checked:
    """Read every file of a store and decode every sketch.

    >>> from tempfile import mkdtemp
    >>> store = Store(mkdtemp())
    >>> store.describe({"time_type": "timestamp"})
    >>> for batch in (0, 1, 4):
    ...     store.put("runs", batch, [{"batch": batch}])
    >>> found = check(store.path)
    >>> found.tables["runs"], found.findings
    (Counted(files=3, rows=3, blobs=0), [Finding(file='runs', wrong='batches 2 to 3 are missing')])
    """
    store = Store.open(path)
    checked = Checked()
    for table in tables():
        checked.findings.extend(Finding(f"{table}/{SCHEMA}", wrong) for wrong in _schema_file(store, table))
        for file in store.all_files(table):
            checked.findings.extend(Finding(f"{table}/{file.name}", wrong) for wrong in _file(store, table, file, checked))
    checked.findings.extend(Finding("runs", wrong) for wrong in _holes(_batches(store)))
    return checked


def _schema_file(store: Store, table: str) -> Iterator[str]:
    """What is wrong with a table's file without rows, which only others read."""
    try:
        content = store.schema_file(table)
        if content is None:
            return  # the store is of an earlier version; the next run writes it
        empty = checksummed_parquet.read(content)
    except _UNREADABLE as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        yield f"cannot be read: {why}; the next run of the pipeline writes it"
        return
    expected = store.schema(table)
    if not empty.schema.remove_metadata().equals(expected):
        columns = f"has the columns {_columns(empty.schema)}; the table has {_columns(expected)}"
        yield f"{columns}; the next run of the pipeline writes it"
    elif empty.num_rows:
        yield f"has {empty.num_rows:,} rows; it is there for its columns only, and the next run of the pipeline writes it"


def _file(store: Store, table: str, file: File, checked: Checked) -> list[str]:
    """What is wrong with a file."""
    counted = checked.tables[table]
    try:
        content = store.bytes_of(file)
        checksummed_parquet.verify(content)
        faults = list(_contents(store, table, file, pq.ParquetFile(pa.BufferReader(content)), counted))
    except FileNotFoundError:
        return []  # upkeep has put it into another one, or it was old
    except _UNREADABLE as error:
        faults = [f"cannot be read: {str(error).partition(chr(10))[0] or type(error).__name__}"]
    counted.files += 1
    return faults


def _contents(store: Store, table: str, file: File, content: pq.ParquetFile, counted: Counted) -> Iterator[str]:
    """What is wrong with a file that can be opened; whatever pyarrow raises is wrong, too."""
    expected = store.schema(table)
    if not content.schema_arrow.remove_metadata().equals(expected):
        yield f"has the columns {_columns(content.schema_arrow)}; the table has {_columns(expected)}"
        return
    number = batch_column(table)
    rows = 0
    for group in range(content.num_row_groups):
        numbers: list[int] = []
        for batch in content.iter_batches(_SKETCHES if table == "sketches" else _ROWS, row_groups=[group]):
            batch.validate(full=True)
            rows += batch.num_rows
            numbers += pc.min_max(batch.column(number)).as_py().values()
            if table == "sketches":
                yield from _sketches(batch, counted)
        present = [value for value in numbers if value is not None]
        if present and not file.first <= min(present) <= max(present) <= file.last:
            yield f"has rows of {number} {min(present)} to {max(present)}, which its name does not say"
    counted.rows += rows
    if rows != content.metadata.num_rows or rows == 0:
        yield f"has {rows:,} rows; its footer says {content.metadata.num_rows:,}"


def _sketches(rows: pa.RecordBatch, counted: Counted) -> Iterator[str]:
    for row in rows.to_pylist():
        counted.blobs += 1
        try:
            from_bytes(row["blob"])
        except LatelyError as error:
            yield f"the sketch {row['sketch']!r} of the site {row['site']!r} cannot be read: {error}"


def _batches(store: Store) -> list[int]:
    """The batches in the table ``runs``, as far as it can be read."""
    for _ in range(20):
        numbers: list[int] = []
        try:
            for file in store.files("runs"):
                try:
                    numbers += store.read_file("runs", file, ["batch"])["batch"].drop_null().to_pylist()
                except FormatError:
                    continue  # it is among the findings already
            return sorted(numbers)
        except FileNotFoundError:
            continue  # upkeep was at it; list the files again
    return sorted(numbers)


def _holes(batches: list[int]) -> Iterator[str]:
    """Batches that are missing or there twice; the oldest ones may have gone, as they were old."""
    for before, after in pairwise(batches):
        if after == before:
            yield f"batch {before} is there twice"
        elif after == before + 2:
            yield f"batch {before + 1} is missing"
        elif after > before + 2:
            yield f"batches {before + 1} to {after - 1} are missing"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)
