"""What ``lately run`` prints: the progress of a run, its answers and its alerts, as tables and as JSON."""

from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lately.core.json_encoding import Json, to_json
from lately.core.words import answer_texts, size
from lately.pipeline.batch_report import BatchReport
from lately.store.tables import Alert, Answer
from lately.text_tables import plain, table_of, title

#: The most recent batches and alerts that are kept in memory; a stream may run for years.
_MAX_KEPT = 1000
#: Answers of one query in a table, and alerts.
_MAX_ROWS = 20
#: Reasons of rejected rows in the summary.
_MAX_REASONS = 5


class RunProgress:
    """What a run has done so far.

    Parameters
    ----------
    name
        The name of the pipeline.
    continuous
        Whether it runs until it is stopped; then the progress says how far it is behind the clock.
    """

    def __init__(self, name: str, continuous: bool) -> None:
        self.name, self._continuous = name, continuous
        self.totals = {"batches": 0, "rows": 0, "counted": 0, "late": 0, "rejected": 0, "alerts": 0, "seconds": 0.0}
        self.batches: deque[dict[str, Any]] = deque(maxlen=_MAX_KEPT)
        self.alerts: deque[Alert] = deque(maxlen=_MAX_KEPT)
        #: Rejected rows by reason; only the most frequent reasons are kept.
        self.reasons: Counter[str] = Counter()
        self.last: BatchReport | None = None

    def add(self, report: BatchReport) -> None:
        """Add a batch."""
        self.last = report
        for name in ("rows", "counted", "late", "rejected", "seconds"):
            self.totals[name] += getattr(report, name)
        self.totals["batches"] += 1
        self.totals["alerts"] += len(report.alerts)
        self.alerts.extend(report.alerts)
        self.reasons.update(report.reasons)
        if len(self.reasons) > _MAX_KEPT:
            self.reasons = Counter(dict(self.reasons.most_common(_MAX_KEPT)))
        names = ("batch", "time", "rows", "counted", "late", "rejected", "sites", "seconds", "state_bytes")
        self.batches.append({name: getattr(report, name) for name in names})

    def as_dict(self, notes: Sequence[str], stopped: bool) -> Json:
        """Return the run for JSON: times are text, and numbers that are not finite are null.

        Parameters
        ----------
        notes
            The notes of the pipeline, such as that a query is new.
        stopped
            Whether a signal has stopped the run.
        """
        run = {
            "name": self.name,
            "stopped": stopped,
            "notes": list(notes),
            "totals": self.totals,
            "batches": list(self.batches),
            "reasons": [{"reason": reason, "rows": rows} for reason, rows in self.reasons.most_common()],
            "answers": [] if self.last is None else self.last.answers,
            "alerts": list(self.alerts),
        }
        return to_json(run)

    # -- while it runs -----------------------------------------------------------------------------------------------------

    def progress_line(self, now: datetime | None = None) -> str:
        """Return the last batch in one line, for logs.

        Parameters
        ----------
        now
            The clock, to say how far a continuous run is behind it; None to leave that out.
        """
        last = self.last
        if last is None:
            return f"{self.name}: no rows yet"
        return (
            f"{self.name}: batch {last.batch}, {last.rows:,} rows ({_rate(last.rows, last.seconds)}), {last.late:,} late, "
            f"{last.rejected:,} rejected, {last.sites:,} sites, state {size(last.state_bytes)}, up to {time_text(last.time)}"
            f"{self._lag(now)}"
        )

    def live_view(self, now: datetime, notes: Sequence[str]) -> RenderableType:
        """Return what a terminal shows while the pipeline runs.

        Parameters
        ----------
        now
            The clock.
        notes
            The notes of the pipeline, such as that a query is new.
        """
        totals, last = self.totals, self.last
        table = Table.grid(padding=(0, 3))
        if last is None:
            table.add_row(Text(self.name, style="bold"), "waiting for the first batch")
        else:
            table.add_row(
                Text(self.name, style="bold"),
                f"batch {last.batch}",
                f"{totals['rows']:,} rows",
                _rate(totals["rows"], totals["seconds"]),
                f"{totals['late']:,} late",
                f"{totals['rejected']:,} rejected",
            )
            table.add_row(
                "",
                f"{last.sites:,} sites",
                f"state {size(last.state_bytes)}",
                f"{totals['alerts']:,} alerts",
                Text(f"up to {time_text(last.time)}{self._lag(now)}"),
            )
        return Group(*(Text(f"note: {note}") for note in notes), table)

    def _lag(self, now: datetime | None) -> str:
        time = None if self.last is None else self.last.time
        if now is None or not self._continuous or not isinstance(time, datetime):
            return ""
        return f", {max(0.0, (now - time).total_seconds()):,.0f} s behind the clock"

    # -- at the end --------------------------------------------------------------------------------------------------------

    def tables(self) -> list[RenderableType]:
        """Return tables of the last answers and of the alerts."""
        tables: list[RenderableType] = []
        if self.last is not None and self.last.answers:
            tables += _answers(self.last)
        if self.alerts:
            tables += _alerts(list(self.alerts))
        return tables

    def summary(self, stopped: bool = False) -> str:
        """Return the run in one line.

        Parameters
        ----------
        stopped
            Whether a signal has stopped it. By default it ended because there were no more rows.
        """
        totals, last = self.totals, self.last
        if last is None:
            return "stopped before the first batch was done" if stopped else "no new rows"
        word = "batch" if totals["batches"] == 1 else "batches"
        return (
            f"{totals['batches']:,} {word}, {totals['rows']:,} rows: {totals['counted']:,} counted, {totals['late']:,} late, "
            f"{totals['rejected']:,} rejected; {last.sites:,} sites, state {size(last.state_bytes)}; "
            f"{totals['seconds']:.1f} s, {_rate(totals['rows'], totals['seconds'])}"
        )

    def uncounted_lines(self, store: str) -> list[str]:
        """Say why rows were not counted, the most frequent reasons first, and which commands show these rows.

        Parameters
        ----------
        store
            The path of the store.
        """
        lines = []
        if late := self.totals["late"]:
            lines.append(f"{late:,} late: older than the lateness of the window allows; see lately query late --store {store}")
        if rejected := self.totals["rejected"]:
            frequent = self.reasons.most_common(_MAX_REASONS)
            others = rejected - sum(rows for _, rows in frequent)
            parts = [f"{rows:,} {_printable(reason)}" for reason, rows in frequent]
            parts += [f"{others:,} others"] if others > 0 else []
            lines.append(f"{rejected:,} rejected: {', '.join(parts)}; see lately query rejected --store {store}")
        return lines


def alert_lines(report: BatchReport) -> list[str]:
    """Return a line for each alert that began to fire or was resolved in a batch; at most 20, the store has them all.

    Parameters
    ----------
    report
        The batch.
    """
    lines = []
    for row in report.alerts[:_MAX_ROWS]:
        value, bounds, _ = _cells(row)
        item = "" if row.item is None else f" {_printable(row.item)}"
        within = "" if bounds in ("exact", "–") else f" ({bounds})"
        lines.append(f"alert {row.state}: {time_text(row.time)} {_printable(row.monitor)}{item}: {value}{within}")
    more = len(report.alerts) - _MAX_ROWS
    return [*lines, f"… {more:,} more alerts; see lately query alerts"] if more > 0 else lines


def _printable(text: str) -> str:
    return plain(text).plain


def _answers(report: BatchReport) -> list[RenderableType]:
    table = table_of(("query", "site", "item"), ("value", "low … high", "confidence"))
    rows_of: Counter[str] = Counter()
    for row in report.answers:
        rows_of[row.query] += 1
        if rows_of[row.query] <= _MAX_ROWS:
            texts = (row.query, "all" if row.site is None else row.site or "–", _item(row))
            table.add_row(*map(plain, texts), *_cells(row))
    for query, count in rows_of.items():
        if count > _MAX_ROWS:
            table.add_row(plain(query), "", f"… {count - _MAX_ROWS:,} more")
    return [title(f"answers up to {time_text(report.time)}"), table]


def _alerts(alerts: list[Alert]) -> list[RenderableType]:
    table = table_of(("monitor", "item"), ("time", "state", "value", "low … high", "confidence"))
    for row in alerts[-_MAX_ROWS:]:
        table.add_row(plain(row.monitor), plain(_item(row)), time_text(row.time), row.state, *_cells(row))
    return [title("alerts, newest last"), table]


def _item(row: Answer | Alert) -> str:
    return "–" if row.item is None else row.item


def _cells(row: Answer | Alert) -> tuple[str, str, str]:
    return answer_texts(row.value, row.low, row.high, row.confidence)


# -- text --------------------------------------------------------------------------------------------------------------


def time_text(time: Any) -> str:
    """Write a time for people: without a fraction of a second; "no row" if there is no time.

    Parameters
    ----------
    time
        A time, or a whole number if times are whole numbers.
    """
    if time is None:
        return "no row"
    return time.strftime("%Y-%m-%d %H:%M:%S") if isinstance(time, datetime) else str(time)


def _rate(rows: float, seconds: float) -> str:
    return f"{rows / seconds:,.0f} rows/s" if seconds > 0 else "– rows/s"
