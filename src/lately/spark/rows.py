"""Rows of any source as the pipeline counts them, and the reasons for which some cannot be: expressions that the JVM evaluates.

site   text, bigint    where   which filters it passes, one bit each
time   bigint          x0 …    what exact queries read
key    hash or key     bad     why the row is rejected, a line break, and the row as JSON; nothing before the break if it
value  double                  may only be late, and NULL for all other rows: little of this crosses
count  bigint
"""

from functools import reduce
from operator import or_

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lately.config import Exact
from lately.core.durations import nanoseconds
from lately.core.errors import ParameterError
from lately.spark.program import Program

#: A sign that a row is bad, and what it is rejected for then. Signs are cheap, and looked at for every row; texts are not.
Reason = tuple[Column, Column]

#: When a row arrived; Spark tells the same time again when a batch is run again.
ARRIVED = "_lately_arrived"
#: What Spark's readers call a line that they could not read.
_CORRUPT = "_corrupt_record"

#: Microseconds of the years 1 and 10,000.
_FIRST, _LAST = -62_135_596_800 * 10**6, 253_402_300_800 * 10**6
#: Up to here every whole number is a float.
_WHOLE = 2**53


class Judge:
    """The expressions for one source; built once, as that takes longer than to run them over a small batch."""

    def __init__(self, df: DataFrame, program: Program) -> None:
        kinds = types_of(df, program)
        #: What keys are, to those who ask for one later.
        kind = kinds["key"]
        self.keys = "integer" if isinstance(kind, T.IntegralType) else "binary" if isinstance(kind, T.BinaryType) else "text"
        #: Whether keys cross as hashes: text does, unless somebody wants to see it again.
        self.hashed = not isinstance(kinds["key"], T.IntegralType) and not program.names_keys
        columns = program.config.columns
        raw = {"time": columns.time, "key": columns.key, "site": columns.site, "value": columns.value, "count": columns.count}
        given = {name: F.expr(text) for name, text in raw.items() if text is not None}
        self._time = _time(given["time"], kinds["time"], program)
        self._reasons = self._all_reasons(df, given, kinds, program)
        self._row = F.to_json(F.struct(*(F.col(f"`{name}`") for name in df.columns if name != ARRIVED)))
        self._selected = self._columns(given, kinds, program)

    def __call__(self, df: DataFrame, floor: int | None) -> DataFrame:
        """Every row of a batch, ready to cross; those before ``floor`` (as ``time`` tells it) may be late."""
        signs = [sign for sign, _ in self._reasons]
        if floor is not None:
            signs.append(self._time < F.lit(floor))
        reason = F.coalesce(*(F.when(sign, text) for sign, text in self._reasons), F.lit(""))
        told = F.concat(F.translate(reason, "\n", " "), F.lit("\n"), self._row)
        return df.select(*self._selected, F.when(reduce(or_, signs), told).alias("bad"))

    def _all_reasons(
        self, df: DataFrame, given: dict[str, Column], kinds: dict[str, T.DataType], program: Program
    ) -> list[Reason]:
        """Why a row is rejected; the first counts."""
        time, key = given["time"], given["key"]
        reasons = [
            *_corrupt(df),
            (time.isNull(), F.lit("no time")),
            (self._time.isNull(), F.concat(F.lit("time cannot be read: "), time.cast("string"))),
            *_absurd(self._time, program),
            (key.isNull(), F.lit("no key")),
            *_keys(key, kinds["key"], program),
        ]
        if "site" in given:
            reasons.append((given["site"].isNull(), F.lit("no site")))
        if program.numbers:
            reasons += _values(given["value"], program)
        if (count := given.get("count")) is not None:
            reasons.append((count.isNull(), F.lit("no count")))
            reasons.append((count < 0, F.concat(F.lit("count is negative: "), count.cast("string"))))
            reasons.append((count > _WHOLE, F.concat(F.lit("count is beyond 2**53: "), count.cast("string"))))
        return reasons + _exact(kinds, program)

    def _columns(self, given: dict[str, Column], kinds: dict[str, T.DataType], program: Program) -> list[Column]:
        """What crosses of every row."""
        site = F.lit("")
        if "site" in given:
            site = given["site"].cast("bigint" if isinstance(kinds["site"], T.IntegralType) else "string")
        key = _key(given["key"], kinds["key"], program)
        if self.hashed:
            key = F.when(key.isNotNull(), F.xxhash64(key))  # of NULL it would be the seed
        time = self._time  # what is rejected for it has none that Python could read
        if program.window.kind == "time":
            time = F.when((time >= F.lit(_FIRST)) & (time < F.lit(_LAST)), time)
        columns = [site.alias("site"), time.alias("time"), key.alias("key")]
        if program.numbers:
            value = F.greatest(F.least(given["value"].cast("double"), F.lit(1e300)), F.lit(-1e300))  # sketches know no infinity
            columns.append(value.alias("value"))
        if "count" in given:
            columns.append(given["count"].cast("bigint").alias("count"))
        if program.filters:
            bits = [F.when(F.expr(text), F.lit(1 << bit)).otherwise(F.lit(0)) for bit, text in enumerate(program.filters)]
            mask = bits[0].cast("bigint")
            for bit in bits[1:]:
                mask = mask.bitwiseOR(bit.cast("bigint"))
            columns.append(mask.alias("where"))
        return columns + [_extra(text, kinds[f"extra {i}"]).alias(f"x{i}") for i, text in enumerate(program.extras)]


def types_of(df: DataFrame, program: Program) -> dict[str, T.DataType]:
    """The types of the columns that the file names; what cannot be read is told with the name that the file has for it."""
    columns = program.config.columns
    asked: dict[str, tuple[str, str]] = {
        name: (f"columns.{name}", text)
        for name in ("time", "key", "site", "value", "count")
        if (text := getattr(columns, name))
    }
    asked |= {f"filter {i}": ("where", text) for i, text in enumerate(program.filters)}
    asked |= {f"extra {i}": ("of or per of an exact query", text) for i, text in enumerate(program.extras)}
    kinds = {}
    for name, (called, text) in asked.items():
        try:
            kinds[name] = df.select(F.expr(text).alias("it")).schema["it"].dataType
        except AnalysisException as error:
            first = str(error).splitlines()[0]
            known = ", ".join(column for column in df.columns if column != ARRIVED)
            raise ParameterError(f"{called} = {text!r} cannot be read: {first} The source has the columns {known}.") from error
    for i, text in enumerate(program.filters):
        if not isinstance(kinds[f"filter {i}"], T.BooleanType):
            raise ParameterError(
                f"the filter {text!r} is of type {kinds[f'filter {i}'].simpleString()}; it must be true or false"
            )
    if "count" in kinds and not isinstance(kinds["count"], T.IntegralType):
        raise ParameterError(f"columns.count = {columns.count!r} is of type {kinds['count'].simpleString()}; cast it to bigint")
    for query in program.config.queries:
        if isinstance(query, Exact) and query.of is not None:
            kind = kinds[f"extra {program.extras.index(query.of)}"]
            if not isinstance(kind, T.NumericType):
                raise ParameterError(
                    f"of = {query.of!r} of the query {query.name!r} is of type {kind.simpleString()}; cast it to double"
                )
    if program.numbers and not isinstance(kinds["value"], T.NumericType):
        raise ParameterError(f"columns.value = {columns.value!r} is of type {kinds['value'].simpleString()}; cast it to double")
    return kinds


def _time(column: Column, kind: T.DataType, program: Program) -> Column:
    """Microseconds since 1970, or the integers that the window is in."""
    if program.window.kind == "integer":
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


def _absurd(time: Column, program: Program) -> list[Reason]:
    """Times that would push everything else out of the window."""
    if program.window.kind == "integer":
        return [((time > F.lit(2**62)) | (time < F.lit(-(2**62))), F.lit("time is beyond 2**62"))]
    beyond = (time < F.lit(_FIRST)) | (time >= F.lit(_LAST))
    reasons = [(beyond, F.lit("time is beyond the year 9999: numbers are seconds since 1970"))]
    future = program.config.window.future
    if future is not None:
        ahead = nanoseconds(future) // 1000
        limit = F.unix_micros(F.col(ARRIVED)) + F.lit(ahead)
        reasons.append((time > limit, F.lit(f"time is more than {future} in the future")))
    return reasons


def _key(column: Column, kind: T.DataType, program: Program) -> Column:
    if isinstance(kind, T.IntegralType):
        return column.cast("bigint")
    if not isinstance(kind, T.StringType | T.BinaryType | T.CharType | T.VarcharType):
        raise ParameterError(
            f"columns.key = {program.config.columns.key!r} is of type {kind.simpleString()}; keys are integers, text or "
            f'binary: write "cast({program.config.columns.key} as string)"'
        )
    return column


def _keys(column: Column, kind: T.DataType, program: Program) -> list[Reason]:
    universe = program.integer_keys
    if universe is None:
        return []
    if not isinstance(kind, T.IntegralType):
        raise ParameterError(f"queries for ranges need integer keys; columns.key is of type {kind.simpleString()}")
    outside = (column < 0) | (column.cast("bigint") >= F.lit(universe))
    return [(outside, F.concat(F.lit(f"key is outside of 0..{universe - 1}: "), column.cast("string")))]


def _values(column: Column, program: Program) -> list[Reason]:
    number = column.cast("double")
    reasons = [(number.isNull() | F.isnan(number), F.lit("no value"))]
    for query in program.numbers:
        if query.outside == "reject":
            outside = (number < query.lo) | (number > query.hi)
            text = F.concat(F.lit(f"value is outside of {query.lo:g}..{query.hi:g} ({query.name}): "), column.cast("string"))
            reasons.append((outside, text))
    return reasons


def _exact(kinds: dict[str, T.DataType], program: Program) -> list[Reason]:
    """What exact queries cannot take of the rows that they are about; a NULL in what they add up they leave out."""
    reasons: list[Reason] = []
    for query in program.config.queries:
        if isinstance(query, Exact):
            here = F.lit(True) if query.where is None else F.expr(query.where)
            if query.per is not None:
                reasons.append((here & F.expr(query.per).isNull(), F.lit(f"no {query.per} ({query.name})")))
            if query.of is not None and isinstance(kinds[f"extra {program.extras.index(query.of)}"], T.IntegralType):
                number = F.expr(query.of).cast("bigint")
                beyond = (number > _WHOLE) | (number < -_WHOLE)
                text = F.concat(F.lit(f"{query.of} is beyond 2**53 ({query.name}): "), number.cast("string"))
                reasons.append((here & beyond, text))
    return reasons


def _extra(text: str, kind: T.DataType) -> Column:
    """What an exact query reads: numbers as they are or as doubles, anything else as text."""
    if isinstance(kind, T.IntegralType):
        return F.expr(text).cast("bigint")
    return F.expr(text).cast("double") if isinstance(kind, T.NumericType) else F.expr(text).cast("string")


def _corrupt(df: DataFrame) -> list[Reason]:
    return [(F.col(_CORRUPT).isNotNull(), F.lit("line cannot be read"))] if _CORRUPT in df.columns else []
