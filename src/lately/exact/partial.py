"""The contribution of one site, or of several, to one query."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Partial:
    """The partial result of one query."""

    state: Any  # of the aggregate's algebra; of a filter, the aggregate of each key
    rows: int
    missing: int
    covered: float
    integer: bool
