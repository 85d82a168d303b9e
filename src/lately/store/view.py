"""What a reader sees of a store: the newest batch, the batches before it, and the sketches for questions that come later."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lately.core.codec import from_trusted_bytes
from lately.core.errors import FormatError, InputError
from lately.store.files import File, name_of
from lately.store.reading import TRIES, Reading, Row, Seen, plain
from lately.store.remembered import Remembered

#: The bytes of tables and of sketches that are remembered, unless told otherwise.
_TABLES, _SKETCHES = 2**26, 2**28
#: What of a stored sketch is read to know which there are, and to decode it.
_NAMED, _WHOLE = ("version", "time", "site", "sketch"), ("version", "site", "sketch", "blob")
#: What of a late or rejected row is read to count the reasons, and the rows after which no further file is read.
_REASONS, _REASONED = ("batch", "site", "reason"), 1_000_000


class UnknownError(InputError):
    """A site, a query or a sketch that the store does not have; ``what`` says which of them."""

    def __init__(self, what: str, name: object, known: Sequence[str]) -> None:
        some = ", ".join(map(repr, known[:5])) + (f" and {len(known) - 5:,} more" if len(known) > 5 else "")
        super().__init__(
            f"the store has no {what} {name!r}", remedy=f"there are {some}" if known else f"it has no {what} at all"
        )
        self.what = what


class GoneError(InputError):
    """A version of the sketches that the store no longer has."""

    def __init__(self, version: "Version") -> None:
        super().__init__(f"the sketches of batch {version.number} have gone from the store; refresh the view, and ask again")


@dataclass(frozen=True, eq=False)
class Version:
    """The sketches that were stored after a batch: which there are, and in which file."""

    number: int
    time: Any
    files: tuple[File, ...]
    #: By the name of the sketch, then by site.
    places: dict[str, dict[str, File]]
    sites: tuple[str, ...]


class View(Reading):
    """A store as its readers see it; it never writes, and shows the same until ``refresh`` finds something new.

    Any number of threads may use it. Rows are dictionaries with the columns of their table.

    >>> from tempfile import mkdtemp
    >>> from lately.store import Store
    >>> store = Store(mkdtemp())
    >>> store.describe({"name": "shop", "moment": "timestamp", "queries": [{"name": "hot", "kind": "top"}]})
    >>> view = View(store.path)
    >>> store.put("answers", 0, [{"batch": 0, "query": "hot", "item": "/cart", "value": 12.0}])
    >>> view.refresh(), view.answers()                       # the batch has not finished
    (False, [])
    >>> store.put("runs", 0, [{"batch": 0, "rows": 80}])
    >>> view.refresh(), view.batch, [(row["item"], row["value"]) for row in view.answers("hot")]
    (True, 0, [('/cart', 12.0)])
    """

    def __init__(self, path: str, *, tables: int = _TABLES, sketches: int = _SKETCHES) -> None:
        super().__init__(path, tables)
        self._decoded = Remembered[Any](sketches)
        self._version: Version | None = None

    # -- the newest batch ----------------------------------------------------------------------------------------------

    @property
    def about(self) -> dict[str, Any]:
        """What the pipeline keeps and asks: about.json."""
        return self._seen.about

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return str(self.about["name"])

    @property
    def moment(self) -> str:
        """What the stream's times are: "timestamp" or "integer"."""
        return str(self.about["moment"])

    @property
    def batch(self) -> int | None:
        """The newest batch that has finished."""
        return self._seen.run.get("batch")

    @property
    def now(self) -> Any:
        """The stream's own time after that batch: a date in UTC, an integer, or None before the first row."""
        return self._seen.run.get("time")

    def answers(self, query: str | None = None, batch: int | None = None) -> list[Row]:
        """The answers of the newest batch or of another one, of all queries or of one."""
        seen = self._seen
        newest = seen.run.get("batch")
        number = newest if batch is None else batch
        rows: list[Row] = []
        if number is not None and number == newest:
            if "answers" not in seen.known:
                seen.known["answers"] = self._of_batch(seen, number)
            rows = seen.known["answers"]
        elif number is not None and newest is not None and 0 <= number < newest:
            rows = self._of_batch(seen, number)
        return list(rows) if query is None else self._checked(query, [row for row in rows if row["query"] == query])

    def sites(self) -> list[str]:
        """The sites whose sketches are stored, or that have answers of their own."""
        version = self.version()
        stored = () if version is None else version.sites
        return sorted({*stored, *(row["site"] for row in self.answers() if row["site"] is not None)})

    # -- the batches before --------------------------------------------------------------------------------------------

    def history(self, query: str, item: str | None = None, site: str | None = None, limit: int = 500) -> list[Row]:
        """The newest answers of a query, oldest first; of all its items and sites, or of one."""
        asked = {"query": query, "item": item, "site": site}
        wanted = {name: str(value) for name, value in asked.items() if value is not None}
        try:
            "".join(wanted.values()).encode()
        except UnicodeEncodeError:  # half a character, which no table can hold
            return self._checked(query, [])
        return self._checked(query, self._newest("answers", limit, wanted))

    def alerts(self, limit: int = 100, after_batch: int | None = None) -> list[Row]:
        """The newest alerts, the newest last; only those of later batches, if told so."""
        return self._newest("alerts", limit, after=after_batch)

    def runs(self, limit: int = 500, after_batch: int | None = None) -> list[Row]:
        """The newest batches, the newest last: how many rows each had, how long it took, how much it sent."""
        return self._newest("runs", limit, after=after_batch)

    def late(self, limit: int = 100, site: str | None = None, reason: str | None = None) -> list[Row]:
        """The newest rows that came too late to be counted, the newest last; of one site, or whose reason begins so."""
        return self._newest("late", limit, _named(site=site), begins=_named(reason=reason))

    def rejected(self, limit: int = 100, site: str | None = None, reason: str | None = None) -> list[Row]:
        """The newest rows that could not be counted, the newest last; of one site, or whose reason begins so."""
        return self._newest("rejected", limit, _named(site=site), begins=_named(reason=reason))

    def reasons(self, table: str, site: str | None = None, most: int = _REASONED) -> tuple[dict[str, int], bool]:
        """How many rows of ``late`` or ``rejected`` have which reason, the most frequent first, and whether that is all rows.

        What follows a colon is the value of a row and is left out: "count is negative: -3" is "count is negative".

        Args:
            table: "late" or "rejected".
            site: count only rows of this site.
            most: files are read from the newest on, until this many rows are counted.
        """

        def take(seen: Seen, files: list[File]) -> tuple[dict[str, int], bool]:
            found: Counter[str] = Counter()
            left = list(files)
            rows = 0
            while left and rows < most:
                part = self._rows(seen, table, left.pop(), _REASONS)
                rows += part.num_rows
                for (at, reason), count in _tallied(part):
                    if site is None or at == site:
                        found[reason] += count
            return dict(found.most_common()), not left

        return self._take(table, take)

    def site_snapshot(self) -> list[Row]:
        """The rows of the newest snapshot in the table ``sites``; none if the store has no snapshot."""
        seen = self._seen
        if "sites" not in seen.known:
            seen.known["sites"] = self._take("sites", self._newest_snapshot)
        rows: list[Row] = seen.known["sites"]
        return rows

    def _newest_snapshot(self, seen: Seen, files: list[File]) -> list[Row]:
        newest = max((one.last for one in files), default=None)
        return [row for one in files if one.last == newest for row in plain(self._rows(seen, "sites", one))]

    # -- stored sketches -----------------------------------------------------------------------------------------------

    def versions(self) -> list[tuple[int, Any]]:
        """The batches after which sketches were stored, and the stream's time then; oldest first."""

        def take(seen: Seen, files: list[File]) -> list[tuple[int, Any]]:
            firsts = {one.first: one for one in reversed(files)}  # of the files of one batch, the first
            tables = [self._rows(seen, "sketches", one, ("version", "time")) for one in firsts.values()]
            return sorted({(row["version"], row["time"]) for table in tables for row in plain(table)})

        return self._take("sketches", take)

    def version(self) -> Version | None:
        """The newest version of the sketches: the same object as long as its files are the same."""
        seen = self._seen
        if "version" not in seen.known:
            with self._lock:
                seen.known["version"] = self._take("sketches", self._newest_version)
        found: Version | None = seen.known["version"]
        return found

    def sketch_names(self) -> dict[str, dict[str, Any]]:
        """The sketches of the newest version by name: their kind, ``where``, eps and so on, as about.json tells them."""
        version = self.version()
        told = self.about.get("sketches", {})
        return {} if version is None else {name: told[name] for name in version.places if name in told}

    def sketch_bytes(self) -> dict[str, int]:
        """How many bytes the sketches of each site take in the newest version."""
        version = self.version()
        if version is None:
            return {}
        sizes = dict.fromkeys(version.sites, 0)
        for table in self._blobs(version, version.files):
            for site, size in zip(table["site"].to_pylist(), pc.binary_length(table["blob"]).to_pylist(), strict=True):
                sizes[site] += size
        return sizes

    def sketches(self, name: str, sites: Sequence[str] | None = None) -> dict[str, Any]:
        """The sketches of this name in the newest version, by site; they are shared with others, so leave them as they are."""
        for left in reversed(range(TRIES)):
            version = self.version()
            try:
                return {} if version is None else self.sketches_of(version, name, sites)
            except GoneError:
                if not left:
                    raise
                self.refresh()
        raise AssertionError("unreachable")

    def sketches_of(self, version: Version, name: str, sites: Sequence[str] | None = None) -> dict[str, Any]:
        """The same of this version."""
        places = version.places.get(name)
        if places is None:
            raise UnknownError("sketch", name, sorted(version.places))
        found: dict[str, Any] = {}
        missing: dict[File, None] = {}
        for site in places if sites is None else sites:
            if site not in places:
                raise UnknownError("site", site, version.sites)
            found[site] = self._decoded.get((version, name, site))
            if found[site] is None:
                missing[places[site]] = None
        for table in self._blobs(version, tuple(missing)):
            chosen = table.filter(pc.equal(table["sketch"], name))
            for site, blob in zip(chosen["site"].to_pylist(), chosen["blob"], strict=True):
                if site in found and found[site] is None:
                    found[site] = self._sketch(version, name, site, blob.as_buffer())
        if any(sketch is None for sketch in found.values()):  # the batch has been run again since
            raise GoneError(version)
        return found

    def _sketch(self, version: Version, name: str, site: str, blob: Any) -> Any:
        try:
            sketch = from_trusted_bytes(blob)
        except FormatError as error:
            raise FormatError(
                f"the sketch {name!r} of site {site!r} after batch {version.number} cannot be read ({error}); "
                "run lately store check on the store"
            ) from error
        self._decoded.put((version, name, site), sketch, sketch.nbytes)
        return sketch

    def _newest_version(self, seen: Seen, files: list[File]) -> Version | None:
        while files:
            last = files[-1].last
            mine = tuple(one for one in files if one.last == last)
            if self._version is not None and self._version.files == mine:
                return self._version
            tables = [self._rows(seen, "sketches", one, _NAMED) for one in mine]
            number = max((pc.max(table["version"]).as_py() for table in tables if table.num_rows), default=None)
            if number is None:  # a file whose rows have all gone
                files = files[: -len(mine)]
                continue
            places: dict[str, dict[str, File]] = {}
            time = None
            for one, table in zip(mine, tables, strict=True):
                for row in plain(table.filter(pc.equal(table["version"], number))):
                    places.setdefault(row["sketch"], {})[row["site"]] = one
                    time = row["time"]
            sites = sorted({site for by_site in places.values() for site in by_site})
            self._decoded.clear()
            self._version = Version(number, time, mine, places, tuple(sites))
            return self._version
        return None

    def _blobs(self, version: Version, files: Sequence[File]) -> list[pa.Table]:
        """The rows of a version in these files; when they have gone by now, from where they are now."""
        try:
            tables = [self._seen.store.read_file("sketches", one, _WHOLE) for one in files]
        except FileNotFoundError:

            def take(seen: Seen, now: list[File]) -> list[pa.Table]:
                there = [one for one in now if one.first <= version.number <= one.last]
                if not there:
                    raise GoneError(version)
                return [seen.store.read_file("sketches", one, _WHOLE) for one in there]

            tables = self._take("sketches", take, anew=True)
        return [table.filter(pc.equal(table["version"], version.number)) for table in tables]

    # -- tables --------------------------------------------------------------------------------------------------------

    def _of_batch(self, seen: Seen, number: int) -> list[Row]:
        """The answers of a batch: from its own file, or from that of many batches which has them by now."""
        own = name_of(number)
        try:  # without a listing
            file = File(number, number, own, f"{seen.store._root}/answers/{own}", 0)
            return plain(seen.store.read_file("answers", file))
        except FileNotFoundError:
            pass

        def take(seen: Seen, files: list[File]) -> list[Row]:
            there = [self._rows(seen, "answers", one) for one in files if one.first <= number <= one.last]
            return [row for table in there for row in plain(table.filter(pc.equal(table["batch"], number)))]

        return self._take("answers", take)

    def _checked(self, query: str, rows: list[Row]) -> list[Row]:
        """Rows of a query; where there are none it must at least be known."""
        if not rows:
            known = [str(one["name"]) for kind in ("queries", "monitors") for one in self.about.get(kind, ())]
            if query not in known:
                raise UnknownError("query", query, known)
        return rows


def _named(**wanted: str | None) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if value is not None}


def _tallied(rows: pa.Table) -> Iterator[tuple[tuple[str | None, str], int]]:
    """Rows by site and reason, and how many there are."""
    counted = rows.group_by(["site", "reason"]).aggregate([([], "count_all")])
    for row in counted.to_pylist():
        yield (row["site"], (row["reason"] or "").partition(": ")[0]), row["count_all"]
