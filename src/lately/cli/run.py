"""``lately run``: a pipeline on Spark, watched while it runs."""

import os
import signal
import sys
import tempfile
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TimeElapsedColumn
from rich.text import Text

import lately as lt
from lately.cli import console
from lately.cli.console import Json, one_line_errors, print_json

if TYPE_CHECKING:
    from lately.config import Config


def run(
    file: Annotated[Path, typer.Argument(metavar="PIPELINE.toml", help="A pipeline file, see docs/pipeline.md.")],
    check: Annotated[
        bool,
        typer.Option("--check", help="Only find mistakes, with Spark's own analysis, and say what it would keep and cost."),
    ] = False,
    as_json: Json = False,
    master: Annotated[str | None, typer.Option(help="Where Spark runs, such as 'local[2]'; else as the file says.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while it runs.")] = False,
    arrivals: Annotated[int, typer.Option(help="For --check: rows of a site that a window holds.")] = 1_000_000,
) -> None:
    """Run a pipeline on Spark: rows into sketches, answers and alerts into a store. Ctrl-C stops it after the running batch."""
    with one_line_errors(between="\nlately: "):
        if not check or find_spec("pydantic") is None:  # the file cannot be read without pydantic, which Spark's extra has
            lt.spark  # noqa: B018  (says what to install)
        from lately.config import load

        config = load(file).with_master(master)
        if check:
            _check(file, config, arrivals, as_json)
            return
        stopped = _run(lt.Pipeline(config), as_json, quiet)
    if stopped is not None:
        raise typer.Exit(128 + stopped)


def _check(file: Path, config: "Config", arrivals: int, as_json: bool) -> None:
    """Check the file, with Spark if it is installed, and print what the pipeline would keep and cost."""
    from lately.pipeline.check_tables import check_tables
    from lately.pipeline.explanation import explain

    has_spark = _has_spark()
    if has_spark:
        _check_with_spark(config)
    explanation = explain(config, arrivals) | {"sql_checked": has_spark}
    if as_json:
        print_json(explanation)
    else:
        console.show(*check_tables(explanation))
    if not has_spark:
        print(
            f"lately: {file}: Spark is not installed, so SQL, columns and the source were not analysed; "
            "to check them too, run pip install 'lately[spark]'",
            file=sys.stderr,
        )


def _has_spark() -> bool:
    try:
        lt.spark  # noqa: B018
    except lt.LatelyError:
        return False
    return True


def _check_with_spark(config: "Config") -> None:
    """Let Spark analyse the source and all expressions."""
    from lately.spark import runner

    log, screen = _new_log(), console.screen()
    try:
        with runner.Stop(_leave) as stop, screen.status("starting Spark") if screen.is_terminal else nullcontext():
            runner.check(config, log)
    except KeyboardInterrupt:
        log.unlink(missing_ok=True)
        print("lately: stopped before the check was done", file=sys.stderr)
        raise typer.Exit(128 + (stop.signal or signal.SIGINT)) from None
    except Exception as error:
        told = runner.with_log(error, log)
        if told is None:
            raise
        raise told from error
    log.unlink(missing_ok=True)


def _new_log() -> Path:
    handle, name = tempfile.mkstemp(prefix="lately-run-", suffix=".log")
    os.close(handle)
    return Path(name)


def _leave(number: int) -> NoReturn:
    """End the process at once, from within the handler of a signal: what is running is given up, and Spark ends with it."""
    cursor = b"\r\x1b[?25h" if os.isatty(2) else b""  # which is hidden while progress is shown
    os.write(2, cursor + b"lately: stopped at once; a batch that was running is given up, and the next run does it again\n")
    os._exit(128 + number)


def _run(pipeline: Any, as_json: bool, quiet: bool) -> int | None:
    """Run it and show what there is to see; returns the signal that stopped it."""
    from datetime import UTC, datetime

    from lately.spark import runner
    from lately.spark.console import RunProgress, alert_lines

    is_batch = pipeline.config.source.mode == "batch"
    progress = RunProgress(pipeline.config.name, pipeline.config.source.mode == "continuous")
    log, screen = _new_log(), console.screen()
    live = screen.is_terminal and not quiet
    said = False

    def notes() -> list[str]:
        return getattr(pipeline, "notes", [])

    def tell(line: str) -> None:
        if not quiet:
            screen.print(Text(line), soft_wrap=True)

    def told(done: Any) -> None:
        nonlocal said
        progress.add(done)
        if not live:
            for note in () if said else notes():
                tell(f"note: {note}")
            said = True
            tell(progress.progress_line(datetime.now(UTC)))
        for line in alert_lines(done):  # above the live display, if there is one
            tell(line)

    bar = Progress(SpinnerColumn(), BarColumn(None), TimeElapsedColumn(), expand=True)
    bar.add_task("", total=None)  # the number of batches is unknown

    class View:
        def __rich__(self) -> Any:
            return Group(progress.live_view(datetime.now(UTC), notes()), bar)

    stop = runner.Stop(_leave)
    try:
        with stop:
            with screen.status("starting Spark") if live else nullcontext():
                spark = runner.start(pipeline.config, log)
            with Live(View(), console=screen, transient=True, refresh_per_second=2) if live else nullcontext():
                stopped = runner.run(pipeline, spark, told, stop)
    except typer.Exit:
        log.unlink()
        raise
    except KeyboardInterrupt:  # while Spark started, or in the middle of a batch that is all there is
        stopped = stop.signal or signal.SIGINT
    except Exception as error:
        told_error = runner.with_log(error, log)
        if told_error is None:
            raise
        raise told_error from error
    log.unlink()
    if live or not said:
        for note in notes():
            tell(f"note: {note}")
    if stopped is not None:
        kept = "nothing is kept" if is_batch else f"the state is kept in {pipeline.config.run.checkpoint}; the next run goes on"
        when = "" if progress.last is not None else " before the first batch was done"
        print(f"lately: stopped{when}; {kept}", file=sys.stderr)
    if as_json:
        print_json(progress.as_dict(notes(), stopped is not None))
    else:
        store = pipeline.config.store.path
        summary = progress.summary(stopped is not None)
        console.show(
            *progress.tables(), Text(f"{summary}; answers are in {store}"), *map(Text, progress.uncounted_lines(store))
        )
    return stopped
