"""Merging of counters and sketches over a window: ``merge(sites)``, and ``a | b | c``.

    inputs ──> shapes agree? ──> at one time: ──> arrivals in  ──> parts merged ──> result,
                                 the latest now   the window?      one by one       one level deeper

An input that holds nothing in the window is left out. If one input alone is left, it is copied, which costs no level.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from lately.core.arguments import check_probability
from lately.core.errors import MergeError
from lately.counters.base import MAX_COUNT, MAX_STAMP
from lately.ingest.order import ReorderBuffer
from lately.ingest.shape import RESIZED
from lately.ingest.windowed_state import S, WindowedState

#: The most levels of merging. Bounds widen with every level, and are useless long before this one.
MAX_HEIGHT = 255

#: ``a | b | c | …`` keeps up to 64 inputs of one height before it merges them; fewer, but at least 8, above 64 MiB in all.
_MOST_INPUTS, _FEWEST_INPUTS, _INPUT_BYTES = 64, 8, 2**26


class Aligned(NamedTuple):
    """Inputs of a merge at one time: those with arrivals in the window, and what to add to their stamps for a common origin."""

    now: int
    origin: int
    live_from: int  # the first stamp inside the window
    live: list[Any]
    shifts: list[int]


class Mergeable(WindowedState[S]):
    """A counter or sketch over a window that can be merged with others of its kind."""

    #: The inputs of ``|`` that are not merged yet; an instance with this attribute has no other.
    _inputs: tuple[Self, ...]

    @property
    def merges(self) -> int:
        """The levels of merging behind this state; its bounds account for them."""
        return self._parts[0].height

    def _merge(self, others: Sequence[Self], eps: float | None = None) -> Self:
        """A new instance with the arrivals of all inputs; the inputs are not modified."""
        inputs = [part for operand in (self, *others) for part in inputs_of(operand)]
        first: Self = inputs[0]
        shape = first._shape_for(inputs, eps)
        first._check_size(inputs)
        aligned = first._aligned(inputs)
        live = [] if aligned is None else aligned.live
        alone = live or [next((part for part in inputs if part._now is not None), first)]
        if len(alone) == 1 and alone[0]._shape == shape:  # nothing to replay, so it costs no level
            result: Self = alone[0].copy()
        elif aligned is None or not live:
            result = object.__new__(type(first))._begin(shape, first._new_parts(shape))
        else:
            result = first._union(aligned, shape)
        if aligned is not None:
            result._advance(aligned.now)
        result._arrived = sum(part._arrived for part in inputs)
        result._late = min(sum(part._late for part in inputs), MAX_COUNT)
        return result

    def _union(self, aligned: Aligned, shape: S) -> Self:
        """The parts of all live inputs, merged into parts of this shape."""
        now, origin, live_from, live, shifts = aligned
        inputs = [sketch._parts for sketch in live]
        if live[0]._shape != shape:  # what is merged takes after its first input
            inputs, shifts = [tuple(self._new_parts(shape)), *inputs], [0, *shifts]
        parts = [first.merged(rest, shifts, live_from) for first, *rest in zip(*inputs, strict=True)]
        result = object.__new__(type(self))._begin(shape, parts)
        result._now, result._origin = now, origin
        result._reorder_buffer = ReorderBuffer.concat([sketch._reorder_buffer for sketch in live])
        return result

    def _shape_for(self, inputs: Sequence[Any], eps: float | None) -> S:
        """The shape of what these are merged into: as fine as the finest of them, or as ``eps`` says."""
        self._must_agree(inputs[1:])
        if eps is None:
            shapes: list[S] = [sketch._shape for sketch in inputs]
            return min(shapes, key=lambda shape: (shape.before_merges(shape.eps), shape.additive))
        check_probability("eps", eps)
        if getattr(self._shape, "counter", None) not in RESIZED:
            raise MergeError(
                f"lt.merge(…, eps={eps!r}): only waves and exponential histograms can become finer or coarser by merging, and "
                + self._why_fixed(),
                remedy="leave eps out",
            )
        return replace(self._shape, counter_eps=float(eps))

    def _why_fixed(self) -> str:
        """Why its counters cannot be rebuilt, as part of a sentence."""
        counter = getattr(self._shape, "counter", None)
        if counter is None:
            return f"the sizes of a {type(self).__name__} follow from the eps that it was built with"
        if counter == "shared":
            return f"the sizes of a {type(self).__name__} of shared waves follow from the eps that it was built with"
        return "randomized waves unite without any loss" if counter == "randwave" else "exact counters have no error"

    def _check_size(self, inputs: Sequence[Self]) -> None:
        if self._window.kind == "arrivals" and len(inputs) > 1:
            raise MergeError(
                "windows of arrivals cannot be merged: which of two sites' arrivals are the last n overall is in neither "
                "sketch (ECM-15, section 5.1)",
                remedy="use a window of time, such as window='1h'",
            )
        if (arrived := sum(part._arrived for part in inputs)) > MAX_COUNT:
            raise MergeError(f"{arrived:,} arrivals in all, more than 2**62", remedy="scale the counts down")

    def _aligned(self, inputs: Sequence[Self]) -> Aligned | None:
        """The inputs at one time, if they can be merged; None if none of them has arrivals."""
        times = [sketch._now for sketch in inputs if sketch._now is not None]
        if not times:
            return None
        now = max(times)
        live = [sketch._caught_up(now) for sketch in inputs if sketch._is_live(now)]
        if len(live) > 1 and max(part.height for sketch in live for part in sketch._parts) >= MAX_HEIGHT:
            raise MergeError(
                f"more than {MAX_HEIGHT} levels of merging", remedy="merge many sketches in one call, lt.merge([...])"
            )
        origin = self._origin_for(now)
        live_from = now - self._window.span - origin
        shifts = [sketch._origin - origin for sketch in live]
        for first, *rest in zip(*(sketch._parts for sketch in live), strict=True):
            first.check_apart(rest, shifts, live_from)
        return Aligned(now, origin, live_from, live, shifts)

    def _is_live(self, now: int) -> bool:
        """Whether it may hold arrivals of the window that ends at ``now``: if not, merging it in would add nothing."""
        start = now - self._window.span
        if self._now is None or self._arrived == 0 or self._now < start:
            return False
        if self._reorder_buffer.ticks.size and self._reorder_buffer.ticks[-1] >= start:
            return True
        return bool(self._total_counter.since(np.zeros(1, np.uint32), min(max(start - self._origin, 1), MAX_STAMP)).high[0] > 0)

    def _caught_up(self, now: int) -> Self:
        """Itself, or where held-back arrivals fall due by ``now``, a copy that has counted them."""
        if not self._reorder_buffer.ticks.size or self._reorder_buffer.ticks[0] > now - self._lateness:
            return self
        twin = self.copy()
        twin._advance(now)
        return twin

    def _must_agree(self, others: Sequence[Any]) -> None:
        for other in others:
            if type(other) is not type(self):
                raise MergeError(
                    f"cannot merge a {type(self).__name__} with a {type(other).__name__}", remedy="give sketches of one class"
                )
            for field in fields(self._shape):
                if field.kw_only:  # how fine its counters are: merging replays either
                    continue
                left, right = getattr(self._shape, field.name), getattr(other._shape, field.name)
                if left != right:
                    raise MergeError(
                        f"cannot merge: {field.name} is {left!r} in one and {right!r} in another", remedy="build them alike"
                    )

    def __or__(self, other: Self) -> Self:
        """Merge two; a chain ``a | b | c | …`` is merged in one step when it is first used, as ``lt.merge`` would.

        Until the result is read, updated or stored, it keeps copies of its inputs, so that ``reduce(operator.or_, sites)``
        costs one level of merging and not one for each site. Memory is bounded: 64 inputs (8 to 64 if they take more than
        64 MiB in all) are merged into one, and 64 of those into one again. Errors are raised at once.
        """
        inputs = [*inputs_of(self), *inputs_of(other)]
        first: Self = inputs[0]
        first._must_agree(inputs[1:])
        first._check_size(inputs)
        parts = [part for sketch in inputs for part in sketch._parts]
        if max(part.height for part in parts) >= MAX_HEIGHT or any(part.shares for part in parts):
            first._aligned(inputs)  # raises where merging would
        copies = [part.copy() if part is operand else part for operand in (self, other) for part in inputs_of(operand)]
        result = object.__new__(type(first))
        result._inputs = tuple(_compacted(copies))
        return result

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The first access to an attribute of a result of ``|`` merges its inputs."""
            inputs = self.__dict__.get("_inputs")
            if inputs is None or name.startswith("__"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.__dict__.update(vars(inputs[0]._merge(inputs[1:])))
            self.__dict__.pop("_inputs", None)
            return getattr(self, name)


def inputs_of(sketch: Any) -> Sequence[Any]:
    """The inputs that a result of ``|`` still has to merge; of any other sketch, the sketch itself."""
    inputs: Sequence[Any] | None = getattr(sketch, "__dict__", {}).get("_inputs")
    return inputs or (sketch,)


def _compacted(inputs: list[Any]) -> list[Any]:
    """The inputs of ``|``; where too many have one height, those are merged into one."""
    while True:
        heights = [sketch.merges for sketch in inputs]
        for height in set(heights):
            group = [sketch for sketch in inputs if sketch.merges == height]
            if len(group) < _FEWEST_INPUTS:
                continue
            most = _INPUT_BYTES // max(sketch.nbytes for sketch in group)
            if len(group) >= min(max(most, _FEWEST_INPUTS), _MOST_INPUTS):
                inputs = [group[0]._merge(group[1:]), *(sketch for sketch in inputs if sketch.merges != height)]
                break
        else:
            return inputs


def merge(sketches: Iterable[Any], *, eps: float | None = None) -> Any:
    """Merge any number of sketches or counters of one kind into a new one.

    The result answers for the union of the streams, in time order. Its bounds are wider by one level of merging for each
    call, however many sketches are merged, and no wider if only one of them has arrivals in the window. The inputs are not
    modified.

    Parameters
    ----------
    sketches
        The sketches or counters, built with the same parameters.
    eps
        The error that the counters of the result are built with; by default that of the inputs' counters. Only for a
        ``WindowCounter``, ``EcmSketch`` or ``WindowedAmsSketch`` of waves or exponential histograms. The ``error`` of the
        result is at most e + eps + e·eps if that of the inputs is e (ECM-15 Theorem 4): a finer result adds less error, a
        coarser one is smaller.

    >>> import lately as lt
    >>> sites = [lt.WindowCounter(window="1h", eps=0.1) for _ in range(3)]
    >>> for i, site in enumerate(sites):
    ...     site.add(1000 + i, 5)
    >>> lt.merge(sites).count(last="1h")
    Estimate(15, 15..16, 100%)
    >>> lt.merge(sites).error <= 0.2101, lt.merge(sites, eps=0.01).error <= 0.1111
    (True, True)
    """
    sketches = list(sketches) if isinstance(sketches, Iterable) else [sketches]
    if not sketches:
        raise MergeError("nothing to merge", remedy="give at least one sketch")
    if not hasattr(sketches[0], "_merge"):
        raise MergeError(f"cannot merge a {type(sketches[0]).__name__}", remedy="give sketches or counters of lately")
    if eps is None:
        return sketches[0]._merge(sketches[1:])
    if not isinstance(sketches[0], Mergeable):
        raise MergeError(
            f"lt.merge(…, eps={eps!r}): a {type(sketches[0]).__name__} is merged without any loss", remedy="leave eps out"
        )
    return sketches[0]._merge(sketches[1:], eps)
