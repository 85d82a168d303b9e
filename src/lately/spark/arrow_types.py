"""The Arrow types of Spark's types, as data passes between the JVM and Python.

PySpark has such a function, but it is private, and its parameters differ between versions.
"""

import pyarrow as pa
from pyspark.sql import types as T

from lately.core.errors import ParameterError

_TYPES: dict[type[T.DataType], pa.DataType] = {
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.CharType: pa.string(),
    T.VarcharType: pa.string(),
    T.BinaryType: pa.binary(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
    T.DayTimeIntervalType: pa.duration("us"),
}


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """Return the Arrow schema of a DataFrame's schema; timestamps are in UTC.

    Parameters
    ----------
    schema
        The schema of a DataFrame. Its columns are of basic types, arrays or structs; ParameterError for any other type.

    >>> arrow_schema(T.StructType([T.StructField("site", T.StringType()), T.StructField("ts", T.TimestampType())]))
    site: string
    ts: timestamp[us, tz=UTC]
    """
    return pa.schema([_field(field.name, field.dataType, field.nullable) for field in schema.fields])


def _field(name: str, kind: T.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, _arrow_type(name, kind), nullable)


def _arrow_type(name: str, kind: T.DataType) -> pa.DataType:
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.ArrayType):
        return pa.list_(_field("element", kind.elementType, kind.containsNull))
    if isinstance(kind, T.StructType):
        return pa.struct([_field(field.name, field.dataType, field.nullable) for field in kind.fields])
    for spark_type, arrow in _TYPES.items():
        if isinstance(kind, spark_type):
            return arrow
    raise ParameterError(
        f"column {name!r} has the type {kind.simpleString()}, which cannot be grouped by", remedy="cast it to string"
    )
