"""``lately serve``: the HTTP service and the dashboard of a store."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from lately.cli.console import one_line_errors

#: Hosts that stand for every address of this machine; a browser needs one of them.
_EVERY = ("0.0.0.0", "::", "")


def serve(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The [store] path of a pipeline that has run or is running.")],
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to listen on; one that others can reach demands a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="The port; 0 takes any that is free.")] = 8765,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the token that requests must bring; else LATELY_TOKEN.")
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser.")] = False,
) -> None:
    """Serve a store over HTTP: a dashboard for people and JSON for programs. Ctrl-C stops it."""

    def ready(port: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        print(f"lately: serving {store} at http://{shown}:{port}/; Ctrl-C stops it", file=sys.stderr, flush=True)
        if browser:
            webbrowser.open(f"http://{'127.0.0.1' if host in _EVERY else shown}:{port}/")

    with one_line_errors():
        from lately.service import serve as serve_until_stopped

        serve_until_stopped(store, host, port, _token(token_file), ready=ready)
    raise typer.Exit(130)


def _token(file: Path | None) -> str | None:
    return file.read_text().strip() if file is not None else os.environ.get("LATELY_TOKEN") or None
