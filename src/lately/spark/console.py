"""What ``lately run`` shows: a run so far, its answers and alerts, and what ``--check`` found; as data and as tables."""

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

#: Batches and alerts that are remembered; a stream may run for years.
_REMEMBERED = 1000
#: Answers of one query that a table shows.
_SHOWN = 20
#: Reasons of rejected rows that the summary names.
_REASONS = 5


class Watched:
    """A run so far."""

    def __init__(self, name: str, continuous: bool) -> None:
        self.name, self._continuous = name, continuous
        self.totals = {"batches": 0, "rows": 0, "counted": 0, "late": 0, "rejected": 0, "alerts": 0, "seconds": 0.0}
        self.batches: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self.alerts: deque[Alert] = deque(maxlen=_REMEMBERED)
        #: How many rows were rejected for which reason; the most frequent ones.
        self.reasons: Counter[str] = Counter()
        self.last: BatchReport | None = None

    def take(self, done: BatchReport) -> None:
        """Another batch is done."""
        self.last = done
        for name in ("rows", "counted", "late", "rejected", "seconds"):
            self.totals[name] += getattr(done, name)
        self.totals["batches"] += 1
        self.totals["alerts"] += len(done.alerts)
        self.alerts.extend(done.alerts)
        self.reasons.update(done.reasons)
        if len(self.reasons) > _REMEMBERED:
            self.reasons = Counter(dict(self.reasons.most_common(_REMEMBERED)))
        names = ("batch", "time", "rows", "counted", "late", "rejected", "sites", "seconds", "state_bytes")
        self.batches.append({name: getattr(done, name) for name in names})

    def as_dict(self, notes: Sequence[str], stopped: bool) -> Json:
        """The run as JSON can hold it: no dates, no infinities."""
        answers = [] if self.last is None else self.last.answers
        found = {
            "name": self.name, "stopped": stopped, "notes": list(notes), "totals": self.totals, "batches": list(self.batches),
            "reasons": [{"reason": reason, "rows": rows} for reason, rows in self.reasons.most_common()],
            "answers": answers, "alerts": list(self.alerts),
        }  # fmt: skip
        return to_json(found)

    # -- while it runs -----------------------------------------------------------------------------------------------------

    def line(self, now: datetime | None = None) -> str:
        """Where the run is, in a line."""
        done = self.last
        if done is None:
            return f"{self.name}: no rows yet"
        said = f"{self.name}: batch {done.batch}, {done.rows:,} rows ({_rate(done.rows, done.seconds)}), {done.late:,} late, "
        said += f"{done.rejected:,} rejected, {done.sites:,} sites, state {size(done.state_bytes)}, up to {when(done.time)}"
        return said + self._lag(now)

    def view(self, now: datetime, notes: Sequence[str]) -> RenderableType:
        """The run so far, to be looked at."""
        totals, done = self.totals, self.last
        table = Table.grid(padding=(0, 3))
        if done is None:
            table.add_row(Text(self.name, style="bold"), "waiting for the first batch")
        else:
            table.add_row(
                Text(self.name, style="bold"),
                f"batch {done.batch}",
                f"{totals['rows']:,} rows",
                _rate(totals["rows"], totals["seconds"]),
                f"{totals['late']:,} late",
                f"{totals['rejected']:,} rejected",
            )
            table.add_row(
                "", f"{done.sites:,} sites", f"state {size(done.state_bytes)}", f"{totals['alerts']:,} alerts",
                Text(f"up to {when(done.time)}{self._lag(now)}"),
            )  # fmt: skip
        return Group(*(Text(f"note: {note}") for note in notes), table)

    def _lag(self, now: datetime | None) -> str:
        time = None if self.last is None else self.last.time
        if now is None or not self._continuous or not isinstance(time, datetime):
            return ""
        return f", {max(0.0, (now - time).total_seconds()):,.0f} s behind the clock"

    # -- at the end --------------------------------------------------------------------------------------------------------

    def tables(self) -> list[RenderableType]:
        """The last answers, and the alerts."""
        shown: list[RenderableType] = []
        if self.last is not None and self.last.answers:
            shown += _answers(self.last)
        if self.alerts:
            shown += _alerts(list(self.alerts))
        return shown

    def summary(self, stopped: bool = False) -> str:
        """The run in a line.

        Parameters
        ----------
        stopped
            Whether a signal has stopped it, before there were no more rows.
        """
        totals, done = self.totals, self.last
        if done is None:
            return "stopped before the first batch was done" if stopped else "no new rows"
        word = "batch" if totals["batches"] == 1 else "batches"
        said = (
            f"{totals['batches']:,} {word}, {totals['rows']:,} rows: {totals['counted']:,} counted, {totals['late']:,} late, "
        )
        said += f"{totals['rejected']:,} rejected; {done.sites:,} sites, state {size(done.state_bytes)}; "
        return said + f"{totals['seconds']:.1f} s, {_rate(totals['rows'], totals['seconds'])}"

    def refused(self, store: str) -> list[str]:
        """Why rows were not counted, the most frequent reasons first, and the commands that show these rows.

        Parameters
        ----------
        store
            The path of the store.
        """
        told = []
        if late := self.totals["late"]:
            told.append(f"{late:,} late: more than the lateness behind their site; see lately query late --store {store}")
        if rejected := self.totals["rejected"]:
            most = self.reasons.most_common(_REASONS)
            rest = rejected - sum(rows for _, rows in most)
            words = [f"{rows:,} {_printable(reason)}" for reason, rows in most] + ([f"{rest:,} others"] if rest > 0 else [])
            told.append(f"{rejected:,} rejected: {', '.join(words)}; see lately query rejected --store {store}")
        return told


def alert_lines(done: BatchReport) -> list[str]:
    """A line for each alert that began to fire or was resolved with a batch; many are cut short, as the store has them all.

    Parameters
    ----------
    done
        The batch.
    """
    lines = []
    for row in done.alerts[:_SHOWN]:
        value, bounds, _ = _cells(row)
        item = "" if row.item is None else f" {_printable(row.item)}"
        within = "" if bounds in ("exact", "–") else f" ({bounds})"
        lines.append(f"alert {row.state}: {when(row.time)} {_printable(row.monitor)}{item}: {value}{within}")
    more = len(done.alerts) - _SHOWN
    return [*lines, f"… {more:,} alerts more; lately query alerts shows them"] if more > 0 else lines


def _printable(text: str) -> str:
    return plain(text).plain


def _answers(done: BatchReport) -> list[RenderableType]:
    table = table_of(("query", "site", "item"), ("value", "low … high", "sure"))
    told: dict[str, int] = {}
    for row in done.answers:
        told[row.query] = told.get(row.query, 0) + 1
        if told[row.query] <= _SHOWN:
            texts = (row.query, "all" if row.site is None else row.site or "–", _item(row))
            table.add_row(*map(plain, texts), *_cells(row))
    for query, count in told.items():
        if count > _SHOWN:
            table.add_row(plain(query), "", f"… {count - _SHOWN:,} more")
    return [title(f"answers up to {when(done.time)}"), table]


def _alerts(alerts: list[Alert]) -> list[RenderableType]:
    table = table_of(("monitor", "item"), ("time", "state", "value", "low … high", "sure"))
    for row in alerts[-_SHOWN:]:
        table.add_row(plain(row.monitor), plain(_item(row)), when(row.time), row.state, *_cells(row))
    return [title("alerts, newest last"), table]


def _item(row: Answer | Alert) -> str:
    return "–" if row.item is None else row.item


def _cells(row: Answer | Alert) -> tuple[str, str, str]:
    return answer_texts(row.value, row.low, row.high, row.confidence)


# -- words -------------------------------------------------------------------------------------------------------------


def when(time: Any) -> str:
    """A moment as people read it."""
    if time is None:
        return "nothing"
    return time.strftime("%Y-%m-%d %H:%M:%S") if isinstance(time, datetime) else str(time)


def _rate(rows: float, seconds: float) -> str:
    return f"{rows / seconds:,.0f} rows/s" if seconds > 0 else "– rows/s"
