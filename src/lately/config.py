"""A pipeline file: what flows in, what is kept of it, what is asked, where answers go. One validated model, read from TOML.

Every mistake is told with the line that it stands in. Sketches are checked by building them, so that what passes here runs.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from lately.core.durations import Duration, Window, nanoseconds
from lately.core.errors import ParameterError
from lately.exact import agg
from lately.exact.aggregates import Aggregate, Condition
from lately.exact.windows import Windows
from lately.monitor.frequent import Frequent
from lately.monitor.monitor import Monitor
from lately.monitor.queries import Count, InnerProduct
from lately.monitor.queries import SelfJoin as WatchedSelfJoin
from lately.monitor.sketch import Ecm
from lately.sketches.dyadic import Dyadic
from lately.sketches.ecm import EcmSketch
from lately.sketches.quantiles import DEFAULT_QUANTILES
from lately.sketches.quantiles import Quantiles as QuantilesSketch
from lately.sketches.topk import TopK
from lately.toml_lines import Found, MisfitError, Origin, explained

#: What can be given for Spark's master.
_MASTER = re.compile(r"local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[[\d, ]+\]|yarn|(spark|k8s)://.+")
#: What to do about mistakes that the reader of TOML finds, by how it begins to tell them.
_TOML_ADVICE = {
    "Invalid value": 'text stands in quotes: key = "url"',
    "Cannot overwrite a value": "this key was given before; keep one of them",
    "Cannot declare": "this table was given before; put its keys together",
    "Expected '=' after a key": 'write key = "value"',
    "Unclosed": "close it",
    "Expected newline or end of document": "one key = value a line",
}

#: Formats that are files, and those of them that Spark streams only if it is told their columns.
_FILES = ("parquet", "orc", "csv", "json", "xml", "avro", "text")
_UNTOLD = _FILES[:-1]
_SKETCHES: dict[str, type[Any]] = {"ecm": EcmSketch, "topk": TopK, "quantiles": QuantilesSketch, "dyadic": Dyadic}


# -- values ------------------------------------------------------------------------------------------------------------


def _length(value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError('give a length of time such as "10m", or a whole number where times are whole numbers')
    if isinstance(value, int) and value < 0:
        raise ValueError("give 0 or more")
    if isinstance(value, str):
        nanoseconds(value)
    return value


def _kept(value: Any) -> str | int:
    if value in ("never", "always"):
        return str(value)
    try:
        return _length(value)
    except ValueError:
        raise ValueError('give "never", "always", or how often, such as "10m"') from None


def _ahead(value: Any) -> str | int:
    if value == "any":
        return "any"
    try:
        return _length(value)
    except ValueError:
        raise ValueError('give a length of time such as "1m", a whole number where times are, or "any"') from None


def _key(value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("give a key: a text in quotes or a whole number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("give a whole number from -2**63 to 2**63 - 1")
    return value


def _range(value: Any) -> tuple[int, int]:
    if not isinstance(value, list | tuple) or len(value) != 2 or any(type(end) is not int for end in value):
        raise ValueError("give the first and the last key of a range, such as [0, 1023]")
    if value[0] > value[1]:
        raise ValueError("the range runs backwards; give the smaller key first")
    return value[0], value[1]


def _settings(value: Any) -> dict[str, str | int | float | bool]:
    """Names with dots may stand in quotes or not; without, TOML makes tables of them."""
    if not isinstance(value, Mapping):
        raise ValueError("give a table of names and values")
    return dict(_flat(value, ()))


def _flat(table: Mapping[str, Any], outer: tuple[str, ...]) -> Iterator[tuple[str, str | int | float | bool]]:
    for name, value in table.items():
        way = (*outer, name)
        if isinstance(value, Mapping):
            yield from _flat(value, way)
        elif isinstance(value, str | int | float | bool):
            yield ".".join(way), value
        else:
            raise MisfitError([(way, "give a text, a number, true or false")])


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]*$", max_length=80)]
Text = Annotated[str, Field(min_length=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
#: A length of time such as "10m", or a whole number where times are.
Length = Annotated[str | int, PlainValidator(_length)]
Key = Annotated[str | int, PlainValidator(_key)]
Range = Annotated[tuple[int, int], PlainValidator(_range), PlainSerializer(list)]
Settings = Annotated[dict[str, str | int | float | bool], PlainValidator(_settings)]

# -- tables ------------------------------------------------------------------------------------------------------------


class Model(BaseModel):
    """Base of all tables of the file: what is not known is refused, and a text is not a number. Examples are for messages."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Source(Model):
    """Where rows come from: any format that Spark reads."""

    format: Text = Field(examples=["parquet"])
    path: Text | None = None
    mode: Literal["batch", "available-now", "continuous"] = "available-now"
    columns: Text | None = Field(None, description='as in SQL: "ts timestamp, url string"; files that stream need it')
    options: Settings = {}

    @model_validator(mode="after")
    def _makes_sense(self) -> "Source":
        if self.format in _FILES and self.path is None:
            raise MisfitError([(("format",), 'these are files; say where with path = "events/"')])
        return self


class Columns(Model):
    """Which columns say when, what and where; each is a column's name or an expression in SQL."""

    time: Text = Field(examples=["ts"])
    key: Text = Field(examples=["url"])
    site: Text | None = None
    value: Text | None = None
    count: Text | None = None


class WindowTable(Model):
    """How far back answers go, and how late rows may come."""

    length: Length = Field(examples=["1h"])
    tick: Length | None = None
    lateness: Length | None = None
    future: Length | None = "5m"
    ahead: Annotated[str | int, PlainValidator(_ahead)] | None = None

    @property
    def window(self) -> Window:
        """The window, as sketches understand it."""
        return Window.of(self.length, self.tick)

    @model_validator(mode="before")
    @classmethod
    def _without_a_clock(cls, given: Any) -> Any:
        """Whole numbers are not days: nothing is too far ahead of a clock."""
        if isinstance(given, dict) and isinstance(given.get("length"), int):
            return {"future": None} | given
        return given

    @model_validator(mode="after")
    def _fits(self) -> "WindowTable":
        window, found = self.window, Found()
        with found.at("lateness"):
            if self.lateness is not None and window.length(self.lateness) > window.ticks:
                raise ParameterError(f"longer than the window; give at most {window.text(window.ticks)}")
        with found.at("ahead"):
            if self.ahead not in (None, "any"):
                window.length(self.ahead)
        with found.at("future"):
            if self.future is not None and window.kind == "integer":
                raise ParameterError("times are whole numbers, which no clock tells; leave future out")
            if self.future is not None and "future" in self.model_fields_set:
                window.length(self.future)
        found.tell()
        return self

    def check_last(self, last: Duration | None) -> None:
        """Refuse a range that does not lie in the window, or is not in whole ticks."""
        window = self.window
        if last is not None and not 1 <= window.length(last) <= window.ticks:
            raise ParameterError(f"give {window.text(1)} at the least and {window.text(window.ticks)}, the window, at the most")


class Guarantee(Model):
    """How far off an answer may be, and how often; a query may ask for its own."""

    eps: Fraction = 0.01
    delta: Fraction = 0.01


class Asked(Model):
    """What all queries have: a range of time, rows of their own (``where``), for each site or for all."""

    name: Name = Field(examples=["hot"])
    last: Length | None = None
    eps: Fraction | None = None
    delta: Fraction | None = None
    where: Text | None = None
    by: Literal["all", "site"] = "all"


class Counts(Asked):
    """How often given keys were seen."""

    kind: Literal["counts"]
    keys: Annotated[list[Key], Field(min_length=1, max_length=100_000, examples=[["/cart", "/pay"]])]

    @field_validator("keys")
    @classmethod
    def _are_alike(cls, keys: list[str | int]) -> list[str | int]:
        if len({type(key) for key in keys}) > 1:
            raise ValueError(
                "some are texts and some are numbers, but a column has only one of both; put all in quotes, or none"
            )
        return keys


class Top(Asked):
    """The keys that were seen most often."""

    kind: Literal["top"]
    k: Annotated[int, Field(ge=1, le=100_000)] = 10


class Quantiles(Asked):
    """Quantiles of ``value``, told apart in steps of ``resolution`` from ``lo`` to ``hi``."""

    kind: Literal["quantiles"]
    q: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1, max_length=1_000)] = [*DEFAULT_QUANTILES]
    lo: float = Field(examples=[0])
    hi: float = Field(examples=[60])
    resolution: Annotated[float, Field(gt=0, examples=[0.01])]
    outside: Literal["reject", "clip"] = "reject"


class Ranges(Asked):
    """How many keys lay in given ranges of integers below ``universe``."""

    kind: Literal["ranges"]
    universe: Annotated[int, Field(ge=2, examples=[65536])]
    ranges: Annotated[list[Range], Field(min_length=1, max_length=100_000, examples=[[[0, 1023], [1024, 65535]]])]

    @model_validator(mode="after")
    def _lie_inside(self) -> "Ranges":
        outside = [number for number, (first, last) in enumerate(self.ranges) if first < 0 or last >= self.universe]
        if outside:
            raise MisfitError(
                [(("ranges", number), f"give keys from 0 to {self.universe - 1}, or a larger universe") for number in outside]
            )
        return self


class SelfJoin(Asked):
    """The sum of the squares of all keys' counts: how skewed the stream is."""

    kind: Literal["self-join"]


class Join(Asked):
    """How many pairs of rows with the same key two streams have, each the rows that pass an expression in SQL."""

    kind: Literal["join"]
    left: Text = Field(examples=["event = 'view'"])
    right: Text = Field(examples=["event = 'buy'"])

    @model_validator(mode="after")
    def _two_streams(self) -> "Join":
        if self.where is not None:
            raise ValueError("a join has its rows from left and right; leave where out")
        return self


class Exact(Asked):
    """An exact aggregate over the window, or which groups pass a condition on it."""

    kind: Literal["exact"]
    aggregate: Literal["count", "sum", "avg", "min", "max", "variance", "stddev", "quantile"] = Field(examples=["sum"])
    of: Text | None = None
    q: Annotated[float, Field(ge=0, le=1)] | None = None
    per: Text | None = None
    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> "Exact":
        if (self.of is None) != (self.aggregate == "count"):
            raise ValueError(
                f'{self.aggregate} needs the column it is about: of = "price"'
                if self.of is None
                else "a count has no column: leave of out"
            )
        if (self.q is not None) != (self.aggregate == "quantile"):
            raise ValueError("a quantile needs its share: q = 0.99" if self.q is None else "only a quantile has a share q")
        conditions = (self.above is not None) + (self.below is not None)
        if conditions > 1 or (conditions == 1) != (self.per is not None):
            raise ValueError('which groups pass: give per = "column" and one of above and below')
        if self.per is not None and self.aggregate not in ("count", "sum", "min", "max"):
            raise ValueError(f"which groups pass is known for count, sum, min and max, not for {self.aggregate}; leave per out")
        if self.eps is not None or self.delta is not None:
            raise ValueError("an exact answer has neither eps nor delta; leave them out")
        return self


Query = Annotated[Counts | Top | Quantiles | Ranges | SelfJoin | Join | Exact, Field(discriminator="kind")]


class MonitorTable(Model):
    """A monitor: tells when a value over all sites passes a line, while sites send almost nothing."""

    name: Name = Field(examples=["skew"])
    kind: Literal["self-join", "join", "count", "frequent"] = Field(examples=["self-join"])
    key: Key | None = None
    left: Text | None = None
    right: Text | None = None
    above: float | None = None
    below: float | None = None
    tau: float | None = None
    theta: Fraction = 0.1
    last: Length | None = None
    eps: Fraction | None = None
    delta: Fraction = 0.1
    where: Text | None = None
    scheme: Literal["functional", "geometric"] = "functional"

    @property
    def sketch_eps(self) -> float:
        """The eps of its sketch; what collides with a key must be few beside tau, so frequent keys need a finer one."""
        return self.eps or (0.01 if self.kind == "frequent" else 0.1)

    @model_validator(mode="after")
    def _makes_sense(self) -> "MonitorTable":
        if (self.tau is not None) != (self.kind == "frequent"):
            raise ValueError(
                "keys are frequent from how often on? give tau"
                if self.tau is None
                else 'only kind = "frequent" has tau; give above or below'
            )
        if (self.key is not None) != (self.kind == "count"):
            raise ValueError("a count of which key? give key" if self.key is None else 'only kind = "count" has a key')
        if ((self.left is None) or (self.right is None)) == (self.kind == "join"):
            raise ValueError("a join of which rows? give left and right, two expressions in SQL")
        if self.kind != "join" and (self.left is not None or self.right is not None):
            raise ValueError('only kind = "join" has left and right; give where')
        if self.kind == "join" and self.where is not None:
            raise ValueError("a join has its rows from left and right; leave where out")
        if self.kind == "frequent" and (self.above is not None or self.below is not None):
            raise ValueError("frequent keys have tau instead of above and below")
        if self.above is not None and self.below is not None:
            raise ValueError("a monitor has one line: give above or below, or make two monitors")
        return self


class StoreTable(Model):
    """Where answers, alerts and what could not be counted go."""

    path: Text = Field(examples=["store"])
    sketches: Annotated[str | int, PlainValidator(_kept)] = "never"
    keep: Length | None = None


class Run(Model):
    """How it runs: where its state is kept, and how often it looks for new rows."""

    checkpoint: Text | None = None
    trigger: Text = "5 seconds"
    master: Text | None = None
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None
    lease: Text = "1m"
    spark: Settings = {}

    @field_validator("trigger")
    @classmethod
    def _is_a_duration(cls, trigger: str) -> str:
        nanoseconds(trigger)
        return trigger

    @field_validator("master")
    @classmethod
    def _is_a_master(cls, master: str | None) -> str | None:
        if master is not None and not _MASTER.fullmatch(master):
            raise ValueError('no master of Spark; give "local[2]", "local[*]", "spark://host:7077", "yarn" or "k8s://host:443"')
        return master

    @field_validator("lease")
    @classmethod
    def _is_a_second_or_longer(cls, lease: str) -> str:
        if nanoseconds(lease) < 10**9:
            raise ValueError('must be at least a second, such as "1m"')
        return lease

    @field_validator("spark")
    @classmethod
    def _are_of_spark(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in settings:
            if not name.startswith("spark."):
                raise ValueError(
                    f"{name} is no setting of Spark; under [run.spark] write the whole name, which begins with spark."
                )
        return settings

    @property
    def processing_time(self) -> str:
        """The trigger as Spark reads it."""
        return f"{nanoseconds(self.trigger) // 1_000_000} milliseconds"

    @property
    def lease_seconds(self) -> float:
        """For how many seconds a run holds its state without renewing its lease."""
        return nanoseconds(self.lease) / 1e9


class Config(Model):
    """A whole pipeline file."""

    name: Name = "pipeline"
    source: Source
    columns: Columns
    window: WindowTable
    guarantee: Guarantee = Guarantee()
    queries: list[Query] = []
    monitors: list[MonitorTable] = []
    store: StoreTable
    run: Run = Run()
    #: Where it was read, for mistakes that only Spark finds.
    _origin: Origin = PrivateAttr(default_factory=Origin)

    @property
    def origin(self) -> Origin:
        """The file that it was read from, which knows the lines of its values."""
        return self._origin

    def with_master(self, master: str | None) -> "Config":
        """Return the same pipeline for another master of Spark; None leaves the one of the file."""
        return self if master is None else self.model_copy(update={"run": self.run.model_copy(update={"master": master})})

    # -- what it asks for, as the rest of lately takes it --------------------------------------------------------------

    def sketch_of(self, query: Asked) -> tuple[str, dict[str, Any]] | None:
        """The kind of sketch that answers a query, and its options; None for a query that is exact.

        Queries that get the same can share one.
        """
        options: dict[str, Any] = {
            "window": self.window.length,
            "tick": self.window.tick,
            "lateness": self.window.lateness,
            "eps": self.guarantee.eps if query.eps is None else query.eps,
            "delta": self.guarantee.delta if query.delta is None else query.delta,
        }
        options = {name: value for name, value in options.items() if value is not None}
        match query:
            case Counts():
                return "ecm", options | {"query": "point"}
            case SelfJoin() | Join():
                return "ecm", options | {"query": "inner"}
            case Top():
                return "topk", options | {"k": query.k}
            case Quantiles():
                numbers = {"lo": query.lo, "hi": query.hi, "resolution": query.resolution}
                return "quantiles", options | numbers | {"outside": "clip"}
            case Ranges():
                return "dyadic", options | {"universe": query.universe}
            case _:
                return None

    def columns_of(self, query: Exact) -> list[str]:
        """The columns that an exact query reads. Counting rows reads the column that says how many times each counts."""
        weights = self.columns.count if query.aggregate == "count" else None
        return [text for text in (query.of, query.per, weights) if text is not None]

    def exact_of(self, query: Exact) -> tuple[Aggregate | Condition, dict[str, Any]]:
        """What to register with ``Windows.add``, and its options; columns are called as the file writes them."""
        of = query.of or ""
        match query.aggregate:
            case "count" if self.columns.count is not None:
                aggregate = agg.sum(self.columns.count)
            case "count":
                aggregate = agg.count()
            case "quantile":
                aggregate = agg.quantile(of, 0.5 if query.q is None else query.q)
            case name:
                simple = {
                    "sum": agg.sum,
                    "avg": agg.avg,
                    "min": agg.min,
                    "max": agg.max,
                    "variance": agg.variance,
                    "stddev": agg.stddev,
                }
                aggregate = simple[name](of)
        what: Aggregate | Condition = aggregate
        if query.above is not None:
            what = aggregate > query.above
        elif query.below is not None:
            what = aggregate < query.below
        return what, {"last": self.window.length if query.last is None else query.last, "per": query.per}

    def windows(self) -> Windows:
        """Exact windows with the ticks and the lateness of the file, and no query yet."""
        tick = self.window.tick
        if tick is None:
            tick = "1s" if self.window.window.kind == "time" else 1
        return Windows(tick=tick, lateness=self.window.lateness)

    def monitor_of(self, watch: MonitorTable, seed: int | None = None) -> Monitor:
        """The monitor that sites and their coordinator run, with this seed, or that of the file."""
        last = self.window.length if watch.last is None else watch.last
        query: WatchedSelfJoin | InnerProduct | Count | Frequent
        match watch.kind:
            case "self-join":
                query = WatchedSelfJoin(above=watch.above, below=watch.below, theta=watch.theta)
            case "join":
                query = InnerProduct(of=("left", "right"), above=watch.above, below=watch.below, theta=watch.theta)
            case "count":
                query = Count(key=watch.key, above=watch.above, below=watch.below, theta=watch.theta)
            case "frequent":
                query = Frequent(tau=watch.tau or 0, theta=watch.theta)
        seed = self.run.seed if seed is None else seed
        sketch = Ecm(window=last, tick=self.window.tick, eps=watch.sketch_eps, delta=watch.delta, seed=seed)
        streams = ("left", "right") if watch.kind == "join" else ("",)
        lateness = self.window.lateness
        if lateness is not None and (window := sketch.layout().window) is not None:
            lateness = last if window.length(lateness) > window.ticks else lateness  # what is older has left its window
        return Monitor(sketch, {watch.name: query}, streams=streams, scheme=watch.scheme, lateness=lateness)

    # -- what must go together -----------------------------------------------------------------------------------------

    @model_validator(mode="after")
    def _makes_sense(self) -> "Config":
        found = Found()
        with found.at():
            self._check_mode()
        with found.at("store", "sketches"):
            if self.store.sketches not in ("never", "always") and self.window.window.length(self.store.sketches) < 1:
                raise ParameterError(f"give {self.window.window.text(1)} at the least")
        with found.at("store", "keep"):
            window = self.window.window
            if self.store.keep is not None and window.length(self.store.keep) < window.ticks:
                raise ParameterError(f"shorter than the window; give {window.text(window.ticks)} at the least, or leave it out")
        for kind, asked in (("queries", self.queries), ("monitors", self.monitors)):
            names = [one.name for one in asked]
            for number, name in enumerate(names):
                with found.at(kind, number, "name"):
                    if name in names[:number]:
                        raise ParameterError(f"{kind}[{names.index(name)}] is called that too; give each a name of its own")
        built: set[str] = set()
        for number, query in enumerate(self.queries):
            with found.at("queries", number):
                self._check_query(query, built)
        for number, watch in enumerate(self.monitors):
            with found.at("monitors", number):
                self._check_monitor(watch)
        found.tell()
        return self

    def _check_mode(self) -> None:
        found, source = Found(), self.source
        with found.at():
            if not self.queries and not self.monitors:
                raise ParameterError("nothing is asked; add [[queries]] or [[monitors]]")
        with found.at("run"):
            if source.mode != "batch" and self.run.checkpoint is None:
                raise ParameterError(
                    'a stream needs a place for its state; add checkpoint = "directory", or read it as a batch'
                )
        with found.at("source", "mode"):
            if source.mode == "batch" and self.monitors:
                raise ParameterError('monitors watch a stream; give "available-now" or "continuous", or ask queries instead')
        with found.at("source", "format"):
            inferred = str(self.run.spark.get("spark.sql.streaming.schemaInference", "false")).lower() == "true"
            if source.mode != "batch" and source.format in _UNTOLD and source.columns is None and not inferred:
                raise ParameterError('a stream of files needs to know them; add columns = "ts timestamp, url string"')
        found.tell()

    def _check_query(self, query: Asked, built: set[str]) -> None:
        found = Found()
        with found.at("last"):
            self.window.check_last(query.last)
        with found.at("by"):
            if query.by == "site" and self.columns.site is None:
                raise ParameterError('no column tells the site; add site = "column" to [columns]')
        with found.at("kind"):
            if isinstance(query, Quantiles) and self.columns.value is None:
                raise ParameterError('no column tells the values; add value = "column" to [columns]')
        with found.at("per"):
            lateness = self.window.window.length(self.window.lateness) if self.window.lateness is not None else 0
            if isinstance(query, Exact) and query.per is not None and lateness > 0:
                raise ParameterError("groups take rows in order; leave per out, or lateness out of [window]")
        with found.at():
            if isinstance(query, Exact):
                if not found:
                    what, options = self.exact_of(query)
                    self.windows().add(query.name, what, **options)
            elif (sketch := self.sketch_of(query)) is not None and (same := repr(sketch)) not in built:
                kind, options = sketch
                _SKETCHES[kind](**options)
                built.add(same)
        found.tell()

    def _check_monitor(self, watch: MonitorTable) -> None:
        found = Found()
        with found.at("last"):
            self.window.check_last(watch.last)
        found.tell()
        self.monitor_of(watch)


# -- reading -----------------------------------------------------------------------------------------------------------


def load(path: str | Path) -> Config:
    """Read a pipeline file; a ParameterError tells every mistake, a line for each."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ParameterError(f"{path}: there is no such file; give the path of a pipeline file") from None
    except OSError as error:
        raise ParameterError(f"{path}: cannot be read ({error.strerror or error}); give a pipeline file that can") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ParameterError(f"{path}:{line}: not UTF-8, which TOML is written in; save the file as UTF-8") from error
    return parse(text, str(path))


def of(content: dict[str, Any], name: str = "pipeline") -> Config:
    """A pipeline from what a file would hold."""
    try:
        config = Config.model_validate(content)
    except ValidationError as error:
        raise ParameterError(explained(error, Config, None, name)) from None
    config._origin = Origin(name)
    return config


def parse(text: str, name: str = "pipeline.toml") -> Config:
    """Read the text of a pipeline file; ``name`` is what mistakes are told with.

    >>> parse('[window]\\nlength = "1h"\\ntik = "1s"')
    Traceback (most recent call last):
    ...
    lately.core.errors.ParameterError: pipeline.toml:1: the file has no [source]; add it with format = "parquet"
    pipeline.toml:1: the file has no [columns]; add it with time = "ts" and key = "url"
    pipeline.toml:1: the file has no [store]; add it with path = "store"
    pipeline.toml:3: [window] does not know tik; did you mean tick?
    """
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ParameterError(f"{name}: brackets inside brackets, too deep to read; make it flatter") from None
    except ValueError as error:  # tomllib's own, or Python's about a number of thousands of digits
        says, _, place = str(error).partition(" (at ")
        at = re.match(r"line (\d+), column (\d+)", place)
        line, column = (int(at[1]), f" (character {at[2]})") if at else (text.count("\n") + 1, "")
        advice = next((remedy for known, remedy in _TOML_ADVICE.items() if says.startswith(known)), "correct the line")
        raise ParameterError(f"{name}:{line}: not TOML: {says.partition(';')[0]}{column}; {advice}") from error
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise ParameterError(explained(error, Config, text, name)) from None
    config._origin = Origin(name, text)
    return config
