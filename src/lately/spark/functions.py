"""Sketches as SQL functions and as functions of columns.

``_agg`` functions build and merge sketches (binary columns), the others query them. The code that executors run is in
``udfs.py`` and, for queries, in ``answers.py``. Spark has no partial aggregation in Python: an aggregate shuffles every row to
the task of its group, which holds the group's columns in memory. ``ecm_partial`` and ``lately.spark.sketch`` sketch every
partition where it is instead.
"""

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lately.core.durations import Duration
from lately.core.errors import ParameterError
from lately.spark import udfs

ColumnOrName = Column | str
Last = Duration | Column | None

#: The Spark setting with the number of a session's defaults. Defaults belong to a session, but a session may have several
#: Python objects, so that they cannot be an attribute of one.
_CONF = "lately.registered"
_REGISTERED: dict[str, dict[str, Any]] = {}
_INTEGERS, _TEXTS = ("tinyint", "smallint", "int"), ("bigint", "string", "binary")


# -- SQL ---------------------------------------------------------------------------------------------------------------


def register(spark: SparkSession, **defaults: Any) -> None:
    """Register all functions of this module with SQL, and set default options of ``_agg`` and ``_partial`` functions.

    ``_agg`` functions of columns use the defaults of the active session too. Options of a call override defaults:
    ``ecm_sketch_agg(url, ts, eps => 0.05)`` in SQL.

    Parameters
    ----------
    spark
        The session.
    defaults
        Default options; each kind of sketch uses those that its class has:
        ``register(spark, window="1h", eps=0.01, delta=0.01, k=20)``. ParameterError if no sketch has an option.
    """
    check_defaults(defaults)
    for name in udfs.SCALARS:
        spark.udf.register(name, udfs.scalar(name))
    for name in ("ecm_union_agg", "sketch_union_agg"):
        spark.udf.register(name, udfs.union_aggregate(name))
    for kind in udfs.OPTIONS:
        spark.udf.register(f"{kind}_sketch_agg", udfs.aggregate(kind, defaults))
        table: Any = F.arrow_udtf(udfs.partial(kind, defaults), returnType="site string, sketch binary")
        spark.udtf.register(f"{kind}_partial", table)
    number = str(len(_REGISTERED))
    _REGISTERED[number] = dict(defaults)
    spark.conf.set(_CONF, number)


def registered() -> dict[str, Any]:
    """Return the default options that were last registered in the active session; empty if there are none."""
    session = SparkSession.getActiveSession()
    return _REGISTERED.get((session and session.conf.get(_CONF, None)) or "", {})


def check_defaults(defaults: dict[str, Any]) -> None:
    """Raise ParameterError if no sketch has one of these options, or if a sketch cannot be built with them.

    Parameters
    ----------
    defaults
        Options by name.

    >>> check_defaults({"window": "1h", "epsilon": 0.01})
    Traceback (most recent call last):
    lately.core.errors.ParameterError: no sketch has the option 'epsilon'; the options are counter, delta, eps, hi, k, \
lateness, lo, merge_height, nbytes, outside, phi, query, resolution, salt, samples, seed, tick, window
    """
    names = {name for names in udfs.OPTIONS.values() for name in names}
    for name in defaults:
        if name not in names:
            raise ParameterError(f"no sketch has the option {name!r}", remedy=f"the options are {', '.join(sorted(names))}")
    for kind, required in udfs.REQUIRED.items():
        if required.keys() <= defaults.keys():
            udfs.recipe_of(kind, f"{kind}_sketch_agg", defaults, {})


# -- columns: building sketches ----------------------------------------------------------------------------------------


def ecm_sketch_agg(
    key: ColumnOrName, ts: ColumnOrName, count: ColumnOrName | None = None, *, hashed: bool = False, **options: Any
) -> Column:
    """Aggregate a group's rows into an ECM-sketch. Keys are hashed in the JVM, before they are shuffled.

    Parameters
    ----------
    key
        The key: integers, strings or binary.
    ts
        The event time: timestamps, dates or numbers.
    count
        How many events a row represents. By default 1.
    hashed
        Whether ``key`` holds ``xxhash64`` of the key already, as for a key of several columns:
        ``ecm_sketch_agg(F.xxhash64("host", "path"), "ts", hashed=True, window="1h", eps=0.01, delta=0.01)``.
    options
        Parameters of ``lt.EcmSketch``; they override registered defaults.
    """
    column = _column(key) if hashed else key_hash(key)
    return _aggregate_call("ecm", column, ts, count, options | {"hashed": True})


def topk_sketch_agg(key: ColumnOrName, ts: ColumnOrName, count: ColumnOrName | None = None, **options: Any) -> Column:
    """Aggregate a group's rows into a TopK.

    Parameters
    ----------
    key
        The key: integers, strings or binary.
    ts
        The event time: timestamps, dates or numbers.
    count
        How many events a row represents. By default 1.
    options
        Parameters of ``lt.TopK``; they override registered defaults. Without ``k`` and ``phi``, ``k`` is 10.
    """
    return _aggregate_call("topk", key, ts, count, options)


def quantiles_sketch_agg(value: ColumnOrName, ts: ColumnOrName, count: ColumnOrName | None = None, **options: Any) -> Column:
    """Aggregate a group's numbers into a Quantiles sketch.

    Parameters
    ----------
    value
        The numbers.
    ts
        The event time: timestamps, dates or numbers.
    count
        How many events a row represents. By default 1.
    options
        Parameters of ``lt.Quantiles``; they override registered defaults.
    """
    return _aggregate_call("quantiles", value, ts, count, options)


def sketch_union_agg(sketch: ColumnOrName) -> Column:
    """Merge a group's sketches, of any kind, into one; all must have been built with the same parameters. NULL is ignored.

    Parameters
    ----------
    sketch
        The column of sketches.
    """
    call: Column = udfs.union_aggregate("sketch_union_agg")(sketch)
    return call


ecm_union_agg = sketch_union_agg


def key_hash(key: ColumnOrName) -> Column:
    """Return the hash of a key, computed in the JVM; it equals that of ``lt.hash_keys``. NULL for NULL.

    ``xxhash64`` alone would hash an int differently from a bigint, and NULL to its seed; here integers of any width are the
    same key. The branch depends only on the column's type, so Spark chooses it when it plans the query.

    Parameters
    ----------
    key
        Integers, strings or binary; the query fails for any other type.
    """
    column = _column(key)
    kind = F.typeof(column)
    wide = column.cast("string").cast("bigint")  # binary has no cast to bigint, and Spark checks unused branches too
    message = F.concat(F.lit("keys of the type "), kind, F.lit(" are not supported; cast them to string, binary or bigint"))
    return (
        F.when(column.isNull(), F.lit(None).cast("bigint"))
        .when(kind.isin(*_INTEGERS), F.xxhash64(wide))
        .when(kind.isin(*_TEXTS), F.xxhash64(column))
        .otherwise(F.raise_error(message))
    )


# -- columns: querying sketches ----------------------------------------------------------------------------------------


def ecm_count(sketch: ColumnOrName, key: Any, last: Last = None) -> Column:
    """Return how often a key occurred.

    Parameters
    ----------
    sketch
        The column of sketches.
    key
        A column, its name, or an integer or bytes; write ``F.lit("/cart")`` for a constant string.
    last
        The length of the range, such as "10m". By default the whole window.
    """
    return _query("ecm_count", sketch, _value(key), last=last)


def ecm_counts(sketch: ColumnOrName, keys: Any, last: Last = None) -> Column:
    """Return how often each key of an array occurred. The sketch is passed to Python once for all keys.

    Parameters
    ----------
    sketch
        The column of sketches.
    keys
        A column of arrays, its name, or a Python list of constants.
    last
        The length of the range, such as "10m". By default the whole window.
    """
    return _query("ecm_counts", sketch, _value(keys), last=last)


def ecm_total(sketch: ColumnOrName, last: Last = None) -> Column:
    """Return how many arrivals there were.

    Parameters
    ----------
    sketch
        The column of sketches.
    last
        The length of the range, such as "10m". By default the whole window.
    """
    return _query("ecm_total", sketch, last=last)


def ecm_self_join(sketch: ColumnOrName, last: Last = None) -> Column:
    """Return the self-join size: the sum over all keys of their squared counts.

    Parameters
    ----------
    sketch
        The column of sketches.
    last
        The length of the range, such as "10m". By default the whole window.
    """
    return _query("ecm_self_join", sketch, last=last)


def ecm_inner_product(sketch: ColumnOrName, other: ColumnOrName, last: Last = None) -> Column:
    """Return the join size: the sum over all keys of the product of their counts in two streams.

    Parameters
    ----------
    sketch, other
        Two columns of sketches that were built with the same parameters.
    last
        The length of the range, such as "10m". By default the whole window.
    """
    return _query("ecm_inner_product", sketch, _column(other), last=last)


def topk_top(sketch: ColumnOrName, k: int | Column | None = None, last: Last = None) -> Column:
    """Return the most frequent keys, as an array of structs for ``F.inline`` or ``F.explode``. Keys become text.

    Parameters
    ----------
    sketch
        The column of TopK sketches.
    k
        How many keys; by default as many as the sketch was built for.
    last
        The length of the range, such as "10m". By default the whole window.
    """
    return _query("topk_top", sketch, F.lit(k), last=last)


ecm_top = topk_top


def quantiles_quantile(sketch: ColumnOrName, q: Any, last: Last = None) -> Column:
    """Return a quantile, or an array of quantiles for a Python list of shares.

    Parameters
    ----------
    sketch
        The column of Quantiles sketches.
    q
        A share from 0 to 1, a Python list of shares, or a column of shares.
    last
        The length of the range, such as "10m". By default the whole window.
    """
    name = "quantiles_quantiles" if isinstance(q, list | tuple) else "quantiles_quantile"
    return _query(name, sketch, _value(q), last=last)


def quantiles_quantiles(sketch: ColumnOrName, q: Any, last: Last = None) -> Column:
    """Return an array of quantiles.

    Parameters
    ----------
    sketch
        The column of Quantiles sketches.
    q
        A column of arrays of shares, or a Python list of shares.
    last
        The length of the range, such as "10m". By default the whole window.
    """
    return _query("quantiles_quantiles", sketch, _value(q), last=last)


def quantiles_rank(sketch: ColumnOrName, x: Any, last: Last = None) -> Column:
    """Return how many arrivals were at most ``x``.

    Parameters
    ----------
    sketch
        The column of Quantiles sketches.
    x
        A number, or a column of numbers.
    last
        The length of the range, such as "10m". By default the whole window.
    """
    return _query("quantiles_rank", sketch, _value(x), last=last)


def quantiles_count_range(sketch: ColumnOrName, lo: Any, hi: Any, last: Last = None) -> Column:
    """Return how many arrivals were between ``lo`` and ``hi``, both included.

    Parameters
    ----------
    sketch
        The column of Quantiles sketches.
    lo, hi
        Numbers, or columns of numbers.
    last
        The length of the range, such as "10m". By default the whole window.
    """
    return _query("quantiles_count_range", sketch, _value(lo), _value(hi), last=last)


def sketch_info(sketch: ColumnOrName) -> Column:
    """Return a struct with the class of a sketch, its window, arrivals, levels of merging, and bytes in memory.

    Parameters
    ----------
    sketch
        The column of sketches.
    """
    return _query("sketch_info", sketch)


def _column(column: ColumnOrName) -> Column:
    return F.col(column) if isinstance(column, str) else column


def _value(value: Any) -> Column:
    """Return a column, given itself or its name, or any other value as a constant."""
    return _column(value) if isinstance(value, str | Column) else F.lit(list(value) if isinstance(value, tuple) else value)


def _query(name: str, sketch: ColumnOrName, *arguments: Column, last: Last = None) -> Column:
    length = () if last is None else (last if isinstance(last, Column) else F.lit(last),)
    call: Column = udfs.scalar(name)(_column(sketch), *arguments, *length)
    return call


def _aggregate_call(
    kind: str, key: ColumnOrName, ts: ColumnOrName, count: ColumnOrName | None, options: dict[str, Any]
) -> Column:
    defaults = registered()
    udfs.recipe_of(kind, f"{kind}_sketch_agg", defaults, options)  # raises before Spark starts anything
    counts = () if count is None else (_column(count),)
    call: Column = udfs.aggregate(kind, udfs.with_defaults(defaults, options))(_column(key), _column(ts), *counts)
    return call
