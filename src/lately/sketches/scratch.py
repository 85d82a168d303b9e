"""Buffers for the hashes and cells of one block, shared by all sketches of a thread."""

import threading

import numpy as np

from lately.core.keys import Hashes
from lately.counters.base import Cells
from lately.ingest.windowed import BLOCK


class _Scratch(threading.local):
    def __init__(self) -> None:
        self._hashes, self._cells = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint32)

    def __call__(self, size: int) -> tuple[Hashes, Cells]:
        """Buffers for ``size`` hashes and cells, valid until the next call."""
        if size > self._cells.size:
            self._hashes, self._cells = np.empty(size, np.uint64), np.empty(size, np.uint32)
        return self._hashes[:size], self._cells[:size]


scratch = _Scratch()
