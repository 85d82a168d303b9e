"""Write the golden files of the current format version: ``python tests/golden/make_golden.py``.

One blob for each class, counter family and number of arrivals, and what each answers, in ``v<version>/answers.json``. Files
of a version that has been released are never written again.
"""

import json
from pathlib import Path

import numpy as np

import lately as lt
from lately.core.codec import VERSION

HERE = Path(__file__).parent
COUNTERS = ("wave", "exphist", "randwave", "exact")
SIZES = (0, 1, 10, 1_000, 100_000)
START = 1_767_225_600  # 2026-01-01


def stream(size):
    """Keys 0, 1, 2, … the smaller the more often, an arrival or two a tick; plain arithmetic, the same for ever."""
    i = np.arange(size)
    words = i * 2_654_435_761 % 2**32
    return words % (1 + words // 7 % 40), START + i * 3 // 4


def build(name, counter, **options):
    loose = {"wave": 0.2, "exphist": 0.2, "randwave": 0.6, "exact": 0.2}[counter]
    options = {"window": 1_000, "eps": loose, "delta": 0.3, "counter": counter, "samples": 2, "salt": 11} | options
    return lt.WindowCounter(**options) if name == "counter" else lt.EcmSketch(**options)


def add(thing, keys, times, counts=None):
    if keys.size:
        thing.add(times, counts) if isinstance(thing, lt.WindowCounter) else thing.update(keys, times, counts)
    return thing


def things():
    """Everything that is stored, by the name of its file."""
    keys, times = stream(100_000)
    for size in SIZES:
        table = lt.CountMin(eps=0.1, delta=0.3)
        if size:
            table.update(keys[:size])
        yield f"countmin-{size}", table
    for counter in COUNTERS:
        for name in ("counter", "sketch"):
            for size in SIZES:
                yield f"{name}-{counter}-{size}", add(build(name, counter), keys[:size], times[:size])
            thousand = keys[:1_000], times[:1_000]
            weights = np.arange(1_000) * 37 % 500
            weighted = add(build(name, counter), *thousand, weights)
            yield f"{name}-{counter}-weighted", weighted
            late = add(build(name, counter, salt=12), thousand[0], thousand[1] + 300)
            yield f"{name}-{counter}-merged", lt.merge([lt.merge([weighted, late]), weighted])
            yield f"{name}-{counter}-time", add(build(name, counter, window="10m", tick="5s", lateness="1m"), *thousand)
            yield f"{name}-{counter}-arrivals", add(build(name, counter, window=lt.arrivals(500)), thousand[0], None, weights)
            if name == "sketch":
                yield f"countmin-{counter}-extracted", weighted.extract(last=300)
                yield f"sketch-{counter}-inner", add(build(name, counter, query="inner", merge_height=1, seed=5), *thousand)


def answers(thing):
    """What a sketch says, as JSON holds it: lists of value, low, high."""

    def row(estimate):
        return [estimate.value, estimate.low, estimate.high]

    if isinstance(thing, lt.CountMin):
        said = {"counts": [row(e) for e in thing.counts(np.arange(12))], "total": thing.total}
        return said | {"self_join": row(thing.self_join()), "repr": repr(thing)}
    window = thing.window
    part = {"time": "100s", "integer": 300, "arrivals": 150}[window.kind]
    half = {"time": ("5m", "1m"), "integer": (700, 100), "arrivals": (400, 10)}[window.kind]
    ranges = ({}, {"last": part}, {"between": half})
    said = {"now": str(thing.now), "late": thing.late, "window": repr(window)}
    if isinstance(thing, lt.WindowCounter):
        return said | {"counts": [row(thing.count(**r)) for r in ranges]}
    said["counts"] = [[row(e) for e in thing.counts(np.arange(12), **r)] for r in ranges]
    said["total"] = [row(thing.total(**r)) for r in ranges]
    if thing.counter != "randwave":
        said["self_join"] = [row(thing.self_join(**r)) for r in ranges]
    return said


def main():
    folder = HERE / f"v{VERSION}"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    expected = {}
    for name, thing in things():
        (folder / f"{name}.ltly").write_bytes(thing.to_bytes())
        expected[name] = answers(thing)
    rows = (f"{json.dumps(name)}: {json.dumps(said, separators=(',', ':'))}" for name, said in sorted(expected.items()))
    (folder / "answers.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{len(expected)} files, {size:,} bytes in {folder}")


if __name__ == "__main__":
    main()
