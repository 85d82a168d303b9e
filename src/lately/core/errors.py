"""The kinds of error that lately raises. Each has a message (what is wrong, where, which value) and a remedy (what to do)."""


class LatelyError(Exception):
    """Base class of all errors that lately raises; catch this one to catch them all.

    Parameters
    ----------
    message
        What is wrong, where (file, line, option, query), and the value.
    remedy
        What to do about it, as a sentence without a capital and without a full stop; None if the message says it all.

    >>> error = LatelyError("eps=2.0 is not between 0 and 1", remedy="give a share, such as 0.01")
    >>> error.message, error.remedy
    ('eps=2.0 is not between 0 and 1', 'give a share, such as 0.01')
    >>> print(error)
    eps=2.0 is not between 0 and 1; give a share, such as 0.01
    """

    def __init__(self, message: object = "", remedy: str | None = None) -> None:
        super().__init__(message, remedy)  # all of it, so that pickling keeps it
        self.message = str(message)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class ParameterError(LatelyError, ValueError):
    """A guarantee, window or option that cannot be built."""


class InputError(LatelyError, ValueError):
    """Keys, times or counts that cannot be taken. The whole batch was refused; nothing was applied."""


class LeaseError(LatelyError, RuntimeError):
    """Another run holds the state or the store, or has taken over. Nothing that belongs to that run was touched."""


class RangeError(LatelyError, ValueError):
    """A question about a range that the window does not hold."""


class QueryError(LatelyError, TypeError):
    """A question that this sketch gives no guarantee for."""


class MergeError(LatelyError, ValueError):
    """Sketches that cannot be merged."""


class FormatError(LatelyError, ValueError):
    """Bytes that are not a sketch of ours, or not a whole one."""
