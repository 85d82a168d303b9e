"""Paths as Spark writes them, opened from Python: pyarrow's filesystems, or fsspec's where pyarrow has none."""

import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from lately.core.errors import InputError

#: What Spark calls a filesystem, and what pyarrow and fsspec call it.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "wasbs": "abfss", "dbfs": "file"}


def filesystem_of(path: str, filesystem: Any = None) -> tuple[fs.FileSystem, str]:
    """The filesystem of a path, and the path on it.

    >>> filesystem_of("file:///tmp/events.parquet")[1], filesystem_of("relative/events")[1].endswith("/relative/events")
    ('/tmp/events.parquet', True)
    """
    if filesystem is not None:
        if not isinstance(filesystem, fs.FileSystem):  # one of fsspec's
            filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
        return filesystem, path.split("://", 1)[-1]
    scheme, colon, rest = path.partition(":")
    if colon and scheme in _SCHEMES:
        # Databricks shows its own filesystem as a local directory.
        path = f"/dbfs/{rest.lstrip('/')}" if scheme == "dbfs" else f"{_SCHEMES[scheme]}:{rest}"
    if "://" not in path and not path.startswith("file:"):
        return fs.LocalFileSystem(), rooted(path)
    try:
        found, plain = fs.FileSystem.from_uri(path)
        return found, plain
    except (pa.ArrowException, ValueError):
        return _fsspec(path)


def rooted(path: str) -> str:
    """The path as other machines and processes must have it: a relative one from the root, any other as it is.

    >>> rooted("s3://bucket/store"), rooted("store") == str(Path("store").absolute())
    ('s3://bucket/store', True)
    """
    return path if "://" in path or path.startswith(("file:", "dbfs:")) else str(Path(path).expanduser().absolute())


def _fsspec(path: str) -> tuple[fs.FileSystem, str]:
    try:
        import fsspec

        found, plain = fsspec.core.url_to_fs(path)
    except ImportError as error:
        raise InputError(f"cannot open {path!r}: {error}; install fsspec and its package for this filesystem") from error
    except ValueError as error:
        raise InputError(f"cannot open {path!r}: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(found)), plain


def write_whole(filesystem: fs.FileSystem, path: str, content: Any) -> None:
    """Write a file that appears whole or not at all.

    On a disk it is renamed into place; an object store shows an object only when it is complete.
    """
    is_disk = isinstance(filesystem, fs.LocalFileSystem | fs.HadoopFileSystem)
    target = _beside(path) if is_disk else path
    try:
        with filesystem.open_output_stream(target) as out:
            out.write(content)
        if isinstance(filesystem, fs.HadoopFileSystem) and filesystem.get_file_info(path).type == fs.FileType.File:
            filesystem.delete_file(path)  # what is written again is the same; Hadoop does not rename onto a file
        if is_disk:
            filesystem.move(target, path)
    except BaseException:
        if is_disk and filesystem.get_file_info(target).type == fs.FileType.File:
            filesystem.delete_file(target)
        raise


def _beside(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{secrets.token_hex(4)}"
