"""What does merging cost? The error after merging many sites, the speed of a merge, and what randomized waves lose."""

from typing import Any

import numpy as np

import lately as lt
from bench.data import Stream, stream
from bench.report import Options, Report, Table, Verdict
from bench.timing import race

DELTA = 0.15
WINDOW = 1_000_000
ALLOWED = 1.15
SHORTEST = 1_000
ERRORS = {
    "counter": "", "eps": "g", "sites": ",", "levels": "d", "queries": ",",
    "average error": ".5f", "of one sketch": ".5f", "ratio": ".3f", "outside their bounds": ".3%",
}  # fmt: skip
COUNTERS = {
    "counter": "", "eps": "g", "sites": ",", "average error": ".5f", "signed": "+.5f", "maximum": ".5f", "ratio": ".3f",
}  # fmt: skip
SPEED = {"what": "", "sketches": "d", "eps": "g", "entries": ",", "ms": ".2f", "M entries/s": ".1f", "ratio": ".2f"}


def run(options: Options) -> Report:
    report = Report("What does merging cost?")
    data = stream(options, 2_000_000, 50_000)
    if len(data) < SHORTEST:
        raise lt.InputError(f"{data.name} has {len(data):,} rows; to see what merging costs, give {SHORTEST:,} or more")
    most = 16 if options.quick else 256
    table = Table(f"average error of point queries over {len(data):,} rows of {data.name}, split at random over sites", ERRORS)
    for counter, eps, rows, sites in (
        ("wave", 0.1, len(data), most),
        ("wave", 0.2, len(data), most),
        ("exphist", 0.1, len(data), most),
        ("exphist", 0.2, len(data), most),
        ("randwave", 0.2, max(len(data) // 10, 2 * SHORTEST), 4 if options.quick else 16),
    ):
        part = Stream(data.name, data.codes[:rows], data.texts, None)
        _, alone, _ = _average(_sites(part, counter, eps, 1)[0], part)
        ratios = []
        for count in (2**power for power in range(1, sites.bit_length())):
            options.tell(f"{counter}, eps {eps}, {count} sites")
            merged = _tree(_sites(part, counter, eps, count))
            queries, average, missed = _average(merged, part)
            ratio = average / alone if alone else None  # no ratio to a sketch that was never off
            ratios += [ratio] if ratio is not None else []
            table.add(counter, eps, count, merged.merges, queries, average, alone, ratio, missed)
        claim = f"{counter}, eps {eps}: error after merging 2 to {sites} sites / of one sketch, the largest"
        if ratios:
            report.verdicts.append(Verdict.at_most(claim, max(ratios), ALLOWED))
        if counter == "randwave":
            levels = max(row[3] for row in table.rows if row[0] == counter)
            report.verdicts.append(Verdict.at_most("randwave: levels of merging that widen its bounds", levels, 0))
    report.tables.append(table)
    _counters(report, options)
    _speed(report, options, data)
    report.notes += [
        f"Sites are merged two by two in a tree. Row number as time, window {WINDOW:,} ticks, delta {DELTA}, merge_height=0.",
        "Average: over one point query per distinct key, for the ranges 1,000 to 1,000,000 ticks (where the stream is as "
        "long), each range with the same weight; relative to the arrivals in range.",
        "Counters alone: 'signed' is the mean of (estimate - truth) / truth over 400 ranges. Count-Min overestimates, so "
        "a merge that estimates low makes a sketch look better than its counters are: read both tables.",
        "An entry is a retained stamp of the inputs' cells. Baseline: NumPy sorting the same entries by cell and stamp, "
        "which is only the first step of a merge.",
    ]
    return report


def _sketch(counter: str, eps: float) -> lt.EcmSketch:
    return lt.EcmSketch(window=WINDOW, eps=eps, delta=DELTA, counter=counter)


def _sites(data: Stream, counter: str, eps: float, sites: int) -> list[lt.EcmSketch]:
    """One sketch per site, each fed its random share of the rows."""
    where = np.random.default_rng(11).integers(0, sites, len(data))
    order = np.argsort(where, kind="stable")
    sketches = []
    for rows in np.split(order, np.cumsum(np.bincount(where, minlength=sites))[:-1]):
        sketch = _sketch(counter, eps)
        sketch.update(data.keys(rows), rows)
        sketches.append(sketch)
    return sketches


def _tree(sketches: list[Any]) -> Any:
    """Merge two by two until one is left."""
    while len(sketches) > 1:
        sketches = [lt.merge(sketches[i : i + 2]) for i in range(0, len(sketches), 2)]
    return sketches[0]


def _average(sketch: lt.EcmSketch, data: Stream) -> tuple[int, float, float]:
    """Queries, their average error, and the share of answers whose bounds miss the truth."""
    errors, missed = [], []
    for last in (r for r in (SHORTEST, 10**4, 10**5, 10**6) if r <= len(data)):
        keys, counts = data.exact(slice(max(0, len(data) - last - 1), None))
        answers = sketch.counts(keys, last=last)
        errors.append(np.abs(answers.value - counts) / counts.sum())
        missed.append((counts < answers.low) | (counts > answers.high))
    return sum(e.size for e in errors), float(np.mean([e.mean() for e in errors])), float(np.concatenate(missed).mean())


def _counters(report: Report, options: Options) -> None:
    """The same with bare counters: in a sketch, what other keys add to a cell hides what merging takes from it."""
    table = Table("the same for counters alone, without keys: one arrival per tick, relative to the truth", COUNTERS)
    rows = 50_000 if options.quick else 500_000
    ranges = np.unique(np.geomspace(100, 0.8 * rows, 400).astype(np.int64))
    for counter in ("wave", "exphist"):
        alone = 0.0
        for sites in (1, 2, 4, 16) if options.quick else (1, 2, 4, 16, 64, 256):
            options.tell(f"counters alone, {counter}, {sites} sites")
            where = np.random.default_rng(5).integers(0, sites, rows)
            inputs = [lt.WindowCounter(window=WINDOW, eps=0.1, counter=counter) for _ in range(sites)]
            for site, counter_of_site in enumerate(inputs):
                counter_of_site.add(np.flatnonzero(where == site))
                counter_of_site.advance(rows - 1)
            merged = _tree(inputs)
            errors = np.array([merged.count(last=int(r)).value / (r + 1) - 1 for r in ranges])
            average = float(np.abs(errors).mean())
            alone = alone or average
            table.add(counter, 0.1, sites, average, float(errors.mean()), float(np.abs(errors).max()), average / alone)
    report.tables.append(table)


def _speed(report: Report, options: Options, data: Stream) -> None:
    table = Table("speed of merging 16 sketches in one step", SPEED)
    rounds = 3 if options.quick else 30
    for counter, eps in (("wave", 0.1), ("exphist", 0.1), ("wave", 0.01))[: 2 if options.quick else 3]:
        options.tell(f"merging 16 sketches, {counter}, eps {eps}")
        sketches = _sites(data, counter, eps, 16)
        cells, stamps = _entries(sketches)
        best = race(
            rounds,
            {
                "merge": lambda sketches=sketches: lambda: lt.merge(sketches),
                "sort": lambda cells=cells, stamps=stamps: lambda: np.lexsort((stamps, cells)),
            },
        )
        for what, seconds in (("merge", best["merge"]), ("NumPy lexsort of the same entries", best["sort"])):
            ratio = best["sort"] / seconds
            table.add(f"{counter}: {what}", 16, eps, stamps.size, seconds * 1e3, stamps.size / seconds / 1e6, ratio)
        if (counter, eps) == ("wave", 0.1):
            rate = stamps.size / best["merge"] / 1e6
            report.verdicts.append(Verdict.at_least("wave, eps 0.1: million entries merged a second", rate, 20))
    report.tables.append(table)


def _entries(sketches: list[lt.EcmSketch]) -> tuple[Any, Any]:
    """The cell and the stamp of every entry that the cells of these sketches retain inside the window."""
    cells, stamps = [], []
    for sketch in sketches:
        array = sketch._parts[0]
        walk = array._walk(array.live_from(sketch._now - sketch._origin))
        inside = walk.places >= 0
        cells.append(np.repeat(np.arange(array.cells, dtype=np.uint32), np.diff(walk.offsets))[inside])
        stamps.append(array.rings.reshape(-1)[walk.places[inside]])
    return np.concatenate(cells), np.concatenate(stamps)
