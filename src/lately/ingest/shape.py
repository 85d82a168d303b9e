"""What a counter or sketch over a window was asked for: read from users, written to bytes and read back."""

from dataclasses import dataclass, field
from typing import Literal

from lately.core.arguments import MIN_SHARE
from lately.core.codec import Reader, Writer
from lately.core.durations import MAX_WINDOW_TICKS, Duration, Window, arrivals
from lately.core.errors import ParameterError
from lately.core.plan import Counter, premerge_error
from lately.counters.families import NAMES

_KINDS: tuple[Literal["time", "integer", "arrivals"], ...] = ("time", "integer", "arrivals")

#: The families that ``lt.merge(…, eps=…)`` can build finer or coarser: those that are replayed.
RESIZED: tuple[Counter, ...] = ("wave", "exphist")


@dataclass(frozen=True, slots=True)
class WindowShape:
    """What anything over a window was asked for. Two can be merged when all of it agrees but the last two fields."""

    window: Window
    lateness: int
    eps: float
    delta: float
    merge_height: int
    #: The error of the counters where ``lt.merge(…, eps=…)`` chose it; 0 where it follows from eps and merge_height.
    counter_eps: float = field(default=0.0, kw_only=True)
    #: Sized for merge_height by the sum over levels, as before bytes had extended fields; False where both sizes are the same.
    additive: bool = field(default=False, kw_only=True)

    @property
    def extended(self) -> bool:
        """Whether bytes need the extended fields to tell these sizes."""
        return self.counter_eps > 0 or (self.merge_height > 1 and not self.additive)

    def before_merges(self, eps: float) -> float:
        """The error of counters that ``merge_height`` levels of merging may bring to eps."""
        return self.counter_eps or premerge_error(eps, self.merge_height, self.additive)

    def write(self, out: Writer) -> None:
        """Write all fields, in the order of declaration."""
        _write_guarantee(self, out)
        out.u8(self.merge_height)


@dataclass(frozen=True, slots=True)
class Shape(WindowShape):
    """What a counter was asked for, or a sketch with a family of counters to choose from."""

    counter: Counter
    samples: int

    @property
    def eps_sw(self) -> float:
        """The error that each counter is built with."""
        return self.before_merges(self.eps)

    def write(self, out: Writer) -> None:
        _write_guarantee(self, out)
        out.u8(NAMES.index(self.counter))
        out.u8(self.merge_height)
        out.u8(self.samples)


def window_and_lateness(window: Duration | arrivals, tick: Duration | None, lateness: Duration | None) -> tuple[Window, int]:
    """Read the ``window=``, ``tick=`` and ``lateness=`` that a user gives."""
    shape = Window.of(window, tick)
    if lateness is None:
        return shape, 0
    if shape.kind == "arrivals":
        raise ParameterError(f"lateness={lateness!r}: arrivals are counted as they come, none is late", remedy="leave it out")
    try:
        ticks = shape.length(lateness)
    except ParameterError as error:
        raise ParameterError(f"lateness: {error.message}", error.remedy) from error
    if not 0 <= ticks <= shape.ticks:
        raise ParameterError(
            f"lateness={lateness!r} is negative or longer than the window of {shape.text(shape.ticks)}", remedy="give less"
        )
    return shape, ticks


def _write_guarantee(shape: WindowShape, out: Writer) -> None:
    out.u8(_KINDS.index(shape.window.kind))
    out.u64(shape.window.ticks)
    out.u64(shape.window.unit)
    out.u64(shape.lateness)
    out.f64(shape.eps)
    out.f64(shape.delta)
    if out.extended:
        out.f64(shape.counter_eps)
        out.u8(shape.additive)


def _read_guarantee(source: Reader) -> tuple[Window, int, float, float]:
    kind = _KINDS[source.choice(0, 1, 2)]
    ticks = source.within(source.u64(), 1, MAX_WINDOW_TICKS + (source.version > 1))  # one more may come from version 1
    if source.version == 1 and kind != "arrivals":
        ticks += 1  # windows of time held both ends: one tick more than they said
    unit = source.within(source.u64(), 1, 2**63 - 1)
    source.check(kind != "arrivals" or unit == 1, "arrivals with a unit")
    lateness = source.within(source.u64(), 0, 0 if kind == "arrivals" else ticks)
    return Window(kind, ticks, unit), lateness, source.fraction(), source.fraction()


def _read_sizing(source: Reader) -> tuple[float, bool]:
    """The error of the counters, 0 if it was not chosen, and whether the sum over levels gave their sizes."""
    if not source.extended:
        return 0.0, True
    eps = source.f64()
    source.check(eps == 0 or MIN_SHARE <= eps < 1, f"counters with an error of {eps}")
    return eps, source.choice(0, 1) == 1


def read_window_shape(source: Reader) -> WindowShape:
    """What ``WindowShape.write`` wrote, of a class whose counters have no error of their own choice."""
    guarantee, (eps, additive) = _read_guarantee(source), _read_sizing(source)
    source.check(eps == 0, "counters with an error of their own")
    height = source.u8()
    return WindowShape(*guarantee, height, additive=additive and height > 1)


def read_shape(source: Reader, shared: bool = False) -> Shape:
    """What ``Shape.write`` wrote; ``shared`` tells whether its class has shared waves to choose from."""
    guarantee, (eps, additive) = _read_guarantee(source), _read_sizing(source)
    counter = NAMES[source.choice(*(number for number, name in enumerate(NAMES) if shared or name != "shared"))]
    source.check(eps == 0 or counter in RESIZED, "an error of counters that cannot choose it")
    height, samples = source.u8(), source.within(source.u8(), 1, 255)
    return Shape(*guarantee, height, counter, samples, counter_eps=eps, additive=additive and height > 1)
