"""Protects a run of a pipeline against another run of the same pipeline, with a lease and a fence.

The lease says which run may write. The fence (``lately.pipeline.fence``) is checked before everything that is written,
published or deleted, on the driver and in tasks; it also detects a run that has gone on without a lease.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lately.config import Config
from lately.core.errors import InputError, LeaseError
from lately.pipeline.fence import Fence
from lately.pipeline.state_versions import StateVersions
from lately.store import Store
from lately.store.lease import Lease, Renewal, lease_folder


class RunGuard:
    """The lease and the fence of a run.

    Parameters
    ----------
    config
        The pipeline file.
    home
        The directory of the state, beside which the lease of a stream is.
    store
        The store, whose guard this sets; the lease of a run in mode "batch" is in its folder.
    versions
        The state.
    """

    def __init__(self, config: Config, home: str, store: Store, versions: StateVersions) -> None:
        self._config, self._home, self._store, self._versions = config, home, store, versions
        self._lease: Lease | None = None
        #: The fence of the current batch; None before the first batch of a run.
        self.fence: Fence | None = None

    @contextmanager
    def held(self, on_lost: Callable[[], None]) -> Iterator[None]:
        """Hold the lease during a run, if the filesystem supports leases; the store refuses to write without it.

        Parameters
        ----------
        on_lost
            Called from another thread if the lease is lost.
        """
        self.fence = None
        is_batch = self._config.source.mode == "batch"
        folder = lease_folder(self._store.path, ".lease") if is_batch else lease_folder(self._home)
        if folder is None:
            try:
                yield
            finally:
                self._store.guard = None
            return
        lease = self._take(folder)
        self._lease, self._store.guard = lease, lease.check
        try:
            with Renewal(lease, on_lost):
                yield
        finally:
            self._lease = self._store.guard = None
            lease.release()

    def _take(self, folder: str) -> Lease:
        try:
            return Lease.take(folder, self._config.run.lease_seconds)
        except OSError as error:
            if self._config.source.mode == "batch":
                self._store.prepare()  # raises a more specific error
            self._versions.prepare()
            raise InputError(f"cannot write to {folder!r}: {error}", remedy="give a path that can be written to") from error

    def check_lease(self) -> None:
        """Raise LeaseError if another run has taken the lease."""
        if self._lease is not None:
            self._lease.check()

    def check(self, cause: Exception | None = None) -> None:
        """Raise LeaseError if another run has taken over or gone on.

        Parameters
        ----------
        cause
            The error that made the caller check; it becomes the cause of the LeaseError.
        """
        try:
            self.check_lease()
            if self.fence is not None:
                self.fence.check()
        except LeaseError as error:
            raise error from cause

    def protect(self, batch: int, published: bool) -> None:
        """Set the fence to a batch: check it now, and before everything that is written or deleted from now on.

        Parameters
        ----------
        batch
            The number of the batch.
        published
            Whether this run has published the batch.
        """
        self.fence = Fence(self._lease, self._versions.path, batch, published)
        self._store.guard = self.fence.check
        self.fence.check()
