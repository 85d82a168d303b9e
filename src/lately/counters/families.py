"""The counter families by the names that users give them."""

from collections.abc import Callable

from lately.core.arguments import check_choice, check_word
from lately.core.plan import SAMPLES, Counter, exphist_capacity, randwave_capacity
from lately.counters.base import CounterArray
from lately.counters.exact import Exact
from lately.counters.exphist import ExponentialHistogram
from lately.counters.randwave import RandomizedWave
from lately.counters.wave import Wave

#: In the order of their numbers in stored bytes: append, never reorder.
NAMES: tuple[Counter, ...] = ("wave", "exphist", "randwave", "exact", "shared")

_PLAIN: dict[str, Callable[[int, int, float], CounterArray]] = {"wave": Wave, "exphist": ExponentialHistogram, "exact": Exact}


def counter_array(
    name: str, cells: int, span: int, eps: float, *, delta: float = 0.0, samples: int = SAMPLES, salt: int | None = None
) -> CounterArray:
    """An array of counters of the family called ``name``."""
    if salt is not None:
        check_word("salt", salt)
    if name == "randwave":
        return RandomizedWave(cells, span, eps, delta, samples, salt)
    check_choice("counter", name, (*_PLAIN, "randwave"))  # shared waves need to know the rows: their sketches build them
    return _PLAIN[name](cells, span, eps)


def starting_bytes(name: str, cells: int, eps: float, delta: float, samples: int) -> int:
    """What an empty array of this family takes, to be asked before one is made from untrusted sizes."""
    if name == "randwave":
        return 120 * cells * randwave_capacity(eps, delta, samples)[1]
    return cells * (32 + (8 * exphist_capacity(eps) if name == "exphist" else 0))
