"""Answers as tables: every number with its bounds and how sure they are, in words that need no paper."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from lately.core.words import answer_texts, number, size
from lately.text_tables import bar, plain, table_of, title

_BOUNDS = ("low … high", "sure")
_HOW_TO_READ = "The true number lies from low to high; “sure” says in how many of 100 cases, at least."
#: Answers of one query that a table shows; --json has them all.
_SHOWN = 20

Row = dict[str, Any]


# -- words -------------------------------------------------------------------------------------------------------------


def cells(row: Row) -> tuple[str, str, str]:
    """The value of an answer, its bounds, and with which confidence they hold."""
    return answer_texts(*(row[name] for name in ("value", "low", "high", "confidence")))


def when(time: str | int | None) -> str:
    """A moment as people read it.

    >>> when("2026-01-01T12:00:00Z"), when(42), when(None)
    ('2026-01-01 12:00:00', '42', '–')
    """
    return "–" if time is None else str(time).replace("T", " ").partition(".")[0].removesuffix("Z")


def _upto(title: str, asof: Any) -> str:
    return title if asof is None else f"{title}, up to {when(asof)}"


# -- ad-hoc questions --------------------------------------------------------------------------------------------------


def estimates(about: tuple[str, str], head: Sequence[str], rows: Sequence[tuple[Any, Row]], asof: Any) -> list[RenderableType]:
    """A line for each answer, with a bar where there are several; ``about`` says what is asked, and of when and where."""
    several = len(rows) > 1
    if not rows:
        return [title(_upto(f"nothing came {about[1]}", asof))]
    table = table_of(head[:1], (*head[1:], *_BOUNDS))
    if several:
        table.add_column("")
    longest = max((abs(one["value"] or 0) for _, one in rows), default=0)
    for name, one in rows:
        table.add_row(plain(name), *cells(one), *([bar(one["value"], longest)] if several else []))
    inexact = any(cells(one)[1] != "exact" for _, one in rows)
    return [title(_upto(" ".join(about), asof)), table, *([Text(_HOW_TO_READ, style="dim")] if inexact else [])]


def each_top(words: str, sites: dict[str, list[Row]], asof: Any) -> list[RenderableType]:
    """The top keys of every site."""
    table = table_of(("site", "key"), ("count", *_BOUNDS))
    for site, rows in sites.items():
        for i, row in enumerate(rows):
            one = row["estimate"]
            table.add_row(plain(site or "–") if i == 0 else "", plain(row["key"]), *cells(one))
        table.add_section()
    return [title(_upto(f"top keys {words}", asof)), table, Text(_HOW_TO_READ, style="dim")]


# -- what the pipeline wrote -------------------------------------------------------------------------------------------


def answers(said: Row) -> list[RenderableType]:
    """The newest answers of the pipeline's own queries."""
    if not said["rows"]:
        return [Text("No answers yet: the pipeline has not finished a batch, or its file asks nothing.")]
    table = table_of(("query", "site", "item"), ("value", *_BOUNDS))
    told: dict[str, int] = {}
    for row in said["rows"]:
        name = row["query"]
        told[name] = told.get(name, 0) + 1
        if told[name] <= _SHOWN:
            site = "all" if row["site"] is None else row["site"] or "–"
            table.add_row(plain(name), plain(site), plain(_item(row)), *cells(row))
    for name, count in told.items():
        if count > _SHOWN:
            table.add_row(plain(name), "", f"… {count - _SHOWN:,} more with --json")
    return [title(_upto(f"answers of batch {said['batch']}", said["time"])), table]


def history(said: Row) -> list[RenderableType]:
    """How an answer went, oldest first."""
    rows = said["rows"]
    of = "".join(f" {word} {said[name]}" for word, name in (("of", "item"), ("at", "site")) if said[name] is not None)
    if not rows:
        return [plain(f"No answers of {said['query']!r}{of} so far.")]
    table = table_of((), ("time", "batch", "value", *_BOUNDS))
    table.add_column("")
    longest = max(abs(row["value"] or 0) for row in rows)
    for row in rows:
        table.add_row(when(row["time"]), str(row["batch"]), *cells(row), bar(row["value"], longest))
    return [title(f"{said['query']}{of}, newest last"), table]


def alerts(rows: Iterable[Row]) -> list[RenderableType]:
    """When monitors fired and when that was resolved, newest last."""
    table = table_of(("monitor", "item"), ("time", "state", "value", *_BOUNDS))
    for row in rows:
        state = Text(row["state"], style="bold red" if row["state"] == "firing" else "green")
        table.add_row(plain(row["monitor"]), plain(_item(row)), when(row["time"]), state, *cells(row))
    return [title("alerts, newest last"), table] if table.row_count else [Text("No alerts so far.")]


def runs(rows: Iterable[Row]) -> list[RenderableType]:
    """The batches of the pipeline, newest last."""
    numbers = ("rows", "late", "rejected", "seconds", "sent", "instead of")
    table = table_of((), ("batch", "up to", *numbers))
    for row in rows:
        table.add_row(
            str(row["batch"]), when(row["time"]), *(number(row[name]) for name in ("rows", "late", "rejected")),
            "–" if row["seconds"] is None else f"{row['seconds']:.2f}",
            *(_size(row[f"{name}_bytes"]) for name in ("shipped", "everything")),
        )  # fmt: skip
    return [title("batches, newest last"), table] if table.row_count else [Text("No batches so far.")]


def sites(said: Row) -> list[RenderableType]:
    """The sites, the most silent first."""
    if not said["rows"] and not said["sites"]:
        return [Text("No sites so far.")]
    table = table_of(("site", "state"), ("newest row", "behind", "last seen", "counted", "late", "rejected", "ahead"))
    for row in said["rows"]:
        state = Text(row["state"] or "–", style="" if row["state"] in ("ok", None) else "bold red")
        times = when(row["time"]), length(row["behind"], said["newest"]), when(row["seen"])
        counts = (number(row[name]) for name in ("counted", "late", "rejected", "ahead"))
        table.add_row(plain(row["site"] or "–"), state, *times, *counts)
    states = ", ".join(f"{said[name]:,} {name}" for name in ("silent", "ahead", "behind"))
    more = said["sites"] - len(said["rows"])
    shown = f"; {len(said['rows']):,} shown" if more else ""
    return [title(_upto(f"{said['sites']:,} sites: {states}{shown}", said["newest"])), table]


def length(span: float | None, time: Any) -> str:
    """How far a time is behind another: of timestamps with a unit, of integers as it is.

    >>> length(7265.0, "2026-01-01T12:00:00Z"), length(-90.0, "2026-01-01T12:00:00Z"), length(0.5, "2026-01-01T12:00:00Z")
    ('2h 1m', '-1m 30s', '0.5s')
    >>> length(1790000000, 1790000000), length(None, None)
    ('1790000000', '–')
    """
    if span is None or not isinstance(time, str):
        return "–" if span is None else str(span)
    sign, left = "-" if span < 0 else "", abs(span)
    if left < 60:
        return f"{sign}{left:g}s"
    whole = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)]
    first = next(i for i, (_, unit) in enumerate(whole) if left >= unit)
    parts = []
    for name, unit in whole[first : first + 2]:
        parts.append(f"{int(left // unit)}{name}")
        left %= unit
    return sign + " ".join(part for part in parts if not part.startswith("0"))


def refused(table: str, said: Row) -> list[RenderableType]:
    """Late or rejected rows, newest first, below the number of rows with each reason."""
    if not said["reasons"]:
        return [Text(f"No {table} rows.")]
    total = sum(one["rows"] for one in said["reasons"])
    counted = "" if said["complete"] else " among the newest files"
    words = ", ".join(f"{one['rows']:,} {one['reason'] or 'without a reason'}" for one in said["reasons"])
    rows = table_of((), ("time", "batch"))
    for name in ("site", "reason", "row"):
        rows.add_column(name, overflow="fold")
    for row in said["rows"]:
        cells = (row["site"] or "–", row["reason"] or "–", row["row"] or "–")
        rows.add_row(when(row["time"]), str(row["batch"]), *map(plain, cells))
    return [title(f"{total:,} {table} rows{counted}: {words}; newest first"), rows]


def _size(nbytes: int | None) -> str:
    return "–" if nbytes is None else size(nbytes)


def _item(row: Row) -> str:
    return "–" if row["item"] is None else row["item"]
