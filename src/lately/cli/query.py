"""``lately query``: questions to a store, or to the service that serves it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import typer
from rich.console import RenderableType

from lately.cli import console, tables
from lately.cli.console import Json, print_json
from lately.cli.sources import AnswerSource, QueryOptions, open_source, store_errors
from lately.core.errors import InputError
from lately.sketches.quantiles import DEFAULT_QUANTILES

if TYPE_CHECKING:  # imported late, since the other commands need no store
    from lately.store.documents import EstimateDocument, HistoryDocument, KeysDocument

D = TypeVar("D")

app = typer.Typer(
    help="Query a store, or a running service at a URL. Every estimate has bounds.",
    no_args_is_help=True,
)

Store = Annotated[str | None, typer.Option("--store", metavar="PATH", help="The store; by default LATELY_STORE, else ./store.")]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Query a running service instead; LATELY_TOKEN is its token."),
]
Last = Annotated[
    str | None,
    typer.Option("--last", metavar="LENGTH", help="Only the most recent period, e.g. 10m; by default the whole window."),
]
From = Annotated[str | None, typer.Option("--from", metavar="TIME", help="Start of the range: an age such as 2h, or a time.")]
To = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="End of the range: an age such as 1h, or a time; by default now.")
]
Site = Annotated[list[str] | None, typer.Option("--site", metavar="SITE", help="Only this site; may be repeated.")]
Of = Annotated[
    str | None, typer.Option("--of", metavar="NAME", help="The query or sketch to use; by default the best that fits.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Maximum number of rows, the newest.")]
Rows = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Number of rows to show, the newest.")]
OneSite = Annotated[str | None, typer.Option("--site", metavar="SITE", help="Only rows of this site.")]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only rows whose reason begins with this text, as in 'no time'.")
]


#: The same as ``lately.store.site_report.SiteState``, which is imported late.
State: TypeAlias = Literal["silent", "ahead", "behind", "ok"]
_SHARES = " ".join(map(str, DEFAULT_QUANTILES))


def _answer(store: str | None, url: str | None, ask: Callable[[AnswerSource], D]) -> D:
    with store_errors(), console.err.status("querying"):
        return ask(open_source(store, url))


def _show(document: object, as_json: bool, view: Callable[[], list[RenderableType]]) -> None:
    if as_json:
        print_json(document)
    else:
        console.show(*view())


@app.command()
def count(
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="Keys to count.")],
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """How often each key occurred."""
    options = _options(last, start, end, site, of)
    document = _answer(store, url, lambda source: source.counts(keys, options))
    _show(document, as_json, lambda: _keys(("arrivals", options.words()), document))


@app.command()
def top(
    k: Annotated[int, typer.Option("-k", metavar="K", min=1, max=1000, help="Number of keys.")] = 10,
    each: Annotated[bool, typer.Option("--each", help="List the top keys of each site separately.")] = False,
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """The most frequent keys."""
    options = _options(last, start, end, site, of)
    if each:
        by_site = _answer(store, url, lambda source: source.top_by_site(k, options))
        _show(by_site, as_json, lambda: tables.top_by_site(options.words(), by_site))
    else:
        keys = _answer(store, url, lambda source: source.top(k, options))
        _show(keys, as_json, lambda: _keys(("top keys", options.words()), keys))


@app.command()
def quantiles(
    qs: Annotated[list[float] | None, typer.Argument(metavar="Q", help=f"Shares from 0 to 1; by default {_SHARES}.")] = None,
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Quantiles of the values: 0.5 is the median."""
    options = _options(last, start, end, site, of)
    document = _answer(store, url, lambda source: source.quantiles(qs or list(DEFAULT_QUANTILES), options))
    rows = [(f"{row.q:g}", row.estimate) for row in document.rows]
    _show(document, as_json, lambda: tables.estimates(("quantiles", options.words()), ("q", "value"), rows, document.asof))


@app.command("range")
def range_(
    lo: Annotated[int, typer.Argument(metavar="LO", help="The first key.")],
    hi: Annotated[int, typer.Argument(metavar="HI", help="The last key.")],
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Number of events with a key from LO to HI, both included; of a query for quantiles, a value."""
    options = _options(last, start, end, site, of)
    document = _answer(store, url, lambda source: source.count_range(lo, hi, options))
    _show(document, as_json, lambda: _one(f"{lo} … {hi}", ("keys or values", "count"), ("arrivals", options.words()), document))


@app.command("self-join")
def self_join(
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Sum of the squares of all counts: large if few keys have most of the events."""
    options = _options(last, start, end, site, of)
    document = _answer(store, url, lambda source: source.self_join(options))
    _show(document, as_json, lambda: _one("self-join", ("", "value"), ("self-join", options.words()), document))


@app.command("inner-product")
def inner_product(
    left: Annotated[str, typer.Argument(metavar="LEFT", help="A query or sketch.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="Another query or sketch.")],
    last: Last = None, start: From = None, end: To = None, site: Site = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Number of pairs of a LEFT and a RIGHT event with equal keys: the size of a join of two streams."""
    options = _options(last, start, end, site, None)
    document = _answer(store, url, lambda source: source.inner_product(left, right, options))
    _show(
        document, as_json, lambda: _one(f"{left} × {right}", ("", "pairs"), ("pairs of equal keys", options.words()), document)
    )


@app.command()
def total(
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Total number of events."""
    options = _options(last, start, end, site, of)
    document = _answer(store, url, lambda source: source.total(options))
    _show(document, as_json, lambda: _one("arrivals", ("", "count"), ("all arrivals", options.words()), document))


@app.command()
def answers(
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="Only this query of the pipeline file.")] = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """What the pipeline's own queries document last."""
    document = _answer(store, url, lambda source: source.answers(query))
    _show(document, as_json, lambda: tables.answers(document))


@app.command()
def history(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A query of the pipeline file.")],
    item: Annotated[str | None, typer.Option("--item", metavar="ITEM", help="Only about this key, quantile or range.")] = None,
    site: Annotated[str | None, typer.Option("--site", metavar="SITE", help="Only about this site.")] = None,
    limit: Limit = 20,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Answers of a query over time, oldest first."""
    document = _answer(store, url, lambda source: _history(source, query, item, site, limit))
    _show(document, as_json, lambda: tables.history(document))


def _history(source: AnswerSource, query: str, item: str | None, site: str | None, limit: int) -> "HistoryDocument":
    """The history of one answer; where a query has several answers after a batch, it must be document which."""
    newest = source.answers(query).rows
    items, sites = [row.item for row in newest], [row.site for row in newest]
    for option, names, given in (("--item", items, item), ("--site", sites, site)):
        known = list(dict.fromkeys(name for name in names if name is not None))
        if given is None and len(known) > 1:
            some = ", ".join(map(repr, known[:5])) + (", …" if len(known) > 5 else "")
            raise InputError(
                f"{query!r} has several answers after each batch", remedy=f"choose one with {option}, such as {some}"
            )
    return source.history(query, item, site, limit)


@app.command()
def alerts(limit: Limit = 20, store: Store = None, url: Url = None, as_json: Json = False) -> None:
    """Alerts of monitors that fired or were resolved, newest last."""
    document = _answer(store, url, lambda source: source.alerts(limit))
    _show(document, as_json, lambda: tables.alerts(document.rows))


@app.command()
def runs(limit: Limit = 20, store: Store = None, url: Url = None, as_json: Json = False) -> None:
    """Rows and duration of each batch, newest last."""
    document = _answer(store, url, lambda source: source.runs(limit))
    _show(document, as_json, lambda: tables.runs(document.rows))


@app.command()
def sites(
    state: Annotated[State | None, typer.Option("--state", help="Only sites in this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="Number of sites to show.")] = 50,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Which sites are silent, behind or ahead of the others, longest silent first."""
    document = _answer(store, url, lambda source: source.sites(limit, state))
    _show(document, as_json, lambda: tables.sites(document))


@app.command()
def late(
    limit: Rows = 20, site: OneSite = None, reason: Reason = None, store: Store = None, url: Url = None, as_json: Json = False
) -> None:
    """Rows that were too late to be counted, newest first, and their number."""
    document = _answer(store, url, lambda source: source.uncounted("late", limit, site, reason))
    _show(document, as_json, lambda: tables.uncounted("late", document))


@app.command()
def rejected(
    limit: Rows = 20, site: OneSite = None, reason: Reason = None, store: Store = None, url: Url = None, as_json: Json = False
) -> None:
    """Rejected rows, newest first, and their number by reason."""
    document = _answer(store, url, lambda source: source.uncounted("rejected", limit, site, reason))
    _show(document, as_json, lambda: tables.uncounted("rejected", document))


def _options(last: str | None, start: str | None, end: str | None, site: list[str] | None, of: str | None) -> QueryOptions:
    return QueryOptions(last, start, end, tuple(site or ()), of)


def _keys(title: tuple[str, str], document: "KeysDocument") -> list[RenderableType]:
    return tables.estimates(title, ("key", "count"), [(row.key, row.estimate) for row in document.rows], document.asof)


def _one(name: str, head: tuple[str, str], title: tuple[str, str], document: "EstimateDocument") -> list[RenderableType]:
    return tables.estimates(title, head, [(name, document.estimate)], document.asof)
