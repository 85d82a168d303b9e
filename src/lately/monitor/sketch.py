"""What sites sketch their streams with: ECM-sketches over a window, or Fast-AMS, over a window or over all that ever came."""

from dataclasses import dataclass
from typing import Any

from lately.core import plan
from lately.core.arguments import check_probability, check_word
from lately.core.durations import Duration, Window
from lately.core.errors import ParameterError
from lately.monitor.layout import Layout


@dataclass(frozen=True)
class Ecm:
    """ECM-sketches (ECM-15 §6): estimates are minima over rows, off by ``eps`` of all pairs of arrivals, likely 1 - ``delta``.

    A monitor's theta comes on top of eps. ``seed`` chooses the hash functions; a ``Monitor`` draws a secret one if it is None.

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
        """How a stream is laid out."""
        eps_cm, eps_sw = plan.split(self.eps, "inner")
        width, depth = plan.count_min_size(eps_cm, self.delta)
        return Layout(depth, width, _word(self.seed), False, _window_of(self.window, self.tick), eps_sw)

    def counter(self) -> Layout:
        """How what a query names beforehand is laid out: one counter of its own."""
        return Layout(1, 1, _word(self.seed), False, _window_of(self.window, self.tick), self.eps)


@dataclass(frozen=True)
class FastAms:
    """Fast-AMS sketches (GM-AMS): estimates are medians over rows. Without a ``window`` counts may also be negative.

    A monitor's theta includes eps, and must be larger. With a window half of eps is for the counters, whose error is a share
    of what collides too, as in a ``WindowedAmsSketch``. ``seed`` chooses the hash functions; a ``Monitor`` draws a secret one
    if it is None.

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
        """How a stream is laid out."""
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
    """The seed, or any number where none has been drawn yet: a monitor draws one before it lays out streams."""
    return 0 if seed is None else int(seed)


def _window_of(window: Any, tick: Any) -> Window:
    shape = Window.of(window, tick)
    if shape.kind == "arrivals":
        raise ParameterError(
            f"window={window!r}: which arrivals are the last ones over all sites no site can tell; give a window of time"
        )
    return shape
