"""The operations of B-INT, L-INT and R-INT on states: lift a value, combine two neighbours, lower the result.

The loops of these algorithms are written once, over the functions ``lift``, ``combine``, ``lower``, ``load`` and ``store`` of
this file, which know the built-in operations by a code. For a user's aggregate, ``UserOperation.bind`` compiles the same loops
again with the user's functions in their place, or runs them as plain Python where Numba cannot compile those.
"""

import logging
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from numba import config
from numba.core.errors import NumbaError

from lately.core.errors import InputError
from lately.core.jit import compiled, helper
from lately.exact.algebra import Algebra
from lately.exact.wide import refuse_wide

_log = logging.getLogger("lately")

MAX, MIN, FIRST, LAST = range(4)

#: The built-in operations by the name of their aggregate.
CODES = {"max": MAX, "min": MIN, "first": FIRST, "last": LAST}


# A built-in state is one number of the column, a float or a pair of them (``wide.py``; the compiler knows that the second part
# of a float is 0, so it costs nothing). NaN is the state of no value, so missing values need no special case.


@helper
def lift(code: Any, value: Any) -> Any:
    """The state of one value."""
    return value


@helper
def combine(code: Any, a: Any, b: Any) -> Any:
    """The state of a and of b that follows it."""
    if code == MAX:
        return b if b.real > a.real or a != a or (b.real == a.real and b.imag > a.imag) else a
    if code == MIN:
        return b if b.real < a.real or a != a or (b.real == a.real and b.imag < a.imag) else a
    if code == FIRST:
        return a if a == a else b
    return b if b == b else a


@helper
def lower(code: Any, state: Any) -> Any:
    """The answer of a state."""
    return state


@helper
def nothing(code: Any) -> Any:
    """The state of no value."""
    return np.nan


@helper
def inverse(total: Any, part: Any) -> Any:
    """A state without its older part."""
    return total - part


@helper
def usable(state: Any) -> Any:
    """Whether a state that an inverse gave is valid: no part is infinite or undefined."""
    return state - state == 0.0


@helper
def load(states: Any, slot: Any) -> Any:
    """Read a state from an array of states."""
    return states[slot]


@helper
def store(states: Any, slot: Any, state: Any) -> None:
    """Write a state into an array of states."""
    states[slot] = state


class Operation:
    """A built-in operation: the compiled loops with its code."""

    def __init__(self, code: int) -> None:
        self.code = code

    #: How it runs, for ``explain``.
    how = "compiled"

    def bind(self, loop: Callable[..., Any]) -> Callable[..., Any]:
        """A loop of B-INT, L-INT or R-INT for this operation."""
        return loop

    def room(self, size: int, like: Any = np.float64) -> Any:
        """An array of ``size`` states of a column whose values have the type ``like``."""
        return np.full(size, np.nan, like)

    def answers(self, size: int, like: Any = np.float64) -> Any:
        """An array for ``size`` lowered states of such a column."""
        return np.full(size, np.nan, like)


class UserFunctionError(Exception):
    """A function of a user's aggregate has raised an exception."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"the aggregate {name!r} fails: {error!r}")
        self.name, self.error = name, error


class UserOperation(Operation):
    """A user's operation, compiled if Numba can compile it."""

    def __init__(self, algebra: Algebra, name: str) -> None:
        super().__init__(-1)
        self.algebra, self._name = algebra, name
        self._loops: dict[Any, Callable[..., Any]] = {}
        self._width: int | None = None
        self.compiled = True
        why = self._compile(algebra)
        if why is not None:
            self.compiled, self.how = False, f"as plain Python: {why}"
            self._functions = _plain(algebra)
            _log.warning("the aggregate %r runs as plain Python, which is slow: %s", name, why)

    def _compile(self, algebra: Algebra) -> str | None:
        """Compile the user's functions; if that is impossible, return the reason."""
        if config.DISABLE_JIT:
            return "the compiler is switched off"
        try:
            identity = _as_floats(algebra.identity)
        except (TypeError, ValueError):
            return f"its states are no floats ({algebra.identity!r})"
        self._width = len(identity) if isinstance(identity, tuple) else None
        try:
            self._functions = _compiled(algebra, identity)
        except TypeError:
            return "Numba compiles functions that are written in Python, and one of its functions is not"
        try:  # one round through all of them shows whether their types fit together
            state = self._functions["lift"](-1, 1.0)
            state = self._functions["combine"](-1, state, self._functions["nothing"](-1))
            if algebra.inverse is not None:
                state = self._functions["inverse"](state, state)
            self._functions["store"](self.room(1), 0, state)
            answer = self._functions["lower"](-1, self._functions["lift"](-1, 1.0))
        except NumbaError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return f"Numba cannot compile it ({lines[min(1, len(lines) - 1)].split(', defined at')[0]})"
        except Exception:  # compiled, and it refuses the value 1.0
            return None
        return None if isinstance(answer, int | float) else f"its answers are no numbers ({answer!r})"

    def bind(self, loop: Callable[..., Any]) -> Callable[..., Any]:
        source = getattr(loop, "py_func", loop)
        if source not in self._loops:
            bound = FunctionType(source.__code__, {**source.__globals__, **self._functions}, source.__name__)
            self._loops[source] = self._guarded(compiled(bound) if self.compiled else bound)
        return self._loops[source]

    def _guarded(self, loop: Callable[..., Any]) -> Callable[..., Any]:
        """A loop whose exceptions are reported as those of the user's functions."""

        def guarded(*arguments: Any) -> Any:
            try:
                return loop(*arguments)
            except Exception as error:  # a user's function may raise anything
                raise UserFunctionError(self._name, error) from error

        return guarded

    def room(self, size: int, like: Any = np.float64) -> Any:
        if not self.compiled:
            states = np.empty(size, object)
            for slot in range(size):  # one by one: a state may look like an array
                states[slot] = self.algebra.identity
            return states
        return np.zeros(size if self._width is None else (size, self._width))

    def answers(self, size: int, like: Any = np.float64) -> Any:
        return np.full(size, np.nan) if self.compiled else np.full(size, None, object)

    def state(self, values: Any) -> Any:
        """The state of values of which none is missing."""
        return self.bind(_state)(values)

    def check(self, values: Any, name: str, column: str) -> None:
        """Reject values on which the user's functions fail, before anything changes."""
        refuse_wide(values, column, f"the aggregate {name!r}", "drop the query")
        try:
            self.state(values[values == values])
        except UserFunctionError as failure:
            raise InputError(
                f"the aggregate {name!r} fails on these values: {failure.error!r}",
                remedy="correct lift or combine, or the values",
            ) from failure.error


_OPERATIONS: dict[int, UserOperation] = {}
_MAX_OPERATIONS = 256


def user_operation(name: str, algebra: Algebra) -> UserOperation:
    """The operation of an aggregate that a user defined, compiled once in a process."""
    key = id(algebra)  # which the operation keeps alive
    if key not in _OPERATIONS:
        if len(_OPERATIONS) == _MAX_OPERATIONS:  # a notebook may define the same aggregate over and over
            del _OPERATIONS[next(iter(_OPERATIONS))]
        _OPERATIONS[key] = UserOperation(algebra, name)
    return _OPERATIONS[key]


def _state(values: Any) -> Any:
    state = nothing(-1)
    for i in range(values.size):
        state = combine(-1, state, lift(-1, values[i]))
    return state


def _as_floats(identity: Any) -> Any:
    if isinstance(identity, tuple):
        return tuple(float(part) for part in identity)
    return float(identity)


def _compiled(algebra: Algebra, identity: Any) -> dict[str, Any]:
    user_lift: Any = compiled(algebra.lift)
    user_combine: Any = compiled(algebra.combine)
    user_lower: Any = compiled(algebra.lower)
    user_inverse = None if algebra.inverse is None else compiled(algebra.inverse)
    scalar = not isinstance(identity, tuple)
    width = 1 if scalar else len(identity)

    @compiled
    def lift_present(code: Any, value: Any) -> Any:
        return user_lift(value) if value == value else identity

    @compiled
    def combine_two(code: Any, a: Any, b: Any) -> Any:
        return user_combine(a, b)

    @compiled
    def lower_one(code: Any, state: Any) -> Any:
        return user_lower(state)

    @compiled
    def no_value(code: Any) -> Any:
        return identity

    functions = {"lift": lift_present, "combine": combine_two, "lower": lower_one, "nothing": no_value, "inverse": user_inverse}
    return functions | (_scalar_access() if scalar else _tuple_access(width))


def _scalar_access() -> dict[str, Any]:
    return {
        "load": compiled(lambda states, slot: states[slot]),
        "store": compiled(_store),
        "usable": compiled(lambda state: state - state == 0.0),
    }


def _store(states: Any, slot: Any, state: Any) -> None:
    states[slot] = state


def _tuple_access(width: int) -> dict[str, Any]:
    from numba.np.unsafe.ndarray import to_fixed_tuple

    @compiled
    def load_tuple(states: Any, slot: Any) -> Any:
        return to_fixed_tuple(states[slot], width)

    @compiled
    def store_tuple(states: Any, slot: Any, state: Any) -> None:
        for i in range(width):
            states[slot, i] = state[i]

    @compiled
    def all_finite(state: Any) -> Any:
        fine = True
        for i in range(width):
            fine = fine and state[i] - state[i] == 0.0
        return fine

    return {"load": load_tuple, "store": store_tuple, "usable": all_finite}


def _plain(algebra: Algebra) -> dict[str, Any]:
    def usable(state: Any) -> bool:
        parts = state if isinstance(state, tuple) else (state,)
        return all(math.isfinite(part) for part in parts if isinstance(part, float))

    def lower_or_none(code: int, state: Any) -> Any:
        try:
            return algebra.lower(state)
        except ArithmeticError:  # where compiled code gives NaN
            return None

    def inverse_or_nan(total: Any, part: Any) -> Any:
        try:
            return algebra.inverse(total, part) if algebra.inverse is not None else math.nan
        except ArithmeticError:
            return math.nan

    return {
        "lift": lambda code, value: algebra.lift(float(value)) if value == value else algebra.identity,
        "combine": lambda code, a, b: algebra.combine(a, b),
        "lower": lower_or_none,
        "nothing": lambda code: algebra.identity,
        "inverse": inverse_or_nan,
        "load": lambda states, slot: states[slot],
        "store": _store,
        "usable": usable,
    }
