"""What a batch of a pipeline has done, for those who follow a run."""

from dataclasses import dataclass, field

from lately.store.tables import Alert, Answer, Time


@dataclass(frozen=True)
class BatchReport:
    """What a batch has done.

    Parameters
    ----------
    batch
        Its number.
    time
        The newest time of all sites; None if no row has counted so far.
    rows
        Rows that the source returned.
    counted
        Rows that are in the state.
    late
        Rows that were too late to be counted.
    rejected
        Rows that cannot be counted.
    sites
        Sites that the state has.
    seconds
        How long the batch took.
    state_bytes
        The size of the state.
    answers
        The rows that the batch wrote to the table ``answers``.
    alerts
        The rows that the batch wrote to the table ``alerts``.
    reasons
        Rejected rows by reason. Rare reasons may be added up under one name.
    """

    batch: int
    time: Time | None
    rows: int
    counted: int
    late: int
    rejected: int
    sites: int
    seconds: float
    state_bytes: int
    answers: list[Answer]
    alerts: list[Alert]
    reasons: dict[str, int] = field(default_factory=dict)
