"""The options of windowed Count-Mins, and what they cost before they are built."""

import math
from dataclasses import dataclass
from typing import Any

from lately.core import plan
from lately.core.codec import Writer
from lately.ingest.shape import WindowShape


@dataclass(frozen=True, slots=True)
class WcmShape(WindowShape):
    """The options of a windowed Count-Min; only SPLITTER has ``tau`` and ``mu``, else they are 0."""

    seed: int
    tau: float
    mu: float

    @property
    def size(self) -> tuple[int, int]:
        """(width, depth)."""
        return plan.count_min_size(self.eps, self.delta)

    def write(self, out: Writer) -> None:
        WindowShape.write(self, out)
        out.u64(self.seed)
        out.f64(self.tau)
        out.f64(self.mu)


def wcm_plan(eps: float, delta: float, arrivals: int) -> list[dict[str, Any]]:
    """The most bytes that each of the four takes, Splitter with tau=0.05.

    Parameters
    ----------
    eps
        The error, as a share of the arrivals in the window.
    delta
        The probability that an answer is off by more.
    arrivals
        How many arrivals the window holds.

    >>> [(row["sketch"], row["bytes"]) for row in wcm_plan(0.1, 0.5, 50_000)][1:]
    [('SimpleCountMin', 1184), ('ProportionalCountMin', 1856), ('SplitterCountMin', 50224)]
    """
    width, depth = plan.count_min_size(eps, delta)
    cells = width * depth
    total = plan.counter_bytes("wave", eps / 2, 0.0, arrivals, 1)
    pieces = 1 << (cells * 2 + math.ceil(cells / 0.05) - 1).bit_length()  # two a cell and all splits; room doubles
    sizes = {
        "PerfectCountMin": depth * plan.counter_bytes("exact", eps, 0.0, arrivals, 1),
        "SimpleCountMin": 12 * cells,
        "ProportionalCountMin": 36 * cells,
        "SplitterCountMin": 8 * cells + 48 * pieces,
    }
    shape = {"eps": eps, "delta": delta, "width": width, "depth": depth, "arrivals": arrivals}
    return [{"sketch": name, **shape, "bytes": size + total} for name, size in sizes.items()]
