"""Damaged, foreign and forged bytes: ``from_bytes`` answers with ``FormatError`` or with something that works.

A checksum catches accidents, so the second half of this file forges it: payloads are mutated and sealed again, and what is
read must either be refused or behave. ``make soak`` runs the same over millions of forgeries (LATELY_FORGERIES) in processes
whose memory is limited.
"""

import contextlib
import dataclasses
import functools
import math
import multiprocessing
import os
import random
import resource
import struct
import tracemalloc
import warnings
import zlib
from unittest import mock

import exact_cases
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.core import codec
from lately.sketches import candidates

COUNTERS = ("wave", "exphist", "randwave", "exact")
LIMIT = 2**24


def _build_wcm(kind, merge_height=0, **options):
    """Merging loses nothing, so there is no height to plan for."""
    return kind(eps=0.5, delta=0.4, **options)


_LINEAR = (lt.AmsSketch, lt.FastAmsSketch)
_WCM = (lt.PerfectCountMin, lt.SimpleCountMin, lt.ProportionalCountMin, lt.SplitterCountMin)


def sealed(payload, family, version=codec.VERSION, flags=0, magic=b"LTLY"):
    """A payload under a header as docs/format.md has it, with the checksum that belongs there."""
    head = struct.pack("<4sBBHI", magic, version, family, flags, len(payload))
    return head + struct.pack("<I", zlib.crc32(head + payload)) + payload


_NAMES = ["a", 1, "Grüße", b"b", ("a", 1), (("x", b"y"), -(2**63)), "", 2**63 - 1, -1]


def _updated(name, build, values, times):
    """One of a class in each state that is stored differently."""
    small, full, other = (build(window=100) for _ in range(3))
    small.update(values[:3], times[:3])
    full.update(values, times)
    full.update(values[:2], [1400, 1405], [70_000, 3])
    other.update(values[:60], times[:60] + 20)
    held = build(window="1m", lateness="20s", merge_height=2)
    held.update(values[:30], np.linspace(0, 60, 30).astype(int))
    last = build(window=lt.arrivals(60))
    last.update(values[:100], counts=np.arange(100) % 4)
    made = {"empty": build(window=100), "small": small, "full": full, "held": held, "arrivals": last}
    made["merged"] = lt.merge([small, full, other])
    return {f"{name}-{state}": thing for state, thing in made.items()}


@functools.cache
def specimens():
    """Blobs of every class that can be stored, of every family, in every state that is stored differently."""
    made = {}
    rng = np.random.default_rng(7)
    for counter in COUNTERS:
        loose = 0.5 if counter == "randwave" else 0.2
        one = {"counter": counter, "eps": loose, "delta": 0.4, "samples": 2, "salt": 5}
        many = one | {"eps": 0.7 if counter == "randwave" else 0.5}
        for name, build, add in (
            ("counter", lambda **o: lt.WindowCounter(**o), lambda s, k, t, c: s.add(t, c)),
            ("sketch", lambda **o: lt.EcmSketch(**o), lambda s, k, t, c: s.update(k, t, c)),
        ):
            options = one if name == "counter" else many
            keys = rng.integers(0, 9, 300)
            times = np.sort(rng.integers(1000, 1400, 300))
            small, full, other = (build(window=100, **(options | {"salt": salt})) for salt in (5, 6, 7))
            add(small, keys[:3], times[:3], None)
            add(full, keys, times, None)
            add(full, keys[:2], [1400, 1405], [70_000, 3])
            add(other, keys, times + 20, None)
            held = build(window="1m", lateness="20s", **options)
            add(held, keys[:50], np.linspace(0, 60, 50).astype(int), None)
            last = build(window=lt.arrivals(60), **options)
            add(last, keys, None, rng.integers(1, 4, 300))
            if counter in ("wave", "exphist"):
                made[f"{name}-{counter}-finer"] = lt.merge([full, other], eps=0.1)
            if counter == "randwave":
                drawn = build(window=100, **(options | {"salt": None}))
                drawn._parts[0].salt = 9  # the same in every run
                add(drawn, keys[:40], times[:40], None)
                made[f"{name}-{counter}-drawn"] = drawn
            made |= {
                f"{name}-{counter}-empty": build(window=100, **options),
                f"{name}-{counter}-small": small,
                f"{name}-{counter}-full": full,
                f"{name}-{counter}-merged": lt.merge([small, full, other]),
                f"{name}-{counter}-held": held,
                f"{name}-{counter}-arrivals": last,
            }
            if name == "sketch":
                made[f"extract-{counter}"] = full.extract(last=50)
    plain = lt.CountMin(eps=0.5, delta=0.2)
    made["countmin-empty"] = plain.copy()
    plain.update(rng.integers(0, 9, 300))
    made |= {"countmin-full": plain, "countmin-merged": plain | plain}
    for name, build, values in (
        ("dyadic", lambda **o: lt.Dyadic(universe=2000, eps=0.9, delta=0.6, **o), rng.integers(0, 2000, 300)),
        (
            "quantiles",
            lambda **o: lt.Quantiles(lo=-1, hi=1, resolution=0.1, outside="clip", eps=0.9, delta=0.6, **o),
            rng.random(300),
        ),
        ("top", lambda **o: lt.TopK(k=3, eps=0.5, delta=0.4, **o), [_NAMES[i] for i in rng.integers(0, 9, 300)]),
        *((kind.__name__, functools.partial(_build_wcm, kind), rng.integers(0, 9, 300)) for kind in _WCM),
    ):
        made |= _updated(name, build, values, np.sort(rng.integers(1000, 1400, 300)))
    with mock.patch.object(candidates, "_FEWEST_ROWS", 16):
        listed = lt.TopK(phi=0.6, window=1000, eps=0.5, delta=0.4)
        listed.update(rng.integers(0, 200, 400), np.arange(400), rng.integers(0, 99, 400))
        made |= {"top-listed": listed, "top-listed-merged": lt.merge([listed, listed])}
    for name, build in (
        ("windows", exact_cases.windows),
        ("filters", exact_cases.filters),
        ("guesses", exact_cases.approximate),
    ):
        few, many = build(), build()
        exact_cases.feed(few, np.arange(3), np.arange(3))
        exact_cases.feed(many, rng.integers(0, 60, 90), np.sort(rng.integers(0, 120, 90)))
        made |= {f"{name}-empty": build(), f"{name}-small": few, f"{name}-full": many}
        if name != "guesses":
            made |= {f"{name}-partials-empty": build().partials(), f"{name}-partials": many.partials()}
    late, last = exact_cases.windows(lateness=20), exact_cases.arrivals()
    exact_cases.feed(late, rng.integers(0, 60, 60), rng.integers(0, 120, 60))
    exact_cases.feed(last, rng.integers(0, 60, 60), None)
    made |= {"windows-late": late, "windows-arrivals": last}
    for name, column in (("large", [2**63 - 1, -(2**63), 2**53 + 1, 5]), ("large-mixed", [2**60 + 1, None, 0.5, -math.inf])):
        w = exact_cases.large()
        w.update({"x": column}, np.arange(4) * 9)
        made |= {f"windows-{name}": w, f"partials-{name}": w.partials()}
    made |= _signed()
    return {name: thing.to_bytes() for name, thing in made.items()}


def _signed():
    """AMS sketches, plain and over a window."""
    made = {}
    rng = np.random.default_rng(8)
    for name, kind in (("ams", lt.AmsSketch), ("fast", lt.FastAmsSketch)):
        signed = kind(eps=0.8, delta=0.05)
        made[f"{name}-empty"] = signed.copy()
        signed.update(rng.integers(0, 9, 300), counts=rng.integers(-9, 10, 300))
        made |= {f"{name}-full": signed, f"{name}-merged": signed | signed, f"{name}-nothing": signed - signed}
    keys, times = rng.integers(0, 9, 300), np.sort(rng.integers(1000, 1400, 300))
    for name, counter in (
        ("lately", "shared"),
        ("lately-wave", "wave"),
        ("lately-exphist", "exphist"),
        ("lately-exact", "exact"),
    ):
        build = functools.partial(lt.WindowedAmsSketch, eps=0.9, delta=0.4, counter=counter)
        made |= _updated(name, build, keys, times)
    return made


# -- accidents ---------------------------------------------------------------------------------------------------------


def test_every_class_that_can_be_stored_has_specimens():
    assert {blob[5] for blob in specimens().values()} == set(codec.families())
    assert all(lt.from_bytes(blob).to_bytes() == blob for blob in specimens().values())


def test_every_truncation_is_refused():
    for name, blob in specimens().items():
        for size in range(len(blob)):
            refused(blob[:size], f"{name} cut to {size} bytes")


def test_every_flipped_bit_is_refused():
    for name, blob in specimens().items():
        for at in range(8 * len(blob)):
            damaged = bytearray(blob)
            damaged[at // 8] ^= 1 << at % 8
            refused(damaged, f"{name} with bit {at} flipped")


def test_every_replaced_byte_is_refused():
    for name, blob in specimens().items():
        for at in range(len(blob)):
            refused(blob[:at] + bytes([blob[at] ^ 0xFF]) + blob[at + 1 :], f"{name} with byte {at} inverted")


def test_padding_is_refused():
    for name, blob in specimens().items():
        refused(blob + b"\0", f"{name} with a byte too many")
        refused(b"\0" + blob, f"{name} with a byte before it")
        refused(blob + blob, f"{name} twice")


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data):
    refused(data, "foreign bytes")
    refused(b"LTLY" + data, "foreign bytes after our magic")


@pytest.mark.parametrize("family", [0, 16, 255])
def test_unknown_families_are_refused_by_number(family):
    with pytest.raises(lt.FormatError, match=f"family {family}"):
        lt.from_bytes(sealed(b"", family))


def test_other_versions_flags_and_magic_are_refused_with_what_to_do():
    payload, extended = specimens()["counter-wave-full"][16:], specimens()["counter-wave-finer"]
    assert lt.from_bytes(sealed(extended[16:], 1, flags=1)).to_bytes() == extended
    for flags in (0, 2, 3, 2**15):
        with pytest.raises(lt.FormatError):
            lt.from_bytes(sealed(extended[16:], 1, flags=flags))
    assert lt.from_bytes(sealed(payload, 1)).to_bytes()[16:] == payload
    for version in (0, codec.VERSION + 1, 255):
        with pytest.raises(lt.FormatError, match=f"version {version}.*upgrade"):
            lt.from_bytes(sealed(payload, 1, version=version))
    with pytest.raises(lt.FormatError, match=r"flags 2.*upgrade"):
        lt.from_bytes(sealed(payload, 1, flags=2))
    with pytest.raises(lt.FormatError, match="not a sketch that lately wrote"):
        lt.from_bytes(sealed(payload, 1, flags=1))
    with pytest.raises(lt.FormatError, match=r"family 3 and flags 1.*upgrade"):
        lt.from_bytes(sealed(specimens()["countmin-full"][16:], 3, flags=1))
    with pytest.raises(lt.FormatError, match="PAR1"):
        lt.from_bytes(sealed(payload, 1, magic=b"PAR1"))


@pytest.mark.parametrize("thing", [None, 3, "LTLY", ["LTLY"], np.zeros((4, 4), np.uint8)[:, ::2]], ids=repr)
def test_what_is_not_bytes_is_refused(thing):
    with pytest.raises(lt.FormatError, match=type(thing).__name__):
        lt.from_bytes(thing)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)])
def test_any_buffer_is_read(wrap):
    blob = specimens()["sketch-wave-full"]
    assert lt.from_bytes(wrap(blob)).to_bytes() == blob


def test_a_payload_under_the_wrong_family_is_refused():
    blobs = specimens()
    kinds = ("counter-wave", "sketch-wave", "countmin", "dyadic", "quantiles", "top", "lately")
    for name in (f"{kind}-full" for kind in kinds):
        for family in set(codec.families()) - {blobs[name][5]}:
            refused(sealed(blobs[name][16:], family), f"{name} as family {family}")


def refused(data, what):
    try:
        lt.from_bytes(data)
    except lt.FormatError:
        return
    raise AssertionError(f"{what} was read: {bytes(data).hex()}")


# -- forgeries ---------------------------------------------------------------------------------------------------------

_WHOLE = (
    0,
    1,
    2,
    127,
    128,
    255,
    2**16,
    2**30,
    2**31,
    2**32 - 1,
    2**32,
    2**53,
    2**61,
    2**62,
    2**62 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_REAL = (0.0, -0.0, 1.0, -1.0, 1e-9, 1e-6, 0.001, 0.5, 1 - 2**-53, 5e-324, 1e308, float("inf"), float("-inf"), float("nan"))
_EXTREMES = [struct.pack("<Q", x) for x in _WHOLE] + [struct.pack("<d", x) for x in _REAL]


def forged(rng, blobs):
    """A blob with one to three things changed in its payload, and a checksum that matches again."""
    blob = rng.choice(blobs)
    payload, family, flags = bytearray(blob[16:]), blob[5], blob[6]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        # The fields of the shape come first and are few: half of the changes go there.
        at = rng.randrange(min(len(payload), 90) if rng.random() < 0.5 else len(payload)) if payload else 0
        kind = rng.randrange(9)
        if kind == 0 and payload:
            payload[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and payload:
            payload[at] = rng.randrange(256)
        elif kind == 2 and payload:
            payload[at] = rng.choice((0, 1, 127, 128, 254, 255))
        elif kind in (3, 4):
            payload[at : at + 8] = rng.choice(_EXTREMES)
        elif kind == 5:
            payload[at:at] = rng.randbytes(rng.choice((1, 1, 2, 8, 30)))
        elif kind == 6:
            del payload[at : at + rng.choice((1, 1, 2, 8, 30))]
        elif kind == 7:
            payload[at:at] = payload[at : at + rng.choice((1, 8, 50))]
        else:
            other = rng.choice(blobs)[16:]
            payload[at:] = other[min(at, len(other)) if rng.random() < 0.7 else rng.randrange(len(other)) :]
    if rng.random() < 0.02:
        family = rng.randrange(17)
    return sealed(bytes(payload), family, flags=flags)


def behaves(data, use=True):
    """Whether a blob was read (else it was refused); whatever was read must work like anything that lately built."""
    thing = None
    try:
        thing = lt.from_bytes(data, limit=LIMIT)
        if use:
            _use(thing)
    except Exception as error:
        if thing is None and isinstance(error, lt.FormatError):
            return False
        raise AssertionError(f"{type(error).__name__}: {error}; from {data.hex()}") from error
    return True


def _use(thing):
    again = lt.from_bytes(thing.to_bytes(), limit=2**40)
    assert again.to_bytes() == thing.to_bytes(), "reading changes it"
    if isinstance(thing, lt.Windows | lt.Partials):
        _use_windows(thing)
        return
    _ask(thing)
    _add(thing, None)
    _add(thing, 3_000)
    _ask(thing)
    if getattr(thing, "window", None) is None or thing.window.kind != "arrivals":
        try:
            merged = lt.merge([thing, thing])
        except lt.MergeError:  # a forged sketch may claim to be as full, or as often merged, as one can be
            pass
        else:
            _ask(merged)
            assert lt.from_bytes(merged.to_bytes(), limit=2**40).to_bytes() == merged.to_bytes()
    if isinstance(thing, (lt.CountMin, *_LINEAR)) or getattr(thing._shape, "counter", "") != "randwave":
        _add(thing, 2**60)
        _ask(thing)


def _use_windows(thing):
    thing.answers()
    if isinstance(thing, lt.Partials):
        with contextlib.suppress(lt.MergeError):
            assert (thing | thing).answers().keys() == thing.answers().keys()
        return
    assert repr(thing.answers())
    assert repr(thing.explain())
    before = thing.to_bytes()
    names = {name for query in thing._queries.values() for name in (query.aggregate.column, query.per)} - {None}
    batch = {name: [1, 2, 3] for name in names} or {"x": [1, 2, 3]}
    try:
        thing.update(batch, None if thing._timed is False else [_instant(thing, i) for i in range(3)])
    except lt.InputError:
        assert thing.to_bytes() == before, "refused, and yet changed"
    else:
        thing.answers()
        assert lt.from_bytes(thing.to_bytes(), limit=2**40).to_bytes() == thing.to_bytes()
    with contextlib.suppress(lt.QueryError):
        thing.partials().answers()


def _instant(windows, later):
    """A time that these windows take, as they take it."""
    number = ((windows._now or 0) + later) * windows._clock.unit
    return np.datetime64(number % 2**62, "ns") if windows._clock.kind == "time" else number


def _add(thing, count):
    before = thing.to_bytes()
    try:
        if isinstance(thing, _LINEAR):
            thing.update([1, "a", b"c"], counts=None if count is None else [1, -count, count])
        elif isinstance(thing, lt.CountMin):
            thing.update([1, "a", b"c"], None if count is None else [1, 0, count])
        elif thing.window.kind == "arrivals":
            thing.add(counts=count) if isinstance(thing, lt.WindowCounter) else thing.update([1], counts=count)
        else:
            now = thing._now or 0
            times = [tick * thing.window.unit for tick in (now, now - thing.window.ticks - 1, now + 1)]  # the second is late
            if thing.window.kind == "time":
                if max(map(abs, times)) >= 2**63:
                    return  # datetime64 does not reach that far
                times = np.array(times, "datetime64[ns]")
            keys = [1, 0, 1] if isinstance(thing, lt.Dyadic | lt.Quantiles) else [1, 2, "a"]
            thing.add(times, count) if isinstance(thing, lt.WindowCounter) else thing.update(keys, times, count)
    except lt.InputError:
        assert thing.to_bytes() == before, "refused, and yet changed"


def _ask(thing):
    if isinstance(thing, lt.WindowCounter):
        answers = [thing.count(), thing.count(last=thing.window.unit if thing.window.kind == "integer" else _shortest(thing))]
    elif isinstance(thing, lt.EcmSketch):
        answers = [thing.count(1), thing.count("a", last=_shortest(thing)), thing.total()]
        if thing.counter != "randwave":
            answers.append(thing.self_join())
    elif isinstance(thing, lt.WindowedAmsSketch):
        answers = [thing.self_join(), thing.inner_product(thing, last=_shortest(thing)), thing.total()]
        answers += [thing.range_sum([1, "a"])]
    elif isinstance(thing, _LINEAR):
        answers = [thing.self_join()]
        for answer in (thing.inner_product(thing), thing.range_sum([1, "a"], weights=[-1, 2])):
            assert answer.low <= answer.value <= answer.high, f"the answer {answer}"
        assert abs(thing.total()) <= thing.weight
    elif isinstance(thing, _WCM):
        answers = [thing.count(1), *thing.counts(["a", 2]), thing.total()]
        assert (thing.cells() >= 0).all()
    elif isinstance(thing, lt.Quantiles):
        answers = [thing.total(), thing.rank(0.3), thing.count_range(0, 0.5, last=_shortest(thing))]
        answers += [thing.quantile(0.5)] if thing.total().high and thing.lo == 0 else []
    elif isinstance(thing, lt.Dyadic):
        answers = [thing.count(1), thing.total(last=_shortest(thing)), thing.count_range(0, 1), *_shape_of(thing)]
        answers += [thing.quantile(0.5)] if thing.total().high else []
    elif isinstance(thing, lt.TopK):
        answers = [thing.count(1), thing.count("a", last=_shortest(thing)), thing.total(), *_shape_of(thing)]
        for found in (thing.top(), thing.top(4, last=_shortest(thing))):
            answers += found.count
            assert found.missed >= 0
            assert [key for key in found.key if not isinstance(key, int | str | bytes | tuple)] == []
    else:
        answers = [thing.count(1), thing.count("a"), thing.self_join()]
        assert thing.total() >= 0
    for answer in answers:
        assert 0 <= answer.low <= answer.value <= answer.high, f"the answer {answer}"
    assert thing.nbytes >= 0
    assert repr(thing)


def _shape_of(thing):
    """What a sketch with heavy keys says of all of them."""
    phi = 0.95
    heavy = thing.heavy_hitters(phi=phi) if phi > max(thing.eps, getattr(thing._shape, "line", 0)) else []
    return [thing.largest(), thing.self_join(), thing.entropy(), *(row.count for row in heavy)]


def _shortest(thing):
    return {"time": f"{thing.window.unit}ns", "integer": thing.window.unit, "arrivals": 1}[thing.window.kind]


def test_forgeries_are_refused_or_behave():
    read = forgeries(seed=1, number=4_000)
    assert 100 < read < 2_000, "mutations should reach past the first checks, and should not be harmless either"


def forgeries(seed, number, use=1.0):
    """How many of so many forgeries were read; this share of them is also used, which takes longer than reading."""
    rng, blobs = random.Random(seed), list(specimens().values())
    return sum(behaves(forged(rng, blobs), use=rng.random() < use) for _ in range(number))


def test_reading_takes_no_more_memory_than_a_few_times_the_limit():
    rng, blobs = random.Random(2), list(specimens().values())
    limit = 2**20
    tracemalloc.start()
    try:
        for _ in range(1_500):
            data = forged(rng, blobs)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with contextlib.suppress(lt.FormatError):
                lt.from_bytes(data, limit=limit)
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak <= 8 * limit, f"{peak:,} bytes to read {data.hex()}"
    finally:
        tracemalloc.stop()


def test_a_small_blob_cannot_ask_for_a_large_sketch():
    blob = bytearray(lt.EcmSketch(window=100, eps=0.01, delta=0.01, counter="exphist").to_bytes()[16:])
    blob[25:33] = struct.pack("<d", 1e-6)
    with pytest.raises(lt.FormatError, match=r"more than 268,435,456.*limit="):
        lt.from_bytes(sealed(bytes(blob), 2))
    for thing in (lt.TopK(k=3, window=100, eps=0.01, delta=0.01), lt.Dyadic(universe=2**40, window=100, eps=0.5, delta=0.1)):
        blob = bytearray(thing.to_bytes()[16:])
        blob[25:33] = struct.pack("<d", 2e-7 if isinstance(thing, lt.TopK) else 1e-3)
        with pytest.raises(lt.FormatError, match=r"more than 268,435,456.*limit="):
            lt.from_bytes(sealed(bytes(blob), thing.FAMILY))


def test_a_small_blob_cannot_ask_for_a_large_windowed_ams_sketch():
    blob = bytearray(lt.WindowedAmsSketch(window=100, eps=0.5, delta=0.4).to_bytes()[16:])
    blob[25:33] = struct.pack("<d", 1e-3)
    with pytest.raises(lt.FormatError, match=r"more than 268,435,456.*limit="):
        lt.from_bytes(sealed(bytes(blob), 15))
    blob[25:33] = struct.pack("<d", 1e-6)
    with pytest.raises(lt.FormatError, match="cells"):
        lt.from_bytes(sealed(bytes(blob), 15))


@pytest.mark.parametrize("name", ["ams-full", "fast-full"])
def test_signed_cells_hold_no_more_than_was_counted(name):
    thing = lt.from_bytes(specimens()[name])
    refused(thing._like(thing._table, thing.weight + 1, thing.weight).to_bytes(), "a total of more than was counted")
    refused(thing._like(thing._table, -1, 0).to_bytes(), "a weight of nothing")
    refused(thing._like(thing._table[:-1], thing.total(), thing.weight).to_bytes(), "a cell too few")
    full = np.zeros_like(thing._table)
    full[:2] = 2**62
    blob = thing._like(full, 0, 2**62).to_bytes()
    if name == "fast-full":
        refused(blob, "two cells of a row that hold all of it each")
    else:
        behaves(blob)
    full[0] += 1
    refused(thing._like(full, 0, 2**62).to_bytes(), "a cell that may overflow")


def test_randomized_waves_are_no_cells_of_a_windowed_ams_sketch():
    thing = lt.from_bytes(specimens()["lately-empty"])
    thing._shape = dataclasses.replace(thing._shape, counter="randwave")
    refused(thing.to_bytes(), "signs over randomized waves")


def test_what_a_row_of_shared_waves_may_be_off_by_is_no_more_than_can_be_counted():
    """Found by forgeries: added to a count, it ran over."""
    for name in ("dyadic-merged", "quantiles-merged", "top-merged"):
        thing = lt.from_bytes(specimens()[name])
        thing._parts[0].until[:] = thing._now - thing._origin
        behaves(thing.to_bytes())


@pytest.mark.parametrize("key", [2000, 2**32, 2**63, 2**64 - 1])
def test_integers_that_are_held_back_lie_in_their_universe(key):
    """Found by forgeries: where they fell due, they were counted in memory that was not theirs."""
    for name in ("dyadic-held", "quantiles-held"):
        thing = lt.from_bytes(specimens()[name])
        thing._reorder_buffer.hashes[-1] = key
        refused(thing.to_bytes(), f"{name} that holds {key}")


def test_keys_that_are_held_back_are_those_that_were_hashed():
    thing = lt.from_bytes(specimens()["top-held"])
    thing._reorder_buffer.hashes[0] += np.uint64(1)
    refused(thing.to_bytes(), "a hash of another key")


@pytest.mark.parametrize(
    "changes", [{"resolution": 5e-324}, {"lo": -1.7e308, "hi": 1.7e308}, {"resolution": 1e-17}, {"hi": 2.0}]
)
def test_steps_that_are_too_many_or_others_than_were_counted_are_refused(changes):
    thing = lt.from_bytes(specimens()["quantiles-full"])
    thing._shape = dataclasses.replace(thing._shape, **changes)
    refused(thing.to_bytes(), f"Quantiles with {changes}")


@pytest.mark.parametrize("changes", [{"k": 0}, {"k": 2**60}, {"line": 0.4}, {"line": 1.0}, {"line": math.nan}, {"eps": 1e-9}])
def test_a_top_of_another_shape_is_refused(changes):
    thing = lt.from_bytes(specimens()["top-full"])
    thing._shape = dataclasses.replace(thing._shape, **changes)
    refused(thing.to_bytes(), f"a TopK with {changes}")


def test_the_limit_is_the_callers():
    blob = specimens()["sketch-wave-full"]
    with pytest.raises(lt.FormatError, match="limit="):
        lt.from_bytes(blob, limit=1000)
    assert lt.from_bytes(blob, limit=100_000).to_bytes() == blob


@pytest.mark.slow
def test_millions_of_forgeries_are_refused_or_behave():
    number = int(os.environ.get("LATELY_FORGERIES", "10_000_000"))
    part = min(20_000, number)
    specimens()  # compile before there are many of us
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count(), _limited, maxtasksperchild=20) as pool:
        parts = ((seed, part, 0.1) for seed in range(100, 100 + number // part))
        read = sum(pool.starmap(forgeries, parts, chunksize=1))
    assert 0.01 * number < read < 0.5 * number


def _limited():
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
