"""The state of a pipeline: versions named by batch, never changed once written.

    state/000000000042.json           which blobs make up the state after batch 42
    state/parts/000000000042-….part   the blobs that batch 42 changed, one after the other
    state/seed.json                   the secret seed, from before the first batch

Batch 43 reads version 42 and writes version 43; should it be run again, it reads the same 42 and writes the same 43. A
version is there when its JSON is, which is written last and at once. Blobs that a batch did not change stay in the part
that has them; a part most of which has been replaced is copied, so that dead bytes stay few.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyarrow import fs

from lately.core.errors import FormatError, InputError
from lately.core.paths import filesystem_of, write_whole
from lately.sketches.hashing import DEFAULT_SEED

#: Versions that are kept: the one that the next batch reads, and one to spare.
KEEP = 3
#: Parts may have this share of dead bytes before they are copied.
DEAD = 1 / 6
_FORMAT = 1
_SEED = "seed.json"

#: Where a blob is: part, offset, length.
Place = tuple[str, int, int]
Places = dict[str, dict[str, Place]]


@dataclass(frozen=True)
class Version:
    """The state after a batch."""

    batch: int
    #: Spark's name for the stream that it belongs to.
    stream: str
    #: What was kept, for a later run to compare with.
    program: dict[str, Any]
    #: The newest tick of all sites.
    now: int | None = None
    #: The newest tick of each site.
    clocks: dict[str, int] = field(default_factory=dict)
    #: Where the sketches of each site are, by their names.
    places: Places = field(default_factory=dict)
    #: Where the coordinators of monitors are, and which of them have raised their alarm.
    coordinators: dict[str, Place] = field(default_factory=dict)
    raised: dict[str, list[str]] = field(default_factory=dict)
    #: When sketches were last put into the store, as a tick.
    stored: int | None = None
    #: Rows of all batches so far: counted, late, rejected.
    totals: dict[str, int] = field(default_factory=dict)
    #: How many bytes each part has.
    parts: dict[str, int] = field(default_factory=dict)

    @property
    def live_bytes(self) -> int:
        """The bytes of all blobs."""
        return sum(place[2] for place in self.all_places())

    def all_places(self) -> Iterable[Place]:
        for places in self.places.values():
            yield from places.values()
        yield from self.coordinators.values()


class Versions:
    """The versions in one directory, on any filesystem that pyarrow or fsspec knows."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fs, self._root = filesystem_of(path)

    # -- versions --------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the directory, or say why that cannot be."""
        try:
            self._fs.create_dir(f"{self._root}/parts", recursive=True)
        except OSError as error:
            raise InputError(
                f"cannot write the state to {self.path!r}: {error}; give a [run] checkpoint that can be written to"
            ) from error

    def batches(self) -> list[int]:
        """The batches whose versions are there, oldest first."""
        found = self._fs.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        names = [one.base_name.removesuffix(".json") for one in found if one.base_name.endswith(".json")]
        return sorted(int(name) for name in names if name.isdigit())

    def read(self, batch: int) -> Version:
        """The state after a batch."""
        path = f"{self._root}/{batch:012d}.json"
        try:
            with self._fs.open_input_stream(path) as source:
                content = json.loads(source.read())
            written_by = content.pop("format", None)
            version = _version(content) if written_by == _FORMAT else None
        except FileNotFoundError as error:
            raise InputError(
                f"the state after batch {batch} is missing from {self.path!r}, but the stream goes on from there; "
                "restore it, or start anew with another [run] checkpoint"
            ) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"{path} is damaged: {error}; restore it, or start anew with another [run] checkpoint") from error
        if version is None:
            raise FormatError(f"{path} was written by another version of lately; run it with that one, or start anew")
        return version

    def seed(self) -> int:
        """The seed of the hash functions that the state was counted with; a state that begins draws a secret one.

        It is written before the first batch, so that a batch that is run again counts as it did. Every version has it too
        (those of before there were secret seeds are counted with the default).
        """
        if batches := self.batches():
            return int(self.read(batches[-1]).program.get("seed", DEFAULT_SEED))
        path = f"{self._root}/{_SEED}"
        try:
            with self._fs.open_input_stream(path) as source:
                return int(json.loads(source.read())["seed"])
        except FileNotFoundError:
            seed = secrets.randbits(64)
            write_whole(self._fs, path, json.dumps({"format": _FORMAT, "seed": seed}).encode())
            return seed
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError(f"{path} is damaged: {error}; start anew with another [run] checkpoint") from error

    def write(self, version: Version) -> None:
        """Make a version be there; its parts must be written already."""
        content = json.dumps({"format": _FORMAT} | asdict(version), separators=(",", ":"))
        write_whole(self._fs, f"{self._root}/{version.batch:012d}.json", content.encode())

    def tidy(self, keep: int = KEEP) -> None:
        """Remove versions before the newest ones, and parts that no version needs."""
        batches = self.batches()
        for batch in batches[:-keep]:
            self._fs.delete_file(f"{self._root}/{batch:012d}.json")
        needed = {part for batch in batches[-keep:] for part in self.read(batch).parts}
        for one in self._fs.get_file_info(fs.FileSelector(f"{self._root}/parts", allow_not_found=True)):
            if one.base_name not in needed:
                self._fs.delete_file(one.path)

    def clear(self) -> None:
        """Remove everything."""
        if self._fs.get_file_info(self._root).type != fs.FileType.NotFound:
            self._fs.delete_dir(self._root)

    # -- parts -----------------------------------------------------------------------------------------------------------

    def write_part(self, batch: int, blobs: Iterable[bytes]) -> tuple[str, list[tuple[int, int]]]:
        """Write blobs into a new part; returns its name and where each of them is: (offset, length)."""
        name = f"{batch:012d}-{secrets.token_hex(6)}.part"
        content, at = [], []
        offset = 0
        for blob in blobs:
            content.append(blob)
            at.append((offset, len(blob)))
            offset += len(blob)
        write_whole(self._fs, f"{self._root}/parts/{name}", b"".join(content))
        return name, at

    def blobs(self, places: Iterable[Place]) -> dict[Place, bytes]:
        """The blobs at these places; each part is opened once."""
        wanted: dict[str, list[Place]] = {}
        for place in places:
            wanted.setdefault(place[0], []).append(place)
        found: dict[Place, bytes] = {}
        for part, mine in wanted.items():
            try:
                with self._fs.open_input_file(f"{self._root}/parts/{part}") as source:
                    found |= {place: bytes(source.read_at(place[2], place[1])) for place in mine}
            except FileNotFoundError as error:
                raise InputError(
                    f"{part} is missing from the state in {self.path!r}; restore it, or use another [run] checkpoint"
                ) from error
            for place in mine:
                if len(found[place]) != place[2]:
                    raise FormatError(
                        f"{part} in {self.path!r} was cut short; restore it, or start anew with another checkpoint"
                    )
        return found

    def compacted(self, version: Version) -> Version:
        """The version with its parts told, and those that are mostly dead copied into a new one."""
        live: dict[str, int] = {}
        for part, _, length in version.all_places():
            live[part] = live.get(part, 0) + length
        parts = {part: version.parts[part] for part in live}
        sparse = {part for part, size in parts.items() if live[part] < (1 - DEAD) * size}
        if not sparse:
            return _with(version, parts=parts)
        old = [place for place in version.all_places() if place[0] in sparse]
        content = self.blobs(old)
        name, at = self.write_part(version.batch, [content[place] for place in old])
        moved = {place: (name, *where) for place, where in zip(old, at, strict=True)}
        size = sum(place[2] for place in old)
        return _with(
            version,
            places={site: {called: moved.get(at, at) for called, at in its.items()} for site, its in version.places.items()},
            coordinators={called: moved.get(at, at) for called, at in version.coordinators.items()},
            parts={part: bytes_ for part, bytes_ in parts.items() if part not in sparse} | {name: size},
        )


def _version(content: dict[str, Any]) -> Version:
    """A version as JSON has it, where tuples are lists."""
    content["places"] = {site: {name: tuple(at) for name, at in its.items()} for site, its in content["places"].items()}
    content["coordinators"] = {name: tuple(at) for name, at in content["coordinators"].items()}
    return Version(**content)


def _with(version: Version, **changes: Any) -> Version:
    return Version(**{name: getattr(version, name) for name in version.__dataclass_fields__} | changes)


def with_places(earlier: Places, changed: Mapping[str, Mapping[str, Place]], names: set[str]) -> Places:
    """The places after a batch: what it changed over what was; what no query needs any more is left out."""
    sites = dict.fromkeys([*earlier, *changed])
    both = {site: {**earlier.get(site, {}), **changed.get(site, {})} for site in sites}
    return {site: {name: place for name, place in its.items() if name in names} for site, its in both.items()}
