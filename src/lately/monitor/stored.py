"""Sites and coordinators as bytes. docs/format.md is its table.

What a monitor says of them (sizes, queries, scheme) is not stored, so only an equal ``Monitor`` can read them; its fingerprint
goes first. What follows from other fields is not stored either: numbers from counters, limits of keys, sums over sites.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from lately.core.codec import OF_MONITORS, Reader, Writer, opened, sealed
from lately.core.errors import FormatError, InputError, MergeError
from lately.core.keys import IntegerKeys, all_hashes
from lately.core.stored_keys import read_column, write_column
from lately.counters.base import MAX_COUNT
from lately.ingest.order import ReorderBuffer
from lately.monitor.coordinator_state import SiteState
from lately.monitor.drift import Drift, WindowDrift
from lately.monitor.inbox import read_messages, write_messages
from lately.monitor.messages import Message
from lately.sketches.hashing import DEFAULT_SEED

if TYPE_CHECKING:
    from lately.monitor.coordinator import Coordinator
    from lately.monitor.monitor import Monitor
    from lately.monitor.site import Site

#: One more than the largest number that a site can have.
SITES = 2**48

_SITE, _COORDINATOR = OF_MONITORS
S = TypeVar("S", bound=StrEnum)


def site_bytes(site: "Site") -> bytes:
    """All that a site knows."""
    return _sealed(_SITE, site.monitor, lambda out: _write_site(site, out))


def coordinator_bytes(coordinator: "Coordinator") -> bytes:
    """All that a coordinator knows."""
    return _sealed(_COORDINATOR, coordinator.monitor, lambda out: _write_coordinator(coordinator, out))


def _sealed(family: int, monitor: "Monitor", write: Callable[[Writer], None]) -> bytes:
    out = Writer()
    out.u64(monitor.fingerprint_of_any_seed)
    out.u64(monitor.seed)
    write(out)
    return sealed(family, out)


def restored(monitor: "Monitor", data: bytes, limit: int | None) -> "Site | Coordinator":
    """The site or coordinator that was stored."""
    try:
        family, source = opened(data, limit)
        if family not in OF_MONITORS:
            raise FormatError(f"the data is of family {family}, no site or coordinator; read it with lately.from_bytes")
        monitor = _monitor_of(monitor, source, OF_MONITORS[family])
        read = _read_site if family == _SITE else _read_coordinator
        thing = read(monitor, source, source.version == 1)  # which had no times, and held nothing back
        source.finish()
    except FormatError as error:
        raise FormatError(str(error).replace("not a sketch that lately wrote", "not a state that lately wrote")) from None
    return thing


def _monitor_of(monitor: "Monitor", source: Reader, what: str) -> "Monitor":
    """The monitor, with the seed that is stored; earlier versions stored none, only a fingerprint that depends on it."""
    fingerprint = source.u64()
    if fingerprint == monitor.fingerprint:
        return monitor
    remedy = "build the Monitor(…) as it was when that was stored, with the same"
    if fingerprint == monitor.fingerprint_of_any_seed:
        seed = source.u64()
        if seed == monitor.seed or monitor._drawn:
            return monitor if seed == monitor.seed else monitor.with_seed(seed)
        raise MergeError(f"the data is a {what} of a monitor with another seed; {remedy} seed, or without one")
    if monitor._drawn and fingerprint == monitor.with_seed(DEFAULT_SEED).fingerprint:
        return monitor.with_seed(DEFAULT_SEED)
    raise MergeError(
        f"the data is a {what} of another monitor than this one; {remedy} sketch, queries, streams, scheme and flush"
    )


# -- sites -------------------------------------------------------------------------------------------------------------


def _write_site(site: "Site", out: Writer) -> None:
    out.varint(site.number)
    out.u64(site.birth)
    _write_member(out, site.state)
    out.u8(site._reported)
    out.f64(site._pressure)
    for number in (site._epoch, site._sequence, site._taken, site.late, site.ignored):
        out.varint(number)
    for now, held in zip(site._nows, site._reorder_buffer, strict=True):
        out.maybe(now)
        if site.monitor.lateness:
            _write_held(out, now or 0, held)
    out.i64(site._said_tick)
    out.u8(site._calls)
    out.u8(site._shown is not None)
    for numbers in site._shown or ():
        out.deltas(numbers)
    site._inbox.write(out)
    write_messages(out, site._out)
    write_drifts(out, site.drifts)
    for guard in site._guards:
        guard.write(out)
    if site._items is not None:
        site._items.write(out)


def _write_held(out: Writer, now: int, held: ReorderBuffer) -> None:
    out.integers(held.ticks - now)
    out.u64s(held.hashes)
    out.integers(held.counts)
    if held.keys is not None:
        write_column(out, held.keys)


def _read_held(source: Reader, now: int | None, monitor: "Monitor") -> ReorderBuffer:
    """What was held back of a stream."""
    ticks = source.integers(1 - monitor.lateness, 0) + (now or 0)
    hashes, counts = source.u64s(), source.integers(0, MAX_COUNT)
    source.check(ticks.size == hashes.size == counts.size, "columns of different lengths")
    source.check(bool((np.diff(ticks) >= 0).all()) and (now is not None or not ticks.size), "entries are out of order")
    source.check(float(counts.sum(dtype=np.float64)) <= MAX_COUNT, "more arrivals than can be")
    keys = None
    if monitor.holds_keys and hashes.size:
        keys = read_column(source)
        source.check(isinstance(keys, IntegerKeys) and np.array_equal(all_hashes(keys), hashes), "keys that are not held back")
    return ReorderBuffer(ticks, hashes, counts, keys)


def _hold(site: "Site", stream: int) -> None:
    """Note what a site holds back in what counts it."""
    held, keys = site._reorder_buffer[stream], site._reorder_buffer[stream].keys
    for index, mine in site.monitor.routes(stream, held.hashes, keys.values if isinstance(keys, IntegerKeys) else None):
        drift = site.drifts[index]
        assert isinstance(drift, WindowDrift)
        drift.hold(held.hashes[mine], held.counts[mine])


def _read_site(monitor: "Monitor", source: Reader, is_earlier: bool) -> "Site":
    site = monitor.site(source.within(source.varint(), 0, SITES - 1), source.u64())
    site.state = _read_member(source, site.state)
    site._reported, site._pressure = bool(source.choice(0, 1)), source.f64()
    source.check(math.isfinite(site._pressure), "a pressure that is no number")
    site._epoch, site._sequence, site._taken, site.late, site.ignored = (source.varint() for _ in range(5))
    for stream in range(len(monitor.streams)):
        site._nows[stream] = source.maybe(-(2**62), 2**62)
        if monitor.lateness and not is_earlier:
            site._reorder_buffer[stream] = _read_held(source, site._nows[stream], monitor)
    if not is_earlier:
        site._said_tick, site._calls = source.within(source.i64(), -(2**62), 2**62), source.u8()
        if source.choice(0, 1):
            site._shown = [source.deltas(layout.size) for layout in monitor.layouts]
    _check(source, site._inbox.read(source), site._check, site.number)
    site._out = read_messages(source)
    read_drifts(source, site.drifts)
    for stream, now in enumerate(site._nows):
        nows = {drift.now for i in monitor.layouts_of(stream) if isinstance(drift := site.drifts[i], WindowDrift)}
        source.check(nows <= {None, now}, "counters of another time than their stream")
        if site._reorder_buffer[stream].ticks.size:
            _hold(site, stream)
    for number, guard in enumerate(site._guards):
        guard.read(source, *monitor.about(number))
    if site._items is not None:
        site._items.read(source, is_earlier)
        drift = site.drifts[site._watched]
        if site.state != type(site.state).JOINING and isinstance(drift, WindowDrift):  # before, no limits are set
            site._items.apply(drift)
    return site


def write_drifts(out: Writer, drifts: Sequence[Drift]) -> None:
    """Write the drifts of a site."""
    for drift in drifts:
        drift.write(out)


def read_drifts(source: Reader, drifts: Sequence[Drift], before: int = 0) -> int:
    """Read what ``write_drifts`` wrote; returns how many bytes these have grown by, and those before."""
    for drift in drifts:
        drift.read(source)
        before += drift.grown
        source.fits(before)
    return before


# -- coordinators ------------------------------------------------------------------------------------------------------


def _write_coordinator(coordinator: "Coordinator", out: Writer) -> None:
    _write_member(out, coordinator.activity)
    out.u8(coordinator._changed + 2 * coordinator._blocked)
    out.varint(coordinator.epoch)
    out.varint(coordinator.ignored)
    for name in _names(coordinator):
        out.varint(coordinator.synchronisations[name])
    for numbers in (coordinator._expected, coordinator._pending, coordinator._told, coordinator._gone):
        write_numbers(out, numbers)
    write_numbers(out, coordinator._births)
    out.u64s(np.array([coordinator._births[number] for number in sorted(coordinator._births)], np.uint64))
    write_messages(out, coordinator._out)
    write_numbers(out, coordinator._peers)
    for number in sorted(coordinator._peers):
        coordinator._peers[number].write(out)
    for watched in coordinator._watched:
        watched.write(out)
    if coordinator._items is not None:
        coordinator._items.write(out)
    coordinator._write_own(out)


def _read_coordinator(monitor: "Monitor", source: Reader, is_earlier: bool) -> "Coordinator":
    coordinator = monitor.coordinator([0])  # the sites follow
    coordinator.activity = _read_member(source, coordinator.activity)
    flags = source.choice(0, 1, 2, 3)
    coordinator._changed, coordinator._blocked = bool(flags & 1), bool(flags & 2)
    coordinator.epoch, coordinator.ignored = source.varint(), source.varint()
    for name in _names(coordinator):
        if times := source.varint():
            coordinator.synchronisations[name] = times
    expected, pending, told, gone = (set(read_numbers(source)) for _ in range(4))
    coordinator._expected, coordinator._pending, coordinator._told, coordinator._gone = expected, pending, told, gone
    born, births = read_numbers(source), source.u64s()
    source.check(births.size == len(born), "births of other sites")
    coordinator._births = dict(zip(born, births.tolist(), strict=True))
    coordinator._out = read_messages(source)
    peers = read_numbers(source)
    source.fits(len(peers) * sum(8 * layout.size for layout in monitor.layouts))
    for number in peers:
        peer = coordinator._peers[number] = SiteState()
        _check(source, peer.read(source, monitor.layouts, is_earlier), coordinator._check, number)
        for total, mine in zip(coordinator._sums, peer.vectors, strict=False):  # none of those who are not here
            total += mine
    coordinator._present = sorted(number for number, peer in coordinator._peers.items() if peer.joined)
    for number, watched in enumerate(coordinator._watched):
        watched.read(source, *monitor.about(number), is_earlier)
    if is_earlier and not any(math.isnan(watched.announcement.value) for watched in coordinator._watched):
        coordinator._bound()
    if coordinator._items is not None:
        coordinator._items.read(source, is_earlier)
    coordinator._read_own(source)
    return coordinator


def _names(coordinator: "Coordinator") -> list[str]:
    """What synchronisations are counted by."""
    return [*type(coordinator.activity), "items"]


# -- fields ------------------------------------------------------------------------------------------------------------


def write_numbers(out: Writer, numbers: Iterable[int]) -> None:
    """Write the numbers of sites, each once."""
    out.integers(np.array(sorted(numbers), np.int64))


def read_numbers(source: Reader) -> list[int]:
    """Read what ``write_numbers`` wrote."""
    numbers = source.integers(0, SITES - 1)
    source.check(bool((np.diff(numbers) > 0).all()), "numbers of sites out of order")
    found: list[int] = numbers.tolist()
    return found


def _write_member(out: Writer, member: StrEnum) -> None:
    out.u8(list(type(member)).index(member))


def _read_member(source: Reader, other: S) -> S:
    members = list(type(other))
    return members[source.choice(*range(len(members)))]


def _check(source: Reader, messages: Iterable[Message], check: Callable[[Message], None], number: int) -> None:
    """Messages that wait were looked at when they came; these must have been, too."""
    for message in messages:
        source.check(message.site == number, f"a message of site {message.site} among those of site {number}")
        try:
            check(message)
        except (InputError, MergeError) as error:
            source.check(False, str(error))
