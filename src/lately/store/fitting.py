"""Which of the stored sketches is asked: the one that somebody names, or the one of all rows that fits best."""

from collections.abc import Mapping, Sequence

from lately.core.errors import QueryError
from lately.store.about import QueryInfo, SketchInfo
from lately.store.errors import UnknownError

#: Which sketches fit a question: their kinds, and for what an ECM-sketch was sized. The first that is there is taken.
FITTING: dict[str, tuple[tuple[str, ...], ...]] = {
    "count": (("ecm point", "topk", "ecm inner", "dyadic"),),
    "top": (("topk",),),
    "quantiles": (("quantiles",), ("dyadic",)),
    "range": (("dyadic",), ("quantiles",)),
    "self-join": (("ecm inner",), ("topk", "dyadic", "ecm point")),
    "inner-product": (("ecm inner",), ("ecm point",)),
    "total": (("ecm point", "ecm inner", "topk", "dyadic", "quantiles"),),
}
#: Which query makes a pipeline keep a sketch for a question.
_REMEDIES = {
    "count": "counts",
    "top": "top",
    "quantiles": "quantiles",
    "range": "ranges",
    "self-join": "self-join",
    "inner-product": "join",
    "total": "counts",
}


def fitting(what: str, stored: Mapping[str, SketchInfo], filtered: bool = False) -> list[str]:
    """The stored sketches that fit a question, the best first: of all rows, or of some.

    >>> stored = {"a": SketchInfo("topk", eps=0.1), "b": SketchInfo("ecm", eps=0.01), "c": SketchInfo("topk", where="x > 0")}
    >>> fitting("count", stored), fitting("top", stored), fitting("top", stored, filtered=True), fitting("quantiles", stored)
    (['b', 'a'], ['a'], ['c'], [])
    """
    found = []
    for rank, kinds in enumerate(FITTING[what]):
        for name, told in stored.items():
            if _kind(told) in kinds and (told.where is not None) == filtered:
                found.append((rank, told.eps or 1.0, kinds.index(_kind(told)), name))
    return [name for *_, name in sorted(found)]


def best(what: str, stored: Mapping[str, SketchInfo]) -> str:
    """The sketch that is asked where nobody names one."""
    if found := fitting(what, stored):
        return found[0]
    remedy = f'add a query of the kind "{_REMEDIES[what]}" to the pipeline file'
    if filtered := fitting(what, stored, filtered=True):
        remedy = f"those that fit count only some rows: name one with of=, as in of={filtered[0]!r}"
    raise QueryError(f"no stored sketch of all rows can answer {what}", remedy=remedy)


def named(what: str, of: str, side: int, stored: Mapping[str, SketchInfo], queries: Sequence[QueryInfo]) -> str:
    """The sketch of a query, or of this name; a join has one on each ``side``, 0 and -1."""
    name = of if of in stored else _of_query(of, side, stored, queries)
    if not any(_kind(stored[name]) in kinds for kinds in FITTING[what]):
        raise QueryError(
            f"{of!r} keeps a sketch of the kind {stored[name].kind!r}, which cannot answer {what}",
            remedy=f"name a query of the kind {_REMEDIES[what]!r}",
        )
    return name


def _of_query(of: str, side: int, stored: Mapping[str, SketchInfo], queries: Sequence[QueryInfo]) -> str:
    query = next((one for one in queries if one.name == of), None)
    if query is None:
        raise UnknownError("query", of, [*(one.name for one in queries), *stored])
    names = query.sketches
    if not names or names[side] not in stored:
        why = "is exact and keeps no sketch" if query.kind == "exact" else "has no sketch in the store yet"
        raise QueryError(f"the query {of!r} {why}", remedy="leave of= out, or name another query")
    return names[side]


def _kind(told: SketchInfo) -> str:
    return f"ecm {told.query or 'point'}" if told.kind == "ecm" else told.kind
