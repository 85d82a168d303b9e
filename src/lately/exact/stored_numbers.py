"""Numbers as bytes: columns of pairs (``wide.py``), single numbers and fractions. docs/format.md has the tables."""

from fractions import Fraction

import numpy as np

from lately.core.codec import Reader, Writer
from lately.exact.wide import EXACT, Numbers, number, of_list, pairs


def write_pairs(out: Writer, values: Numbers) -> None:
    """Write numbers of which some are integers that no float is equal to."""
    out.f64s(values.real)
    out.integers(values.imag)


def read_pairs(source: Reader) -> Numbers:
    """Read what ``write_pairs`` wrote."""
    source.check(source.version >= 2, "integers beyond 2**53, which its format version does not have")
    real, rest = source.f64s(), source.integers(-512, 512)
    source.check(real.size == rest.size, "columns of different lengths")
    at = np.flatnonzero(rest)
    size, outwards = np.abs(real[at]), np.sign(real[at]) * rest[at]
    inside = (size >= EXACT) & ((size < 2.0**63) | ((size == 2.0**63) & (outwards < 0)))
    source.check(
        bool((inside & (real[at] + rest[at] == real[at])).all()), "integers that are not beyond 2**53, or beyond 2**63"
    )
    return pairs(real, rest)


def write_number(out: Writer, value: float | int | None, wide: bool) -> None:
    """Write one number, as a pair if ``wide``; None is written as 0."""
    if wide:
        write_pairs(out, of_list([value], "state"))
    else:
        out.f64(0.0 if value is None else value)


def read_number(source: Reader, wide: bool) -> float | int:
    """Read what ``write_number`` wrote."""
    if not wide:
        return source.f64()
    values = read_pairs(source)
    source.check(values.size == 1, "not one number")
    return number(values[0])


def write_fraction(out: Writer, value: Fraction) -> None:
    """Write a fraction whose denominator is a power of two: every finite sum of floats is one."""
    size = value.numerator.bit_length() // 8 + 1
    out.varint(size)
    out.raw(value.numerator.to_bytes(size, "little", signed=True))
    out.varint(value.denominator.bit_length() - 1)


def read_fraction(source: Reader) -> Fraction:
    """Read what ``write_fraction`` wrote."""
    numerator = int.from_bytes(source.raw(source.within(source.varint(), 0, 4096)), "little", signed=True)
    return Fraction(numerator, 1 << source.within(source.varint(), 0, 4096))
