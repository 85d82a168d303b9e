"""Validates the rows of a source and converts them to the columns that tasks read, with expressions that the JVM evaluates.

site   text, bigint    where   which filters the row passes, one bit each
time   bigint          x0 …    the columns that exact queries read
key    hash or key     bad     the reason why the row is rejected, a line break, and the row as JSON. There is no text before
value  double                  the line break if the row may be late. NULL for all other rows, so that little text is passed
count  bigint                  to Python

No expression fails for a row: those of the pipeline file are attempts (``attempts.py``), and conversions give NULL for values
that they cannot convert.
"""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lately.config import Exact
from lately.core.durations import nanoseconds
from lately.core.errors import ParameterError
from lately.pipeline.plan import PipelinePlan
from lately.spark.ahead import IN_THE_FUTURE
from lately.spark.analysis import types_of
from lately.spark.attempts import Attempt, Attempts
from lately.spark.sources import corrupt_column

#: A condition for which a row is rejected, and the reason as text. Conditions are cheap and evaluated for every row; the text
#: is computed only for rejected rows.
Reason = tuple[Column, Column]

#: The column with the time at which a row arrived; it is the same when Spark runs a batch again.
ARRIVED = "_lately_arrived"

#: Microseconds of the years 1 and 10,000.
_FIRST, _LAST = -62_135_596_800 * 10**6, 253_402_300_800 * 10**6
#: How rejected and late rows are written as JSON: with all their columns, and times in microseconds.
_JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: Every integer up to here is exact as a float.
_MAX_EXACT = 2**53


class RowValidator:
    """The expressions that validate and convert the rows of a source.

    Build it once per run: that takes longer than to evaluate it over a small batch.

    Parameters
    ----------
    df
        The source, with the column ``ARRIVED``. ParameterError if an expression of the pipeline file does not fit its columns.
    plan
        What the pipeline keeps and answers.
    """

    def __init__(self, df: DataFrame, plan: PipelinePlan) -> None:
        types = types_of(df, plan)
        key = types["key"]
        #: The type of keys in the store: "integer", "binary" or "text".
        self.key_type = "integer" if isinstance(key, T.IntegralType) else "binary" if isinstance(key, T.BinaryType) else "text"
        #: Whether tasks get hashes of keys: unless keys are integers, or a query returns them.
        self.hashed = not isinstance(key, T.IntegralType) and not plan.needs_keys
        columns = plan.config.columns
        raw = {"time": columns.time, "key": columns.key, "site": columns.site, "value": columns.value, "count": columns.count}
        texts = {name: text for name, text in raw.items() if text is not None}
        self._attempts = Attempts(df.sparkSession, (*texts.values(), *plan.filters, *plan.exact_columns))
        values = {name: self._attempts[text] for name, text in texts.items()}
        self._time = _time(values["time"].value, types["time"], plan)
        corrupt = corrupt_column(plan.config.source)
        self._reasons = [*_corrupt(df, corrupt), *self._all_reasons(values, types, plan)]
        self._row = _row_json(df, corrupt)
        self._selected = self._columns(values, types, plan)

    def prepare(self, df: DataFrame, floor: int | None) -> DataFrame:
        """Return every row of a batch with the columns that tasks read.

        Parameters
        ----------
        df
            Rows of the source.
        floor
            Rows before this time may be late (in the unit of the column ``time``); None if no row can be late.
        """
        conditions = [condition for condition, _ in self._reasons]
        if floor is not None:
            conditions.append(self._time < F.lit(floor))
        reason = F.coalesce(*(F.when(condition, text) for condition, text in self._reasons), F.lit(""))
        bad = F.concat(F.translate(reason, "\n", " "), F.lit("\n"), self._row)
        return self._attempts.on(df).select(*self._selected, F.when(reduce(or_, conditions), bad).alias("bad"))

    def accepted_rows(self, df: DataFrame) -> DataFrame:
        """Return the rows that are not rejected, with the columns ``site``, ``time`` and ``row`` (the source's row as JSON).

        Parameters
        ----------
        df
            Rows of the source.
        """
        site, time = self._selected[:2]
        conditions = (F.coalesce(condition, F.lit(False)) for condition, _ in self._reasons)
        rejected = F.coalesce(reduce(or_, conditions), F.lit(False))
        rows = self._attempts.on(df).select(site, time, self._row.alias("row"), rejected.alias("rejected"))
        return rows.where("not rejected").select(F.col("site").cast("string").alias("site"), "time", "row")

    def _all_reasons(self, values: dict[str, Attempt], types: dict[str, T.DataType], plan: PipelinePlan) -> list[Reason]:
        """Return all reasons for which a row is rejected; the first that applies is reported."""
        time, key = values["time"].value, values["key"].value
        reasons = [*_failures(values, self._attempts, plan), *_missing("time", values)]
        reasons += [
            (self._time.isNull(), F.concat(F.lit("time cannot be read: "), time.cast("string"))),
            *_time_out_of_range(self._time, plan),
            *_missing("key", values),
            *_keys(key, types["key"], plan),
        ]
        if not self.hashed:
            reasons += _invalid_utf8("key", key, types["key"])
        if "site" in values:
            reasons += [*_missing("site", values), *_invalid_utf8("site", values["site"].value, types["site"])]
        if plan.value_queries:
            reasons += _values(values["value"], plan)
        if "count" in values:
            count = values["count"].value
            reasons += _missing("count", values)
            reasons.append((count < 0, F.concat(F.lit("count is negative: "), count.cast("string"))))
            reasons.append((count > _MAX_EXACT, F.concat(F.lit("count is beyond 2**53: "), count.cast("string"))))
        return reasons + _exact(types, plan, self._attempts)

    def _columns(self, values: dict[str, Attempt], types: dict[str, T.DataType], plan: PipelinePlan) -> list[Column]:
        """Return the columns that tasks read, except ``bad``."""
        site = F.lit("")
        if "site" in values:
            site = values["site"].value.cast("bigint" if isinstance(types["site"], T.IntegralType) else "string")
            if isinstance(types["site"], T.StringType):
                site = F.make_valid_utf8(site)  # rows that are rejected for invalid UTF-8 go to Python as well
        key = _key(values["key"].value, types["key"], plan)
        if self.hashed:
            key = F.when(key.isNotNull(), F.xxhash64(key))  # xxhash64 of NULL would be its seed
        time = self._time  # NULL if Python could not represent it; the row is rejected then
        if plan.window.kind == "time":
            time = F.when((time >= F.lit(_FIRST)) & (time < F.lit(_LAST)), time)
        columns = [site.alias("site"), time.alias("time"), key.alias("key")]
        if plan.value_queries:
            number = values["value"].value.cast("double")
            value = F.greatest(F.least(number, F.lit(1e300)), F.lit(-1e300))  # sketches take finite numbers only
            columns.append(value.alias("value"))
        if "count" in values:
            columns.append(values["count"].value.cast("bigint").alias("count"))
        if plan.filters:
            filters = [self._attempts[text].value for text in plan.filters]
            bits = [F.when(passes, F.lit(1 << bit)).otherwise(F.lit(0)) for bit, passes in enumerate(filters)]
            mask = bits[0].cast("bigint")
            for bit in bits[1:]:
                mask = mask.bitwiseOR(bit.cast("bigint"))
            columns.append(mask.alias("where"))
        extras = [_extra(self._attempts[text].value, types[f"extra {i}"]) for i, text in enumerate(plan.exact_columns)]
        return columns + [extra.alias(f"x{i}") for i, extra in enumerate(extras)]


def _time(column: Column, kind: T.DataType, plan: PipelinePlan) -> Column:
    """Return times in microseconds since 1970, or as integers if the window is an integer."""
    if plan.window.kind == "integer":
        if not isinstance(kind, T.IntegralType | T.StringType):
            raise ParameterError(
                f"columns.time has the type {kind.simpleString()}, but window.length is an integer",
                remedy='write it like "1h", or give integers',
            )
        return column.try_cast("bigint")
    if isinstance(kind, T.DateType):  # Spark has dates whose years timestamps do not have
        in_range = F.when((F.year(column) > 0) & (F.year(column) < 10_000), column)
        return F.when(column.isNotNull(), F.coalesce(F.unix_micros(in_range.cast("timestamp")), F.lit(_LAST)))
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return F.unix_micros(column.cast("timestamp"))
    if isinstance(kind, T.StringType):
        return F.unix_micros(F.try_to_timestamp(column))
    if isinstance(kind, T.NumericType):  # seconds, as everywhere in lately
        if isinstance(kind, T.IntegralType):
            return F.try_multiply(column.cast("bigint"), F.lit(10**6))
        number = column.cast("double")
        in_range = F.when(F.abs(number) < 1e12, F.floor(number * 1e6).try_cast("bigint"))
        return F.when(~F.isnan(number), F.coalesce(in_range, F.lit(_LAST)))  # NaN would be cast to 0, which is 1970
    raise ParameterError(
        f"columns.time has the type {kind.simpleString()}", remedy="give a timestamp, a date, a number or text"
    )


def _time_out_of_range(time: Column, plan: PipelinePlan) -> list[Reason]:
    """Reject times that would move the window past all other rows."""
    if plan.window.kind == "integer":
        return [((time > F.lit(2**62)) | (time < F.lit(-(2**62))), F.lit("time is beyond 2**62"))]
    beyond = (time < F.lit(_FIRST)) | (time >= F.lit(_LAST))
    reasons = [(beyond, F.lit("time is beyond the year 9999: numbers are seconds since 1970"))]
    future = plan.config.window.future
    if future is not None:
        ahead = nanoseconds(future) // 1000
        limit = F.unix_micros(F.col(ARRIVED)) + F.lit(ahead)
        reasons.append((time > limit, F.lit(f"time is more than {future}{IN_THE_FUTURE}")))
    return reasons


def _key(column: Column, kind: T.DataType, plan: PipelinePlan) -> Column:
    if isinstance(kind, T.IntegralType):
        return column.cast("bigint")
    if not isinstance(kind, T.StringType | T.BinaryType | T.CharType | T.VarcharType):
        raise ParameterError(
            f"columns.key = {plan.config.columns.key!r} has the type {kind.simpleString()}, but keys are integers, text or "
            "binary",
            remedy=f'write "cast({plan.config.columns.key} as string)"',
        )
    return column


def _keys(column: Column, kind: T.DataType, plan: PipelinePlan) -> list[Reason]:
    universe = plan.key_universe
    if universe is None:
        return []
    if not isinstance(kind, T.IntegralType):
        raise ParameterError(f"queries for ranges need integer keys, but columns.key has the type {kind.simpleString()}")
    outside = (column < 0) | (column.cast("bigint") >= F.lit(universe))
    return [(outside, F.concat(F.lit(f"key is outside of 0..{universe - 1}: "), column.cast("string")))]


def _values(value: Attempt, plan: PipelinePlan) -> list[Reason]:
    column, number = value.value, value.value.cast("double")
    reasons = [(number.isNull(), F.lit(_null_reason("value", value))), (F.isnan(number), F.lit("value is not a number (NaN)"))]
    for query in plan.value_queries:
        if query.outside == "reject":
            outside = (number < query.lo) | (number > query.hi)
            text = F.concat(F.lit(f"value is outside of {query.lo:g}..{query.hi:g} ({query.name}): "), column.cast("string"))
            reasons.append((outside, text))
    return reasons


def _exact(types: dict[str, T.DataType], plan: PipelinePlan, attempts: Attempts) -> list[Reason]:
    """Reject rows that an exact query reads but cannot group or add up. NULL in an aggregated column is ignored, as in SQL."""
    reasons: list[Reason] = []
    for query in plan.config.queries:
        if isinstance(query, Exact):
            is_read = F.lit(True) if query.where is None else F.coalesce(attempts[query.where].value, F.lit(False))
            if query.per is not None:
                group = attempts[query.per].value
                reasons.append((is_read & group.isNull(), F.lit(f"no {query.per} ({query.name})")))
                kind = types[f"extra {plan.exact_columns.index(query.per)}"]
                reasons += [(is_read & condition, text) for condition, text in _invalid_utf8(query.per, group, kind)]
            if query.of is not None and isinstance(types[f"extra {plan.exact_columns.index(query.of)}"], T.IntegralType):
                number = attempts[query.of].value.cast("bigint")
                beyond = (number > _MAX_EXACT) | (number < -_MAX_EXACT)
                text = F.concat(F.lit(f"{query.of} is beyond 2**53 ({query.name}): "), number.cast("string"))
                reasons.append((is_read & beyond, text))
    return reasons


def _failures(values: dict[str, Attempt], attempts: Attempts, plan: PipelinePlan) -> list[Reason]:
    """Reject rows for which Spark cannot compute an expression, because of a cast, an overflow or a division by zero."""
    used = list(values.items())
    used += [("filter", attempts[text]) for text in plan.filters]
    used += [("expression", attempts[text]) for text in plan.exact_columns]
    return [
        (attempt.failed, F.lit(f"{name} cannot be computed: {attempt.text}"))
        for name, attempt in used
        if attempt.failed is not None
    ]


def _missing(name: str, values: dict[str, Attempt]) -> list[Reason]:
    return [(values[name].value.isNull(), F.lit(_null_reason(name, values[name])))]


def _null_reason(name: str, value: Attempt) -> str:
    """Return the reason for a NULL; if the value is computed, the reason names the expression."""
    return f"no {name}" if value.failed is None else f"no {name}: {value.text} is NULL"


def _invalid_utf8(name: str, column: Column, kind: T.DataType) -> list[Reason]:
    """Reject strings that Python cannot decode: Spark's strings are bytes, which a cast from binary does not validate."""
    if not isinstance(kind, T.StringType):
        return []
    return [(~F.is_valid_utf8(column), F.lit(f"{name} is not valid UTF-8"))]


def _extra(column: Column, kind: T.DataType) -> Column:
    """Return a column that an exact query reads: integers as bigint, other numbers as double, anything else as text."""
    if isinstance(kind, T.IntegralType):
        return column.cast("bigint")
    return column.cast("double") if isinstance(kind, T.NumericType) else F.make_valid_utf8(column.cast("string"))


def _corrupt(df: DataFrame, column: str) -> list[Reason]:
    return [(F.col(f"`{column}`").isNotNull(), F.lit("line cannot be read"))] if column in df.columns else []


def _row_json(df: DataFrame, corrupt: str) -> Column:
    """Return the row as text: the line itself if it could not be parsed, otherwise its columns as JSON with binary as text."""
    columns = []
    for field in df.schema.fields:
        column = F.col(f"`{field.name}`")
        if isinstance(field.dataType, T.BinaryType):
            text = column.cast("string")
            column = F.when(F.is_valid_utf8(text), text).otherwise(F.base64(column)).alias(field.name)
        if field.name not in (ARRIVED, corrupt):
            columns.append(column)
    row = F.make_valid_utf8(F.to_json(F.struct(*columns), _JSON_OPTIONS))
    return F.coalesce(F.make_valid_utf8(F.col(f"`{corrupt}`")), row) if corrupt in df.columns else row
