"""Which algorithm a query gets, and why: a small model of what updates and lookups cost.

R-INT wherever an inverse exists. Where none does, B-INT, which all widths share; or for a width class that is looked up often
enough, L-INT, whose lookups are faster and whose updates cost more. Quantiles have B-INT-QNT.
"""

import math
from dataclasses import dataclass

from lately.core.errors import ParameterError
from lately.exact.aggregates import Aggregate

R_INT, B_INT, L_INT, B_INT_QNT, ROWS = "R-INT", "B-INT", "L-INT", "B-INT-QNT", "positions"

# Nanoseconds that `lately bench windows` measures, rounded; only their ratios matter.
_BASE_STEP = 6.0  # a lookup of B-INT, for each doubling of the width
_LANDMARK_LOOKUP = 6.0
_LANDMARK_UPDATE = 20.0  # of one width class

#: What is chosen stays until another choice would be this much better: the mix of lookups and updates is noisy.
_INERTIA = 1.5


@dataclass(frozen=True)
class Choice:
    """An algorithm and the reason for it."""

    algorithm: str
    why: str


def choose(aggregate: Aggregate, width: int, lookups: float, using: str | None, present: str | None = None) -> Choice:
    """The algorithm for windows of about ``width`` positions that are looked up ``lookups`` times per arrival.

    >>> from lately.exact import agg
    >>> choose(agg.sum("x"), 1000, 0.0, None).algorithm, choose(agg.max("x"), 1000, 0.0, None).algorithm
    ('R-INT', 'B-INT')
    >>> choose(agg.max("x"), 1000, 10.0, None).algorithm
    'L-INT'
    """
    possible = algorithms(aggregate)
    if using is not None:
        if using not in possible:
            raise ParameterError(f"using={using!r} for {aggregate}; it can use {' or '.join(possible)}")
        return Choice(using, "as asked")
    if possible[0] == ROWS:
        return Choice(ROWS, "arrivals are numbered")
    if possible[0] == R_INT:
        return Choice(R_INT, "it has an inverse")
    if possible[0] == B_INT_QNT:
        return Choice(B_INT_QNT, "quantiles need sorted runs")
    base = lookups * _BASE_STEP * math.log2(max(width, 2))
    landmarks = lookups * _LANDMARK_LOOKUP + _LANDMARK_UPDATE
    better = base > landmarks * (1 / _INERTIA if present == L_INT else _INERTIA)
    mix = f"{lookups:.2g} lookups an arrival, {width:,} wide"
    return Choice(L_INT, f"{mix}: worth dearer updates") if better else Choice(B_INT, f"{mix}: too few for L-INT")


def algorithms(aggregate: Aggregate) -> tuple[str, ...]:
    """The algorithms that can serve an aggregate, the preferred one first."""
    if aggregate.kind == "count":
        return (ROWS,)
    if aggregate.kind == "quantile":
        return (B_INT_QNT,)
    if aggregate.algebra is not None:
        return (R_INT, B_INT, L_INT) if aggregate.algebra.inverse is not None else (B_INT, L_INT)
    if aggregate.kind in ("max", "min", "first", "last"):
        return B_INT, L_INT
    return (R_INT,)
