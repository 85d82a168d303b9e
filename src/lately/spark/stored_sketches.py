"""Writes the sketches of all sites into the table ``sketches``, as often as the pipeline file says."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from lately.config import Config
from lately.core.times import instant_of
from lately.pipeline.plan import PipelinePlan, SketchSpec
from lately.pipeline.state_versions import StateVersion, StateVersions
from lately.store import Store
from lately.store.tables import StoredSketch, Time

#: Sketches of several sites share a file of at most about this size; a site with more has a file of its own.
_FILE_BYTES = 32 * 2**20


def store_sketches(
    config: Config, plan: PipelinePlan, store: Store, versions: StateVersions, version: StateVersion
) -> StateVersion:
    """Write the sketches of a version into the store if that is due, and return the version with that noted.

    Parameters
    ----------
    config
        The pipeline file; ``store.sketches`` is the interval in stream time, "always" or "never".
    plan
        The pipeline.
    store
        Where to write.
    versions
        The state, from which sketches are copied.
    version
        The version after the batch.
    """
    if not _is_due(config, plan, version):
        return version
    assert version.now is not None
    kinds = {spec.name: spec.recipe.kind for spec in plan.specs if isinstance(spec, SketchSpec)}
    places_of = {
        site: {name: place for name, place in places.items() if name in kinds}
        for site, places in sorted(version.places.items())
    }
    sizes = {site: sum(place[2] for place in places.values()) for site, places in places_of.items()}
    time = cast(Time, instant_of(version.now, plan.window))
    for part, sites in enumerate(_by_file(sizes)):
        blobs = versions.blobs(place for site in sites for place in places_of[site].values())
        rows = [
            StoredSketch(version.batch, time, site, name, kinds[name], blobs[place])
            for site in sites
            for name, place in places_of[site].items()
        ]
        store.put("sketches", version.batch, rows, f"{part:05d}")
    return replace(version, stored=version.now)


def _is_due(config: Config, plan: PipelinePlan, version: StateVersion) -> bool:
    interval = config.store.sketches
    if interval == "never" or version.now is None:
        return False
    return version.stored is None or interval == "always" or version.now - version.stored >= plan.window.length(interval)


def _by_file(sizes: Mapping[str, int], limit: int = _FILE_BYTES) -> Iterator[list[str]]:
    """Divide sites into groups whose sizes add up to at most ``limit``; a larger site is a group of its own.

    >>> list(_by_file({"lima": 4, "oslo": 3, "pune": 9, "rome": 1, "york": 2}, limit=8))
    [['lima', 'oslo'], ['pune'], ['rome', 'york']]
    """
    group: list[str] = []
    total = 0
    for site, size in sizes.items():
        if group and total + size > limit:
            yield group
            group, total = [], 0
        group.append(site)
        total += size
    if group:
        yield group
