"""``lately run``: a pipeline on Spark, watched while it runs."""

import signal
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TimeElapsedColumn
from rich.text import Text

import lately as lt
from lately.cli import shown
from lately.cli.shown import Json, one_line_errors, print_json


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
    with one_line_errors(between="\nlately: "):
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
        print_json(said)
    else:
        shown.out.print(*check_tables(said))


def _run(pipeline: Any, as_json: bool, quiet: bool) -> int | None:
    """Run it and show what there is to see; returns the signal that stopped it."""
    from datetime import UTC, datetime

    from lately.spark import runner
    from lately.spark.shown import Watched

    is_batch = pipeline.config.source.mode == "batch"
    watched = Watched(pipeline.config.name, pipeline.config.source.mode == "continuous")
    log, screen = Path(tempfile.mkstemp(prefix="lately-run-", suffix=".log")[1]), shown.screen()
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

    bar = Progress(SpinnerColumn(), BarColumn(None), TimeElapsedColumn(), expand=True)
    bar.add_task("", total=None)  # nobody knows how much there is to come

    class View:
        def __rich__(self) -> Any:
            return Group(watched.view(datetime.now(UTC), notes()), bar)

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
        print_json(watched.as_dict(notes(), stopped is not None))
    else:
        shown.out.print(*watched.tables(), Text(f"{watched.summary()}; answers are in {pipeline.config.store.path}"))
    return stopped
