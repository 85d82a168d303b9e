"""The streams that the benchmarks run on: synthetic keys and delays, or the columns ts, key and value of a Parquet file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import lately as lt
from bench.report import Options

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNIVERSE = 1_000_000
BATCH = 1_000_000
DAY = 86_400


def zipf(rows: int, *, exponent: float = 1.1, universe: int = UNIVERSE, seed: int = 7) -> Ints:
    """Integer keys 0, 1, 2, … drawn with probability proportional to 1 / (key + 1) ** exponent."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(np.arange(1, universe + 1, dtype=np.float64) ** -exponent)
    return np.searchsorted(ends, rng.random(rows) * ends[-1]).astype(np.int64)


def texts(universe: int = UNIVERSE) -> pa.Array:
    """A text of 20 bytes for each key."""
    return pa.array([f"/shop/item/{key:09d}" for key in range(universe)])


@dataclass(frozen=True)
class Stream:
    """Keys in order of arrival, as codes into their texts, and where known the second of each arrival."""

    name: str
    codes: Ints
    texts: pa.Array
    seconds: Ints | None

    def __len__(self) -> int:
        return int(self.codes.size)

    def keys(self, chosen: slice | Ints) -> pa.DictionaryArray:
        """The keys of some rows, as an Arrow column."""
        return pa.DictionaryArray.from_arrays(pa.array(self.codes[chosen], pa.int32()), self.texts)

    def batches(self, start: int = 0, stop: int | None = None) -> Iterator[slice]:
        """The rows from ``start`` to ``stop``, cut as a user would feed them."""
        stop = len(self) if stop is None else stop
        for at in range(start, stop, BATCH):
            yield slice(at, min(at + BATCH, stop))

    def exact(self, rows: slice) -> tuple[pa.Array, Ints]:
        """The distinct keys of some rows, and how often each is among them."""
        counts = np.bincount(self.codes[rows])
        (seen,) = np.nonzero(counts)
        return self.texts.take(pa.array(seen)), counts[seen]


def stream(options: Options, rows: int, quick: int) -> Stream:
    """The file that was given, or a synthetic stream; at most so many rows of it."""
    size = options.size(rows, quick)
    if options.data is not None:
        return from_parquet(options.data, size)
    universe = UNIVERSE // 10 if options.quick else UNIVERSE
    return Stream("synthetic Zipf(1.1)", zipf(size, universe=universe), texts(universe), None)


@dataclass(frozen=True)
class Numbers:
    """Numbers in order of arrival, and the second of each."""

    name: str
    values: Floats
    seconds: Ints

    def __len__(self) -> int:
        return int(self.values.size)


def numbers(options: Options, rows: int, quick: int) -> Numbers:
    """The values of the file that was given, where it has some, or synthetic delays; at most so many."""
    size = options.size(rows, quick)
    values = None if options.data is None else values_from_parquet(options.data, size)
    return delays(size) if values is None else values


def delays(rows: int, *, seed: int = 7) -> Numbers:
    """Whole minutes, as flights are late: most of them hardly, a few by hours, and some days are worse than others."""
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.integers(0, 181 * DAY, rows))
    late = rng.exponential(30.0, rows) * rng.gamma(2.0, 0.5, 181)[seconds // DAY] * (rng.random(rows) < 0.4)
    return Numbers("synthetic delays", np.rint(rng.normal(-6.0, 10.0, rows) + late), seconds)


def from_parquet(path: Path, rows: int) -> Stream:
    """The columns ts (whole seconds, or a timestamp) and key (text, bytes or integers) of a file, in its order."""
    file = _open(path)
    missing = {"ts", "key"} - set(file.schema_arrow.names)
    if missing:
        raise lt.InputError(f"{path} has no column {' and no column '.join(sorted(missing))}; give a file with ts and key")
    table = _read(file, path, rows, ["ts", "key"])
    if not table.num_rows:
        raise lt.InputError(f"{path} has no rows; give a file with some")
    if table["ts"].null_count or table["key"].null_count:
        raise lt.InputError(f"{path} has nulls in ts or key; drop those rows first")
    if pa.types.is_nested(table["key"].type):
        raise lt.InputError(f"key in {path} is of type {table['key'].type}; give text, bytes or integers")
    encoded = table["key"].combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    return Stream(path.name, codes, _as_text(encoded.dictionary), _seconds(table["ts"], path))


def values_from_parquet(path: Path, rows: int) -> Numbers | None:
    """The columns ts and value of a file without the rows that have no number, or None if no row has one."""
    file = _open(path)
    names = file.schema_arrow.names
    kind = file.schema_arrow.field("value").type if {"ts", "value"} <= set(names) else pa.null()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    table = _read(file, path, rows, ["ts", "value"])
    values = table["value"].cast(pa.float64(), safe=False).to_numpy()  # null becomes NaN
    known = np.isfinite(values)
    return Numbers(path.name, values[known], _seconds(table["ts"], path)[known]) if known.any() else None


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # the system's refusal, not Arrow's
            raise
        raise lt.InputError(f"{path} is not a Parquet file: {str(error).strip()}") from error


def _read(file: pq.ParquetFile, path: Path, rows: int, columns: list[str]) -> pa.Table:
    """The first so many rows, without reading much more of the file."""
    batches, left = [], rows
    try:
        for batch in file.iter_batches(batch_size=2**18, columns=columns):
            batches.append(batch.slice(0, left))
            left -= batches[-1].num_rows
            if left == 0:
                break
    except (pa.ArrowException, OSError) as error:
        raise lt.InputError(f"{path} cannot be read: {error}") from error
    return pa.Table.from_batches(batches, file.schema_arrow.empty_table().select(columns).schema)


def _as_text(keys: Any) -> pa.Array:
    return keys.cast(pa.string()) if pa.types.is_integer(keys.type) else keys


def _seconds(column: Any, path: Path) -> Ints:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("s", column.type.tz), safe=False).cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise lt.InputError(f"ts in {path} is of type {column.type}; give whole seconds or timestamps")
    seconds = column.to_numpy().astype(np.int64)
    if (np.diff(seconds) < 0).any():
        raise lt.InputError(f"ts in {path} runs backwards; sort the file by ts first")
    return seconds
