"""The bytes of sites and coordinators: their envelope, and fields that several parts have. docs/format.md has the table.

Each part writes and reads itself. What the monitor defines (sizes, queries, scheme) is not stored, so only an equal ``Monitor``
can read a state; its fingerprint and seed come first. What follows from other fields is not stored either: the numbers of
windowed sketches, the limits inside counters, sums over sites.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TypeVar

import numpy as np

from lately.core.codec import OF_MONITORS, Reader, Writer, opened, sealed
from lately.core.errors import FormatError, InputError, MergeError
from lately.monitor.definition import MonitorDefinition
from lately.monitor.messages import MAX_SITES, Message
from lately.sketches.hashing import DEFAULT_SEED

SITE_FAMILY, COORDINATOR_FAMILY = OF_MONITORS
D = TypeVar("D", bound=MonitorDefinition)
S = TypeVar("S", bound=StrEnum)
T = TypeVar("T")


def state_bytes(family: int, monitor: MonitorDefinition, write: Callable[[Writer], None]) -> bytes:
    """The state that ``write`` writes, sealed with a checksum and the fingerprint and seed of its monitor."""
    out = Writer()
    out.u64(monitor.fingerprint_of_any_seed)
    out.u64(monitor.seed)
    write(out)
    return sealed(family, out)


def read_state(monitor: D, data: bytes, limit: int | None, read: Callable[[D, int, Reader], T]) -> T:
    """Open a state and have ``read`` make its object, given the monitor with the stored seed, the family, and the fields."""
    try:
        family, source = opened(data, limit)
        if family not in OF_MONITORS:
            raise FormatError(
                f"the data is of family {family}, no site or coordinator", remedy="read it with lately.from_bytes"
            )
        state = read(_with_stored_seed(monitor, source, OF_MONITORS[family]), family, source)
        source.finish()
    except FormatError as error:
        what = error.message.replace("not a sketch that lately wrote", "not a state that lately wrote")
        raise FormatError(what, remedy=error.remedy) from None
    return state


def _with_stored_seed(monitor: D, source: Reader, what: str) -> D:
    """The monitor with the stored seed; earlier versions stored only a fingerprint that depends on the seed."""
    fingerprint = source.u64()
    if fingerprint == monitor.fingerprint:
        return monitor
    remedy = "build the Monitor(…) as it was when that was stored, with the same"
    if fingerprint == monitor.fingerprint_of_any_seed:
        seed = source.u64()
        if seed == monitor.seed or monitor.has_random_seed:
            return monitor if seed == monitor.seed else monitor.with_seed(seed)
        raise MergeError(f"the data is a {what} of a monitor with another seed", remedy=f"{remedy} seed, or without one")
    if monitor.has_random_seed and fingerprint == monitor.with_seed(DEFAULT_SEED).fingerprint:
        return monitor.with_seed(DEFAULT_SEED)
    raise MergeError(
        f"the data is a {what} of another monitor than this one",
        remedy=f"{remedy} sketch, queries, streams, scheme and flush",
    )


def is_version_1(source: Reader) -> bool:
    """Whether a state is of format version 1, which had no clocks and no reorder buffers."""
    return source.version == 1


# -- fields ------------------------------------------------------------------------------------------------------------


def write_site_numbers(out: Writer, numbers: Iterable[int]) -> None:
    """Write the numbers of sites, each once, in ascending order."""
    out.integers(np.array(sorted(numbers), np.int64))


def read_site_numbers(source: Reader) -> list[int]:
    """Read what ``write_site_numbers`` wrote."""
    column = source.integers(0, MAX_SITES - 1)
    source.check(bool((np.diff(column) > 0).all()), "numbers of sites out of order")
    numbers: list[int] = column.tolist()
    return numbers


def write_enum(out: Writer, member: StrEnum) -> None:
    """Write the position of a member in its enumeration."""
    out.u8(list(type(member)).index(member))


def read_enum(source: Reader, enumeration: type[S]) -> S:
    """Read what ``write_enum`` wrote."""
    members = list(enumeration)
    return members[source.choice(*range(len(members)))]


def check_early_messages(source: Reader, messages: Iterable[Message], validate: Callable[[Message], None], number: int) -> None:
    """Check stored messages that wait for earlier ones as they were checked when they arrived."""
    for message in messages:
        source.check(message.site == number, f"a message of site {message.site} among those of site {number}")
        try:
            validate(message)
        except (InputError, MergeError) as error:
            source.check(False, str(error))
