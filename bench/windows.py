"""Exact shared windows: the experiments of the paper (SHARE, section 5), and a thousand registered queries."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import njit

import lately as lt
from bench.data import Floats, Ints
from bench.registered import registered
from bench.report import Options, Report, Table, Verdict
from bench.substreams import substreams
from bench.timing import race
from lately.core.jit import kernel
from lately.exact.base_intervals import BaseIntervals
from lately.exact.column import Column, Index
from lately.exact.fixed_point import Bits, Words, _run_two, difference_of_two, short_power
from lately.exact.landmarks import Landmarks
from lately.exact.operations import CODES, Operation
from lately.exact.running import Running
from lately.exact.sorted_runs import SortedRuns

SUMS = 1000  # the windows of Figure 10 have 1 to this many arrivals
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
BATCH = 10_000
STORED = 100_000  # arrivals in the ring of the lookups
MIX = {
    "lookups": ".0%", "R-INT": ".1f", "all kept up to date": ".1f", "summed at lookup": ".1f", "summed, reordered": ".1f",
    "R-INT / the better of the first two": ".2f",
}  # fmt: skip
UPDATES = {"window": ",", "batch": ",", "R-INT, sum": ".1f", "B-INT, max": ".1f", "L-INT, max": ".1f", "B-INT-QNT": ".2f"}
LOOKUPS = {"width": ",", "R-INT, sum": ".1f", "B-INT, max": ".2f", "L-INT, max": ".1f", "B-INT-QNT, median": ".3f"}


def run(options: Options) -> Report:
    report = Report("How much do exact windows share?")
    mix, updates, lookups = _mixes(report, options), _updates(report, options), _lookups(report, options)
    registered(report, options)
    filters = substreams(report, options)
    report.notes += [
        f"Figure 10: {SUMS:,} windows of 1 to {SUMS:,} arrivals; single inputs, drawn at random, in one compiled loop each. "
        "R-INT sums exactly, as sum() does; the others add floats, and keep every arrival in one array. Reordered: the "
        "compiler may change the order of additions, and with it the last digits: nothing is faster if lookups are rare. "
        "Values are integers, so that all agree.",
        f"Figure 11: Column.append in batches with one index. Figure 12: index.lookup with an array of windows that lie "
        f"anywhere in the ring that {STORED:,} arrivals take.",
    ]
    if options.plot is not None:
        report.notes.append(f"Plot: {_plot(mix, updates, lookups, filters, options)}")
    return report


# -- Figure 10: against the naive alternatives -------------------------------------------------------------------------


# The loops of R-INT's kernels, inlined here: a call would take longer than its work on one value. Functions that contain
# kernels of other files are compiled in every run, because Numba's cache would not see changes of those.
_carry_on = njit(inline="always")(_run_two.py_func)


@njit(nogil=True)
def _shared(ring: Bits, words: Words, unit: int, inputs: Ints, values: Bits, end: int) -> float:
    """R-INT: one running sum at each arrival, two reads at each lookup."""
    total, power, mask = 0.0, short_power(unit), ring.size - 1
    for i in range(inputs.size):
        if inputs[i] > 0:
            total += difference_of_two(words, end - inputs[i], end, unit, power)
        else:
            ring[end & mask] = values[i]
            _carry_on(ring, end, end + 1, unit, words)
            end += 1
    return total


@kernel
def _materialised(history: Floats, inputs: Ints, values: Floats, sums: Floats, end: int) -> float:
    """All sums, up to date at every arrival. They and the stream are laid out so that this is one loop without a branch."""
    total = 0.0
    for i in range(inputs.size):
        if inputs[i] > 0:
            total += sums[sums.size - inputs[i]]
        else:
            leaving = history[end - sums.size : end]
            for j in range(sums.size):
                sums[j] += values[i] - leaving[j]
            history[end] = values[i]
            end += 1
    return total


@kernel
def _on_demand(history: Floats, inputs: Ints, values: Floats, end: int) -> float:
    """Nothing but the stream; a lookup adds up its window."""
    total = 0.0
    for i in range(inputs.size):
        if inputs[i] > 0:
            window, added = history[end - inputs[i] : end], 0.0
            for j in range(window.size):
                added += window[j]
            total += added
        else:
            history[end] = values[i]
            end += 1
    return total


#: The same where the order of additions is left to the compiler: it takes eight values at a time. Never from Numba's cache,
#: which does not tell such options apart and would give the loop above.
_reordered = njit(nogil=True, fastmath=True)(_on_demand.py_func)


def _mixes(report: Report, options: Options) -> Table:
    table = Table(f"Figure 10: {SUMS:,} sums, million inputs a second by the share of lookups", MIX)
    size = 20_000 if options.quick else 400_000
    rng = np.random.default_rng(10)
    start = np.rint(rng.normal(1000, 200, 2 * SUMS))
    values = np.rint(rng.normal(1000, 200, size))
    makers: dict[str, Callable[..., Callable[[], float]]] = {
        "shared": _of_shared,
        "all": _of_materialised,
        "demand": partial(_of_on_demand, _on_demand),
        "reordered": partial(_of_on_demand, _reordered),
    }
    rates, worst = [], np.inf
    for share in (0.01, 0.5, 0.99) if options.quick else SHARES:
        options.tell(f"Figure 10, {share:.0%} lookups")
        inputs = np.where(rng.random(size) < share, rng.integers(1, SUMS + 1, size), 0)
        totals: dict[str, float] = {}

        def contestant(name: str, make: Callable[[], Callable[[], float]], totals: dict[str, float] = totals) -> Any:
            def prepare() -> Callable[[], object]:
                ask = make()
                return lambda: totals.update({name: ask()})

            return prepare

        best = race(3 if options.quick else 12, {
            name: contestant(name, partial(make, start, inputs, values))
            for name, make in makers.items()
        })  # fmt: skip
        assert len(set(totals.values())) == 1, totals
        ours, all_, demand, reordered = (size / seconds / 1e6 for seconds in best.values())
        ratio = ours / max(all_, demand)
        table.add(share, ours, all_, demand, reordered, ratio)
        rates.append(ours)
        worst = min(worst, ratio)
    report.tables.append(table)
    report.verdicts += [
        Verdict.at_least("Figure 10: R-INT / the better of the two naive ways, the least of all mixes", worst, 1),
        Verdict.at_most("Figure 10: R-INT at its fastest mix / at its slowest", max(rates) / min(rates), 4),
    ]
    return table


def _of_shared(start: Floats, inputs: Ints, values: Floats) -> Callable[[], float]:
    column = Column()
    sums = column.index("sums", Running)
    column.append(start, start.size - SUMS)
    bits = column.values.view(np.uint64)
    return lambda: _shared(bits, sums.words, sums.unit, inputs, values.view(np.uint64), column.end)


def _of_materialised(start: Floats, inputs: Ints, values: Floats) -> Callable[[], float]:
    history = np.concatenate([start, np.zeros(values.size)])
    sums = np.cumsum(start[::-1])[:SUMS][::-1].copy()
    return lambda: _materialised(history, inputs, values, sums, start.size)


def _of_on_demand(loop: Any, start: Floats, inputs: Ints, values: Floats) -> Callable[[], float]:
    history = np.concatenate([start, np.zeros(values.size)])
    return lambda: loop(history, inputs, values, start.size)


# -- Figures 11 and 12: updates and lookups by themselves ---------------------------------------------------------------


def _maximum() -> Operation:
    return Operation(CODES["max"])


def _landmarks(width: int) -> Landmarks:
    return Landmarks(_maximum(), width.bit_length() - 1)


def _updates(report: Report, options: Options) -> Table:
    table = Table("Figure 11: million updates a second by the longest window, in arrivals", UPDATES)
    rng = np.random.default_rng(11)
    least: dict[str, float] = {}
    for window in (1_000, 100_000) if options.quick else (1_000, 10_000, 100_000, 1_000_000):
        options.tell(f"Figure 11, windows of {window:,}")
        batch = min(BATCH, window)
        fresh = np.round(rng.normal(100, 20, 10 * batch if options.quick else 50 * batch), 2)
        batches = np.split(fresh, fresh.size // batch)
        before = np.round(rng.normal(100, 20, window), 2)

        def contestant(make: Callable[[], Index], before: Floats = before, batches: list[Floats] = batches) -> Any:
            column = Column()
            column.index("it", make)
            column.append(before, 0)
            column.append(batches[0], column.end + batches[0].size - before.size)

            def feed() -> None:
                for values in batches:
                    column.append(values, column.end + values.size - before.size)

            return lambda: feed

        contestants: dict[str, Callable[[], Index]] = {
            "R-INT": Running,
            "B-INT": lambda: BaseIntervals(_maximum()),
            "L-INT": lambda window=window: _landmarks(window),
            "B-INT-QNT": SortedRuns,
        }
        best = race(3 if options.quick else 15, {name: contestant(make) for name, make in contestants.items()})
        rate = {name: fresh.size / seconds / 1e6 for name, seconds in best.items()}
        table.add(window, batch, *rate.values())
        least = {name: min(least.get(name, np.inf), rate[name]) for name in rate}
    report.tables.append(table)
    for name in ("R-INT", "B-INT"):
        claim = f"Figure 11: million updates a second, {name}, the least of all windows"
        report.verdicts.append(Verdict.at_least(claim, least[name], 50))
    return table


def _lookups(report: Report, options: Options) -> Table:
    table = Table(f"Figure 12: million lookups a second by width, windows anywhere in {STORED:,} arrivals", LOOKUPS)
    rng = np.random.default_rng(12)
    column = Column()
    sums, tops = column.index("sums", Running), column.index("max", lambda: BaseIntervals(_maximum()))
    runs = column.index("sorted", SortedRuns)
    held = (1 << STORED.bit_length()) - 1  # what the ring for so many arrivals has room for
    column.append(np.round(rng.normal(100, 20, held), 2), 0)
    size = 5_000 if options.quick else 100_000
    rate: dict[str, float] = {}
    for width in (10, 100_000) if options.quick else (10, 100, 1_000, 10_000, 100_000):
        options.tell(f"Figure 12, width {width:,}")
        lefts = rng.integers(0, held - width + 1, size)
        rights = lefts + width
        near = column.index(("landmarks", width), partial(_landmarks, width))
        few = slice(0, size // 20)
        ranks = np.full(size, (width - 1) // 2)[few]
        best = race(3 if options.quick else 40, {
            "R-INT": lambda a=lefts, b=rights: lambda: sums.lookup(a, b),
            "B-INT": lambda a=lefts, b=rights: lambda: tops.lookup(column, a, b),
            "L-INT": lambda a=lefts, b=rights, near=near: lambda: near.lookup(column, a, b, 0),
            "B-INT-QNT": lambda a=lefts[few], b=rights[few], r=ranks: lambda: runs.lookup(column, a, b, r),
        })  # fmt: skip
        inside = rights <= int(column.end) - (1 << width.bit_length())  # L-INT knows the rest once a block is complete
        assert (near.lookup(column, lefts, rights, 0) == tops.lookup(column, lefts, rights))[inside].all()
        for i in range(3):
            window = column.values[lefts[i] : rights[i]]
            assert sums.lookup(lefts[i : i + 1], rights[i : i + 1])[0] == math.fsum(window)
            assert runs.lookup(column, lefts[i : i + 1], rights[i : i + 1], ranks[:1])[0] == np.sort(window)[ranks[0]]
        rate = {name: (size // 20 if name == "B-INT-QNT" else size) / seconds / 1e6 for name, seconds in best.items()}
        table.add(width, *rate.values())
    report.tables.append(table)
    for name, limit in (("R-INT", 20), ("B-INT", 5), ("B-INT-QNT", 0.2)):
        claim = f"Figure 12: million lookups a second, {name}, {STORED:,} wide"
        report.verdicts.append(Verdict.at_least(claim, rate[name], limit))
    return table


# -- plots -------------------------------------------------------------------------------------------------------------


def _plot(mix: Table, updates: Table, lookups: Table, filters: Table, options: Options) -> str:
    """The four figures."""
    try:
        import matplotlib
    except ImportError:
        raise lt.LatelyError("--plot needs matplotlib; pip install 'lately[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    shown = (
        (axes[0, 0], mix, list(MIX)[1:5], "share of lookups", "million inputs a second"),
        (axes[0, 1], updates, list(UPDATES)[2:], "longest window, arrivals", "million updates a second"),
        (axes[1, 0], lookups, list(LOOKUPS)[1:], "width, arrivals", "million lookups a second"),
    )
    for axis, table, names, across, up in shown:
        rows = table.as_dicts()
        for name in names:
            axis.plot([row[next(iter(table.columns))] for row in rows], [row[name] for row in rows], "o-", label=name)
        axis.set(xlabel=across, ylabel=up, yscale="log", xscale="linear" if table is mix else "log")
        axis.set_title(table.title.split(", ")[0].split(" by ")[0], fontsize=10)
    axis = axes[1, 1]
    rows = filters.as_dicts()
    for keys in sorted({row["substreams"] for row in rows}):
        points = [row for row in rows if row["substreams"] == keys and row["driven"] == rows[0]["driven"]]
        (line,) = axis.plot(
            [row["p"] for row in points], [row["CI-COUNT"] for row in points], "o-", label=f"CI-COUNT, {keys:,}"
        )
        each = [row["R-INT for each"] for row in points]
        axis.plot([row["p"] for row in points], each, "x--", color=line.get_color(), label=f"R-INT for each, {keys:,}")
    axis.set(xlabel="p = 2 / eps", ylabel="inputs a second", xscale="log", yscale="log")
    axis.set_title("Figure 13: substreams above a bar", fontsize=10)
    for axis in axes.flat:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    assert options.plot is not None
    options.plot.mkdir(parents=True, exist_ok=True)
    path = options.plot / "windows.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return str(path)
