"""Numbers as people read them."""

import math

#: Integers from here on are written with an exponent; those below have all their digits.
_LONGEST = 1e21
#: Significant digits of an estimate: as few of these as tell its bounds apart.
_DIGITS = (6, 9, 12, 15)


def size(nbytes: float) -> str:
    """Bytes in the unit that fits.

    >>> size(800), size(3_000_000)
    ('800 B', '2.9 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024 or unit == "GiB":
            return f"{nbytes:,.0f} {unit}" if unit == "B" else f"{nbytes:,.1f} {unit}"
        nbytes /= 1024
    raise AssertionError


def number(value: float | None, digits: int | None = None) -> str:
    """A number with a comma after each thousand; integers always have all their digits.

    Parameters
    ----------
    value
        An integer or float. None and NaN are shown as a dash, infinities as such.
    digits
        How many significant digits a fraction has; by default as many as it takes to read back the same float64.

    >>> number(1234567.89), number(1234567.89, 6), number(0.1), number(2.5, 6)
    ('1,234,567.89', '1,234,568', '0.1', '2.5')
    >>> number(2**63 - 1), number(1e15 + 1), number(None), number(-math.inf)
    ('9,223,372,036,854,775,807', '1,000,000,000,000,001', '–', '-∞')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if isinstance(value, int) or (value == int(value) and abs(value) < _LONGEST):
        return f"{int(value):,}"
    if digits is None:
        return f"{value:,}"
    return f"{value:,.0f}" if 10 ** (digits - 1) <= abs(value) < _LONGEST else f"{value:,.{digits}g}"


def estimate_texts(value: float | None, low: float | None, high: float | None) -> tuple[str, str, str]:
    """A value and its bounds, shortened together: bounds that differ never look equal, and the value never lies outside.

    Parameters
    ----------
    value
        The estimate, or None without an answer.
    low, high
        Its bounds; None if unbounded, as JSON has no infinity.

    >>> estimate_texts(5482.75, 5480.25, 5490.5), estimate_texts(5482.7512, 5482.7511, 5482.7513)
    (('5,482.75', '5,480.25', '5,490.5'), ('5,482.7512', '5,482.7511', '5,482.7513'))
    >>> estimate_texts(7, None, 9)
    ('7', '-∞', '9')
    """
    ends = -math.inf if low is None else low, math.inf if high is None else high
    for digits in (*_DIGITS, None):
        texts = number(value, digits), number(ends[0], digits), number(ends[1], digits)
        if texts[1] != texts[2] or ends[0] == ends[1]:
            break
    return texts


def answer_texts(value: float | None, low: float | None, high: float | None, confidence: float | None) -> tuple[str, str, str]:
    """An answer for a table: its value, its bounds, and with which confidence they hold. An exact one has all its digits.

    Parameters
    ----------
    value, low, high
        The answer and its bounds, as ``estimate_texts`` takes them.
    confidence
        The probability that the true value is within the bounds; None if it is not known.

    >>> answer_texts(7, 6, 9, 0.99), answer_texts(1234567.89, 1234567.89, 1234567.89, 1)
    (('7', '6 … 9', '99%'), ('1,234,567.89', 'exact', ''))
    >>> answer_texts(None, None, None, None)
    ('–', '–', '')
    """
    if confidence == 1 and low is not None and low == high:
        return number(value), "exact", ""
    if _is_unknown(value) and _is_unbounded(low) and _is_unbounded(high):
        return "–", "–", ""
    shown, least, most = estimate_texts(value, low, high)
    return shown, f"{least} … {most}", "" if confidence is None else f"{confidence * 100:.6g}%"


def _is_unknown(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _is_unbounded(bound: float | None) -> bool:
    return bound is None or not math.isfinite(bound)
