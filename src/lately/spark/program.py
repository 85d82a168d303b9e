"""What a pipeline file comes down to: which sketches every site keeps, and who asks them what.

Queries that need the same sketch share it. A sketch is called by what it is, so that a changed file finds in the state of an
earlier run what is still the same.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from lately import __version__
from lately.config import Config, Counts, Exact, Join, Quantiles, Query, Ranges, SelfJoin, Top, Watch
from lately.core.durations import Window
from lately.core.errors import ParameterError
from lately.exact.windows import Windows
from lately.monitor.monitor import Monitor
from lately.sketches.hashing import DEFAULT_SEED
from lately.spark.kinds import Recipe


@dataclass(frozen=True)
class Kept:
    """A sketch that every site keeps of the rows that pass a filter (all, if ``bit`` is None)."""

    name: str
    recipe: Recipe
    bit: int | None

    def empty(self) -> Any:
        return self.recipe.empty()


@dataclass(frozen=True)
class KeptWindows:
    """Exact windows that every site keeps; all exact queries over the same rows share them."""

    name: str
    bit: int | None
    config: Config
    queries: tuple[Exact, ...]

    def empty(self) -> Windows:
        return self.arranged(self.config.windows())

    def arranged(self, windows: Windows) -> Windows:
        """Windows from an earlier run, with the queries of this one."""
        known = {query.name for query in self.queries}
        for name in [name for name in windows.queries if name not in known]:
            windows.drop(name)
        windows._known = ()  # the next batch may bring other columns than the last
        for query in self.queries:
            if query.name not in windows:
                what, options = self.config.exact_of(query)
                windows.add(query.name, what, **options)
        return windows


@dataclass(frozen=True)
class KeptMonitor:
    """A monitor's site, which every site is; ``streams`` tells which rows its streams have."""

    name: str
    streams: tuple[tuple[str, int | None], ...]
    watch: Watch
    monitor: Monitor = field(compare=False)


Thing = Kept | KeptWindows | KeptMonitor


@dataclass(frozen=True)
class Ask:
    """A query and the names of the sketches that it asks: two for a join."""

    query: Query
    of: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Everything that a task has to know; it travels to the executors."""

    config: Config
    window: Window
    filters: tuple[str, ...]
    kept: tuple[Thing, ...]
    asks: tuple[Ask, ...]
    #: Columns that exact queries read: expressions in SQL.
    extras: tuple[str, ...]
    #: Of the hash functions of all sketches and monitors. It is in no name, so that nobody reads it from a table.
    seed: int = DEFAULT_SEED

    @classmethod
    def of(cls, config: Config, seed: int | None = None) -> "Program":
        """Work out what has to be kept; ``seed`` is that of the state, the file's or the default if left out."""
        seed = config.run.seed if seed is None else seed
        seed = DEFAULT_SEED if seed is None else seed
        filters: dict[str, int] = {}
        kept: dict[str, Thing] = {}
        asks: list[Ask] = []

        def bit_of(where: str | None) -> int | None:
            return None if where is None else filters.setdefault(where, len(filters))

        def keep(query: Query, where: str | None) -> str:
            found = config.sketch_of(query)
            assert found is not None
            kind, options = found
            if kind == "topk":
                options = options | {"k": 1}  # how many are listed is the question's business
            recipe = Recipe.of(kind, **options, seed=seed)
            name = _called(kind, options, where)
            kept[name] = Kept(name, recipe, bit_of(where))
            return name

        exact: dict[str | None, list[Exact]] = {}
        for query in config.queries:
            if isinstance(query, Exact):
                exact.setdefault(query.where, []).append(query)
                asks.append(Ask(query, (_called("exact", {}, query.where),)))
            elif isinstance(query, Join):
                asks.append(Ask(query, (keep(query, query.left), keep(query, query.right))))
            else:
                asks.append(Ask(query, (keep(query, query.where),)))
        for where, queries in exact.items():
            name = _called("exact", {}, where)
            kept[name] = KeptWindows(name, bit_of(where), config, tuple(queries))
        for watch in config.monitors:
            name = f"monitor {watch.name}"
            parts = (("left", watch.left), ("right", watch.right)) if watch.kind == "join" else (("", watch.where),)
            streams = tuple((stream, bit_of(where)) for stream, where in parts)
            kept[name] = KeptMonitor(name, streams, watch, config.monitor_of(watch, seed))
        extras = dict.fromkeys(text for queries in exact.values() for query in queries for text in config.columns_of(query))
        if len(filters) > 62:
            raise ParameterError(
                f"{len(filters)} different filters (where, left, right); at most 62 fit, so make some of them alike"
            )
        return cls(config, config.window.window, tuple(filters), tuple(kept.values()), tuple(asks), tuple(extras), seed)

    # -- what crosses ------------------------------------------------------------------------------------------------------

    @property
    def names_keys(self) -> bool:
        """Whether anything gives keys back or reads them as numbers, so that hashes are not enough."""
        return any(
            (isinstance(thing, Kept) and thing.recipe.road in ("key", "integer"))
            or (isinstance(thing, KeptMonitor) and thing.watch.kind == "frequent")
            for thing in self.kept
        )

    @property
    def integer_keys(self) -> int | None:
        """The least universe that keys must lie in, where queries for ranges ask for one."""
        sizes = [query.universe for query in self.config.queries if isinstance(query, Ranges)]
        return min(sizes) if sizes else None

    @property
    def numbers(self) -> list[Quantiles]:
        """The queries that read ``value``."""
        return [query for query in self.config.queries if isinstance(query, Quantiles)]

    @property
    def monitors(self) -> list[KeptMonitor]:
        return [thing for thing in self.kept if isinstance(thing, KeptMonitor)]

    @property
    def lateness(self) -> int:
        """How late a row may come, in ticks."""
        given = self.config.window.lateness
        return 0 if given is None else self.window.length(given)

    @property
    def ahead(self) -> int | None:
        """How long a gap before the last rows of a batch may be, in ticks; None for any length."""
        given = self.config.window.ahead
        if given == "any":
            return None
        if given is not None:
            return self.window.length(given)
        minute = -(-60 * 10**9 // self.window.unit) if self.window.kind == "time" else self.window.ticks // 60
        return max(self.lateness, minute, 1)

    @property
    def keep(self) -> int | None:
        """How long the store keeps what it has, in ticks; None for ever."""
        given = self.config.store.keep
        return None if given is None else self.window.length(given)

    # -- what readers of the store have to know --------------------------------------------------------------------------------

    def about(self, keys: str) -> dict[str, Any]:
        """What the tables of the store are about; ``keys`` says what keys are: text, integer or binary."""
        config = self.config
        stored = {thing.name: thing for thing in self.kept if isinstance(thing, Kept)}
        return {
            "lately": __version__,
            "name": config.name,
            "moment": "timestamp" if self.window.kind == "time" else "integer",
            "keys": keys,
            "window": config.window.model_dump(include={"length", "tick", "lateness"}),
            "guarantee": config.guarantee.model_dump(),
            "queries": [
                ask.query.model_dump() | {"sketches": [name for name in ask.of if name in stored]} for ask in self.asks
            ],
            "monitors": [watch.model_dump() for watch in config.monitors],
            "sketches": {
                name: {"kind": thing.recipe.kind, "where": _where(thing, self.filters), "query": None}
                | {option: value for option, value in thing.recipe.options if option != "seed"}
                for name, thing in stored.items()
            },
            "keep": config.store.keep,
            "stored": config.store.sketches,
        }

    # -- what an earlier run has left ------------------------------------------------------------------------------------------

    def described(self) -> dict[str, Any]:
        """What a later run has to agree with."""
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
            "queries": {ask.query.name: list(ask.of) for ask in self.asks},
            "exact": {query.name: _asked(query) for query in self.config.queries if isinstance(query, Exact)},
            "monitors": {thing.watch.name: _watched(thing.watch) for thing in self.monitors},
        }

    def carried(self, earlier: dict[str, Any]) -> list[str]:
        """What changes against an earlier run's state, told to the user; refuses what cannot be carried over."""
        now = self.described()
        remedy = "start anew with another [run] checkpoint, or change it back"
        for name, was in earlier["base"].items():
            if now["base"][name] != was:
                raise ParameterError(
                    f"{name} is {now['base'][name]!r} and was {was!r} when the state was written, all of which depends on it; "
                    f"{remedy}"
                )
        if now["value"] != earlier["value"] and earlier["value"] is not None and self.numbers:
            raise ParameterError(f"columns.value is {now['value']!r} and was {earlier['value']!r}; {remedy}")
        notes = []
        held = {name for names in earlier["queries"].values() for name in names}
        for name, of in now["queries"].items():
            was = earlier["queries"].get(name)
            if was is not None and was != of:
                raise ParameterError(
                    f"the query {name!r} needs {' and '.join(of)}; its state has {' and '.join(was)}, which is something else: "
                    "give the query another name to start it empty, or change it back"
                )
            if was is None:
                has = all(one in held for one in of) and name not in now["exact"]
                notes.append(f"query {name!r} is new and " + ("asks what is kept already" if has else "counts from now on"))
        for name, asked in now["exact"].items():
            if earlier["exact"].get(name, asked) != asked:
                raise ParameterError(
                    f"the exact query {name!r} asks another thing than before; give it another name to start it empty"
                )
        for name, watch in now["monitors"].items():
            if earlier["monitors"].get(name, watch) != watch:
                raise ParameterError(
                    f"the monitor {name!r} is not what it was; give it another name to start it anew, or change it back"
                )
            if name not in earlier["monitors"]:
                notes.append(f"monitor {name!r} is new and watches from now on")
        notes += [
            f"query {name!r} is gone; what only it needed is dropped"
            for name in earlier["queries"]
            if name not in now["queries"]
        ]
        notes += [f"monitor {name!r} is gone" for name in earlier["monitors"] if name not in now["monitors"]]
        return notes


def _called(kind: str, options: dict[str, Any], where: str | None) -> str:
    """A sketch's name: what it is."""
    said = " ".join(f"{name}={json.dumps(value)}" for name, value in sorted(options.items()) if value is not None)
    return " ".join(part for part in (kind, said, f"where {where}" if where else "") if part)


def _where(thing: Kept, filters: tuple[str, ...]) -> str | None:
    return None if thing.bit is None else filters[thing.bit]


def _watched(watch: Watch) -> dict[str, Any]:
    """A monitor as its file has it; without a ``below`` that is not given, which states of older versions do not have."""
    return watch.model_dump(mode="json", exclude={"below"} if watch.below is None else None)


def _asked(query: Exact) -> dict[str, Any]:
    return query.model_dump(mode="json", exclude={"name", "by"})


__all__ = ["Ask", "Counts", "Exact", "Join", "Kept", "KeptMonitor", "KeptWindows", "Program", "SelfJoin", "Top"]
