"""What a demo records of itself: answers, alerts and bytes. At the end they are compared with the exact values."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from lately.config import Config
from lately.core.json_encoding import to_json
from lately.demo.pipeline_file import FLOOD, FLOOD_SECONDS
from lately.demo.scenario import Scenario
from lately.demo.truth import Truth, allowed_misses, checked
from lately.pipeline.batch_report import BatchReport
from lately.store import Store
from lately.store.tables import AlertState, Answer

#: The newest batches, whose answers are checked at the end; a demo may run for days.
_CHECKED_BATCHES = 20
#: The newest alerts that are kept.
_MAX_ALERTS = 1000
#: The fewest bytes by which a row can be sent: the hash of its key.
_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class RecordedAlert:
    """An alert of the demo.

    Parameters
    ----------
    monitor, item, state, value
        As in ``lately.store.tables.Alert``.
    second
        The second of the stream that it is about.
    clock
        The second of the stream in which it came.
    """

    monitor: str
    item: str | None
    state: AlertState
    value: float | None
    second: int
    clock: float


class Record:
    """Collects the results of the batches of a demo.

    Parameters
    ----------
    config
        The pipeline.
    seed, scenario
        Those of the traffic.
    """

    def __init__(self, config: Config, seed: int, scenario: Scenario) -> None:
        self._config, self._seed, self._scenario = config, seed, scenario
        self._answers: deque[tuple[int, list[Answer]]] = deque(maxlen=_CHECKED_BATCHES)
        self.alerts: deque[RecordedAlert] = deque(maxlen=_MAX_ALERTS)
        #: The newest second of the stream that the newest batch has read; -1 before the first batch.
        self.second = -1
        self._totals = {"batches": 0, "rows": 0, "late": 0, "rejected": 0}

    def add_batch(self, report: BatchReport, second: int, clock: float) -> None:
        """Record a batch.

        Parameters
        ----------
        report
            The batch.
        second
            The newest second of the stream that it has read.
        clock
            The second of the stream that it is now.
        """
        self.second = second
        self._totals["batches"] += 1
        for name in ("rows", "late", "rejected"):
            self._totals[name] += getattr(report, name)
        self._answers.append((second, report.answers))
        for row in report.alerts:
            self.alerts.append(RecordedAlert(row.monitor, row.item, row.state, row.value, second, round(clock, 1)))

    def detection_delay(self) -> float | None:
        """Seconds from the start of the newest attack to its alert; None if there was no attack or no alert yet."""
        start = self._scenario.newest_attack(self.second)
        if start is None:
            return None
        return min((row.clock - start for row in self._firing_floods() if row.clock >= start), default=None)

    def false_alerts(self) -> int:
        """How often the flood monitor fired without an attack in its range."""
        ages = (0, FLOOD_SECONDS)
        return sum(not any(self._scenario.attack_at(row.second - age) for age in ages) for row in self._firing_floods())

    def missed_attack(self) -> bool:
        """Whether there was an attack without an alert, and time enough for one."""
        start = self._scenario.newest_attack(self.second)
        if start is None:
            return False
        too_early = self._scenario.period is not None and self.second - start < FLOOD_SECONDS
        return not too_early and self.detection_delay() is None

    def _firing_floods(self) -> list[RecordedAlert]:
        return [row for row in self.alerts if row.monitor == FLOOD and row.state == "firing"]

    def summary(self, store: Store) -> dict[str, Any]:
        """The results as JSON can represent them.

        ``ok`` is true if the answers' bounds hold as often as promised, and the attack was detected without false alerts.
        """
        truth = Truth(self._config, self._seed, self._scenario)
        batches = [checked(truth, answers, second) for second, answers in self._answers]
        answers = [row for batch in batches for row in batch]
        misses, allowed = sum(not row.within_bounds for row in answers), allowed_misses(row.confidence for row in answers)
        delay = self.detection_delay()
        runs = store.read("runs").to_pydict()  # of a long demo only its last minutes, which is what the store keeps
        sent = {"answers": sum(runs["shipped_bytes"]), "monitors": sum(runs["monitor_bytes"])}
        # Of the table's everything_bytes each monitor would add the same rows again, so rows are counted here.
        sent["every_row"] = _HASH_BYTES * sum(runs["rows"])
        return {
            "ok": bool(answers) and misses <= allowed and self.false_alerts() == 0 and not self.missed_attack(),
            "seconds": self.second + 1,
            **self._totals,
            "answers": {"checked": len(answers), "misses": misses, "allowed_misses": allowed},
            "detection": {
                "attack": self._scenario.newest_attack(self.second),
                "delay": None if delay is None else round(delay, 1),
                "false_alerts": self.false_alerts(),
            },
            "alerts": to_json(list(self.alerts)),
            "bytes": sent,
            "memory": {"state": runs["state_bytes"][-1] if runs["state_bytes"] else 0, "rows": truth.nbytes(self.second)},
            "last": to_json(batches[-1] if batches else []),
        }
