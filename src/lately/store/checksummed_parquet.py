"""Parquet files with a checksum of all their bytes, so that damage is found before anybody believes or even parses them.

    PAR1 | pages | LATELY01 | CRC-32 of all other bytes | footer | length of the footer | PAR1

Parquet knows checksums of pages only, and a damaged footer is more than some readers survive. Readers of Parquet find pages by
their offsets and the footer from the end of the file, and do not look at what lies between.
"""

import struct
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

from lately.core.errors import FormatError

_MARK = b"LATELY01"
_CRC = struct.Struct("<I")
_SIZE = len(_MARK) + _CRC.size


def encode(rows: pa.Table) -> bytes:
    """A Parquet file with these rows.

    >>> rows = pa.table({"batch": [1, 2]})
    >>> read(encode(rows)) == rows
    True
    """
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    content = memoryview(sink.getvalue())
    at = _footer(content)
    crc = zlib.crc32(content[at:], zlib.crc32(content[:at]))
    return b"".join((content[:at], _MARK, _CRC.pack(crc), content[at:]))


def verify(content: bytes) -> None:
    """Refuse a file that is not as it was written; one that has no checksum is taken as it is.

    >>> damaged = bytearray(encode(pa.table({"batch": [1, 2]})))
    >>> damaged[5] ^= 1
    >>> verify(bytes(damaged))
    Traceback (most recent call last):
    ...
    lately.core.errors.FormatError: the checksum does not match, so some of its bytes are not those that were written
    """
    view = memoryview(content)
    if len(content) < 12 or not content.startswith(b"PAR1") or not content.endswith(b"PAR1"):
        raise FormatError("it does not begin and end as Parquet does, so it was cut short or is something else")
    mark = _footer(view) - _SIZE
    if mark < 0 or view[mark : mark + len(_MARK)] != _MARK:
        if _MARK in content:
            raise FormatError("the length of its footer is not as it was written")
        return  # of an earlier version, or of somebody else
    if zlib.crc32(view[mark + _SIZE :], zlib.crc32(view[:mark])) != _CRC.unpack_from(view, mark + len(_MARK))[0]:
        raise FormatError("the checksum does not match, so some of its bytes are not those that were written")


def read(content: bytes, schema: pa.Schema | None = None) -> pa.Table:
    """The rows of a file, as ``schema`` has them: columns that the file lacks are null. FormatError if it is damaged."""
    verify(content)
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        if schema is not None and set(schema).issubset(file.schema_arrow):  # which is faster, for small files twice as fast
            return file.read(schema.names).select(schema.names).replace_schema_metadata(None)
        return pq.read_table(pa.BufferReader(content), schema=schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(str(error).partition("\n")[0] or type(error).__name__) from error


def _footer(content: memoryview) -> int:
    """Where the footer begins."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")
