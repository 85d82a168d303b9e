"""How a coordinator computes what it announces, from the updates of the sites.

Usually all sites have joined and sent their updates: estimates are those of their sums, and the limits that are sent keep them
within their tolerances. While sites are awaited, only what the others prove is announced: bounds that hold whatever the missing
sites count, and alarms that these bounds prove.
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from lately.core.codec import Reader, Writer
from lately.counters.base import Counts
from lately.monitor.announcement import NO_ANNOUNCEMENT, Announcement, oldest_and_newest
from lately.monitor.coordinator_state import QueryState, SiteState
from lately.monitor.definition import MonitorDefinition
from lately.monitor.messages import Limits
from lately.monitor.query import Query, row_norms
from lately.monitor.region import Region, limits_of, region_of
from lately.monitor.true_bounds import Evidence, true_bounds
from lately.monitor.zones import Floats


class Promise:
    """What a scheme promises about estimates.

    Parameters
    ----------
    monitor
        The definition of the monitor.
    """

    def __init__(self, monitor: MonitorDefinition) -> None:
        self._monitor = monitor

    def tolerance(self, query: Query, value: float, unit: float | None, alarm: bool | None) -> tuple[float, float]:
        """Where an estimate that was ``value`` stays, with the alarm in this state."""
        return query.tolerance(value, unit, self._monitor.eps, alarm)

    def growth(self, query: Query) -> float | None:
        """The share by which norms and totals may have grown since the last updates; None: as far as limits allow."""
        return None


class Announcer:
    """The sums of all sites' numbers, and the announcement of each query.

    Parameters
    ----------
    monitor
        The definition of the monitor.
    promise
        What its scheme promises.
    """

    def __init__(self, monitor: MonitorDefinition, promise: Promise) -> None:
        self._monitor, self._promise = monitor, promise
        #: The numbers of all sites as of their last updates, added up.
        self.sums: list[Counts] = monitor.empty_vectors()
        self.queries = [QueryState(NO_ANNOUNCEMENT) for _ in monitor.queries]

    def announcements(self, awaited: tuple[int, ...]) -> dict[str, Announcement]:
        """What is announced, by the names of the queries, while these sites are awaited."""
        named = zip(self._monitor.names, self.queries, strict=False)
        return {name: replace(state.announcement, awaited=awaited) for name, state in named}

    def add(self, changes: Sequence[Counts]) -> None:
        """Add the changes of a site in each layout."""
        for total, change in zip(self.sums, changes, strict=True):
            total += change

    def subtract(self, vectors: Sequence[Counts]) -> None:
        """Subtract the numbers of a site that leaves; it has none before its first update."""
        for total, vector in zip(self.sums, vectors, strict=False):
            total -= vector

    def clear(self) -> None:
        """Announce nothing, because there are no sites."""
        for state in self.queries:
            state.announcement = NO_ANNOUNCEMENT

    # -- with all sites ----------------------------------------------------------------------------------------------------

    def announce(self, sites: Mapping[int, SiteState], all_joined: bool) -> list[tuple[Limits, Region]]:
        """Announce the estimates of the sites' sums.

        Returns for each query the limits that keep its estimate within the tolerance at that many sites, and their zones.
        """
        made, joined = [], max(sum(site.joined for site in sites.values()), 1)
        for number, (query, state) in enumerate(zip(self._monitor.queries, self.queries, strict=True)):
            layout = self._monitor.query_and_layout(number)[1]
            tables = self._monitor.tables(number, self.sums)
            value, before = query.estimate(tables, layout), state.announcement.alarm
            alarm = query.alarm(value, before, self._monitor.eps)
            tolerance = self._promise.tolerance(query, value, query.theta_unit(tables, layout), alarm)
            if not all_joined:  # the others may count anything
                is_proven = query.invert_if_below(alarm) and query.is_monotone(layout)
                alarm = query.invert_if_below(is_proven or query.invert_if_below(before))
            state.announcement = Announcement(value, -math.inf, math.inf, alarm, tolerance=tolerance)
            limits = limits_of(query, tolerance, tables, layout, joined)
            made.append((limits, region_of(query, layout, limits)))
        self.bound_true_values(sites)
        if not all_joined:
            self._drop_unproven_bounds()
        return made

    def _drop_unproven_bounds(self) -> None:
        for number, state in enumerate(self.queries):
            query, layout = self._monitor.query_and_layout(number)
            low = state.announcement.low if query.is_monotone(layout) else -math.inf
            state.announcement = replace(state.announcement, low=low, high=math.inf)

    def bound_true_values(self, sites: Mapping[int, SiteState]) -> None:
        """Compute the bounds of the true values from the sites' updates and the announced tolerances."""
        oldest, newest = _ages(sites)
        totals = {
            stream: true_bounds(self._monitor.queries[number], self._evidence(number, ()))[1]
            for stream, number in self._monitor.totals.items()
        }
        for number, state in enumerate(self.queries[: len(self._monitor.names)]):
            query = self._monitor.queries[number]
            low, high, confidence = true_bounds(query, self._evidence(number, self._totals_of(query, totals)))
            state.announcement = replace(
                state.announcement, low=low, high=high, confidence=confidence, oldest=oldest, newest=newest
            )

    def _totals_of(self, query: Query, totals: Mapping[int, float]) -> tuple[float, ...]:
        return tuple(totals[stream] for stream in query.streams(self._monitor.streams) if stream in totals)

    def _evidence(self, number: int, totals: tuple[float, ...]) -> Evidence:
        query, layout = self._monitor.query_and_layout(number)
        tables = self._monitor.tables(number, self.sums)
        tolerance, growth = self.queries[number].announcement.tolerance, self._promise.growth(query)
        if growth == math.inf and number >= len(self._monitor.names):  # nothing limits the totals of streams
            tolerance = (0.0, math.inf)
        return Evidence(layout, self._monitor.sketch.delta, tables, tolerance, growth, totals)

    # -- with some of the sites ----------------------------------------------------------------------------------------------

    def announce_partial(self, sites: Mapping[int, SiteState], updated: Set[int]) -> None:
        """Announce what the sites prove that have sent an update, while others are awaited.

        An alarm changes only if they prove that its state is wrong.
        """
        oldest, newest = _ages(sites)
        joined = [site for site in sites.values() if site.joined]
        proving = [site.latest_vectors for site in self._proving_sites(sites, updated, newest)]
        latest = [sum((site.latest_vectors[i] for site in joined), 0 * total) for i, total in enumerate(self.sums)]
        totals = {stream: self._largest_total(number, proving) for stream, number in self._monitor.totals.items()}
        for number, state in enumerate(self.queries[: len(self._monitor.names)]):
            query, layout = self._monitor.query_and_layout(number)
            value, before = self._monitor.estimate(number, latest), state.announcement.alarm
            announced = Announcement(value, -math.inf, math.inf, before)
            if query.is_monotone(layout):
                announced = self._proven(number, announced, proving, self._totals_of(query, totals))
            state.announcement = replace(announced, oldest=oldest, newest=newest)

    def _proving_sites(self, sites: Mapping[int, SiteState], updated: Set[int], newest: int | None) -> list[SiteState]:
        """The sites whose last update still tells what they count."""
        window = self._monitor.window
        return [
            site
            for number, site in sites.items()
            if site.joined
            and (site.unsolicited is not None or number in updated)
            # A site that waits sends another update before all events of this one have left the window.
            and (window is None or newest is None or site.updated_at is None or newest - site.updated_at <= window.ticks)
        ]

    def _proven(
        self, number: int, announced: Announcement, proving: Sequence[Sequence[Counts]], totals: tuple[float, ...]
    ) -> Announcement:
        """An announcement with the lower bound, and the alarm, that some of the sites prove."""
        query, layout = self._monitor.query_and_layout(number)
        tables, moves = self._rows_and_moves(number, proving)
        least, estimate = query.lower_bound(tables, layout, moves), query.estimate(tables, layout)
        growth = _growth_of(tables, moves, layout.signed)
        evidence = Evidence(layout, self._monitor.sketch.delta, tables, (least, math.inf), growth, totals)
        low, _, confidence = true_bounds(query, evidence)
        state_above = query.invert_if_below(True)  # the state of the alarm while the value is above its threshold
        edge = query.tolerance(estimate, None, self._monitor.eps, state_above)[0]
        is_proven = query.threshold is not None and estimate >= query.threshold and least >= edge
        alarm = state_above if is_proven else announced.alarm
        return replace(announced, low=low, confidence=confidence, tolerance=(least, math.inf), alarm=alarm)

    def _rows_and_moves(self, number: int, proving: Sequence[Sequence[Counts]]) -> tuple[list[Floats], list[Floats]]:
        """What a query reads of some sites, added up, and how far its rows can move before one of the sites sends an update."""
        sums = [sum((vectors[i] for vectors in proving), 0 * total) for i, total in enumerate(self.sums)]
        tables = self._monitor.tables(number, sums)
        by_site = [self._monitor.tables(number, vectors) for vectors in proving]
        share = self._monitor.impatience / (1 - self._monitor.impatience)  # of the numbers then, not of those now
        moves = [
            share * sum((row_norms(of_site[i]) for of_site in by_site), np.zeros(len(table))) for i, table in enumerate(tables)
        ]
        return tables, moves

    def _largest_total(self, number: int, proving: Sequence[Sequence[Counts]]) -> float:
        """The most arrivals that some sites can have counted in a stream."""
        query, layout = self._monitor.query_and_layout(number)
        tables, moves = self._rows_and_moves(number, proving)
        tolerance = (0.0, float(tables[0][0, 0] + moves[0][0]))
        return true_bounds(query, Evidence(layout, self._monitor.sketch.delta, tables, tolerance))[1]

    # -- bytes -----------------------------------------------------------------------------------------------------------

    def write(self, out: Writer) -> None:
        """Write the state of every query; the sums follow from the sites."""
        for state in self.queries:
            state.write(out)

    def read(self, source: Reader, is_version_1: bool, sites: Mapping[int, SiteState]) -> None:
        """Read what ``write`` wrote, and compute the bounds that version 1 did not have."""
        for number, state in enumerate(self.queries):
            state.read(source, *self._monitor.query_and_layout(number), is_version_1)
        if is_version_1 and not any(math.isnan(state.announcement.value) for state in self.queries):
            self.bound_true_values(sites)


def _ages(sites: Mapping[int, SiteState]) -> tuple[int | None, int | None]:
    """The oldest and the newest tick of the updates that are added up."""
    return oldest_and_newest([site.updated_at for site in sites.values() if site.joined])


def _growth_of(tables: Sequence[Floats], moves: Sequence[Floats], signed: bool) -> float:
    """By which share the norms of rows, and the sums of those without signs, can have grown when they moved so far."""
    growth = 0.0
    for table, move in zip(tables, moves, strict=True):
        sizes = row_norms(table) if signed else table.sum(axis=1)
        longest = move if signed else move * math.sqrt(table.shape[1])
        growth = max(growth, *np.where(sizes > 0, longest / np.maximum(sizes, 1e-300), np.where(move > 0, math.inf, 0.0)))
    return float(growth)
