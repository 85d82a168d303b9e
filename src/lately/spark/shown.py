"""What ``lately run`` shows: a run so far, its answers and alerts, and what ``--check`` found; as data and as tables."""

import math
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lately.core.words import size
from lately.spark.pipeline import Done
from lately.store.upkeep import VERSIONS

#: Batches and alerts that are remembered; a stream may run for years.
_REMEMBERED = 1000
#: Answers of one query that a table shows.
_SHOWN = 20


class Watched:
    """A run so far."""

    def __init__(self, name: str, continuous: bool) -> None:
        self.name, self._continuous = name, continuous
        self.totals = {"batches": 0, "rows": 0, "counted": 0, "late": 0, "rejected": 0, "alerts": 0, "seconds": 0.0}
        self.batches: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self.alerts: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self.last: Done | None = None

    def take(self, done: Done) -> None:
        """Another batch is done."""
        self.last = done
        for name in ("rows", "counted", "late", "rejected", "seconds"):
            self.totals[name] += getattr(done, name)
        self.totals["batches"] += 1
        self.totals["alerts"] += len(done.alerts)
        self.alerts.extend(done.alerts)
        names = ("batch", "time", "rows", "counted", "late", "rejected", "sites", "seconds", "state_bytes")
        self.batches.append({name: getattr(done, name) for name in names})

    def as_dict(self, notes: Sequence[str], stopped: bool) -> dict[str, Any]:
        """The run as JSON can hold it: no dates, no infinities."""
        answers = [] if self.last is None else self.last.answers
        found = {
            "name": self.name, "stopped": stopped, "notes": list(notes), "totals": self.totals, "batches": list(self.batches),
            "answers": answers, "alerts": list(self.alerts),
        }  # fmt: skip
        plain: dict[str, Any] = _plain(found)
        return plain

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
            shown.append(_answers(self.last))
        if self.alerts:
            shown.append(_alerts(list(self.alerts)))
        return shown

    def summary(self) -> str:
        """The run in a line."""
        totals, done = self.totals, self.last
        if done is None:
            return "no new rows"
        word = "batch" if totals["batches"] == 1 else "batches"
        said = (
            f"{totals['batches']:,} {word}, {totals['rows']:,} rows: {totals['counted']:,} counted, {totals['late']:,} late, "
        )
        said += f"{totals['rejected']:,} rejected; {done.sites:,} sites, state {size(done.state_bytes)}; "
        return said + f"{totals['seconds']:.1f} s, {_rate(totals['rows'], totals['seconds'])}"


def _answers(done: Done) -> Table:
    table = Table("query", "site", "item", title=f"answers up to {when(done.time)}", title_justify="left")
    for name in ("value", "low … high", "sure"):
        table.add_column(name, justify="right")
    told: dict[str, int] = {}
    for row in done.answers:
        told[row["query"]] = told.get(row["query"], 0) + 1
        if told[row["query"]] <= _SHOWN:
            exact = row["confidence"] == 1.0 and row["low"] == row["high"]
            table.add_row(
                Text(row["query"]),
                Text("all" if row["site"] is None else row["site"] or "–"),
                Text("–" if row["item"] is None else row["item"]),
                number(row["value"]),
                "exact" if exact else f"{number(row['low'])} … {number(row['high'])}",
                "" if exact else f"{row['confidence'] * 100:.6g}%",
            )
    for query, count in told.items():
        if count > _SHOWN:
            table.add_row(Text(query), "", f"… {count - _SHOWN:,} more", "", "", "")
    return table


def _alerts(alerts: list[dict[str, Any]]) -> Table:
    table = Table("time", "monitor", "item", "", title="alerts", title_justify="left")
    table.add_column("value", justify="right")
    for row in alerts[-_SHOWN:]:
        item = Text("–" if row["item"] is None else row["item"])
        table.add_row(
            when(row["time"]), Text(row["monitor"]), item, "raised" if row["raised"] else "over", number(row["value"])
        )
    return table


# -- what --check found ------------------------------------------------------------------------------------------------


def check_tables(said: dict[str, Any]) -> list[RenderableType]:
    """What ``explain`` found, as tables."""
    source, window, goes = said["source"], said["window"], said["goes"]
    facts = Table(title=f"{said['name']}: nothing is wrong with it", title_justify="left", show_header=False)
    where = source["path"] or ", ".join(f"{name}={value}" for name, value in source["options"].items())
    state = f"state in {goes['state']}; {goes['says']}" if goes["state"] else goes["says"]
    for name, text in (
        ("source", f"{source['format']} {where}, {source['mode']}: {source['says']}"),
        ("window", f"{window['length']}, in steps of {window['tick']}"),
        ("lateness", window["says"]),
        ("answers", f"{goes['answers']}: {', '.join(goes['tables'])}; sketches are {goes['sketches']}"),
        (
            "kept",
            f"for ever; of sketches the last {VERSIONS} versions"
            if goes["keep"] is None
            else f"for {goes['keep']} of the stream's time",
        ),
        ("state", state),
        ("Spark", goes["master"] or "where it is set up to run, else this machine"),
    ):
        facts.add_row(name, Text(text))
    crossing = Table("column", "size", "from", title="what every row takes to Python", title_justify="left")
    for one in said["crossing"]:
        crossing.add_row(one["column"], one["type"], Text(one["from"]))
    parts: list[RenderableType] = [facts, crossing, _kept(said), Text(f"Sizes were {said['measured']}.")]
    if said["queries"]:
        parts += [_promised(said["queries"])]
    if said["monitors"]:
        parts += [_watched(said["monitors"])]
    merged = dict.fromkeys(
        f"{one['class']} {one['options']['eps']:g} to {one['error_once_merged']:.3g}"
        for one in said["kept"]
        if one["error_once_merged"]
    )
    if merged:
        parts.append(
            Text(
                "Answers over all sites have no error for merging: sites send what they counted in the range. Merging stored "
                "sketches of sites yourself, in one step, widens eps: " + ", ".join(merged) + "."
            )
        )
    return parts


def _kept(said: dict[str, Any]) -> Table:
    table = Table("sketch", "rows", "asked by", title="what every site keeps", title_justify="left")
    for name in ("empty", f"{said['arrivals']:,} arrivals", "stored"):
        table.add_column(name, justify="right")
    for one in said["kept"]:
        options = ", ".join(f"{name}={value}" for name, value in one["options"].items())
        table.add_row(
            Text(f"{one['class']}({options})" if options else one["class"]), Text(one["where"] or "all"),
            Text(", ".join(one["queries"])), *(size(one[name]) for name in ("empty_bytes", "bytes", "stored_bytes")),
        )  # fmt: skip
    table.add_section()
    table.add_row("a site", "", "", *(size(said["site"][name]) for name in ("empty_bytes", "bytes", "stored_bytes")))
    return table


def _promised(queries: list[dict[str, Any]]) -> Table:
    table = Table("query", "asks", "last", "sites", "answers are", title="what is asked", title_justify="left")
    for one in queries:
        sites = "each" if one["by"] == "site" else "all"
        table.add_row(*(Text(text) for text in (one["name"], one["asks"], one["last"], sites, one["error"])))
    return table


def _watched(monitors: list[dict[str, Any]]) -> Table:
    table = Table("monitor", "watches", "last", "scheme", "tolerance", title="what is watched", title_justify="left")
    for one in monitors:
        table.add_row(*(Text(one[name]) for name in ("name", "watches", "last", "scheme", "says")))
    return table


# -- words -------------------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """A value or bound as people read it.

    >>> number(1234567.0), number(0.25), number(None), number(float("inf"))
    ('1,234,567', '0.25', '–', '∞')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:,.6g}"


def when(time: Any) -> str:
    """A moment as people read it."""
    if time is None:
        return "nothing"
    return time.strftime("%Y-%m-%d %H:%M:%S") if isinstance(time, datetime) else str(time)


def _rate(rows: float, seconds: float) -> str:
    return f"{rows / seconds:,.0f} rows/s" if seconds > 0 else "– rows/s"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, datetime) else value
