"""Reading a batch: its columns are checked, sorted by time, and rows that are too late are left out."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lately.core.columns import Ints
from lately.core.durations import Window
from lately.core.errors import InputError
from lately.core.keys import Keys, key_column
from lately.core.times import ticks_of
from lately.exact.frames import columns_of, numbers
from lately.exact.requirements import Requirements
from lately.exact.wide import Numbers
from lately.ingest.order import time_order

NEVER = -(2**62)


@dataclass
class Batch:
    """Arrivals in time order: the columns and keys that queries need, and the number of rows that were too late."""

    ticks: Ints
    columns: dict[str, Numbers]
    integer: dict[str, bool]  # which columns came as integers
    keys: dict[str, Keys]
    names: tuple[str, ...]  # of all columns in the batch
    late: int = 0


@dataclass(frozen=True)
class Stream:
    """What a batch is checked against."""

    clock: Window
    timed: bool | None  # whether the stream has times; None before it begins
    end: int  # the position that comes next
    floor: int  # the oldest tick that is not too late


def read_batch(frame: Any, times: Any, requirements: Requirements, stream: Stream) -> Batch:
    """Read the arguments of ``Windows.update``; whatever is wrong with them is an ``InputError``."""
    frame = columns_of(frame)
    if isinstance(times, str) and times in frame:
        times = frame[times]
    for name, queries in (*requirements.columns.items(), *requirements.keys.items()):
        if name not in frame:
            names, query = ", ".join(frame) or "none", next(iter(queries))
            raise InputError(
                f"the batch has no column {name!r}, which the query {query!r} needs", remedy=f"its columns: {names}"
            )
    columns = {name: numbers(frame[name], name) for name in requirements.columns}
    keys = {name: key_column(frame[name]) for name in requirements.keys}
    sizes = {name: values.size for name, (values, _) in columns.items()} | {name: len(keys[name]) for name in keys}
    ticks = _ticks(times, _size(sizes, frame, times, stream), requirements, stream)
    order = time_order(ticks, stream.floor)
    values = {name: column for name, (column, _) in columns.items()}
    batch = Batch(ticks, values, {name: integer for name, (_, integer) in columns.items()}, keys, tuple(frame))
    return batch if order is None else _select(batch, order)


def _select(batch: Batch, rows: Ints) -> Batch:
    """Keep these rows of a batch, in this order; the others are late."""
    batch.late = batch.ticks.size - rows.size
    batch.ticks = batch.ticks[rows]
    batch.columns = {name: values[rows] for name, values in batch.columns.items()}
    batch.keys = {name: keys.take(rows) for name, keys in batch.keys.items()} if rows.size else {}
    return batch


def _size(sizes: dict[str, int], frame: dict[str, Any], times: Any, stream: Stream) -> int:
    """The number of rows in a batch."""
    if len(set(sizes.values())) > 1:
        different = ", ".join(f"{name!r} has {size:,}" for name, size in sizes.items())
        raise InputError(f"columns of different lengths: {different}", remedy="give one value for each row")
    if sizes:
        size = next(iter(sizes.values()))
    elif times is not None:
        size = ticks_of(times, stream.clock).size
    elif frame:
        first = next(iter(frame.values()))
        size = 1 if np.isscalar(first) else len(first)
    else:
        raise InputError("a batch without columns and times", remedy="give at least one of them")
    if size == 0:
        raise InputError("an empty batch", remedy="skip the call, or use advance(time) to move time on")
    return size


def _ticks(times: Any, size: int, requirements: Requirements, stream: Stream) -> Ints:
    if times is None:
        if requirements.timely or stream.timed:
            timely = next(iter(requirements.timely), None)
            reason = "the stream came with times so far" if timely is None else f"the query {timely!r} has a window of time"
            raise InputError(f"no times, but {reason}", remedy="give the time of each row")
        return np.arange(stream.end, stream.end + size)
    if stream.timed is False:
        raise InputError("times given, but the stream came without so far", remedy="leave them out, or begin another Windows")
    ticks = ticks_of(times, stream.clock)
    if ticks.size == 1 and size != 1 and np.ndim(times) == 0:
        return np.full(size, ticks[0])
    if ticks.size != size:
        raise InputError(f"{size:,} rows but {ticks.size:,} times", remedy="give one time for each row, or one for all")
    return ticks
