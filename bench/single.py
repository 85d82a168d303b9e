"""What does one event at a time cost? Calls of ``update`` and ``add`` with one event, and of ``count`` with one key."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any

import numpy as np

import lately as lt
from bench.report import Options, Report, Table, Verdict
from bench.timing import Contestants, race

COLUMNS = {"class": "", "times": "", "calls": ",", "µs a call": ".2f", "as columns of one": ".1f", "ratio": ".1f"}
IN_TURN = {
    "class": "",
    "questions": "",
    "events between two": ",",
    "µs an event": ".2f",
    "as columns of one": ".1f",
    "ratio": ".1f",
}
QUESTIONS = {"question": "", "calls": ",", "µs a call": ".1f"}

KEYS = 1000
SIZE = {"eps": 0.01, "delta": 0.01}
START = datetime(2026, 1, 1, tzinfo=UTC)

#: What ``update`` and ``add`` of a single event, and a count of a single key, may take on this machine, in microseconds.
MOST_FOR_UPDATES = 3

#: A list of (key, time).
Events = list[tuple[Any, Any]]


def run(options: Options) -> Report:
    report = Report("What does one event at a time cost?")
    size, rounds = options.size(100_000, 3_000), 2 if options.quick else 5
    _updates(report, options, size, rounds)
    _in_turn(report, options, max(size // 10, 1000), rounds)
    _questions(report, options, max(size // 20, 100), rounds)
    report.notes += [
        f"Text keys, drawn from {KEYS:,}; eps = delta = 0.01, a window of an hour or of 10,000 ticks; one event a tick.",
        "As columns of one: the same events as lists of one key and one time, which are counted at once.",
        f"Contestants take turns in one process; the best of {rounds} turns counts.",
    ]
    return report


def _updates(report: Report, options: Options, size: int, rounds: int) -> None:
    table = Table("update and add, one event a call", COLUMNS)
    keys = [f"key {number}" for number in np.random.default_rng(1).integers(0, KEYS, size).tolist()]
    for name, build, times in _contests():
        options.tell(f"{name}, {times}")
        events = list(zip(_keys_for(name, keys), _TIMES[times](size), strict=True))
        best = race(rounds, _contestants(build, events, events[: max(size // 10, 1)]))
        single, columns = best["single"] / size * 1e6, best["columns"] / max(size // 10, 1) * 1e6
        table.add(name, times, size, single, columns, columns / single)
        if times == "integers" and name in ("EcmSketch", "TopK", "WindowCounter"):
            report.verdicts.append(Verdict.at_most(f"{name}: µs for a single event", single, MOST_FOR_UPDATES))
    report.tables.append(table)


def _contests() -> Iterator[tuple[str, Callable[[], Any], str]]:
    """A name, what it builds, and how it is told the time."""
    ticks: dict[str, Any] = {"window": 10_000}
    for name, build in _BUILDERS.items():
        yield name, lambda build=build: build(**ticks), "integers"
    for times in _TIMES:
        if times not in ("integers", "none"):
            yield "TopK", lambda: _BUILDERS["TopK"](window="1h"), times
    yield "TopK, lateness=100", lambda: _BUILDERS["TopK"](**ticks, lateness=100), "integers"
    yield "TopK of the last 10,000", lambda: _BUILDERS["TopK"](window=lt.arrivals(10_000)), "none"


_BUILDERS: dict[str, Callable[..., Any]] = {
    "EcmSketch": lambda **window: lt.EcmSketch(**SIZE, **window),
    "TopK": lambda **window: lt.TopK(k=10, **SIZE, **window),
    "WindowedAmsSketch": lambda **window: lt.WindowedAmsSketch(eps=0.2, delta=0.1, **window),
    "Dyadic": lambda **window: lt.Dyadic(universe=2**32, **SIZE, **window),
    "Quantiles": lambda **window: lt.Quantiles(lo=0, hi=KEYS, resolution=1, **SIZE, **window),
    "SplitterCountMin": lambda **window: lt.SplitterCountMin(**SIZE, **window),
    "WindowCounter": lambda **window: lt.WindowCounter(eps=0.01, **window),
}

_TIMES: dict[str, Callable[[int], list[Any]]] = {
    "integers": lambda size: list(range(size)),
    "Unix seconds": lambda size: [START.timestamp() + second for second in range(size)],
    "datetimes": lambda size: [START + timedelta(seconds=second) for second in range(size)],
    "ISO texts": lambda size: [(START + timedelta(seconds=second)).isoformat() for second in range(size)],
    "datetime64[ns]": lambda size: list(np.datetime64("2026-01-01", "ns") + np.arange(size) * np.timedelta64(10**9, "ns")),
    "none": lambda size: list(repeat(None, size)),
}


def _keys_for(name: str, keys: list[str]) -> list[Any]:
    return [int(key.split()[1]) for key in keys] if name in ("Dyadic", "Quantiles") else keys


def _contestants(build: Callable[[], Any], events: Events, few: Events) -> Contestants:
    columns = [([key], None if time is None else [time]) for key, time in few]
    return {
        "single": lambda: _feeding(build(), events, lambda sketch: sketch.now),
        "columns": lambda: _feeding(build(), columns, lambda sketch: sketch.now),
    }


def _feeding(sketch: Any, events: Any, finish: Callable[[Any], object]) -> Callable[[], object]:
    """A call for each event, and what makes sure at the end that all of them are counted."""
    if isinstance(sketch, lt.WindowCounter):

        def add() -> None:
            for _, time in events:
                sketch.add(time)
            finish(sketch)

        return add

    def update() -> None:
        for key, time in events:
            sketch.update(key, time)
        finish(sketch)

    return update


def _in_turn(report: Report, options: Options, size: int, rounds: int) -> None:
    """A question counts what waits, so events between two questions share its cost."""
    table = Table("events and questions in turn", IN_TURN)
    keys = [f"key {number}" for number in np.random.default_rng(1).integers(0, KEYS, size).tolist()]
    for name in ("EcmSketch", "TopK", "WindowCounter"):
        for between in (1, 10, 100):
            options.tell(f"{name}, a question after {between} events")
            rows = {"single": list(zip(keys, range(size), strict=True)), "columns": [([k], [t]) for t, k in enumerate(keys)]}
            best = race(
                rounds,
                {
                    way: lambda events=events, name=name, between=between: _asked(
                        _BUILDERS[name](window=10_000), events, between
                    )
                    for way, events in rows.items()
                },
            )
            single, columns = (best[way] / size * 1e6 for way in rows)
            table.add(name, "now", between, single, columns, columns / single)
    report.tables.append(table)


def _asked(sketch: Any, events: list[Any], between: int) -> Callable[[], object]:
    feed = [_feeding(sketch, events[at : at + between], lambda sketch: sketch.now) for at in range(0, len(events), between)]

    def all_of_them() -> None:
        for some in feed:
            some()

    return all_of_them


def _questions(report: Report, options: Options, calls: int, rounds: int) -> None:
    table = Table("count of a single key", QUESTIONS)
    options.tell("single questions")
    keys = np.array([f"key {number}" for number in np.random.default_rng(1).integers(0, KEYS, 50_000).tolist()])
    ecm, top, counter = (_BUILDERS[name](window="1h") for name in ("EcmSketch", "TopK", "WindowCounter"))
    for sketch in (ecm, top):
        sketch.update(keys, np.arange(keys.size))
    counter.add(np.arange(keys.size))
    asked: dict[str, Callable[[], object]] = {
        "EcmSketch.count(key)": lambda: ecm.count("key 1"),
        'EcmSketch.count(key, last="10m")': lambda: ecm.count("key 1", last="10m"),
        "TopK.count(key)": lambda: top.count("key 1"),
        'TopK.count(key, last="10m")': lambda: top.count("key 1", last="10m"),
        'WindowCounter.count(last="10m")': lambda: counter.count(last="10m"),
    }
    best = race(rounds, {what: lambda ask=ask: lambda: [ask() for _ in range(calls)] for what, ask in asked.items()})
    for what, seconds in best.items():
        table.add(what, calls, seconds / calls * 1e6)
    report.tables.append(table)
