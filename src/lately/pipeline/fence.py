"""What stands between a run that slept and the results of the run that went on without it.

Two looks, each of which is enough by itself: nobody else has taken the lease, and there is no version after the batch that
this run has reached. Whatever is written to the store, published or deleted passes here first, on the driver and in tasks.
"""

from dataclasses import dataclass

from lately.pipeline.state_versions import StateVersions
from lately.store.lease import Lease


@dataclass(frozen=True)
class Fence:
    """Whether a run may still write; it travels to the executors.

    ``lease`` is what the run holds, None on filesystems that have none. ``state`` is the directory of its versions. ``batch``
    is the batch that it has reached, and ``published`` says whether the version of that is there.
    """

    lease: Lease | None
    state: str
    batch: int
    published: bool = False

    def check(self) -> None:
        """Raise LeaseError if another run has taken over or gone on."""
        if self.lease is not None:
            self.lease.check()
        StateVersions(self.state).refuse_behind(self.batch, self.published)
