"""How small? Bytes in memory and as stored, after a stream has filled the window."""

import tracemalloc
from collections import Counter, deque
from typing import Any

import numpy as np

import lately as lt
from bench.data import Stream, stream
from bench.report import Options, Report, Table, Verdict

EPS = DELTA = 0.15
WINDOW = 2_000_000
LIVE, STORED = 15 * 1024, 12 * 1024
COLUMNS = {"tick": "", "what": "", "in window": ",", "live bytes": ",", "stored bytes": ",", "ECM-15 reports": ""}
PAPER = {"wave": "50 KB", "exphist": "22 KB", "randwave": "48.8 MB"}


def run(options: Options) -> Report:
    report = Report("How small?")
    data = stream(options, 10_000_000, 200_000)
    table = Table(f"eps = delta = {EPS}, a window of {WINDOW:,} ticks, after {len(data):,} rows of {data.name}", COLUMNS)
    ticks = {"row": np.arange(len(data))}
    if data.seconds is not None:
        ticks["ts"] = data.seconds
    for tick, times in ticks.items():
        live = int(times.size - np.searchsorted(times, times[-1] - WINDOW, "right"))
        for counter in ("wave", "exphist", "randwave", "exact"):
            options.tell(f"{counter}, one tick per {tick}")
            # Randomized waves take milliseconds per thousand rows: in a quick look they get a part of the window.
            skip = max(0, len(data) - 20_000) if options.quick and counter == "randwave" else 0
            sketch = _fill(data, times, counter, skip)
            stored = len(sketch.to_bytes())
            name = counter if not skip else f"{counter} (last {len(data) - skip:,} rows only)"
            table.add(tick, name, min(live, len(data) - skip), sketch.nbytes, stored, PAPER.get(counter, "–"))
            if counter == "wave":
                what = f"wave, one tick per {'row' if tick == 'row' else 'second (ts)'}"
                report.verdicts.append(Verdict.at_most(f"{what}: KiB live", sketch.nbytes / 1024, LIVE / 1024))
                report.verdicts.append(Verdict.at_most(f"{what}: KiB stored", stored / 1024, STORED / 1024))
        options.tell("the exact window")
        table.add(tick, "dict + deque, exact", live, _exact(data, slice(len(data) - live, None)), None, None)
    report.tables.append(table)
    report.notes += [
        "Live bytes are what the state takes in memory, stored bytes what to_bytes() gives. Depth 2, for randomized waves 3.",
        "What ECM-15 reports is for its own data at the same eps, delta and window: a yardstick, not the same run.",
        "dict + deque: a (time, key) tuple per arrival in the window and a count per distinct key; bytes as Python "
        "allocates them, measured on a sample of the arrivals and scaled to all of them.",
    ]
    if "ts" in ticks:
        report.notes.append("The same rows twice: with the row number as time, and with ts in seconds.")
    else:
        report.notes.append("Synthetic stream; --data FILE.parquet measures yours (columns ts and key).")
    return report


def _fill(data: Stream, times: Any, counter: str, skip: int) -> lt.EcmSketch:
    sketch = lt.EcmSketch(window=WINDOW, eps=EPS, delta=DELTA, counter=counter)
    for rows in data.batches(skip):
        sketch.update(data.keys(rows), times[rows])
    return sketch


def _exact(data: Stream, rows: slice) -> int:
    """The bytes of a dictionary of counts and a queue of arrivals that would hold these rows."""
    codes = data.codes[rows]
    sample = codes[:200_000]
    names = data.texts.take(np.unique(codes))
    tracemalloc.start()
    window = deque((time, key) for time, key in enumerate(sample.tolist(), start=10**9))
    per_arrival = tracemalloc.get_traced_memory()[0] / len(window)
    tracemalloc.stop()
    tracemalloc.start()
    counts = Counter(dict.fromkeys(names.to_pylist(), 1000))
    distinct = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(counts) == len(names)
    return int(per_arrival * codes.size + distinct)
