"""A cache whose size is limited in bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")

#: About the bytes that the Python objects around a small value take.
_OVERHEAD = 1_000


class ByteBoundedCache(Generic[V]):
    """Values by key, least recently used first out. Any number of threads may use it.

    Parameters
    ----------
    max_bytes
        The most bytes that all values may take together.

    >>> recent = ByteBoundedCache[str](max_bytes=10_000)
    >>> for name in "abc":
    ...     recent.put(name, name.upper(), nbytes=3_000)
    >>> [recent.get(name) for name in "abc"]
    [None, 'B', 'C']
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._used = max_bytes, 0
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> V | None:
        """The value of a key; None if it is not in the cache."""
        with self._lock:
            entry = self._values.get(key)
            if entry is None:
                return None
            self._values.move_to_end(key)
            return entry[0]

    def pop(self, key: Hashable) -> V | None:
        """Remove a value and return it; None if it is not in the cache."""
        with self._lock:
            value, nbytes = self._values.pop(key, (None, 0))
            self._used -= nbytes
            return value

    def put(self, key: Hashable, value: V, nbytes: int) -> None:
        """Add a value, and remove the least recently used ones until all fit.

        Parameters
        ----------
        key
            The key, which replaces an earlier value.
        value
            The value.
        nbytes
            The bytes that it takes. A value of more than half of the cache is not added, since it would displace most others.
        """
        nbytes += _OVERHEAD
        with self._lock:
            self._used -= self._values.pop(key, (None, 0))[1]
            if 2 * nbytes > self._max_bytes:
                return
            self._values[key] = value, nbytes
            self._used += nbytes
            while self._used > self._max_bytes:
                self._used -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self._used = 0
