"""The ``lately`` command. It reads options, calls the library and prints; what it prints, ``--json`` gives as data.

Exit codes: 0 fine, 1 refused (a bad file or value, told in one line; of a pipeline file in a line for each mistake), 2 wrong
usage, 3 a benchmark missed what it promises, 130 stopped with Ctrl-C (a pipeline with SIGTERM: 143).
"""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

import lately as lt
from lately.cli import bench, demo, inspect, plan, query, run, serve, store
from lately.cli.bench import Benchmark as Benchmark

app = typer.Typer(
    help="What has been happening lately? Sliding-window sketches: small, mergeable, with bounds on every answer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point of the ``lately`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal of another alphabet cannot show is no reason to fail
    app(prog_name="lately")  # also as python -m lately


def _version(wanted: bool) -> None:
    if wanted:
        print(f"lately {lt.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


# In the order in which they are needed by somebody new.
app.command()(demo.demo)
app.command()(run.run)
app.command()(serve.serve)
app.add_typer(query.app, name="query")
app.add_typer(store.app, name="store")
app.command()(plan.plan)
app.command()(inspect.inspect)
app.command()(bench.bench)
