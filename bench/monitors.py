"""What watching streams at many sites costs in bytes: the experiments of two papers again (ECM-15 §7.3.2, GM-AMS §4)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import lately as lt
from bench.checks import local_checks
from bench.data import DAY, Ints, _open, _read, stream
from bench.report import Options, Report, Table, Verdict
from lately.monitor import DistributedCountMin, Ecm, FastAms, InnerProduct, Monitor, SelfJoin, Simulation, simulate
from lately.monitor.queries import Query

ROWS, FEWER = 4_000_000, 2_500_000  # of the longer experiments, up to MANY sites and beyond
MANY = 64
STEP = 2000
EPS = DELTA = THETA = 0.15
PUSH = 0.05  # of DISTCM
SITES, AMS_SITES = (2, 4, 8, 16, 32, 64, 128, 256), (2, 4, 8, 16, 32, 64, 128)
THETAS, AMS_THETAS = (0.05, 0.1, 0.15, 0.2, 0.3), (0.08, 0.1, 0.15, 0.2)
JUDGED = 0.1
OTHERS = [(scheme, flush) for scheme in ("geometric", "functional", "oracle") for flush in ("lazy", "eager")]
VOLUME = {
    "sites": ",", "theta": "g", "rows": ",", "functional, %": ".3g", "geometric, %": ".3g", "DISTCM, %": ".3g",
    "polls": ",", "collections": ",", "balances": ",", "collections, geometric": ",",
    "mean error": ".4f", "most": ".4f", "mean error, geometric": ".4f", "beside exact counts": ".4f",
}  # fmt: skip
COSTS = {
    "query": "", "theta": "g", "scheme": "", "flush": "", "data KB": ",.0f", "total KB": ",.0f", "data / CG's": ".3f",
    "total / CG's": ".3f", "overhead": ".1%", "collections": ",",
}  # fmt: skip
GROWTH = {
    "sites": ",", "rows": ",", "CG, % of the stream": ".3g", "geometric: data / CG's": ".3f", "geometric: total / CG's": ".3f",
    "geometric: overhead": ".1%", "functional: data / CG's": ".3f", "functional: total / CG's": ".3f",
    "functional: overhead": ".1%",
}  # fmt: skip


def run(options: Options) -> Report:
    report = Report("What does watching many sites cost?")
    events = _events(options)
    broken: list[int] = []
    volume, thetas = _volumes(report, events, options, broken)
    costs = _costs(report, events, options, broken)
    growth = _growth(report, events, options, broken)
    report.verdicts.append(Verdict.at_most("values announced outside their tolerance, nothing on its way", sum(broken), 0))
    local_checks(report, events.keys, options)
    report.notes += [
        f"Sites: {events.dealt} Keys are numbers in order of first arrival. Batches of {STEP:,} events (Figure 8) or "
        f"{STEP * 5 // 2:,}; a site looks after every event, and is answered after the batch.",
        "Bytes are all bytes of all messages, both ways, those that sites join with included; what a network adds is not. "
        "Everything is measured from the end of the first window, or without one from the middle of the stream.",
        f"Figure 8, %: of the bytes that sending every event takes, at {SITES[0]} sites; at more sites that takes more. Errors "
        "are relative, against what all sites' sketches would say together; beside exact counts: the functional scheme's, as a "
        f"share of all pairs of arrivals, which is what eps is. DISTCM pushes cells (push {PUSH:g}) and promises less.",
        "Overhead: the share of the bytes that tell nothing of the streams. Oracle: by knowing all, told only when it must be.",
    ]
    if options.plot is not None:
        report.notes.append(f"Plot: {_plot(volume, thetas, costs, growth, options)}")
    return report


# -- the stream --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Events:
    """A stream in order of arrival, and which origin each event has, if that is known."""

    name: str
    keys: Ints
    seconds: Ints
    origins: Ints | None

    @property
    def dealt(self) -> str:
        if self.origins is None:
            return "events are dealt out at random, so that the split is synthetic."
        return f"{int(self.origins.max()) + 1:,} origins of the file's column site, hashed to so many sites."

    def first(self, rows: int) -> "Events":
        return Events(self.name, self.keys[:rows], self.seconds[:rows], None if self.origins is None else self.origins[:rows])

    def at(self, sites: int) -> Ints:
        """The site of each event."""
        rng = np.random.default_rng(sites)
        if self.origins is None:
            return rng.integers(0, sites, self.keys.size)
        return rng.integers(0, sites, int(self.origins.max()) + 1)[self.origins]


def _events(options: Options) -> Events:
    data = stream(options, 10_000_000 if options.data else 1_000_000, 4_000)
    size = len(data)
    if options.data is None or data.seconds is None:
        return Events(data.name, data.codes, np.arange(size) * 2100 // size, None)
    file, origins = _open(options.data), None
    if "site" in file.schema_arrow.names:
        origins = _read(file, options.data, size, ["site"])["site"].combine_chunks().dictionary_encode()
        origins = origins.indices.fill_null(0).to_numpy().astype(np.int64)
    several = origins is not None and bool(origins.any())
    return Events(data.name, data.codes, data.seconds, origins if several else None)


def _run(events: dict[str, Any], monitor: Any, broken: list[int], *, step: int, warm: int) -> Simulation:
    left = len(events["key"]) - warm
    done = simulate(events, monitor, step=min(step, left // 20 + 1), look=10, warm=warm)
    broken.append(len(done.broken))
    return done


# -- Figure 8 of ECM-15 ------------------------------------------------------------------------------------------------


def _volumes(report: Report, events: Events, options: Options, broken: list[int]) -> tuple[Table, Table]:
    window = _window(events.first(ROWS))
    replay = _Replay(events, window, broken)
    shown = f"eps = delta = {EPS:g}, a window of {window:,} s, {events.name}"
    counts, thetas = ((2, 16), (THETA,)) if options.quick else (SITES, THETAS)
    volume = Table(f"Figure 8 (a, b): bytes and errors by number of sites, {shown}", VOLUME)
    for sites in counts:
        options.tell(f"Figure 8, {sites} sites")
        volume.add(*replay.line(sites, THETA))
    by_theta = Table(f"Figure 8 (c): by theta at 16 sites, {shown}", VOLUME)
    for theta in thetas:
        options.tell(f"Figure 8, theta {theta:g}")
        again = theta == THETA and 16 in counts
        by_theta.add(*(volume.rows[counts.index(16)] if again else replay.line(16, theta)))
    report.tables += [volume, by_theta]
    few = max(row["functional, %"] for row in volume.as_dicts() if row["sites"] <= 32)
    errors = max(row["most"] / row["theta"] for table in (volume, by_theta) for row in table.as_dicts())
    report.verdicts += [
        Verdict.below("Figure 8: % of sending everything, the most of 2 to 32 sites", few, 2),
        Verdict.below(f"Figure 8: % of sending everything, {counts[-1]} sites", volume.as_dicts()[-1]["functional, %"], 40),
        Verdict.below("Figure 8: largest error / theta", errors, 1),
    ]
    return volume, by_theta


def _window(events: Events) -> int:
    """Ten minutes or thirty days, where the stream is long enough to measure after that."""
    span = int(events.seconds[-1] - events.seconds[0])
    window = 600 if span <= DAY else 30 * DAY
    return window if span >= 2 * window else max(span // 3, 1)


class _Replay:
    """The same stream through one monitor after the other."""

    def __init__(self, events: Events, window: int, broken: list[int]) -> None:
        self._events, self._window, self._broken = events, window, broken
        self._everything: dict[int, int] = {}
        self._exact: dict[int, tuple[float, float]] = {}

    def line(self, sites: int, theta: float) -> tuple[Any, ...]:
        """A row of the table."""
        part = self._events.first(ROWS if sites <= MANY else FEWER)
        rows = part.keys.size
        if rows not in self._everything:
            shipped = self._measure(part, SITES[0], self._monitor(theta, "ship"))
            self._broken.pop()  # only its bytes are asked for
            self._everything[rows] = shipped.total
        ours = self._measure(part, sites, self._monitor(theta, "functional"))
        theirs = self._measure(part, sites, self._monitor(theta, "geometric")) if sites <= MANY else None
        cells = None
        if theta == THETA:
            like = lt.SplitterCountMin(window=self._window, eps=EPS, delta=DELTA)
            cells = self._measure(part, sites, DistributedCountMin(like, PUSH))
            self._broken.pop()  # of guesses, which have another promise
        percents = [done and 100 * done.total / self._everything[rows] for done in (ours, theirs, cells)]
        errors, begun = ours.errors("f2"), ours.synchronisations
        balanced = [theirs and theirs.synchronisations[what] for what in ("balancing", "collecting")]
        return (
            sites, theta, rows, *percents, begun["polling"], begun["collecting"], *balanced,
            float(errors.mean()), float(errors.max()),
            theirs and float(theirs.errors("f2").mean()), float(np.mean(list(self._beside_exact(ours)))),
        )  # fmt: skip

    def _monitor(self, theta: float, scheme: Any) -> Monitor:
        return Monitor(Ecm(self._window, EPS, DELTA, seed=20_120_615), {"f2": SelfJoin(theta=theta)}, scheme=scheme)

    def _measure(self, part: Events, sites: int, monitor: Any) -> Simulation:
        size, full = part.keys.size, int(part.seconds[0]) + self._window
        warm = min(int(np.searchsorted(part.seconds, full, side="right")), size // 2)
        columns = {"key": part.keys, "time": part.seconds, "site": part.at(sites)}
        return _run(columns, monitor, self._broken, step=STEP, warm=warm)

    def _beside_exact(self, done: Simulation) -> Iterator[float]:
        """How far what was announced is from the exact self-join size, as a share of all pairs of arrivals in the window."""
        keys, seconds, known = self._events.keys, self._events.seconds, self._exact
        for event, _, announcement, _, _ in done.history:
            if event not in known:
                start = int(np.searchsorted(seconds, seconds[event - 1] - self._window, "right"))
                counts = np.bincount(keys[start:event]).astype(np.float64)
                known[event] = float((counts**2).sum()), float(event - start) ** 2
            yield abs(announcement.value - known[event][0]) / known[event][1]


# -- Figures 3 to 6, 9 and 10 of GM-AMS --------------------------------------------------------------------------------


def _ams(columns: dict[str, Any], sketch: FastAms, query: Query, scheme: Any, flush: Any, broken: list[int]) -> Simulation:
    streams = ("a", "b") if "stream" in columns else ("",)
    monitor = Monitor(sketch, {"it": query}, streams=streams, scheme=scheme, flush=flush)
    return _run(columns, monitor, broken, step=STEP * 5 // 2, warm=len(columns["key"]) // 2)


def _overhead(done: Simulation) -> float:
    return 1 - done.data / done.total


def _costs(report: Report, events: Events, options: Options, broken: list[int]) -> Table:
    """Self-joins by theta, and a join."""
    sketch = FastAms(eps=0.05, delta=2**-7, seed=20_120_615)
    table = Table(f"Figures 3 to 6: 4 sites, eps 0.05, delta 1/128, {events.keys.size:,} rows of {events.name}", COSTS)
    columns = {"key": events.keys, "site": events.at(4)}
    queries: list[tuple[str, Query, dict[str, Any]]] = [
        ("self-join", SelfJoin(theta=theta), columns) for theta in ((JUDGED,) if options.quick else AMS_THETAS)
    ]
    part = events.first(ROWS)
    queries.append(("join", InnerProduct(of=("a", "b"), theta=JUDGED), _halves(part)))
    for name, query, streams in queries:
        runs = {}
        for scheme, flush in [("push", "lazy"), *OTHERS]:
            options.tell(f"Figures 3 to 6, {name}, theta {query.theta:g}, {scheme}, {flush}")
            runs[scheme, flush] = done = _ams(streams, sketch, query, scheme, flush, broken)
            base, shown = runs["push", "lazy"].total, ("CG", "–") if scheme == "push" else (scheme, flush)
            table.add(
                name, query.theta, *shown, done.data / 1e3, done.total / 1e3, done.data / base, done.total / base,
                _overhead(done), done.synchronisations["collecting"],
            )  # fmt: skip
        if isinstance(query, SelfJoin) and query.theta == JUDGED:
            lazy, least = runs["geometric", "lazy"], runs["oracle", "lazy"]
            report.verdicts += [
                Verdict.at_most(f"Figure 4: GM-lazy / CG in total, theta {JUDGED:g}", lazy.total / base, 0.7),
                Verdict.at_most(f"Figure 3: GM-lazy / lazy oracle in data, theta {JUDGED:g}", lazy.data / least.data, 1.3),
            ]
    report.tables.append(table)
    report.notes.append(
        f"The join is of two halves of the first {part.keys.size:,} rows, dealt out by a coin: by size or key, no key "
        "would be in both."
    )
    return table


def _halves(events: Events) -> dict[str, Any]:
    """Two streams at 4 sites; in every batch the one comes before the other."""
    size = events.keys.size
    coins, warm = np.random.default_rng(5).integers(0, 2, size), size // 2
    step = min(STEP * 5 // 2, (size - warm) // 20 + 1)
    batches = np.maximum(np.arange(size) - warm + step, 0) // step
    order = np.lexsort((coins, batches))
    return {"key": events.keys[order], "site": events.at(4)[order], "stream": np.array(["a", "b"])[coins[order]]}


def _growth(report: Report, events: Events, options: Options, broken: list[int]) -> Table:
    """Self-joins by the number of sites."""
    sketch, query = FastAms(eps=0.1, delta=2**-7, seed=20_120_615), SelfJoin(theta=0.2)
    table = Table(f"Figures 9 and 10: self-join by number of sites, eps 0.1, theta 0.2, delta 1/128, of {events.name}", GROWTH)
    for sites in (2, 8) if options.quick else AMS_SITES:
        part, runs = events.first(ROWS if sites <= MANY else FEWER), {}
        columns = {"key": part.keys, "site": part.at(sites)}
        for scheme in ("push", "geometric", "functional"):
            options.tell(f"Figures 9 and 10, {sites} sites, {scheme}")
            runs[scheme] = _ams(columns, sketch, query, scheme, "lazy", broken)
        base = runs.pop("push")
        shares = [(done.data / base.total, done.total / base.total, _overhead(done)) for done in runs.values()]
        table.add(sites, part.keys.size, 100 * base.total / (8 * base.events), *shares[0], *shares[1])
    report.tables.append(table)
    worst = max(row["functional: total / CG's"] for row in table.as_dicts())
    report.verdicts.append(Verdict.below("Figure 10: functional / CG in total, the most of all numbers of sites", worst, 1))
    return table


# -- plots -------------------------------------------------------------------------------------------------------------


def _plot(volume: Table, thetas: Table, costs: Table, growth: Table, options: Options) -> str:
    """The figures."""
    try:
        import matplotlib
    except ImportError:
        raise lt.LatelyError("--plot needs matplotlib; pip install 'lately[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(15, 8), layout="constrained")
    percents, errors = ["functional, %", "geometric, %", "DISTCM, %"], ["mean error", "most", "mean error, geometric"]
    shown = (
        (axes[0, 0], volume, "sites", percents, "% of sending everything", "Figure 8 (a)"),
        (axes[0, 1], volume, "sites", errors, "relative error", "Figure 8 (b)"),
        (axes[0, 2], thetas, "theta", percents[:2], "% of sending everything", "Figure 8 (c)"),
        (axes[1, 1], growth, "sites", [name for name in GROWTH if "data" in name], "of CG's bytes", "Figure 9: data"),
        (axes[1, 2], growth, "sites", [name for name in GROWTH if "total" in name], "of CG's bytes", "Figure 10: total"),
    )
    for axis, table, across, names, up, title in shown:
        rows = table.as_dicts()
        for name in names:
            points = [row for row in rows if row[name] is not None]
            axis.plot([row[across] for row in points], [row[name] for row in points], "o-", label=name)
        axis.set(xlabel=across, ylabel=up, title=title, yscale="log" if up.startswith("%") else "linear")
        if across == "sites":
            axis.set_xscale("log", base=2)
    rows = [row for row in costs.as_dicts() if row["query"] == "self-join"]
    for scheme, flush in OTHERS:
        points = [row for row in rows if (row["scheme"], row["flush"]) == (scheme, flush)]
        (curve,) = axes[1, 0].plot([row["theta"] for row in points], [row["data / CG's"] for row in points], "x--")
        totals = [row["total / CG's"] for row in points]
        axes[1, 0].plot([r["theta"] for r in points], totals, "o-", color=curve.get_color(), label=f"{scheme}, {flush}")
    axes[1, 0].set(xlabel="theta", ylabel="of CG's bytes", title="Figures 3 (data, dashed) and 4 (total)")
    for axis in axes.flat:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    assert options.plot is not None
    options.plot.mkdir(parents=True, exist_ok=True)
    path = options.plot / "monitors.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return str(path)
