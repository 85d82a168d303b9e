"""Messages come back as they were sent, and nothing else does."""

import dataclasses
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.core.codec import Writer
from lately.core.keys import all_hashes
from lately.core.stored_keys import column_of
from lately.counters.base import MAX_COUNT
from lately.monitor import messages as m
from lately.monitor.messages import CellsMessage, decode
from lately.monitor.messages.message import EARLIER_KINDS, KINDS

sites, numbers = st.integers(0, 2**48 - 1), st.integers(0, 2**40)
words, counts = st.integers(0, 2**64 - 1), st.integers(0, MAX_COUNT)
int64s = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
floats = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=12).map(
    lambda x: np.array(x, np.float64)
)
keys = st.one_of(
    st.text(max_size=5),
    st.binary(max_size=5),
    st.integers(-(2**63), 2**63 - 1),
    st.tuples(st.text(max_size=3), st.integers(0, 9)),
)
about = (numbers, numbers, numbers)
passed = st.none() | st.integers(-3, 3) | st.integers(-(2**63), 2**63)


def column(elements, kind=np.int64, **size):
    return st.lists(elements, **size).map(lambda x: np.array(x, kind))


def columns(*kinds, size):
    return st.tuples(*(column(elements, kind, min_size=size, max_size=size) for elements, kind in kinds))


def item_of(key):
    return int(all_hashes(column_of([key]))[0])


changes = st.one_of(
    column(int64s, min_size=1, max_size=20),
    st.integers(0, 12).flatmap(lambda size: columns((words, np.uint64), (int64s, np.int64), size=size)),
)
shipped = st.integers(0, 12).flatmap(
    lambda size: st.tuples(
        column(words, np.uint64, min_size=size, max_size=size),
        st.one_of(st.just(np.empty(0, np.int64)), column(int64s, min_size=max(size, 1), max_size=max(size, 1))),
        column(int64s, min_size=size, max_size=size),
    )
)
limits = st.builds(m.Limits, st.integers(0, 3), floats, floats)

#: What each kind is made of, after the site and the sequence.
CONTENT = {
    m.CellsMessage: st.tuples(st.integers(0, 2**40), column(st.integers(0, 2**30), max_size=30)),
    m.JoinRequest: st.tuples(words, words),
    m.LeaveNotice: st.just(()),
    m.DriftReport: st.tuples(*about, floats, numbers),
    m.Increment: st.tuples(*about, numbers),
    m.SafeFunctionReport: st.tuples(*about, floats),
    m.SketchUpdate: st.tuples(numbers, st.lists(changes, max_size=3).map(tuple), passed, st.booleans()),
    m.Events: st.builds(lambda stream, rest: (stream, *rest), numbers, shipped),
    m.KeyCount: st.one_of(
        st.tuples(words, counts),
        st.builds(lambda key, count, elapsed: (item_of(key), count, key, elapsed), keys, counts, passed),
        st.tuples(words, counts, st.none(), passed),
    ),
    m.DriftRequest: st.tuples(*about),
    m.SafeFunctionRequest: st.tuples(*about),
    m.Balance: st.tuples(*about, floats, st.booleans()),
    m.Quantum: st.tuples(*about, floats),
    m.UpdateRequest: st.tuples(numbers),
    m.Reference: st.tuples(numbers, st.lists(limits, max_size=3).map(tuple), counts),
    m.KeyCountRequest: st.tuples(keys),
    m.KeyLimits: st.tuples(words, st.booleans(), counts),
}


def of_kind(kind):
    return st.builds(lambda site, sequence, content: kind(site, sequence, *content), sites, numbers, CONTENT[kind])


any_message = st.sampled_from(list(CONTENT)).flatmap(of_kind)


def content(value):
    """A message as plain values, to be compared."""
    if dataclasses.is_dataclass(value):
        return type(value), [content(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    return [content(part) for part in value] if isinstance(value, tuple) else (type(value), value)


def test_every_kind_is_tested_and_keeps_its_number():
    assert {number: kind.__name__ for number, kind in KINDS.items()} == {
        1: "CellsMessage",
        2: "JoinRequest",
        3: "LeaveNotice",
        4: "DriftReport",
        5: "Increment",
        6: "SafeFunctionReport",
        8: "Events",
        10: "SketchUpdate",
        11: "KeyCount",
        16: "DriftRequest",
        17: "SafeFunctionRequest",
        18: "Balance",
        19: "Quantum",
        20: "UpdateRequest",
        21: "Reference",
        22: "KeyCountRequest",
        23: "KeyLimits",
    }
    assert {number: kind.__name__ for number, kind in EARLIER_KINDS.items()} == {7: "SketchUpdate", 9: "KeyCount"}
    assert not EARLIER_KINDS.keys() & KINDS.keys()
    assert set(CONTENT) == set(KINDS.values())


@pytest.mark.parametrize("kind", CONTENT, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_there_and_back(kind, data):
    message = data.draw(of_kind(kind))
    sent = message.to_bytes()
    assert content(decode(sent)) == content(message)
    assert content(decode(memoryview(sent))) == content(message)
    assert message.nbytes == len(sent)


def test_small_numbers_take_little_room():
    assert CellsMessage(1, 1, 5, np.zeros(28, np.int64)).nbytes == 4 + 8 + 28
    assert m.LeaveNotice(1, 1).nbytes == 3
    assert m.Increment(1, 1, 5, 0, 2, 1).nbytes == 7
    assert m.SafeFunctionReport(1, 1, 5, 0, 2, np.zeros(1)).nbytes == 6 + 1 + 4
    # many small changes take a byte or less each, a few keys eight bytes and a little
    assert m.SketchUpdate(1, 1, 5, (np.arange(1000) % 3 - 1,)).nbytes < 100
    assert m.SketchUpdate(1, 1, 5, (np.zeros(1000, np.int64),)).nbytes < 40
    assert m.SketchUpdate(1, 1, 5, ((np.arange(3, dtype=np.uint64), np.ones(3, np.int64)),)).nbytes == 6 + 2 + 24 + 2 + 3


# -- anything else -----------------------------------------------------------------------------------------------------


def refused_or_read(data):
    """Bytes that are read as a message must be those of a message."""
    with np.errstate(invalid="ignore"):  # see test_alarming_floats_are_refused_quietly
        try:
            message = decode(data)
        except lt.FormatError:
            return
        assert content(decode(message.to_bytes())) == content(message)


@given(data=st.binary(max_size=60), kind=st.sampled_from([None, *KINDS]))
def test_anything_else_is_refused(data, kind):
    refused_or_read(data if kind is None else bytes([kind, 1, 1]) + data)


@given(message=any_message, data=st.data())
def test_cut_and_padded_messages_are_refused(message, data):
    sent = message.to_bytes()
    for wrong in (sent[: data.draw(st.integers(0, len(sent) - 1))], sent[:-1], sent + b"\0"):
        with pytest.raises(lt.FormatError):
            decode(wrong)


@given(message=any_message, data=st.data())
def test_flipped_bits_are_refused_or_make_another_message(message, data):
    sent = bytearray(message.to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(0, len(sent) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    refused_or_read(bytes(sent))


def test_unknown_kinds_say_so():
    with pytest.raises(lt.FormatError, match=r"kind 99.*upgrade"):
        decode(bytes([99, 1, 1]))


def written(*numbers, rest=b""):
    out = Writer()
    for number in numbers:
        out.varint(number)
    out.raw(rest)
    return out.bytes()


@pytest.mark.parametrize(
    "data",
    [
        written(6, 1, 1, 1, 0, 0, 1, rest=b"\x00\x00\xc0\x7f"),  # not a number
        written(6, 1, 1, 1, 0, 0, 2**16 + 1, rest=bytes(2**18 + 4)),  # more numbers than any query has
        written(18, 1, 1, 1, 0, 0, 0, 2),  # neither of all sites nor of some
        written(21, 1, 1, 1, 0, 1, 4, 0, 0),  # a third side
        written(21, 1, 1, 1, MAX_COUNT + 1, 0),  # a cap that no count reaches
        written(23, 1, 1, rest=bytes(8) + written(2 * (MAX_COUNT + 1))),
        written(9, 1, 1, rest=bytes(8) + written(MAX_COUNT + 1, 0)),
        written(8, 1, 1, 0, 2, 1, rest=bytes(16) + written(1, 2, 0, 2, 4, 0, 0)),  # one time for two events
        written(7, 1, 1, 1, 2**12 + 1),  # more streams than any monitor has
        written(7, 1, 1, 1, 1, 5, 4, 10, rest=bytes(5)),  # two lengths that differ
        written(7, 1, 1, 1, 1, 5, 5, 10, rest=bytes(4)),
        written(7, 1, 1, 1, 1, 5, 5, 12, rest=bytes(6)),
    ],
    ids=range(12),
)
def test_forgeries_are_refused(data):
    with pytest.raises(lt.FormatError):
        decode(data)


@pytest.mark.parametrize("key", ["a", "", b"\xff", 0, -1, 2**63 - 1, -(2**63), ("a", (1, b"b")), "é" * 100])
def test_keys_travel_in_few_bytes(key):
    """An item is told by its key alone: its hash follows."""
    sent = m.KeyCount(1, 1, m.hash_of(key), 5, key)
    back = decode(sent.to_bytes())
    assert (back.key_hash, back.count, back.key) == (sent.key_hash, 5, key)
    assert sent.nbytes <= 16 + len(str(key).encode())
    assert decode(m.KeyCountRequest(1, 2, key).to_bytes()).key == key


def test_alarming_floats_are_refused_quietly():
    with pytest.raises(lt.FormatError):
        decode(written(6, 1, 1, 1, 0, 0, 1, rest=b"\x01\x00\x80\x7f"))


# -- memory ------------------------------------------------------------------------------------------------------------


def peak(data):
    """The most memory that reading some bytes, which must be refused, takes."""
    tracemalloc.start()
    try:
        with pytest.raises(lt.FormatError):
            decode(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [2**14, 2**24 + 1, 2**28, 2**31, 2**63, 2**69])
@pytest.mark.parametrize(
    "liar",
    [
        lambda size: written(1, 1, 1, 1, rest=min(size, 2**64 - 1).to_bytes(8, "little")),
        lambda size: written(4, 1, 1, 1, 0, 0, size),
        lambda size: written(7, 1, 1, 1, 1, 0, size),
        lambda size: written(7, 1, 1, 1, 1, 5, 5, 2 * size),
        lambda size: written(7, 1, 1, 1, size),
        lambda size: written(8, 1, 1, 0, size, size),
        lambda size: written(8, 1, 1, 0, 0, 1, size, 2 * size),
        lambda size: written(21, 1, 1, 1, 0, size),
        lambda size: written(21, 1, 1, 1, 0, 1, 1, size),
    ],
    ids=["cells", "numbers", "keys", "bytes", "streams", "events", "ticks", "limits", "zones"],
)
def test_sizes_that_lie_are_not_believed(liar, size):
    assert peak(liar(size)) < 200_000


def test_a_column_that_the_input_cannot_hold_is_not_allocated():
    assert peak(written(7, 1, 1, 1, 1, 2**24, 2**24, 0)) < 200_000


@pytest.mark.parametrize("claimed", [10, 2**24 + 1, 2**40])
def test_columns_that_inflate_to_more_than_they_say_are_refused(claimed):
    bomb = zlib.compress(bytes(2**22), 9)
    assert peak(written(7, 1, 1, 1, 1, claimed, claimed, 2 * len(bomb) + 1, rest=bomb)) < 200_000


def test_all_streams_together_may_take_no_more_than_the_limit(monkeypatch):
    monkeypatch.setattr("lately.monitor.messages.message.LIMIT", 2**20)
    message = m.SketchUpdate(1, 1, 1, (np.zeros(2**16, np.int64),) * 4)
    with pytest.raises(lt.FormatError):
        decode(message.to_bytes())
