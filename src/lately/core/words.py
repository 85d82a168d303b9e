"""Numbers as people read them."""


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
