"""Which keys, which values? Top keys and quantiles of the last so long, beside exact answers: how fast, right and small."""

import math
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lately as lt
from bench.data import DAY, Floats, Ints, Numbers, Stream, numbers, stream
from bench.report import Options, Report, Table, Verdict
from bench.start import _python
from bench.timing import race

DELTA = 0.01
SPAN, WINDOW, LAST = 5_300, 3_600, 600  # seconds: all of a synthetic stream, the window, what is asked about
K, PHI, EPS = 100, 0.0005, 0.0002
WEEK, RANK_EPS = 7 * DAY, 0.01
SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)
UPDATES = {"what": "", "eps": "g", "rows": ",", "M/s": ".2f", "compared with": "", "its M/s": ".2f", "ratio": ".3f"}
LISTS = {
    "what": "", "listed": ",", "must be": ",", "recall": ".4f", "may be": ",", "precision": ".4f",
    "of the exact top 100": "d", "outside their bounds": ".3%",
}  # fmt: skip
COSTS = {
    "what": "", "ms": ".2f", "cold": ".2f", "live bytes": ",", "stored bytes": ",", "peak RSS": ",",
    "ms, its/ours": ".1f", "bytes, its/ours": ".2f",
}  # fmt: skip
RANKS = {
    "q": "g", "exact": "g", "answer": "g", "low": "g", "high": "g", "rank error": ".5f",
    "of KLL, in the 7 days": ".5f", "of KLL, in all it saw": ".5f",
}  # fmt: skip
NUMBERS = {
    "what": "", "rows": ",", "M/s": ".2f", "ms a query": ".2f", "live bytes": ",", "stored bytes": ",",
    "M/s, ours/its": ".2f", "bytes, its/ours": ".2f",
}  # fmt: skip

# Both run in a fresh process, and print by how much an answer raises the most memory that it ever had.
PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
"""
PEAK_OF_OURS = f"""{PEAK}
import lately as lt
def top(blob):
    return lt.from_bytes(blob).top({K}, last={LAST})
small = lt.TopK(phi={PHI}, window={WINDOW}, eps={EPS}, delta={DELTA})
small.update(["a", "b"], [1, 2])
top(small.to_bytes())
before = peak()
top(open(PATH, "rb").read())
print(peak() - before)
"""
PEAK_OF_EXACT = f"""{PEAK}
import polars as pl
def top(frame):
    since = frame["ts"].search_sorted(frame["ts"][-1] - {LAST}, side="right")
    return frame.slice(since).group_by("key").len().top_k({K}, by="len")
top(pl.DataFrame({{"ts": [1, 2], "key": ["a", "b"]}}))
before = peak()
top(pl.read_ipc(PATH))
print(peak() - before)
"""


def run(options: Options) -> Report:
    report = Report("Which keys, which values?")
    data = stream(options, 10_000_000, 200_000)
    times = np.arange(len(data)) * SPAN // len(data) if data.seconds is None else data.seconds
    _updates(report, options, data, times)
    _top(report, options, data, times)
    _quantiles(report, options, numbers(options, 3_000_000, 100_000))
    return report


# -- updates -----------------------------------------------------------------------------------------------------------


def _updates(report: Report, options: Options, data: Stream, times: Ints) -> None:
    options.tell("updates")
    table = Table(f"updates, {len(data):,} rows of {data.name}", UPDATES)
    text, integers = data.texts.take(pa.array(data.codes)), data.codes
    scattered = integers * 2_654_435_761 % 2**32
    rounds = 3 if options.quick else 7
    best = race(
        rounds,
        {
            "EcmSketch, text": _feed(text, times, _ecm),
            "TopK, text": _feed(text, times, _topk),
            "EcmSketch, integer": _feed(integers, times, _ecm),
            "TopK, integer": _feed(integers, times, _topk),
            "Dyadic, 0.05": _feed(scattered, times, lambda: _dyadic(0.05)),
            "Dyadic, 0.01": _feed(scattered, times, lambda: _dyadic(0.01)),
        },
    )
    rate = {name: len(data) / seconds / 1e6 for name, seconds in best.items()}
    for kind in ("text", "integer"):
        ours, plain = rate[f"TopK, {kind}"], rate[f"EcmSketch, {kind}"]
        table.add(f"TopK, {kind} keys", 0.01, len(data), ours, "EcmSketch", plain, ours / plain)
        report.verdicts.append(Verdict.at_least(f"TopK, {kind} keys: update rate / EcmSketch", ours / plain, 0.5))
    for eps in (0.05, 0.01):
        ours, plain = rate[f"Dyadic, {eps}"], rate["EcmSketch, integer"]
        table.add("Dyadic over 2**32", eps, len(data), ours, "EcmSketch, eps 0.01", plain, ours / plain)
        report.verdicts.append(Verdict.at_least(f"Dyadic over 2**32, eps {eps}: million updates a second", ours, 3))
    report.tables.append(table)
    report.notes.append(
        f"Updates: k {K}, delta {DELTA} (Dyadic: delta = eps), a window of {WINDOW:,} seconds; all in one race, the best of "
        f"{rounds} turns counts. Integer keys are the texts' numbers; for Dyadic they are scattered over 2**32."
    )


def _feed(keys: Any, times: Ints, make: Callable[[], Any]) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        sketch = make()
        return lambda: sketch.update(keys, times)

    return prepare


def _ecm() -> lt.EcmSketch:
    return lt.EcmSketch(window=WINDOW, eps=0.01, delta=DELTA)


def _topk() -> lt.TopK:
    return lt.TopK(k=K, window=WINDOW, eps=0.01, delta=DELTA)


def _dyadic(eps: float) -> lt.Dyadic:
    return lt.Dyadic(universe=2**32, window=WINDOW, eps=eps, delta=eps)


# -- top keys ----------------------------------------------------------------------------------------------------------


def _top(report: Report, options: Options, data: Stream, times: Ints) -> None:
    options.tell("top keys")
    sketch = lt.TopK(phi=PHI, window=WINDOW, eps=EPS, delta=DELTA)
    for rows in data.batches():
        sketch.update(data.keys(rows), times[rows])
    first, recent = np.searchsorted(times, times[-1] - np.array([WINDOW, LAST]), "right").tolist()
    keys, counts = data.exact(slice(recent, None))
    truth = dict(zip(keys.to_pylist(), counts.tolist(), strict=True))
    arrivals, hundredth = len(data) - recent, sorted(counts.tolist(), reverse=True)[:K][-1]
    table = Table(f"the last {LAST} s of {data.name}: {arrivals:,} arrivals, {len(truth):,} keys", LISTS)
    heavy, top, slack = sketch.heavy_hitters(last=LAST), sketch.top(K, last=LAST), EPS * arrivals
    recall, precision = _compare(table, "heavy_hitters()", heavy, truth, PHI * arrivals + slack, PHI * arrivals, hundredth)
    _compare(table, f"top({K})", top, truth, hundredth + slack, hundredth - slack, hundredth)
    report.tables.append(table)
    report.verdicts += [
        Verdict.at_least("TopK.heavy_hitters: recall of keys with a share of phi + eps", recall, 1),
        Verdict.at_least("TopK.heavy_hitters: precision, listed keys that have a share of phi", precision, 1),
    ]
    _top_costs(report, options, sketch, *(_Rows(data, times, start) for start in (first, recent)), hundredth)
    report.notes += [
        f"Top keys: TopK(phi={PHI:g}, eps={EPS:g}, delta={DELTA:g}), a window of {WINDOW:,} s. Keys with a share of phi + eps "
        f"must be listed, those with phi may be. For top({K}): eps above, and below, the exact {K}th key.",
        "ms: the best of many turns; cold: right after 128 MB of other data went through the processor's caches.",
        f"Exact: polars keeps ts and key of all {len(data) - first:,} rows in the window and counts those of the last {LAST} s "
        "by key, on all cores. Its live bytes are those of the two columns in Arrow's format.",
        "Peak RSS: by how much reading what was stored and answering once raises it, in a fresh process (Linux only).",
    ]


def _compare(
    table: Table, what: str, listed: Any, truth: dict[Any, int], must: float, may: float, hundredth: int
) -> tuple[float, float]:
    """Add a row about a list of keys; gives recall and precision."""
    needed, allowed = ({key for key, count in truth.items() if count >= line} for line in (must, may))
    exact, counts = np.array([truth.get(key, 0) for key in listed.key]), listed.count
    recall = len(needed & set(listed.key)) / len(needed) if needed else 1.0
    precision = float((exact >= may).mean()) if exact.size else 1.0
    outside = float(((exact < counts.low) | (exact > counts.high)).mean()) if exact.size else 0.0
    hits = min(int((exact >= hundredth).sum()), K)
    table.add(what, exact.size, len(needed), recall, len(allowed), precision, hits, outside)
    return recall, precision


class _Rows:
    """What an exact answer has to keep: the times and keys of all rows from ``start`` on."""

    def __init__(self, data: Stream, times: Ints, start: int) -> None:
        self._times, self._keys = times[start:], data.texts.take(pa.array(data.codes[start:]))
        self.nbytes = self._times.nbytes + self._keys.nbytes

    def frame(self) -> Any:
        """Them in polars, or None where there is no polars."""
        try:
            import polars as pl
        except ImportError:
            return None
        return pl.DataFrame({"ts": self._times, "key": pl.from_arrow(self._keys)})


def _top_costs(report: Report, options: Options, sketch: lt.TopK, window: _Rows, recent: _Rows, hundredth: int) -> None:
    options.tell("top keys, exactly")
    table = Table(f"what the top {K} of the last {LAST} s cost", COSTS)
    asks = {f"top({K})": lambda: sketch.top(K, last=LAST), "heavy_hitters()": lambda: sketch.heavy_hitters(last=LAST)}
    contestants: dict[str, Any] = {}
    for name, ask in asks.items():
        contestants |= {f"{name}, cold": partial(_after_other_work, ask), name: lambda ask=ask: ask}
    frame = window.frame()
    if frame is not None:
        assert _exact_top(frame)["len"].min() == hundredth
        contestants["exact"] = lambda: lambda: _exact_top(frame)
    ms = {name: 1e3 * seconds for name, seconds in race(5 if options.quick else 30, contestants).items()}
    blob = sketch.to_bytes()
    peaks = [_peak(options, PEAK_OF_OURS, lambda path: path.write_bytes(blob)), None]
    for name, peak in zip(asks, peaks, strict=True):
        table.add(f"TopK.{name}", ms[name], ms[f"{name}, cold"], sketch.nbytes, len(blob), peak, None, None)
        report.verdicts.append(Verdict.below(f"TopK.{name} of the last {LAST} s: ms", ms[name], 5))
    slower, larger = ms.get("exact", math.nan) / ms[f"top({K})"], window.nbytes / sketch.nbytes
    if frame is None:
        table.add("polars, exact: not installed", None, None, window.nbytes, None, None, None, larger)
    else:
        peak = _peak(options, PEAK_OF_EXACT, frame.write_ipc)
        table.add("polars, exact", ms["exact"], None, window.nbytes, None, peak, slower, larger)
    table.add(f"the rows of the last {LAST} s alone", None, None, recent.nbytes, *[None] * 3, recent.nbytes / sketch.nbytes)
    report.tables.append(table)


def _after_other_work(ask: Callable[[], object]) -> Callable[[], object]:
    np.ones(2**24).sum()
    return ask


def _exact_top(frame: Any) -> Any:
    since = frame["ts"].search_sorted(frame["ts"][-1] - LAST, side="right")
    return frame.slice(since).group_by("key").len().top_k(K, by="len")


def _peak(options: Options, code: str, write: Callable[[Path], object]) -> int | None:
    """What a piece of code prints that reads the file PATH; a quick look does without."""
    if options.quick or not Path("/proc/self/status").exists():
        return None
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state"
        write(path)
        return int(_python(f"PATH = {str(path)!r}\n{code}", dict(os.environ)))


# -- quantiles ---------------------------------------------------------------------------------------------------------


def _quantiles(report: Report, options: Options, data: Numbers) -> None:
    options.tell("quantiles")
    lo, hi, resolution = _domain(data.values)
    sketch = _quantiles_sketch(lo, hi, resolution)
    sketch.update(data.values, data.seconds)
    recent = data.values[np.searchsorted(data.seconds, data.seconds[-1] - WEEK, "right") :]
    week, everything = np.sort(recent), np.sort(data.values)
    inside = np.clip(week, lo, hi - resolution / 2)  # what is beyond counts as at the end
    rival = _kll(data.values)
    theirs = [None] * len(SHARES) if rival is None else rival().get_quantiles(SHARES)
    table = Table(f"quantiles of the last 7 days, {week.size:,} of {len(data):,} rows of {data.name}", RANKS)
    worst, missed = 0.0, 0
    answers = sketch.quantile(SHARES, last="7d").value
    columns = (part.tolist() for part in (answers.value, answers.low, answers.high))
    for q, answer, low, high, their in zip(SHARES, *columns, theirs, strict=True):
        exact = float(week[max(math.ceil(q * week.size) - 1, 0)])
        error = _rank_error(inside, q, answer - resolution / 2, answer + resolution / 2, "left")
        of_kll = [None if their is None else _rank_error(values, q, their, their, "right") for values in (week, everything)]
        table.add(q, exact, answer, *(None if math.isinf(bound) else bound for bound in (low, high)), error, *of_kll)
        worst, missed = max(worst, error), missed + (not low <= exact <= high)
    report.tables.append(table)
    report.verdicts += [
        Verdict.below("Quantiles: largest rank error of all q", worst, RANK_EPS),
        Verdict.at_most("Quantiles: answers whose bounds miss the exact one", missed, 0),
    ]
    _quantile_costs(report, options, data, sketch, recent, rival)
    report.notes += [
        f"Quantiles(window='7d', eps={RANK_EPS:g}, lo={lo:g}, hi={hi:g}, resolution={resolution:g}, outside='clip'): all but "
        "0.02 % of the values are inside. Rank error: how far q is from the ranks of the answer's step.",
        "KLL: datasketches.kll_floats_sketch, built for the same eps. It has no window: its answers are about all it saw.",
        "NumPy: np.quantile over the rows in the window, kept with their times; bytes are live ones, those of KLL stored ones.",
    ]


def _domain(values: Floats) -> tuple[float, float, float]:
    """(lo, hi, resolution) as one who knows the stream would choose them: nearly all values, whole numbers told apart."""
    lo, hi = np.quantile(values, (0.0001, 0.9999)).tolist()
    if (values == np.rint(values)).all():
        lo, hi = math.floor(lo), math.ceil(hi) + 1
        return lo, hi, max(1.0, (hi - lo) / 2**32)
    hi = max(hi, lo + 1e-6 * max(1.0, abs(lo)))
    return lo, hi, (hi - lo) / 2**16


def _quantiles_sketch(lo: float, hi: float, resolution: float) -> lt.Quantiles:
    return lt.Quantiles(window="7d", eps=RANK_EPS, delta=DELTA, lo=lo, hi=hi, resolution=resolution, outside="clip")


def _rank_error(values: Floats, q: float, low: float, high: float, side: Any) -> float:
    """How far the share q is from those of what lies between two values."""
    below, upto = np.searchsorted(values, low) / values.size, np.searchsorted(values, high, side) / values.size
    return float(max(below - q, q - upto, 0))


def _kll(values: Floats) -> Callable[[], Any] | None:
    try:
        from datasketches import kll_floats_sketch as kll
    except ImportError:
        return None
    k = next(k for k in range(8, 65_536) if kll.get_normalized_rank_error(k, False) <= RANK_EPS)
    column = values.astype(np.float32)

    def feed() -> Any:
        sketch = kll(k)
        sketch.update(column)
        return sketch

    return feed


def _quantile_costs(
    report: Report, options: Options, data: Numbers, sketch: lt.Quantiles, recent: Floats, rival: Callable[[], Any] | None
) -> None:
    options.tell("quantiles, costs")
    table = Table("what they cost", NUMBERS)
    rounds = 3 if options.quick else 15
    make = partial(_quantiles_sketch, sketch.lo, sketch.hi, sketch.resolution)
    feeds: dict[str, Any] = {"ours": _feed(data.values, data.seconds, make)}
    asks: dict[str, Any] = {
        "ours": lambda: lambda: sketch.quantile(SHARES),
        "exact": lambda: lambda: np.quantile(recent, SHARES, method="inverted_cdf"),
    }
    if rival is not None:
        feeds["kll"], full = lambda: rival, rival()
        asks["kll"] = lambda: lambda: full.get_quantiles(SHARES)
    rate = {name: len(data) / seconds / 1e6 for name, seconds in race(rounds, feeds).items()}
    ms = {name: seconds * 1e3 for name, seconds in race(rounds, asks).items()}
    stored = len(sketch.to_bytes())
    table.add("Quantiles", len(data), rate["ours"], ms["ours"], sketch.nbytes, stored, None, None)
    if rival is None:
        table.add("datasketches KLL (no window): not installed", *[None] * 7)
    else:
        size = len(full.serialize())
        faster = rate["ours"] / rate["kll"]
        table.add("datasketches KLL (no window)", len(data), rate["kll"], ms["kll"], None, size, faster, size / stored)
    exact_bytes = 2 * recent.nbytes  # a time for each
    table.add("NumPy, exact", recent.size, None, ms["exact"], exact_bytes, None, None, exact_bytes / sketch.nbytes)
    report.tables.append(table)
