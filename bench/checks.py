"""What a site spends on looking after every event, beside adding its sketch up anew each time."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from bench.data import Ints
from bench.report import Options, Report, Table, Verdict
from bench.timing import race
from lately.core.keys import Hashes, hash_keys
from lately.monitor import Ecm, FastAms, Monitor, SelfJoin
from lately.monitor.drift import COUNT, Drift, WindowDrift, drift_of
from lately.monitor.layout import Layout
from lately.sketches.hashing import DEFAULT_SEED

ROWS = (2, 3, 4, 5, 6, 7)
BATCH = 1000
WINDOW = 600
RATE = 50  # events of a tick
CHECKS = {
    "rows of the sketch": "", "what": "", "numbers": ",", "ns an event": ",.0f", "adding up anew, ns": ",.0f",
    "anew / incremental": ",.0f", "Site.update, ns an event": ",.0f",
}  # fmt: skip


def local_checks(report: Report, keys: Ints, options: Options) -> None:
    """Add the table, and the verdict on it."""
    size = 10_000 if options.quick else 120_000
    events, ticks = np.resize(keys, size), 1 + np.arange(size) // RATE
    hashes = hash_keys(events)
    table = Table(f"a look after every event: {size // 2:,} events in batches of {BATCH:,}", CHECKS)
    for rows in ROWS[:: 5 if options.quick else 1]:
        options.tell(f"local checks, {rows} rows")
        for name, (layout, monitor) in _kinds(rows).items():
            times = 10 if options.quick else 100
            look = _anew(layout, hashes, ticks, times)
            best = race(
                1 if options.quick else 4,
                {"incremental": partial(_prepared, layout, hashes, ticks), "anew": partial(_same, look)},
            )
            incremental, anew = best["incremental"] / (size - size // 2) * 1e9, best["anew"] / times * 1e9
            site = None if monitor is None else min(_site(monitor, events, ticks) for _ in range(1 if options.quick else 4))
            table.add(rows, name, layout.size, incremental, anew, anew / incremental, site)
    report.tables.append(table)
    for name in _kinds(ROWS[0]):
        kind_rows = [row for row in table.as_dicts() if row["what"] == name]
        for what, column in (("a look", "ns an event"), ("Site.update", "Site.update, ns an event")):
            if most := max(row[column] or 0.0 for row in kind_rows):
                report.verdicts.append(Verdict.below(f"{what}: µs an event, the most of all rows, {name}", most / 1000, 2))
    report.notes.append(
        f"Local checks: drifts with so many rows, {RATE} events to a tick, {RATE * WINDOW:,} in a window, so that about as "
        "much leaves it as comes; finding the cells of hashed keys is in them. Adding up anew: all numbers read from their "
        "counters, or copied where there is no window, and the norms of all rows. Site.update: the whole call, hashing and "
        "messages included, of one site with a coordinator that answers off the clock."
    )


def _kinds(rows: int) -> dict[str, tuple[Layout, Monitor | None]]:
    ecm, ams = Ecm(WINDOW, 0.15, math.exp(-rows), seed=20_120_615), FastAms(eps=0.1, delta=2**-7, seed=20_120_615)
    lately = FastAms(eps=0.1, delta=2**-7, window=WINDOW, seed=20_120_615)
    small, large = ecm.layout(), ams.layout()
    assert small.rows == rows
    watch = {"f2": SelfJoin(theta=0.15)}, {"f2": SelfJoin(theta=0.2)}
    same = large.rows == rows
    return {
        "Ecm(eps=0.15)": (small, Monitor(ecm, watch[0])),
        "FastAms(eps=0.1)": (Layout(rows, large.width, DEFAULT_SEED, True), Monitor(ams, watch[1]) if same else None),
        "FastAms(eps=0.1), window": (
            replace(lately.layout(), rows=rows),
            Monitor(lately, watch[1]) if lately.layout().rows == rows else None,
        ),
    }


def _warmed(layout: Layout, hashes: Hashes, ticks: Ints) -> Drift:
    """A drift that has counted the first half, and told it."""
    drift = drift_of(layout)
    half = hashes.size // 2
    _feed(drift, hashes[:half], ticks[:half])
    drift.take_changes()
    drift.set_threshold(1e15)  # is compared with after every event, and never reached
    return drift


def _feed(drift: Drift, hashes: Hashes, ticks: Ints) -> None:
    ones = np.ones(BATCH, np.int64)
    for at in range(0, hashes.size, BATCH):
        batch = slice(at, at + BATCH)
        drift.begin(hashes[batch], ticks[batch], ones[: hashes[batch].size])
        while drift.run():
            pass


def _prepared(layout: Layout, hashes: Hashes, ticks: Ints) -> Callable[[], object]:
    drift, half = _warmed(layout, hashes, ticks), hashes.size // 2
    return lambda: _feed(drift, hashes[half:], ticks[half:])


def _same(look: Callable[[], object]) -> Callable[[], object]:
    return look


def _anew(layout: Layout, hashes: Hashes, ticks: Ints, times: int) -> Callable[[], object]:
    """All numbers read from the counters, and the norms of their rows."""
    drift = _warmed(layout, hashes, ticks)
    reported = drift.numbers.copy()

    def counts() -> Any:
        assert isinstance(drift, WindowDrift)
        assert drift.now is not None
        return drift._waves.all_since(max(drift.now - drift._origin - WINDOW + 1, 1))

    def numbers() -> Any:
        if layout.window is None:
            return drift.numbers.copy()
        values = counts().value
        return values[::2] - values[1::2] if layout.signed else values

    if isinstance(drift, WindowDrift):  # a count that is carried along may differ from one read anew, within its bounds
        bounds, carried = counts(), drift._book[:, COUNT]
        assert ((bounds.low <= carried) & (carried <= bounds.high)).all()

    def look() -> None:
        for _ in range(times):
            drifted = (numbers() - reported).reshape(layout.rows, layout.width).astype(np.float64)
            if layout.signed:
                np.sqrt((drifted**2).sum(axis=1))
            else:
                np.sqrt((np.maximum(drifted, 0) ** 2).sum(axis=1))
                np.sqrt((np.minimum(drifted, 0) ** 2).sum(axis=1))

    return look


def _site(monitor: Monitor, keys: Ints, ticks: Ints) -> float:
    """Nanoseconds an event in ``Site.update``."""
    site, coordinator = monitor.site(0), monitor.coordinator([0])
    half, seconds = keys.size // 2, 0.0
    site.warm(keys[:half], None if monitor.window is None else ticks[:half])
    for at in range(half, keys.size, BATCH):
        batch = slice(at, at + BATCH)
        start = perf_counter()
        sent = site.update(keys[batch], None if monitor.window is None else ticks[batch])
        if at > half:  # the first batch joins
            seconds += perf_counter() - start
        while sent:
            sent = [m for message in sent for reply in coordinator.receive(message) for m in site.receive(reply)]
    return seconds / max(keys.size - half - BATCH, 1) * 1e9
