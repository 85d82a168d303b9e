"""The sections of a pipeline file, except for queries and monitors."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from lately.config.mistakes import MistakeCollector, TableError, TableMistake
from lately.config.values import Fraction, Gap, Interval, Length, Settings, Table, Text
from lately.core.durations import Duration, Window, nanoseconds
from lately.core.errors import ParameterError

#: What Spark accepts as master.
_MASTER = re.compile(r"local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[[\d, ]+\]|yarn|(spark|k8s)://.+")
#: Formats that are files. Spark streams all of them but the last only if it is given their columns.
_FILES = ("parquet", "orc", "csv", "json", "xml", "avro", "text")
FILES_WITH_COLUMNS = _FILES[:-1]


class Source(Table):
    """[source]: where rows come from, in any format that Spark reads.

    Parameters
    ----------
    format
        The name of the format, such as "parquet", "kafka" or "delta".
    path
        The path of files or of a table; None for formats without one.
    mode
        "batch" reads all rows once; "available-now", the default, reads what is new since the last run and ends;
        "continuous" reads until it is stopped.
    columns
        The columns as in SQL, such as "ts timestamp, url string". None takes them from the source, which Spark does not do for
        streams of most file formats.
    options
        Options of the format, as Spark documents them.
    """

    format: Text = Field(examples=["parquet"])
    path: Text | None = None
    mode: Literal["batch", "available-now", "continuous"] = "available-now"
    columns: Text | None = None
    options: Settings = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> "Source":
        if self.format in _FILES and self.path is None:
            raise TableError([TableMistake(("format",), "a source of files needs a path", 'add path = "events/"')])
        return self


class Columns(Table):
    """[columns]: what the columns of a row mean. Each is the name of a column or an SQL expression.

    Parameters
    ----------
    time
        When the event happened: a timestamp, or seconds since 1970; whole numbers for a window of whole numbers.
    key
        What is counted.
    site
        Where the row comes from; None treats all rows as one site.
    value
        The number that quantiles are of; None if no query needs it.
    count
        How many events the row stands for; None for one.
    """

    time: Text = Field(examples=["ts"])
    key: Text = Field(examples=["url"])
    site: Text | None = None
    value: Text | None = None
    count: Text | None = None


class WindowTable(Table):
    """[window]: how far back answers go, and how late rows may be.

    Parameters
    ----------
    length
        The length of the window.
    tick
        The time resolution, of which ``length`` is a multiple; None for the default of sketches.
    lateness
        How much older than the newest row of its site a row may be; None for not at all.
    future
        How far in the future a row may be before it is rejected; None for any time, which is the only choice if times are
        whole numbers.
    ahead
        The longest gap before the last rows of a batch that is not taken for a wrong clock. "any" allows all gaps; None takes
        a minute or the lateness, whichever is longer.
    """

    length: Length = Field(examples=["1h"])
    tick: Length | None = None
    lateness: Length | None = None
    future: Length | None = "5m"
    ahead: Gap | None = None

    @property
    def window(self) -> Window:
        """The window that sketches get."""
        return Window.of(self.length, self.tick)

    @model_validator(mode="before")
    @classmethod
    def _without_clock(cls, given: Any) -> Any:
        """Times that are whole numbers are not dates, so they cannot be in the future."""
        if isinstance(given, dict) and isinstance(given.get("length"), int):
            return {"future": None} | given
        return given

    @model_validator(mode="after")
    def _check(self) -> "WindowTable":
        window, mistakes = self.window, MistakeCollector()
        with mistakes.at("lateness"):
            if self.lateness is not None and window.length(self.lateness) > window.ticks:
                raise ParameterError(f"must be at most {window.text(window.ticks)}, the length of the window")
        with mistakes.at("ahead"):
            if self.ahead not in (None, "any"):
                window.length(self.ahead)
        with mistakes.at("future"):
            if self.future is not None and window.kind == "integer":
                raise ParameterError("whole numbers cannot be compared with a clock", remedy="leave future out")
            if self.future is not None and "future" in self.model_fields_set:
                window.length(self.future)
        mistakes.raise_if_any()
        return self

    def check_last(self, last: Duration | None) -> None:
        """Raise ParameterError if a range of time is not within the window, or not a multiple of a tick."""
        window = self.window
        if last is not None and not 1 <= window.length(last) <= window.ticks:
            raise ParameterError(f"must be at least {window.text(1)} and at most {window.text(window.ticks)}, the window")


class Guarantee(Table):
    """[guarantee]: the error of answers and how often it may be exceeded; a query can have its own.

    Parameters
    ----------
    eps
        The error, as a share of what the query is about. By default 0.01.
    delta
        The probability that the error is larger. By default 0.01.
    """

    eps: Fraction = 0.01
    delta: Fraction = 0.01


class StoreTable(Table):
    """[store]: where answers, alerts and rejected rows are written.

    Parameters
    ----------
    path
        The directory, on any filesystem that pyarrow or fsspec supports.
    sketches
        How often sketches are stored: "never" (the default), "always" for after every batch, or an interval such as "10m".
    keep
        How long rows of the store are kept; None for ever.
    """

    path: Text = Field(examples=["store"])
    sketches: Interval = "never"
    keep: Length | None = None


class Run(Table):
    """[run]: how the pipeline runs.

    Parameters
    ----------
    checkpoint
        The directory of its state; None is allowed only for a batch.
    trigger
        How often a continuous pipeline looks for new rows. By default every 5 seconds.
    master
        The master of Spark; None for the one that is configured.
    seed
        The seed of hash functions; None draws a secret one for each state.
    lease
        For how long a run holds its state without renewing the lease. By default a minute, at least a second.
    spark
        Settings of Spark; names begin with "spark.".
    """

    checkpoint: Text | None = None
    trigger: Text = "5 seconds"
    master: Text | None = None
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    lease: Text = "1m"
    spark: Settings = Field(default_factory=dict)

    @field_validator("trigger")
    @classmethod
    def _check_trigger(cls, trigger: str) -> str:
        nanoseconds(trigger)
        return trigger

    @field_validator("master")
    @classmethod
    def _check_master(cls, master: str | None) -> str | None:
        if master is not None and not _MASTER.fullmatch(master):
            raise ParameterError(
                "not a master of Spark",
                remedy='give "local[2]", "local[*]", "spark://host:7077", "yarn" or "k8s://host:443"',
            )
        return master

    @field_validator("lease")
    @classmethod
    def _check_lease(cls, lease: str) -> str:
        if nanoseconds(lease) < 10**9:
            raise ParameterError("must be at least 1s")
        return lease

    @field_validator("spark")
    @classmethod
    def _check_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in settings:
            if not name.startswith("spark."):
                raise ParameterError(
                    f"{name} is not a setting of Spark",
                    remedy="write the whole name, which begins with spark.",
                )
        return settings

    @property
    def processing_time(self) -> str:
        """The trigger in the form that Spark reads."""
        return f"{nanoseconds(self.trigger) // 1_000_000} milliseconds"

    @property
    def lease_seconds(self) -> float:
        """For how many seconds a run holds its state without renewing its lease."""
        return nanoseconds(self.lease) / 1e9
