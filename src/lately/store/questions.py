"""Ad-hoc questions, answered from the sketches in a store, over any range and any sites.

    last     extracts of the range are added up over the sites (``lately.sketches.extracts``), which adds no error
    between  the sketches of the sites are merged, and the merged sketch answers: its bounds are a little wider

A range ends at the time of the newest stored version, ``asof``, also at a site that has sent nothing for a while. Sums and
merged sketches are cached until there is a new version: another question about the same range and sites takes microseconds.
"""

import operator
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from lately.core.answers import Answers, KeyCount, QuantileAt
from lately.core.errors import InputError, QueryError, RangeError
from lately.core.estimate import Estimate, Estimates
from lately.core.times import tick_of
from lately.ingest.merging import merge
from lately.sketches.extracts import Extract, extract, view_of
from lately.sketches.kinds import Question
from lately.store.byte_cache import ByteBoundedCache
from lately.store.errors import GoneError, UnknownError
from lately.store.sketch_choice import answerable, best_sketch, named_sketch
from lately.store.sketch_reader import SketchVersion
from lately.store.tables import Time
from lately.store.view import View

#: A key. Where the keys of the stream are integers, a text with their digits is one, too.
Key: TypeAlias = str | int | bytes
#: The length of the most recent period: "10m", or an integer (or its digits) where the times of the stream are integers.
Last: TypeAlias = str | int | timedelta | None
#: The older and the newer end of a range: ages such as "2h", or times.
Between: TypeAlias = tuple[str | int | datetime, str | int | datetime] | None
Sites: TypeAlias = Sequence[str] | None

#: How often the store is read again because a version of the sketches has disappeared, before that is an error.
_TRIES = 5
#: The bytes of sums and of merged sketches that are cached, each.
_CACHE_BYTES = 2**27


class Questions:
    """Answers from the newest stored sketches of a store; every answer has bounds.

    All methods take the range, sites and sketch that are asked:

    - ``last``: the most recent period, "10m", or an integer where times are integers; by default the whole window.
    - ``between``: instead of ``last`` a range of the past, as two ages ("2h", "1h") or times, the older first.
    - ``sites``: the names of sites; by default all.
    - ``of``: the name of a query or sketch; by default the sketch over all rows that answers best is asked.

    Parameters
    ----------
    view
        The store.
    cache_bytes
        The most bytes of sums, and of merged sketches, that are cached; 128 MiB of each by default.

    >>> from tempfile import mkdtemp
    >>> import lately as lt
    >>> from lately.store import Store
    >>> from lately.store.about import About, SketchInfo
    >>> from lately.store.tables import TIME_TYPES, Run, StoredSketch
    >>> store = Store(mkdtemp(), TIME_TYPES["integer"])
    >>> name = "ecm eps=0.01"
    >>> store.describe(About("integer", "shop", keys="text", sketches={name: SketchInfo("ecm", eps=0.01, query="point")}))
    >>> for site, times in {"paris": [10, 50, 90], "lima": [20, 60]}.items():
    ...     sketch = lt.EcmSketch(window=100, eps=0.01, delta=0.01)
    ...     sketch.update(["/cart"] * len(times), times)
    ...     store.put("sketches", 0, [StoredSketch(0, 90, site, name, "ecm", sketch.to_bytes())], part=site)
    >>> store.put("runs", 0, [Run(0, time=90)])
    >>> questions = Questions(View(store.path))
    >>> questions.count("/cart", last=50), questions.count("/cart", last=50, sites=["lima"])
    (Estimate(3, 3..3, 99%), Estimate(1, 1..1, 99%))
    >>> questions.count("/cart", between=(80, 40)).value, questions.asof
    (2, 90)
    """

    def __init__(self, view: View, *, cache_bytes: int = _CACHE_BYTES) -> None:
        self._view = view
        self._sums, self._merged = ByteBoundedCache[Any](cache_bytes), ByteBoundedCache[Any](cache_bytes)
        #: The version that is asked, and the name of the sketch that answers each question.
        self._chosen: tuple[SketchVersion | None, dict[tuple[Question, str | None, int], str]] = None, {}
        #: A sketch of each name, whose shape all sums share.
        self._templates: dict[tuple[SketchVersion, str], Any] = {}

    @property
    def view(self) -> View:
        """The store that is asked."""
        return self._view

    @property
    def asof(self) -> Time | None:
        """The instant of the stream at which ranges end: that of the newest stored version. None if none is stored."""
        version = self._view.version()
        return None if version is None else version.time

    def answerable(self) -> list[Question]:
        """The questions that the stored sketches can answer."""
        return answerable(self._view.sketch_infos())

    # -- questions -----------------------------------------------------------------------------------------------------

    def count(
        self, key: Key, *, last: Last = None, between: Between = None, sites: Sites = None, of: str | None = None
    ) -> Estimate:
        """How often a key occurred."""
        sketch, when = self._resolve("count", of, sites, last, between)
        estimate: Estimate = sketch.count(self._key(key), **when)
        return estimate

    def counts(
        self, keys: Sequence[Key], *, last: Last = None, between: Between = None, sites: Sites = None, of: str | None = None
    ) -> Answers[KeyCount]:
        """How often each of these keys occurred: rows of (key, count) in their order."""
        sketch, when = self._resolve("count", of, sites, last, between)
        column = [self._key(key) for key in keys]
        return Answers(KeyCount, [column, sketch.counts(column, **when) if column else _no_estimates(1 - sketch.delta)])

    def top(
        self, k: int = 10, *, last: Last = None, between: Between = None, sites: Sites = None, of: str | None = None
    ) -> Answers[KeyCount]:
        """The ``k`` most frequent keys: rows of (key, count); ``missed`` bounds the count of every other key."""
        sketch, when = self._resolve("top", of, sites, last, between)
        rows: Answers[KeyCount] = sketch.top(k, **when)
        return rows

    def quantile(
        self,
        q: float | Sequence[float],
        *,
        last: Last = None,
        between: Between = None,
        sites: Sites = None,
        of: str | None = None,
    ) -> Answers[QuantileAt]:
        """The values below which these shares of all values lie: rows of (q, value), or no rows if the range is empty."""
        sketch, when = self._resolve("quantiles", of, sites, last, between)
        shares = [_number(share) for share in ([q] if isinstance(q, str | float | int) else q)]
        if not shares or sketch.total(**when).high == 0:
            return Answers(QuantileAt, [[], _no_estimates(1 - sketch.delta)])
        rows: Answers[QuantileAt] = sketch.quantile(shares, **when)
        return rows

    def count_range(
        self,
        lo: float,
        hi: float,
        *,
        last: Last = None,
        between: Between = None,
        sites: Sites = None,
        of: str | None = None,
    ) -> Estimate:
        """How many rows had a key (or, of a query for quantiles, a value) from ``lo`` to ``hi``, both included."""
        sketch, when = self._resolve("range", of, sites, last, between)
        estimate: Estimate = sketch.count_range(_number(lo), _number(hi), **when)
        return estimate

    def self_join(self, *, last: Last = None, between: Between = None, sites: Sites = None, of: str | None = None) -> Estimate:
        """The sum of the squares of all keys' counts."""
        sketch, when = self._resolve("self-join", of, sites, last, between)
        estimate: Estimate = sketch.self_join(**when)
        return estimate

    def inner_product(
        self, left: str, right: str | None = None, *, last: Last = None, between: Between = None, sites: Sites = None
    ) -> Estimate:
        """The number of pairs of a left and a right row with equal keys.

        Both sides are names of queries or of sketches. The name of a ``join`` stands for its left side on the left, and for its
        right side on the right, which may then be left out.
        """
        sketch, when = self._resolve("inner-product", left, sites, last, between)
        other, _ = self._resolve("inner-product", left if right is None else right, sites, last, between, side=-1)
        estimate: Estimate = sketch.inner_product(other, **when)
        return estimate

    def total(self, *, last: Last = None, between: Between = None, sites: Sites = None, of: str | None = None) -> Estimate:
        """The number of rows."""
        sketch, when = self._resolve("total", of, sites, last, between)
        estimate: Estimate = sketch.total(**when)
        return estimate

    # -- what answers a question ---------------------------------------------------------------------------------------

    def _resolve(
        self, question: Question, of: str | None, sites: Sites, last: Last, between: Between, side: int = 0
    ) -> tuple[Any, dict[str, Any]]:
        """What answers a question, and the range arguments that it still takes."""
        for _ in range(_TRIES):
            try:
                return self._resolve_once(question, of, sites, last, between, side)
            except GoneError:  # the view is older than what the store keeps
                self._view.refresh()
        return self._resolve_once(question, of, sites, last, between, side)

    def _resolve_once(
        self, question: Question, of: str | None, sites: Sites, last: Last, between: Between, side: int
    ) -> tuple[Any, dict[str, Any]]:
        version = self._view.version()
        if version is None:
            raise QueryError(
                "the store has no sketches",
                remedy='write sketches = "always", or an interval such as "1m", under [store] of the pipeline file',
            )
        chosen_for, chosen = self._chosen
        if chosen_for is not version:
            chosen = {}
            self._chosen = version, chosen
            self._templates = {}
            self._sums.clear()
            self._merged.clear()
        name = chosen.get((question, of, side))
        if name is None:
            stored, queries = self._view.sketch_infos(), self._view.about.queries
            name = best_sketch(question, stored) if of is None else named_sketch(question, of, side, stored, queries)
            chosen[question, of, side] = name
        checked = None if sites is None else _checked_sites(version, sites)
        if between is None:
            return self._sum(version, name, checked, self._length(last)), {}
        return self._merge(version, name, checked), {"last": last, "between": self._ends(between)}

    def _sum(self, version: SketchVersion, name: str, sites: tuple[str, ...] | None, last: Any) -> Any:
        """The sum of what these sites counted in the most recent period."""
        key = version, name, sites, type(last), last  # the type too, as True == 1 == 1.0
        view = self._sums.get(key)
        if view is None:
            sketches = self._sketches(version, name, sites)
            now = _now(version, sketches)
            total = _sum_of(extract(sketch, last, now) for sketch in sketches)
            # All sums share one template, or each of them would keep another sketch in memory.
            view = view_of(self._templates.setdefault((version, name), sketches[0]), total)
            candidate_bytes = 0 if total.candidates is None else 100 * total.candidates.hashes.size
            self._sums.put(key, view, 3 * total.cells.value.nbytes + candidate_bytes)
        return view

    def _merge(self, version: SketchVersion, name: str, sites: tuple[str, ...] | None) -> Any:
        """The sketches of these sites merged into one, advanced to the time of the version."""
        key = version, name, sites
        merged = self._merged.get(key)
        if merged is None:
            sketches = self._sketches(version, name, sites)
            merged = merge(sketches) if len(sketches) > 1 else sketches[0].copy()
            merged._advance(_now(version, sketches))
            self._merged.put(key, merged, merged.nbytes)
        return merged

    def _sketches(self, version: SketchVersion, name: str, sites: tuple[str, ...] | None) -> list[Any]:
        places = version.places[name]
        present = None if sites is None else [site for site in sites if site in places]
        if present == []:
            raise UnknownError("site with this sketch", ", ".join(sites or ()), sorted(places))
        return list(self._view.sketches_of(version, name, present).values())

    # -- values from a command line or HTTP ----------------------------------------------------------------------------

    def _key(self, key: Key) -> Key:
        """A key of the type that the stream has; a command line and HTTP have only texts."""
        kind = self._view.about.keys
        if kind == "integer":
            return key if type(key) is int else _integer(key)
        if kind == "text":
            return str(int(key)) if isinstance(key, int | np.integer) and not isinstance(key, bool) else key
        return key

    def _length(self, last: Last) -> Any:
        """A length of time; an integer where times are integers."""
        return _age(last) if isinstance(last, str) and self._view.time_type == "integer" else _hashable(last)

    def _ends(self, between: Any) -> tuple[Any, ...]:
        if isinstance(between, str) or not isinstance(between, Sequence) or len(between) != 2:
            raise RangeError(f"between={between!r}", remedy="give two ages or times, the older first, as in ('2h', '1h')")
        is_integer = self._view.time_type == "integer"
        return tuple(_age(end) if is_integer and isinstance(end, str) else end for end in between)


def _checked_sites(version: SketchVersion, sites: Sequence[str]) -> tuple[str, ...]:
    names = (sites,) if isinstance(sites, str) else tuple(sorted(set(sites)))
    if not names:
        raise InputError("an empty list of sites", remedy="name some, or leave sites out to ask all of them")
    for site in names:
        if site not in version.sites:
            raise UnknownError("site", site, version.sites)
    return names


def _now(version: SketchVersion, sketches: Sequence[Any]) -> int:
    """The tick at which ranges end. Stored times are in microseconds, and ticks may be finer."""
    clocks: list[int] = [sketch._now for sketch in sketches if sketch._now is not None]
    return max([tick_of(version.time, sketches[0].window), *clocks])


def _sum_of(extracts: Iterable[Extract]) -> Extract:
    """The sum of extracts, as a balanced tree: with thousands of sites, columns of keys nest a dozen deep, not thousands.

    Only sums that wait for another of equal size are in memory.
    """
    waiting: list[tuple[int, Extract]] = []
    for item in extracts:
        size = 1
        while waiting and waiting[-1][0] == size:
            item, size = waiting.pop()[1] + item, 2 * size
        waiting.append((size, item))
    return reduce(lambda later, earlier: earlier + later, (item for _, item in reversed(waiting)))


def _no_estimates(confidence: float) -> Estimates:
    empty = np.empty(0, np.int64)
    return Estimates(empty, empty, empty, confidence)


def _integer(key: Any) -> int:
    try:
        if isinstance(key, bool):
            raise ValueError
        return int(key if isinstance(key, str) else operator.index(key))
    except (TypeError, ValueError):
        raise InputError(f"key={key!r}, but the keys of this store are integers", remedy="give an integer") from None


def _age(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RangeError(f"{text!r} is not an integer, but the times of this store are", remedy="give an integer") from None


def _number(given: Any) -> Any:
    """A number that may come as text."""
    if not isinstance(given, str):
        return given
    for kind in (int, float):
        try:
            return kind(given)
        except ValueError:
            continue
    raise InputError(f"{given!r} is not a number", remedy="give one, as in 1023 or 0.99")


def _hashable(last: Any) -> Any:
    try:
        hash(last)
    except TypeError:
        raise RangeError(f"last={last!r} is not a length of time", remedy="write it like '10m'") from None
    return last
