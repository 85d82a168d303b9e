"""The aggregates that filters on substreams can ask for, and the collective index that serves each."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lately.exact.collective import Collective
from lately.exact.collective_max import CollectiveMax
from lately.exact.substream_index import SubstreamIndex


@dataclass(frozen=True)
class FilterKind:
    """What a filter on one aggregate needs."""

    algorithm: str
    make_index: Callable[[float | None], SubstreamIndex]  # of the eps of an approximate filter, else None
    combine: Callable[[Any, Any], Any]  # the aggregates of one substream at two sites
    additive: bool = False  # adds up what is not negative; such filters may be approximate
    integer: bool = False
    ascending: bool = False  # whether answers begin with the smallest aggregate


#: By the name of the aggregate function.
FILTER_KINDS = {
    "count": FilterKind("CI-COUNT", lambda eps: Collective(weighted=False, eps=eps), operator.add, additive=True, integer=True),
    "sum": FilterKind("CI-SUM", lambda eps: Collective(weighted=True, eps=eps), operator.add, additive=True),
    "max": FilterKind("CI-MAX", lambda eps: CollectiveMax(1), max),
    "min": FilterKind("CI-MIN", lambda eps: CollectiveMax(-1), min, ascending=True),
}
