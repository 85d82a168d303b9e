"""``lately bench``: the benchmarks of the source checkout, run and judged."""

import importlib
import os
import platform
import sys
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import lately as lt
from lately.cli import console
from lately.cli.console import Json, one_line_errors, print_json


class Benchmark(StrEnum):
    speed = "speed"
    single = "single"
    memory = "memory"
    bytes = "bytes"
    error = "error"
    joins = "joins"
    merge = "merge"
    questions = "questions"
    wcm = "wcm"
    windows = "windows"
    monitors = "monitors"
    spark = "spark"
    sites = "sites"
    service = "service"
    start = "start"
    all = "all"


def _bench_folder() -> Path:
    """The top of the source checkout, where bench/ is."""
    top = Path(lt.__file__).resolve().parents[2]
    if not (top / "bench" / "report.py").is_file():
        raise lt.LatelyError(
            "the benchmarks come with the source, not with the package",
            remedy="get the source of this version, then run `pip install -e '.[bench]'` and `lately bench` in its folder",
        )
    return top


def bench(
    name: Annotated[
        Benchmark,
        typer.Argument(metavar="NAME", help=", ".join(b.value for b in Benchmark if b is not Benchmark.all) + ", or all."),
    ],
    as_json: Json = False,
    data: Annotated[Path | None, typer.Option(help="A Parquet file with the columns ts and key, and perhaps value.")] = None,
    rows: Annotated[int | None, typer.Option(min=1000, help="How many rows to use.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds each: shows that it runs; does not judge.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to put plots.")] = None,
) -> None:
    """How fast, how small, how far off: measured here and now. Exits with 3 when a promise is missed (not with --quick)."""
    with one_line_errors():
        top = _bench_folder()
        if data is not None and not data.is_file():
            raise lt.InputError(f"{data}: there is no such file")
        sys.path.insert(0, str(top))
        options_class = importlib.import_module("bench.report").Options
        names = [b.value for b in Benchmark if b is not Benchmark.all] if name is Benchmark.all else [name.value]
        reports = {}
        for each in names:
            with nullcontext() if as_json else console.err.status(f"{each} …") as status:
                tell = (lambda line: None) if status is None else (lambda line, s=status, e=each: s.update(f"{e}: {line}"))
                options = options_class(quick=quick, rows=rows, data=data, plot=plot, tell=tell)
                reports[each] = importlib.import_module(f"bench.{each}").run(options)
            if not as_json:
                reports[each].show(console.out)
    if as_json:
        print_json({"lately": lt.__version__, "machine": _machine(), "reports": {k: r.as_dict() for k, r in reports.items()}})
    if not quick and not all(report.ok for report in reports.values()):
        raise typer.Exit(3)


def _machine() -> dict[str, Any]:
    import numba
    import numpy as np

    return {
        "python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__,
        "system": platform.platform(), "cores": os.cpu_count(),
    }  # fmt: skip
