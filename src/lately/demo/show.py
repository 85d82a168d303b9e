"""How a demo looks in a terminal: while it runs, and what it came to."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lately.core.words import alert_state, estimate_texts, number, size
from lately.demo.asks import FLOOD
from lately.demo.stage import Demo
from lately.spark.pipeline import Done

_BAR = 28
_ALARMS = 4


class View:
    """The demo so far; drawn anew whenever Rich asks."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo

    def __rich__(self) -> RenderableType:
        demo = self._demo
        if demo.watched.last is None:
            return Text(
                f"eight sites are writing; the first batch takes some seconds ({max(0, demo.clock):.0f} s)", style="dim"
            )
        return Group(_head(demo), Text(), _hot(demo), *_told(demo), Text("Ctrl-C ends it.", style="dim"))


def _head(demo: Demo) -> RenderableType:
    done, totals = demo.watched.last, demo.watched.totals
    assert done is not None
    facts = Table.grid(padding=(0, 3))
    facts.add_row(Text("dashboard", style="dim"), Text(demo.web.url, style="bold cyan"))
    running = f"batch {done.batch}   {totals['rows']:,} rows   {rate(done):,.0f} rows/s   {lag(demo):.1f} s behind"
    facts.add_row(Text("pipeline", style="dim"), f"{running}   {done.sites} sites   sketches {size(done.state_bytes)}")
    facts.add_row(Text("story", style="dim"), _mood(demo))
    return facts


def _mood(demo: Demo) -> Text:
    if demo.seconds is not None and demo.clock >= demo.seconds:
        return Text("over; the last rows are on their way")
    mood = demo.story.chapter(demo.clock)
    left = "" if demo.seconds is None else f"   {demo.seconds - demo.clock:.0f} s left"
    return Text(f"{mood}{left}", style="" if mood == "calm" else "bold yellow")


def _hot(demo: Demo) -> RenderableType:
    assert demo.watched.last is not None
    rows = [row for row in demo.watched.last.answers if row["query"] == "hot pages"]
    table = Table("last minute, all sites", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    table.add_column("requests", justify="right")
    table.add_column("at least … at most", justify="right")
    table.add_column("", width=_BAR)
    for row in rows:
        bar = "█" * round(_BAR * row["value"] / rows[0]["value"])
        value, low, high = estimate_texts(row["value"], row["low"], row["high"])
        table.add_row(row["item"], value, f"{low} … {high}", Text(bar, style="cyan"))
    return table


def _told(demo: Demo) -> Iterable[RenderableType]:
    for row in list(demo.record.alarms)[-_ALARMS:]:
        yield alarm(row, demo.start or 0)


def alarm(row: dict[str, Any], start: int) -> Text:
    """An alarm in a line."""
    when = datetime.fromtimestamp(start + row["at"], UTC).astimezone().strftime("%H:%M:%S")
    state = "firing: passed its line" if row["raised"] else "resolved: is back below its line"
    value = "" if row["value"] is None else f", at {number(round(row['value']))}"
    return Text(f"{when}  {row['monitor']} {state}{value}", style="bold red" if row["raised"] else "green")


def rate(done: Any) -> float:
    """Rows a second, of a batch."""
    return done.rows / done.seconds if done.seconds else 0.0


def lag(demo: Demo) -> float:
    """How far the newest answers are behind the clock: a second is over before it is written."""
    return max(0.0, demo.clock - demo.second - 1)


def line(demo: Demo) -> str:
    """Where the demo is, for a screen that only scrolls."""
    return f"{demo.watched.line(datetime.now(UTC))}; {demo.story.chapter(demo.second)}"


def alarms(done: Done) -> list[str]:
    """What has passed its line in a batch, in either direction."""
    lines = {True: "is above its line", False: "is below its line again"}
    return [f"demo: {alert_state(row['raised'])}: {row['monitor']} {lines[row['raised']]}" for row in done.alerts]


# -- at the end ------------------------------------------------------------------------------------------------------------


def summary(found: dict[str, Any]) -> RenderableType:
    """What a demo came to."""
    said = [Text(f"  · {sentence}") for sentence in sentences(found)]
    return Group(_against(found["last"]), Text("What you saw", style="bold"), *said)


def _against(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="the last answers against the truth", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("query", "item"):
        table.add_column(name, no_wrap=True)
    for name in ("exact", "estimate", "at least … at most"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        if row["site"] is None:
            exact, value, low, high = (_short(row[name]) for name in ("exact", "value", "low", "high"))
            between = "exact" if low == high else f"{low} … {high}"
            table.add_row(row["query"], row["item"] or "–", exact, value, between, "✓" if row["held"] else "✗")
    return table


def _short(value: float | None) -> str:
    return number(value) if value is None or abs(value) < 1e7 else f"{value:.3g}".replace("e+0", "e")


def sentences(found: dict[str, Any]) -> list[str]:
    """The numbers in words."""
    answers, alarmed, told, memory = (found[name] for name in ("answers", "alarm", "bytes", "memory"))
    kept = answers["checked"] - answers["broken"]
    said = [
        f"{found['rows']:,} rows of eight sites in {found['seconds']} s, in {found['batches']} batches; {found['late']} late.",
        f"{kept:,} of {answers['checked']:,} answers had the truth within their bounds "
        f"({share(kept, answers['checked'])}; at most {answers['allowed']} may not).",
    ]
    if alarmed["delay"] is not None:
        said.append(f"The alarm “{FLOOD}” came {alarmed['delay']:.1f} s after the attack began, from eight sites at once.")
    elif alarmed["attack"] is not None:
        said.append(f"The alarm “{FLOOD}” has not come, though the attack has.")
    if alarmed["false"]:
        said.append(f"{alarmed['false']} alarms came without an attack.")
    said.append(
        f"Answers over all sites took {size(told['answers'])}, monitors {size(told['monitors'])}; "
        f"to send only a hash of every row takes {size(told['every_row'])}."
    )
    said.append(f"All state is {size(memory['state'])}; the rows that it answers for are {size(memory['rows'])}.")
    return said


def share(part: int, whole: int) -> str:
    """A share as people read it.

    >>> share(999, 1000), share(0, 0)
    ('99.90%', '–')
    """
    return f"{part / whole:.2%}" if whole else "–"
