"""``lately demo``: a live stream, a local Spark, a dashboard."""

import logging
import sys
import webbrowser
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.text import Text

import lately as lt
from lately.cli import console
from lately.cli.console import Json, one_line_errors, print_json

#: The duration of a demo without a browser, unless --seconds is given.
_HEADLESS_SECONDS = 60


def demo(
    headless: Annotated[
        bool,
        typer.Option(
            "--headless", help="For scripts: opens no browser, lasts a minute, exit code 1 if a guarantee is violated."
        ),
    ] = False,
    seconds: Annotated[
        int | None,
        typer.Option(metavar="SECONDS", help="Stop after this time; by default run until Ctrl-C.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65_535,
            help="The port of the dashboard; by default 8765, or any free one.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="NUMBER", min=0, help="The seed of the random traffic.")] = 1,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the dashboard in the browser.")] = True,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the store in this new folder; else it is removed.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Made-up web traffic at eight sites, live: through a local Spark into sketches, onto a dashboard. Nothing to configure.

    First many visitors request one page, then an attack hits all logins and triggers an alert. At the end all answers are
    compared with the exact ones.
    """
    if headless and seconds is None:
        seconds = _HEADLESS_SECONDS
    with one_line_errors():
        display, demo_run = _parts()
        try:
            with demo_run.Demo(seconds=seconds, seed=seed, port=port, keep=keep) as on:
                stopped = _run_and_display(on, display, open_browser and not headless, as_json)
                with nullcontext() if as_json else console.err.status("comparing the answers with the exact ones"):
                    summed = on.record.summary(on.pipeline.store)
                result = summed | {"stopped": stopped is not None, "folder": str(on.folder)}
        except KeyboardInterrupt:
            print(
                f"lately: stopped; {'nothing is kept' if keep is None else f'partial results are in {keep}'}", file=sys.stderr
            )
            raise typer.Exit(130) from None
    if as_json:
        print_json(result)
    else:
        console.out.print(display.summary(result))
        where = f"The store is {on.folder}/store: lately serve {on.folder}/store" if on.keeps_files else "The store was removed"
        console.out.print(Text(f"{where}." if on.keeps_files else f"{where}; --keep DIR keeps it."), soft_wrap=True)
    if stopped is not None and seconds is not None:
        raise typer.Exit(128 + stopped)
    if stopped is None and not result["ok"]:
        raise typer.Exit(1)


def _parts() -> tuple[Any, Any]:
    """What shows a demo and what runs it; both need Spark and a web server, which may not be installed."""
    try:
        from lately.demo import demo_run, display
    except (ImportError, lt.LatelyError) as error:
        reason = error if isinstance(error, ImportError) else error.__cause__ or error
        raise lt.LatelyError(
            f"the demo needs Spark and a web server ({reason})", remedy="run pip install 'lately[spark,serve]'"
        ) from error
    return display, demo_run


def _run_and_display(on: Any, display: Any, opens: bool, as_json: bool) -> int | None:
    """Run the demo and display its progress; returns the signal that stopped it, or None."""
    from lately.core.jit import is_cold

    screen = console.screen()
    live = screen.is_terminal and not as_json

    def ready(url: str) -> None:
        if opens:
            webbrowser.open(url)
        if not live:
            print(f"lately: the dashboard is at {url}", file=sys.stderr)

    def told(done: Any) -> None:
        if not live and not as_json:
            for line in (display.progress_line(on), *display.alert_lines(done)):
                screen.print(Text(line), soft_wrap=True)

    does = "starting Spark"
    if is_cold():
        logging.getLogger("lately").setLevel(logging.ERROR)  # the line below says the same
        does += ", and compiling kernels for this machine: a minute, once"
    with screen.status(does) if live else nullcontext():
        on.prepare()
    with Live(display.LiveDisplay(on), console=screen, transient=True, refresh_per_second=2) if live else nullcontext():
        signal: int | None = on.run(ready, told)
    return signal
