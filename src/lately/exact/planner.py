"""Choosing an algorithm for a query with a small model of what updates and lookups cost.

R-INT if the aggregate has an inverse. Otherwise B-INT, which windows of all widths share, or, for a width class with many
lookups, L-INT, whose lookups are faster and whose updates cost more. Quantiles use B-INT-QNT.
"""

import math
from dataclasses import dataclass

from lately.core.errors import ParameterError
from lately.exact.aggregate_function import B_INT, B_INT_QNT, L_INT, POSITIONS, R_INT
from lately.exact.aggregates import Aggregate

_ONLY = {POSITIONS: "arrivals are numbered", R_INT: "it has an inverse", B_INT_QNT: "quantiles need sorted runs"}

# Nanoseconds that `lately bench windows` measures, rounded; only their ratios matter.
_BASE_STEP = 6.0  # a lookup of B-INT, for each doubling of the width
_LANDMARK_LOOKUP = 6.0
_LANDMARK_UPDATE = 20.0  # of one width class

#: A choice changes only if another one is better by this factor, because the mix of lookups and updates is noisy.
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
    possible = aggregate.function.algorithms
    if using is not None:
        if using not in possible:
            raise ParameterError(f"using={using!r} for {aggregate}", remedy=f"it can use {' or '.join(possible)}")
        return Choice(using, "as requested")
    if possible[0] in _ONLY:
        return Choice(possible[0], _ONLY[possible[0]])
    base = lookups * _BASE_STEP * math.log2(max(width, 2))
    landmarks = lookups * _LANDMARK_LOOKUP + _LANDMARK_UPDATE
    better = base > landmarks * (1 / _INERTIA if present == L_INT else _INERTIA)
    mix = f"{lookups:.2g} lookups an arrival, {width:,} wide"
    return Choice(L_INT, f"{mix}: worth slower updates") if better else Choice(B_INT, f"{mix}: too few for L-INT")
