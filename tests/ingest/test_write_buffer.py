"""Single arrivals wait and are counted together. Beside each sketch runs one that counts every call at once: no difference shows."""

import copy
import gc
import pickle
import threading
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lately as lt
from lately.counters.base import MAX_COUNT
from lately.ingest import write_buffer

SIZE = {"eps": 0.3, "delta": 0.3}
WINDOWS = {"integer": {"window": 60}, "late": {"window": 60, "lateness": 15}, "arrivals": {"window": lt.arrivals(60)}}
KEYS = st.one_of(st.sampled_from(["a", "b", "ü", "3", ""]), st.integers(0, 9), st.sampled_from([b"a", b"\xff", np.int64(3)]))
NUMBERS = st.one_of(st.integers(0, 9), st.floats(0, 9), st.integers(0, 9).map(np.int64))
BAD_KEYS = [None, True, 2**63, "\ud800", 1.5, [], object, ("a", None), -1, np.nan, "x" * 10_000]


class Kind:
    """How to build a sketch, what to feed it, what to ask it; its ``at_once`` twin has no write buffer."""

    def __init__(self, build, options, keys=KEYS, ask=(), merged=True):
        self.build, self.options, self.keys, self.ask = build, options, keys, ask
        self.mergeable = merged and not isinstance(options["window"], lt.arrivals)

    def pair(self, salt=1):
        salted = {"salt": salt} if self.options.get("counter") == "randwave" else {}
        return self.build(**self.options, **salted), _at_once(self.build)(**self.options, **salted)


@cache
def _at_once(build):
    """The class without its write buffer: every call counts what it is given."""
    return type(f"AtOnce{build.__name__}", (build,), {"_add_waiting": lambda self, key, time, count: False})


def _twin_of(sketch, like):
    """A sketch that was made of another one, for example by reading its bytes, without a write buffer from now on."""
    sketch.__class__ = type(like)
    return sketch


def _add(counter, key, time=None, count=None):
    counter.add(time, count)


def _feed(sketch, key, time, count):
    (_add if isinstance(sketch, lt.WindowCounter) else type(sketch).update)(sketch, key, time, count)


KINDS = {}
for _name, _window in WINDOWS.items():
    for _family in ("wave", "exphist", "randwave", "exact"):
        KINDS[f"WindowCounter-{_family}-{_name}"] = Kind(
            lt.WindowCounter, {"eps": 0.3, "counter": _family, **_window}, ask=[lambda c: c.count(), lambda c: c.count(last=9)]
        )
    KINDS[f"EcmSketch-{_name}"] = Kind(
        lt.EcmSketch, SIZE | _window, ask=[lambda s: s.count("a"), lambda s: s.count(3, last=9), lambda s: s.self_join()]
    )
    KINDS[f"TopK-{_name}"] = Kind(
        lt.TopK, {"k": 2} | SIZE | _window, ask=[lambda s: s.top(), lambda s: s.top(1, last=9), lambda s: s.count("3")]
    )
    KINDS[f"WindowedAms-{_name}"] = Kind(
        lt.WindowedAmsSketch, {"eps": 0.8, "delta": 0.3} | _window, ask=[lambda s: s.self_join(), lambda s: s.range_sum(["a", 3])]
    )
    KINDS[f"Dyadic-{_name}"] = Kind(
        lt.Dyadic, {"universe": 10} | SIZE | _window, st.integers(0, 9), [lambda s: s.count_range(2, 5), lambda s: s.count(3)]
    )
    KINDS[f"Quantiles-{_name}"] = Kind(
        lt.Quantiles,
        {"lo": 0, "hi": 9, "resolution": 0.5, "outside": "clip" if _name == "late" else "reject"} | SIZE | _window,
        st.one_of(NUMBERS, st.just(-5.0)) if _name == "late" else NUMBERS,
        [lambda s: s.rank(3.5), lambda s: s.count_range(0, 2, last=9)],
    )
    for _class in (lt.PerfectCountMin, lt.SimpleCountMin, lt.ProportionalCountMin, lt.SplitterCountMin):
        KINDS[f"{_class.__name__}-{_name}"] = Kind(_class, SIZE | _window, ask=[lambda s: s.count("a"), lambda s: s.cells()])
KINDS["EcmSketch-randwave"] = Kind(lt.EcmSketch, SIZE | {"window": 60, "counter": "randwave"}, ask=[lambda s: s.count("a")])
_DATES = {"window": "1m", "lateness": "15s"}
KINDS["TopK-dates"] = Kind(lt.TopK, {"phi": 0.4} | SIZE | _DATES, ask=[lambda s: s.heavy_hitters(), lambda s: s.count("a", "9s")])
KINDS["WindowCounter-dates"] = Kind(lt.WindowCounter, {"eps": 0.3} | _DATES, ask=[lambda c: c.count(last="30s")])

every = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def _times(kind, tick):
    """Ways to write a tick."""
    if isinstance(kind.options["window"], lt.arrivals):
        return [None]
    if isinstance(kind.options["window"], int):
        return [tick, np.int64(tick), float(tick)]
    date = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=tick)
    forms = [date, date.isoformat(), date.timestamp(), int(date.timestamp()), np.datetime64(date.replace(tzinfo=None), "ns")]
    return [*forms, date.date(), [date]]


BAD_TIMES = [None, "no time", np.nan, 2**63, 2**62 + 1, 1e300, True, [1, 2], np.datetime64("NaT"), 1.5, 7]
BAD_COUNTS = [-1, 1.5, True, "1", [1, 2], 2**62 + 1, 2**64, MAX_COUNT, np.int64(-3)]
COUNTS = st.sampled_from([None, None, None, 1, 0, 7, np.int64(2), 5000, [3]])


def _outcome(call, sketch):
    """What a call gives or raises; sketches cannot be printed alike, so only their type counts."""
    try:
        result = call(sketch)
    except Exception as error:
        return type(error), str(error).replace("AtOnce", "")
    return repr(result).replace("AtOnce", "")


@every
@given(data=st.data())
@settings(max_examples=max(8, settings().max_examples // 3), deadline=None)
def test_no_call_gives_another_result_than_one_that_counts_at_once(kind, data):
    (buffered, plain), now = kind.pair(), data.draw(st.sampled_from([0, 100, -(2**40)]))
    steps = data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=12))
    if kind.options.get("window") == "1m":
        now = abs(now) % 1000
    for step in steps:
        now, buffered, plain = step(kind, data, now, buffered, plain)
    assert buffered.to_bytes() == plain.to_bytes()
    assert getattr(buffered, "_key_types", None) == getattr(plain, "_key_types", None)
    assert (buffered.now, buffered.late) == (plain.now, plain.late)


def _singles(kind, data, now, buffered, plain):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    keys, counts = data.draw(st.lists(kind.keys, min_size=1, max_size=6)), data.draw(st.lists(COUNTS, min_size=1, max_size=4))
    back = data.draw(st.sampled_from([0, 0, 3, 20]))
    for _ in range(data.draw(st.sampled_from([1, 2, 5, 40]))):
        now += int(rng.integers(0, 4)) * int(rng.integers(0, 2))
        times = _times(kind, now - int(rng.integers(0, back + 1)))
        time = times[0 if rng.random() < 0.7 else rng.integers(len(times))]
        row = keys[rng.integers(len(keys))], time, counts[rng.integers(len(counts))]
        outcomes = [_outcome(lambda sketch, row=row: _feed(sketch, *row), sketch) for sketch in (buffered, plain)]
        assert outcomes[0] == outcomes[1]
    return now, buffered, plain


def _batch(kind, data, now, buffered, plain):
    size = data.draw(st.integers(1, 5))
    keys = data.draw(st.lists(kind.keys, min_size=size, max_size=size))
    ticks = [_times(kind, now - back)[0] for back in data.draw(st.lists(st.integers(-5, 20), min_size=size, max_size=size))]
    times, counts = None if ticks[0] is None else ticks, [2] * size
    outcomes = [_outcome(lambda sketch: _feed(sketch, keys, times, counts), sketch) for sketch in (buffered, plain)]
    assert outcomes[0] == outcomes[1]
    return now + 5, buffered, plain


def _bad_input(kind, data, now, buffered, plain):
    row = [data.draw(kind.keys), _times(kind, now)[0], None]
    where = data.draw(st.integers(0, 2))
    row[where] = data.draw(st.sampled_from((BAD_KEYS, BAD_TIMES, BAD_COUNTS)[where]))
    outcomes = [_outcome(lambda sketch: _feed(sketch, *row), sketch) for sketch in (buffered, plain)]
    assert outcomes[0] == outcomes[1]
    return now, buffered, plain


def _question(kind, data, now, buffered, plain):
    attributes = [lambda s: s.now, lambda s: s.late, lambda s: s.merges, lambda s: s.window, lambda s: s.no_such_attribute]
    ask = data.draw(st.sampled_from([*kind.ask, *attributes]))
    assert _outcome(ask, buffered) == _outcome(ask, plain)
    assert buffered.nbytes >= 0  # which has counted what waited
    return now, buffered, plain


def _advance(kind, data, now, buffered, plain):
    later = now + data.draw(st.sampled_from([0, 1, 10, 100]))
    time = _times(kind, later)[0]
    assert _outcome(lambda s: s.advance(time), buffered) == _outcome(lambda s: s.advance(time), plain)
    return later, buffered, plain


def _copy(kind, data, now, buffered, plain):
    way = data.draw(st.sampled_from([lambda s: s.copy(), copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]))
    twins = way(buffered), _twin_of(way(plain), plain)
    if data.draw(st.booleans()):
        _singles(kind, data, now, *twins)  # the copy counts on, and what was copied does not change
        return now, buffered, plain
    _singles(kind, data, now, buffered, plain)
    return now, *twins


def _merge(kind, data, now, buffered, plain):
    if not kind.mergeable:
        return now, buffered, plain
    others = kind.pair(salt=data.draw(st.integers(2, 2**60)))
    later, *others = _singles(kind, data, now, *others)
    order = data.draw(st.sampled_from([1, -1]))
    way = data.draw(st.sampled_from([lt.merge, lambda pair: pair[0] | pair[1]]))
    pairs = [[mine, other][::order] for mine, other in zip((buffered, plain), others, strict=True)]
    merged = []
    outcomes = [_outcome(lambda pair: merged.append(way(pair)), pair) for pair in pairs]
    assert outcomes[0] == outcomes[1]
    if not merged:  # samples of randomized waves that were drawn alike
        return later, buffered, plain
    if data.draw(st.booleans()):
        _singles(kind, data, later, buffered, plain)  # inputs count on, and the result does not
    return later, merged[0], merged[1]


STEPS = [_singles, _singles, _singles, _batch, _bad_input, _question, _advance, _copy, _merge]
