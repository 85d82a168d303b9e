"""Who may write: one run at a time holds a lease, and whoever has lost it stops before it touches anything.

    lease/000000000007.json     the run that holds it: host, process, since when, when it was last renewed, for how long

The highest number holds. A run takes the lease by creating the next number, which only one of many can do (link(2), also over
NFS), and only if the holder has released it, has not renewed it for as long as it lasts, or is a process of this machine that
is gone. The holder rewrites its own file to renew it. Being late is not fatal: it has lost the lease when there is a higher
number, and not before. So a run that was suspended finds out from one listing of a directory.
"""

import getpass
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from pyarrow import fs

from lately.core.errors import LeaseError
from lately.core.paths import filesystem_of, write_new, write_whole
from lately.core.times import iso_time

#: A lease is renewed whenever this share of it has passed.
_SHARE = 3
_LOCAL = fs.LocalFileSystem()


@dataclass(frozen=True)
class Process:
    """A process, so that another one on the same machine can tell whether it is still there."""

    host: str
    pid: int
    #: When it started, in ticks since the machine did: a later process may have the same pid.
    started: int | None = None
    #: The boot ID and the PID namespace that the pid belongs to; None if the system does not provide them.
    boot: str | None = None
    namespace: str | None = None
    user: str = ""

    @classmethod
    def current(cls) -> "Process":
        """The process that calls this."""
        user = ""
        with suppress(Exception):  # a container may run as a user without a name
            user = getpass.getuser()
        return cls(socket.gethostname(), os.getpid(), _started(os.getpid()), _boot(), _namespace(), user)

    def is_gone(self) -> bool:
        """Whether it certainly does not run any more; False where that cannot be told from here.

        >>> Process.current().is_gone(), Process("elsewhere", 4711, 1, "another start", "another namespace").is_gone()
        (False, False)
        """
        if self.started is None or self.boot is None or self.namespace is None:
            return False
        if (self.boot, self.namespace) != (_boot(), _namespace()):
            return False
        return _started(self.pid) != self.started


def _started(pid: int) -> int | None:
    """When a process started; None if it does not exist or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _boot() -> str | None:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def _namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


@dataclass(frozen=True)
class Holder:
    """What a lease file says. Times are seconds since 1970, by the clock of the machine that holds it."""

    token: str
    process: Process
    since: float
    renewed: float
    seconds: float
    released: bool = False

    @property
    def expires(self) -> float:
        """When others may take it, unless it is renewed before."""
        return self.renewed + self.seconds

    def __str__(self) -> str:
        by = f" ({self.process.user})" if self.process.user else ""
        return f"process {self.process.pid} on {self.process.host}{by}, since {_shown(self.since)}"


@dataclass(frozen=True)
class Lease:
    """A lease that was taken. It can be pickled, so that those who write for the holder can check it.

    >>> from tempfile import mkdtemp
    >>> lease = Lease.take(mkdtemp(), seconds=60)
    >>> lease.check()
    >>> Lease.take(lease.folder, seconds=60)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lately.core.errors.LeaseError: another run holds the lease in '...': process ...; wait until it ends, or stop it. ...
    >>> lease.release()
    >>> Lease.take(lease.folder, seconds=60).number
    2
    """

    folder: str
    number: int
    token: str
    since: float
    seconds: float
    clock: Callable[[], float] = time.time

    # -- taking ----------------------------------------------------------------------------------------------------------

    @classmethod
    def take(cls, folder: str, seconds: float, clock: Callable[[], float] = time.time) -> "Lease":
        """Take the lease of a directory on a local or mounted disk, or say who holds it.

        ``seconds`` is how long it lasts without being renewed. ``clock`` tells the time, in seconds since 1970. Raises
        LeaseError if another run holds it, and OSError if the directory cannot be written to.
        """
        os.makedirs(folder, exist_ok=True)
        token = secrets.token_hex(16)
        while True:
            newest = max(_numbers(folder), default=0)
            if newest and (holder := _read(folder, newest, seconds)) is not None:
                _refuse_if_held(folder, holder, clock())
            lease = cls(folder, newest + 1, token, clock(), seconds, clock)
            try:
                write_new(_LOCAL, _path(folder, lease.number), lease._content())
            except FileExistsError:
                continue  # another run was faster and holds it now
            if max(_numbers(folder), default=0) > lease.number:
                # Others took and released the lease since the listing; this number is free only because they deleted the file.
                _unlink(_path(folder, lease.number))
                continue
            for number in _numbers(folder):
                if number < lease.number:
                    _unlink(_path(folder, number))
            return lease

    # -- holding ---------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise LeaseError if another run has taken over."""
        holder = None
        while numbers := _numbers(self.folder):
            if numbers[-1] != self.number:
                self._refuse(numbers[-1])
            holder = _read(self.folder, self.number, self.seconds)
            if holder is not None:
                break  # else it has gone since the listing: look again who is there
        if holder is not None and holder.token not in (self.token, ""):  # the directory was removed, and others began from 1
            self._refuse(self.number)

    def renew(self) -> None:
        """Extend the lease by its full length, also after it has expired, unless another run has taken over."""
        self.check()
        write = write_whole if self.number in _numbers(self.folder) else write_new
        os.makedirs(self.folder, exist_ok=True)
        try:
            write(_LOCAL, _path(self.folder, self.number), self._content())
        except FileExistsError:
            self.check()

    def release(self) -> None:
        """Let others take it at once. Nothing happens if they have already."""
        with suppress(LeaseError, OSError):  # it expires, then
            self.check()
            if self.number in _numbers(self.folder):
                try:
                    write_whole(_LOCAL, _path(self.folder, self.number), self._content(released=True))
                except OSError:  # the disk is full, which is perhaps why the run ends
                    _release_in_place(_path(self.folder, self.number))

    def _content(self, released: bool = False) -> bytes:
        holder = Holder(self.token, Process.current(), self.since, self.clock(), self.seconds, released)
        return (json.dumps(asdict(holder), indent=1) + "\n").encode()

    def _refuse(self, number: int) -> NoReturn:
        other = _read(self.folder, number, self.seconds)
        who = "another run" if other is None else f"another run ({other})"
        raise LeaseError(
            f"{who} has taken over while this one, which held the lease in {self.folder!r} since {_shown(self.since)}, did not "
            "renew it. This run stops and leaves everything as it is. Nothing is lost: what it had not finished, the other run "
            "does",
            remedy="set a longer [run] lease to let a run be silent for longer",
        )


class Renewal:
    """Renews a lease in a thread of its own, until it is stopped or the lease is lost."""

    def __init__(self, lease: Lease, lost: Callable[[], None]) -> None:
        self._lease, self._lost = lease, lost
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> "Renewal":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._lease.seconds / _SHARE):
            try:
                self._lease.renew()
            except LeaseError:
                self._lost()
                return
            except OSError:
                continue  # a full disk, or a server that does not answer; as far as is known the lease is still held


def lease_folder(path: str, name: str = "lease") -> str | None:
    """Where the lease of this directory is; None on filesystems that are neither local nor mounted, where none is taken.

    >>> lease_folder("/srv/state"), lease_folder("mock://bucket/state")
    ('/srv/state/lease', None)
    """
    filesystem, root = filesystem_of(path)
    return f"{root}/{name}" if isinstance(filesystem, fs.LocalFileSystem) else None


# -- files ---------------------------------------------------------------------------------------------------------------


def _path(folder: str, number: int) -> str:
    return f"{folder}/{number:012d}.json"


def _numbers(folder: str) -> list[int]:
    try:
        names = [name.removesuffix(".json") for name in os.listdir(folder) if name.endswith(".json")]
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdigit())


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _release_in_place(path: str) -> None:
    """Mark a lease file as released by overwriting bytes in place, which needs no free disk space."""
    held, released = b'"released": false', b'"released": true '
    with open(path, "r+b", buffering=0) as file:
        place = file.read().index(held)
        file.seek(place)
        file.write(released)


def _read(folder: str, number: int, seconds: float) -> Holder | None:
    """The content of a lease file, None if it is gone. A damaged one has an unknown holder and is held since it was written."""
    path = _path(folder, number)
    try:
        with open(path, "rb") as file:
            written = os.fstat(file.fileno()).st_mtime
            text = file.read()
    except FileNotFoundError:
        return None
    try:
        content: dict[str, Any] = json.loads(text)
        return Holder(**content | {"process": Process(**content["process"])})
    except (ValueError, TypeError, KeyError):
        return Holder("", Process("a host that is not known", 0), written, written, seconds)


def _refuse_if_held(folder: str, holder: Holder, now: float) -> None:
    if holder.released or holder.expires <= now or holder.process.is_gone():
        return
    raise LeaseError(
        f"another run holds the lease in {folder!r}: {holder}",
        remedy="wait until it ends, or stop it. If it is dead, its lease "
        f"expires in {max(1, round(holder.expires - now))} s, at {_shown(holder.expires)}",
    )


def _shown(seconds: float) -> str:
    return str(iso_time(datetime.fromtimestamp(int(seconds), UTC)))
