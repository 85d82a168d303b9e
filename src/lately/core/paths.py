"""Paths as Spark writes them, opened from Python: pyarrow's filesystems, or fsspec's where pyarrow has none."""

import errno
import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from lately.core.errors import InputError

#: What Spark calls a filesystem, and what pyarrow and fsspec call it.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "wasbs": "abfss", "dbfs": "file"}
#: What link(2) says where the filesystem has no hard links.
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


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
        filesystem, plain = fs.FileSystem.from_uri(path)
        return filesystem, plain
    except (pa.ArrowException, ValueError):
        if scheme == "file":  # with a space in it, which pyarrow does not take for a URI
            return fs.LocalFileSystem(), f"/{rest.lstrip('/')}"
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

        filesystem, plain = fsspec.core.url_to_fs(path)
    except ImportError as error:
        raise InputError(
            f"cannot open {path!r}: {error}", remedy="install fsspec and its package for this filesystem"
        ) from error
    except ValueError as error:
        raise InputError(f"cannot open {path!r}: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), plain


#: What the operating system says when there is no room for a file.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: OSError) -> bool:
    """Whether there was no room: a full disk, a quota, a limit on the size of files.

    Args:
        error: what was raised.
    """
    return error.errno in _NO_ROOM


def write_whole(filesystem: fs.FileSystem, path: str, content: Any, before: Callable[[], None] | None = None) -> None:
    """Write a file that appears whole or not at all.

    On a disk it is renamed into place; an object store shows an object only when it is complete. ``before`` is called as late
    as possible before the file appears; if it raises, no file appears.
    """
    is_disk = isinstance(filesystem, fs.LocalFileSystem | fs.HadoopFileSystem)
    target = _beside(path) if is_disk else path
    if before is not None and not is_disk:
        before()
    try:
        with filesystem.open_output_stream(target) as out:
            out.write(content)
        if before is not None and is_disk:
            before()
        if isinstance(filesystem, fs.HadoopFileSystem) and filesystem.get_file_info(path).type == fs.FileType.File:
            filesystem.delete_file(path)  # what is written again is the same; Hadoop does not rename onto a file
        if is_disk:
            filesystem.move(target, path)
    except BaseException as error:
        if is_disk and filesystem.get_file_info(target).type == fs.FileType.File:
            filesystem.delete_file(target)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno), path) from error  # pyarrow's do not name the file
        raise


def write_new(filesystem: fs.FileSystem, path: str, content: bytes, before: Callable[[], None] | None = None) -> None:
    """Write a file that appears whole, unless there is one already: FileExistsError then, and that one stays as it is.

    Of many writers on a local or mounted disk exactly one succeeds. On other filesystems nothing excludes two that look at the
    same moment. ``before`` is called as late as possible before the file appears.
    """
    if not isinstance(filesystem, fs.LocalFileSystem):
        if filesystem.get_file_info(path).type != fs.FileType.NotFound:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        write_whole(filesystem, path, content, before)
        return
    target = _beside(path)
    try:
        with filesystem.open_output_stream(target) as out:
            out.write(content)
        if before is not None:
            before()
        _link(target, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(target)


def remove_all(filesystem: fs.FileSystem, paths: Iterable[str], guard: Callable[[], None] | None = None) -> None:
    """Delete files; those that are gone already are no error. If ``guard`` raises, all of them stay.

    On a disk the files are renamed first, to names that no reader looks for, and the guard is called after that: what it
    allows to be deleted is what was there at that time, even if this process sleeps for an hour between any two steps and
    others write files with the same names.
    """
    if guard is not None:
        guard()
    if guard is None or not isinstance(filesystem, fs.LocalFileSystem):
        for path in paths:
            with suppress(FileNotFoundError):
                filesystem.delete_file(path)
        return
    aside: dict[str, str] = {}
    try:
        for path in paths:
            hidden = _beside(path)
            with suppress(FileNotFoundError):
                os.rename(path, hidden)
                aside[path] = hidden
        guard()
    except BaseException:
        for path, hidden in aside.items():
            with suppress(FileExistsError):  # others have written it again
                _link(hidden, path)
        raise
    finally:
        for hidden in aside.values():
            with suppress(FileNotFoundError):
                os.unlink(hidden)


def _link(target: str, path: str) -> None:
    """Give a file its name, unless that is taken."""
    try:
        os.link(target, path)  # exclusive on NFS too, which O_EXCL is not everywhere
    except FileExistsError:
        if os.stat(target).st_nlink < 2:  # NFS repeats a request whose reply was lost: then the link is ours
            raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        os.rename(target, path)


def _beside(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{secrets.token_hex(4)}"
