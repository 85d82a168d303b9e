"""``lately plan``: what a guarantee costs, before a sketch is built."""

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

import lately as lt
from lately.cli import console
from lately.cli.console import Json, one_line_errors, print_json
from lately.core.words import size
from lately.sketches.wcm_shape import wcm_plan
from lately.text_tables import table_of, title


class Query(StrEnum):
    point = "point"
    inner = "inner"


def _length(text: str | None) -> Any:
    """A --window or --tick as the library takes it: '1h', 1000000, or 'arrivals:1000000'."""
    if text is None:
        return None
    kind, colon, number = text.rpartition(":")
    try:
        length = int(number)
    except ValueError as error:
        if kind == "arrivals":
            raise lt.ParameterError(f"{text!r} is no length", remedy="write a whole number after 'arrivals:'") from error
        return text
    if not colon:
        return length
    return lt.arrivals(length) if kind == "arrivals" else text


def _families(query: Query) -> list[Any]:
    """The families that can promise an error for such a query."""
    single = ["wave", "exphist", "randwave", "exact"]
    return ["shared", *single] if query == Query.point else single


def plan(
    eps: Annotated[float | None, typer.Option(help="Largest error, as a share of the arrivals in range: 0.01.")] = None,
    nbytes: Annotated[int | None, typer.Option(help="Most bytes, instead of --eps: shows what eps they buy.")] = None,
    delta: Annotated[float, typer.Option(help="Probability that an answer is off by more.")] = 0.01,
    window: Annotated[str, typer.Option(help="'1h', a plain integer, or 'arrivals:1000000'.")] = "1h",
    tick: Annotated[str | None, typer.Option(help="Finest step of time: '1s' by default, or 1 for integers.")] = None,
    query: Annotated[Query, typer.Option(help="What eps shall hold for: point queries or inner products.")] = Query.point,
    merge_height: Annotated[int, typer.Option(help="Levels of merging to come.")] = 0,
    arrivals: Annotated[int, typer.Option(help="Arrivals that a window holds at the most.")] = 1_000_000,
    as_json: Json = False,
) -> None:
    """What a sketch with this guarantee will cost, for every kind of counter, before you build it.

    The windowed Count-Mins come last: they answer for the whole window only, with bounds but without a promised error.
    """
    if eps is None and nbytes is None:
        eps = 0.01
    with one_line_errors():
        options: dict[str, Any] = {"tick": _length(tick), "query": query.value, "merge_height": merge_height}
        length, plans = _length(window), []
        for counter in _families(query):
            try:
                plans.append(lt.plan(eps, delta, length, nbytes=nbytes, counter=counter, arrivals=arrivals, **options))
            except lt.ParameterError:
                if nbytes is None or not plans:
                    raise  # what is wrong with the first family is wrong with all; others may need more bytes for any eps
        whole = wcm_plan(plans[0].eps, delta, plans[0].arrivals)
    if as_json:
        print_json([*(asdict(p) for p in plans), *whole])
        return
    size_asked = f"nbytes={nbytes:,}" if nbytes is not None else f"eps={eps:g}"
    asked = f"EcmSketch(window={window}, {size_asked}, delta={delta:g}, query={query.value}, merge_height={merge_height})"
    table = table_of(("counter",), ("eps", "width", "depth", "eps_cm", "eps_sw", "bytes"))
    for p in plans:
        shares = [f"{share:.4g}" for share in (p.eps_cm, p.eps_sw)]
        table.add_row(p.counter, f"{p.eps:.3g}", f"{p.width:,}", f"{p.depth}", *shares, size(p.bytes))
    console.show(title(f"{asked}, at most {plans[0].arrivals:,} arrivals in the window"), table)
    others = table_of(("sketch",), ("width", "depth", "bytes"))
    for row in whole:
        others.add_row(str(row["sketch"]), f"{row['width']:,}", f"{row['depth']}", size(row["bytes"]))
    console.show(title("the whole window only, without a promised error"), others)
