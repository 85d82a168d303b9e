"""A batch on its way in: read, checked, put in time order, rid of what is too late. Until all is fine nothing is taken."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lately.core.columns import Ints
from lately.core.durations import Window
from lately.core.errors import InputError
from lately.core.keys import Keys, key_column
from lately.core.times import ticks_of
from lately.exact.asked import Asked
from lately.exact.frames import columns_of, numbers
from lately.exact.wide import Numbers
from lately.ingest.order import time_order

NEVER = -(2**62)


@dataclass
class Batch:
    """Arrivals in time order: the columns and keys that queries ask for, and how many others were too late."""

    ticks: Ints
    columns: dict[str, Numbers]
    integer: dict[str, bool]  # which columns came as integers
    keys: dict[str, Keys]
    names: tuple[str, ...]  # of all columns that were given
    late: int = 0


@dataclass(frozen=True)
class Stream:
    """What a batch is held against."""

    clock: Window
    timed: bool | None  # whether the stream has times; None before it begins
    end: int  # the position that comes next
    floor: int  # the oldest tick that is not too late


def read_batch(given: Any, times: Any, asked: Asked, stream: Stream) -> Batch:
    """Read a batch as a user gives it; whatever is wrong with it is an ``InputError``."""
    given = columns_of(given)
    if isinstance(times, str) and times in given:
        times = given[times]
    for name, queries in (*asked.columns.items(), *asked.keys.items()):
        if name not in given:
            have, query = ", ".join(given) or "none", next(iter(queries))
            raise InputError(f"the batch has no column {name!r}, which the query {query!r} needs; its columns: {have}")
    columns = {name: numbers(given[name], name) for name in asked.columns}
    keys = {name: key_column(given[name]) for name in asked.keys}
    sizes = {name: values.size for name, (values, _) in columns.items()} | {name: len(keys[name]) for name in keys}
    ticks = _ticks(times, _size(sizes, given, times, stream), asked, stream)
    order = time_order(ticks, stream.floor)
    values = {name: column for name, (column, _) in columns.items()}
    batch = Batch(ticks, values, {name: integer for name, (_, integer) in columns.items()}, keys, tuple(given))
    return batch if order is None else _chosen(batch, order)


def _chosen(batch: Batch, rows: Ints) -> Batch:
    """These rows of a batch, in this order; the others are late."""
    batch.late = batch.ticks.size - rows.size
    batch.ticks = batch.ticks[rows]
    batch.columns = {name: values[rows] for name, values in batch.columns.items()}
    batch.keys = {name: keys.take(rows) for name, keys in batch.keys.items()} if rows.size else {}
    return batch


def _size(sizes: dict[str, int], given: dict[str, Any], times: Any, stream: Stream) -> int:
    """How many rows a batch has."""
    if len(set(sizes.values())) > 1:
        different = ", ".join(f"{name!r} has {size:,}" for name, size in sizes.items())
        raise InputError(f"columns of different lengths: {different}; give one value for each row")
    if sizes:
        size = next(iter(sizes.values()))
    elif times is not None:
        size = ticks_of(times, stream.clock).size
    elif given:
        first = next(iter(given.values()))
        size = 1 if np.isscalar(first) else len(first)
    else:
        raise InputError("a batch without columns and times; give at least one of them")
    if size == 0:
        raise InputError("an empty batch; skip the call, or use advance(time) to let time pass")
    return size


def _ticks(times: Any, size: int, asked: Asked, stream: Stream) -> Ints:
    if times is None:
        if asked.timely or stream.timed:
            timely = next(iter(asked.timely), None)
            who = "the stream came with times so far" if timely is None else f"the query {timely!r} has a window of time"
            raise InputError(f"no times, but {who}; give the time of each row")
        return np.arange(stream.end, stream.end + size)
    if stream.timed is False:
        raise InputError("times given, but the stream came without so far; leave them out, or begin another Windows")
    ticks = ticks_of(times, stream.clock)
    if ticks.size == 1 and size != 1 and np.ndim(times) == 0:
        return np.full(size, ticks[0])
    if ticks.size != size:
        raise InputError(f"{size:,} rows but {ticks.size:,} times; give one time for each row, or one for all")
    return ticks
