"""Charts of answers with their bounds. Matplotlib draws them, and is imported only when it does."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.errors import LatelyError, ParameterError
from lately.core.estimate import Estimates

_LABEL = 32  # characters
_BAR_INCHES, _TALLEST_INCHES = 0.24, 60.0
_UNITS = ((86_400 * 10**9, "days"), (3_600 * 10**9, "hours"), (60 * 10**9, "minutes"))


def bars(labels: Any, estimates: Estimates, ax: Any = None, **style: Any) -> Any:
    """Horizontal bars, the first on top, with the bounds as error bars; ``style`` goes to Matplotlib's ``barh``.

    ``labels`` is a column with one for each estimate. Without ``ax`` a new figure is made. Returns the axes.

    >>> from matplotlib.figure import Figure
    >>> counts = Estimates(np.array([7, 9]), np.array([6, 9]), np.array([8, 9]), 1.0)
    >>> ax = bars(["/cart", "/"], counts, Figure().subplots(), color="teal")
    >>> [int(bar.get_width()) for bar in ax.patches], [text.get_text() for text in ax.get_yticklabels()]
    ([7, 9], ['/cart', '/'])
    """
    names = list(labels) if isinstance(labels, list | tuple) else np.asarray(labels, object).tolist()
    if len(names) != len(estimates):
        raise ParameterError(f"{len(names):,} labels for {len(estimates):,} estimates", remedy="give one for each")
    value, errors = _value_and_errors(estimates)
    ax = _axes(_BAR_INCHES * len(names)) if ax is None else ax
    places = np.arange(len(names))  # not the labels themselves: bars with the same label would lie on each other
    ax.barh(places, value, xerr=errors, **{"capsize": 3, **style})
    ax.set_yticks(places, [readable(name, _LABEL) for name in names], parse_math=False)  # a key may hold dollars
    ax.yaxis.set_inverted(True)
    return ax


def curve(x: Any, estimates: Estimates, ax: Any = None, **style: Any) -> Any:
    """A line over ``x`` with the bounds as error bars; ``style`` goes to Matplotlib's ``errorbar``.

    Without ``ax`` a new figure is made. Returns the axes.

    >>> from matplotlib.figure import Figure
    >>> counts = Estimates(np.array([7, 9]), np.array([6, 9]), np.array([8, 9]), 1.0)
    >>> curve([10, 20], counts, Figure().subplots()).lines[0].get_ydata().tolist()
    [7.0, 9.0]
    """
    value, errors = _value_and_errors(estimates)
    ax = _axes(0) if ax is None else ax
    ax.errorbar(x, value, yerr=errors, **{"capsize": 2, **style})
    return ax


def readable(value: Any, most: int) -> str:
    """Any value as one line of at most ``most`` characters.

    >>> readable("/cart", 8), readable("/cart/checkout", 8), readable("a\\nb", 8)
    ('/cart', '/cart/c…', "'a\\\\nb'")
    """
    text = str(value)
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def time_unit(ns: int) -> tuple[int, str]:
    """The unit in which an axis of this length reads well, in nanoseconds, and its name.

    >>> time_unit(3_600 * 10**9)
    (60000000000, 'minutes')
    """
    return next((unit for unit in _UNITS if ns >= 2 * unit[0]), (10**9, "seconds"))


def _value_and_errors(estimates: Estimates) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The values, and how far the bounds lie below and above them."""
    low, value, high = (part.astype(np.float64) for part in (estimates.low, estimates.value, estimates.high))
    # Matplotlib refuses lengths below zero, which a value outside its bounds would have.
    return value, np.maximum([value - low, high - value], 0)


def _axes(inches: float) -> Any:
    """New axes in a figure of the user's usual size, or ``inches`` high if that is more."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise LatelyError("plots need matplotlib", remedy="run pip install 'lately[plot]'") from error
    width, height = plt.rcParams["figure.figsize"]
    return plt.subplots(figsize=(width, max(height, min(inches, _TALLEST_INCHES))), layout="constrained")[1]
