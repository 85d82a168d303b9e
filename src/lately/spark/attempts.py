"""Expressions of the pipeline file that may fail for some rows, evaluated so that such a row does not stop the batch.

Spark 4 is ANSI: a cast of "n/a", an overflow or a division by zero in any expression fails the whole job, and a stream that
meets such a row fails again whenever it is restarted. Here an expression becomes a column of its own,

    CASE WHEN spark_partition_id() >= 0 THEN try(struct(expression AS v)) END

which is NULL where it failed, and a struct that holds its value, perhaps NULL, where it did not. The condition is always true,
but Spark does not know that: common subexpressions are computed before a row's other expressions, outside of any ``try``, and
only a branch that might not be taken keeps its subexpressions to itself.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

#: Names of columns and of fields in them cannot fail.
_NAME = re.compile(r"(?:[^\W\d]\w*|`[^`]+`)(?:\.(?:[^\W\d]\w*|`[^`]+`))*")
#: What the columns of attempts are called.
PREFIX = "_lately_attempt_"


@dataclass(frozen=True)
class Attempt:
    """An expression in SQL as later projections see it."""

    text: str
    value: Column
    #: Whether it failed for a row; None if it cannot.
    failed: Column | None


class Attempts:
    """The expressions of a pipeline file over the rows of its source.

    Args:
        spark: the session of the source.
        texts: expressions in SQL; equal ones share a column.
    """

    def __init__(self, spark: SparkSession, texts: Iterable[str]) -> None:
        self._columns: list[Column] = []
        self._known: dict[str, Attempt] = {}
        for text in dict.fromkeys(texts):
            if _NAME.fullmatch(text.strip()):
                self._known[text] = Attempt(text, F.expr(text), None)
                continue
            name = f"{PREFIX}{len(self._columns)}"
            self._columns.append(_attempt(spark, text).alias(name))
            self._known[text] = Attempt(text, F.col(f"{name}.v"), F.col(name).isNull())

    def __getitem__(self, text: str) -> Attempt:
        return self._known[text]

    def on(self, df: DataFrame) -> DataFrame:
        """The rows with a column for each attempt, which attempts' values refer to."""
        return df.select("*", *self._columns) if self._columns else df


def _attempt(spark: SparkSession, text: str) -> Column:
    guarded = F.when(F.spark_partition_id() >= 0, F.struct(F.expr(text).alias("v")))
    jvm: Any = spark._jvm
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(guarded._jc))
    return Column(utils.column(tried))
