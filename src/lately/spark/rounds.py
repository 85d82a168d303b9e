"""Monitors as rounds: a batch is one, and what the protocol asks for after it is carried before the next batch.

Sites stay on the executors and the coordinator on the driver; what travels between them is the monitor's own messages, which
are counted. Sites that are spoken to are woken in a job of their own, and only those. A site that was silent for a whole
batch is moved on to the newest time of the others, less the lateness that they are allowed, so that its windows age.
"""

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lately.core.errors import LatelyError
from lately.core.times import instant_of
from lately.monitor.announcement import Announcement
from lately.monitor.coordinator import Coordinator
from lately.monitor.messages import Message, decode
from lately.pipeline.plan import MonitorSpec, PipelinePlan
from lately.pipeline.site_assignment import site_number
from lately.pipeline.state_versions import Place, StateVersion, StateVersions, packed, unpacked
from lately.pipeline.task_report import REPORT, TaskReport
from lately.spark.ask import as_text
from lately.spark.sites import load_sites, remember

#: Exchanges after one batch; a protocol that needs more than this has a fault.
_MOST = 1000

Row = dict[str, Any]


@dataclass
class Call:
    """What a site is told: messages, and the time up to which it may age."""

    messages: list[str] = field(default_factory=list)
    advance: int | None = None


@dataclass
class Round:
    """What rounds have come to: the state after them, what to tell the world, and the bytes that were carried."""

    version: StateVersion
    alerts: list[Row] = field(default_factory=list)
    answers: list[Row] = field(default_factory=list)
    carried: int = 0


def settle(
    plan: PipelinePlan, versions: StateVersions, version: StateVersion, grown: Sequence[TaskReport], spark: SparkSession
) -> Round:
    """Carry messages between sites and coordinators until all is said."""
    done = Round(version)
    coordinators = {}
    for thing in plan.monitors:
        said = [decode(base64.b64decode(text)) for one in grown for text in one.messages.get(thing.name, [])]
        spoke = {site for one in grown for site, places in one.places.items() if thing.name in places}
        coordinator = _coordinator(thing, versions, version, spoke)
        if coordinator is not None:
            coordinators[thing.name] = _exchange(plan, thing, versions, coordinator, (said, spoke), done, spark)
            _tell(thing, coordinator, done)
    if coordinators:
        part, at = versions.write_part(version.batch, [one.to_bytes() for one in coordinators.values()])
        done.version.parts[part] = sum(length for _, length in at)
        done.version.coordinators.update({name: (part, *where) for name, where in zip(coordinators, at, strict=True)})
    return done


def _coordinator(thing: MonitorSpec, versions: StateVersions, version: StateVersion, spoke: set[str]) -> Coordinator | None:
    """The coordinator as it was, or a new one that begins with the sites that are here."""
    place = version.coordinators.get(thing.name)
    if place is not None:
        restored = thing.monitor.restore(versions.blobs([place])[place], limit=2**63)
        assert isinstance(restored, Coordinator)
        return restored
    return thing.monitor.coordinator(sorted(site_number(site) for site in spoke)) if spoke else None


def _exchange(
    plan: PipelinePlan,
    thing: MonitorSpec,
    versions: StateVersions,
    coordinator: Coordinator,
    heard: tuple[list[Message], set[str]],
    done: Round,
    spark: SparkSession,
) -> Coordinator:
    said, spoke = heard
    names = _names(done.version, thing.name)
    now = done.version.now
    assert now is not None
    calls = {site: Call(advance=now - plan.lateness) for site in names.values() if site not in spoke}
    for _ in range(_MOST):
        # The order in which tasks end is nobody's; replies must not depend on it.
        said.sort(key=lambda one: (one.site, one.sequence))
        done.carried += sum(message.nbytes for message in said)
        for reply in coordinator.receive_all(said):
            content = reply.to_bytes()
            done.carried += len(content)
            calls.setdefault(names[reply.site], Call()).messages.append(as_text(content))
        if not calls:
            return coordinator
        said = _wake(plan, thing, versions, calls, done.version, spark)
        calls = {}
    raise LatelyError(f"the monitor {thing.settings.name!r} did not come to rest in {_MOST} exchanges; please report it")


def _names(version: StateVersion, name: str) -> dict[int, str]:
    """The sites of a monitor by their numbers."""
    names: dict[int, str] = {}
    for site, places in version.places.items():
        if name in places and (other := names.setdefault(site_number(site), site)) != site:
            raise LatelyError(f"the sites {site!r} and {other!r} have the same number in monitors; rename one of them")
    return names


def _wake(
    plan: PipelinePlan,
    thing: MonitorSpec,
    versions: StateVersions,
    calls: dict[str, Call],
    version: StateVersion,
    spark: SparkSession,
) -> list[Message]:
    """Run the sites that are spoken to; their new state goes into the version."""
    sites = sorted(calls)
    tasks = min(spark.sparkContext.defaultParallelism, len(sites))
    chunks = [packed([(site, calls[site], version.places[site][thing.name]) for site in sites[i::tasks]]) for i in range(tasks)]
    job = _wake_job(plan, thing, (versions.path, version.batch), chunks)
    reports = [TaskReport.read(bytes(row.report)) for row in spark.range(0, tasks, 1, tasks).mapInArrow(job, REPORT).collect()]
    said: list[Message] = []
    for one in reports:
        assert one.part is not None
        version.parts[one.part[0]] = one.part[1]
        for site, places in one.places.items():
            # A version may share what it knows of a site with the one before it.
            version.places[site] = {**version.places[site], **{name: tuple(at) for name, at in places.items()}}
        said += [decode(base64.b64decode(text)) for text in one.messages[thing.name]]
    return said


def _wake_job(
    plan: PipelinePlan, thing: MonitorSpec, state: tuple[str, int], chunks: list[bytes]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _woken(plan, thing, state, unpacked(chunks[number])).to_batch()

    return run


def _woken(plan: PipelinePlan, thing: MonitorSpec, state: tuple[str, int], calls: list[tuple[str, Call, Place]]) -> TaskReport:
    versions, done, sites = StateVersions(state[0]), TaskReport(messages={thing.name: []}), []
    known = load_sites(versions, [thing], {name: {thing.name: place} for name, _, place in calls}, take=True)
    for name, call, _ in calls:
        site = known[name][thing.name]
        said = [reply for text in call.messages for reply in site.receive(decode(base64.b64decode(text)))]
        if call.advance is not None:
            said += site.advance(instant_of(call.advance, plan.window))
        done.messages[thing.name] += [as_text(message.to_bytes()) for message in said]
        sites.append(site)
    part, at = versions.write_part(state[1], [site.to_bytes() for site in sites])
    done.part = part, sum(length for _, length in at)
    for (name, _, _), site, where in zip(calls, sites, at, strict=True):
        done.places[name] = {thing.name: (part, *where)}
        remember((part, *where), site)
    return done


def _tell(thing: MonitorSpec, coordinator: Coordinator, done: Round) -> None:
    """Alerts for what has passed the line since the last batch, in either direction; and what is announced now."""
    watch, said = thing.settings, coordinator[thing.settings.name]
    shown: dict[str | None, Any] = {}
    confidence = 1 - watch.delta
    if isinstance(said, Announcement):
        raised, confidence = [""] if said.alarm else [], said.confidence
        if not math.isnan(said.value):
            shown[None] = (said.value, said.low, said.high)
    else:
        raised = [str(key) for key in said.counts]
        # How many arrivals there are to collide with a key nobody has said, so that little is sure of its own.
        shown = {str(key): (float(count), 0.0, math.inf) for key, count in said.counts.items()}
    before = done.version.raised.get(watch.name, [])
    for item in [*(one for one in raised if one not in before), *(one for one in before if one not in raised)]:
        value, low, high = shown.get(item or None, (None, None, None))
        done.alerts.append(
            {"monitor": watch.name, "item": item or None, "raised": item in raised, "value": value, "low": low, "high": high}
            | {"confidence": confidence}
        )
    done.version.raised[watch.name] = raised
    for key, (value, low, high) in shown.items():
        row = {"query": watch.name, "site": None, "item": key, "value": value, "low": low, "high": high}
        done.answers.append(row | {"confidence": confidence})
