"""How far off? Observed errors of point queries and self-joins against exact counts, for short and long ranges."""

from collections.abc import Iterator
from typing import Any

import numpy as np

import lately as lt
from bench.data import Ints, Stream, stream
from bench.report import Options, Report, Table, Verdict

DELTA = 0.15
WINDOW = 1_000_000
EPSILONS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
RANGES = tuple(10**power for power in range(1, 7))
MOMENTS = (0.4, 0.6, 0.8, 1.0)
COLUMNS = {
    "query": "", "counter": "", "tick": "", "eps": "g", "range": ",", "queries": ",",
    "average": ".5f", "maximum": ".5f", "average/eps": ".3f", "maximum/eps": ".3f", "beyond eps": ".3%",
}  # fmt: skip


def run(options: Options) -> Report:
    report = Report("How far off?")
    data = stream(options, 10_000_000, 200_000)
    table = Table(f"errors relative to the arrivals in range, over {len(data):,} rows of {data.name}", COLUMNS)
    epsilons = EPSILONS[1::2] if options.quick else EPSILONS
    small = Stream(data.name, data.codes[: max(1, len(data) // 20)], data.texts, None)
    for tick, times in _clocks(data).items():
        truth = _Truth(data, times)
        for eps in epsilons:
            for counter in ("wave", "exphist"):
                for query in ("point", "inner"):
                    options.tell(f"{query}, {counter}, one tick per {tick}, eps {eps}")
                    for row in _errors(truth, query, counter, eps):
                        table.add(query, counter, tick, eps, *row)
    truth = _Truth(small, np.arange(len(small)))
    for eps in [eps for eps in epsilons if eps >= 0.2]:
        options.tell(f"point, randwave, eps {eps}")
        for row in _errors(truth, "point", "randwave", eps):
            table.add("point", "randwave", "row", eps, *row)
    report.tables.append(table)
    _judge(report, table)
    report.notes += [
        "Error: |estimate - truth| / arrivals in range, one point query per distinct key in range; "
        "for self-joins / the square of the arrivals.",
        f"Asked at {len(MOMENTS)} moments of the stream. delta {DELTA}, a window of {WINDOW:,} ticks; "
        "self-joins on sketches with query='inner'.",
        "Tick 'row': the row number is the time, so ranges of 10 to 1,000,000 arrivals exist. Tick 'ts': the file's seconds.",
        f"The guarantee is eps with probability 1 - delta for each answer: 'beyond eps' may be up to {DELTA:.0%}. "
        "That no answer at all is beyond eps is more than the theorem says.",
        f"Randomized waves on {len(small):,} rows; they give no guarantee for self-joins, so none is asked.",
    ]
    if options.plot is not None:
        report.notes.append(f"Plot: {_plot(table, options)}")
    return report


def _clocks(data: Stream) -> dict[str, Ints]:
    """The times to give the rows: their number, and their seconds where known."""
    clocks = {"row": np.arange(len(data))}
    if data.seconds is not None:
        clocks["ts"] = data.seconds - data.seconds[0]
    return clocks


class _Truth:
    """Exact counts of every range at every moment that will be asked about; counted once, compared many times."""

    def __init__(self, data: Stream, times: Ints) -> None:
        self.data, self.times = data, times
        self.stops = [max(1, round(moment * len(data))) for moment in MOMENTS]
        self.ranges = [r for r in RANGES if r <= times[-1] * MOMENTS[0]]
        self._counted: dict[tuple[int, int], Any] = {}

    def moments(self) -> Iterator[tuple[list[slice], int]]:
        """What to feed up to each moment, and the moment."""
        before = 0
        for stop in self.stops:
            yield list(self.data.batches(before, stop)), stop
            before = stop

    def counts(self, stop: int, last: int) -> tuple[Any, Ints]:
        if (stop, last) not in self._counted:
            start = int(np.searchsorted(self.times[:stop], self.times[stop - 1] - last, "right"))
            self._counted[stop, last] = self.data.exact(slice(start, stop))
        return self._counted[stop, last]


def _errors(truth: _Truth, query: str, counter: str, eps: float) -> Iterator[tuple[Any, ...]]:
    """For each range: its length, queries, average and maximum error, both over eps, and the share beyond eps."""
    sketch = lt.EcmSketch(window=WINDOW, eps=eps, delta=DELTA, query=query, counter=counter)
    errors_by_range: dict[int, list[Any]] = {last: [] for last in truth.ranges}
    for batches, stop in truth.moments():
        for rows in batches:
            sketch.update(truth.data.keys(rows), truth.times[rows])
        for last in truth.ranges:
            keys, counts = truth.counts(stop, last)
            arrivals = float(counts.sum())
            if query == "point":
                errors_by_range[last].append(np.abs(sketch.counts(keys, last=last).value - counts) / arrivals)
            else:
                exact = float((counts.astype(np.float64) ** 2).sum())
                errors_by_range[last].append(np.array([abs(sketch.self_join(last=last).value - exact) / arrivals**2]))
    for last, parts in errors_by_range.items():
        errors = np.concatenate(parts)
        mean, worst = float(errors.mean()), float(errors.max())
        yield last, errors.size, mean, worst, mean / eps, worst / eps, float((errors > eps).mean())


def _judge(report: Report, table: Table) -> None:
    """The worst cell of each kind."""
    for query, counter in sorted({row[:2] for row in table.rows}):
        rows = [row for row in table.as_dicts() if (row["query"], row["counter"]) == (query, counter)]
        what = "self-joins" if query == "inner" else "point queries"
        worst = max(row["average/eps"] for row in rows)
        report.verdicts.append(Verdict.below(f"{counter}, {what}: largest average/eps of all ranges and eps", worst, 1))
        if query == "inner":  # one answer a range; of a million keys, some must meet a heavy one in every row
            worst = max(row["maximum/eps"] for row in rows)
            report.verdicts.append(Verdict.below(f"{counter}, {what}: largest maximum/eps of all ranges and eps", worst, 1))
        worst = max(row["beyond eps"] for row in rows)
        report.verdicts.append(Verdict.at_most(f"{counter}, {what}: largest share of answers beyond eps", worst, DELTA))


def _plot(table: Table, options: Options) -> str:
    """Error over eps against the range, one panel per query and counter, one line per eps."""
    try:
        import matplotlib
    except ImportError:
        raise lt.LatelyError("--plot needs matplotlib; pip install 'lately[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = [row for row in table.as_dicts() if row["tick"] == "row"]
    panels = sorted({(row["query"], row["counter"]) for row in rows}, reverse=True)
    size = (4.2 * len(panels), 4)
    figure, axes = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained")
    epsilons = sorted({row["eps"] for row in rows})
    for axis, (query, counter) in zip(axes[0], panels, strict=True):
        for eps in epsilons:
            points = [row for row in rows if (row["query"], row["counter"], row["eps"]) == (query, counter, eps)]
            colour = plt.get_cmap("viridis")(epsilons.index(eps) / max(1, len(epsilons)))
            ranges = [row["range"] for row in points]
            axis.plot(ranges, [row["average/eps"] for row in points], "o-", color=colour, label=f"eps {eps:g}", markersize=4)
            axis.plot(ranges, [row["maximum/eps"] for row in points], ":", color=colour)
        axis.axhline(1, color="crimson", linewidth=1)
        axis.set(xscale="log", xlabel="range, arrivals", title=f"{'self-join' if query == 'inner' else 'point'}, {counter}")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("error / eps")
    axes[0][-1].legend(fontsize=8, title="average; maximum dotted")
    assert options.plot is not None
    options.plot.mkdir(parents=True, exist_ok=True)
    path = options.plot / "error.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return str(path)
