"""The sketches of sites on an executor: read from a version, changed by a batch, written to the next.

A Python worker lives longer than a task, so what it has read or written is kept for a while: the next batch often
finds its sites here and need not read them. What is kept is called by its place, which never changes what it holds.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lately.core.codec import from_trusted_bytes
from lately.core.keys import hash_keys
from lately.pipeline.plan import MonitorSpec, PipelinePlan, StateSpec, WindowsSpec
from lately.pipeline.site_assignment import site_number
from lately.pipeline.state_versions import Place, StateVersions

#: Memory that a worker spends on what it keeps, in bytes.
_ROOM = 2**29
#: What an object takes besides its arrays; of a site with few rows this is the most of it.
_OBJECT = 12 * 2**10
#: Bytes that are read at a time where sites are looked at one after the other.
_AT_ONCE = 2**25

_kept: OrderedDict[Place, tuple[Any, int]] = OrderedDict()
_taken = 0


def load_sites(
    versions: StateVersions, things: Sequence[StateSpec], places: Mapping[str, Mapping[str, Place]], *, take: bool
) -> dict[str, dict[str, Any]]:
    """What sites have of these things by name, or empty ones, reading each part once; ``take`` them to change them.

    What is not taken is left to others.
    """
    wanted = [at for its in places.values() for thing in things if (at := its.get(thing.name)) is not None and at not in _kept]
    blobs = versions.blobs(wanted)
    found: dict[str, dict[str, Any]] = {}
    for site, its in places.items():
        found[site] = {thing.name: _load(thing, its.get(thing.name), site, blobs) for thing in things}
    if not take:
        for site, its in places.items():
            for name, place in its.items():
                if name in found[site]:
                    remember(place, found[site][name])
    return found


def each_site(
    versions: StateVersions, things: Sequence[StateSpec], places: Mapping[str, Mapping[str, Place]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Sites one after the other, with what they have of these things; only some are in memory at a time."""
    names = {thing.name for thing in things}
    group: dict[str, Mapping[str, Place]] = {}
    size = 0
    for site, its in places.items():
        group[site] = its
        size += sum(at[2] for name, at in its.items() if name in names)
        if size >= _AT_ONCE:
            yield from load_sites(versions, things, group, take=False).items()
            group, size = {}, 0
    yield from load_sites(versions, things, group, take=False).items()


def _load(thing: StateSpec, place: Place | None, site: str, blobs: Mapping[Place, bytes]) -> Any:
    if place is None:
        return site_of(thing, site) if isinstance(thing, MonitorSpec) else thing.empty()
    found = _forget(place)
    if found is None:
        return _read(thing, blobs[place])
    # A session may have run an earlier file, with other exact queries.
    return thing.with_queries(found) if isinstance(thing, WindowsSpec) else found


def remember(place: Place, thing: Any) -> None:
    """Keep something that has just been read or written."""
    global _taken
    _forget(place)
    size = max(place[2], getattr(thing, "nbytes", 0)) + _OBJECT
    _kept[place] = thing, size
    _taken += size
    while _taken > _ROOM:
        _forget(next(iter(_kept)))


def _forget(place: Place) -> Any:
    global _taken
    found, size = _kept.pop(place, (None, 0))
    _taken -= size
    return found


def _read(thing: StateSpec, blob: bytes) -> Any:
    if isinstance(thing, MonitorSpec):
        return thing.monitor.restore(blob, limit=2**63)
    read = from_trusted_bytes(blob)
    return thing.with_queries(read) if isinstance(thing, WindowsSpec) else read


def site_of(thing: MonitorSpec, site: str) -> Any:
    """A new site of a monitor."""
    return thing.monitor.site(site_number(site), birth=int(hash_keys([f"{thing.name} {site}"])[0]))


def things_of(plan: PipelinePlan, *, monitors: bool) -> list[StateSpec]:
    """What sites keep: the sketches, or the sites of monitors."""
    return [thing for thing in plan.specs if isinstance(thing, MonitorSpec) == monitors]


__all__ = ["each_site", "load_sites", "remember", "site_of", "things_of"]
