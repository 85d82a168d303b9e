"""The sketches of sites on an executor: read from a version, changed by a batch, written to the next.

A Python worker lives longer than a task, so what it has read or written is kept for a while: the next batch often
finds its sites here and need not read them. What is kept is called by its place, which never changes what it holds.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from lately.core.codec import from_trusted_bytes
from lately.core.keys import hash_keys
from lately.spark.program import Kept, KeptMonitor, KeptWindows, Program, Thing
from lately.spark.versions import Place, Versions

#: Bytes of state that a worker keeps at the most.
_ROOM = 2**29

_kept: OrderedDict[Place, Any] = OrderedDict()
_taken = 0


def load(versions: Versions, thing: Thing, place: Place | None, site: str, *, take: bool) -> Any:
    """What a site has of this thing, or an empty one; ``take`` it to change it, else leave it to others."""
    if place is None:
        return site_of(thing, site) if isinstance(thing, KeptMonitor) else thing.empty()
    found = _forget(place)
    if found is None:
        found = _read(thing, versions.blobs([place])[place])
    elif isinstance(thing, KeptWindows):  # a session may have run an earlier file, with other exact queries
        found = thing.arranged(found)
    if not take:
        remember(place, found)
    return found


def load_all(
    versions: Versions, things: Iterable[Thing], places: Mapping[str, Place], site: str, *, take: bool
) -> dict[str, Any]:
    """``load`` of several things of a site, reading each part once."""
    return {thing.name: load(versions, thing, places.get(thing.name), site, take=take) for thing in things}


def remember(place: Place, thing: Any) -> None:
    """Keep something that has just been read or written."""
    global _taken
    _forget(place)
    _kept[place] = thing
    _taken += place[2]
    while _taken > _ROOM:
        _forget(next(iter(_kept)))


def _forget(place: Place) -> Any:
    global _taken
    found = _kept.pop(place, None)
    _taken -= 0 if found is None else place[2]
    return found


def _read(thing: Thing, blob: bytes) -> Any:
    if isinstance(thing, KeptMonitor):
        return thing.monitor.restore(blob, limit=2**63)
    read = from_trusted_bytes(blob)
    return thing.arranged(read) if isinstance(thing, KeptWindows) else read


def number_of(site: str) -> int:
    """A site's number in monitors: the same wherever and whenever it is asked for."""
    return int(hash_keys([site])[0] >> 32)


def site_of(thing: KeptMonitor, site: str) -> Any:
    """A new site of a monitor."""
    return thing.monitor.site(number_of(site), birth=int(hash_keys([f"{thing.name} {site}"])[0]))


def things_of(program: Program, *, monitors: bool) -> list[Thing]:
    """What sites keep: the sketches, or the sites of monitors."""
    return [thing for thing in program.kept if isinstance(thing, KeptMonitor) == monitors]


__all__ = ["Kept", "load", "load_all", "number_of", "remember", "site_of", "things_of"]
