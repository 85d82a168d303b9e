"""Spark resolves the expressions of a pipeline against its source; no row is read.

All mistakes are found and reported with their lines. A pipeline is analysed before it runs, and by ``lately run --check``.
"""

import difflib
import re
from collections.abc import Iterator
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lately.config import Config, Mistake, Quantiles, Ranges, error_of
from lately.core.errors import InputError, LatelyError
from lately.pipeline.plan import PipelinePlan
from lately.spark.expressions import Expression, expressions
from lately.spark.sources import METADATA, SourceError, corrupt_column, read_source, sql_diagnosis

#: Columns of the source that a message lists; the others are only counted.
_MAX_LISTED = 20
_KEYS = T.IntegralType | T.StringType | T.BinaryType | T.CharType | T.VarcharType
_TIMES = T.DateType | T.TimestampType | T.TimestampNTZType | T.StringType | T.NumericType

#: What is wrong, and what to do.
Problem = tuple[str, str]
_MANY_ROWS: Problem = (
    "it needs more than one row, or returns several for one",
    "give an expression of a single row, without sum(…), explode(…), over (…)",
)


def types_of(df: DataFrame, plan: PipelinePlan) -> dict[str, T.DataType]:
    """Return the types of all expressions: "time", "key" …, "filter 0" for the first filter, "extra 0" for an exact column.

    Parameters
    ----------
    df
        The rows of the source.
    plan
        The plan of the pipeline; its filters and exact columns are numbered.

    A ParameterError has a line for each expression that Spark cannot resolve, or whose type cannot be used.
    """
    kinds, mistakes, cause = _resolved(df, plan.config)
    if mistakes:
        raise error_of(mistakes) from cause
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
        The session to analyse it with. Spark checks that the format and the path exist; columns that the pipeline file does
        not declare are read from the source, as in a run.

    A LatelyError has a line for each mistake. If the source cannot be read, expressions are checked against the columns that
    the pipeline file declares, or if it declares none, only their syntax is.
    """
    try:
        rows = read_source(spark.read if config.source.mode == "batch" else spark.readStream, config)
    except SourceError as error:
        known = _declared_columns(config, spark)
        _, mistakes, _ = _resolved(spark.range(0) if known is None else known, config, syntax_only=known is None)
        raise error_of([error.mistake, *mistakes], InputError) from error
    types_of(rows, PipelinePlan.of(config))


def _declared_columns(config: Config, spark: SparkSession) -> DataFrame | None:
    """An empty DataFrame with the columns that the file declares; None if it declares none, or not all that are used."""
    reads_metadata = any(METADATA in expression.text for expression in expressions(config))
    if config.source.columns is None or reads_metadata:
        return None
    try:
        return spark.createDataFrame([], config.source.columns)
    except (AnalysisException, LatelyError):
        return None


def _column(config: Config, name: str) -> str | None:
    text: str | None = getattr(config.columns, name)
    return text


# -- one expression ----------------------------------------------------------------------------------------------------


def _resolved(
    df: DataFrame, config: Config, syntax_only: bool = False
) -> tuple[dict[str, T.DataType], list[Mistake], AnalysisException | None]:
    """The types of all expressions that can be resolved, the mistakes in the others, and Spark's first error."""
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
        problem: Problem | None = None
        if text in wrong:
            problem = _MANY_ROWS if text in kinds else _unresolved(wrong[text], df, config)
        elif text in kinds and not syntax_only:
            problem = _wrong_type(expression, kinds[text], config)
        if problem is not None:
            mistakes.append(config.origin.mistake(expression.path, text, *problem, owner=expression.owner))
    return kinds, mistakes, next(iter(wrong.values()), None)


def _unresolved(error: AnalysisException, df: DataFrame, config: Config) -> Problem:
    if isinstance(error, ParseException):
        return sql_diagnosis(error, "correct the SQL")
    parameters = error.getMessageParameters() or {}
    condition = error.getCondition() or ""
    if condition.startswith("UNRESOLVED_COLUMN"):
        return _no_column(parameters.get("objectName", "").replace("`", ""), _known_columns(df, config))
    if condition == "UNRESOLVED_ROUTINE":
        return _no_function(parameters.get("routineName", "").replace("`", ""), df.sparkSession)
    message, remedy = sql_diagnosis(error, "correct the SQL")
    if "Invalid usage of '*'" in message:
        return "it names all columns", "name one of them, or an expression of one row"
    return message, remedy


def _known_columns(df: DataFrame, config: Config) -> list[str]:
    """The columns of the source, without those that lately has added."""
    corrupt = corrupt_column(config.source)
    is_declared = re.search(rf"\b{re.escape(corrupt)}\b", config.source.columns or "")
    hidden = () if is_declared else (corrupt,)
    return [column for column in df.columns if not column.startswith("_lately_") and column not in hidden]


def _no_column(name: str, names: list[str]) -> Problem:
    if name.split(".")[0] == METADATA:
        return f"this source has no {METADATA}, which only files have", f"use one of its columns: {_listed(names)}"
    near = _near(name, names)
    guess = f"did you mean {near}? Its" if near else "its"
    return f'the source has no column "{name}"', f"{guess} columns are {_listed(names)}"


def _no_function(name: str, spark: SparkSession) -> Problem:
    known = [row[0] for row in spark.sql("SHOW FUNCTIONS").collect()]
    near = _near(name.rpartition(".")[2], known)
    return f'Spark has no function "{name}"', f"did you mean {near}?" if near else "correct its name"


def _near(name: str, names: list[str]) -> str | None:
    by_lower = {candidate.lower(): candidate for candidate in names}
    return next((by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, 1)), None)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


def _wrong_type(expression: Expression, kind: T.DataType, config: Config) -> Problem | None:
    """Why an expression of this type cannot be used for its role; None if it can."""
    for roles, allowed, remedy in _allowed_types(expression.text, config):
        if expression.role in roles and not isinstance(kind, allowed):
            return f"it is of type {kind.simpleString()}", remedy
    return None


def _allowed_types(text: str, config: Config) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Roles of expressions, the types that are allowed for them, and what to write instead of another type."""
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
