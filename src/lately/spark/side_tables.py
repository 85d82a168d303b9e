"""Rows that a task could not count, on their way into the tables ``late`` and ``rejected``."""

from typing import Any

import numpy as np
import pyarrow as pa

from lately.store import Store

#: Rows that a task holds back before it writes them.
_ROWS = 2**16


class SideTable:
    """What one task of a batch has for a side table; ``part`` tells its files from those of other tasks."""

    def __init__(self, store: Store, table: str, batch: int, part: str) -> None:
        self._store, self._table, self._batch, self._part = store, table, batch, part
        self._rows: list[pa.Table] = []
        self._size = self._files = 0

    def add(self, columns: dict[str, Any]) -> None:
        schema = self._store.schema(self._table)
        rows = pa.table(columns | {"batch": np.full(len(columns["row"]), self._batch)})
        self._rows.append(rows.select(schema.names).cast(schema))
        self._size += rows.num_rows
        if self._size >= _ROWS:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._store.put(self._table, self._batch, pa.concat_tables(self._rows), f"{self._part}-{self._files:04d}")
            self._rows, self._size, self._files = [], 0, self._files + 1
