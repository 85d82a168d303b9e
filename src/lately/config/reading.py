"""Pipeline files are read as TOML and checked; an error lists all mistakes, each with its line."""

import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lately.config.mistakes import Origin
from lately.config.pipeline_file import Config
from lately.config.validation import validation_error
from lately.core.errors import ParameterError

#: Remedies for mistakes that ``tomllib`` reports, by the beginning of its message.
_TOML_REMEDIES = {
    "Invalid value": 'put text in quotes: key = "url"',
    "Cannot overwrite a value": "this key is defined above; keep one of them",
    "Cannot declare": "this table is defined above; put all its keys there",
    "Expected '=' after a key": 'write key = "value"',
    "Unclosed": "close it",
    "Expected newline or end of document": "write one key = value per line",
}


def load(path: str | Path) -> Config:
    """Read a pipeline file.

    Parameters
    ----------
    path
        The path of the file. A ParameterError has a line for each mistake in it.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ParameterError(f"{path}: no such file", remedy="give the path of a pipeline file") from None
    except OSError as error:
        raise ParameterError(f"{path}: cannot be read ({error.strerror or error})", remedy="give a readable file") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ParameterError(f"{path}:{line}: not UTF-8", remedy="save the file as UTF-8") from error
    return parse(text, str(path))


def of(content: dict[str, Any], name: str = "pipeline") -> Config:
    """Make a pipeline from the content of a file.

    Parameters
    ----------
    content
        The tables of the file, as ``tomllib`` reads them.
    name
        What error messages call it. By default "pipeline".
    """
    return _validated(content, Origin(name))


def parse(text: str, name: str = "pipeline.toml") -> Config:
    """Read the text of a pipeline file.

    Parameters
    ----------
    text
        The content of the file.
    name
        The name of the file, for error messages.

    >>> parse('[window]\\nlength = "1h"\\ntik = "1s"')
    Traceback (most recent call last):
    ...
    lately.core.errors.ParameterError: pipeline.toml:1: missing section [source]; add it with format = "parquet"
    pipeline.toml:1: missing section [columns]; add it with time = "ts" and key = "url"
    pipeline.toml:1: missing section [store]; add it with path = "store"
    pipeline.toml:3: unknown key tik in [window]; did you mean tick?
    """
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise ParameterError(f"{name}: brackets are nested too deeply", remedy="make it flatter") from None
    except ValueError as error:  # of tomllib, or of Python about a number of thousands of digits
        raise _toml_error(error, text, name) from error
    return _validated(content, Origin(name, text))


def _validated(content: dict[str, Any], origin: Origin) -> Config:
    try:
        return Config.model_validate(content).with_origin(origin)
    except ValidationError as error:
        raise validation_error(error, Config, origin) from None


def _toml_error(error: ValueError, text: str, name: str) -> ParameterError:
    message, _, place = str(error).partition(" (at ")
    position = re.match(r"line (\d+), column (\d+)", place)
    line, character = (int(position[1]), f" (character {position[2]})") if position else (text.count("\n") + 1, "")
    remedy = next((remedy for known, remedy in _TOML_REMEDIES.items() if message.startswith(known)), "correct the line")
    return ParameterError(f"{name}:{line}: not TOML: {message.partition(';')[0]}{character}", remedy=remedy)
