"""How kernels are compiled: once per machine, cached on disk, the GIL released while they run."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit

_log = logging.getLogger("lately")
_told = False

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a loop over plain arrays with Numba; the result is cached beside the source file."""
    return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]


def helper(function: F) -> F:
    """Compile a small function that is always inlined into the kernels that call it."""
    return njit(inline="always")(function)  # type: ignore[no-any-return]


def compiled(function: F) -> F:
    """Compile a function that only this process knows, such as a user's; dividing by zero gives infinity or NaN."""
    return njit(nogil=True, error_model="numpy")(function)  # type: ignore[no-any-return]


def is_cold() -> bool:
    """Whether the first calls on this machine are still to compile the kernels."""
    if config.DISABLE_JIT:
        return False
    return not any(Path(_probe.stats.cache_path).glob("*.nbi"))  # type: ignore[attr-defined]


def tell_if_cold() -> None:
    """Say once per process, and only when nothing is cached yet, that the first calls will compile."""
    global _told
    if not _told:
        _told = True
        if is_cold():
            _log.warning("lately compiles its kernels for this machine: the first calls take some seconds, once.")


@kernel
def _probe(x: int) -> int:
    return x + 1
