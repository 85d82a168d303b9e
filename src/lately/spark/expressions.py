"""The expressions in SQL that a pipeline file holds, each with its place in the file and what it is for."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from lately.config import Config
from lately.toml_lines import TomlPath

#: The keys of [columns], of queries and of monitors that hold an expression.
_COLUMNS = ("time", "key", "site", "value", "count")
_FILTERS = ("where", "left", "right")
_EXACT = ("of", "per")


class Expression(NamedTuple):
    """An expression: the path to it in the file, its text, and whose it is, as messages say it."""

    path: TomlPath
    text: str
    owner: str = ""

    @property
    def role(self) -> str:
        """What it is for: a key of [columns], of or per of an exact query, or "where" for any filter."""
        key = str(self.path[-1])
        return "where" if key in _FILTERS else key


def expressions(config: Config) -> Iterator[Expression]:
    """All expressions of a pipeline file, in the order of the file's tables.

    >>> from lately.config import of
    >>> config = of({
    ...     "source": {"format": "parquet", "path": "events", "mode": "batch"},
    ...     "columns": {"time": "ts", "key": "url"},
    ...     "window": {"length": "1h"},
    ...     "queries": [{"name": "hot", "kind": "top", "where": "ms > 5"}],
    ...     "store": {"path": "answers"},
    ... })
    >>> [(expression.path, expression.text, expression.owner) for expression in expressions(config)][1:]
    [(('columns', 'key'), 'url', ''), (('queries', 0, 'where'), 'ms > 5', ' of the query "hot"')]
    """
    for key in _COLUMNS:
        if (text := getattr(config.columns, key)) is not None:
            yield Expression(("columns", key), text)
    for table, kind, all_of_it in (("queries", "query", config.queries), ("monitors", "monitor", config.monitors)):
        for number, one in enumerate(all_of_it):
            for key in (*_FILTERS, *_EXACT):
                if (text := getattr(one, key, None)) is not None:
                    yield Expression((table, number, key), text, f' of the {kind} "{one.name}"')


def expression_with(said: str, config: Config) -> Expression | None:
    """The expression that Spark shows in what it says of an error, if it does."""
    for shown in re.findall(r"== SQL \(line \d+, position \d+\) ==\n(.*)\n", said):
        part = shown.strip().removeprefix("...").removesuffix("...")
        for expression in expressions(config):
            if part and part in expression.text:
                return expression
    return None
