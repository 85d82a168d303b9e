"""Write the golden files of the current format version: ``python tests/golden/make_golden.py``.

One blob for each class, counter family and number of arrivals, and what each answers, in ``v<version>/answers.json``. Files
of a version that has been released are never written again.
"""

import json
from functools import partial
from pathlib import Path
from unittest import mock

import exact_cases
import numpy as np

import lately as lt
from lately.core.codec import VERSION
from lately.core.durations import Window
from lately.sketches import candidates
from lately.sketches.wcm import WcmSketch

HERE = Path(__file__).parent
COUNTERS = ("wave", "exphist", "randwave", "exact", "shared")
SIZES = (0, 1, 10, 1_000, 100_000)
START = 1_767_225_600  # 2026-01-01

#: Integers that no float is equal to, which came with format version 2.
LARGE = {
    "large": [2**53 + 1, -(2**63), 2**63 - 1, 7, 1_767_225_600_123_456_789, -(2**53) - 1, 10**18 + 1, 10**18 + 2],
    "large-mixed": [2**60 + 1, 0.5, None, -(2**62) - 3, float("inf"), 2.0**60, 3],
}


def stream(size):
    """Keys 0, 1, 2, … the smaller the more often, an arrival or two a tick; plain arithmetic, the same for ever."""
    i = np.arange(size)
    words = i * 2_654_435_761 % 2**32
    return words % (1 + words // 7 % 40), START + i * 3 // 4


def build(name, counter, **options):
    loose = {"wave": 0.2, "exphist": 0.2, "randwave": 0.6, "exact": 0.2, "shared": 0.2}[counter]
    options = {"window": 1_000, "eps": loose, "delta": 0.3, "counter": counter, "samples": 2, "salt": 11} | options
    return lt.WindowCounter(**options) if name == "counter" else lt.EcmSketch(**options)


def add(thing, keys, times, counts=None):
    if keys.size:  # values, for the sketches of numbers
        thing.add(times, counts) if isinstance(thing, lt.WindowCounter) else thing.update(keys, times, counts)
    return thing


def with_salt(thing, salt):
    """A copy whose samples say that they were drawn with this salt alone, as when bytes had no room for others."""
    twin = thing.copy()
    if hasattr(twin._parts[0], "salts"):
        twin._parts[0].salt, twin._parts[0].salts = salt, {salt: max(twin._parts[0].salts.values())}
    return twin


def things():
    """Everything that is stored, by the name of its file."""
    keys, times = stream(100_000)
    for size in SIZES:
        table = lt.CountMin(eps=0.1, delta=0.3)
        if size:
            table.update(keys[:size])
        yield f"countmin-{size}", table
    for counter in COUNTERS:
        for name in ("sketch",) if counter == "shared" else ("counter", "sketch"):
            for size in SIZES:
                yield f"{name}-{counter}-{size}", add(build(name, counter), keys[:size], times[:size])
            thousand = keys[:1_000], times[:1_000]
            weights = np.arange(1_000) * 37 % 500
            weighted = add(build(name, counter), *thousand, weights)
            yield f"{name}-{counter}-weighted", weighted
            late = add(build(name, counter, salt=12), thousand[0], thousand[1] + 300)
            merged = lt.merge([with_salt(lt.merge([weighted, late]), 11), with_salt(weighted, 13)])
            yield f"{name}-{counter}-merged", with_salt(merged, 11)
            yield f"{name}-{counter}-time", add(build(name, counter, window="10m", tick="5s", lateness="1m"), *thousand)
            yield f"{name}-{counter}-arrivals", add(build(name, counter, window=lt.arrivals(500)), thousand[0], None, weights)
            if name == "counter" and counter == "wave":  # what needs the extended fields
                yield "counter-wave-finer", lt.merge([lt.merge([weighted, late], eps=0.1), weighted])
                yield "counter-wave-planned", add(build(name, counter, merge_height=3), *thousand)
            if name == "counter" and counter == "randwave":
                drawn = build(name, counter, salt=None)
                drawn._parts[0].salt = 14  # as if drawn
                yield "counter-randwave-drawn", add(drawn, *thousand)
            if name == "sketch" and counter != "shared":
                yield f"countmin-{counter}-extracted", weighted.extract(last=300)
                yield f"sketch-{counter}-inner", add(build(name, counter, query="inner", merge_height=1, seed=5), *thousand)
    yield from trees(keys, times)
    yield from tops(keys, times)
    for kind in (lt.PerfectCountMin, lt.SimpleCountMin, lt.ProportionalCountMin, lt.SplitterCountMin):
        name = kind.__name__.lower().removesuffix("countmin")
        yield from variants(name, partial(_guess, kind), keys, times)
    yield from exact_windows(keys, times)
    yield from signed(keys, times)


def signed(keys, times):
    """AMS sketches, plain and over a window."""
    counts = np.arange(keys.size) * 37 % 11 - 4
    for name, kind in (("ams", lt.AmsSketch), ("fastams", lt.FastAmsSketch)):
        for size in SIZES:
            one = kind(eps=0.5, delta=0.05)
            if size:
                one.update(keys[:size], counts=counts[:size])
            yield f"{name}-{size}", one
        yield f"{name}-merged", lt.merge([one, one, one])
        yield f"{name}-nothing", one - one

    def make(**options):
        return lt.WindowedAmsSketch(**({"window": 1_000, "eps": 0.8, "delta": 0.4, "counter": "wave"} | options))

    yield from variants("windowedams", make, keys, times)
    for counter in ("exphist", "exact"):
        yield f"windowedams-{counter}", add(make(counter=counter, lateness=50), keys[:200], times[:200])


def _guess(kind, merge_height=0, **options):
    """Merging loses nothing here, so there is no height to plan for."""
    return kind(**({"window": 1_000, "eps": 0.2, "delta": 0.3} | options))


def variants(name, make, values, times):
    """One of a class in each state that is stored differently; ``make`` builds it empty."""
    for size in SIZES:
        yield f"{name}-{size}", add(make(), values[:size], times[:size])
    some, weights = (values[:100], times[:100]), np.arange(100) * 37 % 500
    weighted = add(make(), *some, weights)
    yield f"{name}-merged", lt.merge([lt.merge([weighted, add(make(), some[0], some[1] + 300)]), weighted])
    yield f"{name}-time", add(make(window="10m", tick="5s", lateness="1m", merge_height=1, seed=5), *some)
    yield f"{name}-arrivals", add(make(window=lt.arrivals(500)), some[0], None, weights)


def exact_windows(keys, times):
    """Windows in each state that is stored differently, and their partial results."""
    for name, build in (
        ("windows", exact_cases.windows),
        ("filters", exact_cases.filters),
        ("guesses", exact_cases.approximate),
    ):
        for size in (0, 1, 10, 1_000):
            w = build()
            if size:
                exact_cases.feed(w, keys[:size] * 7, times[:size])
            yield f"{name}-{size}", w
            if name == "filters":
                yield f"partials-{size}", w.partials()
    late, last = exact_cases.windows(lateness=20), exact_cases.arrivals()
    exact_cases.feed(late, keys[:300] * 5, times[:300])
    exact_cases.feed(late, keys[:9] * 5, times[290:299])
    exact_cases.feed(last, keys[:300] * 5, None)
    yield from (("windows-late", late), ("windows-arrivals", last))
    for name, column in LARGE.items():
        w = exact_cases.large()
        w.update({"x": column}, START + 10 * np.arange(len(column)))
        yield from ((f"windows-{name}", w), (f"partials-{name}", w.partials()))


def trees(keys, times):
    options = {"window": 1_000, "eps": 0.7, "delta": 0.6}
    yield from variants("dyadic", lambda **o: lt.Dyadic(**({"universe": 2_000} | options | o)), keys * 50, times)
    numbers = {"lo": 0, "hi": 10, "resolution": 0.25, "outside": "clip"}
    yield from variants("quantiles", lambda **o: lt.Quantiles(**(numbers | options | o)), keys / 3.5, times)


def tops(keys, times):
    def make(**options):
        return lt.TopK(**({"window": 1_000, "eps": 0.2, "delta": 0.3} | ({} if "phi" in options else {"k": 5}) | options))

    yield from variants("topk", make, keys, times)
    names = [
        key if key % 3 == 0 else f"key {key} ü" if key % 3 == 1 else (f"{key}", (key, b"\0\xff")) for key in keys[:200].tolist()
    ]
    named = make(phi=0.25, lateness=100)
    for name, time in zip(names, times.tolist(), strict=False):
        named.update([name], time)
    yield "topk-names", named
    # As many lists as a long stream has, of a short one.
    with mock.patch.object(candidates, "_FEWEST_ROWS", 64):
        listed = add(make(window=5_000), keys[:2_000], times[:2_000])
        yield "topk-listed", listed
        yield "topk-listed-merged", lt.merge([listed, add(make(window=5_000), keys[:1_000] * 3, times[:1_000] + 700), listed])


def answers(thing, version=VERSION):
    """What a sketch says, as JSON holds it: lists of value, low, high.

    Version 1 was asked when windows and ranges of time held both of their ends. The same ticks are one tick more by the
    count of today, which a window that was read says of itself and a range must be asked for.
    """

    def row(estimate):
        return [estimate.value, estimate.low, estimate.high]

    def rows(found):
        return [[name(one.key), row(one.count)] for one in found], found.missed

    def name(key):
        return key if isinstance(key, str) else repr(key.item() if isinstance(key, np.generic) else key)

    if isinstance(thing, lt.Windows | lt.Partials):
        return exact_cases.ask(thing)
    if isinstance(thing, lt.CountMin):
        said = {"counts": [row(e) for e in thing.counts(np.arange(12))], "total": thing.total()}
        return said | {"self_join": row(thing.self_join()), "repr": repr(thing)}
    if isinstance(thing, lt.AmsSketch | lt.FastAmsSketch):
        asked = (
            thing.self_join(),
            thing.inner_product(thing),
            thing.range_sum(range(5, 30)),
            thing.range_sum([1, 2], weights=[3, -1]),
        )
        return {"answers": list(map(row, asked)), "total": thing.total(), "weight": thing.weight, "repr": repr(thing)}
    window = thing.window
    part = {"time": "100s", "integer": 300, "arrivals": 150}[window.kind]
    half = {"time": ("5m", "1m"), "integer": (700, 100), "arrivals": (400, 10)}[window.kind]
    if version == 1 and window.kind != "arrivals":
        part, *half = (f"{age} 5s" if window.kind == "time" else age + 1 for age in (part, *half))
        window = Window(window.kind, window.ticks - 1, window.unit)
    ranges = ({},) if isinstance(thing, WcmSketch) else ({}, {"last": part}, {"between": half})
    said = {"now": str(thing.now), "late": thing.late, "window": repr(window)}
    if isinstance(thing, lt.WindowCounter):
        return said | {"counts": [row(thing.count(**r)) for r in ranges]}
    if not isinstance(thing, lt.Quantiles | lt.WindowedAmsSketch):
        said["counts"] = [[row(e) for e in thing.counts(np.arange(12), **r)] for r in ranges]
    said["total"] = [row(thing.total(**r)) for r in ranges]
    if isinstance(thing, lt.Dyadic | lt.Quantiles):
        said["ranges"] = [row(thing.count_range(3, 9, **r)) for r in ranges]
        said["ranks"] = [row(thing.rank(4, **r)) for r in ranges]
        known = [r for r in ranges if thing.total(**r).high]
        said["quantiles"] = [[row(e) for e in thing.quantile([0, 0.25, 0.99], **r).value] for r in known]
    if isinstance(thing, lt.Dyadic | lt.TopK):
        said["heavy"] = [rows(thing.heavy_hitters(phi=0.75, **r)) for r in ranges]
        said["largest"] = [row(thing.largest(**r)) for r in ranges]
        said["entropy"] = [row(thing.entropy(**r)) for r in ranges]
    if isinstance(thing, lt.TopK):
        said["top"] = [rows(thing.top(4, **r)) for r in ranges]
    if not isinstance(thing, lt.Quantiles | WcmSketch) and getattr(thing, "counter", "") != "randwave":
        said["self_join"] = [row(thing.self_join(**r)) for r in ranges]
    if isinstance(thing, lt.WindowedAmsSketch):
        said["inner"] = [row(thing.inner_product(thing, **r)) for r in ranges]
        said["range_sum"] = [row(thing.range_sum(range(2, 9), **r)) for r in ranges]
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
