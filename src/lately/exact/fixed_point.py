"""Sums of floats without rounding: integer multiples of a unit, in as many 64-bit words as the values need.

Every finite float is an integer multiple of some power of two. Running sums are integer multiples of one such ``unit`` in
two's complement, least significant word first. They wrap around like machine integers: the difference of two sums is exact as
long as the difference itself fits. So errors do not accumulate over a long stream, large values that left the window have no
effect, and a window's sum is rounded once, when it is read.

    words[slot, 0]  words[slot, 1]  …     the sum of everything before the position in that slot, in units of 2**unit

Prices and counts take two words; values that differ by hundreds of binary orders take more. NaN and infinities add nothing
here; ``column.py`` counts them.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lately.core.columns import Ints
from lately.core.jit import helper, kernel
from lately.counters.bits import trailing_zeros

Words = NDArray[np.uint64]
Bits = NDArray[np.uint64]  # floats, seen as the words that they are
Floats = NDArray[np.float64]
Pairs = tuple[Bits, Floats]  # pairs of floats (``wide.py``), seen as words and as floats, the two parts of each in turn

_EXPONENT, _FRACTION, _SIGN = np.uint64(0x7FF), np.uint64(2**52 - 1), np.uint64(63)
_52, _HIDDEN = np.uint64(52), np.uint64(2**52)
_0, _1, _64, _63 = np.uint64(0), np.uint64(1), np.uint64(64), np.uint64(63)
_27, _LOW27, _32, _LOW32 = np.uint64(27), np.uint64(2**27 - 1), np.uint64(32), np.uint64(2**32 - 1)
_TOP = np.uint64(2**63)

#: 2**-1074 … 2**1023, every power of two that a float can be.
_POWERS = np.ldexp(1.0, np.arange(-1074, 1024))

#: The unit of the smallest float.
SMALLEST = -1074


class Spread(NamedTuple):
    """The lowest and, one above it, the highest binary digit that any of some values has; ``low > high`` if all are zero."""

    low: int
    high: int


@kernel
def spread(bits: Bits) -> tuple[int, int]:
    """The lowest and, one above it, the highest binary digit among these floats."""
    low, high = 5000, -5000
    for i in range(bits.size):
        exponent = (bits[i] >> _52) & _EXPONENT
        fraction = bits[i] & _FRACTION
        if exponent == _EXPONENT or (exponent == _0 and fraction == _0):
            continue
        mantissa = fraction if exponent == _0 else fraction | _HIDDEN
        at = int(max(exponent, _1)) - 1075
        low = min(low, at + int(trailing_zeros(mantissa)))
        high = max(high, at + 53)
    return low, high


@kernel
def spread_of_pairs(pairs: Pairs) -> tuple[int, int]:
    """The lowest and, one above it, the highest binary digit among these pairs."""
    bits, parts = pairs
    low, high = spread(bits[::2])
    for i in range(1, parts.size, 2):
        if parts[i] != 0.0:  # its lowest digit is that of the number: the first part ends above it
            digit = int(np.int64(trailing_zeros(np.uint64(abs(parts[i])))))
            low = min(low, digit)
    return low, high


@helper
def _whole(word: Any, unit: Any) -> tuple[Any, Any]:
    """The magnitude of a float as mantissa and shift: ``mantissa << shift`` units. Both are 0 for NaN and infinities."""
    exponent = (word >> _52) & _EXPONENT
    mantissa = word & _FRACTION
    shift = np.int64(0)
    if exponent == _EXPONENT:
        mantissa = _0
    else:
        if exponent != _0:
            mantissa |= _HIDDEN
        shift = np.int64(max(exponent, _1)) - 1075 - unit
        if shift < 0:  # the digits below the unit are zeros: the unit is below every digit there is
            mantissa = _0 if shift <= -64 else mantissa >> np.uint64(-shift)
            shift = np.int64(0)
    return mantissa, shift


@helper
def _whole_of_pair(pairs: Any, position: Any, unit: Any) -> tuple[Any, Any, Any]:
    """A pair of floats as its sign, mantissa and shift; the mantissa of an integer is the integer itself."""
    bits, parts = pairs
    at = 2 * (position & ((bits.size >> 1) - 1))
    word, rest = bits[at], np.int64(parts[at + 1])
    negative = word >> _SIGN != _0
    mantissa, shift = _whole(word, unit)
    if rest != 0:  # an integer between 2**53 and 2**63: the first part is even
        magnitude = ((word & _FRACTION) | _HIDDEN) << (((word >> _52) & _EXPONENT) - np.uint64(1075))
        mantissa = magnitude - np.uint64(rest) if negative else magnitude + np.uint64(rest)
        shift = -np.int64(unit)
        if shift < 0:
            mantissa = mantissa >> np.uint64(-shift)
            shift = np.int64(0)
    return negative, mantissa, shift


@kernel
def run_pairs(pairs: Pairs, start: int, end: int, unit: int, words: Words) -> None:
    """Extend the running sums over pairs of floats."""
    for position in range(start, end):
        negative, mantissa, shift = _whole_of_pair(pairs, position, unit)
        by = np.uint64(shift) & _63
        parts = mantissa << by, (mantissa >> _1) >> (_63 - by), _0
        _add(words, position, parts, shift >> 6, negative)


@kernel
def run_squares_of_pairs(pairs: Pairs, start: int, end: int, unit: int, words: Words) -> None:
    """Extend the running sums of the squares of pairs of floats, in units of 2**(2 * unit)."""
    for position in range(start, end):
        _, mantissa, shift = _whole_of_pair(pairs, position, unit)
        a, b = mantissa >> _32, mantissa & _LOW32  # (a * 2**32 + b)**2, in two words
        middle = a * b  # twice 2**32 of it
        low = b * b
        high = a * a + (middle >> np.uint64(31))
        add = middle << np.uint64(33)
        low += add
        high += np.uint64(low < add)
        by = np.uint64(2 * shift) & _63
        spill = _63 - by
        parts = low << by, (high << by) | ((low >> _1) >> spill), (high >> _1) >> spill
        _add(words, position, parts, (2 * shift) >> 6, False)


@kernel
def run(bits: Bits, start: int, end: int, unit: int, words: Words) -> None:
    """Extend the running sums over the positions ``start..end`` of a ring."""
    if words.shape[1] == 2:
        _run_two(bits, start, end, unit, words)
    else:
        _run_many(bits, start, end, unit, words)


@kernel
def _run_two(bits: Bits, start: int, end: int, unit: int, words: Words) -> None:
    mask = bits.size - 1
    low, high = words[start & mask, 0], words[start & mask, 1]
    for position in range(start, end):
        word = bits[position & mask]
        mantissa, shift = _whole(word, unit)
        by = np.uint64(shift) & _63
        add_low = mantissa << by
        add_high = (mantissa >> _1) >> (_63 - by)  # in two steps, because a shift by 64 is none
        if shift >= 64:
            add_high = add_low
            add_low = _0
        if word >> _SIGN:
            before = low
            low -= add_low
            high = high - add_high - np.uint64(low > before)
        else:
            low += add_low
            high = high + add_high + np.uint64(low < add_low)
        words[(position + 1) & mask, 0] = low
        words[(position + 1) & mask, 1] = high


@kernel
def _run_many(bits: Bits, start: int, end: int, unit: int, words: Words) -> None:
    mask = bits.size - 1
    for position in range(start, end):
        word = bits[position & mask]
        mantissa, shift = _whole(word, unit)
        by = np.uint64(shift) & _63
        parts = mantissa << by, (mantissa >> _1) >> (_63 - by), _0
        _add(words, position, parts, shift >> 6, word >> _SIGN != _0)


@kernel
def run_squares(bits: Bits, start: int, end: int, unit: int, words: Words) -> None:
    """Extend the running sums of squares, in units of 2**(2 * unit)."""
    mask = bits.size - 1
    for position in range(start, end):
        mantissa, shift = _whole(bits[position & mask], unit)
        a, b = mantissa >> _27, mantissa & _LOW27  # (a * 2**27 + b)**2, in two words
        middle = a * b  # twice 2**27 of it
        low = b * b
        high = (a * a) >> np.uint64(10)
        add = (a * a) << np.uint64(54)
        low += add
        high += np.uint64(low < add)
        add = middle << np.uint64(28)
        low += add
        high += (middle >> np.uint64(36)) + np.uint64(low < add)
        by = np.uint64(2 * shift) & _63
        spill = _63 - by
        parts = low << by, (high << by) | ((low >> _1) >> spill), (high >> _1) >> spill
        _add(words, position, parts, (2 * shift) >> 6, False)


@helper
def _add(words: Words, position: Any, parts: Any, at: Any, negative: Any) -> None:
    """The sums after a position: those before it, plus or minus three words from word ``at`` on."""
    mask = words.shape[0] - 1
    slot, after = position & mask, (position + 1) & mask
    carry = _0
    for j in range(words.shape[1]):
        part = _0
        if j == at:
            part = parts[0]
        elif j == at + 1:
            part = parts[1]
        elif j == at + 2:
            part = parts[2]
        before = words[slot, j]
        if negative:
            result = before - part
            borrow = np.uint64(before < part)
            carry, result = borrow | np.uint64(result < carry), result - carry
        else:
            result = before + part
            over = np.uint64(result < part)
            result += carry
            carry = over | np.uint64(result < carry)
        words[after, j] = result


@kernel
def differences(words: Words, lefts: Ints, rights: Ints, unit: int, out: Floats) -> None:
    """The sums over the positions from ``lefts[i]`` up to, without, ``rights[i]``, each rounded once."""
    if words.shape[1] == 2:
        _differences_of_two(words, lefts, rights, unit, out)
    else:
        _differences_of_many(words, lefts, rights, unit, out)


@kernel
def _differences_of_two(words: Words, lefts: Ints, rights: Ints, unit: int, out: Floats) -> None:
    power = short_power(unit)
    for i in range(lefts.size):
        out[i] = difference_of_two(words, lefts[i], rights[i], unit, power)


@helper
def short_power(unit: Any) -> Any:
    """Two to the power of a unit, if whole numbers of one word times that are floats; else 0."""
    return _POWERS[unit + 1074] if -1022 <= unit <= 900 else 0.0


@helper
def difference_of_two(words: Words, left: Any, right: Any, unit: Any, power: Any) -> Any:
    """The sum over ``left..right`` of running sums that have two words, rounded once."""
    before, after = left & (words.shape[0] - 1), right & (words.shape[0] - 1)
    low = words[after, 0] - words[before, 0]
    high = words[after, 1] - words[before, 1] - np.uint64(words[after, 0] < words[before, 0])
    if power != 0.0 and high + (low >> _SIGN) == _0:  # one word with its sign: the processor rounds it, the power does not
        value = np.float64(np.int64(low)) * power
    else:
        negative = high >> _SIGN != _0
        if negative:
            low = ~low + _1
            high = ~high + np.uint64(low == _0)
        if high == _0:
            value = _times_power(np.float64(low), unit)
        else:
            zeros = _leading_zeros(high)
            leading = (high << zeros) | ((low >> _1) >> (_63 - zeros))
            # 64 digits are more than a float has: the last bit records whether any digit that was cut off is 1.
            leading |= np.uint64(low << zeros != _0)
            value = _times_power(np.float64(leading), unit + 64 - np.int64(zeros))
        if negative:
            value = -value
    return value


@kernel
def _differences_of_many(words: Words, lefts: Ints, rights: Ints, unit: int, out: Floats) -> None:
    room = np.empty(words.shape[1], np.uint64)
    for i in range(lefts.size):
        subtract(words, lefts[i], rights[i], room)
        out[i] = rounded(room, unit)


@helper
def subtract(words: Words, left: Any, right: Any, room: Words) -> None:
    """The sum over ``left..right`` as a number of units, written into ``room``."""
    before, after = left & (words.shape[0] - 1), right & (words.shape[0] - 1)
    borrow = _0
    for j in range(words.shape[1]):
        part = words[before, j]
        result = words[after, j] - part
        over = np.uint64(words[after, j] < part)
        room[j] = result - borrow
        borrow = over | np.uint64(result < borrow)


@helper
def rounded(room: Words, unit: Any) -> Any:
    """A number of units as the nearest float. ``room`` holds its magnitude afterwards."""
    negative = room[room.size - 1] >> _SIGN != _0
    if negative:
        carry = _1
        for j in range(room.size):
            room[j] = ~room[j] + carry
            carry = carry & np.uint64(room[j] == _0)
    top = room.size - 1
    while top > 0 and room[top] == _0:
        top -= 1
    value = 0.0
    if room[top] != _0:
        zeros = _leading_zeros(room[top])
        leading = room[top] << zeros
        if top > 0:
            leading |= (room[top - 1] >> _1) >> (_63 - zeros)
            rest = room[top - 1] << zeros
            for j in range(top - 1):
                rest |= room[j]
            leading |= np.uint64(rest != _0)
        value = _times_power(np.float64(leading), unit + 64 * top - np.int64(zeros))
    return -value if negative else value


@helper
def _leading_zeros(word: Any) -> Any:
    """How many zeros stand before the first digit of a word that is not 0."""
    word |= word >> _1
    word |= word >> np.uint64(2)
    word |= word >> np.uint64(4)
    word |= word >> np.uint64(8)
    word |= word >> np.uint64(16)
    word |= word >> _32
    return _63 - trailing_zeros(word ^ (word >> _1))  # which leaves the first digit only


@helper
def _times_power(value: Any, exponent: Any) -> Any:
    while exponent < -1074:  # a sum that comes out so small has zeros enough at its end: nothing is rounded twice
        value *= _POWERS[1074 - 600]
        exponent += 600
    while exponent > 1023 and value < np.inf:
        value *= _POWERS[1074 + 600]
        exponent -= 600
    return value * _POWERS[min(exponent, 1023) + 1074]


def exact_differences(words: Words, lefts: Ints, rights: Ints) -> list[int]:
    """The sums over the positions from ``lefts[i]`` up to, without, ``rights[i]``, as numbers of units."""
    mask, bits = words.shape[0] - 1, 64 * words.shape[1]
    difference = sum(
        (words[rights & mask, j].astype(object) - words[lefts & mask, j].astype(object)) << (64 * j)
        for j in range(words.shape[1])
    )
    half = 1 << (bits - 1)
    return [(units + half) % (2 * half) - half for units in np.asarray(difference).tolist()]
