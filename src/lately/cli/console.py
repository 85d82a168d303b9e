"""What the commands share: the two consoles, ``--json``, and errors in one line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console, RenderableType

import lately as lt
from lately import text_tables
from lately.core.json_encoding import encode
from lately.text_tables import Output

out = Output()
err = Output(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


@contextmanager
def one_line_errors(between: str = " ") -> Iterator[None]:
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


def screen() -> Console:
    """The terminal, also while what is started writes elsewhere."""
    try:
        same = sys.stderr.fileno() == 2
    except OSError:
        same = False
    return Console(file=os.fdopen(os.dup(2), "w")) if same and err.is_terminal else err


def show(*parts: RenderableType, soft_wrap: bool = False) -> None:
    """Print tables and texts to standard output; nothing of them is cut."""
    text_tables.show(out, *parts, soft_wrap=soft_wrap)


def print_json(data: object) -> None:
    """Print one JSON document to standard output.

    Parameters
    ----------
    data
        What ``to_json`` takes: dataclasses, mappings, lists, numbers, texts, times.
    """
    print(encode(data, indent=2))
