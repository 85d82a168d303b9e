"""Evaluates expressions of the pipeline file so that a row for which one fails does not stop the batch.

Spark 4 follows ANSI SQL: a cast of "n/a", an overflow or a division by zero in any expression fails the whole job, and a stream
that reads such a row fails again after every restart. Here every expression becomes a column,

    CASE WHEN spark_partition_id() >= 0 THEN try(struct(expression AS v)) END

which is NULL where the expression failed, and otherwise a struct that holds its value (which may be NULL). The condition is
always true, but the optimizer does not know that. Without it, Spark would compute common subexpressions before the row's other
expressions and outside of any ``try``; it does not extract subexpressions from a conditional branch.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

#: The name of a column or of a field in one: reading it cannot fail.
_NAME = re.compile(r"(?:[^\W\d]\w*|`[^`]+`)(?:\.(?:[^\W\d]\w*|`[^`]+`))*")
#: The names of these columns begin with this prefix.
PREFIX = "_lately_attempt_"


@dataclass(frozen=True)
class Attempt:
    """An expression, for use in a later projection over ``Attempts.on(df)``."""

    #: The expression in SQL.
    text: str
    #: Its value; NULL where it failed.
    value: Column
    #: Whether it failed for a row; None if it cannot fail.
    failed: Column | None


class Attempts:
    """The expressions of a pipeline file over the rows of its source.

    Parameters
    ----------
    spark
        The session of the source.
    texts
        Expressions in SQL; equal ones share a column.
    """

    def __init__(self, spark: SparkSession, texts: Iterable[str]) -> None:
        self._columns: list[Column] = []
        self._attempts: dict[str, Attempt] = {}
        for text in dict.fromkeys(texts):
            if _NAME.fullmatch(text.strip()):
                self._attempts[text] = Attempt(text, F.expr(text), None)
                continue
            name = f"{PREFIX}{len(self._columns)}"
            self._columns.append(_attempt(spark, text).alias(name))
            self._attempts[text] = Attempt(text, F.col(f"{name}.v"), F.col(name).isNull())

    def __getitem__(self, text: str) -> Attempt:
        return self._attempts[text]

    def on(self, df: DataFrame) -> DataFrame:
        """Add a column for each attempt; ``value`` and ``failed`` of the attempts refer to these columns.

        Parameters
        ----------
        df
            Rows of the source.
        """
        return df.select("*", *self._columns) if self._columns else df


def _attempt(spark: SparkSession, text: str) -> Column:
    guarded = F.when(F.spark_partition_id() >= 0, F.struct(F.expr(text).alias("v")))
    jvm: Any = spark._jvm
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(guarded._jc))
    return Column(utils.column(tried))
