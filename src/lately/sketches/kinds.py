"""All kinds of sketches by name, such as "ecm". To add one, declare its ``KIND`` in its own file and list it here."""

from lately.core.errors import ParameterError
from lately.sketches import dyadic, ecm, quantiles, topk, wcm, windowed_ams
from lately.sketches.sketch_kind import KeyEncoding, Question, SketchKind, Suitability

__all__ = ["KINDS", "QUESTIONS", "KeyEncoding", "Question", "SketchKind", "Suitability", "kind_named", "suitability"]

KINDS: dict[str, SketchKind] = {
    kind.name: kind for kind in (ecm.KIND, topk.KIND, quantiles.KIND, dyadic.KIND, wcm.KIND, windowed_ams.KIND)
}
#: All questions, in the order in which they are listed to users.
QUESTIONS: tuple[Question, ...] = ("count", "top", "quantiles", "range", "self-join", "inner-product", "total")


def kind_named(name: str) -> SketchKind:
    """The kind with this name.

    >>> kind_named("topk").key_encoding
    'key'
    """
    if name not in KINDS:
        raise ParameterError(f"kind={name!r}", remedy=f"give one of {', '.join(KINDS)}")
    return KINDS[name]


def suitability(question: Question, name: str, purpose: str | None = None) -> Suitability | None:
    """How well a sketch answers a question; None if it does not.

    Parameters
    ----------
    question
        One of ``QUESTIONS``.
    name
        The name of its kind; a name that is not known answers nothing.
    purpose
        What it was sized for: the option ``query`` of an ``EcmSketch``, None for other kinds.

    >>> suitability("top", "ecm", "point"), suitability("quantiles", "quantiles").rank, suitability("quantiles", "dyadic").rank
    (None, 0, 1)
    """
    kind = KINDS.get(name)
    return None if kind is None else kind.suitability(question, purpose)
