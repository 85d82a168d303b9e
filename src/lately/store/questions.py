"""Questions that nobody had thought of before: answered from the sketches that are in the store, over any range and any sites.

    last     what every site counted in the range is added up (``lately.sketches.extracts``): no error is added
    between  the sites' sketches are merged, and the merged one is asked: its bounds are a little wider

A range ends at the time of the newest stored version, ``asof``, also at a site that has been silent for a while. Sums and
merged sketches are remembered until there is a new version: a question about the same range and sites costs microseconds.
"""

import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from lately.core.answers import Answers, KeyCount, QuantileAt
from lately.core.errors import InputError, QueryError, RangeError
from lately.core.estimate import Estimate, Estimates
from lately.core.times import tick_of
from lately.ingest.windowed import merge
from lately.sketches.extracts import Extract, extract, view_of
from lately.store.byte_cache import ByteBoundedCache
from lately.store.errors import GoneError, UnknownError
from lately.store.fitting import FITTING, best, fitting, named
from lately.store.sketch_reader import SketchVersion
from lately.store.tables import Time
from lately.store.view import View

Between = tuple[Any, Any]
Sites = Sequence[str] | None

#: How often the store is looked at anew because a version of the sketches has gone, before that is an error.
_TRIES = 5
#: The bytes of sums and of merged sketches that are remembered, each.
_CACHE_BYTES = 2**27


class Questions:
    """What the newest stored sketches of a store can be asked; every answer has its bounds.

    ``last`` is the last so long ("10m", or an integer where times are), ``between`` a range of the past: two ages ("2h", "1h")
    or times, the older first; without both it is the whole window. ``sites`` are names, or None for all. ``of`` is the query,
    or the sketch, whose sketch is asked: by default the one of all rows that fits, with the least eps.

    >>> from tempfile import mkdtemp
    >>> import lately as lt
    >>> from lately.store import Store
    >>> from lately.store.tables import TIME_TYPES
    >>> store = Store(mkdtemp(), TIME_TYPES["integer"])
    >>> name = "ecm eps=0.01"
    >>> store.describe({"name": "shop", "time_type": "integer", "keys": "text", "queries": [],
    ...     "sketches": {name: {"kind": "ecm", "where": None, "eps": 0.01, "query": "point"}}})
    >>> for site, times in {"paris": [10, 50, 90], "lima": [20, 60]}.items():
    ...     sketch = lt.EcmSketch(window=100, eps=0.01, delta=0.01)
    ...     sketch.update(["/cart"] * len(times), times)
    ...     row = {"version": 0, "time": 90, "site": site, "sketch": name, "kind": "ecm", "blob": sketch.to_bytes()}
    ...     store.put("sketches", 0, [row], part=site)
    >>> store.put("runs", 0, [{"batch": 0, "time": 90}])
    >>> questions = Questions(View(store.path))
    >>> questions.count("/cart", last=50), questions.count("/cart", last=50, sites=["lima"])
    (Estimate(3, 3..3, 99%), Estimate(1, 1..1, 99%))
    >>> questions.count("/cart", between=(80, 40)).value, questions.asof
    (2, 90)
    """

    def __init__(self, view: View, *, cache_bytes: int = _CACHE_BYTES) -> None:
        self._view = view
        self._sums, self._merged = ByteBoundedCache[Any](cache_bytes), ByteBoundedCache[Any](cache_bytes)
        #: The version that is asked, and the name of the sketch that each question is for.
        self._chosen: tuple[SketchVersion | None, dict[tuple[str, str | None, int], str]] = None, {}
        #: A sketch of each name, which sums answer like.
        self._likes: dict[tuple[SketchVersion, str], Any] = {}

    @property
    def view(self) -> View:
        """The store that is asked."""
        return self._view

    @property
    def asof(self) -> Time | None:
        """The instant of the stream at which ranges end: that of the newest stored version. None if none is stored."""
        version = self._view.version()
        return None if version is None else version.time

    def asks(self) -> list[str]:
        """The questions that the stored sketches can answer."""
        stored = self._view.sketch_infos()
        return [what for what in FITTING if fitting(what, stored)]

    # -- questions -----------------------------------------------------------------------------------------------------

    def count(
        self, key: Any, *, last: Any = None, between: Between | None = None, sites: Sites = None, of: str | None = None
    ) -> Estimate:
        """How often a key came."""
        sketch, when = self._asked("count", of, sites, last, between)
        found: Estimate = sketch.count(self._key(key), **when)
        return found

    def counts(
        self,
        keys: Sequence[Any],
        *,
        last: Any = None,
        between: Between | None = None,
        sites: Sites = None,
        of: str | None = None,
    ) -> Answers[KeyCount]:
        """How often each of these keys came: a row of (key, count) for each, in their order."""
        sketch, when = self._asked("count", of, sites, last, between)
        column = [self._key(key) for key in keys]
        return Answers(KeyCount, [column, sketch.counts(column, **when) if column else _nothing(1 - sketch.delta)])

    def top(
        self, k: int = 10, *, last: Any = None, between: Between | None = None, sites: Sites = None, of: str | None = None
    ) -> Answers[KeyCount]:
        """The keys that came most often: rows of (key, count); ``missed`` bounds the count of every other key."""
        sketch, when = self._asked("top", of, sites, last, between)
        found: Answers[KeyCount] = sketch.top(k, **when)
        return found

    def quantiles(
        self,
        qs: Sequence[float],
        *,
        last: Any = None,
        between: Between | None = None,
        sites: Sites = None,
        of: str | None = None,
    ) -> Answers[QuantileAt]:
        """The numbers below which these shares lie: rows of (q, value); none at all where nothing came in the range."""
        sketch, when = self._asked("quantiles", of, sites, last, between)
        shares = [_number(q) for q in ([qs] if isinstance(qs, str | float | int) else qs)]
        if not shares or sketch.total(**when).high == 0:
            return Answers(QuantileAt, [[], _nothing(1 - sketch.delta)])
        found: Answers[QuantileAt] = sketch.quantile(shares, **when)
        return found

    def count_range(
        self,
        lo: Any,
        hi: Any,
        *,
        last: Any = None,
        between: Between | None = None,
        sites: Sites = None,
        of: str | None = None,
    ) -> Estimate:
        """How many rows had a key (or, of a query for quantiles, a value) from ``lo`` to ``hi``, both included."""
        sketch, when = self._asked("range", of, sites, last, between)
        found: Estimate = sketch.count_range(_number(lo), _number(hi), **when)
        return found

    def self_join(
        self, *, last: Any = None, between: Between | None = None, sites: Sites = None, of: str | None = None
    ) -> Estimate:
        """The sum of the squares of all keys' counts."""
        sketch, when = self._asked("self-join", of, sites, last, between)
        found: Estimate = sketch.self_join(**when)
        return found

    def inner_product(
        self, left: str, right: str | None = None, *, last: Any = None, between: Between | None = None, sites: Sites = None
    ) -> Estimate:
        """How many pairs of a left and a right row have the same key.

        Both sides are names of queries or of sketches. The name of a ``join`` stands for its left side on the left, and for its
        right side on the right, which may be left out then.
        """
        mine, when = self._asked("inner-product", left, sites, last, between)
        other, _ = self._asked("inner-product", left if right is None else right, sites, last, between, side=-1)
        found: Estimate = mine.inner_product(other, **when)
        return found

    def total(
        self, *, last: Any = None, between: Between | None = None, sites: Sites = None, of: str | None = None
    ) -> Estimate:
        """How many rows came."""
        sketch, when = self._asked("total", of, sites, last, between)
        found: Estimate = sketch.total(**when)
        return found

    # -- what is asked -------------------------------------------------------------------------------------------------

    def _asked(
        self, what: str, of: str | None, sites: Sites, last: Any, between: Any, side: int = 0
    ) -> tuple[Any, dict[str, Any]]:
        """What answers a question, and the range that it still has to be told."""
        for _ in range(_TRIES):
            try:
                return self._asked_now(what, of, sites, last, between, side)
            except GoneError:  # the view is older than what the store keeps
                self._view.refresh()
        return self._asked_now(what, of, sites, last, between, side)

    def _asked_now(
        self, what: str, of: str | None, sites: Sites, last: Any, between: Any, side: int
    ) -> tuple[Any, dict[str, Any]]:
        version = self._view.version()
        if version is None:
            raise QueryError(
                "the store has no sketches",
                remedy='write sketches = "always", or how often, as in "1m", under [store] of the pipeline file',
            )
        known, chosen = self._chosen
        if known is not version:
            chosen = {}
            self._chosen = version, chosen
            self._likes = {}
            self._sums.clear()
            self._merged.clear()
        name = chosen.get((what, of, side))
        if name is None:
            stored = self._view.sketch_infos()
            name = best(what, stored) if of is None else named(what, of, side, stored, self._view.about.queries)
            chosen[what, of, side] = name
        some = None if sites is None else self._some(version, sites)
        if between is None:
            return self._sum(version, name, some, self._length(last)), {}
        return self._whole(version, name, some), {"last": last, "between": self._ends(between)}

    def _sum(self, version: SketchVersion, name: str, sites: tuple[str, ...] | None, last: Any) -> Any:
        """What these sites know together of the last so long."""
        key = version, name, sites, type(last), last  # as True is 1 to Python, and 1.0 is
        found = self._sums.get(key)
        if found is None:
            sketches = self._sketches(version, name, sites)
            now = _now(version, sketches)
            known = _added(extract(sketch, last, now) for sketch in sketches)
            # All sums are like one sketch, or each of them would hold another one in memory.
            found = view_of(self._likes.setdefault((version, name), sketches[0]), known)
            listed = 0 if known.candidates is None else 100 * known.candidates.hashes.size
            self._sums.put(key, found, 3 * known.cells.value.nbytes + listed)
        return found

    def _whole(self, version: SketchVersion, name: str, sites: tuple[str, ...] | None) -> Any:
        """The sketches of these sites as one, which has come to the time of the version."""
        key = version, name, sites
        found = self._merged.get(key)
        if found is None:
            sketches = self._sketches(version, name, sites)
            found = merge(sketches) if len(sketches) > 1 else sketches[0].copy()
            found._advance(_now(version, sketches))
            self._merged.put(key, found, found.nbytes)
        return found

    def _sketches(self, version: SketchVersion, name: str, sites: tuple[str, ...] | None) -> list[Any]:
        places = version.places[name]
        there = None if sites is None else [site for site in sites if site in places]
        if there == []:
            raise UnknownError("site with this sketch", ", ".join(sites or ()), sorted(places))
        return list(self._view.sketches_of(version, name, there).values())

    def _some(self, version: SketchVersion, sites: Sequence[str]) -> tuple[str, ...]:
        some = (sites,) if isinstance(sites, str) else tuple(sorted(set(sites)))
        if not some:
            raise InputError("an empty list of sites; name some, or leave sites out to ask all of them")
        for site in some:
            if site not in version.sites:
                raise UnknownError("site", site, version.sites)
        return some

    # -- as people write it --------------------------------------------------------------------------------------------

    def _key(self, key: Any) -> Any:
        """A key as the stream has it: what comes from a command line or over HTTP is text."""
        kind = self._view.about.keys
        if kind == "integer":
            return key if type(key) is int else _integer(key)
        if kind == "text":
            return str(int(key)) if isinstance(key, int | np.integer) and not isinstance(key, bool) else key
        return key

    def _length(self, last: Any) -> Any:
        """A length of time: a number where times are numbers."""
        return _age(last) if isinstance(last, str) and self._view.time_type == "integer" else _hashable(last)

    def _ends(self, between: Any) -> tuple[Any, ...]:
        if isinstance(between, str) or not isinstance(between, Sequence) or len(between) != 2:
            raise RangeError(f"between={between!r}; give two ages or times, the older first, as in ('2h', '1h')")
        is_text = self._view.time_type == "integer"
        return tuple(_age(end) if is_text and isinstance(end, str) else end for end in between)


def _now(version: SketchVersion, sketches: Sequence[Any]) -> int:
    """The tick at which ranges end. A stored time is told in microseconds, which ticks may be finer than."""
    known: list[int] = [sketch._now for sketch in sketches if sketch._now is not None]
    return max([tick_of(version.time, sketches[0].window), *known])


def _added(extracts: Iterable[Extract]) -> Extract:
    """The sum, added up as a balanced tree: with thousands of sites, columns of keys nest a dozen deep instead of thousands.

    Only the sums that wait for one of their own size are held.
    """
    waiting: list[tuple[int, Extract]] = []
    for one in extracts:
        size = 1
        while waiting and waiting[-1][0] == size:
            one, size = waiting.pop()[1] + one, 2 * size
        waiting.append((size, one))
    return reduce(lambda later, earlier: earlier + later, (one for _, one in reversed(waiting)))


def _nothing(confidence: float) -> Estimates:
    nothing = np.empty(0, np.int64)
    return Estimates(nothing, nothing, nothing, confidence)


def _integer(key: Any) -> int:
    try:
        if isinstance(key, bool):
            raise ValueError
        return int(key if isinstance(key, str) else operator.index(key))
    except (TypeError, ValueError):
        raise InputError(f"the keys of this store are integers and {key!r} is none; give a whole number") from None


def _age(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RangeError(f"the times of this store are integers and {text!r} is none; give a whole number") from None


def _number(given: Any) -> Any:
    """A number that may come as text."""
    if not isinstance(given, str):
        return given
    for kind in (int, float):
        try:
            return kind(given)
        except ValueError:
            continue
    raise InputError(f"{given!r} is not a number; give one, as in 1023 or 0.99")


def _hashable(last: Any) -> Any:
    try:
        hash(last)
    except TypeError:
        raise RangeError(f"last={last!r} is not a length of time; write it like '10m'") from None
    return last
