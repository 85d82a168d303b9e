"""The stored sketches of a store: which there are, and the decoded ones of its newest version."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lately.core.codec import from_trusted_bytes
from lately.core.errors import FormatError
from lately.sketches.dyadic import Dyadic
from lately.sketches.ecm import EcmSketch
from lately.sketches.quantiles import Quantiles
from lately.sketches.topk import TopK
from lately.store.about import SketchInfo
from lately.store.byte_cache import ByteBoundedCache
from lately.store.errors import GoneError, UnknownError
from lately.store.files import File
from lately.store.table_reader import TRIES, Snapshot, TableReader, values_of
from lately.store.tables import Time

#: The sketches that a pipeline stores.
Sketch: TypeAlias = EcmSketch | TopK | Dyadic | Quantiles

#: The columns of stored sketches that are read to know which there are, and to decode them.
_NAMES, _BLOBS = ("version", "time", "site", "sketch"), ("version", "site", "sketch", "blob")


@dataclass(frozen=True, eq=False)
class SketchVersion:
    """The sketches that were stored after a batch.

    Parameters
    ----------
    number
        The number of the batch.
    time
        The newest instant of the stream after the batch.
    files
        The files of the table ``sketches`` that have them.
    places
        The file of each sketch, by the name of the sketch and then by site.
    sites
        The names of all sites that have a sketch.
    """

    number: int
    time: Time | None
    files: tuple[File, ...]
    places: Mapping[str, Mapping[str, File]]
    sites: tuple[str, ...]


class SketchReader(TableReader):
    """Base of the view: the part that reads stored sketches."""

    def __init__(self, path: str, table_bytes: int, sketch_bytes: int) -> None:
        self._decoded = ByteBoundedCache[Sketch](sketch_bytes)
        self._version: SketchVersion | None = None
        super().__init__(path, table_bytes)

    def versions(self) -> list[tuple[int, Time | None]]:
        """The batches after which sketches were stored, and the newest instant of the stream then; oldest first."""

        def read(snapshot: Snapshot, files: list[File]) -> list[tuple[int, Time | None]]:
            firsts = {file.first: file for file in reversed(files)}  # of the files of one batch, the first
            tables = [self._rows(snapshot, "sketches", file, ("version", "time")) for file in firsts.values()]
            return sorted({pair for table in tables for pair in _pairs(table, "version", "time")})

        return self._with_files("sketches", read)

    def version(self) -> SketchVersion | None:
        """The newest version of the sketches: the same object as long as its files are the same. None if none is stored."""
        snapshot = self._snapshot
        if snapshot.version is None:
            with self._lock:
                snapshot.version = [*filter(None, [self._with_files("sketches", self._newest_version)])]
        return snapshot.version[0] if snapshot.version else None

    def sketch_infos(self) -> dict[str, SketchInfo]:
        """The sketches of the newest version by name, as about.json describes them."""
        version = self.version()
        infos = self.about.sketches
        return {} if version is None else {name: infos[name] for name in version.places if name in infos}

    def sketch_bytes(self) -> dict[str, int]:
        """The bytes of the sketches of each site in the newest version."""
        version = self.version()
        if version is None:
            return {}
        sizes = dict.fromkeys(version.sites, 0)
        for table in self._blobs(version, version.files):
            for site, nbytes in zip(table["site"].to_pylist(), pc.binary_length(table["blob"]).to_pylist(), strict=True):
                sizes[site] += nbytes
        return sizes

    def sketches(self, name: str, sites: Sequence[str] | None = None) -> dict[str, Sketch]:
        """The sketches of one name in the newest version, by site. They are shared with other callers: do not change them.

        Parameters
        ----------
        name
            The name of the sketch, as in about.json.
        sites
            The names of sites; by default all that have the sketch.
        """
        for left in reversed(range(TRIES)):
            version = self.version()
            try:
                return {} if version is None else self.sketches_of(version, name, sites)
            except GoneError:
                if not left:
                    raise
                self.refresh()
        raise AssertionError("unreachable")

    def sketches_of(self, version: SketchVersion, name: str, sites: Sequence[str] | None = None) -> dict[str, Sketch]:
        """The same as ``sketches`` of a given version; GoneError if the store no longer has it."""
        places = version.places.get(name)
        if places is None:
            raise UnknownError("sketch", name, sorted(version.places))
        sketches: dict[str, Sketch | None] = {}
        missing: dict[File, None] = {}
        for site in places if sites is None else sites:
            if site not in places:
                raise UnknownError("site", site, version.sites)
            sketches[site] = self._decoded.get((version, name, site))
            if sketches[site] is None:
                missing[places[site]] = None
        for table in self._blobs(version, tuple(missing)):
            rows = table.filter(pc.equal(table["sketch"], name))
            for site, blob in zip(rows["site"].to_pylist(), rows["blob"], strict=True):
                if site in sketches and sketches[site] is None:
                    sketches[site] = self._decode(version, name, site, blob.as_buffer())
        complete = {site: sketch for site, sketch in sketches.items() if sketch is not None}
        if len(complete) < len(sketches):  # the batch has been run again since
            raise GoneError(version.number)
        return complete

    def _decode(self, version: SketchVersion, name: str, site: str, blob: pa.Buffer) -> Sketch:
        try:
            sketch: Sketch = from_trusted_bytes(blob)
        except FormatError as error:
            raise FormatError(
                f"the sketch {name!r} of site {site!r} after batch {version.number} cannot be read ({error})",
                remedy="run lately store check on the store",
            ) from error
        self._decoded.put((version, name, site), sketch, sketch.nbytes)
        return sketch

    def _newest_version(self, snapshot: Snapshot, files: list[File]) -> SketchVersion | None:
        while files:
            last = files[-1].last
            newest = tuple(file for file in files if file.last == last)
            if self._version is not None and self._version.files == newest:
                return self._version
            tables = [self._rows(snapshot, "sketches", file, _NAMES) for file in newest]
            number = max((pc.max(table["version"]).as_py() for table in tables if table.num_rows), default=None)
            if number is None:  # a file whose rows have all expired
                files = files[: -len(newest)]
                continue
            places: dict[str, dict[str, File]] = {}
            time = None
            for file, table in zip(newest, tables, strict=True):
                rows = table.filter(pc.equal(table["version"], number))
                for sketch, site in _pairs(rows, "sketch", "site"):
                    places.setdefault(sketch, {})[site] = file
                time = values_of(rows["time"])[-1] if rows.num_rows else time
            sites = sorted({site for by_site in places.values() for site in by_site})
            self._decoded.clear()
            self._version = SketchVersion(number, time, newest, places, tuple(sites))
            return self._version
        return None

    def _blobs(self, version: SketchVersion, files: Sequence[File]) -> list[pa.Table]:
        """The rows of a version in these files; if they have disappeared, from the files that now have these rows."""
        try:
            tables = [self._snapshot.store.read_file("sketches", file, _BLOBS) for file in files]
        except FileNotFoundError:

            def read(snapshot: Snapshot, now: list[File]) -> list[pa.Table]:
                moved = [file for file in now if file.first <= version.number <= file.last]
                if not moved:
                    raise GoneError(version.number)
                return [snapshot.store.read_file("sketches", file, _BLOBS) for file in moved]

            tables = self._with_files("sketches", read, relist=True)
        return [table.filter(pc.equal(table["version"], version.number)) for table in tables]


def _pairs(table: pa.Table, first: str, second: str) -> Iterator[tuple[Any, Any]]:
    return zip(values_of(table[first]), values_of(table[second]), strict=True)
