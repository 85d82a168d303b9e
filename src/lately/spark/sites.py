"""What sites keep, on an executor: read from a version of the state, changed by a batch, written to the next version.

A Python worker outlives a task, so it caches what it has read or written: the next batch often finds its sites in the cache and
does not read them. The key of an entry is its place in the state; the content of a place never changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lately.core.codec import from_trusted_bytes
from lately.core.keys import hash_keys
from lately.pipeline.plan import MonitorSpec, SketchSpec, StateSpec, WindowsSpec
from lately.pipeline.site_assignment import site_number
from lately.pipeline.state_versions import Place, StateVersions
from lately.store.byte_cache import ByteBoundedCache

#: The memory of a worker's cache, in bytes.
_CACHE_BYTES = 2**29
#: The memory of an object besides its arrays, in bytes; for a site with few rows this is most of it.
_OBJECT_BYTES = 12 * 2**10
#: How many bytes are read at a time when sites are read one after the other.
_READ_BYTES = 2**25

_cache = ByteBoundedCache[Any](_CACHE_BYTES)


def load_sites(
    versions: StateVersions, specs: Sequence[StateSpec], places: Mapping[str, Mapping[str, Place]], *, take: bool
) -> dict[str, dict[str, Any]]:
    """Return what each site keeps, by the name of the spec; every part of the state is opened once.

    A site that does not have a spec yet gets a new, empty object.

    Parameters
    ----------
    versions
        The state.
    specs
        What to load.
    places
        Where it is stored, by site and spec name.
    take
        Whether the caller changes the objects. They are removed from the cache then.
    """
    cached = _take_cached(specs, places)
    missing = [place for site in places.values() for place in _places_of(site, specs) if place not in cached]
    blobs = versions.blobs(missing)
    loaded: dict[str, dict[str, Any]] = {}
    for site, site_places in places.items():
        loaded[site] = {spec.name: _load(spec, site_places.get(spec.name), site, cached, blobs) for spec in specs}
    if not take:
        for site, site_places in places.items():
            for name, place in site_places.items():
                if name in loaded[site]:
                    remember(place, loaded[site][name])
    return loaded


def each_site(
    versions: StateVersions, specs: Sequence[StateSpec], places: Mapping[str, Mapping[str, Place]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield sites with what they keep, as ``load_sites`` returns it; only some of them are in memory at a time.

    Parameters
    ----------
    versions
        The state.
    specs
        What to load. It must not be changed.
    places
        Where it is stored, by site and spec name.
    """
    names = {spec.name for spec in specs}
    group: dict[str, Mapping[str, Place]] = {}
    size = 0
    for site, site_places in places.items():
        group[site] = site_places
        size += sum(place[2] for name, place in site_places.items() if name in names)
        if size >= _READ_BYTES:
            yield from load_sites(versions, specs, group, take=False).items()
            group, size = {}, 0
    yield from load_sites(versions, specs, group, take=False).items()


def remember(place: Place, content: Any) -> None:
    """Put an object that has been read or written into the cache.

    Parameters
    ----------
    place
        Where it is stored.
    content
        The object. The caller must not change it any more.
    """
    _cache.put(place, content, max(place[2], getattr(content, "nbytes", 0)) + _OBJECT_BYTES)


def site_of(spec: MonitorSpec, site: str) -> Any:
    """Return a new site of a monitor.

    Parameters
    ----------
    spec
        The monitor.
    site
        The name of the site.
    """
    return spec.monitor.site(site_number(site), birth=int(hash_keys([f"{spec.name} {site}"])[0]))


def _places_of(site_places: Mapping[str, Place], specs: Sequence[StateSpec]) -> list[Place]:
    return [place for spec in specs if (place := site_places.get(spec.name)) is not None]


def _take_cached(specs: Sequence[StateSpec], places: Mapping[str, Mapping[str, Place]]) -> dict[Place, Any]:
    """Remove what the cache has of these sites, and return it by place."""
    contents = {place: _cache.pop(place) for site in places.values() for place in _places_of(site, specs)}
    return {place: content for place, content in contents.items() if content is not None}


def _load(spec: StateSpec, place: Place | None, site: str, cached: dict[Place, Any], blobs: Mapping[Place, bytes]) -> Any:
    if place is None:
        if isinstance(spec, MonitorSpec):
            return site_of(spec, site)
        return spec.empty_at(site) if isinstance(spec, SketchSpec) else spec.empty()
    content = cached.get(place)
    if content is None:
        return _decode(spec, blobs[place])
    # This worker may have run an earlier pipeline file with other exact queries.
    return spec.with_queries(content) if isinstance(spec, WindowsSpec) else content


def _decode(spec: StateSpec, blob: bytes) -> Any:
    if isinstance(spec, MonitorSpec):
        return spec.monitor.restore(blob, limit=2**63)
    content = from_trusted_bytes(blob)
    return spec.with_queries(content) if isinstance(spec, WindowsSpec) else content
