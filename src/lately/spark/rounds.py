"""Runs monitors: after each batch, messages go back and forth between sites and coordinators until none is left.

Sites are on the executors and coordinators on the driver. Only the monitor's own messages travel between them; their bytes are
counted. Sites that get a message run in a job of their own, and only those. A site without rows in a batch is advanced to the
newest time of all sites minus the allowed lateness, so that its windows expire.
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
from lately.pipeline.state_versions import Place, StateVersion, StateVersions
from lately.pipeline.task_payload import packed, unpacked
from lately.pipeline.task_report import REPORT, TaskReport
from lately.spark.partial_answers import Row, as_text
from lately.spark.sites import load_sites, remember

#: Messages are exchanged this often after one batch at most; a protocol that needs more has a bug.
_MAX_EXCHANGES = 1000


@dataclass
class Call:
    """What a site gets from the coordinator.

    Parameters
    ----------
    messages
        Messages, as text.
    advance
        The tick to advance the site to; None to leave its time as it is.
    """

    messages: list[str] = field(default_factory=list)
    advance: int | None = None


@dataclass
class Round:
    """The result of all exchanges after a batch.

    Parameters
    ----------
    version
        The version of the state, which now includes the new state of sites and coordinators.
    alerts, answers
        Rows of these tables, without batch and time.
    message_bytes
        The bytes of all messages.
    """

    version: StateVersion
    alerts: list[Row] = field(default_factory=list)
    answers: list[Row] = field(default_factory=list)
    message_bytes: int = 0


def settle(
    plan: PipelinePlan, versions: StateVersions, version: StateVersion, reports: Sequence[TaskReport], spark: SparkSession
) -> Round:
    """Exchange the messages of all monitors until none is left.

    Parameters
    ----------
    plan
        The pipeline.
    versions
        The state.
    version
        The version after the tasks; it is changed.
    reports
        The reports of the tasks, with the messages of sites.
    spark
        The session.
    """
    result = Round(version)
    coordinators = {}
    for spec in plan.monitors:
        messages = [_decode(text) for report in reports for text in report.messages.get(spec.name, [])]
        updated = {site for report in reports for site, places in report.places.items() if spec.name in places}
        coordinator = _coordinator(spec, versions, version, updated)
        if coordinator is not None:
            _Exchange(plan, spec, versions, spark, result).run(coordinator, messages, updated)
            coordinators[spec.name] = coordinator
            _add_rows(spec, coordinator, result)
    if coordinators:
        blobs = [coordinator.to_bytes() for coordinator in coordinators.values()]
        part, ranges = versions.write_part(version.batch, blobs)
        version.parts[part] = sum(length for _, length in ranges)
        version.coordinators.update({name: (part, *where) for name, where in zip(coordinators, ranges, strict=True)})
    return result


def _decode(text: str) -> Message:
    message: Message = decode(base64.b64decode(text))
    return message


def _coordinator(spec: MonitorSpec, versions: StateVersions, version: StateVersion, updated: set[str]) -> Coordinator | None:
    """Return the coordinator from the state, or a new one for the sites that had rows; None if there are none."""
    place = version.coordinators.get(spec.name)
    if place is not None:
        restored = spec.monitor.restore(versions.blobs([place])[place], limit=2**63)
        assert isinstance(restored, Coordinator)
        return restored
    return spec.monitor.coordinator(sorted(site_number(site) for site in updated)) if updated else None


@dataclass(frozen=True)
class _Exchange:
    """Exchanges the messages of one monitor."""

    plan: PipelinePlan
    spec: MonitorSpec
    versions: StateVersions
    spark: SparkSession
    result: Round

    def run(self, coordinator: Coordinator, messages: list[Message], updated: set[str]) -> None:
        """Deliver messages in both directions until there are none, beginning with those of sites that had rows."""
        version = self.result.version
        names = _names(version, self.spec.name)
        assert version.now is not None
        floor = version.now - self.plan.lateness
        calls = {site: Call(advance=floor) for site in names.values() if site not in updated}
        for _ in range(_MAX_EXCHANGES):
            # Tasks end in any order, but replies must not depend on it.
            messages.sort(key=lambda message: (message.site, message.sequence))
            self.result.message_bytes += sum(message.nbytes for message in messages)
            for reply in coordinator.receive_all(messages):
                content = reply.to_bytes()
                self.result.message_bytes += len(content)
                calls.setdefault(names[reply.site], Call()).messages.append(as_text(content))
            if not calls:
                return
            messages = self._deliver(calls)
            calls = {}
        raise LatelyError(
            f"the monitor {self.spec.settings.name!r} still had messages after {_MAX_EXCHANGES} exchanges",
            remedy="please report it",
        )

    def _deliver(self, calls: dict[str, Call]) -> list[Message]:
        """Run the sites of these calls, note their new state in the version, and return their messages."""
        spec, version = self.spec, self.result.version
        sites = sorted(calls)
        tasks = min(self.spark.sparkContext.defaultParallelism, len(sites))
        chunks = [
            packed([(site, calls[site], version.places[site][spec.name]) for site in sites[i::tasks]]) for i in range(tasks)
        ]
        job = _deliver_job(self.plan, spec, (self.versions.path, version.batch), chunks)
        cells = self.spark.range(0, tasks, 1, tasks).mapInArrow(job, REPORT).collect()
        messages: list[Message] = []
        for report in (TaskReport.read(bytes(row.report)) for row in cells):
            assert report.part is not None
            version.parts[report.part[0]] = report.part[1]
            for site, places in report.places.items():
                # The places of a site may be shared with the previous version, so they are replaced and not changed.
                version.places[site] = {**version.places[site], **{name: tuple(place) for name, place in places.items()}}
            messages += [_decode(text) for text in report.messages[spec.name]]
        return messages


def _names(version: StateVersion, name: str) -> dict[int, str]:
    """Return the names of a monitor's sites by their numbers."""
    names: dict[int, str] = {}
    for site, places in version.places.items():
        if name in places and (other := names.setdefault(site_number(site), site)) != site:
            raise LatelyError(f"the sites {site!r} and {other!r} have the same number in monitors", remedy="rename one of them")
    return names


def _deliver_job(
    plan: PipelinePlan, spec: MonitorSpec, state: tuple[str, int], chunks: list[bytes]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _run_sites(plan, spec, state, unpacked(chunks[number])).to_batch()

    return run


def _run_sites(
    plan: PipelinePlan, spec: MonitorSpec, state: tuple[str, int], calls: list[tuple[str, Call, Place]]
) -> TaskReport:
    """Deliver calls to sites and write their new state, on an executor. ``state`` is its directory and the batch."""
    versions, report, sites = StateVersions(state[0]), TaskReport(messages={spec.name: []}), []
    loaded = load_sites(versions, [spec], {name: {spec.name: place} for name, _, place in calls}, take=True)
    for name, call, _ in calls:
        site = loaded[name][spec.name]
        replies = [reply for text in call.messages for reply in site.receive(_decode(text))]
        if call.advance is not None:
            replies += site.advance(instant_of(call.advance, plan.window))
        report.messages[spec.name] += [as_text(message.to_bytes()) for message in replies]
        sites.append(site)
    part, ranges = versions.write_part(state[1], [site.to_bytes() for site in sites])
    report.part = part, sum(length for _, length in ranges)
    for (name, _, _), site, (offset, length) in zip(calls, sites, ranges, strict=True):
        report.places[name] = {spec.name: (part, offset, length)}
        remember((part, offset, length), site)
    return report


def _add_rows(spec: MonitorSpec, coordinator: Coordinator, result: Round) -> None:
    """Add an alert for everything that has crossed the threshold since the last batch, and the current answers."""
    settings, announced = spec.settings, coordinator[spec.settings.name]
    answers: dict[str | None, Any] = {}
    confidence = 1 - settings.delta
    if isinstance(announced, Announcement):
        firing, confidence = [""] if announced.alarm else [], announced.confidence
        if not math.isnan(announced.value):
            answers[None] = (announced.value, announced.low, announced.high)
    else:
        firing = [str(key) for key in announced.counts]
        # How many other arrivals may share the cells of a key is not reported, so only trivial bounds are certain.
        answers = {str(key): (float(count), 0.0, math.inf) for key, count in announced.counts.items()}
    before = result.version.firing.get(settings.name, [])
    changed = [*(item for item in firing if item not in before), *(item for item in before if item not in firing)]
    for item in changed:
        value, low, high = answers.get(item or None, (None, None, None))
        state = "firing" if item in firing else "resolved"
        alert = {"monitor": settings.name, "item": item or None, "state": state, "value": value, "low": low}
        result.alerts.append(alert | {"high": high, "confidence": confidence})
    result.version.firing[settings.name] = firing
    for key, (value, low, high) in answers.items():
        row = {"query": settings.name, "site": None, "item": key, "value": value, "low": low, "high": high}
        result.answers.append(row | {"confidence": confidence})
