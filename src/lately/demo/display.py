"""The demo in a terminal: while it runs, and its summary."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lately.core.words import estimate_texts, number, size
from lately.demo.demo_run import Demo
from lately.demo.pipeline_file import FLOOD
from lately.demo.record import RecordedAlert
from lately.pipeline.batch_report import BatchReport

_BAR_WIDTH = 28
_MAX_ALERTS = 4


class LiveDisplay:
    """The state of a running demo, which Rich draws again at every refresh.

    Parameters
    ----------
    demo
        The demo.
    """

    def __init__(self, demo: Demo) -> None:
        self._demo = demo

    def __rich__(self) -> RenderableType:
        demo = self._demo
        if demo.progress.last is None:
            waiting = f"eight sites are writing; the first batch takes some seconds ({max(0, demo.clock):.0f} s)"
            return Text(waiting, style="dim")
        return Group(_head(demo), Text(), _hot_pages(demo), *_alerts(demo), Text("Press Ctrl-C to end it.", style="dim"))


def _head(demo: Demo) -> RenderableType:
    report, totals = demo.progress.last, demo.progress.totals
    assert report is not None
    table = Table.grid(padding=(0, 3))
    table.add_row(Text("dashboard", style="dim"), Text(demo.dashboard.url, style="bold cyan"))
    progress = (
        f"batch {report.batch}   {totals['rows']:,} rows   {rows_per_second(report):,.0f} rows/s   {lag(demo):.1f} s behind"
    )
    table.add_row(Text("pipeline", style="dim"), f"{progress}   {report.sites} sites   sketches {size(report.state_bytes)}")
    table.add_row(Text("scenario", style="dim"), _phase(demo))
    return table


def _phase(demo: Demo) -> Text:
    if demo.seconds is not None and demo.clock >= demo.seconds:
        return Text("finished; the last rows are being processed")
    phase = demo.scenario.phase(demo.clock)
    left = "" if demo.seconds is None else f"   {demo.seconds - demo.clock:.0f} s left"
    return Text(f"{phase}{left}", style="" if phase == "normal traffic" else "bold yellow")


def _hot_pages(demo: Demo) -> RenderableType:
    assert demo.progress.last is not None
    rows = [row for row in demo.progress.last.answers if row.query == "hot pages"]
    table = Table("last minute, all sites", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    table.add_column("requests", justify="right")
    table.add_column("at least … at most", justify="right")
    table.add_column("", width=_BAR_WIDTH)
    for row in rows:
        bar = "█" * round(_BAR_WIDTH * (row.value or 0) / (rows[0].value or 1))
        value, low, high = estimate_texts(row.value, row.low, row.high)
        table.add_row(row.item, value, f"{low} … {high}", Text(bar, style="cyan"))
    return table


def _alerts(demo: Demo) -> Iterable[RenderableType]:
    for row in list(demo.record.alerts)[-_MAX_ALERTS:]:
        yield _alert_line(row, demo.start or 0)


def _alert_line(row: RecordedAlert, start: int) -> Text:
    time = datetime.fromtimestamp(start + row.second, UTC).astimezone().strftime("%H:%M:%S")
    is_firing = row.state == "firing"
    state = "firing: crossed its threshold" if is_firing else "resolved: back below its threshold"
    value = "" if row.value is None else f", at {number(round(row.value))}"
    return Text(f"{time}  {row.monitor} {state}{value}", style="bold red" if is_firing else "green")


def rows_per_second(report: BatchReport) -> float:
    """The throughput of a batch."""
    return report.rows / report.seconds if report.seconds else 0.0


def lag(demo: Demo) -> float:
    """How far the newest answers are behind the clock, in seconds. A second has passed before its rows are written."""
    return max(0.0, demo.clock - demo.second - 1)


def progress_line(demo: Demo) -> str:
    """The progress of the demo in one line, for output that is not a terminal."""
    return f"{demo.progress.progress_line(datetime.now(UTC))}; {demo.scenario.phase(demo.second)}"


def alert_lines(report: BatchReport) -> list[str]:
    """A line for each alert of a batch that fired or was resolved."""
    texts = {"firing": "is above its threshold", "resolved": "is below its threshold again"}
    return [f"demo: {row.state}: {row.monitor} {texts[row.state]}" for row in report.alerts]


# -- at the end ------------------------------------------------------------------------------------------------------------


def summary(results: dict[str, Any]) -> RenderableType:
    """The results of a demo, as ``Record.summary`` returns them."""
    bullets = [Text(f"  · {sentence}") for sentence in sentences(results)]
    return Group(_comparison(results["last"]), Text("Results", style="bold"), *bullets)


def _comparison(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="the last answers and the exact values", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("query", "item"):
        table.add_column(name, no_wrap=True)
    for name in ("exact", "estimate", "at least … at most"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        if row["site"] is None:
            exact, value, low, high = (_short(row[name]) for name in ("exact", "value", "low", "high"))
            between = "exact" if low == high else f"{low} … {high}"
            table.add_row(row["query"], row["item"] or "–", exact, value, between, "✓" if row["within_bounds"] else "✗")
    return table


def _short(value: float | None) -> str:
    return number(value) if value is None or abs(value) < 1e7 else f"{value:.3g}".replace("e+0", "e")


def sentences(results: dict[str, Any]) -> list[str]:
    """The results as sentences."""
    answers, detection, sent, memory = (results[name] for name in ("answers", "detection", "bytes", "memory"))
    hits = answers["checked"] - answers["misses"]
    lines = [
        f"{results['rows']:,} rows of eight sites in {results['seconds']} s, in {results['batches']} batches; "
        f"{results['late']} late.",
        f"{hits:,} of {answers['checked']:,} answers had the exact value within their bounds "
        f"({share(hits, answers['checked'])}; at most {answers['allowed_misses']} may miss it).",
    ]
    if detection["delay"] is not None:
        lines.append(f"The alert “{FLOOD}” fired {detection['delay']:.1f} s after the attack began at eight sites at once.")
    elif detection["attack"] is not None:
        lines.append(f"The alert “{FLOOD}” has not fired, although there was an attack.")
    if detection["false_alerts"]:
        lines.append(f"{detection['false_alerts']} alerts fired without an attack.")
    lines.append(
        f"Answers over all sites took {size(sent['answers'])}, monitors {size(sent['monitors'])}; "
        f"sending only a hash of every row would take {size(sent['every_row'])}."
    )
    lines.append(f"All sketches take {size(memory['state'])}; the rows of their window take {size(memory['rows'])}.")
    return lines


def share(part: int, total: int) -> str:
    """A share as text.

    >>> share(999, 1000), share(0, 0)
    ('99.90%', '–')
    """
    return f"{part / total:.2%}" if total else "–"
