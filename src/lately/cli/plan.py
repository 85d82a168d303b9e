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


def plan(
    eps: Annotated[float, typer.Option(help="Largest error, as a share of the arrivals in range.")] = 0.01,
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
    with one_line_errors():
        plans = [
            lt.plan(
                eps, delta, _length(window), tick=_length(tick), query=query.value,
                merge_height=merge_height, counter=counter, arrivals=arrivals,
            )
            for counter in ("wave", "exphist", "randwave", "exact")
        ]  # fmt: skip
        whole = wcm_plan(eps, delta, plans[0].arrivals)
    if as_json:
        print_json([*(asdict(p) for p in plans), *whole])
        return
    asked = f"EcmSketch(window={window}, eps={eps:g}, delta={delta:g}, query={query.value}, merge_height={merge_height})"
    table = table_of(("counter",), ("width", "depth", "eps_cm", "eps_sw", "bytes"))
    for p in plans:
        table.add_row(p.counter, f"{p.width:,}", f"{p.depth}", f"{p.eps_cm:.4g}", f"{p.eps_sw:.4g}", size(p.bytes))
    console.show(title(f"{asked}, at most {plans[0].arrivals:,} arrivals in the window"), table)
    others = table_of(("sketch",), ("width", "depth", "bytes"))
    for row in whole:
        others.add_row(str(row["sketch"]), f"{row['width']:,}", f"{row['depth']}", size(row["bytes"]))
    console.show(title("the whole window only, without a promised error"), others)
