"""What a reader sees of a store: the newest batch, the batches before it, and the sketches for questions that come later."""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lately.store.errors import UnknownError
from lately.store.files import File, name_of
from lately.store.sketch_reader import SketchReader
from lately.store.table_reader import Snapshot, to_rows
from lately.store.tables import Alert, Answer, Run, SiteRow, Time, TimeType, UncountedRow

#: The bytes of tables and of sketches that are cached by default.
_TABLE_BYTES, _SKETCH_BYTES = 2**26, 2**28
#: The columns of late or rejected rows that are read to count the reasons, and the number of rows that are counted by default.
_REASONS, _REASON_ROWS = ("batch", "site", "reason"), 1_000_000


class View(SketchReader):
    """A store as its readers see it; it never writes, and shows the same until ``refresh`` finds a new batch.

    Any number of threads may use it. Rows are the dataclasses of ``lately.store.tables``.

    Parameters
    ----------
    path
        The directory of the store.
    table_bytes
        The most bytes of tables that are cached; 64 MiB by default.
    sketch_bytes
        The most bytes of decoded sketches that are cached; 256 MiB by default.

    >>> from tempfile import mkdtemp
    >>> from lately.store import Store
    >>> from lately.store.about import About, QueryInfo
    >>> store = Store(mkdtemp())
    >>> store.describe(About("timestamp", "shop", queries=(QueryInfo("hot", "top"),)))
    >>> view = View(store.path)
    >>> store.put("answers", 0, [Answer(None, 0, "hot", item="/cart", value=12.0)])
    >>> view.refresh(), view.answers()                       # the batch has not finished
    (False, [])
    >>> store.put("runs", 0, [Run(0, rows=80)])
    >>> view.refresh(), view.batch, [(answer.item, answer.value) for answer in view.answers("hot")]
    (True, 0, [('/cart', 12.0)])
    """

    def __init__(self, path: str, *, table_bytes: int = _TABLE_BYTES, sketch_bytes: int = _SKETCH_BYTES) -> None:
        super().__init__(path, table_bytes, sketch_bytes)

    # -- the newest batch ----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self.about.name

    @property
    def time_type(self) -> TimeType:
        """The type of the stream's own time: "timestamp" or "integer"."""
        return self.about.time_type

    @property
    def batch(self) -> int | None:
        """The newest finished batch; None before the first."""
        run = self._snapshot.run
        return None if run is None else run.batch

    @property
    def now(self) -> Time | None:
        """The newest instant of the stream after that batch; None before the first row."""
        run = self._snapshot.run
        return None if run is None else run.time

    def answers(self, query: str | None = None, batch: int | None = None) -> list[Answer]:
        """The answers of a batch.

        Parameters
        ----------
        query
            The name of a query or monitor; by default the answers of all.
        batch
            The number of the batch; by default the newest.
        """
        snapshot = self._snapshot
        number = snapshot.batch if batch is None else batch
        rows: list[Answer] = []
        if snapshot.run is not None and number == snapshot.batch:
            if snapshot.answers is None:
                snapshot.answers = self._answers_of(snapshot, number)
            rows = snapshot.answers
        elif 0 <= number < snapshot.batch:
            rows = self._answers_of(snapshot, number)
        return list(rows) if query is None else self._checked(query, [row for row in rows if row.query == query])

    def sites(self) -> list[str]:
        """The sites that have stored sketches or answers of their own."""
        version = self.version()
        stored = () if version is None else version.sites
        return sorted({*stored, *(row.site for row in self.answers() if row.site is not None)})

    # -- the batches before --------------------------------------------------------------------------------------------

    def history(self, query: str, item: str | None = None, site: str | None = None, limit: int = 500) -> list[Answer]:
        """The newest answers of a query, oldest first.

        Parameters
        ----------
        query
            The name of the query or monitor.
        item
            Only answers about this key, quantile or range; by default about all.
        site
            Only answers about this site; by default about all.
        limit
            The most answers.
        """
        given = {"query": query, "item": item, "site": site}
        equal = {name: str(value) for name, value in given.items() if value is not None}
        try:
            "".join(equal.values()).encode()
        except UnicodeEncodeError:  # half a character, which no table can hold
            return self._checked(query, [])
        return self._checked(query, self._newest_rows("answers", Answer, limit, equal))

    def alerts(self, limit: int = 100, after_batch: int | None = None) -> list[Alert]:
        """The newest alerts, oldest first.

        Parameters
        ----------
        limit
            The most alerts.
        after_batch
            Only alerts of batches after this one; by default of all.
        """
        return self._newest_rows("alerts", Alert, limit, after=after_batch)

    def runs(self, limit: int = 500, after_batch: int | None = None) -> list[Run]:
        """The newest batches, oldest first.

        Parameters
        ----------
        limit
            The most batches.
        after_batch
            Only batches after this one; by default all.
        """
        return self._newest_rows("runs", Run, limit, after=after_batch)

    def late(self, limit: int = 100, site: str | None = None, reason: str | None = None) -> list[UncountedRow]:
        """The newest rows that were too late to be counted, oldest first.

        Parameters
        ----------
        limit
            The most rows.
        site
            Only rows of this site; by default of all.
        reason
            Only rows whose reason begins with this text; by default all.
        """
        return self._refused("late", limit, site, reason)

    def rejected(self, limit: int = 100, site: str | None = None, reason: str | None = None) -> list[UncountedRow]:
        """The newest rows that were rejected, oldest first; the parameters are those of ``late``."""
        return self._refused("rejected", limit, site, reason)

    def _refused(self, table: str, limit: int, site: str | None, reason: str | None) -> list[UncountedRow]:
        return self._newest_rows(table, UncountedRow, limit, _given(site=site), prefix=_given(reason=reason))

    def reasons(self, table: str, site: str | None = None, max_rows: int = _REASON_ROWS) -> tuple[dict[str, int], bool]:
        """How many rows of ``late`` or ``rejected`` have which reason, the most frequent first, and whether that is all rows.

        The part of a reason after its colon, which is a value of the row, is left out: "count is negative: -3" is counted
        as "count is negative".

        Parameters
        ----------
        table
            "late" or "rejected".
        site
            Count only rows of this site; by default of all.
        max_rows
            Files are read from the newest on, until this many rows are counted; by default a million.
        """

        def count(snapshot: Snapshot, files: list[File]) -> tuple[dict[str, int], bool]:
            counts: Counter[str] = Counter()
            left = list(files)
            rows = 0
            while left and rows < max_rows:
                part = self._rows(snapshot, table, left.pop(), _REASONS)
                rows += part.num_rows
                for (row_site, reason), number in _count_reasons(part):
                    if site is None or row_site == site:
                        counts[reason] += number
            return dict(counts.most_common()), not left

        return self._with_files(table, count)

    def site_rows(self) -> list[SiteRow]:
        """All sites after the newest batch that wrote them; empty if the store has no such rows."""
        snapshot = self._snapshot
        if snapshot.sites is None:
            snapshot.sites = self._with_files("sites", self._newest_site_rows)
        return snapshot.sites

    def _newest_site_rows(self, snapshot: Snapshot, files: list[File]) -> list[SiteRow]:
        newest = max((file.last for file in files), default=None)
        tables = [self._rows(snapshot, "sites", file) for file in files if file.last == newest]
        return [row for table in tables for row in to_rows(table, SiteRow)]

    # -- tables --------------------------------------------------------------------------------------------------------

    def _answers_of(self, snapshot: Snapshot, number: int) -> list[Answer]:
        """The answers of a batch: from its own file, or from the file of many batches that replaced it."""
        name = name_of(number)
        try:  # without a listing
            file = File(number, number, name, f"{snapshot.store._root}/answers/{name}", 0)
            return to_rows(snapshot.store.read_file("answers", file), Answer)
        except FileNotFoundError:
            pass

        def read(snapshot: Snapshot, files: list[File]) -> list[Answer]:
            tables = [self._rows(snapshot, "answers", file) for file in files if file.first <= number <= file.last]
            return [row for table in tables for row in to_rows(table.filter(pc.equal(table["batch"], number)), Answer)]

        return self._with_files("answers", read)

    def _checked(self, query: str, rows: list[Answer]) -> list[Answer]:
        """The rows of a query; if there are none, the query must at least be known."""
        if not rows:
            known = [*(info.name for info in self.about.queries), *(info.name for info in self.about.monitors)]
            if query not in known:
                raise UnknownError("query", query, known)
        return rows


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _count_reasons(rows: pa.Table) -> Iterator[tuple[tuple[str | None, str], int]]:
    """The number of rows of each site and reason."""
    counted = rows.group_by(["site", "reason"]).aggregate([([], "count_all")])
    for row in counted.to_pylist():
        yield (row["site"], (row["reason"] or "").partition(": ")[0]), row["count_all"]
