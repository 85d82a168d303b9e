"""What sites and their coordinator must agree on: the sketch, the streams, the queries and how they are laid out."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np

from lately.core.arguments import check_choice
from lately.core.columns import Ints
from lately.core.durations import Duration, Window
from lately.core.errors import InputError, ParameterError
from lately.core.keys import Hashes, hash_keys
from lately.ingest.shape import window_and_lateness
from lately.monitor.frequent import Frequent
from lately.monitor.layout import Layout
from lately.monitor.queries import Count, KeyRange, Query, TotalCount
from lately.monitor.sketch import Ecm, FastAms, Sketch
from lately.monitor.zones import Floats

Scheme = Literal["functional", "geometric", "push", "ship", "oracle"]
Flush = Literal["lazy", "eager"]

#: A site that waits for an answer sends its changes again when they exceed this share of the smallest theta, at least 0.01.
_IMPATIENCE, _LEAST_THETA = 0.25, 0.01


@dataclass(frozen=True)
class _Rules:
    """What a scheme can do, besides tracking values."""

    #: Frequent keys, late events, and sites that do not answer.
    is_complete: bool = False
    sends_hashes_only: bool = False
    tracks_fast_ams_only: bool = False


_RULES: dict[Scheme, _Rules] = {
    "functional": _Rules(is_complete=True),
    "geometric": _Rules(is_complete=True),
    "push": _Rules(tracks_fast_ams_only=True),
    "ship": _Rules(sends_hashes_only=True),
    "oracle": _Rules(),
}


class MonitorDefinition:
    """Base of ``Monitor``, which documents the parameters: everything that sites and coordinators need to know of it."""

    def __init__(
        self,
        sketch: Sketch,
        queries: Mapping[str, Query | Frequent] | Query | Frequent,
        *,
        streams: Sequence[str] = ("",),
        scheme: Scheme = "functional",
        flush: Flush | None = None,
        lateness: Duration | None = None,
    ) -> None:
        if not isinstance(sketch, Ecm | FastAms):
            raise ParameterError(
                f"a {type(sketch).__name__} is not the sketch of a monitor", remedy="give monitor.Ecm(…) or monitor.FastAms(…)"
            )
        flush = flush or ("eager" if isinstance(sketch, Ecm) else "lazy")
        for name, choice, allowed in (("scheme", scheme, get_args(Scheme)), ("flush", flush, get_args(Flush))):
            check_choice(name, choice, allowed)
        if not streams or len(set(streams)) != len(streams):
            raise ParameterError(f"streams={streams!r} do not have distinct names", remedy="name every stream, each once")
        #: Whether no seed was given, so that a stored site or coordinator with any seed can be restored.
        self.has_random_seed = sketch.seed is None
        sketch = replace(sketch, seed=secrets.randbits(64)) if sketch.seed is None else sketch
        self.sketch, self.scheme, self.flush = sketch, scheme, flush
        self.streams = tuple(streams)
        self._rules = _RULES[scheme]
        named = _named_queries(queries)
        #: The query for frequent keys and its name, if there is one.
        self.frequent = self._frequent_query(named)
        self.names = tuple(name for name, query in named.items() if not isinstance(query, Frequent))
        self.queries: tuple[Query, ...] = tuple(
            query.for_sketch(sketch) if isinstance(query, Query) else query
            for query in named.values()
            if not isinstance(query, Frequent)
        )
        self._given_lateness = lateness
        #: How many ticks older than the newest event of its stream an event may be.
        self.lateness = self._lateness_ticks(lateness)
        self._lay_out()

    def _frequent_query(self, named: Mapping[str, Query | Frequent]) -> tuple[str, Frequent] | None:
        frequent = [(name, query) for name, query in named.items() if isinstance(query, Frequent)]
        if len(frequent) > 1:
            raise ParameterError(
                f"{len(frequent)} queries for frequent keys", remedy="give one, and build another Monitor for another tau"
            )
        if frequent and isinstance(self.sketch, FastAms):
            raise ParameterError("a Frequent needs counts over a window", remedy="give Ecm(…) instead of FastAms(…)")
        if frequent and not self._rules.is_complete:
            raise ParameterError(
                f"scheme={self.scheme!r} cannot monitor frequent keys", remedy="give 'functional' or 'geometric'"
            )
        return frequent[0] if frequent else None

    def _lateness_ticks(self, lateness: Duration | None) -> int:
        if lateness is None:
            return 0
        if self.sketch.window is None or not self._rules.is_complete:
            raise ParameterError(
                f"lateness={lateness!r}: events are late only over a window, and only the schemes 'functional' and 'geometric' "
                "wait for them",
                remedy="give FastAms(window=…) or another scheme, or leave lateness out",
            )
        return window_and_lateness(self.sketch.window, self.sketch.tick, lateness)[1]

    def _lay_out(self) -> None:
        """Make a layout for each stream, then one for each query that has its own counter."""
        sketched = self.sketch.layout()
        #: The layouts of the streams, then those of the queries that have their own counter.
        self.layouts: list[Layout] = [sketched] * len(self.streams)
        #: The layouts that each query reads.
        self.channels: list[tuple[int, ...]] = []
        self._own_counters: list[tuple[int, int, Count]] = []
        #: The queries that count all arrivals of a stream, by the stream, if bounds of true values depend on that.
        self.totals: dict[int, int] = {}
        if self.sketch.signed and self.sketch.window is not None:
            named = len(self.queries)
            self.queries += tuple(TotalCount(stream=name) for name in self.streams)
            self.totals = {stream: named + stream for stream in range(len(self.streams))}
        for query in self.queries:
            self._check(query)
            channels = query.streams(self.streams)
            if isinstance(query, Count):
                self._own_counters.append((channels[0], len(self.layouts), query))
                channels = (len(self.layouts),)
                self.layouts.append(query.layout(self.sketch))
            self.channels.append(channels)

    def _check(self, query: Query) -> None:
        if not isinstance(query, Query):
            raise ParameterError(f"a {type(query).__name__} is not a query", remedy="give one such as SelfJoin(theta=0.1)")
        query.check(self.sketch)
        if isinstance(query, KeyRange) and self._rules.sends_hashes_only:
            raise ParameterError(
                f"scheme={self.scheme!r} sends hashes of keys, which a KeyRange cannot select", remedy="give another scheme"
            )
        if self._rules.tracks_fast_ams_only and (query.threshold is not None or isinstance(self.sketch, Ecm)):
            raise ParameterError(
                f"scheme={self.scheme!r} tracks values over Fast-AMS sketches only", remedy="give 'functional' for others"
            )

    def __repr__(self) -> str:
        """The arguments; part of the fingerprint, so it must not change."""
        named = [*zip(self.names, self.queries, strict=False), *([self.frequent] if self.frequent else [])]
        queries = ", ".join(f"{name!r}: {query!r}" for name, query in named)
        lateness = f", lateness={self._given_lateness!r}" if self.lateness else ""
        return (
            f"Monitor({self.sketch!r}, {{{queries}}}, streams={self.streams!r}, scheme={self.scheme!r}, "
            f"flush={self.flush!r}{lateness})"
        )

    @property
    def seed(self) -> int:
        """The seed of the hash functions; keep it secret, and give it to monitors that are built alike elsewhere."""
        assert self.sketch.seed is not None
        return int(self.sketch.seed)

    def with_seed(self, seed: int) -> Self:
        """The same monitor with other hash functions.

        Parameters
        ----------
        seed
            Any 64-bit integer.

        >>> from lately.monitor import Ecm, Monitor, SelfJoin
        >>> monitor = Monitor(Ecm(window="1h", eps=0.1, delta=0.1), SelfJoin(theta=0.2))
        >>> monitor.with_seed(42).seed, monitor.with_seed(monitor.seed).fingerprint == monitor.fingerprint
        (42, True)
        """
        queries = dict(zip(self.names, self.queries, strict=False)) | dict([self.frequent] if self.frequent else [])
        sketch = replace(self.sketch, seed=seed)
        lateness = self._given_lateness
        return type(self)(sketch, queries, streams=self.streams, scheme=self.scheme, flush=self.flush, lateness=lateness)

    @property
    def window(self) -> Window | None:
        """The window of the sketches; None if they have none."""
        return self.layouts[0].window

    @property
    def eps(self) -> float:
        """The part of theta that is the error of the sketch."""
        return self.sketch.eps if isinstance(self.sketch, FastAms) else 0.0

    @cached_property
    def impatience(self) -> float:
        """The share of itself by which a site may change while it waits, before it sends its changes again; 0 if never."""
        if not self._rules.is_complete:
            return 0.0
        thetas = [query.theta or 0.0 for query in self.queries] + ([self.frequent[1].theta] if self.frequent else [])
        return _IMPATIENCE * max(min(thetas), _LEAST_THETA)

    @cached_property
    def buffers_keys(self) -> bool:
        """Whether reorder buffers need the keys themselves, besides their hashes."""
        return any(isinstance(query, KeyRange) for query in self.queries)

    @cached_property
    def fingerprint(self) -> int:
        """A hash of the definition, equal for monitors that are built alike. It depends on the seed but does not reveal it."""
        return int(hash_keys([repr(self) + "".join(query.fingerprint_details() for query in self.queries)])[0])

    @cached_property
    def fingerprint_of_any_seed(self) -> int:
        """A hash of the definition without the seed."""
        return int(hash_keys([f"any seed {self.with_seed(0).fingerprint}"])[0])

    # -- streams and layouts ---------------------------------------------------------------------------------------------

    def query_and_layout(self, number: int) -> tuple[Query, Layout]:
        """A query by its number, and the layout of what it reads."""
        return self.queries[number], self.layouts[self.channels[number][0]]

    def stream(self, name: str | None) -> int:
        """The index of a stream."""
        if name is None:
            if len(self.streams) > 1:
                raise InputError(f"the monitor has the streams {', '.join(self.streams)}", remedy="say which with stream=")
            return 0
        if name not in self.streams:
            raise InputError(f"no stream {name!r}", remedy=f"the monitor has {', '.join(map(repr, self.streams))}")
        return self.streams.index(name)

    def layouts_of(self, stream: int) -> list[int]:
        """The layouts that events of a stream go to."""
        return [stream, *(channel for source, channel, _ in self._own_counters if source == stream)]

    def routes(self, stream: int, hashes: Hashes, keys: Ints | None) -> Iterator[tuple[int, Any]]:
        """The layouts that events of a stream go to, each with an index of the events that go there.

        ``keys`` are the keys themselves if they are integers; a KeyRange raises ``InputError`` without them.
        """
        yield stream, slice(None)
        for source, channel, query in self._own_counters:
            if source == stream:
                yield channel, query.picks(hashes, keys)

    def empty_vectors(self) -> list[Any]:
        """A vector of zeros for each layout."""
        return [np.zeros(layout.size, np.int64) for layout in self.layouts]

    def tables(self, number: int, vectors: Sequence[Any]) -> list[Floats]:
        """The vectors that a query reads, as tables of rows."""
        return [
            np.asarray(vectors[i], np.float64).reshape(self.layouts[i].rows, self.layouts[i].width)
            for i in self.channels[number]
        ]

    def estimate(self, number: int, vectors: Sequence[Any]) -> float:
        """The estimate of a query from the numbers of all sites added up."""
        return self.queries[number].estimate(self.tables(number, vectors), self.layouts[self.channels[number][0]])


def _named_queries(queries: Mapping[str, Query | Frequent] | Query | Frequent) -> dict[str, Query | Frequent]:
    if not isinstance(queries, Mapping | Query | Frequent):
        raise ParameterError(f"queries are a {type(queries).__name__}", remedy="give a dict of their names, or one query")
    named = {"": queries} if isinstance(queries, Query | Frequent) else dict(queries)
    if not named:
        raise ParameterError("no queries", remedy="give at least one, such as SelfJoin(theta=0.1)")
    return named
