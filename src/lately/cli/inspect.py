"""``lately inspect``: what is in a file that ``to_bytes()`` filled."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

import lately as lt
from lately.cli import console
from lately.cli.console import Json, one_line_errors, print_json
from lately.core.times import iso_time
from lately.core.words import size
from lately.sketches.wcm import WcmSketch
from lately.text_tables import table_of


def _facts(blob: bytes) -> dict[str, Any]:
    """What is in a stored sketch or counter, as plain data."""
    thing = lt.from_bytes(blob)
    facts: dict[str, Any] = {"class": type(thing).__name__, "format version": blob[4], "family": type(thing).FAMILY}
    if isinstance(thing, lt.Windows | lt.Partials):
        said = {name: _said(answer) for name, answer in thing.answers().items()}
        where = {"late": thing.late, "bytes in memory": thing.nbytes} if isinstance(thing, lt.Windows) else {}
        return facts | {"now": iso_time(thing.now), "queries": said, **where, "bytes on disk": len(blob)}
    if isinstance(thing, lt.AmsSketch | lt.FastAmsSketch):
        facts |= {name: getattr(thing, name) for name in ("eps", "delta", "width", "depth", "seed")}
        facts |= {"total": thing.total(), "weight": thing.weight}
    elif isinstance(thing, lt.CountMin):
        facts |= {"delta": thing.delta, "width": thing.width, "depth": thing.depth, "seed": thing.seed, "error": thing.error}
        facts |= {"arrivals": thing.total()}
    else:
        shape, total = thing._shape, thing.count() if isinstance(thing, lt.WindowCounter) else thing.total()
        facts |= {"window": repr(thing.window), "eps": shape.eps, "delta": shape.delta, **_made_of(thing)}
        facts |= {
            "merge height planned": shape.merge_height,
            "merges": thing.merges,
            "now": iso_time(thing.now),
        }
        facts |= {"arrivals in window": {"value": total.value, "low": total.low, "high": total.high}}
        facts |= {"late": thing.late, "held back": int(thing._reorder_buffer.counts.sum())}
    return facts | {"bytes on disk": len(blob), "bytes in memory": thing.nbytes}


def _said(answer: lt.Answer) -> dict[str, Any]:
    """An answer as JSON holds it; of a filter, how many keys pass."""
    value = f"{len(answer.value)} keys" if isinstance(answer.value, lt.Answers) else answer.value
    plain = value if isinstance(value, int | float | str | None) else str(value)
    return {"value": plain, "rows": answer.rows, "missing": answer.missing, "covered": answer.covered}


def _made_of(thing: Any) -> dict[str, Any]:
    """What only this class is asked for, and what it made of that."""
    shape = thing._shape
    if isinstance(thing, lt.WindowCounter):
        return {"counter": shape.counter}
    if isinstance(thing, lt.EcmSketch | lt.WindowedAmsSketch | lt.TopK):
        cells = {"width": thing.width, "depth": thing.depth, "seed": shape.seed}
        if isinstance(thing, lt.TopK):
            return {"k": shape.k, "phi": shape.line, **cells}
        if isinstance(thing, lt.WindowedAmsSketch):
            return {"counter": shape.counter, **cells}
        return {"counter": shape.counter, "query": shape.query, **cells}
    if isinstance(thing, WcmSketch):
        splits = {"tau": shape.tau, "mu": shape.mu} if isinstance(thing, lt.SplitterCountMin) else {}
        return {**splits, "width": thing.width, "depth": thing.depth, "seed": shape.seed}
    cells = {"levels": len(thing._layout.levels), "cells": thing._layout.cells, "seed": shape.seed}
    if isinstance(thing, lt.Quantiles):
        outside = "clip" if shape.clip else "reject"
        return {"lo": shape.lo, "hi": shape.hi, "resolution": shape.resolution, "outside": outside, **cells}
    return {"universe": shape.universe, **cells}


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to_bytes() gave, in a file.")], as_json: Json = False
) -> None:
    """What is in a stored sketch or counter."""
    with one_line_errors():
        facts = _facts(file.read_bytes())
    if as_json:
        print_json(facts)
        return
    table = table_of(("name", "value"), header=False)
    for name, value in facts.items():
        if name == "queries":
            for query, said in value.items():
                table.add_row(f"query {query}", f"{said['value']}  ({said['rows']:,} rows)")
            continue
        if isinstance(value, dict):
            value = f"{value['value']:,}  ({value['low']:,} to {value['high']:,})"
        elif name.startswith("bytes"):
            value = f"{value:,}  ({size(value)})"
        table.add_row(name, f"{value:,}" if isinstance(value, int) and name not in ("seed", "now") else str(value))
    console.show(Text(str(file), style="italic"), soft_wrap=True)
    console.show(table)
