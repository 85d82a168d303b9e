"""Which task counts which site, and the number that a site has in monitors."""

from collections.abc import Iterable

from lately.core.keys import hash_keys


class SiteAssignment:
    """Assigns sites to the tasks of a batch: existing sites evenly, new ones by the hash of their name.

    Parameters
    ----------
    existing
        The names of the sites that the state has.
    tasks
        How many tasks there are.
    """

    def __init__(self, existing: Iterable[str], tasks: int) -> None:
        self._existing = {site: number % tasks for number, site in enumerate(sorted(existing))}
        self._tasks = tasks

    def task_of(self, site: str | None) -> int:
        """The task of a site, the same for all rows of a batch."""
        if site is None:  # any task can reject it
            return 0
        return self._existing[site] if site in self._existing else site_number(site) % self._tasks


def site_number(site: str) -> int:
    """The number of a site in monitors, which depends on its name only.

    It is 48 bits of the hash of the name: two of 10,000 sites have the same number with a probability below 2e-7.
    """
    return int(hash_keys([site])[0] >> 16)
