"""``lately query``: questions to a store, or to the service that serves it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import typer
from rich.console import RenderableType

from lately.cli import shown, tables
from lately.cli.asked import Asked, Source, source, store_errors
from lately.cli.shown import Json, print_json
from lately.core.errors import InputError
from lately.sketches.quantiles import DEFAULT_QUANTILES

if TYPE_CHECKING:  # imported late, since the other commands need no store
    from lately.store.documents import EstimateDocument, HistoryDocument, KeysDocument

D = TypeVar("D")

app = typer.Typer(
    help="Ask what has been happening: of a store, or of the service at a URL. Every number comes with its bounds.",
    no_args_is_help=True,
)

Store = Annotated[str | None, typer.Option("--store", metavar="PATH", help="The store; else LATELY_STORE, else ./store.")]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Ask a running service instead; its token is in LATELY_TOKEN."),
]
Last = Annotated[
    str | None, typer.Option("--last", metavar="LENGTH", help="Only the last so long, such as 10m; else the whole window.")
]
From = Annotated[str | None, typer.Option("--from", metavar="TIME", help="Start of the range: an age such as 2h, or a time.")]
To = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="End of the range: an age such as 1h, or a time; else now.")
]
Site = Annotated[list[str] | None, typer.Option("--site", metavar="SITE", help="Only this site; may be given several times.")]
Of = Annotated[str | None, typer.Option("--of", metavar="NAME", help="The query or sketch to ask, if there are several.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="How many at the most, the newest.")]
Rows = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Number of rows to show, the newest.")]
OneSite = Annotated[str | None, typer.Option("--site", metavar="SITE", help="Only rows of this site.")]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only rows whose reason begins with this text, as in 'no time'.")
]


#: The same as ``lately.store.site_report.SiteState``, which is imported late.
State: TypeAlias = Literal["silent", "ahead", "behind", "ok"]
_SHARES = " ".join(map(str, DEFAULT_QUANTILES))


def _answer(store: str | None, url: str | None, ask: Callable[[Source], D]) -> D:
    with store_errors(), shown.err.status("asking"):
        return ask(source(store, url))


def _show(said: object, as_json: bool, view: Callable[[], list[RenderableType]]) -> None:
    if as_json:
        print_json(said)
    else:
        shown.show(*view())


@app.command()
def count(
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="The keys to count.")],
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """How often keys came."""
    asked = _asked(last, start, end, site, of)
    said = _answer(store, url, lambda who: who.counts(keys, asked))
    _show(said, as_json, lambda: _keys(("arrivals", asked.words()), said))


@app.command()
def top(
    k: Annotated[int, typer.Option("-k", metavar="K", min=1, max=1000, help="How many keys.")] = 10,
    each: Annotated[bool, typer.Option("--each", help="The top keys of every site, instead of all sites together.")] = False,
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """The keys that came most often."""
    asked = _asked(last, start, end, site, of)
    if each:
        by_site = _answer(store, url, lambda source: source.top_by_site(k, asked))
        _show(by_site, as_json, lambda: tables.top_by_site(asked.words(), by_site))
    else:
        keys = _answer(store, url, lambda source: source.top(k, asked))
        _show(keys, as_json, lambda: _keys(("top keys", asked.words()), keys))


@app.command()
def quantiles(
    qs: Annotated[list[float] | None, typer.Argument(metavar="Q", help=f"Shares from 0 to 1; by default {_SHARES}.")] = None,
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """The value that a share of all values lies below: 0.5 is the median."""
    asked = _asked(last, start, end, site, of)
    said = _answer(store, url, lambda who: who.quantiles(qs or list(DEFAULT_QUANTILES), asked))
    rows = [(f"{row.q:g}", row.estimate) for row in said.rows]
    _show(said, as_json, lambda: tables.estimates(("quantiles", asked.words()), ("q", "value"), rows, said.asof))


@app.command("range")
def range_(
    lo: Annotated[int, typer.Argument(metavar="LO", help="The first key.")],
    hi: Annotated[int, typer.Argument(metavar="HI", help="The last key.")],
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """How many arrivals had a key from LO to HI, both included; of a query for quantiles, a value."""
    asked = _asked(last, start, end, site, of)
    said = _answer(store, url, lambda who: who.count_range(lo, hi, asked))
    _show(said, as_json, lambda: _one(f"{lo} … {hi}", ("keys or values", "count"), ("arrivals", asked.words()), said))


@app.command("self-join")
def self_join(
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """The sum of the squares of all counts: the larger, the more the arrivals crowd on few keys."""
    asked = _asked(last, start, end, site, of)
    said = _answer(store, url, lambda who: who.self_join(asked))
    _show(said, as_json, lambda: _one("self-join", ("", "value"), ("self-join", asked.words()), said))


@app.command("inner-product")
def inner_product(
    left: Annotated[str, typer.Argument(metavar="LEFT", help="A sketch or query.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="Another one.")],
    last: Last = None, start: From = None, end: To = None, site: Site = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """How many pairs of arrivals, one of LEFT and one of RIGHT, have the same key: the size of a join of two streams."""
    asked = _asked(last, start, end, site, None)
    said = _answer(store, url, lambda who: who.inner_product(left, right, asked))
    _show(said, as_json, lambda: _one(f"{left} × {right}", ("", "pairs"), ("pairs of equal keys", asked.words()), said))


@app.command()
def total(
    last: Last = None, start: From = None, end: To = None, site: Site = None, of: Of = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """How much came in all."""
    asked = _asked(last, start, end, site, of)
    said = _answer(store, url, lambda who: who.total(asked))
    _show(said, as_json, lambda: _one("arrivals", ("", "count"), ("all arrivals", asked.words()), said))


@app.command()
def answers(
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="Only this query of the pipeline file.")] = None,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """What the pipeline's own queries said last."""
    said = _answer(store, url, lambda who: who.answers(query))
    _show(said, as_json, lambda: tables.answers(said))


@app.command()
def history(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A query of the pipeline file.")],
    item: Annotated[str | None, typer.Option("--item", metavar="ITEM", help="Of this key, quantile or range.")] = None,
    site: Annotated[str | None, typer.Option("--site", metavar="SITE", help="Of this site, if it is asked by site.")] = None,
    limit: Limit = 20,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """How an answer of the pipeline went, batch by batch, oldest first."""
    said = _answer(store, url, lambda who: _history(who, query, item, site, limit))
    _show(said, as_json, lambda: tables.history(said))


def _history(who: Source, query: str, item: str | None, site: str | None, limit: int) -> "HistoryDocument":
    """The history of one answer; where a query has several answers after a batch, it must be said which."""
    newest = who.answers(query).rows
    items, sites = [row.item for row in newest], [row.site for row in newest]
    for option, names, given in (("--item", items, item), ("--site", sites, site)):
        known = list(dict.fromkeys(name for name in names if name is not None))
        if given is None and len(known) > 1:
            some = ", ".join(map(repr, known[:5])) + (", …" if len(known) > 5 else "")
            raise InputError(f"{query!r} has several answers after each batch; choose one with {option}, such as {some}")
    return who.history(query, item, site, limit)


@app.command()
def alerts(limit: Limit = 20, store: Store = None, url: Url = None, as_json: Json = False) -> None:
    """Alerts of monitors, firing or resolved, newest last."""
    said = _answer(store, url, lambda who: who.alerts(limit))
    _show(said, as_json, lambda: tables.alerts(said.rows))


@app.command()
def runs(limit: Limit = 20, store: Store = None, url: Url = None, as_json: Json = False) -> None:
    """What each batch took in, and how long that took, newest last."""
    said = _answer(store, url, lambda who: who.runs(limit))
    _show(said, as_json, lambda: tables.runs(said.rows))


@app.command()
def sites(
    state: Annotated[State | None, typer.Option("--state", help="Only sites in this state.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="Number of sites to show.")] = 50,
    store: Store = None, url: Url = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Which sites are silent and since when, and which are ahead of the others: the most silent first."""
    said = _answer(store, url, lambda who: who.sites(limit, state))
    _show(said, as_json, lambda: tables.sites(said))


@app.command()
def late(
    limit: Rows = 20, site: OneSite = None, reason: Reason = None, store: Store = None, url: Url = None, as_json: Json = False
) -> None:
    """Rows that came too late to be counted, newest first, and how many there are."""
    said = _answer(store, url, lambda who: who.uncounted("late", limit, site, reason))
    _show(said, as_json, lambda: tables.uncounted("late", said))


@app.command()
def rejected(
    limit: Rows = 20, site: OneSite = None, reason: Reason = None, store: Store = None, url: Url = None, as_json: Json = False
) -> None:
    """Rows that were rejected, newest first, and how many were rejected for which reason."""
    said = _answer(store, url, lambda who: who.uncounted("rejected", limit, site, reason))
    _show(said, as_json, lambda: tables.uncounted("rejected", said))


def _asked(last: str | None, start: str | None, end: str | None, site: list[str] | None, of: str | None) -> Asked:
    return Asked(last, start, end, tuple(site or ()), of)


def _keys(title: tuple[str, str], said: "KeysDocument") -> list[RenderableType]:
    return tables.estimates(title, ("key", "count"), [(row.key, row.estimate) for row in said.rows], said.asof)


def _one(name: str, head: tuple[str, str], title: tuple[str, str], said: "EstimateDocument") -> list[RenderableType]:
    return tables.estimates(title, head, [(name, said.estimate)], said.asof)
