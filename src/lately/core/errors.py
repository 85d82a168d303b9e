"""The few kinds of error that lately raises. Each message says what happened, with which values, and what to do."""


class LatelyError(Exception):
    """Anything that lately refuses to do; catch this one to catch them all."""


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
