"""What sites sketch their streams with: ECM-sketches over a window, or Fast-AMS sketches, with or without a window."""

from dataclasses import dataclass
from typing import Any

from lately.core import plan
from lately.core.arguments import check_probability, check_word
from lately.core.durations import Duration, Window
from lately.core.errors import ParameterError
from lately.monitor.layout import Layout


@dataclass(frozen=True)
class Ecm:
    """ECM-sketches (ECM-15 §6): estimates are minima over rows, and the window is one of time.

    A self-join or join is off by at most ``eps`` times all pairs of arrivals, with probability 1 - ``delta``. A monitor's theta
    is in addition to eps.

    Parameters
    ----------
    window
        The window: a duration such as "1h", or a number of ticks.
    eps
        The error, as a share of all pairs of arrivals, between 0 and 1.
    delta
        The probability that a larger error occurs, between 0 and 1.
    tick
        The time resolution, such as "1s"; chosen from the window by default.
    seed
        The seed of the hash functions; by default the ``Monitor`` draws a secret one.

    >>> Ecm(window="1h", eps=0.1, delta=0.1).layout().size
    90
    """

    window: Duration
    eps: float
    delta: float
    tick: Duration | None = None
    seed: int | None = None

    signed = False

    def __post_init__(self) -> None:
        check_probability("delta", self.delta)
        _check_seed(self.seed)
        plan.split(self.eps, "inner")
        _window_of(self.window, self.tick)

    def layout(self) -> Layout:
        """The layout of a stream."""
        eps_cm, eps_sw = plan.split(self.eps, "inner")
        width, depth = plan.count_min_size(eps_cm, self.delta)
        return Layout(depth, width, _word(self.seed), False, _window_of(self.window, self.tick), eps_sw)

    def counter(self) -> Layout:
        """The layout of a query with its own counter."""
        return Layout(1, 1, _word(self.seed), False, _window_of(self.window, self.tick), self.eps)


@dataclass(frozen=True)
class FastAms:
    """Fast-AMS sketches (GM-AMS): estimates are medians over rows. Without a window counts may be negative.

    A monitor's theta includes eps and must be larger. With a window half of eps is for the counters, whose error includes a
    share of what collides, as in a ``WindowedAmsSketch``.

    Parameters
    ----------
    eps
        The error, as a share of the norms of the streams, between 0 and 1.
    delta
        The probability that a larger error occurs, between 0 and 1.
    window
        The window: a duration such as "1h", or a number of ticks; by default the whole stream.
    tick
        The time resolution, such as "1s"; chosen from the window by default.
    seed
        The seed of the hash functions; by default the ``Monitor`` draws a secret one.

    >>> FastAms(eps=0.1, delta=0.01).layout().rows
    5
    """

    eps: float
    delta: float
    window: Duration | None = None
    tick: Duration | None = None
    seed: int | None = None

    signed = True

    def __post_init__(self) -> None:
        check_probability("eps", self.eps)
        check_probability("delta", self.delta)
        _check_seed(self.seed)
        if self.window is not None:
            _window_of(self.window, self.tick)

    def layout(self) -> Layout:
        """The layout of a stream."""
        if self.window is None:
            width, depth = plan.ams_size(self.eps, self.delta)
            return Layout(depth, width, _word(self.seed), True)
        eps_ams, eps_sw = plan.ams_split(self.eps)
        width, depth = plan.ams_size(eps_ams, self.delta)
        return Layout(depth, width, _word(self.seed), True, _window_of(self.window, self.tick), eps_sw)


Sketch = Ecm | FastAms


def _check_seed(seed: int | None) -> None:
    if seed is not None:
        check_word("seed", seed)


def _word(seed: int | None) -> int:
    """The seed, or 0 before a monitor has drawn one, which it does before it lays out streams."""
    return 0 if seed is None else int(seed)


def _window_of(window: Any, tick: Any) -> Window:
    shape = Window.of(window, tick)
    if shape.kind == "arrivals":
        raise ParameterError(
            f"window={window!r}: no site can know which arrivals are the last ones over all sites",
            remedy="give a window of time",
        )
    return shape
