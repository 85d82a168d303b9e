"""Answers as tables: every number with its bounds and how sure they are, in words that need no paper."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lately.core.words import size

_BOUNDS = ("low … high", "sure")
_HOW_TO_READ = "The true number lies from low to high; “sure” says in how many of 100 cases, at least."
#: Answers of one query that a table shows; --json has them all.
_SHOWN = 20
_BAR = 24

Row = dict[str, Any]


# -- words -------------------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """A number as people read it.

    >>> number(1234567.0), number(1234567.89), number(0.25), number(None)
    ('1,234,567', '1,234,568', '0.25', '–')
    """
    if value is None:
        return "–"
    is_plain = value == int(value) or abs(value) >= 1e5
    return f"{value:,.0f}" if is_plain and abs(value) < 1e15 else f"{value:,.6g}"


def bounds(row: Row) -> tuple[str, str]:
    """The bounds of an answer and how sure they are; an end that JSON has no number for is endless.

    >>> bounds({"value": 7, "low": 6, "high": 9, "confidence": 0.99})
    ('6 … 9', '99%')
    >>> bounds({"value": 7, "low": 7, "high": 7, "confidence": 1})
    ('exact', '')
    >>> bounds({"value": 1, "low": None, "high": 2, "confidence": 0.9})
    ('-∞ … 2', '90%')
    """
    low, high, confidence = row["low"], row["high"], row["confidence"]
    if confidence == 1 and low is not None and low == high:
        return "exact", ""
    if row["value"] is None and low is None and high is None:
        return "–", ""
    ends = f"{'-∞' if low is None else number(low)} … {'∞' if high is None else number(high)}"
    return ends, "" if confidence is None else f"{confidence * 100:.6g}%"


def when(time: str | int | None) -> str:
    """A moment as people read it.

    >>> when("2026-01-01T12:00:00Z"), when(42), when(None)
    ('2026-01-01 12:00:00', '42', '–')
    """
    return "–" if time is None else str(time).replace("T", " ").partition(".")[0].removesuffix("Z")


def plain(value: Any) -> Text:
    """A key or name as it is, whatever is in it: no markup, and nothing that would steer a terminal.

    >>> plain("[red]a\\x1b[2J").plain
    '[red]a\\\\x1b[2J'
    """
    text = str(value)
    return Text("".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text))


def _upto(title: str, asof: Any) -> str:
    return title if asof is None else f"{title}, up to {when(asof)}"


# -- ad-hoc questions --------------------------------------------------------------------------------------------------


def estimates(title: tuple[str, str], head: Sequence[str], rows: Sequence[tuple[Any, Row]], asof: Any) -> list[RenderableType]:
    """A line for each answer, with a bar where there are several; ``title`` says what is asked, and of when and where."""
    several = len(rows) > 1
    if not rows:
        return [_title(_upto(f"nothing came {title[1]}", asof))]
    table = _table(head[:1], head[1:], _BOUNDS)
    if several:
        table.add_column("")
    longest = max((abs(one["value"] or 0) for _, one in rows), default=0)
    for name, one in rows:
        bar = [_bar(one["value"], longest)] if several else []
        table.add_row(plain(name), number(one["value"]), *bounds(one), *bar)
    inexact = any(bounds(one)[0] != "exact" for _, one in rows)
    return [_title(_upto(" ".join(title), asof)), table, *([Text(_HOW_TO_READ, style="dim")] if inexact else [])]


def _bar(value: float | None, longest: float) -> str:
    return "" if not value or value < 0 or not longest else "█" * max(1, round(_BAR * value / longest))


def each_top(words: str, sites: dict[str, list[Row]], asof: Any) -> list[RenderableType]:
    """The top keys of every site."""
    table = _table(("site", "key"), ("count",), _BOUNDS)
    for site, rows in sites.items():
        for i, row in enumerate(rows):
            one = row["estimate"]
            table.add_row(plain(site or "–") if i == 0 else "", plain(row["key"]), number(one["value"]), *bounds(one))
        table.add_section()
    return [_title(_upto(f"top keys {words}", asof)), table, Text(_HOW_TO_READ, style="dim")]


def sites(said: Row) -> list[RenderableType]:
    """The sites, what came at each, and what its sketches take."""
    table = _table(("site",), ("arrivals",), (*_BOUNDS, "sketches"))
    for row in said["rows"]:
        total = row["total"] or {"value": None, "low": None, "high": None, "confidence": None}
        table.add_row(plain(row["site"] or "–"), number(total["value"]), *bounds(total), size(row["bytes"]))
    return [_title(_upto("sites, with the arrivals in the window", said["asof"])), table]


# -- what the pipeline wrote -------------------------------------------------------------------------------------------


def answers(said: Row) -> list[RenderableType]:
    """The newest answers of the pipeline's own queries."""
    if not said["rows"]:
        return [Text("No answers yet: the pipeline has not finished a batch, or its file asks nothing.")]
    table = _table(("query", "site", "item"), ("value",), _BOUNDS)
    told: dict[str, int] = {}
    for row in said["rows"]:
        name = row["query"]
        told[name] = told.get(name, 0) + 1
        if told[name] <= _SHOWN:
            site = "all" if row["site"] is None else row["site"] or "–"
            table.add_row(plain(name), plain(site), plain(_item(row)), number(row["value"]), *bounds(row))
    for name, count in told.items():
        if count > _SHOWN:
            table.add_row(plain(name), "", f"… {count - _SHOWN:,} more with --json")
    return [_title(_upto(f"answers of batch {said['batch']}", said["time"])), table]


def history(said: Row) -> list[RenderableType]:
    """How an answer went, oldest first."""
    rows = said["rows"]
    of = "".join(f" {word} {said[name]}" for word, name in (("of", "item"), ("at", "site")) if said[name] is not None)
    if not rows:
        return [plain(f"No answers of {said['query']!r}{of} so far.")]
    table = _table(("time", "batch"), ("value",), (*_BOUNDS, ""))
    longest = max(abs(row["value"] or 0) for row in rows)
    for row in rows:
        ends, sure = bounds(row)
        table.add_row(when(row["time"]), str(row["batch"]), number(row["value"]), ends, sure, _bar(row["value"], longest))
    return [_title(f"{said['query']}{of}, newest last"), table]


def alerts(rows: Iterable[Row]) -> list[RenderableType]:
    """What monitors raised, newest last."""
    table = _table(("time", "monitor", "item", ""), ("value",), _BOUNDS)
    for row in rows:
        state = Text("raised", style="bold red") if row["raised"] else Text("over", style="green")
        table.add_row(when(row["time"]), plain(row["monitor"]), plain(_item(row)), state, number(row["value"]), *bounds(row))
    return [_title("alerts, newest last"), table] if table.row_count else [Text("No alerts so far.")]


def runs(rows: Iterable[Row]) -> list[RenderableType]:
    """The batches of the pipeline, newest last."""
    numbers = ("rows", "late", "rejected", "seconds", "sent", "instead of")
    table = _table((), ("batch", "up to", *numbers), ())
    for row in rows:
        table.add_row(
            str(row["batch"]), when(row["time"]), *(number(row[name]) for name in ("rows", "late", "rejected")),
            "–" if row["seconds"] is None else f"{row['seconds']:.2f}",
            *(_size(row[f"{name}_bytes"]) for name in ("shipped", "everything")),
        )  # fmt: skip
    return [_title("batches, newest last"), table] if table.row_count else [Text("No batches so far.")]


def _size(nbytes: int | None) -> str:
    return "–" if nbytes is None else size(nbytes)


def _item(row: Row) -> str:
    return "–" if row["item"] is None else row["item"]


def _title(text: str) -> Text:
    """A line above a table; as the table's own title it would be cut to the table's width."""
    line = plain(text)
    line.stylize("italic")
    return line


def _table(texts: Iterable[str], numbers: Iterable[str], more: Iterable[str]) -> Table:
    table = Table()
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for name in more:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    return table
