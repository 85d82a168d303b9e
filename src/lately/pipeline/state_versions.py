"""The state of a pipeline: versions named by batch, never changed once written.

    state/000000000042.json           which blobs make up the state after batch 42
    state/parts/000000000042-….part   the blobs that batch 42 changed, one after the other
    state/seed.json                   the secret seed, from before the first batch

Batch 43 reads version 42 and writes version 43; if it runs again, it reads the same 42 and writes the same 43. A version exists
as soon as its JSON file does, which is written last, atomically, and only if there is none: of two runs that process batch 43,
one publishes its version and the other gets an error. Blobs that a batch did not change stay in their part. The live blobs of a
part with many dead bytes are copied into a new part, which bounds the dead bytes.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs

from lately.core.errors import FormatError, InputError, LeaseError
from lately.core.paths import filesystem_of, write_new, write_whole
from lately.pipeline.site_record import SiteRecord
from lately.sketches.hashing import DEFAULT_SEED

#: Versions that are kept: the newest, which the next batch reads, and two more.
KEEP = 3
#: A part is copied when more than this share of its bytes is dead.
DEAD = 1 / 6
#: Blobs at most this many bytes apart are read together, up to that many bytes: a request costs more than some unused bytes.
_GAP, _RUN = 2**16, 2**25
_FORMAT = 2
_SEED = "seed.json"
_START_OVER = "start over with another [run] checkpoint"
_RESTORE = f"restore it, or {_START_OVER}"

#: Where a blob is: part, offset, length.
Place = tuple[str, int, int]
Places = dict[str, Mapping[str, Place]]


@dataclass(frozen=True)
class StateVersion:
    """The state after a batch.

    Parameters
    ----------
    batch
        The number of the batch.
    stream
        Spark's identifier of the stream.
    plan
        ``PipelinePlan.compatibility()`` of the plan that it was written with.
    now
        The newest tick of all sites; None before the first row.
    clocks
        The newest tick of each site.
    places
        For each site: where its blobs are, by the name of their spec.
    coordinators
        Where the coordinators of monitors are, by the name of their spec.
    firing
        For each monitor: the items whose alert fires.
    stored
        The tick at which sketches were last written to the store; None for never.
    sites
        What happened to the rows of each site.
    totals
        Rows of all batches so far: counted, late, rejected.
    parts
        The size of each part, in bytes.
    """

    batch: int
    stream: str
    plan: dict[str, Any]
    now: int | None = None
    clocks: dict[str, int] = field(default_factory=dict)
    places: Places = field(default_factory=dict)
    coordinators: dict[str, Place] = field(default_factory=dict)
    firing: dict[str, list[str]] = field(default_factory=dict)
    stored: int | None = None
    sites: dict[str, SiteRecord] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)

    @property
    def live_bytes(self) -> int:
        """The size of all blobs, in bytes."""
        return sum(place[2] for place in self.all_places())

    def all_places(self) -> Iterable[Place]:
        """The places of all blobs, of sites and of coordinators."""
        for places in self.places.values():
            yield from places.values()
        yield from self.coordinators.values()


class StateVersions:
    """The versions in one directory.

    Parameters
    ----------
    path
        The directory, on any filesystem that pyarrow or fsspec supports.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fs, self._root = filesystem_of(path)
        #: The parts of versions that were read or written here; versions do not change.
        self._parts: dict[int, frozenset[str]] = {}

    # -- versions --------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create the directory; InputError if that is not possible."""
        try:
            self._fs.create_dir(f"{self._root}/parts", recursive=True)
        except OSError as error:
            raise InputError(
                f"cannot write the state to {self.path!r}: {error}", remedy="give a writable [run] checkpoint"
            ) from error

    def batches(self) -> list[int]:
        """Return the batches whose versions exist, oldest first."""
        files = self._fs.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        names = [file.base_name.removesuffix(".json") for file in files if file.base_name.endswith(".json")]
        return sorted(int(name) for name in names if name.isdigit())

    def read(self, batch: int) -> StateVersion:
        """Read the state after a batch; InputError if it is missing, FormatError if it is damaged."""
        path = f"{self._root}/{batch:012d}.json"
        try:
            with self._fs.open_input_stream(path) as source:
                content = json.loads(source.read())
            format_number = content.pop("format", None)
            version = _version_of(content) if format_number == _FORMAT else None
        except FileNotFoundError as error:
            raise InputError(
                f"the state after batch {batch} is missing from {self.path!r}, but the stream continues from there",
                remedy=_RESTORE,
            ) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"{path} is damaged: {error}", remedy=_RESTORE) from error
        if version is None:
            raise FormatError(f"{path} was written by another version of lately", remedy=f"use that version, or {_START_OVER}")
        self._parts[batch] = frozenset(version.parts)
        return version

    def seed(self) -> int:
        """Return the seed of the hash functions of the state; a new state gets a secret random one.

        It is written before the first batch, so that a batch that runs again gives the same result. Every version has it too;
        versions without one were counted with the default seed.
        """
        if batches := self.batches():
            return int(self.read(batches[-1]).plan.get("seed", DEFAULT_SEED))
        path = f"{self._root}/{_SEED}"
        if self._fs.get_file_info(path).type == fs.FileType.NotFound:
            with suppress(FileExistsError):  # if two runs start together, both use the seed of one of them
                write_new(self._fs, path, json.dumps({"format": _FORMAT, "seed": secrets.randbits(64)}).encode())
        try:
            with self._fs.open_input_stream(path) as source:
                return int(json.loads(source.read())["seed"])
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError(f"{path} is damaged: {error}", remedy=_START_OVER) from error

    def newest(self) -> int:
        """Return the newest batch whose version exists; -1 if there is none."""
        return max(self.batches(), default=-1)

    def write(self, version: StateVersion, before: Callable[[], None] | None = None) -> None:
        """Publish a version; its parts must be written already.

        Raises LeaseError if the version exists already or a newer one does: then another run has continued the stream.

        Parameters
        ----------
        version
            The version.
        before
            Called as late as possible before the version appears; it may raise to prevent that. None for nothing.
        """
        content = json.dumps({"format": _FORMAT} | _json_fields(version), separators=(",", ":")).encode()

        def last_check() -> None:
            if before is not None:
                before()
            self.refuse_behind(version.batch)

        try:
            write_new(self._fs, f"{self._root}/{version.batch:012d}.json", content, last_check)
        except FileExistsError:
            raise self._overtaken(version.batch, self.newest()) from None
        self._parts[version.batch] = frozenset(version.parts)

    def refuse_behind(self, batch: int, published: bool = False) -> None:
        """Raise LeaseError if another run has published this batch or a later one.

        Parameters
        ----------
        batch
            The batch that the calling run has reached.
        published
            Whether the calling run has published that batch itself. By default it has not.
        """
        newest = self.newest()
        if newest > batch or (newest == batch and not published):
            raise self._overtaken(batch, newest)

    def _overtaken(self, batch: int, newest: int) -> LeaseError:
        return LeaseError(
            f"another run has continued to batch {newest} of the state in {self.path!r}, while this one was at batch {batch}. "
            "This run stops and changes nothing. If there is no other run, Spark's log is older than the state",
            remedy="restore both from the same time, or use another [run] checkpoint",
        )

    def tidy(self, keep: int = KEEP) -> None:
        """Remove all but the newest versions, and the parts that none of them needs.

        Parameters
        ----------
        keep
            How many versions are kept. By default 3.
        """
        # Parts are listed first: a version that appears later needs only parts of versions that are read below, or parts that
        # are not in this list yet.
        parts = self._fs.get_file_info(fs.FileSelector(f"{self._root}/parts", allow_not_found=True))
        batches = self.batches()
        for batch in batches[:-keep]:
            self._delete(f"{self._root}/{batch:012d}.json")
        self._parts = {batch: self._parts_of(batch) for batch in batches[-keep:]}
        needed = frozenset().union(*self._parts.values())
        for part in parts:
            # Parts of later batches may belong to a run that is still processing them.
            if part.base_name not in needed and batches and _batch_of(part.base_name) <= batches[-1]:
                self._delete(part.path)

    def _parts_of(self, batch: int) -> frozenset[str]:
        """The parts that a version needs; the version is read unless this object has read or written it before."""
        if batch not in self._parts:
            self.read(batch)
        return self._parts[batch]

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.delete_file(path)

    def clear(self) -> None:
        """Remove everything."""
        self._parts = {}
        if self._fs.get_file_info(self._root).type != fs.FileType.NotFound:
            self._fs.delete_dir(self._root)

    # -- parts -----------------------------------------------------------------------------------------------------------

    def write_part(self, batch: int, blobs: Iterable[bytes]) -> tuple[str, list[tuple[int, int]]]:
        """Write blobs into a new part.

        Parameters
        ----------
        batch
            The batch that writes it.
        blobs
            The blobs, in this order.

        Returns the name of the part, and the offset and the length of each blob.
        """
        name = f"{batch:012d}-{secrets.token_hex(6)}.part"
        content, positions = [], []
        offset = 0
        for blob in blobs:
            content.append(blob)
            positions.append((offset, len(blob)))
            offset += len(blob)
        write_whole(self._fs, f"{self._root}/parts/{name}", b"".join(content))
        return name, positions

    def blobs(self, places: Iterable[Place]) -> dict[Place, bytes]:
        """Read the blobs at these places; each part is opened once."""
        by_part: dict[str, list[Place]] = {}
        for place in places:
            by_part.setdefault(place[0], []).append(place)
        blobs: dict[Place, bytes] = {}
        for part, places_in_part in by_part.items():
            try:
                with self._fs.open_input_file(f"{self._root}/parts/{part}") as source:
                    for start, size, run in _runs(places_in_part):
                        content = memoryview(source.read_at(size, start))
                        for place in run:
                            blobs[place] = bytes(content[place[1] - start : place[1] - start + place[2]])
            except FileNotFoundError as error:
                raise InputError(f"{part} is missing from the state in {self.path!r}", remedy=_RESTORE) from error
            if any(len(blobs[place]) != place[2] for place in places_in_part):
                raise FormatError(f"{part} in {self.path!r} is truncated", remedy=_RESTORE)
        return blobs

    def compacted(self, version: StateVersion) -> StateVersion:
        """Return the version with the sizes of its parts, after copying the live blobs of parts with many dead bytes."""
        live: dict[str, int] = {}
        for part, _, length in version.all_places():
            live[part] = live.get(part, 0) + length
        parts = {part: version.parts[part] for part in live}
        sparse = {part for part, size in parts.items() if live[part] < (1 - DEAD) * size}
        if not sparse:
            return _with(version, parts=parts)
        old = [place for place in version.all_places() if place[0] in sparse]
        content = self.blobs(old)
        name, positions = self.write_part(version.batch, [content[place] for place in old])
        moved = {place: (name, *position) for place, position in zip(old, positions, strict=True)}
        size = sum(place[2] for place in old)
        return _with(
            version,
            places={site: _moved(places, moved) for site, places in version.places.items()},
            coordinators=_moved(version.coordinators, moved),
            parts={part: part_size for part, part_size in parts.items() if part not in sparse} | {name: size},
        )


def _moved(places: Mapping[str, Place], moved: Mapping[Place, Place]) -> dict[str, Place]:
    return {name: moved.get(place, place) for name, place in places.items()}


def _batch_of(part: str) -> int:
    """The batch that wrote a part; -1 for a file that is not a part.

    >>> _batch_of("000000000042-0123456789ab.part"), _batch_of(".000000000042-0123456789ab.part.0f3c"), _batch_of("notes")
    (42, 42, -1)
    """
    number = part.removeprefix(".").partition("-")[0]
    return int(number) if number.isdigit() else -1


def _runs(places: Iterable[Place]) -> Iterator[tuple[int, int, list[Place]]]:
    """Groups of places of one part that are read together, because they are close; each with its start and size.

    >>> list(_runs([("a", 10, 5), ("a", 0, 10), ("a", 10**7, 3)]))
    [(0, 15, [('a', 0, 10), ('a', 10, 5)]), (10000000, 3, [('a', 10000000, 3)])]
    """
    run: list[Place] = []
    start = end = 0
    for place in sorted(places, key=lambda at: at[1]):
        if run and (place[1] > end + _GAP or place[1] + place[2] - start > _RUN):
            yield start, end - start, run
            run = []
        if not run:
            start = end = place[1]
        run.append(place)
        end = max(end, place[1] + place[2])
    if run:
        yield start, end - start, run


def _version_of(content: dict[str, Any]) -> StateVersion:
    """Make a version from JSON, in which places are lists."""
    content["places"] = {
        site: {name: tuple(place) for name, place in places.items()} for site, places in content["places"].items()
    }
    content["coordinators"] = {name: tuple(place) for name, place in content["coordinators"].items()}
    content["sites"] = {site: SiteRecord(**record) for site, record in content.get("sites", {}).items()}
    if "raised" in content:  # its name in earlier states
        content["firing"] = content.pop("raised")
    return StateVersion(**content)


def _json_fields(version: StateVersion) -> dict[str, Any]:
    """The fields of a version for JSON. Nothing is copied; ``asdict`` would copy every place of every site."""
    return version.__dict__ | {"sites": {site: record.__dict__ for site, record in version.sites.items()}}


def _with(version: StateVersion, **changes: Any) -> StateVersion:
    return StateVersion(**{name: getattr(version, name) for name in version.__dataclass_fields__} | changes)


def with_places(earlier: Places, changed: Mapping[str, Mapping[str, Place]], names: set[str]) -> Places:
    """Return the places after a batch.

    Parameters
    ----------
    earlier
        The places before the batch.
    changed
        The places that the batch has written.
    names
        The names of the specs that are still needed; other places are left out.
    """
    places = {site: _selected(site_places, names) for site, site_places in earlier.items()}
    for site, site_places in changed.items():
        places[site] = _selected({**places.get(site, {}), **site_places}, names)
    return places


def _selected(places: Mapping[str, Place], names: set[str]) -> Mapping[str, Place]:
    """The places with these names. If that is all of them, which is usual, nothing is copied."""
    return places if places.keys() <= names else {name: place for name, place in places.items() if name in names}
