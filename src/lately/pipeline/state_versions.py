"""The state of a pipeline: versions named by batch, never changed once written.

    state/000000000042.json           which blobs make up the state after batch 42
    state/parts/000000000042-….part   the blobs that batch 42 changed, one after the other
    state/seed.json                   the secret seed, from before the first batch

Batch 43 reads version 42 and writes version 43; should it be run again, it reads the same 42 and writes the same 43. A
version is there when its JSON is, which is written last and at once, and only if there is none: of two runs that process batch
43, one publishes it and the other is refused. Blobs that a batch did not change stay in the part
that has them; a part most of which has been replaced is copied, so that dead bytes stay few.
"""

import json
import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs

from lately.core.errors import FormatError, InputError, LeaseError
from lately.core.paths import filesystem_of, write_new, write_whole
from lately.sketches.hashing import DEFAULT_SEED

#: Versions that are kept: the one that the next batch reads, and one to spare.
KEEP = 3
#: Parts may have this share of dead bytes before they are copied.
DEAD = 1 / 6
#: Blobs no farther apart than this are read at once, but no more bytes than that: a request costs more than bytes do.
_GAP, _RUN = 2**16, 2**25
_FORMAT = 2
_SEED = "seed.json"

#: Where a blob is: part, offset, length.
Place = tuple[str, int, int]
Places = dict[str, Mapping[str, Place]]


@dataclass(frozen=True)
class SiteRecord:
    """What became of a site's rows since the state began, and when; moments are microseconds since 1970."""

    counted: int = 0
    late: int = 0
    rejected: int = 0
    #: Of the rejected, those whose time was ahead of the site's other rows.
    ahead: int = 0
    #: When the batch began that last had a row of the site which counts, and one which was ahead.
    seen: int | None = None
    ahead_seen: int | None = None
    #: The longest gap between its rows, fading, in ticks.
    gap: float = 0.0

    def after(self, rows: Sequence[float], began: int) -> "SiteRecord":
        """The record after a batch that had rows of the site.

        Args:
            rows: how many counted, were late, were rejected and were ahead; and the gap.
            began: when the batch began.
        """
        counted, late, rejected, ahead = (int(number) for number in rows[:4])
        return SiteRecord(
            self.counted + counted,
            self.late + late,
            self.rejected + rejected,
            self.ahead + ahead,
            began if counted else self.seen,
            began if ahead else self.ahead_seen,
            float(rows[4]) or self.gap,
        )


@dataclass(frozen=True)
class StateVersion:
    """The state after a batch."""

    batch: int
    #: Spark's name for the stream that it belongs to.
    stream: str
    #: What was kept, for a later run to compare with.
    plan: dict[str, Any]
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
    #: What is known of the rows of each site.
    sites: dict[str, SiteRecord] = field(default_factory=dict)
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


class StateVersions:
    """The versions in one directory, on any filesystem that pyarrow or fsspec knows."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fs, self._root = filesystem_of(path)
        #: The parts of versions that were read or written here; versions do not change.
        self._parts: dict[int, frozenset[str]] = {}

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

    def read(self, batch: int) -> StateVersion:
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
        self._parts[batch] = frozenset(version.parts)
        return version

    def seed(self) -> int:
        """The seed of the hash functions that the state was counted with; a state that begins draws a secret one.

        It is written before the first batch, so that a batch that is run again counts as it did. Every version has it too
        (those of before there were secret seeds are counted with the default).
        """
        if batches := self.batches():
            return int(self.read(batches[-1]).plan.get("seed", DEFAULT_SEED))
        path = f"{self._root}/{_SEED}"
        if self._fs.get_file_info(path).type == fs.FileType.NotFound:
            with suppress(FileExistsError):  # of two runs that begin, both take what one has drawn
                write_new(self._fs, path, json.dumps({"format": _FORMAT, "seed": secrets.randbits(64)}).encode())
        try:
            with self._fs.open_input_stream(path) as source:
                return int(json.loads(source.read())["seed"])
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError(f"{path} is damaged: {error}; start anew with another [run] checkpoint") from error

    def newest(self) -> int:
        """The newest batch whose version is there; -1 if there is none."""
        return max(self.batches(), default=-1)

    def write(self, version: StateVersion, before: Callable[[], None] | None = None) -> None:
        """Publish a version; its parts must be written already.

        One that is there is not replaced, and one behind the newest is not added: another run has gone on then, and LeaseError
        says so. ``before`` is called as late as possible before the version is there, and may refuse as well.
        """
        content = json.dumps({"format": _FORMAT} | _fields(version), separators=(",", ":")).encode()

        def last_look() -> None:
            if before is not None:
                before()
            self.refuse_behind(version.batch)

        try:
            write_new(self._fs, f"{self._root}/{version.batch:012d}.json", content, last_look)
        except FileExistsError:
            raise self._gone_on(version.batch, self.newest()) from None
        self._parts[version.batch] = frozenset(version.parts)

    def refuse_behind(self, batch: int, published: bool = False) -> None:
        """Raise LeaseError if a run that is at this batch is not the newest: another one has published it, or a later one.

        ``published`` says that this run has published it itself.
        """
        newest = self.newest()
        if newest > batch or (newest == batch and not published):
            raise self._gone_on(batch, newest)

    def _gone_on(self, batch: int, newest: int) -> LeaseError:
        return LeaseError(
            f"another run has gone on to batch {newest} of the state in {self.path!r}, while this one was at batch {batch}. "
            "This run stops, and leaves everything as it is. If there is no other run, Spark's log is older than the state: "
            "restore both from the same moment, or use another [run] checkpoint"
        )

    def tidy(self, keep: int = KEEP) -> None:
        """Remove versions before the newest ones, and parts that no version needs."""
        # In this order: what a version that appears meanwhile needs is either in those that are read, or not in the listing.
        parts = self._fs.get_file_info(fs.FileSelector(f"{self._root}/parts", allow_not_found=True))
        batches = self.batches()
        for batch in batches[:-keep]:
            self._delete(f"{self._root}/{batch:012d}.json")
        self._parts = {batch: self._parts_of(batch) for batch in batches[-keep:]}
        needed = frozenset().union(*self._parts.values())
        for one in parts:
            # Parts of later batches may be those of a run that is still working on them.
            if one.base_name not in needed and batches and _batch_of(one.base_name) <= batches[-1]:
                self._delete(one.path)

    def _parts_of(self, batch: int) -> frozenset[str]:
        """The parts that a version needs; it is read only if this run has not seen it yet."""
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
                    for start, size, run in _runs(mine):
                        content = memoryview(source.read_at(size, start))
                        for place in run:
                            found[place] = bytes(content[place[1] - start : place[1] - start + place[2]])
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

    def compacted(self, version: StateVersion) -> StateVersion:
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


def _batch_of(part: str) -> int:
    """The batch that wrote a part; -1 for what is none.

    >>> _batch_of("000000000042-0123456789ab.part"), _batch_of(".000000000042-0123456789ab.part.0f3c"), _batch_of("notes")
    (42, 42, -1)
    """
    number = part.removeprefix(".").partition("-")[0]
    return int(number) if number.isdigit() else -1


def _runs(places: Iterable[Place]) -> Iterator[tuple[int, int, list[Place]]]:
    """Places of one part that are read at once: neighbours, or nearly so; with the start and the size of each run.

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


def _version(content: dict[str, Any]) -> StateVersion:
    """A version as JSON has it, where tuples are lists."""
    content["places"] = {site: {name: tuple(at) for name, at in its.items()} for site, its in content["places"].items()}
    content["coordinators"] = {name: tuple(at) for name, at in content["coordinators"].items()}
    content["sites"] = {site: SiteRecord(**record) for site, record in content.get("sites", {}).items()}
    return StateVersion(**content)


def _fields(version: StateVersion) -> dict[str, Any]:
    """A version as JSON takes it. Nothing is copied: ``asdict`` would copy every place of every site."""
    return version.__dict__ | {"sites": {site: record.__dict__ for site, record in version.sites.items()}}


def _with(version: StateVersion, **changes: Any) -> StateVersion:
    return StateVersion(**{name: getattr(version, name) for name in version.__dataclass_fields__} | changes)


def packed(content: Any) -> bytes:
    """What one task has to know of its sites, as a closure carries it: every task gets all of them and reads only its own."""
    return pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(content: bytes) -> Any:
    """What ``packed`` was given."""
    return pickle.loads(content)


def with_places(earlier: Places, changed: Mapping[str, Mapping[str, Place]], names: set[str]) -> Places:
    """The places after a batch: what it changed over what was; what no query needs any more is left out."""
    places = {site: _chosen(its, names) for site, its in earlier.items()}
    for site, its in changed.items():
        places[site] = _chosen({**places.get(site, {}), **its}, names)
    return places


def _chosen(places: Mapping[str, Place], names: set[str]) -> Mapping[str, Place]:
    """The places of these names. Those of a site that a batch did not touch are mostly as they were, and not copied."""
    return places if places.keys() <= names else {name: place for name, place in places.items() if name in names}
