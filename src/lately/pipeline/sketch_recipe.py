"""Which sketch a word such as "ecm" or "topk" stands for, and how its keys come from the JVM to Python.

Sketches that only count take hashes, which the JVM computes (``xxhash64``) so that no text crosses; a TopK gives keys back
and so needs them; trees need the numbers themselves.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from lately.core.durations import Window, arrivals
from lately.core.errors import ParameterError
from lately.sketches.dyadic import Dyadic
from lately.sketches.ecm import EcmSketch
from lately.sketches.quantiles import Quantiles
from lately.sketches.topk import TopK
from lately.sketches.wcm import PerfectCountMin, ProportionalCountMin, SimpleCountMin, SplitterCountMin
from lately.sketches.windowed_ams import WindowedAmsSketch

Kind = Literal["ecm", "topk", "quantiles", "dyadic", "wcm", "ams"]
#: How a key is sent from the JVM to Python: as its hash, as it is, or as a number.
KeyEncoding = Literal["hash", "key", "integer", "number"]

_WCM = {
    "perfect": PerfectCountMin,
    "simple": SimpleCountMin,
    "proportional": ProportionalCountMin,
    "splitter": SplitterCountMin,
}
_CLASSES: dict[str, type[Any]] = {
    "ecm": EcmSketch,
    "topk": TopK,
    "quantiles": Quantiles,
    "dyadic": Dyadic,
    "wcm": SplitterCountMin,
    "ams": WindowedAmsSketch,
}
_KEY_ENCODINGS: dict[str, KeyEncoding] = {"topk": "key", "quantiles": "number", "dyadic": "integer"}


@dataclass(frozen=True)
class SketchRecipe:
    """A kind of sketch with its options: what every task builds alike."""

    kind: str
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, kind: str, **options: Any) -> "SketchRecipe":
        """Check kind and options by building one; what is wrong is told before Spark starts anything.

        >>> SketchRecipe.of("ecm", window="1h", eps=0.01, delta=0.01).empty()
        EcmSketch(Window('1h', tick='1s'), eps=0.01, delta=0.01, counter='wave', width=275, depth=5, merges=0, nbytes=27_520)
        """
        if kind not in get_args(Kind):
            raise ParameterError(f"kind={kind!r}: give one of {', '.join(get_args(Kind))}")
        if options.get("salt") is not None:
            raise ParameterError(
                f"salt={options['salt']!r}: every task would draw the same samples, which cannot be merged; leave salt out"
            )
        recipe = cls(kind, tuple(sorted((name, value) for name, value in options.items() if value is not None)))
        if isinstance(recipe.empty().window, Window) and isinstance(dict(recipe.options)["window"], arrivals):
            raise ParameterError(
                "a window of arrivals needs one order of all rows, which Spark's partitions do not have; give a window of time"
            )
        return recipe

    def empty(self) -> Any:
        """A new sketch."""
        options = dict(self.options)
        made = _CLASSES[self.kind]
        if self.kind == "wcm":
            variant = options.pop("variant", "splitter")
            if variant not in _WCM:
                raise ParameterError(f"variant={variant!r}: give one of {', '.join(_WCM)}")
            made = _WCM[variant]
        try:
            return made(**options)
        except TypeError as error:  # Python names the function; users know it by its kind
            raise ParameterError(f"kind={self.kind!r}: {str(error).removeprefix(f'{made.__name__}.__init__() ')}") from error

    @property
    def key_encoding(self) -> KeyEncoding:
        """How its keys come from the JVM."""
        return _KEY_ENCODINGS.get(self.kind, "hash")
