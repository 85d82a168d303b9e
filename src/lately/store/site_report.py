"""Which sites are silent, and which are ahead of the others, from the newest snapshot of the table ``sites``.

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
from typing import Any

from lately.core.durations import nanoseconds
from lately.store.reading import Row
from lately.store.view import View

#: What a site's state may be; None where the store has no snapshot.
STATES = ("silent", "ahead", "behind", "ok")
#: A site is active if it had a row in one of this many newest batches, and this many steps of time are tolerated.
BATCHES = 5
#: Batches whose steps of time say what is usual.
_STEPS = 20


@dataclass(frozen=True)
class SiteReport:
    """All sites, those first whose newest row is the oldest; times are in seconds, or integers where the stream's are."""

    batch: int | None
    newest: Any
    tolerance: float | int | None
    rows: list[Row]

    def count(self, state: str) -> int:
        """How many sites are in a state."""
        return sum(row["state"] == state for row in self.rows)

    @property
    def lag(self) -> float | int | None:
        """The largest ``behind`` of all sites."""
        return max((row["behind"] for row in self.rows if row["behind"] is not None), default=None)

    def document(self, limit: int, offset: int = 0, state: str | None = None) -> dict[str, Any]:
        """A page of the report, with numbers about all sites; times are as Python has them.

        Args:
            limit: the most rows.
            offset: rows to skip, to go on after an earlier page.
            state: only sites in this state, one of ``STATES``.
        """
        chosen = self.rows if state is None else [row for row in self.rows if row["state"] == state]
        states = Counter(row["state"] for row in self.rows)
        return {
            "batch": self.batch,
            "newest": self.newest,
            "tolerance": self.tolerance,
            "lag": self.lag,
            "sites": len(self.rows),
            **{name: states[name] for name in STATES[:3]},
            "rows": chosen[offset : offset + limit],
        }


def site_report(view: View) -> SiteReport:
    """The sites of a store after its newest batch.

    Args:
        view: the store as its reader sees it.

    >>> from datetime import UTC
    >>> from tempfile import mkdtemp
    >>> from lately.store import Store
    >>> from lately.store.tables import MOMENTS
    >>> store = Store(mkdtemp(), MOMENTS["integer"])
    >>> store.describe({"name": "shop", "moment": "integer", "window": {"lateness": 30}})
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> for batch in range(9):
    ...     began = noon + timedelta(minutes=batch)
    ...     store.put("runs", batch, [{"batch": batch, "time": 10 * batch, "began": began}])
    >>> seen = {"lima": (80, began), "oslo": (15, noon), "paris": (900, began), "rome": (75, began)}
    >>> store.put("sites", 8, [{"batch": 8, "site": site, "time": time, "seen": at} for site, (time, at) in seen.items()])
    >>> report = site_report(View(store.path))
    >>> [(row["site"], row["behind"], row["state"]) for row in report.rows], report.tolerance
    ([('oslo', 65, 'silent'), ('rome', 5, 'ok'), ('lima', 0, 'ok'), ('paris', -820, 'ahead')], 50)
    """
    snapshot = view.site_snapshot()
    if not snapshot:
        return SiteReport(view.batch, None, None, [_unknown(site) for site in view.sites()])
    runs = view.runs(limit=_STEPS + 1)
    tolerance = _tolerance(runs, (view.about.get("window") or {}).get("lateness"))
    since = [run["began"] for run in runs[-BATCHES:] if run["began"] is not None]
    active = {row["site"] for row in snapshot if _is_active(row, min(since, default=None))}
    times = sorted(row["time"] for row in snapshot if row["site"] in active)
    limit = _moved(median_low(times), tolerance) if times else None
    ahead = {row["site"] for row in snapshot if None not in (limit, row["time"]) and row["time"] > limit}
    newest = max((row["time"] for row in snapshot if row["time"] is not None and row["site"] not in ahead), default=None)
    rows = [_placed(row, newest, tolerance, row["site"] in active, row["site"] in ahead) for row in snapshot]
    rows.sort(key=lambda row: (row["behind"] is not None, -(row["behind"] or 0), row["site"]))
    return SiteReport(view.batch, newest, tolerance, rows)


def _is_active(row: Row, since: datetime | None) -> bool:
    return row["time"] is not None and (since is None or row["seen"] is None or row["seen"] >= since)


def _placed(row: Row, newest: Any, tolerance: float | int, active: bool, ahead: bool) -> Row:
    behind = None if row["time"] is None or newest is None else _length(newest - row["time"])
    far = behind is None or behind > tolerance
    state = "ahead" if ahead else "ok" if not far else "behind" if active else "silent"
    return {name: row[name] for name in ("site", "time")} | {
        "behind": behind,
        "state": state,
        **{name: row[name] for name in ("seen", "counted", "late", "rejected", "ahead", "ahead_seen")},
    }


def _unknown(site: str) -> Row:
    names = ("time", "behind", "state", "seen", "counted", "late", "rejected", "ahead", "ahead_seen")
    return {"site": site} | dict.fromkeys(names)


def _tolerance(runs: Sequence[Row], lateness: Any) -> float | int:
    times = [run["time"] for run in runs if run["time"] is not None]
    steps = [_length(after - before) for before, after in pairwise(times) if after > before]
    allowed = lateness if isinstance(lateness, int) else 0 if lateness is None else nanoseconds(lateness) / 1e9
    return max(BATCHES * median_low(steps) if steps else 0, allowed)


def _length(span: timedelta | int) -> float | int:
    return span.total_seconds() if isinstance(span, timedelta) else span


def _moved(time: Any, length: float | int) -> Any:
    try:
        return time + timedelta(seconds=length) if isinstance(time, datetime) else time + length
    except OverflowError:
        return None
