"""The ``lately`` command. It reads options, calls the library and prints; what it prints, ``--json`` gives as data.

Exit codes: 0 fine, 1 refused (a bad file or value, told in one line; of a pipeline file in a line for each mistake), 2 wrong
usage, 3 a benchmark missed what it promises, 130 a pipeline was stopped with Ctrl-C (143: with SIGTERM).
"""

import importlib
import json
import logging
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

import lately as lt
from lately.core.words import size
from lately.sketches.wcm import WcmSketch, wcm_plan

app = typer.Typer(
    help="What has been happening lately? Sliding-window sketches: small, mergeable, with bounds on every answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_out = Console()
_err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


class Query(StrEnum):
    point = "point"
    inner = "inner"


class Benchmark(StrEnum):
    speed = "speed"
    memory = "memory"
    error = "error"
    merge = "merge"
    questions = "questions"
    wcm = "wcm"
    windows = "windows"
    monitors = "monitors"
    spark = "spark"
    start = "start"
    all = "all"


def main() -> None:
    """Entry point of the ``lately`` command."""
    app()


def _version(wanted: bool) -> None:
    if wanted:
        print(f"lately {lt.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@contextmanager
def _one_line_errors(between: str = " ") -> Iterator[None]:
    """What lately refuses, and files that cannot be read, end in one line on stderr and exit code 1."""
    try:
        yield
    except lt.LatelyError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    else:
        return
    print("lately:", between.join(message.splitlines()), file=sys.stderr)
    raise typer.Exit(1)


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


# -- plan --------------------------------------------------------------------------------------------------------------


def _length(text: str | None) -> Any:
    """A --window or --tick as the library takes it: '1h', 1000000, or 'arrivals:1000000'."""
    if text is None:
        return None
    kind, colon, number = text.rpartition(":")
    try:
        length = int(number)
    except ValueError as error:
        if kind == "arrivals":
            raise lt.ParameterError(f"{text!r}: write a whole number after 'arrivals:'") from error
        return text
    if not colon:
        return length
    return lt.arrivals(length) if kind == "arrivals" else text


@app.command()
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
    from dataclasses import asdict

    with _one_line_errors():
        plans = [
            lt.plan(
                eps, delta, _length(window), tick=_length(tick), query=query.value,
                merge_height=merge_height, counter=counter, arrivals=arrivals,
            )
            for counter in ("wave", "exphist", "randwave", "exact")
        ]  # fmt: skip
        whole = wcm_plan(eps, delta, plans[0].arrivals)
    if as_json:
        _print_json([*(asdict(p) for p in plans), *whole])
        return
    shown = f"EcmSketch(window={window}, eps={eps:g}, delta={delta:g}, query={query.value}, merge_height={merge_height})"
    table = Table("counter", title=f"{shown}, at most {plans[0].arrivals:,} arrivals in the window", title_justify="left")
    for name in ("width", "depth", "eps_cm", "eps_sw", "bytes"):
        table.add_column(name, justify="right")
    for p in plans:
        table.add_row(p.counter, f"{p.width:,}", f"{p.depth}", f"{p.eps_cm:.4g}", f"{p.eps_sw:.4g}", size(p.bytes))
    _out.print(table)
    others = Table("sketch", title="the whole window only, without a promised error", title_justify="left")
    for name in ("width", "depth", "bytes"):
        others.add_column(name, justify="right")
    for row in whole:
        others.add_row(str(row["sketch"]), f"{row['width']:,}", f"{row['depth']}", size(row["bytes"]))
    _out.print(others)


# -- inspect -----------------------------------------------------------------------------------------------------------


def _facts(blob: bytes) -> dict[str, Any]:
    """What is in a stored sketch or counter, as plain data."""
    thing = lt.from_bytes(blob)
    facts: dict[str, Any] = {"class": type(thing).__name__, "format version": blob[4], "family": type(thing).FAMILY}
    if isinstance(thing, lt.Windows | lt.Partials):
        said = {name: _said(answer) for name, answer in thing.answers().items()}
        where = {"late": thing.late, "bytes in memory": thing.nbytes} if isinstance(thing, lt.Windows) else {}
        return facts | {"now": _plain_time(thing.now), "queries": said, **where, "bytes on disk": len(blob)}
    if isinstance(thing, lt.AmsSketch | lt.FastAmsSketch):
        facts |= {name: getattr(thing, name) for name in ("eps", "delta", "width", "depth", "seed", "total", "weight")}
    elif isinstance(thing, lt.CountMin):
        facts |= {"delta": thing.delta, "width": thing.width, "depth": thing.depth, "seed": thing.seed, "error": thing.error}
        facts |= {"arrivals": thing.total}
    else:
        shape, total = thing._shape, thing.count() if isinstance(thing, lt.WindowCounter) else thing.total()
        facts |= {"window": repr(thing.window), "eps": shape.eps, "delta": shape.delta, **_made_of(thing)}
        facts |= {
            "merge height planned": shape.merge_height,
            "merges": thing.merges,
            "now": _plain_time(thing.now),
        }
        facts |= {"arrivals in window": {"value": total.value, "low": total.low, "high": total.high}}
        facts |= {"late": thing.late, "held back": int(thing._held.counts.sum())}
    return facts | {"bytes on disk": len(blob), "bytes in memory": thing.nbytes}


def _said(answer: lt.Answer) -> dict[str, Any]:
    """An answer as JSON holds it; of a filter, how many keys pass."""
    value = f"{len(answer.value)} keys" if isinstance(answer.value, lt.Answers) else answer.value
    plain = value if isinstance(value, int | float | str | None) else str(value)
    return {"value": plain, "rows": answer.rows, "missing": answer.missing, "covered": answer.covered}


def _plain_time(now: Any) -> int | str | None:
    """A moment as JSON holds it."""
    return now if isinstance(now, int | None) else str(now)


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
        outside = "clip" if shape.clip else "refuse"
        return {"lo": shape.lo, "hi": shape.hi, "resolution": shape.resolution, "outside": outside, **cells}
    return {"universe": shape.universe, **cells}


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to_bytes() gave, in a file.")], as_json: Json = False
) -> None:
    """What is in a stored sketch or counter."""
    with _one_line_errors():
        facts = _facts(file.read_bytes())
    if as_json:
        _print_json(facts)
        return
    table = Table(show_header=False)
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
    _out.print(Text(str(file), style="italic"), soft_wrap=True)
    _out.print(table)


# -- run ---------------------------------------------------------------------------------------------------------------


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="PIPELINE.toml", help="A pipeline file, see docs/pipeline.md.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only say what it would keep, promise and cost; starts no Spark.")
    ] = False,
    as_json: Json = False,
    master: Annotated[str | None, typer.Option(help="Where Spark runs, such as 'local[2]'; else as the file says.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while it runs.")] = False,
    arrivals: Annotated[int, typer.Option(help="For --check: rows of a site that a window holds.")] = 1_000_000,
) -> None:
    """Run a pipeline on Spark: rows into sketches, answers and alerts into a store. Ctrl-C stops it after the running batch."""
    with _one_line_errors(between="\nlately: "):
        lt.spark  # noqa: B018  (says what to install)
        from lately.config import load
        from lately.spark.runner import on_master

        config = on_master(load(file), master)
        if check:
            _check(config, arrivals, as_json)
            return
        stopped = _run(lt.Pipeline(config), as_json, quiet)
    if stopped is not None:
        raise typer.Exit(128 + stopped)


def _check(config: Any, arrivals: int, as_json: bool) -> None:
    from lately.spark.explain import explain
    from lately.spark.shown import check_tables

    said = explain(config, arrivals)
    if as_json:
        _print_json(said)
    else:
        _out.print(*check_tables(said))


def _run(pipeline: Any, as_json: bool, quiet: bool) -> int | None:
    """Run it and show what there is to see; returns the signal that stopped it."""
    from datetime import UTC, datetime

    from lately.spark import runner
    from lately.spark.shown import Watched

    is_batch = pipeline.config.source.mode == "batch"
    watched = Watched(pipeline.config.name, pipeline.config.source.mode == "continuous")
    log, screen = Path(tempfile.mkstemp(prefix="lately-run-", suffix=".log")[1]), _screen()
    live = screen.is_terminal and not quiet
    said = False

    def notes() -> list[str]:
        return getattr(pipeline, "notes", [])

    def tell(line: str) -> None:
        if not quiet:
            screen.print(Text(line), soft_wrap=True)

    def told(done: Any) -> None:
        nonlocal said
        watched.take(done)
        if not live:
            for note in () if said else notes():
                tell(f"note: {note}")
            said = True
            tell(watched.line(datetime.now(UTC)))

    class View:
        def __rich__(self) -> Any:
            return watched.view(datetime.now(UTC), notes())

    try:
        with screen.status("starting Spark") if live else nullcontext():
            spark = runner.start(pipeline.config, log)
        with Live(View(), console=screen, transient=True, refresh_per_second=2) if live else nullcontext():
            stopped = runner.run(pipeline, spark, told)
    except (lt.LatelyError, OSError, typer.Exit):
        log.unlink()
        raise
    except KeyboardInterrupt:  # before it ran
        stopped = signal.SIGINT
    except Exception as error:
        raise lt.LatelyError(f"{runner.plainly(error)}; what Spark said is in {log}") from error
    log.unlink()
    if live or not said:
        for note in notes():
            tell(f"note: {note}")
    if stopped is not None:
        kept = "nothing is kept" if is_batch else f"the state is kept in {pipeline.config.run.checkpoint}; the next run goes on"
        print(f"lately: stopped; {kept}", file=sys.stderr)
    if as_json:
        _print_json(watched.as_dict(notes(), stopped is not None))
    else:
        _out.print(*watched.tables(), Text(f"{watched.summary()}; answers are in {pipeline.config.store.path}"))
    return stopped


def _screen() -> Console:
    """The terminal, also while what is started writes elsewhere."""
    try:
        same = sys.stderr.fileno() == 2
    except OSError:
        same = False
    return Console(file=os.fdopen(os.dup(2), "w")) if same and _err.is_terminal else _err


# -- bench -------------------------------------------------------------------------------------------------------------


def _bench_folder() -> Path:
    """The top of the source checkout, where bench/ is."""
    top = Path(lt.__file__).resolve().parents[2]
    if not (top / "bench" / "report.py").is_file():
        raise lt.LatelyError(
            "the benchmarks come with the source, not with the package: get the source of this version, "
            "then run `pip install -e '.[bench]'` and `lately bench` in its folder"
        )
    return top


@app.command()
def bench(
    name: Annotated[
        Benchmark,
        typer.Argument(
            metavar="NAME", help="speed, memory, error, merge, questions, wcm, windows, monitors, spark, start, or all."
        ),
    ],
    as_json: Json = False,
    data: Annotated[Path | None, typer.Option(help="A Parquet file with the columns ts and key, and perhaps value.")] = None,
    rows: Annotated[int | None, typer.Option(min=1000, help="How many rows to use.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds each: shows that it runs; does not judge.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to put plots.")] = None,
) -> None:
    """How fast, how small, how far off: measured here and now. Exits with 3 when a promise is missed (not with --quick)."""
    with _one_line_errors():
        top = _bench_folder()
        if data is not None and not data.is_file():
            raise lt.InputError(f"{data}: there is no such file")
        sys.path.insert(0, str(top))
        options_class = importlib.import_module("bench.report").Options
        names = [b.value for b in Benchmark if b is not Benchmark.all] if name is Benchmark.all else [name.value]
        reports = {}
        for each in names:
            with nullcontext() if as_json else _err.status(f"{each} …") as status:
                tell = (lambda line: None) if status is None else (lambda line, s=status, e=each: s.update(f"{e}: {line}"))
                options = options_class(quick=quick, rows=rows, data=data, plot=plot, tell=tell)
                reports[each] = importlib.import_module(f"bench.{each}").run(options)
            if not as_json:
                reports[each].show(_out)
    if as_json:
        _print_json({"lately": lt.__version__, "machine": _machine(), "reports": {k: r.as_dict() for k, r in reports.items()}})
    if not quick and not all(report.ok for report in reports.values()):
        raise typer.Exit(3)


def _machine() -> dict[str, Any]:
    import numba
    import numpy as np

    return {
        "python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__,
        "system": platform.platform(), "cores": os.cpu_count(),
    }  # fmt: skip


# -- demo --------------------------------------------------------------------------------------------------------------


@app.command()
def demo(
    as_json: Json = False,
    pace: Annotated[bool, typer.Option("--pace/--no-pace", help="Slow the replay down so that one can watch it.")] = True,
) -> None:
    """A tour: three hours of traffic at four sites in ten seconds, then what the sketches say against the truth."""
    from lately import demo as tour
    from lately.core.jit import is_cold

    with _one_line_errors():
        quiet = as_json or not _out.is_terminal
        cold = is_cold() and not quiet
        if cold:
            logging.getLogger("lately").setLevel(logging.ERROR)  # the status line says the same
        with _err.status("compiling kernels for this machine, once") if cold else nullcontext():
            warm = tour.new_sketch()
            warm.update(["a"], [0])
            lt.merge([warm, warm]).counts(["a"] * 1000, last="10m")
        with nullcontext() if quiet else _err.status("drawing two million events"):
            sites = tour.traffic()
        sketches, seconds = _replay(tour, sites, live=not quiet, frame=0.1 if pace and not quiet else 0.0)
        result = tour.summary(sites, sketches, seconds)
    if as_json:
        _print_json(result)
    else:
        _show_tour(result)


def _replay(tour: Any, sites: Any, *, live: bool, frame: float) -> tuple[list[lt.EcmSketch], float]:
    """Feed each site's sketch two minutes at a time, showing what is hot; returns the sketches and the time updates took."""
    import pyarrow as pa

    names = tour.path_names()
    texts = pa.array(names)
    sketches = [tour.new_sketch() for _ in sites]
    columns = [texts.take(pa.array(site.paths)) for site in sites]
    progress = Progress(TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.fields[rate]}"), expand=True)
    task = progress.add_task("", total=tour.SECONDS, rate="")
    done, seconds = 0, 0.0
    with Live(console=_out, transient=True, auto_refresh=False) if live else nullcontext() as screen:
        for start, stop in tour.steps():
            began = time.perf_counter()
            for site, sketch, column in zip(sites, sketches, columns, strict=True):
                rows = site.between(start, stop)
                sketch.update(column[rows], site.seconds[rows])
                done += rows.stop - rows.start
            seconds += time.perf_counter() - began
            if screen is not None:
                clock = time.strftime("%H:%M", time.gmtime(stop))
                progress.update(task, advance=stop - start, description=clock, rate=f"{done / seconds / 1e6:.1f} M events/s")
                screen.update(Group(progress, _hot_now(names, lt.merge(sketches))), refresh=True)
                time.sleep(max(0.0, frame - (time.perf_counter() - began)))
    return sketches, seconds


def _hot_now(names: list[str], merged: lt.EcmSketch) -> Table:
    answers = merged.counts(names, last="10m")
    table = Table("path", title="the last 10 minutes at all sites, as the merged sketches see them", title_justify="left")
    table.add_column("requests", justify="right")
    table.add_column("at least … at most", justify="right")
    table.add_column("", width=40)
    best = (-answers.value).argsort(kind="stable")[:8].tolist()
    for i in best:
        bar = "█" * round(40 * answers.value[i] / answers.value[best[0]])
        table.add_row(names[i], f"{answers.value[i]:,}", f"{answers.low[i]:,} … {answers.high[i]:,}", bar)
    return table


def _show_tour(result: dict[str, Any]) -> None:
    hot = Table(title="hottest paths at all four sites, from the merged sketches", title_justify="left", box=SIMPLE_HEAD)
    hot.padding = (0, 2, 0, 0)
    hot.add_column("path", no_wrap=True)
    hot.add_column("last", no_wrap=True)
    for name in ("exact", "estimate", "low", "high"):
        hot.add_column(name, justify="right", no_wrap=True)
    hot.add_column("ok", no_wrap=True)
    for line in result["hottest"]:
        if line["last"] != result["hottest"][len(hot.rows) - 1]["last"]:
            hot.add_section()
        numbers = (f"{line[name]:,}" for name in ("exact", "value", "low", "high"))
        hot.add_row(line["path"], line["last"], *numbers, "yes" if line["within"] else "no")
    hot.add_section()
    join = result["self_join"]
    inside = "yes" if join["low"] <= join["exact"] <= join["high"] else "no"
    hot.add_row("(self-join)", "10m", *(f"{join[name]:.2e}" for name in ("exact", "value", "low", "high")), inside)
    sizes = Table("sketch", title="what is kept: the last hour, within 2 %, 95 % sure", title_justify="left")
    for name in ("events seen", "in memory", "stored", "merges"):
        sizes.add_column(name, justify="right")
    for site in result["sites"]:
        sizes.add_row(site["site"], f"{site['events']:,}", size(site["bytes"]), size(site["stored"]), str(site["merges"]))
    merged = result["merged"]
    sizes.add_row("all, merged", f"{result['events']:,}", size(merged["bytes"]), size(merged["stored"]), str(merged["merges"]))
    sizes.add_row("the hour's raw events", f"{result['raw_events']:,}", size(result["raw_bytes"]), "–", "–")
    answers = result["answers"]
    asked, within = (sum(answers[last][name] for last in answers) for name in ("asked", "within"))
    worst = max(answers[last]["average_error"] for last in answers)
    _out.print(sizes, hot)
    _out.print(Text("What you saw", style="bold"))
    for line in (
        f"{result['events']:,} events went through four sketches at {result['events_per_second'] / 1e6:.1f} million a second.",
        f"Merged, they answered {asked:,} questions about paths; {within:,} answers ({within / asked:.2%}) were within their "
        f"bounds, on average {worst:.3%} of the traffic off or less.",
        f"They found the crowd at {result['hottest'][0]['path']} without keeping an event: what a site sends is "
        f"{size(max(site['stored'] for site in result['sites']))} at the most.",
    ):
        _out.print(f"  · {line}")
    _out.print(Text("Next", style="bold"))
    _out.print("  lately plan --eps 0.01 --window 1h      what a guarantee costs", highlight=False)
    _out.print("  lately bench speed --quick              how fast it is here", highlight=False)
    _out.print('  python -c "import lately; help(lately.EcmSketch)"', highlight=False)


if __name__ == "__main__":
    main()
