"""What one query contributes at one site."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Partial:
    """What one query found at one site, or at several."""

    state: Any  # of the aggregate's algebra; of a filter, the aggregate of each key
    rows: int
    missing: int
    covered: float
    integer: bool
