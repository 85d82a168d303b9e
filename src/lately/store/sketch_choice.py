"""Which of the stored sketches answers a question: the one that the caller names, or the best of those over all rows."""

from collections.abc import Mapping, Sequence

from lately.core.errors import QueryError
from lately.sketches.kinds import QUESTIONS, Question, Suitability, suitability
from lately.store.about import QueryInfo, SketchInfo
from lately.store.errors import UnknownError

#: The kind of query that makes a pipeline store a sketch for a question.
_QUERY_KINDS: dict[Question, str] = {
    "count": "counts",
    "top": "top",
    "quantiles": "quantiles",
    "range": "ranges",
    "self-join": "self-join",
    "inner-product": "join",
    "total": "counts",
}


def answerable(stored: Mapping[str, SketchInfo]) -> list[Question]:
    """The questions that some stored sketch of all rows can answer."""
    return [question for question in QUESTIONS if suitable_sketches(question, stored)]


def suitable_sketches(question: Question, stored: Mapping[str, SketchInfo], filtered: bool = False) -> list[str]:
    """The names of the stored sketches that can answer a question, the best first.

    Parameters
    ----------
    question
        One of ``lately.sketches.kinds.QUESTIONS``.
    stored
        The stored sketches by name.
    filtered
        Whether sketches with a ``where`` condition are meant, instead of those over all rows.

    >>> stored = {"a": SketchInfo("topk", eps=0.1), "b": SketchInfo("ecm", eps=0.01), "c": SketchInfo("topk", where="x > 0")}
    >>> suitable_sketches("count", stored), suitable_sketches("top", stored), suitable_sketches("top", stored, filtered=True)
    (['b', 'a'], ['a'], ['c'])
    >>> suitable_sketches("quantiles", stored)
    []
    """
    candidates = []
    for name, sketch in stored.items():
        fit = _suitability(question, sketch)
        if fit is not None and (sketch.where is not None) == filtered:
            candidates.append((fit.rank, sketch.eps or 1.0, fit.order, name))
    return [name for *_, name in sorted(candidates)]


def best_sketch(question: Question, stored: Mapping[str, SketchInfo]) -> str:
    """The name of the sketch that answers a question if the caller names none; QueryError if there is none over all rows."""
    if names := suitable_sketches(question, stored):
        return names[0]
    remedy = f'add a query of the kind "{_QUERY_KINDS[question]}" to the pipeline file'
    if names := suitable_sketches(question, stored, filtered=True):
        remedy = f"sketches of some rows can: name one with of=, as in of={names[0]!r}"
    raise QueryError(f"no stored sketch of all rows can answer {question}", remedy=remedy)


def named_sketch(question: Question, of: str, side: int, stored: Mapping[str, SketchInfo], queries: Sequence[QueryInfo]) -> str:
    """The name of the sketch that a caller means.

    Parameters
    ----------
    question
        The question that it must be able to answer; QueryError if it is not.
    of
        The name of a sketch or of a query.
    side
        Which sketch of a query: 0 for the first, -1 for the last, which for a join are its left and right side.
    stored
        The stored sketches by name.
    queries
        The queries of the pipeline.
    """
    name = of if of in stored else _sketch_of_query(of, side, stored, queries)
    if _suitability(question, stored[name]) is None:
        raise QueryError(
            f"{of!r} keeps a sketch of the kind {stored[name].kind!r}, which cannot answer {question}",
            remedy=f"name a query of the kind {_QUERY_KINDS[question]!r}",
        )
    return name


def _sketch_of_query(of: str, side: int, stored: Mapping[str, SketchInfo], queries: Sequence[QueryInfo]) -> str:
    query = next((query for query in queries if query.name == of), None)
    if query is None:
        raise UnknownError("query", of, [*(query.name for query in queries), *stored])
    if not query.sketches or query.sketches[side] not in stored:
        why = "is exact and keeps no sketch" if query.kind == "exact" else "has no sketch in the store yet"
        raise QueryError(f"the query {of!r} {why}", remedy="leave of= out, or name another query")
    return query.sketches[side]


def _suitability(question: Question, sketch: SketchInfo) -> Suitability | None:
    return suitability(question, sketch.kind, sketch.query)
