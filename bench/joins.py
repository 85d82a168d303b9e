"""Joins: self-joins and inner products over a window, by ECM-sketches and by signed cells on shared waves, in equal bytes."""

from collections.abc import Iterator
from typing import Any

import numpy as np

import lately as lt
from bench.data import Ints, Stream, stream
from bench.report import Options, Report, Table, Verdict

DELTA = 0.05
EPS = 0.05
SEEDS = (1, 2, 3, 4)
MOMENTS = (0.7, 0.85, 1.0)
#: The window and the ranges that are asked, as shares of the stream's time: 1, 10 and 60 of about 88 minutes.
RANGES = (1 / 88, 10 / 88, 60 / 88)
PROMISE = 0.05
COLUMNS = {
    "what": "", "eps": ".3f", "bytes": ",", "stored": ",", "range": ",", "self-join, median": ".2%", "largest": ".2%",
    "join, median": ".2%", "largest join": ".2%", "bounds": ".1%", "missed": ",",
}  # fmt: skip


def run(options: Options) -> Report:
    report = Report("How far off are joins?")
    data = stream(options, 10_000_000, 100_000)
    seconds = np.arange(len(data)) if data.seconds is None else data.seconds - data.seconds[0]
    unit = 86_400 if seconds[-1] > 30 * 86_400 else 60
    spans = [max(2, round(share * seconds[-1])) for share in RANGES]
    if data.seconds is not None and seconds[-1] > 88 * unit:
        spans = [unit, 10 * unit, 60 * unit]
    truth = _Truth(data, seconds, spans)
    table = Table(f"relative errors of self-joins, and of joins of every other row with the rest; {len(data):,} rows", COLUMNS)
    ecm = _measured(options, truth, "EcmSketch(query='inner')", EPS)
    budget = ecm[0]["bytes"]
    eps = _eps_for(truth, budget)
    shared = _measured(options, truth, "signed cells on shared waves", eps)
    rows = [*ecm, *shared]
    if not options.quick:
        rows += _measured(options, truth, "signed cells on shared waves", EPS)
        rows += _measured(options, truth, "signed cells, a wave each", 0.4)
    for row in rows:
        table.add(*row.values())
    report.tables.append(table)
    name = "largest error of any self-join and join by shared waves, in the bytes of the ECM-sketch"
    worst = max(max(row["largest"], row["largest join"]) for row in shared)
    report.verdicts.append(Verdict.at_most(f"{data.name}: {name}", worst, PROMISE))
    report.verdicts.append(Verdict.at_most("bytes of shared waves / of the ECM-sketch", shared[0]["bytes"] / budget, 1))
    missed, answers = sum(row["missed"] for row in shared), 2 * len(SEEDS) * len(MOMENTS) * len(spans)
    report.verdicts.append(Verdict.at_most("share of answers outside of their bounds", missed / answers, 3 * DELTA))
    report.notes += [
        f"{data.name}. delta {DELTA}; {len(SEEDS)} seeds, asked at {len(MOMENTS)} moments of the stream. 'bytes' is nbytes at "
        "the end.",
        "bounds: high - low of self-joins, over the exact value, on average. missed: exact values outside of the bounds, of "
        f"{2 * len(SEEDS) * len(MOMENTS)} answers.",
        "signed cells, a wave each: WindowedAmsSketch(counter='wave'), the default before shared waves. With eps 0.05 and "
        f"delta {DELTA} it has {lt.core.plan.ams_size(EPS / 2, DELTA)[0]:,} pairs of waves a row; it is shown with eps 0.4.",
    ]
    return report


class _Truth:
    """The stream in two halves, and exact answers at every moment that is asked."""

    def __init__(self, data: Stream, seconds: Ints, spans: list[int]) -> None:
        self.data, self.seconds, self.spans = data, seconds, spans
        self.stops = [max(2, round(moment * len(data))) for moment in MOMENTS]
        self.exact = {(stop, span): self._exact(stop, span) for stop in self.stops for span in spans}

    def _exact(self, stop: int, span: int) -> tuple[float, float]:
        start = int(np.searchsorted(self.seconds[:stop], self.seconds[stop - 1] - span, "right"))
        rows, size = np.arange(start, stop), len(self.data.texts)
        halves = [np.bincount(self.data.codes[rows[rows % 2 == half]], minlength=size).astype(np.float64) for half in (0, 1)]
        both = halves[0] + halves[1]
        return float(both @ both), float(halves[0] @ halves[1])

    def feed(self, sketch: Any, half: int | None = None) -> Iterator[int]:
        """Feed the stream, or every other row of it; stops at each moment."""
        before = 0
        for stop in self.stops:
            for batch in self.data.batches(before, stop):
                rows = np.arange(batch.start, batch.stop)
                rows = rows if half is None else rows[rows % 2 == half]
                sketch.update(self.data.keys(rows), self.seconds[rows])
            sketch.advance(int(self.seconds[stop - 1]))
            before = stop
            yield stop


def _sketch(what: str, window: int, eps: float, seed: int) -> Any:
    if what.startswith("Ecm"):
        return lt.EcmSketch(window=window, eps=eps, delta=DELTA, query="inner", seed=seed)
    counter: Any = "shared" if what.endswith("shared waves") else "wave"
    return lt.WindowedAmsSketch(window=window, eps=eps, delta=DELTA, seed=seed, counter=counter)


def _eps_for(truth: _Truth, budget: int) -> float:
    """The smallest eps, in steps of 5 %, with which shared waves take no more bytes than this at the end of the stream."""
    eps = EPS
    while True:
        sketch = _sketch("signed cells on shared waves", truth.spans[-1], eps, SEEDS[0])
        for _ in truth.feed(sketch):
            pass
        if sketch.nbytes <= budget or eps > 0.9:
            return eps
        eps *= 1.05


def _measured(options: Options, truth: _Truth, what: str, eps: float) -> list[dict[str, Any]]:
    """A row for each range."""
    options.tell(f"{what}, eps {eps:.3f}")
    errors: dict[tuple[str, int], list[float]] = {
        (kind, span): [] for kind in ("self", "join", "bounds") for span in truth.spans
    }
    missed = dict.fromkeys(truth.spans, 0)
    for seed in SEEDS:
        whole, left, right = (_sketch(what, truth.spans[-1], eps, seed) for _ in range(3))
        for stop, _, _ in zip(truth.feed(whole), truth.feed(left, 0), truth.feed(right, 1), strict=True):
            for span in truth.spans:
                square, product = truth.exact[stop, span]
                own, joined = whole.self_join(last=span), left.inner_product(right, last=span)
                errors["self", span].append(abs(own.value / square - 1))
                errors["join", span].append(abs(joined.value / max(product, 1.0) - 1))
                errors["bounds", span].append((own.high - own.low) / square)
                missed[span] += (square not in own) + (product not in joined)
    return [
        dict(
            zip(
                COLUMNS,
                (
                    what,
                    eps,
                    whole.nbytes,
                    len(whole.to_bytes()),
                    span,
                    *(float(f(errors[kind, span])) for kind in ("self", "join") for f in (np.median, np.max)),
                    float(np.mean(errors["bounds", span])),
                    missed[span],
                ),
                strict=True,
            )
        )
        for span in truth.spans
    ]
