"""Which sites are silent, and which are ahead of the others, from the newest rows of the table ``sites``.

    active   had a counted row in one of the newest batches
    ahead    a site whose newest row is far after the median of the active sites' newest rows
    newest   the newest row of all sites that are not ahead: one fast clock does not make all others look silent
    silent   not active, and its newest row is far before ``newest``; it is silent since it was last seen
    behind   active, but its newest row is far before ``newest``: its clock is slow, or its rows are delayed

"Far" is more than ``tolerance``: five times the usual step of time from batch to batch, or ``lateness`` if that is longer.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median_low
from typing import Literal, TypeAlias, cast, get_args

from lately.core.durations import nanoseconds
from lately.store.tables import Run, SiteRow, Time
from lately.store.view import View

#: The state of a site in comparison with the others.
SiteState: TypeAlias = Literal["silent", "ahead", "behind", "ok"]
STATES: tuple[SiteState, ...] = get_args(SiteState)
#: A site is active if it had a row in one of this many newest batches, and this many steps of time are tolerated.
BATCHES = 5
#: Batches whose steps of time say what is usual.
_STEPS = 20


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """A site and its state.

    Parameters
    ----------
    site
        The name of the site.
    time
        The time of its newest counted row.
    behind
        How far that is before ``newest`` of the report, in seconds, or in integers where the stream's times are; negative
        where it is ahead of it.
    state
        "silent", "ahead", "behind" or "ok"; None where the store has no snapshot of the sites.
    seen
        When the batch began in which the site last had a counted row.
    counted, late, rejected
        Its rows of all batches so far.
    ahead
        Of the rejected rows, those whose time was too far ahead.
    ahead_seen
        When the batch began in which it last had such a row.
    """

    site: str
    time: Time | None = None
    behind: float | None = None
    state: SiteState | None = None
    seen: datetime | None = None
    counted: int | None = None
    late: int | None = None
    rejected: int | None = None
    ahead: int | None = None
    ahead_seen: datetime | None = None


@dataclass(frozen=True)
class SitePage:
    """A page of the report about sites, with numbers about all sites.

    Parameters
    ----------
    batch
        The newest finished batch.
    newest
        The time of the newest row of all sites that are not ahead.
    tolerance
        How far behind ``newest`` a site may be before it is silent or behind, in seconds or integers.
    lag
        The largest ``behind`` of all sites.
    sites
        The number of sites.
    silent, ahead, behind
        The number of sites in each of these states.
    rows
        The sites of this page, those whose newest row is the oldest first.
    """

    batch: int | None
    newest: Time | None
    tolerance: float | None
    lag: float | None
    sites: int
    silent: int
    ahead: int
    behind: int
    rows: list[SiteStatus]


@dataclass(frozen=True)
class SiteReport:
    """All sites, those whose newest row is the oldest first; the fields are those of ``SitePage``."""

    batch: int | None
    newest: Time | None
    tolerance: float | None
    rows: list[SiteStatus]

    def count(self, state: SiteState) -> int:
        """The number of sites in a state."""
        return sum(row.state == state for row in self.rows)

    @property
    def lag(self) -> float | None:
        """The largest ``behind`` of all sites."""
        return max((row.behind for row in self.rows if row.behind is not None), default=None)

    def page(self, limit: int, offset: int = 0, state: SiteState | None = None) -> SitePage:
        """A page of the report.

        Parameters
        ----------
        limit
            The most rows.
        offset
            Rows to skip, to continue after an earlier page; 0 by default.
        state
            Only sites in this state; by default in any.
        """
        chosen = self.rows if state is None else [row for row in self.rows if row.state == state]
        states = Counter(row.state for row in self.rows)
        counts = (states["silent"], states["ahead"], states["behind"])
        rows = chosen[offset : offset + limit]
        return SitePage(self.batch, self.newest, self.tolerance, self.lag, len(self.rows), *counts, rows)


def site_report(view: View) -> SiteReport:
    """The sites of a store after its newest batch.

    Parameters
    ----------
    view
        The store as its reader sees it.

    >>> from datetime import UTC
    >>> from tempfile import mkdtemp
    >>> from lately.store import Store
    >>> from lately.store.about import About, WindowInfo
    >>> from lately.store.tables import TIME_TYPES
    >>> store = Store(mkdtemp(), TIME_TYPES["integer"])
    >>> store.describe(About("integer", "shop", window=WindowInfo(length=1000, lateness=30)))
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> for batch in range(9):
    ...     began = noon + timedelta(minutes=batch)
    ...     store.put("runs", batch, [Run(batch, time=10 * batch, began=began)])
    >>> sites = {"lima": (80, began), "oslo": (15, noon), "paris": (900, began), "rome": (75, began)}
    >>> store.put("sites", 8, [SiteRow(8, site, time, seen) for site, (time, seen) in sites.items()])
    >>> report = site_report(View(store.path))
    >>> [(row.site, row.behind, row.state) for row in report.rows], report.tolerance
    ([('oslo', 65, 'silent'), ('rome', 5, 'ok'), ('lima', 0, 'ok'), ('paris', -820, 'ahead')], 50)
    """
    snapshot = view.site_rows()
    if not snapshot:
        return SiteReport(view.batch, None, None, [SiteStatus(site) for site in view.sites()])
    runs = view.runs(limit=_STEPS + 1)
    tolerance = _tolerance(runs, view.about.window.lateness)
    since = [run.began for run in runs[-BATCHES:] if run.began is not None]
    active = {row.site for row in snapshot if _is_active(row, min(since, default=None))}
    times = _sorted_times([row for row in snapshot if row.site in active])
    limit = _moved(median_low(times), tolerance) if times else None
    ahead = {row.site for row in snapshot if limit is not None and row.time is not None and _span(row.time, limit) > 0}
    newest = max(_sorted_times([row for row in snapshot if row.site not in ahead]), default=None)
    rows = [_status(row, newest, tolerance, row.site in active, row.site in ahead) for row in snapshot]
    rows.sort(key=lambda row: (row.behind is not None, -(row.behind or 0), row.site))
    return SiteReport(view.batch, newest, tolerance, rows)


def _sorted_times(rows: Sequence[SiteRow]) -> list[Time]:
    return sorted(row.time for row in rows if row.time is not None)


def _is_active(row: SiteRow, since: datetime | None) -> bool:
    return row.time is not None and (since is None or row.seen is None or row.seen >= since)


def _status(row: SiteRow, newest: Time | None, tolerance: float, active: bool, ahead: bool) -> SiteStatus:
    behind = None if row.time is None or newest is None else _span(newest, row.time)
    far = behind is None or behind > tolerance
    state: SiteState = "ahead" if ahead else "ok" if not far else "behind" if active else "silent"
    counts = (row.counted, row.late, row.rejected, row.ahead)
    return SiteStatus(row.site, row.time, behind, state, row.seen, *counts, row.ahead_seen)


def _tolerance(runs: Sequence[Run], lateness: str | int | None) -> float:
    times = [run.time for run in runs if run.time is not None]
    spans = [_span(after, before) for before, after in pairwise(times)]
    steps = [span for span in spans if span > 0]
    allowed = lateness if isinstance(lateness, int) else 0 if lateness is None else nanoseconds(lateness) / 1e9
    return max(BATCHES * median_low(steps) if steps else 0, allowed)


def _span(later: Time, earlier: Time) -> float:
    """How far two instants of one stream are apart: in seconds, or in integers."""
    if isinstance(later, datetime):
        return (later - cast(datetime, earlier)).total_seconds()
    return later - cast(int, earlier)


def _moved(time: Time, span: float) -> Time | None:
    """The instant that is so much later; None where there is no such datetime."""
    try:
        return time + timedelta(seconds=span) if isinstance(time, datetime) else int(time + span)
    except OverflowError:
        return None
