"""The model of a whole pipeline file, and what the rest of lately builds from it."""

from typing import Any

from pydantic import Field, PrivateAttr, model_validator

from lately.config.mistakes import MistakeCollector, Origin
from lately.config.monitors import MonitorTable
from lately.config.queries import JOIN_EPS, Counts, Exact, Join, Quantiles, Query, QueryBase, Ranges, SelfJoin, Top
from lately.config.sections import FILES_WITH_COLUMNS, Columns, Guarantee, Run, Source, StoreTable, WindowTable
from lately.config.values import Name, Table
from lately.core.errors import ParameterError
from lately.exact import agg
from lately.exact.aggregates import Aggregate, Condition
from lately.exact.windows import Windows
from lately.monitor.frequent import Frequent
from lately.monitor.monitor import Monitor
from lately.monitor.queries import Count, InnerProduct
from lately.monitor.queries import SelfJoin as MonitoredSelfJoin
from lately.monitor.sketch import Ecm
from lately.sketches.kinds import KINDS


class Config(Table):
    """A whole pipeline file.

    Parameters
    ----------
    name
        The name of the pipeline. By default "pipeline".
    source, columns, window, guarantee
        The sections of the input.
    queries, monitors
        What is asked; at least one of either.
    store, run
        The sections of the output.
    """

    name: Name = "pipeline"
    source: Source
    columns: Columns
    window: WindowTable
    guarantee: Guarantee = Guarantee()
    queries: list[Query] = Field(default_factory=list)
    monitors: list[MonitorTable] = Field(default_factory=list)
    store: StoreTable
    run: Run = Run()
    _origin: Origin = PrivateAttr(default_factory=Origin)

    @property
    def origin(self) -> Origin:
        """Where it was read, for mistakes that only Spark finds."""
        return self._origin

    def with_origin(self, origin: Origin) -> "Config":
        """Remember where it was read; returns the configuration itself."""
        self._origin = origin
        return self

    def with_master(self, master: str | None) -> "Config":
        """Return the same pipeline for another master of Spark; None leaves the one of the file."""
        return self if master is None else self.model_copy(update={"run": self.run.model_copy(update={"master": master})})

    # -- what the rest of lately builds from it ------------------------------------------------------------------------

    def sketch_of(self, query: QueryBase) -> tuple[str, dict[str, Any]] | None:
        """The kind of sketch that answers a query, and its options; None for an exact query.

        Queries with the same kind and options can share one sketch.
        """
        eps = max(self.guarantee.eps, JOIN_EPS) if isinstance(query, SelfJoin | Join) else self.guarantee.eps
        options: dict[str, Any] = {
            "window": self.window.length,
            "tick": self.window.tick,
            "lateness": self.window.lateness,
            "eps": eps if query.eps is None else query.eps,
            "delta": self.guarantee.delta if query.delta is None else query.delta,
        }
        options = {name: value for name, value in options.items() if value is not None}
        match query:
            case Counts():
                return "ecm", options | {"query": "point"}
            case SelfJoin() | Join():
                return "ams", options
            case Top():
                return "topk", options | {"k": query.k}
            case Quantiles():
                values = {"lo": query.lo, "hi": query.hi, "resolution": query.resolution}
                return "quantiles", options | values | {"outside": "clip"}
            case Ranges():
                return "dyadic", options | {"universe": query.universe}
            case _:
                return None

    def columns_of(self, query: Exact) -> list[str]:
        """The columns that an exact query reads. To count rows, it reads how many events each stands for."""
        weights = self.columns.count if query.aggregate == "count" else None
        return [text for text in (query.of, query.per, weights) if text is not None]

    def exact_of(self, query: Exact) -> tuple[Aggregate | Condition, dict[str, Any]]:
        """The aggregate to register with ``Windows.add``, and its options; columns are named as in the file."""
        aggregate = self._aggregate_of(query)
        condition: Aggregate | Condition = aggregate
        if query.above is not None:
            condition = aggregate > query.above
        elif query.below is not None:
            condition = aggregate < query.below
        return condition, {"last": self.window.length if query.last is None else query.last, "per": query.per}

    def _aggregate_of(self, query: Exact) -> Aggregate:
        column = query.of or ""
        match query.aggregate:
            case "count" if self.columns.count is not None:
                return agg.sum(self.columns.count)
            case "count":
                return agg.count()
            case "quantile":
                return agg.quantile(column, 0.5 if query.q is None else query.q)
            case name:
                by_name = {
                    "sum": agg.sum,
                    "avg": agg.avg,
                    "min": agg.min,
                    "max": agg.max,
                    "variance": agg.variance,
                    "stddev": agg.stddev,
                }
                return by_name[name](column)

    def windows(self) -> Windows:
        """Exact windows with the ticks and the lateness of the file, and no query yet."""
        tick = self.window.tick
        if tick is None:
            tick = "1s" if self.window.window.kind == "time" else 1
        return Windows(tick=tick, lateness=self.window.lateness)

    def monitor_of(self, settings: MonitorTable, seed: int | None = None) -> Monitor:
        """The monitor that builds sites and coordinator, with this seed or that of the file."""
        last = self.window.length if settings.last is None else settings.last
        seed = self.run.seed if seed is None else seed
        sketch = Ecm(window=last, tick=self.window.tick, eps=settings.sketch_eps, delta=settings.delta, seed=seed)
        streams = ("left", "right") if settings.kind == "join" else ("",)
        lateness = self.window.lateness
        if lateness is not None and (window := sketch.layout().window) is not None:
            lateness = last if window.length(lateness) > window.ticks else lateness  # older rows have left its window
        query = _monitored_query(settings)
        return Monitor(sketch, {settings.name: query}, streams=streams, scheme=settings.scheme, lateness=lateness)

    # -- what must fit together ----------------------------------------------------------------------------------------

    @model_validator(mode="after")
    def _check(self) -> "Config":
        mistakes = MistakeCollector()
        with mistakes.at():
            self._check_mode()
        self._check_store(mistakes)
        self._check_names(mistakes)
        built: set[str] = set()
        for number, query in enumerate(self.queries):
            with mistakes.at("queries", number):
                self._check_query(query, built)
        for number, settings in enumerate(self.monitors):
            with mistakes.at("monitors", number):
                self._check_monitor(settings)
        mistakes.raise_if_any()
        return self

    def _check_mode(self) -> None:
        mistakes, source = MistakeCollector(), self.source
        with mistakes.at():
            if not self.queries and not self.monitors:
                raise ParameterError("no queries or monitors defined", remedy="add [[queries]] or [[monitors]]")
        with mistakes.at("run"):
            if source.mode != "batch" and self.run.checkpoint is None:
                raise ParameterError(
                    "a stream needs a directory for its state", remedy='add checkpoint = "directory", or read it as a batch'
                )
        with mistakes.at("source", "mode"):
            if source.mode == "batch" and self.monitors:
                raise ParameterError(
                    "monitors need a stream", remedy='give "available-now" or "continuous", or use queries instead'
                )
        with mistakes.at("source", "format"):
            inferred = str(self.run.spark.get("spark.sql.streaming.schemaInference", "false")).lower() == "true"
            if source.mode != "batch" and source.format in FILES_WITH_COLUMNS and source.columns is None and not inferred:
                raise ParameterError("a stream of files needs their columns", remedy='add columns = "ts timestamp, url string"')
        mistakes.raise_if_any()

    def _check_store(self, mistakes: MistakeCollector) -> None:
        window = self.window.window
        with mistakes.at("store", "sketches"):
            if self.store.sketches not in ("never", "always") and window.length(self.store.sketches) < 1:
                raise ParameterError(f"must be at least {window.text(1)}")
        with mistakes.at("store", "keep"):
            if self.store.keep is not None and window.length(self.store.keep) < window.ticks:
                raise ParameterError(
                    f"must be at least {window.text(window.ticks)}, the length of the window",
                    remedy="make it longer or leave it out",
                )

    def _check_names(self, mistakes: MistakeCollector) -> None:
        for section, names in (
            ("queries", [query.name for query in self.queries]),
            ("monitors", [monitor.name for monitor in self.monitors]),
        ):
            for number, name in enumerate(names):
                with mistakes.at(section, number, "name"):
                    if name in names[:number]:
                        raise ParameterError(f"{section}[{names.index(name)}] has the same name", remedy="rename one of them")

    def _check_query(self, query: QueryBase, built: set[str]) -> None:
        """Check a query by building its sketch, unless the same one was built for another query."""
        mistakes = MistakeCollector()
        with mistakes.at("last"):
            self.window.check_last(query.last)
        with mistakes.at("by"):
            if query.by == "site" and self.columns.site is None:
                raise ParameterError("no column has the sites", remedy='add site = "column" to [columns]')
        with mistakes.at("kind"):
            if isinstance(query, Quantiles) and self.columns.value is None:
                raise ParameterError("no column has the values", remedy='add value = "column" to [columns]')
        with mistakes.at("per"):
            lateness = self.window.window.length(self.window.lateness) if self.window.lateness is not None else 0
            if isinstance(query, Exact) and query.per is not None and lateness > 0:
                raise ParameterError("groups need rows in order", remedy="leave per out, or lateness out of [window]")
        with mistakes.at():
            if isinstance(query, Exact):
                if not mistakes:
                    aggregate, options = self.exact_of(query)
                    self.windows().add(query.name, aggregate, **options)
            elif (sketch := self.sketch_of(query)) is not None and (description := repr(sketch)) not in built:
                kind, options = sketch
                KINDS[kind].sketch_class(**options)
                built.add(description)
        mistakes.raise_if_any()

    def _check_monitor(self, settings: MonitorTable) -> None:
        mistakes = MistakeCollector()
        with mistakes.at("last"):
            self.window.check_last(settings.last)
        mistakes.raise_if_any()
        self.monitor_of(settings)


def _monitored_query(settings: MonitorTable) -> MonitoredSelfJoin | InnerProduct | Count | Frequent:
    above, below, theta = settings.above, settings.below, settings.theta
    match settings.kind:
        case "self-join":
            return MonitoredSelfJoin(above=above, below=below, theta=theta)
        case "join":
            return InnerProduct(of=("left", "right"), above=above, below=below, theta=theta)
        case "count":
            return Count(key=settings.key, above=above, below=below, theta=theta)
        case "frequent":
            return Frequent(tau=settings.tau or 0, theta=theta)
