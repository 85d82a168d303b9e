"""The plan of a pipeline file: which state every site keeps, and which state answers which query.

Queries that need the same sketch share it. The name of a sketch describes it completely, so after the file has changed, a run
finds in the state of an earlier run every sketch that is still the same.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lately import __version__
from lately.config import Config, Exact, Join, MonitorTable, Quantiles, Query, Ranges
from lately.core.durations import Window
from lately.core.errors import ParameterError
from lately.exact.windows import Windows
from lately.monitor.monitor import Monitor
from lately.pipeline.compatibility import CHANGE_BACK, exact_record, monitor_notes, monitor_record, query_notes
from lately.pipeline.sketch_recipe import SketchRecipe
from lately.sketches.hashing import DEFAULT_SEED
from lately.sketches.windowed_ams import WindowedAmsSketch

#: Each filter is one bit of an int64 column.
MAX_FILTERS = 62


@dataclass(frozen=True)
class SketchSpec:
    """A sketch that every site keeps of the rows that pass a filter.

    Parameters
    ----------
    name
        Describes kind, options and filter.
    recipe
        How an empty one is built.
    filter_bit
        The filter, as an index into ``PipelinePlan.filters``; None for all rows.
    """

    name: str
    recipe: SketchRecipe
    filter_bit: int | None

    def empty(self) -> Any:
        """Return a new sketch."""
        return self.recipe.empty()

    def empty_at(self, site: str) -> Any:
        """Return a new sketch whose errors are independent of those of other sites, where its class can do that.

        Parameters
        ----------
        site
            The name of the site.
        """
        sketch = self.empty()
        if isinstance(sketch, WindowedAmsSketch):
            sketch.draw_phases(f"{self.name} {site}")
        return sketch


@dataclass(frozen=True)
class WindowsSpec:
    """Exact windows that every site keeps; all exact queries with the same filter share them.

    Parameters
    ----------
    name
        Describes the filter.
    filter_bit
        The filter, as an index into ``PipelinePlan.filters``; None for all rows.
    config
        The pipeline file, which gives ticks, lateness and columns.
    queries
        The exact queries.
    """

    name: str
    filter_bit: int | None
    config: Config
    queries: tuple[Exact, ...]

    def empty(self) -> Windows:
        """Return new windows with the queries added."""
        return self.with_queries(self.config.windows())

    def with_queries(self, windows: Windows) -> Windows:
        """Give windows of an earlier run the queries of this one: drop those that are gone, add those that are new."""
        names = {query.name for query in self.queries}
        for name in [name for name in windows.queries if name not in names]:
            windows.drop(name)
        windows._known = ()  # the next batch may bring other columns than the last
        for query in self.queries:
            if query.name not in windows:
                aggregate, options = self.config.exact_of(query)
                windows.add(query.name, aggregate, **options)
        return windows


@dataclass(frozen=True)
class MonitorSpec:
    """A monitor, in which every site of the pipeline takes part.

    Parameters
    ----------
    name
        "monitor " and the monitor's name in the file.
    streams
        Its streams, each with the index of its filter; None for all rows.
    settings
        The monitor's table in the file.
    monitor
        What builds sites and coordinators.
    """

    name: str
    streams: tuple[tuple[str, int | None], ...]
    settings: MonitorTable
    monitor: Monitor = field(compare=False)


#: What a site keeps.
StateSpec = SketchSpec | WindowsSpec | MonitorSpec


@dataclass(frozen=True)
class QueryBinding:
    """A query and the names of the specs that answer it: one, or two for a join."""

    query: Query
    spec_names: tuple[str, ...]


@dataclass(frozen=True)
class PipelinePlan:
    """Everything that a task needs to know about a pipeline; it is sent to the executors.

    Parameters
    ----------
    config
        The pipeline file.
    window
        Its window.
    filters
        All different filters, as SQL expressions.
    specs
        What every site keeps.
    bindings
        The queries, in the order of the file, each with what answers it.
    exact_columns
        The columns that exact queries read, as SQL expressions.
    seed
        The seed of the hash functions of all sketches and monitors. No name contains it, so it cannot be read from a table.
    """

    config: Config
    window: Window
    filters: tuple[str, ...]
    specs: tuple[StateSpec, ...]
    bindings: tuple[QueryBinding, ...]
    exact_columns: tuple[str, ...]
    seed: int = DEFAULT_SEED

    @classmethod
    def of(cls, config: Config, seed: int | None = None) -> "PipelinePlan":
        """Plan a pipeline.

        Parameters
        ----------
        config
            The pipeline file.
        seed
            The seed of the state. By default that of the file, or the library's default.
        """
        return _Planner(config, seed).plan()

    # -- which columns of a row are needed ---------------------------------------------------------------------------------

    @property
    def needs_keys(self) -> bool:
        """Whether anything returns keys or reads them as numbers, so that hashes are not enough."""
        return any(
            (isinstance(spec, SketchSpec) and spec.recipe.key_encoding in ("key", "integer"))
            or (isinstance(spec, MonitorSpec) and spec.settings.kind == "frequent")
            for spec in self.specs
        )

    @property
    def key_universe(self) -> int | None:
        """The smallest universe of all range queries, within which keys must lie; None without such queries."""
        sizes = [query.universe for query in self.config.queries if isinstance(query, Ranges)]
        return min(sizes) if sizes else None

    @property
    def value_queries(self) -> list[Quantiles]:
        """The queries that read the column ``value``."""
        return [query for query in self.config.queries if isinstance(query, Quantiles)]

    @property
    def monitors(self) -> list[MonitorSpec]:
        """The specs that are monitors."""
        return [spec for spec in self.specs if isinstance(spec, MonitorSpec)]

    # -- lengths of time, in ticks ---------------------------------------------------------------------------------------------

    @property
    def lateness(self) -> int:
        """How late a row may be, in ticks."""
        lateness = self.config.window.lateness
        return 0 if lateness is None else self.window.length(lateness)

    @property
    def ahead(self) -> int | None:
        """How long a gap before the last rows of a batch may be, in ticks; None for any length."""
        ahead = self.config.window.ahead
        if ahead == "any":
            return None
        if ahead is not None:
            return self.window.length(ahead)
        minute = -(-60 * 10**9 // self.window.unit) if self.window.kind == "time" else self.window.ticks // 60
        return max(self.lateness, minute, 1)

    @property
    def keep(self) -> int | None:
        """How long the store keeps its rows, in ticks; None for ever."""
        keep = self.config.store.keep
        return None if keep is None else self.window.length(keep)

    # -- what readers of the store need to know --------------------------------------------------------------------------------

    def about(self, keys: str) -> dict[str, Any]:
        """Return the content of the store's ``about.json``.

        Parameters
        ----------
        keys
            What keys are: "text", "integer" or "binary".
        """
        config = self.config
        sketches = {spec.name: spec for spec in self.specs if isinstance(spec, SketchSpec)}
        return {
            "lately": __version__,
            "name": config.name,
            "time_type": "timestamp" if self.window.kind == "time" else "integer",
            "keys": keys,
            "window": config.window.model_dump(include={"length", "tick", "lateness"}),
            "guarantee": config.guarantee.model_dump(),
            "queries": [
                binding.query.model_dump() | {"sketches": [name for name in binding.spec_names if name in sketches]}
                for binding in self.bindings
            ],
            "monitors": [monitor.model_dump() for monitor in config.monitors],
            "sketches": {
                name: {"kind": spec.recipe.kind, "where": self._where(spec), "query": None}
                | {option: value for option, value in spec.recipe.options if option != "seed"}
                for name, spec in sketches.items()
            },
            "keep": config.store.keep,
            "stored": config.store.sketches,
        }

    def _where(self, spec: SketchSpec) -> str | None:
        return None if spec.filter_bit is None else self.filters[spec.filter_bit]

    # -- the state of an earlier run -------------------------------------------------------------------------------------------

    def compatibility(self) -> dict[str, Any]:
        """Return what a later run must agree with; every version of the state contains it."""
        columns, table = self.config.columns, self.config.window
        return {
            "base": {
                "columns.time": columns.time,
                "columns.key": columns.key,
                "columns.site": columns.site,
                "columns.count": columns.count,
                "window.length": table.length,
                "window.tick": table.tick,
                "window.lateness": table.lateness,
            },
            "value": columns.value,
            "seed": self.seed,
            "queries": {binding.query.name: list(binding.spec_names) for binding in self.bindings},
            "exact": {query.name: exact_record(query) for query in self.config.queries if isinstance(query, Exact)},
            "monitors": {spec.settings.name: monitor_record(spec.settings) for spec in self.monitors},
        }

    def check_compatible(self, earlier: dict[str, Any]) -> list[str]:
        """Compare with the plan of an earlier run; return notes for the user about queries and monitors that came or went.

        Parameters
        ----------
        earlier
            ``compatibility()`` of the plan that the state was written with.

        Raises ParameterError if the state cannot be continued with this plan.
        """
        current = self.compatibility()
        for name, value in earlier["base"].items():
            if current["base"][name] != value:
                raise ParameterError(
                    f"{name} is {current['base'][name]!r} and was {value!r} when the state was written, which depends on it",
                    remedy=CHANGE_BACK,
                )
        if current["value"] != earlier["value"] and earlier["value"] is not None and self.value_queries:
            raise ParameterError(f"columns.value is {current['value']!r} and was {earlier['value']!r}", remedy=CHANGE_BACK)
        return [
            *query_notes(current, earlier),
            *monitor_notes(current["monitors"], earlier["monitors"]),
            *(
                f"query {name!r} is gone; the state that only it needed is dropped"
                for name in earlier["queries"]
                if name not in current["queries"]
            ),
            *(f"monitor {name!r} is gone" for name in earlier["monitors"] if name not in current["monitors"]),
        ]


class _Planner:
    """Collects the specs that a pipeline file needs, each once."""

    def __init__(self, config: Config, seed: int | None) -> None:
        seed = config.run.seed if seed is None else seed
        self._config, self._seed = config, DEFAULT_SEED if seed is None else seed
        self._filters: dict[str, int] = {}
        self._specs: dict[str, StateSpec] = {}

    def plan(self) -> PipelinePlan:
        config = self._config
        bindings = tuple(QueryBinding(query, self._names_of(query)) for query in config.queries)
        exact = [query for query in config.queries if isinstance(query, Exact)]
        self._add_windows(exact)
        self._add_monitors()
        columns = dict.fromkeys(column for query in _by_filter(exact) for column in config.columns_of(query))
        if len(self._filters) > MAX_FILTERS:
            raise ParameterError(
                f"{len(self._filters)} different filters (where, left, right), and at most {MAX_FILTERS} are possible",
                remedy="use the same filter in several queries",
            )
        return PipelinePlan(
            config,
            config.window.window,
            tuple(self._filters),
            tuple(self._specs.values()),
            bindings,
            tuple(columns),
            self._seed,
        )

    def _names_of(self, query: Query) -> tuple[str, ...]:
        """The names of the specs that answer a query; sketches are added, windows only when all exact queries are known."""
        if isinstance(query, Exact):
            return (_spec_name("exact", {}, query.where),)
        if isinstance(query, Join):
            return self._add_sketch(query, query.left), self._add_sketch(query, query.right)
        return (self._add_sketch(query, query.where),)

    def _add_sketch(self, query: Query, where: str | None) -> str:
        kind_and_options = self._config.sketch_of(query)
        assert kind_and_options is not None
        kind, options = kind_and_options
        if kind == "topk":
            options = options | {"k": 1}  # how many keys are listed depends on the query, not on the sketch
        name = _spec_name(kind, options, where)
        recipe = SketchRecipe.of(kind, **options, seed=self._seed)
        self._specs[name] = SketchSpec(name, recipe, self._filter_bit(where))
        return name

    def _add_windows(self, queries: Sequence[Exact]) -> None:
        for where in dict.fromkeys(query.where for query in queries):
            name = _spec_name("exact", {}, where)
            same = tuple(query for query in queries if query.where == where)
            self._specs[name] = WindowsSpec(name, self._filter_bit(where), self._config, same)

    def _add_monitors(self) -> None:
        for settings in self._config.monitors:
            name = f"monitor {settings.name}"
            is_join = settings.kind == "join"
            filters = (("left", settings.left), ("right", settings.right)) if is_join else (("", settings.where),)
            streams = tuple((stream, self._filter_bit(where)) for stream, where in filters)
            self._specs[name] = MonitorSpec(name, streams, settings, self._config.monitor_of(settings, self._seed))

    def _filter_bit(self, where: str | None) -> int | None:
        return None if where is None else self._filters.setdefault(where, len(self._filters))


def _by_filter(queries: Sequence[Exact]) -> list[Exact]:
    """The queries, those with the same filter together, in the order in which filters occur."""
    order = list(dict.fromkeys(query.where for query in queries))
    return sorted(queries, key=lambda query: order.index(query.where))


def _spec_name(kind: str, options: dict[str, Any], where: str | None) -> str:
    """A name that describes kind, options and filter."""
    described = " ".join(f"{name}={json.dumps(value)}" for name, value in sorted(options.items()) if value is not None)
    return " ".join(part for part in (kind, described, f"where {where}" if where else "") if part)
