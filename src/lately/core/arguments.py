"""Checks of arguments: one wording for one mistake, whichever class or function was given the value.

Each function returns the checked value, or raises ``ParameterError`` with the name and the value of the argument.
"""

from collections.abc import Sequence
from numbers import Real
from typing import SupportsIndex

import numpy as np

from lately.core.errors import ParameterError

#: The smallest eps and delta that sizes are computed for.
MIN_SHARE = 1e-9


def check_integer(name: str, value: object, least: int, most: int | None = None, remedy: str | None = None) -> int:
    """An integer from ``least`` to ``most``, both included; booleans are not integers.

    >>> check_integer("k", 5, 1, 10)
    5
    """
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)
    if not is_integer or not least <= value or (most is not None and value > most):  # type: ignore[operator]
        allowed = f"of at least {_text(least)}" if most is None else f"from {_text(least)} to {_text(most)}"
        raise ParameterError(f"{name}={value!r} is not an integer {allowed}", remedy=remedy)
    return int(value)  # type: ignore[call-overload, no-any-return]


def check_number(name: str, value: object, least: float, most: float, remedy: str | None = None) -> float:
    """A number from ``least`` to ``most``, both included.

    >>> check_number("mu", 2, 1, 1_000_000)
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= float(value) <= most:
        raise ParameterError(f"{name}={value!r} is not a number from {_text(least)} to {_text(most)}", remedy=remedy)
    return float(value)


def check_probability(name: str, value: object) -> float:
    """A number strictly between 0 and 1, such as an eps, a delta or a share; at least ``MIN_SHARE``.

    >>> check_probability("eps", 0.01)
    0.01
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not MIN_SHARE <= float(value) < 1:
        raise ParameterError(
            f"{name}={value!r} is not between 0 and 1 (at least {MIN_SHARE})", remedy="give a share, such as 0.01"
        )
    return float(value)


def check_word(name: str, value: object) -> int:
    """An unsigned integer of 64 bits, such as a seed or a salt.

    >>> check_word("seed", 42)
    42
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or not 0 <= int(value) < 2**64:
        raise ParameterError(f"{name}={value!r} is not an integer from 0 to 2**64 - 1")
    return int(value)


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """One of several words.

    >>> check_choice("scheme", "ship", ["functional", "ship"])
    'ship'
    """
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(f"unknown {name}={value!r}", remedy=f"give one of {', '.join(choices)}")
    return value


def _text(bound: float) -> str:
    """A bound as people write it: large powers of two as powers."""
    for power, text in ((1 << k, f"2**{k}") for k in (32, 48, 61, 62, 63, 64)):
        if bound in (power, power - 1):
            return text if bound == power else f"{text} - 1"
    return f"{bound:,}"
