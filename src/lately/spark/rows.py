"""Rows of any source as the pipeline counts them, and the reasons for which some cannot be: expressions that the JVM evaluates.

site   text, bigint    where   which filters it passes, one bit each
time   bigint          x0 …    what exact queries read
key    hash or key     bad     why the row is rejected, a line break, and the row as JSON; nothing before the break if it
value  double                  may only be late, and NULL for all other rows: little of this crosses
count  bigint

Nothing here fails for a row: expressions of the file are attempts, conversions of ours give NULL for what they cannot convert.
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

#: A sign that a row is bad, and what it is rejected for then. Signs are cheap, and looked at for every row; texts are not.
Reason = tuple[Column, Column]

#: When a row arrived; Spark tells the same time again when a batch is run again.
ARRIVED = "_lately_arrived"

#: Microseconds of the years 1 and 10,000.
_FIRST, _LAST = -62_135_596_800 * 10**6, 253_402_300_800 * 10**6
#: How rows are written that are not counted: nothing of them is left out.
_WHOLE_ROWS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: Up to here every whole number is a float.
_WHOLE = 2**53


class Judge:
    """The expressions for one source; built once, as that takes longer than to run them over a small batch."""

    def __init__(self, df: DataFrame, plan: PipelinePlan) -> None:
        kinds = types_of(df, plan)
        #: What keys are, to those who ask for one later.
        kind = kinds["key"]
        self.keys = "integer" if isinstance(kind, T.IntegralType) else "binary" if isinstance(kind, T.BinaryType) else "text"
        #: Whether keys cross as hashes: text does, unless somebody wants to see it again.
        self.hashed = not isinstance(kinds["key"], T.IntegralType) and not plan.needs_keys
        columns = plan.config.columns
        raw = {"time": columns.time, "key": columns.key, "site": columns.site, "value": columns.value, "count": columns.count}
        texts = {name: text for name, text in raw.items() if text is not None}
        self._attempts = Attempts(df.sparkSession, (*texts.values(), *plan.filters, *plan.exact_columns))
        given = {name: self._attempts[text] for name, text in texts.items()}
        self._time = _time(given["time"].value, kinds["time"], plan)
        corrupt = corrupt_column(plan.config.source)
        self._reasons = [*_corrupt(df, corrupt), *self._all_reasons(given, kinds, plan)]
        self._row = _as_text(df, corrupt)
        self._selected = self._columns(given, kinds, plan)

    def __call__(self, df: DataFrame, floor: int | None) -> DataFrame:
        """Every row of a batch, ready to cross; those before ``floor`` (as ``time`` tells it) may be late."""
        signs = [sign for sign, _ in self._reasons]
        if floor is not None:
            signs.append(self._time < F.lit(floor))
        reason = F.coalesce(*(F.when(sign, text) for sign, text in self._reasons), F.lit(""))
        told = F.concat(F.translate(reason, "\n", " "), F.lit("\n"), self._row)
        return self._attempts.on(df).select(*self._selected, F.when(reduce(or_, signs), told).alias("bad"))

    def texts(self, df: DataFrame) -> DataFrame:
        """The rows that are not rejected: ``site``, ``time`` and ``row``, the row as it was."""
        site, time = self._selected[:2]
        rejected = F.coalesce(reduce(or_, (F.coalesce(sign, F.lit(False)) for sign, _ in self._reasons)), F.lit(False))
        rows = self._attempts.on(df).select(site, time, self._row.alias("row"), rejected.alias("rejected"))
        return rows.where("not rejected").select(F.col("site").cast("string").alias("site"), "time", "row")

    def _all_reasons(self, given: dict[str, Attempt], kinds: dict[str, T.DataType], plan: PipelinePlan) -> list[Reason]:
        """Why a row is rejected; the first counts."""
        time, key = given["time"].value, given["key"].value
        reasons = [*_failures(given, self._attempts, plan), *_missing("time", given)]
        reasons += [
            (self._time.isNull(), F.concat(F.lit("time cannot be read: "), time.cast("string"))),
            *_absurd(self._time, plan),
            *_missing("key", given),
            *_keys(key, kinds["key"], plan),
        ]
        if not self.hashed:
            reasons += _undecodable("key", key, kinds["key"])
        if "site" in given:
            reasons += [*_missing("site", given), *_undecodable("site", given["site"].value, kinds["site"])]
        if plan.value_queries:
            reasons += _values(given["value"], plan)
        if "count" in given:
            count = given["count"].value
            reasons += _missing("count", given)
            reasons.append((count < 0, F.concat(F.lit("count is negative: "), count.cast("string"))))
            reasons.append((count > _WHOLE, F.concat(F.lit("count is beyond 2**53: "), count.cast("string"))))
        return reasons + _exact(kinds, plan, self._attempts)

    def _columns(self, given: dict[str, Attempt], kinds: dict[str, T.DataType], plan: PipelinePlan) -> list[Column]:
        """What crosses of every row."""
        site = F.lit("")
        if "site" in given:
            site = given["site"].value.cast("bigint" if isinstance(kinds["site"], T.IntegralType) else "string")
            if isinstance(kinds["site"], T.StringType):
                site = F.make_valid_utf8(site)  # a row that is rejected for it crosses as well
        key = _key(given["key"].value, kinds["key"], plan)
        if self.hashed:
            key = F.when(key.isNotNull(), F.xxhash64(key))  # of NULL it would be the seed
        time = self._time  # what is rejected for it has none that Python could read
        if plan.window.kind == "time":
            time = F.when((time >= F.lit(_FIRST)) & (time < F.lit(_LAST)), time)
        columns = [site.alias("site"), time.alias("time"), key.alias("key")]
        if plan.value_queries:
            number = given["value"].value.cast("double")
            value = F.greatest(F.least(number, F.lit(1e300)), F.lit(-1e300))  # sketches know no infinity
            columns.append(value.alias("value"))
        if "count" in given:
            columns.append(given["count"].value.cast("bigint").alias("count"))
        if plan.filters:
            passed = [self._attempts[text].value for text in plan.filters]
            bits = [F.when(one, F.lit(1 << bit)).otherwise(F.lit(0)) for bit, one in enumerate(passed)]
            mask = bits[0].cast("bigint")
            for bit in bits[1:]:
                mask = mask.bitwiseOR(bit.cast("bigint"))
            columns.append(mask.alias("where"))
        extras = [_extra(self._attempts[text].value, kinds[f"extra {i}"]) for i, text in enumerate(plan.exact_columns)]
        return columns + [extra.alias(f"x{i}") for i, extra in enumerate(extras)]


def _time(column: Column, kind: T.DataType, plan: PipelinePlan) -> Column:
    """Microseconds since 1970, or the integers that the window is in."""
    if plan.window.kind == "integer":
        if not isinstance(kind, T.IntegralType | T.StringType):
            raise ParameterError(
                f"columns.time is of type {kind.simpleString()} but window.length is an integer; "
                'write it like "1h", or give integers'
            )
        return column.try_cast("bigint")
    if isinstance(kind, T.DateType):  # those of far years are no timestamps
        known = F.when((F.year(column) > 0) & (F.year(column) < 10_000), column)
        return F.when(column.isNotNull(), F.coalesce(F.unix_micros(known.cast("timestamp")), F.lit(_LAST)))
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return F.unix_micros(column.cast("timestamp"))
    if isinstance(kind, T.StringType):
        return F.unix_micros(F.try_to_timestamp(column))
    if isinstance(kind, T.NumericType):  # seconds, as everywhere in lately
        if isinstance(kind, T.IntegralType):
            return F.try_multiply(column.cast("bigint"), F.lit(10**6))
        number = column.cast("double")
        known = F.when(F.abs(number) < 1e12, F.floor(number * 1e6).try_cast("bigint"))  # of NaN it would be 1970
        return F.when(~F.isnan(number), F.coalesce(known, F.lit(_LAST)))
    raise ParameterError(f"columns.time is of type {kind.simpleString()}; give a timestamp, a date, a number or text")


def _absurd(time: Column, plan: PipelinePlan) -> list[Reason]:
    """Times that would push everything else out of the window."""
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
            f"columns.key = {plan.config.columns.key!r} is of type {kind.simpleString()}; keys are integers, text or "
            f'binary: write "cast({plan.config.columns.key} as string)"'
        )
    return column


def _keys(column: Column, kind: T.DataType, plan: PipelinePlan) -> list[Reason]:
    universe = plan.key_universe
    if universe is None:
        return []
    if not isinstance(kind, T.IntegralType):
        raise ParameterError(f"queries for ranges need integer keys; columns.key is of type {kind.simpleString()}")
    outside = (column < 0) | (column.cast("bigint") >= F.lit(universe))
    return [(outside, F.concat(F.lit(f"key is outside of 0..{universe - 1}: "), column.cast("string")))]


def _values(given: Attempt, plan: PipelinePlan) -> list[Reason]:
    column, number = given.value, given.value.cast("double")
    reasons = [(number.isNull(), F.lit(_without("value", given))), (F.isnan(number), F.lit("value is not a number (NaN)"))]
    for query in plan.value_queries:
        if query.outside == "reject":
            outside = (number < query.lo) | (number > query.hi)
            text = F.concat(F.lit(f"value is outside of {query.lo:g}..{query.hi:g} ({query.name}): "), column.cast("string"))
            reasons.append((outside, text))
    return reasons


def _exact(kinds: dict[str, T.DataType], plan: PipelinePlan, attempts: Attempts) -> list[Reason]:
    """What exact queries cannot take of the rows that they are about; a NULL in what they add up they leave out."""
    reasons: list[Reason] = []
    for query in plan.config.queries:
        if isinstance(query, Exact):
            here = F.lit(True) if query.where is None else F.coalesce(attempts[query.where].value, F.lit(False))
            if query.per is not None:
                group = attempts[query.per].value
                reasons.append((here & group.isNull(), F.lit(f"no {query.per} ({query.name})")))
                kind = kinds[f"extra {plan.exact_columns.index(query.per)}"]
                reasons += [(here & sign, text) for sign, text in _undecodable(query.per, group, kind)]
            if query.of is not None and isinstance(kinds[f"extra {plan.exact_columns.index(query.of)}"], T.IntegralType):
                number = attempts[query.of].value.cast("bigint")
                beyond = (number > _WHOLE) | (number < -_WHOLE)
                text = F.concat(F.lit(f"{query.of} is beyond 2**53 ({query.name}): "), number.cast("string"))
                reasons.append((here & beyond, text))
    return reasons


def _failures(given: dict[str, Attempt], attempts: Attempts, plan: PipelinePlan) -> list[Reason]:
    """Expressions that Spark cannot compute for a row: a cast, an overflow, a division by zero."""
    used = list(given.items())
    used += [("filter", attempts[text]) for text in plan.filters]
    used += [("expression", attempts[text]) for text in plan.exact_columns]
    return [(one.failed, F.lit(f"{name} cannot be computed: {one.text}")) for name, one in used if one.failed is not None]


def _missing(name: str, given: dict[str, Attempt]) -> list[Reason]:
    return [(given[name].value.isNull(), F.lit(_without(name, given[name])))]


def _without(name: str, given: Attempt) -> str:
    """The reason for a NULL; where it was computed, it says from what."""
    return f"no {name}" if given.failed is None else f"no {name}: {given.text} is NULL"


def _undecodable(name: str, column: Column, kind: T.DataType) -> list[Reason]:
    """Spark's strings are bytes, which a cast from binary does not check; Python refuses to read them."""
    if not isinstance(kind, T.StringType):
        return []
    return [(~F.is_valid_utf8(column), F.lit(f"{name} is not valid UTF-8"))]


def _extra(column: Column, kind: T.DataType) -> Column:
    """What an exact query reads: numbers as they are or as doubles, anything else as text."""
    if isinstance(kind, T.IntegralType):
        return column.cast("bigint")
    return column.cast("double") if isinstance(kind, T.NumericType) else F.make_valid_utf8(column.cast("string"))


def _corrupt(df: DataFrame, column: str) -> list[Reason]:
    return [(F.col(f"`{column}`").isNotNull(), F.lit("line cannot be read"))] if column in df.columns else []


def _as_text(df: DataFrame, corrupt: str) -> Column:
    """The row as it was: the line itself if it could not be read, else its columns as JSON, with binary ones as text."""
    columns = []
    for field in df.schema.fields:
        column = F.col(f"`{field.name}`")
        if isinstance(field.dataType, T.BinaryType):
            text = column.cast("string")
            column = F.when(F.is_valid_utf8(text), text).otherwise(F.base64(column)).alias(field.name)
        if field.name not in (ARRIVED, corrupt):
            columns.append(column)
    whole = F.make_valid_utf8(F.to_json(F.struct(*columns), _WHOLE_ROWS))
    return F.coalesce(F.make_valid_utf8(F.col(f"`{corrupt}`")), whole) if corrupt in df.columns else whole
