"""Which messages a coordinator refuses: those that no site of its monitor could have sent."""

import math
from collections.abc import Sequence

import numpy as np

from lately.core.errors import InputError, MergeError
from lately.counters.base import MAX_COUNT, Counts
from lately.monitor import messages as m
from lately.monitor.definition import MonitorDefinition
from lately.monitor.messages import MAX_SITES, Message


def check_message(
    message: Message, monitor: MonitorDefinition, sums: Sequence[Counts], accepted: tuple[type[Message], ...]
) -> None:
    """Raise ``InputError`` or ``MergeError`` for a message that no site of this monitor could have sent.

    ``sums`` are the numbers of all sites added up, ``accepted`` the messages of the scheme besides those that are checked here.
    """
    site, layouts = message.site, monitor.layouts
    if site >= MAX_SITES:
        raise InputError(f"a message of site {site}", remedy="number sites from 0 to 2**48 - 1")
    if (message.sequence == 1) != isinstance(message, m.JoinRequest):
        raise InputError(
            f"site {site} began with a {type(message).__name__}, or joined twice", remedy="carry its JoinRequest first, once"
        )
    match message:
        case m.JoinRequest():
            if message.fingerprint != monitor.fingerprint:
                raise MergeError(
                    f"site {site} was built for another monitor than this coordinator",
                    remedy="build both from one Monitor(…), or alike and with the same seed",
                )
        case m.SketchUpdate():
            _check_update(message, monitor, sums)
        case m.DriftReport():
            if message.vector.size != sum(math.prod(layout.lines) for layout in layouts):
                raise MergeError(f"site {site} reported {message.vector.size} numbers", remedy="build it like this coordinator")
        case m.SafeFunctionReport() if message.vector.size != 1:
            raise InputError(
                f"site {site} reported a safe function of {message.vector.size} numbers",
                remedy="build it like this coordinator",
            )
        case m.Events() if message.stream >= len(monitor.streams):
            raise InputError(f"site {site} sent events of stream {message.stream}", remedy="build it like this coordinator")
        case m.KeyCount() if monitor.frequent is not None:
            pass
        case _:
            if not isinstance(message, accepted):
                raise InputError(
                    f"a {type(message).__name__} came to a coordinator of scheme={monitor.scheme!r}",
                    remedy="build sites and coordinator alike",
                )


def _check_update(message: m.SketchUpdate, monitor: MonitorDefinition, sums: Sequence[Counts]) -> None:
    layouts = monitor.layouts
    sizes = [None if isinstance(change, tuple) else change.size for change in message.changes]
    if len(sizes) != len(layouts) or any(size not in (None, layout.size) for size, layout in zip(sizes, layouts, strict=True)):
        raise MergeError(
            f"site {message.site} sent an update of other streams than this coordinator has", remedy="build them alike"
        )
    for total, change in zip(sums, message.changes, strict=True):
        if isinstance(change, tuple):  # all keys may be added to one number
            largest = float(np.abs(total).max()) + float(np.abs(change[1].astype(np.float64)).sum())
        else:
            largest = float(np.abs(total + change.astype(np.float64)).max())
        if largest > MAX_COUNT:
            raise InputError(
                f"with the update of site {message.site}, a number is more than 2**62 over all sites",
                remedy="scale the counts down",
            )
