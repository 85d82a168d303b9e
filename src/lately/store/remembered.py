"""What was worked out lately and may be asked for again, within so many bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")

#: About the bytes that the objects around a small value take.
_OBJECTS = 1_000


class Remembered(Generic[V]):
    """Values by key, of at most ``most`` bytes together: those that nobody has asked for the longest go first.

    >>> recent = Remembered[str](most=10_000)
    >>> for name in "abc":
    ...     recent.put(name, name.upper(), cost=3_000)
    >>> [recent.get(name) for name in "abc"]
    [None, 'B', 'C']
    """

    def __init__(self, most: int) -> None:
        self._most, self._used = most, 0
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> V | None:
        """The value, if it is still remembered."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def pop(self, key: Hashable) -> V | None:
        """Remove a value and return it; None if it is not remembered."""
        with self._lock:
            value, cost = self._values.pop(key, (None, 0))
            self._used -= cost
            return value

    def put(self, key: Hashable, value: V, cost: int) -> None:
        """Remember a value that takes so many bytes; one that would push out most of the others is not worth it."""
        cost += _OBJECTS
        with self._lock:
            self._used -= self._values.pop(key, (None, 0))[1]
            if 2 * cost > self._most:
                return
            self._values[key] = value, cost
            self._used += cost
            while self._used > self._most:
                self._used -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._used = 0
