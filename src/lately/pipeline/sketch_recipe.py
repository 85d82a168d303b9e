"""A kind of sketch with its options: enough for every task to build the same empty sketch."""

from dataclasses import dataclass
from typing import Any, Literal

from lately.core.durations import Window, arrivals
from lately.core.errors import ParameterError
from lately.sketches.kinds import KINDS, KeyEncoding, kind_named

#: The names of ``lately.sketches.kinds.KINDS``, for type checkers.
KindName = Literal["ecm", "topk", "quantiles", "dyadic", "wcm", "ams"]


@dataclass(frozen=True)
class SketchRecipe:
    """How to build a sketch. Make one with ``of``, which checks it.

    Parameters
    ----------
    kind
        The name of the kind, such as "topk".
    options
        What its constructor takes, as sorted pairs of name and value.
    """

    kind: str
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, kind: str, **options: Any) -> "SketchRecipe":
        """Check kind and options by building a sketch, so that mistakes are reported before Spark starts anything.

        Parameters
        ----------
        kind
            The name of the kind, such as "topk".
        options
            What its constructor takes; None stands for the constructor's default.

        >>> SketchRecipe.of("ecm", window="1h", eps=0.01, delta=0.01).empty()
        EcmSketch(Window('1h', tick='1s'), eps=0.01, delta=0.01, counter='shared', width=2153, depth=2, merges=0, nbytes=17_412)
        """
        kind_named(kind)
        if options.get("salt") is not None:
            raise ParameterError(
                f"salt={options['salt']!r}: every task would draw the same samples, which cannot be merged",
                remedy="leave salt out",
            )
        recipe = cls(kind, tuple(sorted((name, value) for name, value in options.items() if value is not None)))
        if isinstance(recipe.empty().window, Window) and isinstance(dict(recipe.options)["window"], arrivals):
            raise ParameterError(
                "a window of arrivals needs one order of all rows, which Spark's partitions do not have",
                remedy="give a window of time",
            )
        return recipe

    def empty(self) -> Any:
        """Return a new sketch."""
        kind, options = KINDS[self.kind], dict(self.options)
        sketch_class = kind.sketch_class
        if kind.variants and (variant := options.pop("variant", None)) is not None:
            if variant not in kind.variants:
                raise ParameterError(f"variant={variant!r}", remedy=f"give one of {', '.join(kind.variants)}")
            sketch_class = kind.variants[variant]
        try:
            return sketch_class(**options)
        except TypeError as error:  # Python names the constructor; users know it by its kind
            reason = str(error).removeprefix(f"{sketch_class.__name__}.__init__() ")
            raise ParameterError(f"kind={self.kind!r}: {reason}") from error

    @property
    def key_encoding(self) -> KeyEncoding:
        """How its keys are sent from the JVM: as hashes, as they are, as integers or as numbers."""
        return KINDS[self.kind].key_encoding
