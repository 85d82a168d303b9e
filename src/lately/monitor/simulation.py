"""Replays streams at many sites, transports their messages, and records bytes by kind, announcements and true values."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lately.core.arguments import check_integer
from lately.core.columns import Ints, whole_numbers
from lately.core.errors import InputError, ParameterError
from lately.core.keys import key_column
from lately.monitor.announcement import Announcement
from lately.monitor.messages import Message, decode

#: The bytes that a message takes in addition if it is repeated until it is acknowledged, the acknowledgement included.
ACKNOWLEDGEMENT = 8


@dataclass(slots=True)
class Simulation:
    """The result of ``simulate``.

    Parameters
    ----------
    monitor
        The monitor that was simulated.
    events
        The number of events after the warm-up.
    bytes, messages
        Bytes and number of messages by kind; a message that was lost and sent again counts each time.
    synchronisations
        How often the coordinator began each activity.
    history
        For every comparison and query: event, name, announcement, truth, and the number of messages on their way.
    broken
        The comparisons where the truth was outside the tolerance and no message on its way. There must be none.

    >>> Simulation(None).total
    0
    """

    monitor: Any
    events: int = 0
    bytes: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    synchronisations: Counter[str] = field(default_factory=Counter)
    history: list[tuple[int, str, Announcement, float, int]] = field(default_factory=list)
    broken: list[tuple[int, str, Announcement, float, int]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All bytes that were sent."""
        return sum(self.bytes.values())

    @property
    def data(self) -> int:
        """Bytes of the sites' updates and events, without the messages that maintain the limits."""
        return self.bytes["SketchUpdate"] + self.bytes["Events"] + self.bytes["CellsMessage"]

    @property
    def settled(self) -> float:
        """The share of comparisons with no message on its way, in which the promise could be checked."""
        return sum(not flying for *_, flying in self.history) / max(len(self.history), 1)

    def errors(self, name: str, settled: bool = True) -> Any:
        """The relative errors of the announced value.

        Parameters
        ----------
        name
            The name of the query.
        settled
            Whether to use only the comparisons with no message on its way, which is the default.
        """
        pairs = [(a.value, truth) for _, query, a, truth, flying in self.history if query == name and not (settled and flying)]
        values, truths = np.array(pairs, np.float64).reshape(-1, 2).T
        begun = ~np.isnan(values)
        values, truths = values[begun], truths[begun]
        return np.abs(values - truths) / np.maximum(np.abs(truths), 1e-300)


class _Carrier:
    """Delivers messages after a delay, loses some of them, and repeats those until they arrive."""

    def __init__(self, delay: int, loss: float, seed: int, result: Simulation) -> None:
        self._delay, self._loss, self._result = delay, loss, result
        self._random = np.random.default_rng(seed)
        self._flying: list[tuple[int, int, bool, bytes]] = []
        self._sent = 0

    @property
    def flying(self) -> int:
        return len(self._flying)

    def send(self, messages: Sequence[Message], up: bool, now: int) -> None:
        for message in messages:
            data = message.to_bytes()
            kind, size = type(message).__name__, len(data)
            arrives, tries = now + self._wait(), 1
            while self._loss and self._random.random() < self._loss:
                arrives, tries = arrives + 2 * self._delay + 1 + self._wait(), tries + 1
            if self._loss:
                size = tries * size + ACKNOWLEDGEMENT
            self._result.messages[kind] += tries
            self._result.bytes[kind] += size
            self._sent += 1
            copies = 2 if self._loss and self._random.random() < self._loss else 1  # its acknowledgement can be lost, too
            for _ in range(copies):
                heapq.heappush(self._flying, (arrives, self._sent, up, data))
                self._sent += 1

    def _wait(self) -> int:
        return int(self._random.integers(0, self._delay + 1)) if self._delay else 0

    def arrived(self, now: int) -> tuple[bool, Message] | None:
        """The next message that has arrived by now."""
        if not self._flying or self._flying[0][0] > now:
            return None
        _, _, up, data = heapq.heappop(self._flying)
        return up, decode(data)


def simulate(
    events: Mapping[str, Any],
    monitor: Any,
    *,
    step: int = 1,
    delay: int = 0,
    loss: float = 0.0,
    seed: int = 0,
    look: int = 1,
    warm: int = 0,
) -> Simulation:
    """Replay events through a monitor, and report what was sent and announced.

    While many messages are on their way, sites send less, and the promise can be checked less often (``settled``).

    Parameters
    ----------
    events
        A dict of columns: ``key`` and ``site``; with a window also ``time``, in ascending order; optionally ``count`` and
        ``stream``.
    monitor
        A ``Monitor`` or a ``DistributedCountMin``.
    step
        How many events are counted between two deliveries of messages; 1 by default.
    delay
        The longest delay of a message in steps, 0 by default. Delays are random, so messages also overtake each other.
    loss
        The share of messages that is lost and repeated until it arrives, 0 or more and below 1; 0 by default.
    seed
        The seed of delays and losses.
    look
        After how many steps truth and announcements are compared; 1 by default.
    warm
        How many events are counted before the sites join; of these only the resulting state is sent. 0 by default.

    >>> from lately.monitor import FastAms, Monitor, SelfJoin, simulate
    >>> monitor = Monitor(FastAms(eps=0.1, delta=0.1, seed=1), {"skew": SelfJoin(theta=0.3)})
    >>> keys = np.arange(30_000) % 10
    >>> result = simulate({"key": keys, "site": keys % 3}, monitor, step=100)
    >>> result.broken, result.total < 8 * 30_000, float(result.errors("skew").max()) < 0.3
    ([], True, True)
    """
    for name, value, least in (("step", step, 1), ("delay", delay, 0), ("look", look, 1), ("warm", warm, 0)):
        check_integer(name, value, least)
    if not 0 <= loss < 1:
        raise ParameterError(
            f"loss={loss!r} is out of range", remedy="give the share of messages that is lost, from 0 to below 1"
        )
    if not isinstance(events, Mapping):
        raise InputError(
            f"events are a {type(events).__name__}", remedy="give simulate() a dict of columns first, then the monitor"
        )
    columns = _columns(events)
    places = columns["site"]
    numbers = np.unique(places).tolist()
    result = Simulation(monitor, events=places.size - warm)
    carrier = _Carrier(delay, loss, seed, result)
    sites = {number: monitor.site(number) for number in numbers}
    coordinator = monitor.coordinator(numbers)
    clock = 0

    def deliver() -> None:
        while (arrival := carrier.arrived(clock)) is not None:
            up, message = arrival
            if up:
                carrier.send(coordinator.receive(message), False, clock)
            else:
                carrier.send(sites[message.site].receive(message), True, clock)

    def settle() -> None:
        nonlocal clock
        deliver()
        if hasattr(coordinator, "look"):
            carrier.send(coordinator.look(list(sites.values())), False, clock)
            deliver()
        clock += 1

    if warm:
        for number, rows in _by_site(places[:warm]):
            for batch in _batches(columns, rows):
                for message in sites[number].warm(**batch):
                    coordinator.receive(message)
    for site in sites.values():
        carrier.send(site.join(), True, clock)
    deliver()
    for start in range(warm, places.size, step):
        stop = min(start + step, places.size)
        for number, rows in _by_site(places[start:stop]):
            for batch in _batches(columns, rows + start):
                carrier.send(sites[number].update(**batch), True, clock)
            if step == 1:
                deliver()
        if "time" in columns:
            now = columns["time"][stop - 1]
            for site in sites.values():
                carrier.send(site.advance(now), True, clock)
        settle()
        if ((start - warm) // step) % look == 0 or stop == places.size:
            _compare(result, stop, coordinator.announcements(), monitor.truth(list(sites.values())), carrier.flying)
    while carrier.flying:
        settle()
    _compare(result, places.size, coordinator.announcements(), monitor.truth(list(sites.values())), 0)
    result.synchronisations = Counter(getattr(coordinator, "synchronisations", {}))
    return result


def _columns(events: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(events) - {"key", "site", "time", "count", "stream"}
    missing = {"key", "site"} - set(events)
    if unknown or missing:
        raise InputError(
            f"events have the columns {sorted(events)}", remedy="give key and site, and optionally time, count and stream"
        )
    columns = {name: column if hasattr(column, "__getitem__") else list(column) for name, column in events.items()}
    places = columns["site"] = whole_numbers(columns["site"], "site")
    sizes = {name: len(key_column(column)) if name == "key" else len(column) for name, column in columns.items()}
    if len(set(sizes.values())) != 1 or not places.size:
        raise InputError(
            f"the columns have the sizes {sizes}", remedy="give every event a value in each, and at least one event"
        )
    for name in ("key", "time", "count", "stream"):
        if name in columns and not isinstance(columns[name], np.ndarray):
            is_tuples = isinstance(columns[name], list) and isinstance(columns[name][0], tuple)
            columns[name] = _objects(columns[name]) if is_tuples else np.asarray(columns[name])
    if "time" in columns and np.any(columns["time"][1:] < columns["time"][:-1]):
        raise InputError("the times are not in order", remedy="sort the events by time first")
    return columns


def _objects(values: list[Any]) -> Any:
    """An object array of tuples, of which NumPy would otherwise make a two-dimensional array."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _by_site(places: Ints) -> Any:
    order = np.argsort(places, kind="stable")
    present, starts = np.unique(places[order], return_index=True)
    return zip(present.tolist(), np.split(order, starts[1:]), strict=True)


def _batches(columns: Mapping[str, Any], rows: Ints) -> Any:
    """The batches of a site in a step: one for each run of events of the same stream."""
    runs = [rows]
    if "stream" in columns:
        names = columns["stream"][rows]
        runs = np.split(rows, 1 + np.flatnonzero(names[1:] != names[:-1]))
    for run in runs:
        batch = {"keys": columns["key"][run]}
        if "time" in columns:
            batch["times"] = columns["time"][run]
        if "count" in columns:
            batch["counts"] = columns["count"][run]
        if "stream" in columns:
            batch["stream"] = str(columns["stream"][run[0]])
        yield batch


def _compare(
    result: Simulation, event: int, announced: Mapping[str, Announcement], truth: Mapping[str, float], flying: int
) -> None:
    for name, announcement in announced.items():
        entry = (event, name, announcement, truth[name], flying)
        result.history.append(entry)
        if not announcement.tolerates(truth[name]) and not flying:
            result.broken.append(entry)
