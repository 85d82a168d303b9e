"""A monitor: which streams are sketched how, what is watched in them, and by which scheme."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from lately.core.arguments import check_choice, check_integer, check_word
from lately.core.columns import Ints
from lately.core.durations import Duration, Window
from lately.core.errors import InputError, ParameterError
from lately.core.keys import Hashes, hash_keys
from lately.ingest.shape import window_and_lateness
from lately.monitor.baselines import OracleCoordinator, PushCoordinator, ShipCoordinator
from lately.monitor.coordinator import Coordinator
from lately.monitor.drift import WindowDrift
from lately.monitor.frequent import Frequent, TrueCounts
from lately.monitor.functional import FunctionalCoordinator
from lately.monitor.geometric import GeometricCoordinator
from lately.monitor.guards import FunctionalGuard, GeometricGuard, Guard, PushingGuard, SilentGuard
from lately.monitor.layout import Layout
from lately.monitor.queries import Count, KeyRange, Query, TotalCount
from lately.monitor.site import Site
from lately.monitor.sketch import Ecm, FastAms, Sketch
from lately.monitor.stored import SITES, restored
from lately.monitor.zones import Floats

Scheme = Literal["functional", "geometric", "push", "ship", "oracle"]
Flush = Literal["lazy", "eager"]

#: A site that waits for an answer tells again when it has changed by this share of the smallest theta, but at least 0.01.
_IMPATIENCE, _LEAST_THETA = 0.25, 0.01


class Monitor:
    """What sites and their coordinator have in common; give all of them the same one, or build it alike with the same seed.

    Who knows the hash functions can choose keys that collide or cancel. So a sketch without a ``seed`` gets a secret one,
    drawn at random: ``monitor.seed``. It goes with the monitor when that is pickled, and with stored sites and coordinators.

    ``queries`` are named; ``streams`` names the streams of every site where there are several. ``scheme`` says how the
    promise is kept, that no estimate leaves its tolerance without a message on its way:

    - "functional": sites count steps of a convex pressure (functional geometric monitoring). Scales to hundreds of sites.
    - "geometric": balls, or the planes of ECM-15 §6.5, balanced with slack: what the papers do. For a few sites.
    - "push": every site pushes its sketch when that has changed by a share of itself (CG). Fast-AMS only.
    - "ship": every event is sent. "oracle": nothing is sent unless needed, by knowing all; for simulations.

    ``flush`` says who tells what has changed when the reference is no longer good: all sites ("eager"), or as few as will
    do, those with most changes first ("lazy"). By default small sketches (ECM) are told eagerly and large ones lazily.

    ``lateness`` is how much older than the newest event of its stream at a site an event may be, such as "60s"; by default
    none. It takes a window and one of the first two schemes. A site counts such events at once and holds them back until
    nothing can overtake them, as sketches do: what is announced is about the window that ends with a site's newest event.

    >>> from lately.monitor import Ecm, Monitor, SelfJoin
    >>> watch = Monitor(Ecm(window="1h", eps=0.1, delta=0.1), {"skew": SelfJoin(theta=0.2)})
    >>> paris, coordinator = watch.site(1), watch.coordinator(sites=[1])
    >>> down = [reply for message in paris.update(["/"] * 3, 10) for reply in coordinator.receive(message)]
    >>> [paris.receive(message) for message in down], coordinator["skew"].value
    ([[]], 9.0)
    """

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
            raise ParameterError(f"a {type(sketch).__name__} where monitor.Ecm(…) or monitor.FastAms(…) belongs")
        flush = flush or ("eager" if isinstance(sketch, Ecm) else "lazy")
        for name, given, allowed in (("scheme", scheme, get_args(Scheme)), ("flush", flush, get_args(Flush))):
            check_choice(name, given, allowed)
        if not isinstance(queries, Mapping | Query | Frequent):
            raise ParameterError(f"queries are a {type(queries).__name__}; give a dict of their names, or one query")
        named = {"": queries} if isinstance(queries, Query | Frequent) else dict(queries)
        if not named:
            raise ParameterError("no queries; give at least one, such as SelfJoin(theta=0.1)")
        if not streams or len(set(streams)) != len(streams):
            raise ParameterError(f"streams={streams!r}: give each stream a name of its own")
        #: Whether nobody gave a seed, so that any will do: that of a stored site, too.
        self._drawn = sketch.seed is None
        sketch = replace(sketch, seed=secrets.randbits(64)) if sketch.seed is None else sketch
        self.sketch, self.scheme, self.flush = sketch, scheme, flush
        self.streams = tuple(streams)
        frequent = {name: query for name, query in named.items() if isinstance(query, Frequent)}
        if len(frequent) > 1:
            raise ParameterError(
                f"{len(frequent)} queries for frequent keys; give one, and build another Monitor for another tau"
            )
        if frequent and isinstance(sketch, FastAms):
            raise ParameterError("a Frequent counts keys over a window: give Ecm(…) instead of FastAms(…)")
        if frequent and scheme not in ("functional", "geometric"):
            raise ParameterError(f"scheme={scheme!r} does not watch for frequent keys; give 'functional' or 'geometric'")
        #: The query for frequent keys and its name, if there is one.
        self.frequent: tuple[str, Frequent] | None = next(iter(frequent.items()), None)
        self.names = tuple(name for name in named if name not in frequent)
        self.queries: tuple[Query, ...] = tuple(
            query.for_sketch(sketch) if isinstance(query, Query) else query
            for query in named.values()
            if not isinstance(query, Frequent)
        )
        self._given_lateness = lateness
        #: How many ticks older than the newest of its stream an event may be.
        self.lateness = 0
        if lateness is not None:
            if sketch.window is None or scheme not in ("functional", "geometric"):
                raise ParameterError(
                    f"lateness={lateness!r}: events are late only over a window, and only 'functional' and 'geometric' wait "
                    "for them; give FastAms(window=…) or another scheme, or leave lateness out"
                )
            self.lateness = window_and_lateness(sketch.window, sketch.tick, lateness)[1]
        self._lay_out()

    def _lay_out(self) -> None:
        """One layout for each stream, then one for each query that has its own; ``channels`` says which a query reads."""
        sketched = self.sketch.layout()
        #: How every stream is laid out, and after them what queries count by themselves.
        self.layouts: list[Layout] = [sketched] * len(self.streams)
        self.channels: list[tuple[int, ...]] = []
        self._own: list[tuple[int, int, Count]] = []
        #: The queries that count all arrivals of a stream, by its number, where bounds of true values depend on that.
        self.totals: dict[int, int] = {}
        if self.sketch.signed and self.sketch.window is not None:
            named = len(self.queries)
            self.queries += tuple(TotalCount(stream=name) for name in self.streams)
            self.totals = {stream: named + stream for stream in range(len(self.streams))}
        for query in self.queries:
            if not isinstance(query, Query):
                raise ParameterError(f"a {type(query).__name__} where a query belongs, such as SelfJoin(theta=0.1)")
            query.check(self.sketch)
            channels = query.streams(self.streams)
            if isinstance(query, Count):
                self._own.append((channels[0], len(self.layouts), query))
                channels = (len(self.layouts),)
                self.layouts.append(query.layout(self.sketch))
            if isinstance(query, KeyRange) and self.scheme == "ship":
                raise ParameterError("scheme='ship' sends hashes of keys, in which a KeyRange cannot be seen; use another")
            if self.scheme == "push" and (query.line is not None or isinstance(self.sketch, Ecm)):
                raise ParameterError("scheme='push' tracks values over Fast-AMS sketches only; use 'functional' for others")
            self.channels.append(channels)

    def __repr__(self) -> str:
        named = [*zip(self.names, self.queries, strict=False), *([self.frequent] if self.frequent else [])]
        queries = ", ".join(f"{name!r}: {query!r}" for name, query in named)
        lateness = f", lateness={self._given_lateness!r}" if self.lateness else ""
        return (
            f"Monitor({self.sketch!r}, {{{queries}}}, streams={self.streams!r}, scheme={self.scheme!r}, "
            f"flush={self.flush!r}{lateness})"
        )

    @property
    def seed(self) -> int:
        """The seed of the hash functions; give it to monitors that are built alike elsewhere, and keep it from others."""
        assert self.sketch.seed is not None
        return int(self.sketch.seed)

    def with_seed(self, seed: int) -> "Monitor":
        """The same monitor with other hash functions.

        >>> from lately.monitor import Ecm, Monitor, SelfJoin
        >>> watch = Monitor(Ecm(window="1h", eps=0.1, delta=0.1), SelfJoin(theta=0.2))
        >>> watch.with_seed(42).seed, watch.with_seed(watch.seed).fingerprint == watch.fingerprint
        (42, True)
        """
        queries = dict(zip(self.names, self.queries, strict=False)) | dict([self.frequent] if self.frequent else [])
        sketch = replace(self.sketch, seed=seed)
        lateness = self._given_lateness
        return Monitor(sketch, queries, streams=self.streams, scheme=self.scheme, flush=self.flush, lateness=lateness)

    @property
    def window(self) -> Window | None:
        """The window of the sketches, if they have one."""
        return self.layouts[0].window

    @property
    def eps(self) -> float:
        """The part of theta that is the sketch's."""
        return self.sketch.eps if isinstance(self.sketch, FastAms) else 0.0

    @cached_property
    def impatience(self) -> float:
        """By which share of itself a site may change while it waits, before it tells again; 0 where it never does."""
        if self.scheme not in ("functional", "geometric"):
            return 0.0
        thetas = [query.theta or 0.0 for query in self.queries] + ([self.frequent[1].theta] if self.frequent else [])
        return _IMPATIENCE * max(min(thetas), _LEAST_THETA)

    @cached_property
    def holds_keys(self) -> bool:
        """Whether keys themselves are needed when what was held back is counted."""
        return any(isinstance(query, KeyRange) for query in self.queries)

    @cached_property
    def fingerprint(self) -> int:
        """Sites and coordinators that were built alike have the same; it depends on the seed, but does not tell it."""
        return int(hash_keys([repr(self) + "".join(query.details() for query in self.queries)])[0])

    @cached_property
    def fingerprint_of_any_seed(self) -> int:
        """What a fingerprint would be if seeds were all alike."""
        return int(hash_keys([f"any seed {self.with_seed(0).fingerprint}"])[0])

    # -- parts ---------------------------------------------------------------------------------------------------------

    def site(self, number: int, birth: int | None = None) -> Site:
        """A new site, to be run wherever its streams are.

        ``birth`` tells it from any other site that ever has this number, and is drawn at random if left out. Give one where
        a site that is lost before it was stored must be made again, to send the same messages: any number of 64 bits.

        >>> from lately.monitor import FastAms, Monitor, SelfJoin
        >>> Monitor(FastAms(eps=0.1, delta=0.1), SelfJoin(theta=0.2)).site(1, birth=42).join()[0].birth
        42
        """
        check_integer("site", number, 0, SITES - 1)
        return Site(self, number, None if birth is None else check_word("birth", birth))

    def coordinator(self, sites: Sequence[int]) -> Coordinator:
        """A coordinator that begins when these sites have joined; others may join and leave later."""
        kinds: dict[str, type[Coordinator]] = {
            "functional": FunctionalCoordinator,
            "geometric": GeometricCoordinator,
            "push": PushCoordinator,
            "ship": ShipCoordinator,
            "oracle": OracleCoordinator,
        }
        return kinds[self.scheme](self, sites)

    def restore(self, data: bytes, *, limit: int | None = None) -> Site | Coordinator:
        """The site or coordinator that ``to_bytes`` stored: from here on it does what the stored one would have done.

        Build this monitor as that one was. The seed is stored, and taken from there where this monitor drew its own: the
        restored part then has a monitor with that seed, ``site.monitor``. A stored site of another monitor is refused with
        ``MergeError``, and damaged bytes with ``FormatError``. ``limit`` is as in ``lately.from_bytes``. A message that the
        stored one had already returned is not returned again, and one that comes again is known: carry on from where it
        was stored.

        >>> from lately.monitor import Ecm, Monitor, SelfJoin
        >>> watch = Monitor(Ecm(window="1h", eps=0.1, delta=0.1), SelfJoin(theta=0.2))
        >>> site = watch.site(1)
        >>> joining = site.update(["/"], 10)
        >>> twin = watch.restore(site.to_bytes())
        >>> told, again = (one.update(["/", "/cart"], 20) for one in (site, twin))
        >>> [message.to_bytes() for message in told] == [message.to_bytes() for message in again]
        True
        """
        return restored(self, data, limit)

    def guard(self, number: int) -> Guard:
        """What a site watches a query with."""
        channels = self.channels[number]
        layout = self.layouts[channels[0]]
        shape = (1 if layout.signed else 2, layout.rows, len(channels))
        if self.scheme == "geometric":
            return GeometricGuard(shape, balls=layout.signed)
        if self.scheme == "push":
            return PushingGuard(shape)
        return FunctionalGuard(shape) if self.scheme == "functional" else SilentGuard(shape)

    def about(self, number: int) -> tuple[Query, Layout]:
        """A query and how what it reads is laid out."""
        return self.queries[number], self.layouts[self.channels[number][0]]

    def stream(self, name: str | None) -> int:
        """The number of a stream."""
        if name is None:
            if len(self.streams) > 1:
                raise InputError(f"the monitor has the streams {', '.join(self.streams)}; say which with stream=")
            return 0
        if name not in self.streams:
            raise InputError(f"no stream {name!r}; the monitor has {', '.join(map(repr, self.streams))}")
        return self.streams.index(name)

    def layouts_of(self, stream: int) -> list[int]:
        """The layouts that events of a stream go to."""
        return [stream, *(channel for source, channel, _ in self._own if source == stream)]

    def routes(self, stream: int, hashes: Hashes, keys: Ints | None) -> Iterator[tuple[int, Any]]:
        """Which layouts events of a stream go to, and which of the events."""
        yield stream, slice(None)
        for source, channel, query in self._own:
            if source == stream:
                yield channel, query.picks(hashes, keys)

    # -- values --------------------------------------------------------------------------------------------------------

    def tables(self, number: int, vectors: Sequence[Any]) -> list[Floats]:
        """The numbers that a query reads, as rows."""
        return [
            np.asarray(vectors[i], np.float64).reshape(self.layouts[i].rows, self.layouts[i].width)
            for i in self.channels[number]
        ]

    def estimate(self, number: int, vectors: Sequence[Any]) -> float:
        """What a query estimates from the numbers of all sites added up."""
        return self.queries[number].estimate(self.tables(number, vectors), self.layouts[self.channels[number][0]])

    def truth(self, sites: Sequence[Site]) -> dict[str, Any]:
        """What the queries would estimate now if all sites told everything; for simulations and tests."""
        none = [np.zeros(layout.size, np.int64) for layout in self.layouts]
        vectors = [sum((site.drifts[i].numbers for site in sites), zeros) for i, zeros in enumerate(none)]
        truth: dict[str, Any] = {name: self.estimate(number, vectors) for number, name in enumerate(self.names)}
        if self.frequent:
            channel = self.frequent[1].channel(self.streams)
            truth[self.frequent[0]] = TrueCounts(
                [drift for site in sites if isinstance(drift := site.drifts[channel], WindowDrift)]
            )
        return truth
