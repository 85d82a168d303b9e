"""Answers as tables: every value with its bounds and their confidence."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from lately.core.estimate import Estimate
from lately.core.words import answer_texts, number, size
from lately.text_tables import bar, plain, table_of, title

if TYPE_CHECKING:  # imported late, since the other commands need no store
    from lately.store.documents import AnswersDocument, HistoryDocument, SiteKeysDocument, UncountedDocument
    from lately.store.site_report import SitePage
    from lately.store.tables import Alert, Answer, Run, Time

_BOUNDS = ("low … high", "confidence")
_HOW_TO_READ = "The true value is between low and high with at least this confidence."
#: Answers of one query that a table shows; --json has them all.
_SHOWN = 20


# -- words -------------------------------------------------------------------------------------------------------------


def cells(answer: "Estimate | Answer | Alert") -> tuple[str, str, str]:
    """The value of an answer, its bounds, and with which confidence they hold."""
    return answer_texts(answer.value, answer.low, answer.high, answer.confidence)


def when(time: "Time | None") -> str:
    """An instant as people read it.

    >>> from datetime import UTC
    >>> when(datetime(2026, 1, 1, 12, tzinfo=UTC)), when(42), when(None)
    ('2026-01-01 12:00:00', '42', '–')
    """
    return "–" if time is None else time.strftime("%Y-%m-%d %H:%M:%S") if isinstance(time, datetime) else str(time)


def _upto(title: str, asof: "Time | None") -> str:
    return title if asof is None else f"{title}, up to {when(asof)}"


# -- ad-hoc questions --------------------------------------------------------------------------------------------------


def estimates(
    about: tuple[str, str], head: Sequence[str], rows: Sequence[tuple[str | int, Estimate]], asof: "Time | None"
) -> list[RenderableType]:
    """A line for each answer, with a bar where there are several; ``about`` says what is asked, and of when and where."""
    several = len(rows) > 1
    if not rows:
        return [title(_upto(f"no events {about[1]}", asof))]
    table = table_of(head[:1], (*head[1:], *_BOUNDS))
    if several:
        table.add_column("")
    longest = max((abs(estimate.value) for _, estimate in rows), default=0)
    for name, estimate in rows:
        table.add_row(plain(name), *cells(estimate), *([bar(estimate.value, longest)] if several else []))
    inexact = any(cells(estimate)[1] != "exact" for _, estimate in rows)
    return [title(_upto(" ".join(about), asof)), table, *([Text(_HOW_TO_READ, style="dim")] if inexact else [])]


def top_by_site(words: str, document: "SiteKeysDocument") -> list[RenderableType]:
    """The top keys of every site."""
    table = table_of(("site", "key"), ("count", *_BOUNDS))
    for site, rows in document.sites.items():
        for i, row in enumerate(rows):
            table.add_row(plain(site or "–") if i == 0 else "", plain(row.key), *cells(row.estimate))
        table.add_section()
    return [title(_upto(f"top keys {words}", document.asof)), table, Text(_HOW_TO_READ, style="dim")]


# -- what the pipeline wrote -------------------------------------------------------------------------------------------


def answers(document: "AnswersDocument") -> list[RenderableType]:
    """The newest answers of the pipeline's own queries."""
    if not document.rows:
        return [Text("No answers yet: the pipeline has not finished a batch, or its file has no queries.")]
    table = table_of(("query", "site", "item"), ("value", *_BOUNDS))
    counts: dict[str, int] = {}
    for row in document.rows:
        counts[row.query] = counts.get(row.query, 0) + 1
        if counts[row.query] <= _SHOWN:
            site = "all" if row.site is None else row.site or "–"
            table.add_row(plain(row.query), plain(site), plain(_item(row)), *cells(row))
    for query, count in counts.items():
        if count > _SHOWN:
            table.add_row(plain(query), "", f"… {count - _SHOWN:,} more with --json")
    return [title(_upto(f"answers of batch {document.batch}", document.time)), table]


def history(document: "HistoryDocument") -> list[RenderableType]:
    """The answers of a query over time, oldest first."""
    of = "".join(f" {word} {name}" for word, name in (("of", document.item), ("at", document.site)) if name is not None)
    if not document.rows:
        return [plain(f"No answers of {document.query!r}{of} so far.")]
    table = table_of((), ("time", "batch", "value", *_BOUNDS))
    table.add_column("")
    longest = max(abs(row.value or 0) for row in document.rows)
    for row in document.rows:
        table.add_row(when(row.time), str(row.batch), *cells(row), bar(row.value, longest))
    return [title(f"{document.query}{of}, newest last"), table]


def alerts(rows: "Iterable[Alert]") -> list[RenderableType]:
    """When alerts began to fire and were resolved, newest last."""
    table = table_of(("monitor", "item"), ("time", "state", "value", *_BOUNDS))
    for row in rows:
        state = Text(row.state, style="bold red" if row.state == "firing" else "green")
        table.add_row(plain(row.monitor), plain(_item(row)), when(row.time), state, *cells(row))
    return [title("alerts, newest last"), table] if table.row_count else [Text("No alerts so far.")]


def runs(rows: "Iterable[Run]") -> list[RenderableType]:
    """The batches of the pipeline, newest last."""
    numbers = ("rows", "late", "rejected", "seconds", "sent", "instead of")
    table = table_of((), ("batch", "up to", *numbers))
    for row in rows:
        table.add_row(
            str(row.batch), when(row.time), number(row.rows), number(row.late), number(row.rejected),
            "–" if row.seconds is None else f"{row.seconds:.2f}", _size(row.shipped_bytes), _size(row.everything_bytes),
        )  # fmt: skip
    return [title("batches, newest last"), table] if table.row_count else [Text("No batches so far.")]


def sites(page: "SitePage") -> list[RenderableType]:
    """The sites, the most silent first."""
    if not page.rows and not page.sites:
        return [Text("No sites so far.")]
    table = table_of(("site", "state"), ("newest row", "behind", "last seen", "counted", "late", "rejected", "ahead"))
    for row in page.rows:
        state = Text(row.state or "–", style="" if row.state in ("ok", None) else "bold red")
        times = when(row.time), length(row.behind, page.newest), when(row.seen)
        counts = (number(count) for count in (row.counted, row.late, row.rejected, row.ahead))
        table.add_row(plain(row.site or "–"), state, *times, *counts)
    states = f"{page.silent:,} silent, {page.ahead:,} ahead, {page.behind:,} behind"
    shown = f"; {len(page.rows):,} shown" if page.sites > len(page.rows) else ""
    return [title(_upto(f"{page.sites:,} sites: {states}{shown}", page.newest)), table]


def length(span: float | None, time: "Time | None") -> str:
    """How far a time is behind another: of timestamps with a unit, of integers as it is.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> length(7265.0, noon), length(-90.0, noon), length(0.5, noon)
    ('2h 1m', '-1m 30s', '0.5s')
    >>> length(1790000000, 1790000000), length(None, None)
    ('1790000000', '–')
    """
    if span is None or not isinstance(time, datetime):
        return "–" if span is None else str(span)
    sign, left = "-" if span < 0 else "", abs(span)
    if left < 60:
        return f"{sign}{left:g}s"
    units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)]
    first = next(i for i, (_, unit) in enumerate(units) if left >= unit)
    parts = []
    for name, unit in units[first : first + 2]:
        parts.append(f"{int(left // unit)}{name}")
        left %= unit
    return sign + " ".join(part for part in parts if not part.startswith("0"))


def uncounted(table: str, document: "UncountedDocument") -> list[RenderableType]:
    """Late or rejected rows, newest first, below the number of rows with each reason."""
    if not document.reasons:
        return [Text(f"No {table} rows.")]
    total = sum(reason.rows for reason in document.reasons)
    counted = "" if document.complete else " among the newest files"
    words = ", ".join(f"{reason.rows:,} {reason.reason or 'without a reason'}" for reason in document.reasons)
    rows = table_of((), ("time", "batch"))
    for name in ("site", "reason", "row"):
        rows.add_column(name, overflow="fold")
    for row in document.rows:
        texts = (row.site or "–", row.reason or "–", row.row or "–")
        rows.add_row(when(row.time), str(row.batch), *map(plain, texts))
    return [title(f"{total:,} {table} rows{counted}: {words}; newest first"), rows]


def _size(nbytes: int | None) -> str:
    return "–" if nbytes is None else size(nbytes)


def _item(row: "Answer | Alert") -> str:
    return "–" if row.item is None else row.item
