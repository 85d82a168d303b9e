"""A pipeline's expressions against its source, as Spark resolves them; no row is read.

Every mistake is found, and told with the line of the file that it is in. A pipeline is analysed before it runs, and by
``lately run --check``.
"""

import difflib
import re
from collections.abc import Iterator
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lately.config import Config, Quantiles, Ranges
from lately.core.errors import InputError, LatelyError, ParameterError
from lately.pipeline.plan import PipelinePlan
from lately.spark.expressions import Expression, expressions
from lately.spark.sources import METADATA, corrupt_column, read_source, sql_reason, with_remedy

#: Columns of the source that a message names; the rest is counted.
_NAMED = 20
_KEYS = T.IntegralType | T.StringType | T.BinaryType | T.CharType | T.VarcharType
_TIMES = T.DateType | T.TimestampType | T.TimestampNTZType | T.StringType | T.NumericType

_MANY_ROWS = (
    "it needs more than one row, or makes several of one; "
    "give an expression of a single row, without sum(…), explode(…), over (…)"
)

#: A line of the file, and what is wrong there.
Mistake = tuple[int, str]


def types_of(df: DataFrame, plan: PipelinePlan) -> dict[str, T.DataType]:
    """The types of all expressions: "time", "key" …, "filter 0" for the first filter, "extra 0" for the first of or per.

    Parameters
    ----------
    df
        The rows of the source.
    plan
        What the pipeline keeps; its filters and extras are numbered.

    A ParameterError has a line for each expression that Spark cannot resolve, or that has a type of no use.
    """
    kinds, mistakes, cause = _resolved(df, plan.config)
    if mistakes:
        raise ParameterError(_told(mistakes)) from cause
    named = {name: kinds[text] for name in ("time", "key", "site", "value", "count") if (text := _column(plan.config, name))}
    named |= {f"filter {i}": kinds[text] for i, text in enumerate(plan.filters)}
    return named | {f"extra {i}": kinds[text] for i, text in enumerate(plan.exact_columns)}


def analyse(config: Config, spark: SparkSession) -> None:
    """Let Spark analyse a pipeline as it would run, and start nothing.

    Parameters
    ----------
    config
        The pipeline.
    spark
        The session to analyse it with. Spark looks whether the format and the path exist; columns that the file does not
        tell it takes from the files, as when it runs.

    A LatelyError has a line for each mistake. If the source cannot be read, expressions are checked as far as that can be:
    with the columns that the file tells, or else their syntax.
    """
    try:
        rows = read_source(spark.read if config.source.mode == "batch" else spark.readStream, config)
    except InputError as error:
        known = _told_columns(config, spark)
        _, mistakes, _ = _resolved(spark.range(0) if known is None else known, config, syntax_only=known is None)
        line = re.match(r".*?:(\d+): ", str(error))
        found = [(int(line[1]) if line else 0, str(error)), *mistakes]
        raise InputError(_told(found)) from error
    types_of(rows, PipelinePlan.of(config))


def _told_columns(config: Config, spark: SparkSession) -> DataFrame | None:
    """No rows, with the columns that the file says the source has."""
    reads_metadata = any(METADATA in one.text for one in expressions(config))
    if config.source.columns is None or reads_metadata:
        return None
    try:
        return spark.createDataFrame([], config.source.columns)
    except (AnalysisException, LatelyError):
        return None


def _told(mistakes: list[Mistake]) -> str:
    return "\n".join(dict.fromkeys(says for _, says in sorted(mistakes, key=lambda one: one[0])))


def _column(config: Config, name: str) -> str | None:
    text: str | None = getattr(config.columns, name)
    return text


# -- one expression ----------------------------------------------------------------------------------------------------


def _resolved(
    df: DataFrame, config: Config, syntax_only: bool = False
) -> tuple[dict[str, T.DataType], list[Mistake], AnalysisException | None]:
    """The types of all expressions that can be resolved, what is wrong with the others, and Spark's first word on that."""
    kinds: dict[str, T.DataType] = {}
    wrong: dict[str, AnalysisException] = {}
    mistakes: list[Mistake] = []
    for expression in expressions(config):
        text = expression.text
        if text not in kinds and text not in wrong:
            try:
                kinds[text] = df.select(F.expr(text).alias("it")).schema["it"].dataType
                df.where(F.expr(text).isNotNull())  # what is no expression of one row is refused here
            except AnalysisException as error:
                if isinstance(error, ParseException) or not syntax_only:
                    wrong[text] = error
        if text in wrong:
            says = _MANY_ROWS if text in kinds else _unresolved(wrong[text], df, config)
        elif text in kinds and not syntax_only:
            says = _unfit(expression, kinds[text], config)
        else:
            continue
        if says:
            mistakes.append(config.origin.mistake(expression.way, text, says, expression.owner))
    return kinds, mistakes, next(iter(wrong.values()), None)


def _unresolved(error: AnalysisException, df: DataFrame, config: Config) -> str:
    if isinstance(error, ParseException):
        return with_remedy(sql_reason(error), "correct the SQL")
    given = error.getMessageParameters() or {}
    condition = error.getCondition() or ""
    if condition.startswith("UNRESOLVED_COLUMN"):
        return _no_column(given.get("objectName", "").replace("`", ""), _known_columns(df, config))
    if condition == "UNRESOLVED_ROUTINE":
        return _no_function(given.get("routineName", "").replace("`", ""), df.sparkSession)
    if "Invalid usage of '*'" in sql_reason(error):
        return "it names all columns; name one of them, or an expression of one row"
    return with_remedy(sql_reason(error), "correct the SQL")


def _known_columns(df: DataFrame, config: Config) -> list[str]:
    """The columns of the source, without those that only lately has added."""
    corrupt = corrupt_column(config.source)
    is_declared = re.search(rf"\b{re.escape(corrupt)}\b", config.source.columns or "")
    hidden = () if is_declared else (corrupt,)
    return [column for column in df.columns if not column.startswith("_lately_") and column not in hidden]


def _no_column(name: str, known: list[str]) -> str:
    if name.split(".")[0] == METADATA:
        return f"this source has no {METADATA}, which only files have; use one of its columns: {_listed(known)}"
    near = _near(name, known)
    return f'the source has no column "{name}"; {f"did you mean {near}? Its" if near else "its"} columns are {_listed(known)}'


def _no_function(name: str, spark: SparkSession) -> str:
    known = [row[0] for row in spark.sql("SHOW FUNCTIONS").collect()]
    near = _near(name.rpartition(".")[2], known)
    return f'Spark has no function "{name}"; {f"did you mean {near}?" if near else "correct its name"}'


def _near(name: str, known: list[str]) -> str | None:
    lower = {one.lower(): one for one in known}
    return next((lower[one] for one in difflib.get_close_matches(name.lower(), lower, 1)), None)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _unfit(expression: Expression, kind: T.DataType, config: Config) -> str:
    """Why an expression of this type is of no use where it stands; nothing if it is."""
    text, role = expression.text, expression.role
    for roles, fits, wanted in _fitting(text, config):
        if role in roles and not isinstance(kind, fits):
            return f"it is of type {kind.simpleString()}; {wanted}"
    return ""


def _fitting(text: str, config: Config) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Which types fit which expressions, and what to write instead."""
    if config.window.window.kind == "integer":
        yield ("time",), T.IntegralType | T.StringType, 'the window is in integers, so give integers, or a window such as "1h"'
    yield ("time",), _TIMES, "give a timestamp, a date, a number of seconds or text"
    if any(isinstance(query, Ranges) for query in config.queries):
        yield ("key",), T.IntegralType, f'queries for ranges need integer keys: write "cast({text} as bigint)"'
    yield ("key",), _KEYS, f'keys are integers, text or binary: write "cast({text} as string)"'
    yield ("count",), T.IntegralType, f'counts are whole numbers: write "cast({text} as bigint)"'
    reads_values = any(isinstance(query, Quantiles) for query in config.queries)
    yield ("value", "of") if reads_values else ("of",), T.NumericType, f'give a number: write "cast({text} as double)"'
    yield ("where",), T.BooleanType, f'a filter is true or false: write a comparison, such as "{text} > 0"'
