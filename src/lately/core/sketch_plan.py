"""What an ``EcmSketch`` is made of and what it costs, before it is built: from a guarantee, or from a number of bytes."""

from dataclasses import dataclass
from typing import get_args

from lately.core.arguments import check_choice, check_integer
from lately.core.durations import Duration, Window, arrivals
from lately.core.errors import ParameterError
from lately.core.plan import (
    SAMPLES,
    Counter,
    Query,
    count_min_size,
    counter_bytes,
    deltas,
    premerge_error,
    split,
    total_error,
)
from lately.core.shared_sizes import ARRIVALS, eps_for, shared_bytes, shared_size


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sketch with a wanted guarantee is made of, and what it costs.

    Parameters
    ----------
    eps, delta
        The error that was asked for, and the probability that an answer is off by more.
    query
        What eps is promised for: "point" for counts of keys, "inner" for inner products and self-joins.
    counter
        The family of the window counters: "shared", "wave", "exphist", "randwave" or "exact".
    merge_height
        How many levels of merging are planned.
    eps_cm, eps_sw
        The error of the Count-Min array, and that of a counter before merging.
    delta_cm, delta_sw
        The failure probability of the Count-Min array, and that of a counter: 0 unless it is randomized.
    width, depth
        The cells of a row, and the rows.
    arrivals
        The largest number of arrivals in the window, for which the cost is given.
    bytes
        The most bytes that all counters will take then.

    >>> plan(0.1, 0.05, "1h", counter="wave").depth
    3
    """

    eps: float
    delta: float
    query: Query
    counter: Counter
    merge_height: int
    eps_cm: float
    eps_sw: float
    delta_cm: float
    delta_sw: float
    width: int
    depth: int
    arrivals: int
    bytes: int


def plan(
    eps: float | None,
    delta: float,
    window: Duration | arrivals,
    *,
    nbytes: int | None = None,
    tick: Duration | None = None,
    query: Query = "point",
    merge_height: int = 0,
    counter: Counter | None = None,
    arrivals: int = ARRIVALS,
    samples: int = SAMPLES,
) -> Plan:
    """What an ``EcmSketch`` with this guarantee, or of this size, will be made of, before it is built.

    ``bytes`` is the most that its counters will take while at most ``arrivals`` arrivals lie in the window (shared and
    randomized waves: very likely the most).

    Parameters
    ----------
    eps
        The error, as a share of the arrivals in the range; with ``query="inner"``, of the product of both streams' arrivals.
        None with ``nbytes``.
    delta
        The probability that an answer is off by more.
    window
        The window: a duration such as "1h", an integer if times are integers, or ``lt.arrivals(n)``.
    nbytes
        The most bytes, instead of ``eps``: the plan then has the smallest eps that they buy. None by default.
    tick
        The time resolution; by default "1s", or 1 if times are integers.
    query
        What eps is promised for: "point" (the default) for counts of keys, "inner" for inner products and self-joins.
    merge_height
        How many levels of merging are planned; 0 by default.
    counter
        The family of the window counters: "shared" (the default for counts of keys), "wave" (the default for inner products),
        "exphist", "randwave" or "exact".
    arrivals
        The largest number of arrivals in the window; 1,000,000 by default. A window of arrivals has its own.
    samples
        The constant of randomized waves: 6 by default; their proof needs 36.

    >>> p = plan(0.01, 0.01, "1h")
    >>> p.counter, p.width, p.depth, p.bytes < plan(0.01, 0.01, "1h", counter="wave").bytes / 50
    ('shared', 2153, 2, True)
    >>> p = plan(0.1, 0.05, "1h", counter="wave")
    >>> p.width, p.depth, round(p.eps_cm, 4), p.eps_sw
    (30, 3, 0.0909, 0.1)
    >>> round(plan(0.1, 0.05, "1h", merge_height=3, counter="wave").eps_sw, 4)
    0.0241
    >>> plan(None, 0.01, "1h", nbytes=100_000).eps
    0.00418
    """
    shape = Window.of(window, tick)
    family = family_for(query, counter)
    check_integer("arrivals", arrivals, 1, 2**62, remedy="give the largest number of arrivals that a window holds")
    if shape.kind == "arrivals":
        arrivals = shape.ticks
    if (eps is None) == (nbytes is None):
        raise ParameterError(f"eps={eps!r} and nbytes={nbytes!r}", remedy="give one of them")
    rest = delta, query, merge_height, family, arrivals, samples, shape.span
    if nbytes is not None:
        eps = eps_for(nbytes, lambda share: _plan(share, *rest).bytes)
    assert eps is not None
    return _plan(eps, *rest)


def family_for(query: str, counter: Counter | None) -> Counter:
    """The family of counters that was asked for, or the default for the query.

    Parameters
    ----------
    query
        What eps is promised for: "point" or "inner".
    counter
        The family that a user gave, or None.
    """
    check_choice("query", query, get_args(Query))
    family: Counter = counter or ("shared" if query == "point" else "wave")
    if family == "shared" and query != "point":
        raise ParameterError(
            f"counter='shared' with query={query!r}: shared waves promise an error of counts, not of products (Theorem 2)",
            remedy="give counter='wave' or 'exphist', or use a WindowedAmsSketch",
        )
    return family


def _plan(
    eps: float, delta: float, query: Query, merge_height: int, counter: Counter, arrivals: int, samples: int, span: int
) -> Plan:
    eps_cm, target = split(eps, query)
    eps_sw = premerge_error(target, merge_height)
    delta_cm, delta_sw = deltas(delta, counter)
    if counter == "shared":
        size = shared_size(eps, delta, merge_height)
        width, depth, eps_cm, eps_sw = size.width, size.depth, size.odds / size.width, size.eps_sw
        nbytes = shared_bytes(eps, delta, arrivals, merge_height, span)
    else:
        width, depth = count_min_size(eps_cm, delta_cm)
        size_of_cell = counter_bytes(counter, eps_sw, delta_sw, arrivals, samples)
        cells = 1 if counter == "exact" else width  # an exact row stores each arrival once, however wide it is
        total = counter_bytes("exact" if counter == "exact" else "wave", total_error(eps_sw), 0.0, arrivals, samples)
        nbytes = cells * depth * size_of_cell + total
    return Plan(
        eps, delta, query, counter, merge_height, eps_cm, eps_sw, delta_cm, delta_sw, width, depth, arrivals, nbytes
    )  # fmt: skip
