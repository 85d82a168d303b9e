"""How good for the bytes? Errors, bounds and rates of sketches that take equal memory, and of rivals."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import lately as lt
from bench import bytes_curve
from bench.data import Ints, Stream, stream
from bench.report import Options, Report, Table, Verdict
from bench.timing import Contestants, race

WINDOW = 1_000_000
#: How many windows of rows are counted: the one to ask about, and those before it, which have left. Sketches that start again
#: at each multiple of the window are asked halfway between two, and not where they are exact.
WINDOWS = 2.5
BUDGETS = (50_000, 200_000, 1_000_000, 5_000_000)
DELTAS = (0.1, 0.01)
JUDGED = 0.1
SEEDS = 5  # for the share of keys outside their bounds, which is a probability over hash functions
#: The stream that the promises are about, and on which the rivals were measured.
STREAM = "twitter_cache52"
HUNDRED = 100
RATED = 1_000_000  # the bytes at which the rates of rivals were measured

SCORES = {"mean error": ",.1f", "top 100": ".3f", "≥ 100": ".3f", "outside": ".2%", "width": ",.0f"}
COLUMNS = {
    "what": "", "delta": "g", "eps": ".3g", "bytes": ",",
    **SCORES, **{f"tenth: {name}": form for name, form in SCORES.items()},
    "M updates/s": ".1f", "M queries/s": ".1f",
}  # fmt: skip

OURS, WAVES = "EcmSketch", "EcmSketch, counter='wave'"
WHOLE_WINDOW_ONLY = (lt.ProportionalCountMin, lt.SimpleCountMin, lt.SplitterCountMin)

#: What is promised for STREAM, by budget: mean error, relative error of the top 100, and of keys with 100 arrivals or more.
PROMISES = {
    50_000: (400, 0.5, None), 200_000: (100, 0.15, None), 1_000_000: (20, 0.03, 0.15), 5_000_000: (4, 0.01, 0.03),
}  # fmt: skip
COVERAGE = {"bytes": ",", "delta": "g", "mean": ".2%", "most": ".2%", "tenth: mean": ".2%", "tenth: most": ".2%"}


class Rival(NamedTuple):
    """Code that is in no package index: what it scored on STREAM, measured elsewhere and typed in."""

    name: str
    mean_errors: tuple[float | None, float | None, float | None, float | None]
    hundreds: tuple[float | None, float | None, float | None, float | None] = (None, None, None, None)
    updates: float | None = None  # million a second at 1 MB


RIVALS = (
    Rival("ECM in C++, exponential histograms [1]", (14_527, 2_410, 274, 20), updates=8),
    Rival("Sliding Sketch, Sl-CM [2]", (667, 129, 16.5, 1.4), updates=16),
    Rival("Sliding Sketch, Sl-Count [2]", (50, 14, 6.3, 1.2), (None, None, 0.07, 0.04), updates=10),
    Rival("ECM, conservative update [3]", (None, None, None, None), (None, None, 0.23, 0.14)),
)


class Scores(NamedTuple):
    """How good the answers about one range are; in the order of SCORES."""

    mean_error: float
    top: float
    hundred: float | None
    outside: float
    width: float


class Span:
    """A range of the stream's end, its keys and how often each occurred."""

    def __init__(self, data: Stream, last: int, whole: bool) -> None:
        self.arrivals, self.last = last, None if whole else last
        self.keys, self.counts = data.exact(slice(len(data) - last, None))

    def scores(self, sketch: Any) -> Scores:
        """Ask for all keys of the range."""
        answers = sketch.counts(self.keys) if self.last is None else sketch.counts(self.keys, last=self.last)
        outside = (self.counts < answers.low) | (self.counts > answers.high)
        mean, top, hundred = self.errors(answers.value)
        return Scores(mean, top, hundred, float(outside.mean()), float(np.median(answers.high - answers.low)))

    def errors(self, values: Ints) -> tuple[float, float, float | None]:
        """The mean error of all keys, and the mean relative errors of the most frequent and of the frequent."""
        off = np.abs(values - self.counts)
        relative = off / self.counts
        frequent = relative[self.counts >= HUNDRED]
        top = np.argsort(-self.counts, kind="stable")[:100]
        return float(off.mean()), float(relative[top].mean()), float(frequent.mean()) if frequent.size else None


class Setting:
    """The rows to count, and the ranges to ask about."""

    def __init__(self, data: Stream) -> None:
        self.data, self.window = data, max(1, min(WINDOW, int(len(data) / WINDOWS)))
        self.rows = min(len(data), int(WINDOWS * self.window))
        start = len(data) - self.rows
        self._batches = [(data.texts.take(pa.array(data.codes[rows])), _numbers(rows) - start) for rows in data.batches(start)]
        self.whole = Span(data, self.window, True)
        self.tenth = Span(data, max(1, self.window // 10), False)
        self.codes = data.codes[-self.window :]
        self.promised = data.name.startswith(STREAM) and self.window == WINDOW

    def fill(self, sketch: Any) -> Any:
        """Count the rows: their texts as keys, their numbers as times."""
        for keys, times in self._batches:
            sketch.update(keys, times)
        return sketch


def _numbers(rows: slice) -> Ints:
    return np.arange(rows.start, rows.stop)


@dataclass
class Entry:
    """A sketch that has counted the rows."""

    name: str
    delta: float
    make: Callable[[float], Any]
    eps: float
    sketch: Any


def run(options: Options) -> Report:
    report = Report("How good for the bytes?")
    setting = Setting(stream(options, 10_000_000, 60_000))
    points: list[bytes_curve.Point] = []
    starts: dict[str, float] = {}
    for nbytes in BUDGETS[:2] if options.quick else BUDGETS:
        entries = _entries(options, setting, nbytes, starts)
        table = _table(report, options, setting, nbytes, entries)
        _judge(report, setting, nbytes, table)
        rows = [row for row in table.as_dicts() if row["mean error"] is not None and row["delta"] in (JUDGED, None)]
        points += [bytes_curve.Point(row["what"], "counts", nbytes, row["mean error"]) for row in rows]
        points += [bytes_curve.Point(row["what"], "frequent", nbytes, row["≥ 100"]) for row in rows if row["≥ 100"] is not None]
    _coverage(report, options, setting)
    points += bytes_curve.others(report, options, setting, JUDGED, BUDGETS[:2] if options.quick else BUDGETS)
    _notes(report, setting)
    if options.plot is not None:
        report.notes.append(f"Plot: {bytes_curve.plot(points, options)}")
    return report


# -- what is compared --------------------------------------------------------------------------------------------------


def _entries(options: Options, setting: Setting, nbytes: int, starts: dict[str, float]) -> list[Entry]:
    """The sketches of this many bytes, filled."""
    entries, window = [], setting.window
    for delta in DELTAS:
        options.tell(f"{nbytes:,} bytes, EcmSketch, delta {delta}")
        make, eps = partial(_ecm, window, delta, None), lt.EcmSketch(window=window, nbytes=nbytes, delta=delta).eps
        entries.append(Entry(OURS, delta, make, eps, setting.fill(make(eps))))
    kinds: dict[tuple[str, float], Callable[[float], Any]] = {
        **{(WAVES, delta): partial(_ecm, window, delta, "wave") for delta in DELTAS},
        ("EcmSketch, counter='exphist'", JUDGED): partial(_ecm, window, JUDGED, "exphist"),
        ("TopK, k=100", JUDGED): lambda eps: lt.TopK(k=100, eps=eps, window=window, delta=JUDGED),
        **{(kind.__name__, JUDGED): partial(_whole_window, kind, window) for kind in WHOLE_WINDOW_ONLY},
    }
    for (name, delta), build in kinds.items():
        options.tell(f"{nbytes:,} bytes, {name}, delta {delta}")
        fitted = bytes_curve.fit(build, setting.fill, nbytes, starts.get(f"{name} {delta}", bytes_curve.COARSEST))
        if fitted is not None:
            starts[f"{name} {delta}"] = fitted[0]
            entries.append(Entry(name, delta, build, *fitted))
    return entries


def _ecm(window: int, delta: float, counter: Any, eps: float, **more: Any) -> lt.EcmSketch:
    return lt.EcmSketch(window=window, eps=eps, delta=delta, counter=counter, **more)


def _whole_window(kind: Any, window: int, eps: float) -> Any:
    return kind(window=window, eps=eps, delta=JUDGED)


def _table(report: Report, options: Options, setting: Setting, nbytes: int, entries: list[Entry]) -> Table:
    whole, tenth = setting.whole, setting.tenth
    title = (
        f"{nbytes:,} bytes: {len(whole.keys):,} keys of the last {whole.arrivals:,} arrivals of {setting.data.name}, "
        f"and {len(tenth.keys):,} of its last tenth"
    )
    table = Table(title, COLUMNS)
    options.tell(f"{nbytes:,} bytes, rates")
    updates, queries = _rates(setting, entries, 1 if options.quick else 3)
    for place, entry in enumerate(entries):
        only_whole = isinstance(entry.sketch, WHOLE_WINDOW_ONLY)
        part: tuple[Any, ...] = (None,) * len(SCORES) if only_whole else tenth.scores(entry.sketch)
        scores = whole.scores(entry.sketch)
        table.add(entry.name, entry.delta, entry.eps, entry.sketch.nbytes, *scores, *part, updates[place], queries[place])
    if setting.promised:
        at, unknown = BUDGETS.index(nbytes), (None,) * len(SCORES)
        for rival in RIVALS:
            if (mean := rival.mean_errors[at]) is not None or rival.hundreds[at] is not None:
                rate = rival.updates if nbytes == RATED else None
                table.add(rival.name, None, None, nbytes, mean, None, rival.hundreds[at], None, None, *unknown, rate, None)
    zeros = [(*span.errors(np.zeros_like(span.counts)), None, None) for span in (whole, tenth)]
    table.add("answering 0", None, None, 0, *zeros[0], *zeros[1], None, None)
    report.tables.append(table)
    return table


def _rates(setting: Setting, entries: list[Entry], rounds: int) -> tuple[list[float], list[float]]:
    """Million updates and million point queries a second of each, with integer keys; contestants take turns."""
    codes, distinct = setting.codes, np.unique(setting.codes)
    sketches = [entry.make(entry.eps) for entry in entries]
    newest = [0] * len(entries)

    def prepare(place: int) -> Callable[[], object]:
        times = newest[place] + _numbers(slice(1, codes.size + 1))
        newest[place] += codes.size
        return lambda: sketches[place].update(codes, times)

    def contestants(of: Callable[[int], Callable[[], object]]) -> Contestants:
        return {str(place): (lambda place=place: of(place)) for place in range(len(entries))}

    updates = race(rounds, contestants(prepare))
    queries = race(rounds, contestants(lambda place: lambda: sketches[place].counts(distinct)))
    per_second = [codes.size / updates[str(place)] / 1e6 for place in range(len(entries))]
    return per_second, [distinct.size / queries[str(place)] / 1e6 for place in range(len(entries))]


# -- what was promised -------------------------------------------------------------------------------------------------


def _judge(report: Report, setting: Setting, nbytes: int, table: Table) -> None:
    rows = {(row["what"], row["delta"]): row for row in table.as_dicts()}
    ours, name = rows[OURS, JUDGED], f"{nbytes:,} bytes"
    verdicts = [Verdict.at_most(f"{name}: bytes taken / asked for", ours["bytes"] / nbytes, 1)]
    for prefix, looser in (("", 1), ("tenth: ", 2)):
        if setting.promised:
            labels = ("mean error", "top 100", "≥ 100")
            for label, limit in zip(labels, PROMISES[nbytes], strict=True):
                if limit is not None and (measured := ours[prefix + label]) is not None:
                    verdicts.append(Verdict.at_most(f"{name}, {prefix}{_CLAIMS[label]}", measured, looser * limit))
        for delta in DELTAS:
            outside = rows[OURS, delta][f"{prefix}outside"]
            verdicts.append(Verdict.at_most(f"{name}, {prefix}keys outside their bounds, delta {delta}", outside, delta))
        waves = rows.get((WAVES, JUDGED))
        if waves is not None and waves[f"{prefix}width"]:
            width = ours[f"{prefix}width"] / waves[f"{prefix}width"]
            verdicts.append(Verdict.at_most(f"{name}, {prefix}median width of bounds / that of waves", width, looser / 5))
    report.verdicts += verdicts


def _coverage(report: Report, options: Options, setting: Setting) -> None:
    """The share of keys outside their bounds, with several hash functions."""
    seeds = range(1, 1 + (2 if options.quick else SEEDS))
    table = Table(f"keys outside their bounds, EcmSketch, {len(seeds)} seeds", COVERAGE)
    for nbytes in BUDGETS[:2] if options.quick else BUDGETS:
        for delta in DELTAS:
            options.tell(f"{nbytes:,} bytes, delta {delta}, {len(seeds)} seeds")
            eps = lt.EcmSketch(window=setting.window, nbytes=nbytes, delta=delta).eps
            sketches = [setting.fill(_ecm(setting.window, delta, None, eps, seed=seed)) for seed in seeds]
            shares = [[span.scores(sketch).outside for sketch in sketches] for span in (setting.whole, setting.tenth)]
            means = [sum(each) / len(each) for each in shares]
            table.add(nbytes, delta, means[0], max(shares[0]), means[1], max(shares[1]))
            for part, mean in zip(("", "tenth: "), means, strict=True):
                claim = f"{nbytes:,} bytes, {part}keys outside their bounds, delta {delta}, mean of {len(seeds)} seeds"
                report.verdicts.append(Verdict.at_most(claim, mean, delta))
    report.tables.append(table)


_CLAIMS = {
    "mean error": "mean absolute error",
    "top 100": "mean relative error of the 100 most frequent keys",
    "≥ 100": f"mean relative error of keys with {HUNDRED} arrivals or more",
}


def _notes(report: Report, setting: Setting) -> None:
    report.notes += [
        f"The last {setting.rows:,} of {len(setting.data):,} rows of {setting.data.name} are counted. Each is one arrival, its "
        f"number is its time, and the window is {setting.window:,} ticks. Errors are against the true counts of all keys "
        "of the range.",
        "mean error: of |estimate - truth|. top 100, ≥ 100: mean of |estimate - truth| / truth, of the 100 most frequent keys "
        f"of the range, and of those with {HUNDRED} arrivals or more in it. outside: the share of keys whose low..high does "
        "not hold the truth. width: the median of high - low.",
        "EcmSketch: the eps that the bytes buy, from the formula of its size, before it sees the stream. The others: the "
        "smallest eps, to 5 %, with which they take no more bytes after these rows, found by trying; those that do not fit "
        "are left out. bytes is what the sketch really takes.",
        f"Verdicts are about delta {JUDGED:g}, those on bounds about both. Errors in the last tenth may be twice those in the "
        "window. delta is a probability over hash functions: of several seeds, one may be above it.",
        "Rates: integer keys, batches of a window, contestants take turns in one process, the best turn counts. "
        "Queries ask for all keys of the window in one call.",
    ]
    if setting.promised:
        report.notes.append(
            "Rivals are typed in from an earlier measurement on this stream, with the same window: their code is not in the "
            "package index, and is not run here. [1] A public C++ implementation of ECM-sketches, 3 rows. [2] Sliding "
            "Sketches (KDD 2020): the whole window only, no bounds, no merging. [3] An ECM-sketch with conservative "
            "update. Rates: at 1 MB."
        )
