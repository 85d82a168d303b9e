"""Fields and packed columns, and the frame around them. What damaged bytes do is in test_bad_bytes.py."""

import contextlib
import copy
import functools
import math
import pickle
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.core import codec
from lately.core.codec import Reader, Writer

LOW, HIGH = -(2**63), 2**63 - 1
int64s, uint64s = st.integers(LOW, HIGH), st.integers(0, 2**64 - 1)


def packed(values):
    out = Writer()
    out.integers(np.array(values, np.int64))
    return out.bytes()


def reader(data, limit=2**20):
    return Reader(memoryview(data), limit)


# -- fields ------------------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 255), int64s, st.integers(0, 2**64 - 1), st.floats(), st.lists(st.integers(0, 2**64 - 1)), st.lists(int64s)
)
def test_every_field_comes_back(a, b, c, d, words, numbers):
    out = Writer()
    out.u8(a)
    out.i64(b)
    out.u64(c)
    out.f64(d)
    out.u64s(np.array(words, np.uint64))
    out.integers(np.array(numbers, np.int64))
    source = reader(out.bytes())
    assert (source.u8(), source.i64(), source.u64()) == (a, b, c)
    assert struct.pack("<d", source.f64()) == struct.pack("<d", d)
    assert source.u64s().tolist() == words
    assert source.integers(LOW, HIGH).tolist() == numbers
    source.finish()


def test_fields_are_little_endian():
    out = Writer()
    out.u8(1)
    out.u64(2)
    out.i64(-2)
    out.f64(1.0)
    out.u64s(np.array([3], np.uint64))
    assert out.bytes().hex(" ", 1) == (
        "01 02 00 00 00 00 00 00 00 fe ff ff ff ff ff ff ff 00 00 00 00 00 00 f0 3f"
        " 01 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00"
    )


def test_the_worked_example_of_the_format():
    # 3, 5, 5, 4, 300: steps +3 +2 0 -1 +296, zigzag 6 4 0 1 592, and 592 = 0b100_1010000 needs two bytes
    assert packed([3, 5, 5, 4, 300]).hex(" ", 1) == "05 00 00 00 00 00 00 00 06 04 00 01 d0 04"


@given(st.lists(int64s, max_size=40))
def test_packing_is_zigzag_steps_in_base_128(values):
    expected, before = bytearray(), 0
    for value in values:
        step = (value - before + 2**63) % 2**64 - 2**63
        word = 2 * step if step >= 0 else -2 * step - 1
        before = value
        while word >= 128:
            expected.append(word % 128 + 128)
            word //= 128
        expected.append(word)
    assert packed(values) == struct.pack("<Q", len(values)) + expected


def test_any_array_can_be_packed():
    for array in (
        np.arange(6, dtype=np.uint8),
        np.arange(6).reshape(2, 3),
        np.arange(12)[::2] // 2,
        np.arange(6, dtype=np.uint64),
    ):
        out = Writer()
        out.integers(array)
        assert reader(out.bytes()).integers(0, 5).tolist() == [0, 1, 2, 3, 4, 5]


def test_sorted_ages_cost_about_a_byte_each():
    ages = np.cumsum(np.random.default_rng(1).integers(0, 64, 10_000))
    assert len(packed(ages)) == 8 + 10_000


@given(st.lists(int64s, max_size=40))
def test_deltas_come_back(values):
    out = Writer()
    out.deltas(np.array(values, np.int64))
    source = reader(out.bytes() + b"!")
    assert source.deltas(len(values)).tolist() == values
    assert source.raw(1) == b"!"


@given(st.lists(st.integers(-60, 60), max_size=40))
def test_deltas_are_zigzag_in_base_128_or_that_deflated(values):
    plain = bytes(2 * value if value >= 0 else -2 * value - 1 for value in values)
    out = Writer()
    out.deltas(np.array(values, np.int64))
    data = out.bytes()
    assert data[0] == len(values)
    if data[1] % 2:
        assert (data[1] // 2, zlib.decompress(data[2:])) == (len(data) - 2, plain)
        assert len(data) - 2 < len(plain)
    else:
        assert (data[1] // 2, data[2:]) == (len(plain), plain)


def test_deltas_that_repeat_are_deflated():
    out = Writer()
    out.deltas(np.tile([0, 1, 0, -1], 1000))
    assert len(out.bytes()) < 60
    assert reader(out.bytes()).deltas(4000).tolist() == [0, 1, 0, -1] * 1000


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_floats_of_four_bytes_come_back(values):
    out = Writer()
    out.f32s(np.array(values))
    assert out.bytes() == struct.pack(f"<{len(values)}f", *values)
    found = reader(out.bytes()).f32s(len(values))
    assert (found.dtype, found.tolist()) == (np.float64, values)


@given(st.integers(0, 2**64 - 1), st.one_of(st.none(), int64s), st.text())
def test_fields_of_any_length_come_back(number, maybe, text):
    out = Writer()
    out.varint(number)
    out.maybe(maybe)
    out.text(text)
    source = reader(out.bytes())
    assert (source.varint(), source.maybe(LOW, HIGH), source.text()) == (number, maybe, text)
    source.finish()


# -- refusals ----------------------------------------------------------------------------------------------------------


@given(st.lists(int64s, min_size=1, max_size=20), st.data())
def test_a_cut_column_is_refused(values, data):
    whole = packed(values)
    with pytest.raises(lt.FormatError, match=r"cut short|past the end|middle of a field"):
        reader(whole[: data.draw(st.integers(0, len(whole) - 1))]).integers(LOW, HIGH)


@pytest.mark.parametrize("size", [1, 2**31, 2**62, 2**63, 2**64 - 1])
def test_a_length_that_the_input_does_not_hold_is_refused_before_it_is_believed(size):
    for read in (lambda s: s.integers(LOW, HIGH), lambda s: s.u64s()):
        with pytest.raises(lt.FormatError, match="past the end"):
            read(reader(struct.pack("<Q", size)))


def test_a_word_longer_than_ten_bytes_is_refused():
    with pytest.raises(lt.FormatError, match="cut short"):
        reader(struct.pack("<Q", 1) + b"\xff" * 10 + b"\x01").integers(LOW, HIGH)


def test_values_outside_their_range_are_refused():
    data = packed([0, 5, 10])
    assert reader(data).integers(0, 10).tolist() == [0, 5, 10]
    for low, high in ((1, 10), (0, 9), (11, 5)):
        with pytest.raises(lt.FormatError, match=f"leaves {low}..{high}"):
            reader(data).integers(low, high)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.0, 1e-10, float("nan"), float("inf"), float("-inf")])
def test_fractions_lie_between_0_and_1(value):
    with pytest.raises(lt.FormatError, match="fraction"):
        reader(struct.pack("<d", value)).fraction()


def test_checked_fields():
    assert reader(b"\x02").choice(0, 2) == 2
    assert reader(struct.pack("<d", 0.25)).fraction() == 0.25
    assert reader(b"").within(5, 0, 5) == 5
    with pytest.raises(lt.FormatError, match=r"2 where one of \(0, 1\)"):
        reader(b"\x02").choice(0, 1)
    with pytest.raises(lt.FormatError, match=r"6 where 0\.\.5"):
        reader(b"").within(6, 0, 5)
    with pytest.raises(lt.FormatError, match="1 bytes too many"):
        reader(b"\x02").finish()
    source = reader(b"\x02\x03")
    source.u8()
    with pytest.raises(lt.FormatError, match="offset 1"):
        source.i64()


def test_what_would_take_more_than_the_limit_is_refused_with_what_to_pass():
    reader(b"", limit=100).fits(100)
    with pytest.raises(lt.FormatError, match=r"101 bytes, more than 100.*limit=101"):
        reader(b"", limit=100).fits(101)


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_raw_bytes_come_back(first, second):
    out = Writer()
    out.raw(first)
    out.raw(second)
    assert out.bytes() == first + second
    source = reader(out.bytes())
    assert (source.raw(len(first)), source.raw(len(second)), source.raw(0)) == (first, second, b"")
    source.finish()
    for size in (1, 2**62, -1):
        with pytest.raises(lt.FormatError, match=f"{size} bytes run past the end"):
            source.raw(size)


def delta_bytes(size, content, deflated):
    """A column as ``Writer.deltas`` writes it, with whatever content."""
    out = Writer()
    out.varint(size)
    out.varint(2 * len(content) + deflated)
    out.raw(content)
    return out.bytes()


@pytest.mark.parametrize(
    ("data", "size", "problem"),
    [
        (delta_bytes(3, b"\0\0\0", False), 4, "has not 4 entries"),
        (delta_bytes(3, b"\0\0", False), 3, "than it can hold"),
        (delta_bytes(3, b"\0\0\0\0", False), 3, "cut short"),
        (delta_bytes(1, b"\xff" * 11, False), 1, "cut short"),
        (delta_bytes(3, b"\0\0\0", False)[:-1], 3, "past the end"),
        (delta_bytes(3, zlib.compress(b"\0\0"), True), 3, "cut short"),
        (delta_bytes(3, zlib.compress(bytes(30)), True), 3, "cut short"),
        (delta_bytes(3, zlib.compress(bytes(31)), True), 3, "another size|cut short"),
        (delta_bytes(3, zlib.compress(bytes(1000)), True), 3, "another size"),
        (delta_bytes(3, zlib.compress(bytes(3))[:-1], True), 3, "another size"),
        (delta_bytes(3, zlib.compress(bytes(3)) + b"!", True), 3, "another size"),
        (delta_bytes(3, b"\0\0\0", True), 3, "does not inflate"),
        (delta_bytes(3, b"", True), 3, "than it can hold"),
        (delta_bytes(0, zlib.compress(bytes(5)), True), 0, "another size|cut short"),
    ],
    ids=range(14),
)
def test_damaged_deltas_are_refused(data, size, problem):
    with pytest.raises(lt.FormatError, match=problem):
        reader(data).deltas(size)


@given(st.binary(max_size=30), st.integers(0, 20), st.booleans())
def test_any_bytes_are_deltas_or_refused(content, size, deflated):
    with contextlib.suppress(lt.FormatError):
        assert reader(delta_bytes(size, content, deflated)).deltas(size).size == size


def test_a_column_that_inflates_to_gigabytes_is_refused_before_it_does():
    deflate = zlib.compressobj(9)
    start = deflate.compress(bytes(2**20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    block = deflate.compress(bytes(2**20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    bomb = start + block * 4095  # of a kilobyte each
    tracemalloc.start()
    with pytest.raises(lt.FormatError, match="another size"):
        reader(delta_bytes(1000, bomb, True)).deltas(1000)
    assert tracemalloc.get_traced_memory()[1] < 5 * len(bomb)
    tracemalloc.stop()


def test_floats_must_be_numbers_and_all_there():
    for wrong in (math.nan, math.inf, -math.inf):
        with pytest.raises(lt.FormatError, match="not finite"):
            reader(struct.pack("<2f", 1, wrong)).f32s(2)
    for size in (2, 2**62):
        with pytest.raises(lt.FormatError, match="past the end"):
            reader(struct.pack("<1f", 1)).f32s(size)


def test_numbers_in_base_128_end():
    assert reader(b"\xff" * 9 + b"\x7f").varint() == 2**70 - 1
    with pytest.raises(lt.FormatError, match="too long"):
        reader(b"\xff" * 10 + b"\x01").varint()
    with pytest.raises(lt.FormatError, match="middle of a field"):
        reader(b"\xff").varint()


# -- the frame ---------------------------------------------------------------------------------------------------------


def test_the_header_is_as_documented():
    counter = lt.WindowCounter(window=100, eps=0.1)
    counter.add(7, 3)
    blob = counter.to_bytes()
    magic, version, family, flags, length, crc = struct.unpack_from("<4sBBHII", blob)
    assert (magic, version, family, flags, length) == (b"LTLY", 2, 1, 0, len(blob) - 16)
    assert crc == zlib.crc32(blob[:12] + blob[16:])


def test_family_numbers_never_change():
    assert codec.families() == {
        1: lt.WindowCounter,
        2: lt.EcmSketch,
        3: lt.CountMin,
        4: lt.Dyadic,
        5: lt.Quantiles,
        6: lt.TopK,
        7: lt.PerfectCountMin,
        8: lt.SimpleCountMin,
        9: lt.ProportionalCountMin,
        10: lt.SplitterCountMin,
        11: lt.Windows,
        12: lt.Partials,
        13: lt.AmsSketch,
        14: lt.FastAmsSketch,
        15: lt.WindowedAmsSketch,
    }
    assert codec.OF_MONITORS == {16: "site", 17: "coordinator"}  # which Monitor.restore reads


#: How many ``things`` there are; to build them at collection would compile their kernels in every worker.
THINGS = 12


@functools.cache
def things():
    counter = lt.WindowCounter(window="1m", eps=0.1, lateness="5s")
    counter.add([1, 2, 3, 2], [5, 5, 5, 5])
    sketch = lt.EcmSketch(window=100, eps=0.2, delta=0.2, counter="exphist")
    sketch.update(["a", "b", "a"], [1, 2, 3])
    table = lt.CountMin(eps=0.1, delta=0.1, seed=7)
    table.update(["a", "b", "a"])
    tree = lt.Dyadic(universe=100, window=100, eps=0.2, delta=0.2, lateness=5)
    tree.update([7, 99, 7], [1, 2, 3])
    numbers = lt.Quantiles(window="1m", eps=0.2, lo=0, hi=1, resolution=0.1)
    numbers.update([0.5, 1, 0], [1, 2, 3])
    top = lt.TopK(k=3, window="1m", eps=0.2, delta=0.2, lateness="5s")
    top.update(["a", 7, b"a", "a", "late"], [1, 2, 3, 9, 12])
    guesses = [kind(window="1m", eps=0.2, delta=0.2, lateness="5s") for kind in (lt.SimpleCountMin, lt.SplitterCountMin)]
    for guess in guesses:
        guess.update(["a", 7, "a"], [1, 2, 9])
    signed = [kind(eps=0.5, delta=0.2, seed=7) for kind in (lt.AmsSketch, lt.FastAmsSketch)]
    for one in signed:
        one.update(["a", "b", "a"], counts=[3, -4, 1])
    lately = lt.WindowedAmsSketch(window="1m", eps=0.5, delta=0.4, lateness="5s")
    lately.update(["a", 7, "a"], [1, 2, 9])
    return [counter, sketch, table, sketch.extract(last=1), tree, numbers, top, *guesses, *signed, lately]


def test_these_are_all_things():
    assert len(things()) == THINGS


@pytest.mark.parametrize("number", range(THINGS))
def test_bytes_pickles_and_copies_are_the_same_thing(number):
    thing = things()[number]
    blob = thing.to_bytes()
    for twin in (lt.from_bytes(blob), pickle.loads(pickle.dumps(thing)), copy.copy(thing), copy.deepcopy(thing), thing.copy()):
        assert type(twin) is type(thing)
        assert twin is not thing
        assert twin.to_bytes() == blob


def test_what_was_read_does_not_share_memory_with_the_bytes():
    sketch = things()[1]
    buffer = bytearray(sketch.to_bytes())
    twin = lt.from_bytes(buffer)
    buffer[:] = bytes(len(buffer))
    assert twin.to_bytes() == sketch.to_bytes()
    twin.update(["c"], [4])
    assert twin.count("c").value >= 1
    assert sketch.total().value == 3


def test_a_pickle_may_be_of_any_size():
    sketch = lt.CountMin(eps=0.5, delta=0.5)
    limited = codec.from_trusted_bytes(sketch.to_bytes())
    assert limited.to_bytes() == sketch.to_bytes()
    assert sketch.__reduce__() == (codec.from_trusted_bytes, (sketch.to_bytes(),))
