"""Prevents a run that was suspended from overwriting the results of a run that took over.

There are two checks, each of which is sufficient: no other run has taken the lease, and there is no version of the state after
the batch that this run has reached. Every write to the store, publication and deletion is checked first, on the driver and in
tasks.
"""

from dataclasses import dataclass

from lately.pipeline.state_versions import StateVersions
from lately.store.lease import Lease


@dataclass(frozen=True)
class Fence:
    """Checks whether a run may still write; it is sent to the executors.

    Parameters
    ----------
    lease
        The lease that the run holds; None on filesystems without leases.
    state
        The directory of the versions of its state.
    batch
        The batch that it has reached.
    published
        Whether it has published the version of that batch. By default it has not.
    """

    lease: Lease | None
    state: str
    batch: int
    published: bool = False

    def check(self) -> None:
        """Raise LeaseError if another run has taken over."""
        if self.lease is not None:
            self.lease.check()
        StateVersions(self.state).refuse_behind(self.batch, self.published)
