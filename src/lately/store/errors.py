"""Errors of those who read a store."""

from collections.abc import Sequence

from lately.core.errors import InputError

#: Known names that an error message lists.
_LISTED = 5


class UnknownError(InputError):
    """A site, a query or a sketch that the store does not have.

    Parameters
    ----------
    what
        "site", "query" or "sketch".
    name
        The name that was asked for.
    known
        The names that the store has.
    """

    def __init__(self, what: str, name: object, known: Sequence[str]) -> None:
        some = ", ".join(map(repr, known[:_LISTED])) + (f" and {len(known) - _LISTED:,} more" if len(known) > _LISTED else "")
        super().__init__(
            f"the store has no {what} {name!r}", remedy=f"there are {some}" if known else f"it has no {what} at all"
        )
        self.what = what


class GoneError(InputError):
    """A version of the sketches that the store no longer has.

    Parameters
    ----------
    number
        The batch after which the sketches were stored.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"the sketches of batch {number} are no longer in the store", remedy="refresh the view, and ask again")
