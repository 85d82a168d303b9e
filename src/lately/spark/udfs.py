"""The Python functions that executors run for the SQL functions of ``functions.py``, and the options that those take.

Scalar functions call ``answers.py``. Aggregates and table functions build sketches from the columns of a batch.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lately.core.errors import InputError, ParameterError
from lately.ingest.merging import merge
from lately.pipeline.sketch_recipe import SketchRecipe
from lately.sketches.ecm import EcmSketch
from lately.sketches.quantiles import Quantiles
from lately.sketches.topk import TopK
from lately.spark import answers
from lately.spark.partials import Partials

_arrow_udf: Callable[..., Any] = F.arrow_udf  # type: ignore[attr-defined]  # since 4.1, and missing from the stubs of 4.3

_COUNT = "struct<value: bigint, low: bigint, high: bigint, confidence: double>"
_NUMBER = "struct<value: double, low: double, high: double, confidence: double>"
_KEY_COUNT = "struct<key: string, value: bigint, low: bigint, high: bigint, confidence: double>"
_INFO = "struct<class: string, window: string, arrivals: bigint, merges: bigint, nbytes: bigint>"

#: The query and the result type of each function of a sketch.
SCALARS: dict[str, tuple[Callable[..., Any], str]] = {
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
_CLASSES = {"ecm": EcmSketch, "topk": TopK, "quantiles": Quantiles}
#: The parameters of each kind of sketch.
OPTIONS = {kind: tuple(inspect.signature(sketch_class).parameters) for kind, sketch_class in _CLASSES.items()}
#: The required parameters of each kind, with an example in SQL.
REQUIRED = {
    "ecm": {"window": "'1 hour'", "eps": "0.01", "delta": "0.01"},
    "topk": {"window": "'1 hour'", "eps": "0.01", "delta": "0.01"},
    "quantiles": {"window": "'1 hour'", "eps": "0.01", "lo": "0", "hi": "60", "resolution": "0.001"},
}


def scalar(name: str) -> Any:
    """Return the Spark function that queries a column of sketches.

    Parameters
    ----------
    name
        A name in ``SCALARS``.
    """
    query, result_type = SCALARS[name]

    def function(*columns: pa.Array, **named: pa.Array) -> pa.Array:
        return query(*columns, **named)

    function.__name__ = name
    return _arrow_udf(function, result_type)


def union_aggregate(name: str) -> Any:
    """Return the Spark aggregate that merges sketches.

    Parameters
    ----------
    name
        The name that it has in query plans.
    """

    def merge_all(sketch: pa.Array) -> bytes:
        # None becomes NULL; Spark infers from the annotation that this is an aggregate, so it cannot be Optional.
        return union(sketch)  # type: ignore[return-value]

    merge_all.__name__ = name
    return _arrow_udf(merge_all, "binary")


def aggregate(kind: str, defaults: dict[str, Any]) -> Any:
    """Return the Spark aggregate that sketches rows.

    Parameters
    ----------
    kind
        The kind of sketch.
    defaults
        Default options, which named arguments override.
    """
    # An aggregate over an iterator of batches would not hold the whole group in memory, but for those Spark 4.3 silently drops
    # named arguments and rejects a second aggregate in the same query.
    name = f"{kind}_sketch_agg"

    def sketch_rows(key: pa.Array, ts: pa.Array, *rest: pa.Array, **named: pa.Array) -> bytes:
        count = rest[0] if rest else named.pop("count", None)
        recipe, hashed = recipe_of(kind, name, defaults, constants(name, named))
        return sketch_of(recipe, keys_for(recipe, key, bool(hashed)), ts, count)  # type: ignore[return-value]

    sketch_rows.__name__ = name
    return _arrow_udf(sketch_rows, "binary")


def partial(kind: str, defaults: dict[str, Any]) -> type:
    """Return the class of the table function that sketches the rows of every task by site.

    Parameters
    ----------
    kind
        The kind of sketch.
    defaults
        Default options, which named arguments override.
    """
    name = f"{kind}_partial"

    class Partial:
        """A table function that sketches a task's rows by site: columns site, key, ts and optionally count."""

        def __init__(self) -> None:
            self._task: Partials | None = None

        def eval(self, table: pa.RecordBatch, **named: pa.Array) -> Iterator[pa.Table]:
            recipe, hashed = recipe_of(kind, name, defaults, constants(name, named))
            site, key, ts, count = columns_of(name, table)
            if hashed is None and recipe.key_encoding == "hash" and pa.types.is_int64(key.type):
                raise ParameterError(
                    f"{name}: a bigint may be a key or the hash of one",
                    remedy="add hashed => true for xxhash64(…), hashed => false for keys",
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
    """Sketch rows; None if there are no rows.

    Parameters
    ----------
    recipe
        The sketch to build.
    keys, times, counts
        The columns of the rows, as ``Partials.add`` takes them.

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
    """Merge a column of sketches into one, ignoring NULL; None if there is no sketch.

    Parameters
    ----------
    sketches
        A binary Arrow array.
    """
    blobs = sketches.drop_null()
    if len(blobs) < 2:
        return answers.read(blobs[0]).to_bytes() if len(blobs) else None  # decoded, so that damaged bytes raise here
    made: bytes = merge([answers.read(blob) for blob in blobs]).to_bytes()
    return made


def keys_for(recipe: SketchRecipe, keys: Any, hashed: bool) -> Any:
    """Convert a column of keys to the encoding of a kind of sketch.

    Parameters
    ----------
    recipe
        The sketch that is built.
    keys
        An Arrow array.
    hashed
        Whether it holds hashes of keys.
    """
    if recipe.key_encoding == "number":
        return keys.cast(pa.float64()) if pa.types.is_decimal(keys.type) else keys
    if not hashed:
        return answers.hash_column(keys) if recipe.key_encoding == "hash" else keys
    if recipe.key_encoding != "hash":
        raise ParameterError(
            f"hashed => true with kind {recipe.kind!r}, which needs the keys themselves", remedy="leave it out"
        )
    if not pa.types.is_int64(keys.type) and not pa.types.is_null(keys.type):
        raise InputError(f"hashed => true with keys of the type {keys.type}", remedy="give xxhash64(…), or leave it out")
    return keys


def columns_of(name: str, table: Any) -> list[Any]:
    """Return the columns site, key, time and count of a table; two columns are key and time.

    Parameters
    ----------
    name
        The function that was called, for error messages.
    table
        Two to four columns.
    """
    if not 2 <= table.num_columns <= 4:
        raise ParameterError(
            f"{name} was given {table.num_columns} columns", remedy="select site, key, ts and, if rows have one, count"
        )
    columns = list(table.columns)
    if len(columns) == 3 and pa.types.is_temporal(columns[1].type):
        raise ParameterError(
            f"{name} takes {table.schema.names[1]} for the key", remedy="select site (it may be null), key, ts, count"
        )
    if len(columns) == 2:
        columns.insert(0, pa.nulls(len(columns[0]), pa.string()))
    if pa.types.is_nested(columns[0].type):
        raise InputError(
            f"{name}: the site {table.schema.names[0]} is of the type {columns[0].type}", remedy="give to_json(…) of it"
        )
    return [*columns, *([None] if len(columns) == 3 else [])]


def constants(name: str, named: dict[str, Any]) -> dict[str, Any]:
    """Return the values of named arguments in SQL, which are columns that must be constant.

    Parameters
    ----------
    name
        The function that was called, for error messages.
    named
        Columns by the names of options; upper case is accepted.

    >>> constants("ecm_sketch_agg", {"eps": pa.array([0.1, 0.1]), "WINDOW": pa.array(["1 hour", "1 hour"])})
    {'eps': 0.1, 'window': '1 hour'}
    """
    options = {}
    for option, column in named.items():
        first = column[0]
        if first.is_valid != (column.null_count == 0) or (first.is_valid and not pc.all(pc.equal(column, first)).as_py()):
            raise ParameterError(f"{name}: {option} differs from row to row", remedy="give a constant")
        options[option.lower()] = answers.python_value(first.as_py())
    return options


def recipe_of(kind: str, name: str, defaults: dict[str, Any], options: dict[str, Any]) -> tuple[SketchRecipe, bool | None]:
    """Return the sketch to build, and the option ``hashed`` (None if it was not given).

    Parameters
    ----------
    kind
        The kind of sketch.
    name
        The function that was called, for error messages.
    defaults
        Registered options; those of other kinds are ignored.
    options
        The options of the call; ParameterError if this kind does not have one of them.

    >>> recipe_of("ecm", "ecm_sketch_agg", {"window": "1h", "k": 5}, {"eps": 0.1})
    Traceback (most recent call last):
    lately.core.errors.ParameterError: ecm_sketch_agg lacks delta; give it in the query, as in delta => 0.01, or once in \
register(spark, delta=0.01)
    """
    names = (*OPTIONS[kind], "hashed")
    if unknown := [option for option in options if option not in names]:
        raise ParameterError(f"{name} has no option {unknown[0]!r}", remedy=f"the options are {', '.join(sorted(names))}")
    options = with_defaults({option: value for option, value in defaults.items() if option in names}, options)
    if kind == "topk" and not {"k", "phi"} & options.keys():
        options["k"] = 10
    if missing := {option: example for option, example in REQUIRED[kind].items() if option not in options}:
        sql = ", ".join(f"{option} => {example}" for option, example in missing.items())
        python = ", ".join(f"{option}={example}" for option, example in missing.items())
        raise ParameterError(
            f"{name} lacks {', '.join(missing)}",
            remedy=f"give it in the query, as in {sql}, or once in register(spark, {python})",
        )
    hashed = options.pop("hashed", None)
    return _recipe(kind, tuple(sorted(options.items()))), hashed


def with_defaults(defaults: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Merge options over defaults. ``k`` and ``phi`` are alternatives: each replaces a default of the other.

    Parameters
    ----------
    defaults
        Registered options.
    options
        The options of a call; those that are None are ignored.

    >>> with_defaults({"eps": 0.1, "k": 5}, {"eps": 0.2, "phi": 0.3, "tick": None})
    {'eps': 0.2, 'phi': 0.3}
    """
    replaced = ("k", "phi") if {"k", "phi"} & options.keys() else ()
    remaining = {option: value for option, value in defaults.items() if option not in replaced}
    return remaining | {option: value for option, value in options.items() if value is not None}


@lru_cache(maxsize=64)
def _recipe(kind: str, options: tuple[tuple[str, Any], ...]) -> SketchRecipe:
    return SketchRecipe.of(kind, **dict(options))
