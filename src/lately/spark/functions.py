"""Sketches as functions of SQL and of columns, named in Spark's manner.

``_agg`` functions build and merge sketches (binary columns), the others ask them. What runs on the executors is here for what
builds and in ``answers.py`` for what asks. There is no partial aggregation in Python: an aggregate moves every row to the task
of its group and holds the group's columns in memory. ``ecm_partial`` makes sketches where the rows are, and so does
``lately.spark.sketch``.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lately.core.durations import Duration
from lately.core.errors import InputError, ParameterError
from lately.ingest.windowed import merge
from lately.pipeline.sketch_recipe import SketchRecipe
from lately.sketches.ecm import EcmSketch
from lately.sketches.quantiles import Quantiles
from lately.sketches.topk import TopK
from lately.spark import answers
from lately.spark.partials import Partials

_arrow_udf: Callable[..., Any] = F.arrow_udf  # type: ignore[attr-defined]  # since 4.1, and missing from the stubs of 4.3

ColumnOrName = Column | str
Last = Duration | Column | None

_COUNT = "struct<value: bigint, low: bigint, high: bigint, confidence: double>"
_NUMBER = "struct<value: double, low: double, high: double, confidence: double>"
_KEY_COUNT = "struct<key: string, value: bigint, low: bigint, high: bigint, confidence: double>"
_INFO = "struct<class: string, window: string, arrivals: bigint, merges: bigint, nbytes: bigint>"

#: What each function of a sketch asks, and what comes back.
_SCALARS: dict[str, tuple[Callable[..., Any], str]] = {
    "ecm_count": (answers.count, _COUNT),
    "ecm_counts": (answers.counts, f"array<{_COUNT}>"),
    "ecm_total": (answers.total, _COUNT),
    "ecm_self_join": (answers.self_join, _NUMBER),
    "ecm_inner_product": (answers.inner_product, _NUMBER),
    "ecm_top": (answers.top, f"array<{_KEY_COUNT}>"),
    "topk_top": (answers.top, f"array<{_KEY_COUNT}>"),
    "quantiles_quantile": (answers.quantile, _NUMBER),
    "quantiles_quantiles": (answers.quantiles, f"array<{_NUMBER}>"),
    "quantiles_rank": (answers.rank, _COUNT),
    "quantiles_count_range": (answers.count_range, _COUNT),
    "sketch_info": (answers.info, _INFO),
}
_UNIONS = ("ecm_union_agg", "sketch_union_agg")
_CLASSES = {"ecm": EcmSketch, "topk": TopK, "quantiles": Quantiles}
_OPTIONS = {kind: tuple(inspect.signature(made).parameters) for kind, made in _CLASSES.items()}
_NEEDED = {
    "ecm": {"window": "'1 hour'", "eps": "0.01", "delta": "0.01"},
    "topk": {"window": "'1 hour'", "eps": "0.01", "delta": "0.01"},
    "quantiles": {"window": "'1 hour'", "eps": "0.01", "lo": "0", "hi": "60", "resolution": "0.001"},
}
#: The setting of a session that says which defaults are its own: sessions are apart, but are not always the same object.
_CONF = "lately.registered"
_REGISTERED: dict[str, dict[str, Any]] = {}
_INTEGERS, _TEXTS = ("tinyint", "smallint", "int"), ("bigint", "string", "binary")


# -- in SQL ------------------------------------------------------------------------------------------------------------


def register(spark: SparkSession, **defaults: Any) -> None:
    """Make every function here known to SQL; ``defaults`` are the options that ``_agg`` and ``_partial`` functions then have.

    ``_agg`` functions of columns have the defaults of the active session too, and options that are given win. Each kind of
    sketch takes what it knows of them: ``register(spark, window="1h", eps=0.01, delta=0.01, k=20)``. A query may
    give others by name: ``ecm_sketch_agg(url, ts, eps => 0.05)``.
    """
    check_defaults(defaults)
    for name, (ask, kind) in _SCALARS.items():
        spark.udf.register(name, _scalar(name, ask, kind))
    for name in _UNIONS:
        spark.udf.register(name, _union(name))
    for kind in _CLASSES:
        spark.udf.register(f"{kind}_sketch_agg", _aggregate(kind, defaults))
        table: Any = F.arrow_udtf(_partial(kind, defaults), returnType="site string, sketch binary")
        spark.udtf.register(f"{kind}_partial", table)
    number = str(len(_REGISTERED))
    _REGISTERED[number] = dict(defaults)
    spark.conf.set(_CONF, number)


def registered() -> dict[str, Any]:
    """The defaults that were registered last in the active session; none without a session, or where nobody registered."""
    session = SparkSession.getActiveSession()
    return _REGISTERED.get((session and session.conf.get(_CONF, None)) or "", {})


def check_defaults(defaults: dict[str, Any]) -> None:
    """Refuse options that no sketch has, and those that cannot be built, before any query runs.

    >>> check_defaults({"window": "1h", "epsilon": 0.01})
    Traceback (most recent call last):
    lately.core.errors.ParameterError: no sketch has the option 'epsilon'; there are counter, delta, eps, hi, k, lateness, lo, \
merge_height, outside, phi, query, resolution, salt, samples, seed, tick, window
    """
    known = {name for names in _OPTIONS.values() for name in names}
    for name in defaults:
        if name not in known:
            raise ParameterError(f"no sketch has the option {name!r}; there are {', '.join(sorted(known))}")
    for kind, needed in _NEEDED.items():
        if needed.keys() <= defaults.keys():
            recipe_of(kind, f"{kind}_sketch_agg", defaults, {})


# -- columns: build ----------------------------------------------------------------------------------------------------


def ecm_sketch_agg(
    key: ColumnOrName, ts: ColumnOrName, count: ColumnOrName | None = None, *, hashed: bool = False, **options: Any
) -> Column:
    """An ECM-sketch of a group's rows; ``options`` are those of ``lt.EcmSketch``, before what was registered.

    Keys are hashed before they are shuffled.

    ``hashed=True`` says that the key column has ``xxhash64`` in it already, as for a key of several columns:
    ``ecm_sketch_agg(F.xxhash64("host", "path"), "ts", hashed=True, window="1h", eps=0.01, delta=0.01)``.
    """
    column = _column(key) if hashed else key_hash(key)
    return _aggregated("ecm", column, ts, count, options | {"hashed": True})


def topk_sketch_agg(key: ColumnOrName, ts: ColumnOrName, count: ColumnOrName | None = None, **options: Any) -> Column:
    """A TopK of a group's rows; ``options`` are those of ``lt.TopK``, before what was registered."""
    return _aggregated("topk", key, ts, count, options)


def quantiles_sketch_agg(value: ColumnOrName, ts: ColumnOrName, count: ColumnOrName | None = None, **options: Any) -> Column:
    """The quantiles of a group's numbers; ``options`` are those of ``lt.Quantiles``, before what was registered."""
    return _aggregated("quantiles", value, ts, count, options)


def sketch_union_agg(sketch: ColumnOrName) -> Column:
    """One sketch for all of a group's sketches, which must have been built alike; of any kind."""
    called: Column = _union("sketch_union_agg")(sketch)
    return called


ecm_union_agg = sketch_union_agg


def key_hash(key: ColumnOrName) -> Column:
    """The hash of a key, computed in the JVM, that ``lt.hash_keys`` has for it: integers of any width are the same key.

    Spark gives an int another hash than a bigint, and NULL one too. Which branch is taken is known when the query is planned.
    """
    column = _column(key)
    kind = F.typeof(column)
    wide = column.cast("string").cast("bigint")  # by way of text, since binary has no cast to bigint, not even where unused
    refusal = F.concat(F.lit("keys of the type "), kind, F.lit(" are not supported; cast them to string, binary or bigint"))
    return (
        F.when(column.isNull(), F.lit(None).cast("bigint"))
        .when(kind.isin(*_INTEGERS), F.xxhash64(wide))
        .when(kind.isin(*_TEXTS), F.xxhash64(column))
        .otherwise(F.raise_error(refusal))
    )


# -- columns: ask ------------------------------------------------------------------------------------------------------


def ecm_count(sketch: ColumnOrName, key: Any, last: Last = None) -> Column:
    """How often a key was seen; a text is the name of a column, so write ``F.lit("/cart")`` for a key that is text."""
    return _ask("ecm_count", sketch, _value(key), last=last)


def ecm_counts(sketch: ColumnOrName, keys: Any, last: Last = None) -> Column:
    """How often each key of an array, or of a Python list, was seen; the sketch crosses to Python once for all of them."""
    return _ask("ecm_counts", sketch, _value(keys), last=last)


def ecm_total(sketch: ColumnOrName, last: Last = None) -> Column:
    """How many arrivals there were."""
    return _ask("ecm_total", sketch, last=last)


def ecm_self_join(sketch: ColumnOrName, last: Last = None) -> Column:
    """The sum over all keys of the squares of their counts."""
    return _ask("ecm_self_join", sketch, last=last)


def ecm_inner_product(sketch: ColumnOrName, other: ColumnOrName, last: Last = None) -> Column:
    """The sum over all keys of the product of their counts in two streams."""
    return _ask("ecm_inner_product", sketch, _column(other), last=last)


def topk_top(sketch: ColumnOrName, k: int | Column | None = None, last: Last = None) -> Column:
    """The keys that came most often, as an array of structs for ``F.inline`` or ``F.explode``; keys become text."""
    return _ask("topk_top", sketch, F.lit(k), last=last)


ecm_top = topk_top


def quantiles_quantile(sketch: ColumnOrName, q: Any, last: Last = None) -> Column:
    """The number below which a share of ``q`` of the arrivals lies; for an array, or a Python list of shares, an array."""
    name = "quantiles_quantiles" if isinstance(q, list | tuple) else "quantiles_quantile"
    return _ask(name, sketch, _value(q), last=last)


def quantiles_quantiles(sketch: ColumnOrName, q: Any, last: Last = None) -> Column:
    """The same for a column of arrays."""
    return _ask("quantiles_quantiles", sketch, _value(q), last=last)


def quantiles_rank(sketch: ColumnOrName, x: Any, last: Last = None) -> Column:
    """How many arrivals were at most ``x``."""
    return _ask("quantiles_rank", sketch, _value(x), last=last)


def quantiles_count_range(sketch: ColumnOrName, lo: Any, hi: Any, last: Last = None) -> Column:
    """How many arrivals were from ``lo`` to ``hi``."""
    return _ask("quantiles_count_range", sketch, _value(lo), _value(hi), last=last)


def sketch_info(sketch: ColumnOrName) -> Column:
    """What a sketch is: its class, window, arrivals, merges and bytes in memory."""
    return _ask("sketch_info", sketch)


def _column(given: ColumnOrName) -> Column:
    return F.col(given) if isinstance(given, str) else given


def _value(given: Any) -> Column:
    """A column, by itself or by name, or any other value as a constant."""
    return _column(given) if isinstance(given, str | Column) else F.lit(list(given) if isinstance(given, tuple) else given)


def _ask(name: str, sketch: ColumnOrName, *given: Column, last: Last = None) -> Column:
    since = () if last is None else (last if isinstance(last, Column) else F.lit(last),)
    called: Column = _scalar(name, *_SCALARS[name])(_column(sketch), *given, *since)
    return called


def _aggregated(kind: str, key: ColumnOrName, ts: ColumnOrName, count: ColumnOrName | None, options: dict[str, Any]) -> Column:
    defaults = registered()
    recipe_of(kind, f"{kind}_sketch_agg", defaults, options)
    counted = () if count is None else (_column(count),)
    called: Column = _aggregate(kind, with_defaults(defaults, options))(_column(key), _column(ts), *counted)
    return called


# -- what the executors run --------------------------------------------------------------------------------------------


def _scalar(name: str, ask: Callable[..., Any], kind: str) -> Any:
    def asked(*columns: pa.Array, **named: pa.Array) -> pa.Array:
        return ask(*columns, **named)

    asked.__name__ = name
    return _arrow_udf(asked, kind)


def _union(name: str) -> Any:
    def united(sketch: pa.Array) -> bytes:
        return union(sketch)  # type: ignore[return-value]  # None becomes NULL; Spark reads the kind of function off the hint

    united.__name__ = name
    return _arrow_udf(united, "binary")


def _aggregate(kind: str, defaults: dict[str, Any]) -> Any:
    # Over an iterator of batches it would not hold the group, but Spark 4.3 then drops named arguments without a word and
    # refuses a second aggregate in the same query.
    name = f"{kind}_sketch_agg"

    def sketched(key: pa.Array, ts: pa.Array, *rest: pa.Array, **named: pa.Array) -> bytes:
        count = rest[0] if rest else named.pop("count", None)
        recipe, hashed = recipe_of(kind, name, defaults, constants(name, named))
        return sketch_of(recipe, keys_for(recipe, key, bool(hashed)), ts, count)  # type: ignore[return-value]

    sketched.__name__ = name
    return _arrow_udf(sketched, "binary")


def _partial(kind: str, defaults: dict[str, Any]) -> type:
    name = f"{kind}_partial"

    class Partial:
        """Sketches of a task's rows: columns site, key, ts and, if rows have counts, count."""

        def __init__(self) -> None:
            self._task: Partials | None = None

        def eval(self, table: pa.RecordBatch, **named: pa.Array) -> Iterator[pa.Table]:
            recipe, hashed = recipe_of(kind, name, defaults, constants(name, named))
            site, key, ts, count = columns_of(name, table)
            if hashed is None and recipe.key_encoding == "hash" and pa.types.is_int64(key.type):
                raise ParameterError(
                    f"{name}: a bigint may be a key or the hash of one; "
                    "add hashed => true for xxhash64(…), hashed => false for keys"
                )
            if self._task is None:
                self._task = Partials(recipe)
            self._task.add(keys_for(recipe, key, bool(hashed)), ts, count, groups=[site])
            return iter(())

        def terminate(self) -> Iterator[pa.Table]:
            for (site,), sketch in () if self._task is None else self._task.finish():
                yield pa.table({"site": pa.array([site]).cast(pa.string()), "sketch": pa.array([sketch.to_bytes()])})

    return Partial


def sketch_of(recipe: SketchRecipe, keys: Any, times: Any, counts: Any = None) -> bytes | None:
    """The sketch of these rows; of none, nothing.

    >>> rows = pa.array(["a", "b", "a", None]), pa.array([3, 1, 2, 4])
    >>> recipe, _ = recipe_of("topk", "topk_sketch_agg", {"window": 100, "eps": 0.1, "delta": 0.1}, {})
    >>> from lately import from_bytes
    >>> from_bytes(sketch_of(recipe, *rows)).top().key
    ['a', 'b']
    """
    task = Partials(recipe)
    task.add(keys, times, counts)
    sketches = [sketch for _, sketch in task.finish()]
    if not sketches:
        return None
    made: bytes = (sketches[0] if len(sketches) == 1 else merge(sketches)).to_bytes()
    return made


def union(sketches: Any) -> bytes | None:
    """All these sketches as one, NULL left out; of none, nothing."""
    blobs = sketches.drop_null()
    if len(blobs) < 2:
        return answers.read(blobs[0]).to_bytes() if len(blobs) else None  # read, so that damaged bytes are told here
    made: bytes = merge([answers.read(blob) for blob in blobs]).to_bytes()
    return made


def keys_for(recipe: SketchRecipe, keys: Any, hashed: bool) -> Any:
    """A column of keys as this kind of sketch takes it."""
    if recipe.key_encoding == "number":
        return keys.cast(pa.float64()) if pa.types.is_decimal(keys.type) else keys
    if not hashed:
        return answers.hashed(keys) if recipe.key_encoding == "hash" else keys
    if recipe.key_encoding != "hash":
        raise ParameterError(f"hashed => true with kind {recipe.kind!r}, which needs the keys themselves; leave it out")
    if not pa.types.is_int64(keys.type) and not pa.types.is_null(keys.type):
        raise InputError(f"hashed => true with keys of the type {keys.type}; give xxhash64(…), or leave it out")
    return keys


def columns_of(name: str, table: Any) -> list[Any]:
    """Site, key, time and count; of two columns, only key and time."""
    if not 2 <= table.num_columns <= 4:
        raise ParameterError(f"{name} was given {table.num_columns} columns; select site, key, ts and, if rows have one, count")
    columns = list(table.columns)
    if len(columns) == 3 and pa.types.is_temporal(columns[1].type):
        raise ParameterError(f"{name} takes {table.schema.names[1]} for the key; select site (null will do), key, ts, count")
    if len(columns) == 2:
        columns.insert(0, pa.nulls(len(columns[0]), pa.string()))
    if pa.types.is_nested(columns[0].type):
        raise InputError(f"{name}: the site {table.schema.names[0]} is of the type {columns[0].type}; give to_json(…) of it")
    return [*columns, *([None] if len(columns) == 3 else [])]


def constants(name: str, named: dict[str, Any]) -> dict[str, Any]:
    """Options that SQL gave by name: columns of one value each.

    >>> constants("ecm_sketch_agg", {"eps": pa.array([0.1, 0.1]), "WINDOW": pa.array(["1 hour", "1 hour"])})
    {'eps': 0.1, 'window': '1 hour'}
    """
    options = {}
    for option, column in named.items():
        first = column[0]
        if first.is_valid != (column.null_count == 0) or (first.is_valid and not pc.all(pc.equal(column, first)).as_py()):
            raise ParameterError(f"{name}: {option} differs from row to row; give a constant")
        options[option.lower()] = answers.plain(first.as_py())
    return options


def recipe_of(kind: str, name: str, defaults: dict[str, Any], given: dict[str, Any]) -> tuple[SketchRecipe, bool | None]:
    """What to build, and whether keys come as hashes; defaults of other kinds are left out, options given are not.

    >>> recipe_of("ecm", "ecm_sketch_agg", {"window": "1h", "k": 5}, {"eps": 0.1})
    Traceback (most recent call last):
    lately.core.errors.ParameterError: ecm_sketch_agg lacks delta; give it in the query, as in delta => 0.01, or once in \
register(spark, delta=0.01)
    """
    known = (*_OPTIONS[kind], "hashed")
    if unknown := [option for option in given if option not in known]:
        raise ParameterError(f"{name} has no option {unknown[0]!r}; there are {', '.join(sorted(known))}")
    options = with_defaults({option: value for option, value in defaults.items() if option in known}, given)
    if kind == "topk" and not {"k", "phi"} & options.keys():
        options["k"] = 10
    if lacking := {option: shown for option, shown in _NEEDED[kind].items() if option not in options}:
        sql = ", ".join(f"{option} => {shown}" for option, shown in lacking.items())
        python = ", ".join(f"{option}={shown}" for option, shown in lacking.items())
        raise ParameterError(
            f"{name} lacks {', '.join(lacking)}; give it in the query, as in {sql}, or once in register(spark, {python})"
        )
    hashed = options.pop("hashed", None)
    return _recipe(kind, tuple(sorted(options.items()))), hashed


def with_defaults(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Options that were given, before defaults; ``k`` and ``phi`` stand for each other.

    >>> with_defaults({"eps": 0.1, "k": 5}, {"eps": 0.2, "phi": 0.3, "tick": None})
    {'eps': 0.2, 'phi': 0.3}
    """
    replaced = ("k", "phi") if {"k", "phi"} & given.keys() else ()
    kept = {option: value for option, value in defaults.items() if option not in replaced}
    return kept | {option: value for option, value in given.items() if value is not None}


@lru_cache(maxsize=64)
def _recipe(kind: str, options: tuple[tuple[str, Any], ...]) -> SketchRecipe:
    return SketchRecipe.of(kind, **dict(options))
