"""Mistakes in a pipeline file, each with its line, the value as it is written there, what is wrong and what to do."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lately.core.errors import LatelyError, ParameterError
from lately.toml_lines import TomlLines, TomlPath, dotted, shortened

#: Paths and SQL expressions, which Spark's errors are about, may be longer than other values in messages.
_LONG = 300
#: Mistakes in one message; the others are only counted.
_MAX_MISTAKES = 20


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    Parameters
    ----------
    line
        The line of the file, from 1.
    message
        File, line, key and value, and what is wrong.
    remedy
        What to do; None if the message says it all.
    """

    line: int
    message: str
    remedy: str | None = None

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


def error_of(mistakes: Iterable[Mistake], error: type[LatelyError] = ParameterError) -> LatelyError:
    """Make one error of all mistakes, a line for each, in the order of the file.

    Parameters
    ----------
    mistakes
        At least one; a mistake that occurs twice is listed once.
    error
        The class of the error. By default ParameterError.
    """
    distinct = list(dict.fromkeys(sorted(mistakes, key=lambda mistake: mistake.line)))
    if len(distinct) == 1:
        return error(distinct[0].message, remedy=distinct[0].remedy)
    return error("\n".join(map(str, distinct)))


def limited(mistakes: Iterable[Mistake], name: str) -> list[Mistake]:
    """Return the first mistakes of the file, and one that counts the others."""
    distinct = list(dict.fromkeys(sorted(mistakes, key=lambda mistake: mistake.line)))
    others = len(distinct) - _MAX_MISTAKES
    if others <= 0:
        return distinct
    return [*distinct[:_MAX_MISTAKES], Mistake(distinct[-1].line, f"{name}: and {others} more mistakes")]


@dataclass(frozen=True)
class Origin:
    """Where a configuration comes from, for mistakes that are found after it was read.

    All origins are equal, so that two configurations with the same values are.

    Parameters
    ----------
    name
        The name of the file. By default "pipeline".
    text
        Its content; None, the default, for a configuration that comes from no file.

    >>> origin = Origin("shop.toml", '[columns]\\ntime = "ts +"')
    >>> str(origin.mistake(("columns", "time"), "ts +", "syntax error", "correct it"))
    'shop.toml:2: columns.time = "ts +": syntax error; correct it'
    >>> str(Origin().mistake(("columns", "time"), "ts +", "syntax error"))
    'pipeline: columns.time = "ts +": syntax error'
    """

    name: str = field(default="pipeline", compare=False)
    text: str | None = field(default=None, compare=False)

    def mistake(self, path: TomlPath, value: Any, message: str, remedy: str | None = None, owner: str = "") -> Mistake:
        """Make a mistake of a value.

        Parameters
        ----------
        path
            The path to the value.
        value
            The value; None if it is not shown.
        message
            What is wrong with it.
        remedy
            What to do; None, the default, if the message says it all.
        owner
            Whose value it is, such as ' of the query "hot"'. By default nothing.
        """
        lines = TomlLines(self.text or "")
        entry = lines.entries.get(path)
        written = entry.text if entry is not None and entry.text else json.dumps(value, ensure_ascii=False)
        subject = dotted(path) if value is None else f"{dotted(path)} = {shortened(written, _LONG)}"
        line = lines.of(path).line
        return Mistake(line, _one_line(f"{self.at(line)}: {subject}{owner}: {message}"), remedy and _one_line(remedy))

    def at(self, line: int) -> str:
        """Name the file and the line, or only the origin if there is no file."""
        return self.name if self.text is None else f"{self.name}:{line}"


def _one_line(text: str) -> str:
    return text.replace("\n", " ")


# -- mistakes that validators of tables find ---------------------------------------------------------------------------


@dataclass(frozen=True)
class TableMistake:
    """A mistake within a table: the path from the table to the value, what is wrong with it, and what to do."""

    path: TomlPath
    message: str
    remedy: str | None = None


class TableError(ValueError):
    """Mistakes that a validator finds in values of its table; pydantic reports them at the table."""

    def __init__(self, mistakes: list[TableMistake]) -> None:
        super().__init__("; ".join(f"{dotted(mistake.path)}: {mistake.message}" for mistake in mistakes))
        self.mistakes = mistakes


class MistakeCollector:
    """Collects the mistakes of a table, so that all of them are reported together."""

    def __init__(self) -> None:
        self._mistakes: list[TableMistake] = []

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Collect errors that are raised inside, as mistakes of the value at this path."""
        try:
            yield
        except TableError as error:
            self._mistakes += [
                TableMistake((*path, *mistake.path), mistake.message, mistake.remedy) for mistake in error.mistakes
            ]
        except LatelyError as error:
            self._mistakes.append(TableMistake(path, error.message, error.remedy))

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    def raise_if_any(self) -> None:
        """Raise TableError if there are mistakes."""
        if self._mistakes:
            raise TableError(self._mistakes)
