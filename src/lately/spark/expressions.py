"""The SQL expressions of a pipeline file, each with its path in the file and its role."""

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
    """An SQL expression.

    Parameters
    ----------
    path
        The path to it in the file.
    text
        The SQL.
    owner
        Whose it is, for messages, such as ' of the query "hot"'; nothing for an expression of [columns].
    """

    path: TomlPath
    text: str
    owner: str = ""

    @property
    def role(self) -> str:
        """What it is used for: a key of [columns], of or per of an exact query, or "where" for any filter."""
        key = str(self.path[-1])
        return "where" if key in _FILTERS else key


def expressions(config: Config) -> Iterator[Expression]:
    """Yield all expressions of a pipeline file: of [columns], then of queries, then of monitors.

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
    for section, kind, tables in (("queries", "query", config.queries), ("monitors", "monitor", config.monitors)):
        for index, table in enumerate(tables):
            for key in (*_FILTERS, *_EXACT):
                if (text := getattr(table, key, None)) is not None:
                    yield Expression((section, index, key), text, f' of the {kind} "{table.name}"')


def expression_with(message: str, config: Config) -> Expression | None:
    """Find the expression that an error of Spark quotes.

    Parameters
    ----------
    message
        The whole text of the error.
    config
        The pipeline. The result is None if the error quotes none of its expressions.
    """
    for quoted in re.findall(r"== SQL \(line \d+, position \d+\) ==\n(.*)\n", message):
        part = quoted.strip().removeprefix("...").removesuffix("...")
        for expression in expressions(config):
            if part and part in expression.text:
                return expression
    return None
