"""What a kind of sketch says about itself: how its keys are encoded, which questions it answers, and how far off it may be.

Each sketch declares its ``KIND`` in its own file, with the constants of its error; ``kinds`` lists them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from lately.core.columns import Ints

#: How keys cross from the JVM: as their 64-bit hash, as they are, as an integer, or as a floating-point number.
KeyEncoding = Literal["hash", "key", "integer", "number"]
#: The questions that stored sketches answer.
Question = Literal["count", "top", "quantiles", "range", "self-join", "inner-product", "total"]
#: The options that a sketch was built with, by name.
Options = Mapping[str, Any]

#: What an error is a share of, as ``lately run --check`` shows it.
ROWS = "the rows in the range"
ROWS_IN_TIME = "the rows in the range of time"
SQUARE_OF_ROWS = "the square of the rows in the range"
PRODUCT_OF_ROWS = "left rows times right rows in the range"
SECOND_MOMENT = "the answer, or of 1/256 of the square of the rows in the range if that is more"
NORMS = "the product of both norms (the root of a self-join, or 1/16 of the rows in the range if that is more)"


class Suitability(NamedTuple):
    """How well a kind answers a question. Of several stored sketches the one of lowest rank is asked, then of lowest eps.

    Parameters
    ----------
    rank
        0 if the kind is made for the question; 1 if it is used only where no such sketch is stored.
    order
        Decides between kinds of equal rank and equal eps: the lowest first.
    error_share
        What the error is a share of, in words; None if the answer has bounds of its own, which eps does not describe.
    """

    rank: int
    order: int
    error_share: str | None = None


Questions = Mapping[Question, Suitability]


def _same_keys(keys: Ints, _: Options) -> Any:
    return keys


@dataclass(frozen=True)
class SketchKind:
    """One kind of sketch.

    Parameters
    ----------
    name
        The word for it in pipeline files and in ``kind=``, such as "topk".
    sketch_class
        Its class.
    key_encoding
        How its keys cross from the JVM to Python.
    questions
        The questions that it answers from a store; none for a kind that stores do not keep.
    guarantee
        The options that say what it promises, in the order in which they are shown.
    variants
        Classes to choose from with the option ``variant``; ``sketch_class`` is the default. None by default.
    purposes
        For a kind with the option ``query``: the questions of a sketch sized for "inner", which replace ``questions``.
    merged_eps
        The eps, from its options, once the sketches of several sites are merged in one step: exact for "ecm", about that
        for the others. None if nothing is known about it.
    example_keys
        Makes keys that a sketch with some options takes out of integers below 100,000, to measure its size. By default
        the integers themselves.
    """

    name: str
    sketch_class: type[Any]
    key_encoding: KeyEncoding = "hash"
    questions: Questions = field(default_factory=dict)
    guarantee: tuple[str, ...] = ("eps", "delta")
    variants: Mapping[str, type[Any]] = field(default_factory=dict)
    purposes: Mapping[str, Questions] = field(default_factory=dict)
    merged_eps: Callable[[Options], float] | None = None
    example_keys: Callable[[Ints, Options], Any] = _same_keys

    def suitability(self, question: Question, purpose: str | None = None) -> Suitability | None:
        """How well a sketch of this kind answers a question; None if it does not.

        Parameters
        ----------
        question
            The question.
        purpose
            What the sketch was sized for, the option ``query`` of an ``EcmSketch``; None for other kinds and for "point".
        """
        return self.purposes.get(purpose or "", self.questions).get(question)
