"""The built-in aggregate functions by name."""

import functools
import operator
from collections.abc import Callable, Hashable

from lately.core.codec import Reader, Writer
from lately.exact.aggregate_function import POSITIONS, AggregateFunction, IndexPlan, WindowPositions, WindowValues
from lately.exact.algebra import Algebra
from lately.exact.column import Floats, Index
from lately.exact.order_functions import Edge, Extreme, Quantile
from lately.exact.sum_functions import Average, StandardDeviation, Sum, Variance


class Count(AggregateFunction):
    """The number of arrivals, or of values: positions and the counts of missing values answer it."""

    name = "count"
    algorithms = (POSITIONS,)
    needs_values = False
    algebra = Algebra(lambda value, tick=0: 1, operator.add, lambda state: state, 0, operator.sub)

    def index_name(self, plan: IndexPlan) -> None:
        return None

    def make_index(self, plan: IndexPlan) -> Index:
        raise AssertionError("a count needs no index")

    def evaluate(self, index: Index | None, windows: WindowPositions) -> Floats:
        return windows.counts.astype("f8")

    def index_bytes(self, number: int, size: int, digits: int) -> int:
        return 0

    def state(self, index: Index | None, window: WindowValues) -> int:
        return int(window.present.size)

    def write_state(self, out: Writer, state: int, wide: bool) -> None:
        """Nothing: the number of rows and that of missing values are stored with every state."""

    def read_state(self, source: Reader, count: int, wide: bool) -> int:
        return count


_PLAIN: dict[str, Callable[[], AggregateFunction]] = {
    "count": Count,
    "sum": Sum,
    "avg": Average,
    "min": lambda: Extreme("min", min),
    "max": lambda: Extreme("max", max),
    "first": lambda: Edge("first", 0),
    "last": lambda: Edge("last", -1),
}
_WITH_DDOF: dict[str, Callable[[int], AggregateFunction]] = {"variance": Variance, "stddev": StandardDeviation}

NAMES: tuple[Hashable, ...] = (*_PLAIN, *_WITH_DDOF, "quantile")


@functools.lru_cache(maxsize=256)
def built_in(name: str, parameter: float | None = None) -> AggregateFunction:
    """The built-in aggregate function of this name; ``ValueError`` if it does not take the parameter.

    >>> built_in("avg").algebra.of([0.1, 0.2, 0.3])
    0.2
    """
    if name in _PLAIN and parameter is None:
        return _PLAIN[name]()
    if name in _WITH_DDOF and parameter in (0, 1):
        return _WITH_DDOF[name](int(parameter))
    if name == "quantile" and parameter is not None and 0 <= parameter <= 1:
        return Quantile(parameter)
    raise ValueError(f"no aggregate function {name!r} with the parameter {parameter!r}")
