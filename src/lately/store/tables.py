"""The tables of a store: one dataclass for the rows of each, from which the Arrow columns are derived.

A column may be null where its field may be None, which also stands for a column that a file does not have.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, get_type_hints

import pyarrow as pa

#: An instant of the stream's own time: a datetime in UTC, or an integer where the times of the stream are integers.
Time: TypeAlias = datetime | int
#: The type of the stream's own time.
TimeType: TypeAlias = Literal["timestamp", "integer"]
#: What an alert became with its row, in the words of Prometheus.
AlertState: TypeAlias = Literal["firing", "resolved"]

STAMP = pa.timestamp("us", "UTC")
#: The Arrow type of each type of time.
TIME_TYPES: dict[TimeType, pa.DataType] = {"timestamp": STAMP, "integer": pa.int64()}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query of the pipeline answered after a batch; the true value is in ``low..high`` with probability ``confidence``.

    Parameters
    ----------
    time
        The newest instant of the stream after the batch; None before the first row.
    batch
        The number of the batch.
    query
        The name of the query or monitor.
    site
        The site that the answer is about; None for all sites together.
    item
        The key, quantile or range that the answer is about; None where the query has a single answer.
    value, low, high
        The estimate and its bounds; None where nothing is known.
    confidence
        The probability that the bounds hold, at least.
    """

    time: Time | None
    batch: int
    query: str
    site: str | None = None
    item: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that began to fire, or was resolved, with a batch.

    Parameters
    ----------
    time
        The newest instant of the stream after the batch.
    batch
        The number of the batch.
    monitor
        The name of the monitor.
    item
        The key that the alert is about; None where the monitor watches a single value.
    state
        "firing" or "resolved".
    value, low, high
        The value that the monitor announced, and its bounds; None where nothing is known.
    confidence
        The probability that the bounds hold, at least.
    """

    time: Time | None
    batch: int
    monitor: str
    item: str | None = None
    state: AlertState = "firing"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class UncountedRow:
    """A row of the tables ``late`` and ``rejected``: one that was not counted.

    Parameters
    ----------
    batch
        The number of the batch that read the row.
    site
        The site of the row; None where it has none.
    time
        The row's own time; None where it has none.
    reason
        Why it was not counted; what follows ": " is the value that was wrong.
    row
        The row as JSON.
    """

    batch: int
    site: str | None = None
    time: Time | None = None
    reason: str | None = None
    row: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What a batch did; its row is written last, so a batch is finished when it has one.

    Parameters
    ----------
    batch
        The number of the batch.
    time
        The newest instant of the stream after the batch; None before the first row.
    began
        When the batch began, by the clock of the driver.
    seconds
        How long it took, in seconds.
    rows, counted, late, rejected
        Rows that were read, and how many of them were counted, too late, or rejected.
    sites
        Sites that have sketches after the batch.
    state_bytes
        Bytes of the state after the batch.
    shipped_bytes, monitor_bytes
        Bytes that were sent between machines for answers, and for monitors.
    everything_bytes
        Bytes that sending every row would have taken.
    """

    batch: int
    time: Time | None = None
    began: datetime | None = None
    seconds: float | None = None
    rows: int | None = None
    counted: int | None = None
    late: int | None = None
    rejected: int | None = None
    sites: int | None = None
    state_bytes: int | None = None
    shipped_bytes: int | None = None
    monitor_bytes: int | None = None
    everything_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A site after a batch. Each batch writes a snapshot of all sites, so readers need the newest batch only.

    Parameters
    ----------
    batch
        The number of the batch.
    site
        The name of the site.
    time
        The time of its newest counted row; None before the first.
    seen
        When the batch began in which it last had a counted row.
    counted, late, rejected
        Its rows of all batches so far.
    ahead
        Of the rejected rows, those whose time was too far ahead.
    ahead_seen
        When the batch began in which it last had such a row.
    """

    batch: int
    site: str
    time: Time | None = None
    seen: datetime | None = None
    counted: int | None = None
    late: int | None = None
    rejected: int | None = None
    ahead: int | None = None
    ahead_seen: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredSketch:
    """A sketch of a site as it was after a batch.

    Parameters
    ----------
    version
        The number of the batch.
    time
        The newest instant of the stream after the batch.
    site
        The name of the site.
    sketch
        The name of the sketch, as in about.json.
    kind
        Its kind, such as "topk".
    blob
        What ``to_bytes()`` returned.
    """

    version: int
    time: Time | None
    site: str
    sketch: str
    kind: str
    blob: bytes


TableRow: TypeAlias = Answer | Alert | UncountedRow | Run | SiteRow | StoredSketch

#: The dataclass of the rows of each table.
ROWS: dict[str, type[TableRow]] = {
    "answers": Answer,
    "alerts": Alert,
    "late": UncountedRow,
    "rejected": UncountedRow,
    "runs": Run,
    "sites": SiteRow,
    "sketches": StoredSketch,
}


def tables(time_type: pa.DataType = STAMP) -> dict[str, pa.Schema]:
    """The tables and their columns.

    Parameters
    ----------
    time_type
        The Arrow type of the stream's own time, one of ``TIME_TYPES``.

    >>> list(tables())
    ['answers', 'alerts', 'late', 'rejected', 'runs', 'sites', 'sketches']
    >>> tables()["late"].names
    ['batch', 'site', 'time', 'reason', 'row']
    """
    return {table: _schema(row, time_type) for table, row in ROWS.items()}


#: The Arrow type of a column by the type of its field, without None; ``Time`` depends on the stream.
_COLUMNS: dict[object, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bytes: pa.binary(),
    datetime: STAMP,
    AlertState: pa.string(),
}


def _schema(row: type[TableRow], time_type: pa.DataType) -> pa.Schema:
    optional = {kind | None: column for kind, column in _COLUMNS.items() if isinstance(kind, type)}
    columns = _COLUMNS | optional | {Time | None: time_type}
    return pa.schema({name: columns[hint] for name, hint in get_type_hints(row).items()})


def batch_column(table: str) -> str:
    """The column of a table that has the number of the batch."""
    return "version" if table == "sketches" else "batch"
