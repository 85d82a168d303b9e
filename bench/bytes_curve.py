"""Error against bytes: the search for the eps that fits, the classes that do not count keys, and the plot."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

import lately as lt
from bench.data import Ints, Stream, delays
from bench.report import Options, Report, Table

SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
RANGES = 10
COARSEST, FINEST = 0.9, 1e-7
COLUMNS = {"what": "", "question": "", "budget": ",", "eps": ".3g", "bytes": ",", "error": ".2g", "error is": ""}
PANELS = {
    "counts": "mean error of all counts",
    "frequent": "mean relative error, keys with 100 arrivals or more",
    "self-join": "relative error of the self-join",
    "rank": "mean rank error of quantiles",
    "total": "mean relative error of the arrivals",
}


class Point(NamedTuple):
    """A class, what it was asked, the bytes that it may take, and its error."""

    name: str
    question: str
    nbytes: int
    error: float


class Rows(Protocol):
    """The rows to count, and what they are."""

    data: Stream
    window: int
    codes: Ints

    def fill(self, sketch: Any) -> Any:
        """Count the rows."""


class Class(NamedTuple):
    """How to build a sketch, count the rows and measure its error."""

    name: str
    question: str
    error_is: str
    make: Callable[[float], Any]
    fill: Callable[[Any], Any]
    error: Callable[[Any], float]


def fit(
    make: Callable[[float], Any], fill: Callable[[Any], Any], nbytes: int, start: float, *, steps: int = 4
) -> tuple[float, Any] | None:
    """The smallest eps whose sketch takes at most this many bytes when it has counted the rows, and the sketch; to 5 %.

    ``start`` is an eps to begin with: halved until the sketch is too large. None if that one is.
    """

    def build(eps: float) -> Any:
        sketch = make(eps)
        return sketch if sketch.nbytes > nbytes else fill(sketch)

    best, eps = None, start
    while eps > FINEST and (sketch := build(eps)).nbytes <= nbytes:
        best, eps = (eps, sketch), eps / 2
    if best is None:
        return None
    low = eps
    for _ in range(steps):
        middle = float(f"{(low * best[0]) ** 0.5:.3g}")
        if (sketch := build(middle)).nbytes <= nbytes:
            best = middle, sketch
        else:
            low = middle
    return best


def others(report: Report, options: Options, rows: Rows, delta: float, budgets: tuple[int, ...]) -> list[Point]:
    """A table of the classes that answer other questions."""
    table = Table("other questions: error for the bytes", COLUMNS)
    for each in _classes(rows, delta):
        start = COARSEST
        for nbytes in budgets:
            options.tell(f"{nbytes:,} bytes, {each.name}, {each.question}")
            fitted = fit(each.make, each.fill, nbytes, start)
            if fitted is not None:
                start, sketch = fitted
                table.add(each.name, each.question, nbytes, start, sketch.nbytes, each.error(sketch), each.error_is)
    report.tables.append(table)
    report.notes.append(
        f"Other questions: the last window of the same rows (quantiles and Dyadic: the last tenth of it), delta {delta:g}; "
        f"quantiles of synthetic delays at {len(SHARES)} shares; arrivals in {RANGES} ranges, of {RANGES} lengths."
    )
    return [Point(row["what"], row["question"], row["budget"], row["error"]) for row in table.as_dicts()]


def _classes(rows: Rows, delta: float) -> list[Class]:
    window, codes = rows.window, rows.codes
    counts = np.unique(codes, return_counts=True)[1].astype(np.float64)
    times = np.arange(codes.size)
    square = float(counts @ counts)
    options_of = {"window": window, "delta": delta}

    def feed(sketch: Any) -> Any:
        sketch.update(codes, times)
        return sketch

    def join_error(sketch: Any) -> float:
        return abs(sketch.self_join().value - square) / square

    joins: dict[str, Callable[[float], Any]] = {
        "EcmSketch, query='inner'": lambda eps: lt.EcmSketch(eps=eps, query="inner", **options_of),
        "TopK, k=100": lambda eps: lt.TopK(k=100, eps=eps, **options_of),
        "WindowedAmsSketch": lambda eps: lt.WindowedAmsSketch(eps=eps, **options_of),
    }
    found = [Class(name, "self-join", "relative", make, feed, join_error) for name, make in joins.items()]
    return [*found, *_trees(codes, window, delta), _counter(times, window)]


def _trees(codes: Ints, window: int, delta: float) -> list[Class]:
    """Quantiles of numbers and of keys, over a tenth of the window: an update takes a level for each bit."""
    window = max(1, window // 10)
    codes = codes[-window:]
    values, times = delays(window).values, np.arange(codes.size)
    lo, hi = float(values.min()), float(values.max()) + 1
    universe = 2 ** max(1, int(codes.max()).bit_length())
    trees = {
        "Quantiles": (values, lambda eps: lt.Quantiles(window=window, eps=eps, delta=delta, lo=lo, hi=hi, resolution=1)),
        "Dyadic": (codes, lambda eps: lt.Dyadic(universe=universe, window=window, eps=eps, delta=delta)),
    }

    def feeder(numbers: Any) -> Callable[[Any], Any]:
        def feed(sketch: Any) -> Any:
            sketch.update(numbers, times)
            return sketch

        return feed

    def rank_error(ordered: Any) -> Callable[[Any], float]:
        def error(sketch: Any) -> float:
            answers = np.asarray(sketch.quantile(list(SHARES)).value)
            below, upto = (np.searchsorted(ordered, answers + half) / ordered.size for half in (-0.5, 0.5))  # whole numbers
            return float(np.maximum(0, np.maximum(below - SHARES, SHARES - upto)).mean())

        return error

    return [
        Class(name, "rank", "share of the arrivals", make, feeder(numbers), rank_error(np.sort(numbers)))
        for name, (numbers, make) in trees.items()
    ]


def _counter(times: Ints, window: int) -> Class:
    lengths = np.unique(np.linspace(1, window, RANGES + 1).astype(np.int64)[1:])

    def feed(counter: Any) -> Any:
        counter.add(times)
        return counter

    def error(counter: Any) -> float:
        return float(np.mean([abs(counter.count(last=int(length)).value / length - 1) for length in lengths]))

    return Class("WindowCounter", "total", "relative", lambda eps: lt.WindowCounter(window=window, eps=eps), feed, error)


def plot(points: list[Point], options: Options) -> str:
    """Error against bytes, one panel per question, one line per class."""
    try:
        import matplotlib
    except ImportError:
        raise lt.LatelyError("--plot needs matplotlib; pip install 'lately[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(17, 10), layout="constrained")
    colours = {name: plt.get_cmap("tab20")(place) for place, name in enumerate(dict.fromkeys(point.name for point in points))}
    for axis, (question, label) in zip(axes.flat, PANELS.items(), strict=False):
        chosen = [point for point in points if point.question == question and point.error > 0]  # no logarithm of 0
        for name in dict.fromkeys(point.name for point in chosen):
            line = [(point.nbytes, point.error) for point in chosen if point.name == name]
            axis.plot(*zip(*line, strict=True), "o-", markersize=4, label=name, color=colours[name])
        axis.set(xlabel="bytes", title=label)
        if chosen:
            axis.set(xscale="log", yscale="log")
            axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
        axis.grid(alpha=0.3)
    axes.flat[-1].set_axis_off()
    assert options.plot is not None
    options.plot.mkdir(parents=True, exist_ok=True)
    path = options.plot / "bytes.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return str(path)
