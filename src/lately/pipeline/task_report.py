"""What a task of a batch reports to the driver, as JSON in the one cell that it returns."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

#: The schema of ``TaskReport.to_batch``, as a DDL string.
REPORT = "report binary"


@dataclass
class TaskReport:
    """What a task has done with its part of a batch; filled in while the task runs.

    Parameters
    ----------
    rows
        Rows that it was given.
    counted
        Rows that are in the state now.
    late
        Rows that were late; they are in the table ``late``.
    rejected
        Rows that cannot be counted; they are in the table ``rejected``.
    everything
        What the counted rows would take if they were stored as they are, in bytes.
    part
        The part of the state that it has written, and the bytes in it; None if nothing has changed.
    clocks
        The newest tick of each site.
    sites
        For each site: rows counted, late, rejected, ahead; and the longest gap between its rows that is known, in ticks.
    reasons
        Rejected rows by reason.
    ahead
        For each site with rows too far ahead: from which time on its rows were rejected, in the units of the source.
    places
        For each site: where its blobs are, by the name of their spec.
    messages
        For each monitor: the messages of its sites, as text.
    now
        The newest tick that the task knew of; None if it has answered nothing.
    partial_answers
        The partial answers of its sites at that tick.
    """

    rows: int = 0
    counted: int = 0
    late: int = 0
    rejected: int = 0
    everything: int = 0
    part: tuple[str, int] | None = None
    clocks: dict[str, int] = field(default_factory=dict)
    sites: dict[str, list[float]] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    ahead: dict[str, int] = field(default_factory=dict)
    places: dict[str, dict[str, Any]] = field(default_factory=dict)
    messages: dict[str, list[str]] = field(default_factory=dict)
    now: int | None = None
    partial_answers: dict[str, Any] = field(default_factory=dict)

    def to_batch(self) -> pa.RecordBatch:
        """Return the report as a batch of one row, which is what a task of Spark may return."""
        return pa.record_batch([pa.array([json.dumps(self.__dict__).encode()], pa.binary())], names=["report"])

    @classmethod
    def read(cls, report: bytes) -> "TaskReport":
        """Read the cell of ``to_batch``."""
        return cls(**json.loads(report))


def all_reasons(reports: Iterable[TaskReport]) -> dict[str, int]:
    """Add up the rejected rows of all tasks by reason, most frequent first.

    >>> all_reasons([TaskReport(reasons={"no key": 1, "no time": 2}), TaskReport(reasons={"no key": 3})])
    {'no key': 4, 'no time': 2}
    """
    total: Counter[str] = Counter()
    for report in reports:
        total.update(report.reasons)
    return dict(total.most_common())
