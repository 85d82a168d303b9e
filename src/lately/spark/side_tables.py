"""Writes rows that a task did not count into the tables ``late`` and ``rejected``."""

from typing import Any

import numpy as np
import pyarrow as pa

from lately.store import Store

#: A task writes a file whenever it has gathered this number of rows.
_ROWS = 2**16


class SideTable:
    """The files that one task of a batch writes into a side table.

    Parameters
    ----------
    store
        The store of the pipeline.
    table
        The name of the table: "late" or "rejected".
    batch
        The number of the batch.
    part
        The prefix of the file names, different for every task of the batch.
    """

    def __init__(self, store: Store, table: str, batch: int, part: str) -> None:
        self._store, self._table, self._batch, self._part = store, table, batch, part
        self._rows: list[pa.Table] = []
        self._size = self._files = 0

    def add(self, columns: dict[str, Any]) -> None:
        """Add rows; they are written once there are enough of them, or by ``flush``.

        Parameters
        ----------
        columns
            The columns of the table except ``batch``: Arrow arrays or lists of one length.
        """
        schema = self._store.schema(self._table)
        rows = pa.table(columns | {"batch": np.full(len(columns["row"]), self._batch)})
        self._rows.append(rows.select(schema.names).cast(schema))
        self._size += rows.num_rows
        if self._size >= _ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the rows that were added since the last file."""
        if self._rows:
            self._store.put(self._table, self._batch, pa.concat_tables(self._rows), f"{self._part}-{self._files:04d}")
            self._rows, self._size, self._files = [], 0, self._files + 1
