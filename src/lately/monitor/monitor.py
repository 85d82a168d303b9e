"""A monitor: which streams are sketched how, which queries are monitored, and by which scheme."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from lately.core.arguments import check_integer, check_word
from lately.core.codec import Reader
from lately.monitor.baselines import OracleCoordinator, PushCoordinator, ShipCoordinator
from lately.monitor.coordinator import Coordinator
from lately.monitor.definition import MonitorDefinition, Scheme
from lately.monitor.functional import FunctionalCoordinator
from lately.monitor.geometric import GeometricCoordinator
from lately.monitor.guards import FunctionalGuard, GeometricGuard, Guard, PushingGuard, SilentGuard
from lately.monitor.messages import MAX_SITES
from lately.monitor.shipping import ShippingSite
from lately.monitor.site import Site
from lately.monitor.state_bytes import SITE_FAMILY, read_state
from lately.monitor.truth import true_values


class _Parts(NamedTuple):
    """What a scheme is made of."""

    guard: type[Guard]
    coordinator: type[Coordinator]
    site: type[Site] = Site


_PARTS: dict[Scheme, _Parts] = {
    "functional": _Parts(FunctionalGuard, FunctionalCoordinator),
    "geometric": _Parts(GeometricGuard, GeometricCoordinator),
    "push": _Parts(PushingGuard, PushCoordinator),
    "ship": _Parts(SilentGuard, ShipCoordinator, ShippingSite),
    "oracle": _Parts(SilentGuard, OracleCoordinator),
}


class Monitor(MonitorDefinition):
    """What sites and their coordinator have in common. Give all of them the same monitor, or build equal ones with one seed.

    The promise: no estimate leaves its tolerance without a message on its way. Whoever knows the hash functions can choose keys
    that collide or cancel, so a sketch without a ``seed`` gets a secret random one, ``monitor.seed``. It is part of the monitor
    when that is pickled, and of stored sites and coordinators.

    Parameters
    ----------
    sketch
        What sites sketch their streams with: an ``Ecm`` or a ``FastAms``.
    queries
        The queries by their names, or one query.
    streams
        The names of the streams that every site has; by default one stream without a name.
    scheme
        How the promise is kept.

        - "functional", the default: functional geometric monitoring, for up to hundreds of sites.
        - "geometric": balls, or the planes of ECM-15 §6.5, balanced with slack vectors as in the papers; for a few sites.
        - "push": a site sends its sketch when that has changed by a share of itself (CG). Fast-AMS only.
        - "ship": sites send every event.
        - "oracle": nothing is sent unless it must be, by knowing all sites; for simulations.
    flush
        Which sites send updates when the limits no longer suffice: all ("eager"), or the fewest that will do, those with most
        changes first ("lazy"). By default "eager" for an ``Ecm``, which is small, and "lazy" for a ``FastAms``.
    lateness
        How much older than the newest event of its stream at a site an event may be, such as "60s"; by default no event may.
        It needs a window and one of the first two schemes. A site counts such events at once, and keeps them in a reorder
        buffer until nothing can overtake them; what is announced is about the windows that end with the sites' newest events.

    >>> from lately.monitor import Ecm, Monitor, SelfJoin
    >>> monitor = Monitor(Ecm(window="1h", eps=0.1, delta=0.1), {"skew": SelfJoin(theta=0.2)})
    >>> paris, coordinator = monitor.site(1), monitor.coordinator(sites=[1])
    >>> down = [reply for message in paris.update(["/"] * 3, 10) for reply in coordinator.receive(message)]
    >>> [paris.receive(message) for message in down], coordinator["skew"].value
    ([[]], 9.0)
    """

    def site(self, number: int, birth: int | None = None) -> Site:
        """A new site, to be run where its streams are.

        Parameters
        ----------
        number
            The number of the site, 0 to 2**48 - 1, which no other site of this monitor ever has.
        birth
            A 64-bit number that distinguishes it from other sites with this number; by default a random one. Give one if a site
            that is lost before it was stored must be made again so that it sends the same messages.

        >>> from lately.monitor import FastAms, Monitor, SelfJoin
        >>> Monitor(FastAms(eps=0.1, delta=0.1), SelfJoin(theta=0.2)).site(1, birth=42).join()[0].birth
        42
        """
        check_integer("site", number, 0, MAX_SITES - 1)
        parts = _PARTS[self.scheme]
        return parts.site(self, number, parts.guard, None if birth is None else check_word("birth", birth))

    def coordinator(self, sites: Sequence[int]) -> Coordinator:
        """A new coordinator.

        Parameters
        ----------
        sites
            The numbers of the sites to begin with. It starts when all of them have joined; others may join and leave later.
        """
        return _PARTS[self.scheme].coordinator(self, sites)

    def restore(self, data: bytes, *, limit: int | None = None) -> Site | Coordinator:
        """The site or coordinator that ``to_bytes`` stored, which continues as the stored one would have.

        This monitor must be built like the stored one's. If neither was given a seed, the result has the stored one:
        ``site.monitor``. A state of another monitor raises ``MergeError``, damaged bytes ``FormatError``. Messages that were
        returned before storing are not returned again, and messages that were taken before are recognised.

        Parameters
        ----------
        data
            What ``site.to_bytes()`` or ``coordinator.to_bytes()`` returned.
        limit
            The most memory that reading may take, in bytes, as in ``lately.from_bytes``.

        >>> from lately.monitor import Ecm, Monitor, SelfJoin
        >>> monitor = Monitor(Ecm(window="1h", eps=0.1, delta=0.1), SelfJoin(theta=0.2))
        >>> site = monitor.site(1)
        >>> joining = site.update(["/"], 10)
        >>> twin = monitor.restore(site.to_bytes())
        >>> sent, sent_by_twin = (each.update(["/", "/cart"], 20) for each in (site, twin))
        >>> [message.to_bytes() for message in sent] == [message.to_bytes() for message in sent_by_twin]
        True
        """
        return read_state(self, data, limit, _read_part)

    def truth(self, sites: Sequence[Site]) -> dict[str, Any]:
        """The estimate of every query if all sites sent their updates now; for simulations and tests.

        Parameters
        ----------
        sites
            All sites of the monitor.
        """
        return true_values(self, sites)


def _read_part(monitor: Monitor, family: int, source: Reader) -> Site | Coordinator:
    if family == SITE_FAMILY:
        site = monitor.site(source.within(source.varint(), 0, MAX_SITES - 1), source.u64())
        site.read(source)
        return site
    coordinator = monitor.coordinator([0])  # the stored sites replace it
    coordinator.read(source)
    return coordinator
