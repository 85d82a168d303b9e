"""The files of a table: their names, and which of them are in effect.

    000000000042.parquet                    batch 42
    000000000042-0003.parquet               what a task of it, or a site, has
    000000000000..000000000063.parquet      all that batches 0 to 63 have
    schema.parquet                          no rows; lately itself does not read it

A file of many batches has all rows of the files within its range, which are about to be deleted, and replaces them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Every table has this file, so that those who read a folder of Parquet find the columns of a table that has no rows yet. As
#: its name has no batch, no batch replaces it, and upkeep neither removes it nor puts it together with others.
SCHEMA = "schema.parquet"

_NAME = re.compile(r"(\d{12,18})(?:\.\.(\d{12,18})|-[^/]+)?\.parquet")


@dataclass(frozen=True, order=True)
class File:
    """A file of a table and the batches whose rows it has, first and last included."""

    first: int
    last: int
    name: str
    path: str
    size: int
    #: When it was written, in nanoseconds by the clock of its filesystem, where that is known.
    written: int | None = None

    @property
    def is_range(self) -> bool:
        return self.first < self.last


def name_of(first: int, last: int | None = None, part: str = "") -> str:
    """The name of a file.

    >>> name_of(42), name_of(42, part="0003"), name_of(0, 63)
    ('000000000042.parquet', '000000000042-0003.parquet', '000000000000..000000000063.parquet')
    """
    more = f"..{last:012d}" if last is not None else f"-{part}" if part else ""
    return f"{first:012d}{more}.parquet"


def batches_of(name: str) -> tuple[int, int] | None:
    """The first and the last batch that a file is about; None for a file that is not of a table.

    >>> batches_of("000000000000..000000000063.parquet"), batches_of("notes.parquet")
    ((0, 63), None)
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    first = int(found[1])
    last = first if found[2] is None else int(found[2])
    return (first, last) if first <= last else None


def effective_files(files: Iterable[File]) -> list[File]:
    """The files that readers take, in the order of their batches: without those that a file of more batches replaces.

    Ranges lie within each other or beside each other, as they are cut at multiples of their length.
    """
    kept: list[File] = []
    end = -1
    for one in sorted(files, key=lambda one: (one.first, -one.last, one.name)):
        if one.last <= end:
            continue
        kept.append(one)
        if one.is_range:
            end = one.last
    return kept
