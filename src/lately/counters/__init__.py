"""Sliding-window counters, one family per file: each family is an array of independent cells.

A cell is addressed by its number and knows no key. ``add`` takes cells, stamps (unsigned 32-bit time, not decreasing) and
counts; ``since`` returns a lower bound, an estimate and an upper bound of what each cell counted since a stamp. These arrays
are for building other sketches; to count one thing, take ``lt.WindowCounter``.

>>> import numpy as np
>>> import lately as lt
>>> cells = lt.counters.Wave(cells=3, span=100, eps=0.1)
>>> cells.add(np.array([0, 2, 2], np.uint32), np.array([110, 120, 130], np.uint32))
>>> cells.since(np.array([0, 1, 2], np.uint32), 120).value.tolist()
[0, 0, 2]
"""

from lately.counters.exact import Exact
from lately.counters.exphist import ExponentialHistogram
from lately.counters.randwave import RandomizedWave
from lately.counters.wave import Wave

__all__ = ["Exact", "ExponentialHistogram", "RandomizedWave", "Wave"]
