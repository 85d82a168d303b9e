"""Single arrivals wait and are counted together. Beside each sketch runs one that counts every call at once.

No call may give another result than its twin's, and the bytes at the end must be the same.
"""

import copy
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
from lately.ingest.write_buffer import WriteBuffer

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


def _of_class(kind, sketch):
    """A sketch that was read from bytes, as one of the class that it was written by."""
    sketch.__class__ = kind
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
        lt.WindowedAmsSketch,
        {"eps": 0.8, "delta": 0.3} | _window,
        ask=[lambda s: s.self_join(), lambda s: s.range_sum(["a", 3])],
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
KINDS["TopK-dates"] = Kind(
    lt.TopK, {"phi": 0.4} | SIZE | _DATES, ask=[lambda s: s.heavy_hitters(), lambda s: s.count("a", last="9s")]
)
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
    assert (buffered.now, buffered.late) == (plain.now, plain.late)
    for name in ("_origin", "_arrived", "_key_types"):  # which bytes do not have, or not as they are
        assert getattr(buffered, name, None) == getattr(plain, name, None)


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
    twins = way(buffered), _of_class(type(plain), way(plain))
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


# -- what waits, and for how long --------------------------------------------------------------------------------------


def _waiting(sketch):
    """How many rows wait in front of a sketch, without counting them."""
    buffer = vars(sketch).get("_write_buffer")
    return None if buffer is None else len(buffer._rows)


def _top(build=lt.TopK, **options):
    return build(**({"k": 3, "window": 1000, "eps": 0.01, "delta": 0.1} | options))


@every
def test_plain_rows_wait_and_others_do_not(kind):
    sketch, _ = kind.pair()
    key = {lt.Dyadic: 3, lt.Quantiles: 2.5}.get(kind.build, "a")
    for row in range(1, 10):
        _feed(sketch, key, _times(kind, 100)[0], None)
        assert _waiting(sketch) == row
    _feed(sketch, [key], None if _times(kind, 100)[0] is None else [_times(kind, 100)[0]], [1])
    assert _waiting(sketch) is None
    total = sketch.count() if isinstance(sketch, lt.WindowCounter) else sketch.total()
    assert 10 in total


@pytest.mark.parametrize("key", ["k", b"k", 3, np.int64(3), np.str_("k")])
@pytest.mark.parametrize("count", [None, 0, 3, np.int64(3)])
def test_keys_and_counts_of_plain_types_wait(key, count):
    sketch = _top()
    sketch.update(key, 5, count)
    assert _waiting(sketch) == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda s: s.now, lambda s: s.late, lambda s: s.nbytes, lambda s: s.window, lambda s: s.merges, lambda s: s.to_bytes(),
        lambda s: s.copy(), lambda s: s.advance(5), lambda s: s.total(), lambda s: s.in_range(), lambda s: repr(s),
        lambda s: s | _top(), lambda s: _top() | s, lambda s: lt.merge([_top(), s]), lambda s: pickle.dumps(s),
        lambda s: s.update(["b"], [5]), lambda s: s.update(("b", 1), 5), lambda s: hasattr(s, "no_such_attribute"),
    ],
)  # fmt: skip
def test_whatever_reads_or_changes_the_state_counts_what_waits(read):
    sketch = _top()
    sketch.update("a", 5)
    assert _waiting(sketch) == 1
    read(sketch)
    assert _waiting(sketch) is None
    assert sketch.count("a").value == 1


def test_errors_are_those_of_the_call_that_gave_the_bad_value():
    sketch = _top()
    for row in (("a", "soon"), ("a", None), ("a", 1.5), ("a", 5, -1), (1.5, 5), ("\ud800", 5), ("a", 5, 2**63), (None, 5)):
        sketch.update("a", 4)
        with pytest.raises(lt.InputError):
            sketch.update(*row)
    assert (sketch.total().value, sketch.now, sketch.late) == (8, 4, 0)


def test_more_than_the_largest_number_of_arrivals_is_refused_by_the_call_that_exceeds_it():
    sketch = _top()
    sketch.update("a", 5, MAX_COUNT - 2)
    sketch.update("a", 5)
    sketch.update("a", 5)
    assert _waiting(sketch) == 3
    with pytest.raises(lt.InputError, match=r"more than 2\*\*62"):
        sketch.update("b", 6)
    assert sketch.count("a").high >= MAX_COUNT
    assert sketch.now == 5


def test_late_rows_are_late_where_they_came():
    """Row by row, 8 is late after 20 with a lateness of 10; as a batch, 8, 20 and 12 are all in time."""
    one, batch = _top(lateness=10), _top(lateness=10)
    for time in (20, 8, 12):
        one.update("a", time)
    batch.update(["a"] * 3, [20, 8, 12])
    assert (one.late, one.total().value) == (1, 2)
    assert (batch.late, batch.total().value) == (0, 3)
    assert one.count("a", last=9).value == 2


def test_a_late_key_makes_its_type_known():
    sketch = _top()
    sketch.update(3, 20)
    sketch.update("a", 5)
    assert (sketch.count("3").value, sketch.late) == (0, 1)
    integers = _top()
    integers.update(3, 20)
    with pytest.raises(lt.InputError, match="ask for 3"):
        integers.count("3")


def test_few_rows_wait_and_no_more_than_the_state_takes():
    for sketch in (_top(), lt.WindowCounter(window=1000, eps=0.1), _top(eps=0.3)):
        most = 0
        for time in range(30_000):
            _feed(sketch, f"{time % 7000:0>250}", time, None)
            most = max(most, _waiting(sketch))
        assert most <= 4096
        assert most <= max(16, sketch.nbytes // 256)
    sketch.update("x" * 257, time)
    assert _waiting(sketch) is None


@pytest.mark.parametrize("rows", [1, 10])
def test_rows_that_could_not_be_read_as_columns_wait_on(rows):
    class Short(lt.TopK):
        """Runs out of memory once."""

        short = True

        def _column_of(self, keys):
            if Short.short:
                Short.short = False
                raise MemoryError
            return super()._column_of(keys)

    sketch = _top(Short)
    for _ in range(rows):
        sketch.update("a", 5)
    with pytest.raises(MemoryError):
        sketch.total()
    assert _waiting(sketch) == rows
    sketch.update("b", 4)
    assert (sketch.total().value, sketch.late) == (rows, 1)


def test_a_call_that_fails_because_rows_could_not_be_counted_takes_no_row():
    class Full(lt.TopK):
        """Runs out of memory whenever rows are counted, until it has some again."""

        full = True

        def _column_of(self, keys):
            if Full.full:
                raise MemoryError
            return super()._column_of(keys)

    sketch, outcomes = _top(Full), []
    for _ in range(50):
        outcomes.append(_outcome(lambda sketch: sketch.update("a", 5), sketch))
    refused = outcomes.count((MemoryError, ""))
    assert 30 <= refused < 50
    Full.full = False
    assert sketch.total().value == 50 - refused


def test_no_row_is_counted_twice_if_counting_is_interrupted():
    class Interrupted(lt.TopK):
        """Ctrl-C after counting, once."""

        interrupted = False

        def _count_checked(self, *batch):
            super()._count_checked(*batch)
            if not Interrupted.interrupted:
                Interrupted.interrupted = True
                raise KeyboardInterrupt

    sketch = _top(Interrupted)
    for _ in range(3):
        sketch.update("a", 5)
    with pytest.raises(KeyboardInterrupt):
        sketch.total()
    sketch.update("a", 6)
    assert (sketch.total().value, sketch.now) == (4, 6)


def test_threads_that_read_at_once_count_what_waits_once():
    class Slow(lt.TopK):
        """Lets the other threads in while it counts."""

        def _count_checked(self, *batch):
            counting.wait(timeout=0.05)
            super()._count_checked(*batch)

    counting = threading.Event()
    for time in range(5):
        sketch, totals, start = _top(Slow), [], threading.Barrier(6)
        for _ in range(10):
            sketch.update("a", time)

        def ask(sketch=sketch, totals=totals, start=start):
            start.wait()
            totals.append(sketch.total().value)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert totals == [10] * 6


def test_a_view_of_a_range_sees_rows_that_come_later_as_it_sees_batches():
    waiting, at_once = _top(), _top()
    for sketch in (waiting, at_once):
        sketch.update(["a"], [5])
    views = waiting.in_range(last=50), at_once.in_range(last=50)
    waiting.update("a", 20)
    at_once.update(["a"], [20])
    assert [view.count("a") for view in views] == [at_once.count("a")] * 2


def test_attributes_that_users_set_stay():
    sketch = _top()
    sketch.name = "before"
    sketch.update("a", 5)
    sketch.site = "while a row waits"
    assert _waiting(sketch) == 1
    sketch.update("a", 6)
    assert (sketch.total().value, sketch.name, sketch.site) == (2, "before", "while a row waits")


def test_a_row_takes_no_buffer_that_it_cannot_use():
    """Rows that must be read as columns are not slowed down by state that is put aside for them."""
    sketch = _top()
    state = vars(sketch)
    sketch.update("a", [5])
    with pytest.raises(lt.InputError):
        sketch.update("a", "soon")
    assert vars(sketch) is state
    assert isinstance(state["_write_buffer"], WriteBuffer | None)
