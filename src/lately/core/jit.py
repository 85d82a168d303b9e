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


def tell_if_cold(compiled: Any) -> None:
    """Say once per process, and only when nothing is cached yet, that the first calls will compile."""
    global _told
    if _told or config.DISABLE_JIT:
        return
    _told = True
    cache = Path(compiled.stats.cache_path)
    if not any(cache.glob("*.nbi")):
        _log.warning("lately compiles its kernels for this machine: the first calls take some seconds, once.")
