"""How fast? Updates against a plain Count-Min table of the same shape, queries, and what else Python users could run."""

import math
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import lately as lt
from bench.data import UNIVERSE, from_parquet, texts, zipf
from bench.report import Options, Report, Table, Verdict
from bench.timing import race

DELTA = 0.15
WINDOW = 2_000_000
#: The least update rate of each family of counters, as a share of a plain Count-Min's. "shared" is the default.
LIMITS = {"shared": 1 / 3, "wave": 1 / 3, "exphist": 1 / 15}
SAME_SHAPE, SAME_PROMISE = "CountMin of the same width and depth", "CountMin for the same eps and delta"
COLUMNS = {"what": "", "eps": "g", "rows": ",", "M/s": ".2f", "compared with": "", "its M/s": ".2f", "ratio": ".3f"}


def run(options: Options) -> Report:
    rows = options.size(20_000_000, 500_000)
    rounds = 3 if options.quick else 7
    report = Report("How fast?")
    options.tell(f"drawing {rows:,} Zipf keys")
    universe = UNIVERSE // 10 if options.quick else UNIVERSE
    keys = zipf(rows, universe=universe)
    _updates(report, options, keys, rounds)
    _texts(report, options, keys, universe, rounds)
    _batches(report, options, keys)
    _queries(report, options, keys, rounds)
    _rivals(report, options, keys[: 50_000 if options.quick else 2_000_000])
    report.notes += [
        f"Keys: Zipf(1.1) over {universe:,} integers. One arrival per tick, a window of {WINDOW:,} ticks, "
        f"delta {DELTA}, one core. A row of shared waves is one; waves and exponential histograms have two rows.",
        f"Contestants take turns in one process; the best of {rounds} turns counts. Across machines compare ratios, not rates.",
    ]
    return report


def _sketch(eps: float, counter: str | None = None) -> lt.EcmSketch:
    return lt.EcmSketch(window=WINDOW, eps=eps, delta=DELTA, counter=counter)


def _plain(eps: float, counter: str | None = None) -> lt.CountMin:
    """A plain Count-Min of the same width and depth as the sketch; a half keeps rounding up from going one too far."""
    sketch = _sketch(eps, counter)
    plain = lt.CountMin(eps=math.e / (sketch.width - 0.5), delta=math.exp(0.5 - sketch.depth))
    assert (plain.width, plain.depth) == (sketch.width, sketch.depth)
    return plain


def _feed(keys: Any, times: Any, make: Callable[[], Any]) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        sketch = make()
        return lambda: sketch.update(keys) if times is None else sketch.update(keys, times)

    return prepare


def _updates(report: Report, options: Options, keys: Any, rounds: int) -> None:
    table = Table("updates, integer keys, against a plain Count-Min, which has no window", COLUMNS)
    times = np.arange(keys.size)
    for eps in (0.15, 0.1, 0.05, 0.01, 0.003):
        options.tell(f"updates at eps {eps}")
        families = [family for family in LIMITS if family == "shared" or eps >= 0.01]  # those of the papers grow with 1/eps²
        contestants = {
            SAME_SHAPE: _feed(keys, None, partial(_plain, eps)),
            SAME_PROMISE: _feed(keys, None, partial(_plain, eps, "wave")),
        }
        best = race(rounds, contestants | {family: _feed(keys, times, partial(_sketch, eps, family)) for family in families})
        for family in families:
            for plain in (SAME_SHAPE, SAME_PROMISE) if family == "shared" else (SAME_PROMISE,):  # waves: it has their shape too
                rate, baseline = keys.size / best[family] / 1e6, keys.size / best[plain] / 1e6
                table.add(family, eps, keys.size, rate, plain, baseline, rate / baseline)
                if family != "shared" or plain == SAME_SHAPE:
                    claim = f"{family}, eps {eps}: update rate / plain Count-Min"
                    report.verdicts.append(Verdict.at_least(claim, rate / baseline, LIMITS[family]))
    few = keys[: max(10_000, keys.size // 100)]
    options.tell("updates of randomized waves")
    best = race(
        2,
        {
            "plain": _feed(few, None, lambda: lt.CountMin(eps=0.15 / 1.15, delta=DELTA / 2)),
            "ours": _feed(few, times[: few.size], lambda: _sketch(0.15, "randwave")),
        },
    )
    rate, plain = few.size / best["ours"] / 1e6, few.size / best["plain"] / 1e6
    table.add("randwave (depth 3)", 0.15, few.size, rate, "CountMin", plain, rate / plain)
    report.tables.append(table)


def _texts(report: Report, options: Options, keys: Any, universe: int, rounds: int) -> None:
    table = Table("updates, text keys in an Arrow column, against the same keys as integers", COLUMNS)
    columns = {"text of 20 bytes": (keys, texts(universe).take(pa.array(keys)))}
    if options.data is not None:
        data = from_parquet(options.data, keys.size)
        columns[f"keys of {data.name}"] = (data.codes, data.texts.take(pa.array(data.codes)))
    for what, (numbers, column) in columns.items():
        times = np.arange(numbers.size)
        for eps in (0.1, 0.01):
            options.tell(f"updates, {what}, eps {eps}")
            make = partial(_sketch, eps)
            best = race(rounds, {"int": _feed(numbers, times, make), "text": _feed(column, times, make)})
            rate, baseline = numbers.size / best["text"] / 1e6, numbers.size / best["int"] / 1e6
            table.add(what, eps, numbers.size, rate, "int64", baseline, rate / baseline)
            claim = f"EcmSketch, eps {eps}: update rate with {what} / with integers"
            report.verdicts.append(Verdict.at_least(claim, rate / baseline, 0.5))
    report.tables.append(table)


def _batches(report: Report, options: Options, keys: Any) -> None:
    """What a call costs: the same rows in batches of different sizes."""
    table = Table("updates by size of batch, against one large batch", {**COLUMNS, "µs a call": ".1f"})
    keys = keys[: 50_000 if options.quick else 500_000]
    rows, times = keys.size, np.arange(keys.size)
    for eps in (0.1, 0.01):
        options.tell(f"batches, eps {eps}")
        sizes = {size: min(rows, 300 * size) for size in (1, 100, 1_000, 10_000) if size < rows} | {rows: rows}
        make = partial(_sketch, eps)
        best = race(3, {str(size): _in_batches(keys[:part], times[:part], size, make) for size, part in sizes.items()})
        fastest = rows / best[str(rows)] / 1e6
        for size, part in sizes.items():
            rate, call = part / best[str(size)] / 1e6, best[str(size)] / math.ceil(part / size) * 1e6
            table.add(f"{size:,} a batch", eps, part, rate, "one batch", fastest, rate / fastest, call)
    report.tables.append(table)


def _in_batches(keys: Any, times: Any, size: int, make: Callable[[], lt.EcmSketch]) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        sketch = make()
        sketch.update(keys, times)  # so that its rings have grown before the clock starts
        later = times + times.size
        batches = [(keys[i : i + size], later[i : i + size]) for i in range(0, keys.size, size)]

        def run() -> None:
            for batch in batches:
                sketch.update(*batch)

        return run

    return prepare


def _queries(report: Report, options: Options, keys: Any, rounds: int) -> None:
    options.tell("bulk point queries")
    table = Table("bulk point queries, counts(keys), against the plain Count-Min", COLUMNS)
    queried = np.arange(UNIVERSE // 10 if options.quick else UNIVERSE)
    for eps in (0.1, 0.01):
        sketch, plain = _sketch(eps), _plain(eps)
        sketch.update(keys, np.arange(keys.size))
        plain.update(keys)
        for what, last in (("whole window", None), ("last tenth of it", WINDOW // 10)):
            best = race(
                rounds,
                {
                    "ours": lambda sketch=sketch, last=last: lambda: sketch.counts(queried, last=last),
                    "plain": lambda plain=plain: lambda: plain.counts(queried),
                },
            )
            rate, baseline = queried.size / best["ours"] / 1e6, queried.size / best["plain"] / 1e6
            table.add(what, eps, queried.size, rate, "CountMin", baseline, rate / baseline)
            if eps == 0.1:
                report.verdicts.append(Verdict.at_least(f"million point queries a second at eps {eps}, {what}", rate, 10))
    report.tables.append(table)


def _rivals(report: Report, options: Options, keys: Any) -> None:
    """What a Python user would run instead, the way that it takes its input: one key per call, from Python lists."""
    options.tell("other libraries, one key per call")
    table = Table("what else Python users could run; ours at eps 0.1 on the same rows", COLUMNS)
    times, few = np.arange(keys.size), keys[: keys.size // 10]
    key_list, time_list = keys.tolist(), times.tolist()
    ours = {
        "columns": ("EcmSketch, NumPy columns", keys.size, _feed(keys, times, lambda: _sketch(0.1))),
        "plain": (
            "CountMin, NumPy column (no window)",
            keys.size,
            _feed(keys, None, lambda: lt.CountMin(eps=0.1 / 1.1, delta=DELTA)),
        ),
        "lists": ("EcmSketch, Python lists", keys.size, _feed(key_list, time_list, lambda: _sketch(0.1))),
        "single": ("EcmSketch, one call per key", few.size, lambda: lambda: _one_by_one(few.tolist())),
        "counter": ("WindowCounter, NumPy column (one counter, no keys)", keys.size, lambda: lambda: _window_counter(times)),
    }
    theirs = {
        "datasketches": ("datasketches count_min_sketch (no window)", "plain", keys.size, _datasketches(key_list)),
        "dict": (
            "exact dict + deque (keeps every arrival)",
            "columns",
            keys.size,
            lambda: lambda: _dict_and_deque(key_list, time_list),
        ),
        "oxide": (
            "sketch_oxide ExponentialHistogram (one counter, no keys)",
            "counter",
            few.size,
            _sketch_oxide(time_list[: few.size]),
        ),
    }
    contestants = {name: entry[-1] for name, entry in (ours | theirs).items() if entry[-1] is not None}
    best = race(2 if options.quick else 3, contestants)
    rate = {name: size / best[name] / 1e6 for name, (_, size, _) in ours.items()}
    for name, (what, size, _) in ours.items():
        table.add(what, 0.1, size, rate[name], None, None, None)
    for name, (what, compared, size, _) in theirs.items():
        if name not in best:
            table.add(f"{what}: not installed", None, None, None, None, None, None)
            continue
        rival = size / best[name] / 1e6
        us = ours[compared][0].split(" (")[0]
        table.add(what, None if name == "dict" else 0.1, size, rival, us, rate[compared], rival / rate[compared])
        report.verdicts.append(Verdict.at_least(f"{us}: times as fast as {what.split(' (')[0]}", rate[compared] / rival, 10))
    report.tables.append(table)
    report.notes.append("Other libraries take one key per call; their input is made into Python lists beforehand, unmeasured.")


def _one_by_one(keys: list[int]) -> None:
    sketch = _sketch(0.1)
    for time, key in enumerate(keys):
        sketch.update(key, time)


def _window_counter(times: Any) -> None:
    lt.WindowCounter(window=WINDOW, eps=0.1).add(times)


def _datasketches(keys: list[int]) -> Callable[[], Callable[[], object]] | None:
    try:
        from datasketches import count_min_sketch
    except ImportError:
        return None

    def feed() -> None:
        sketch = count_min_sketch(2, math.ceil(math.e / (0.1 / 1.1)))
        for key in keys:
            sketch.update(key)

    return lambda: feed


def _sketch_oxide(times: list[int]) -> Callable[[], Callable[[], object]] | None:
    try:
        from sketch_oxide import ExponentialHistogram
    except ImportError:
        return None

    def feed() -> None:
        histogram = ExponentialHistogram(WINDOW, 0.1)
        for time in times:
            histogram.insert(time, 1)

    return lambda: feed


def _dict_and_deque(keys: list[int], times: list[int]) -> None:
    window, counts = deque[tuple[int, int]](), Counter[int]()
    for key, time in zip(keys, times, strict=True):
        window.append((time, key))
        counts[key] += 1
        while window[0][0] < time - WINDOW:
            old = window.popleft()[1]
            counts[old] -= 1
            if not counts[old]:
                del counts[old]
