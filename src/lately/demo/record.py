"""What a demo remembers of itself: answers, alarms and bytes; in the end they are held against the truth."""

from collections import deque
from typing import Any

from lately.config import Config
from lately.core.words import with_state
from lately.demo.asks import FLOOD, FLOOD_SECONDS
from lately.demo.story import Story
from lately.demo.truth import Truth, allowed, checked
from lately.spark.pipeline import Done
from lately.store import Store

#: Batches whose answers are checked in the end; a demo may run for days.
_CHECKED = 20
#: The least that a row takes which is sent: the hash of its key.
_HASH = 8


class Record:
    """Grows with every batch."""

    def __init__(self, config: Config, seed: int, story: Story) -> None:
        self._config, self._seed, self._story = config, seed, story
        self._answers: deque[tuple[int, list[dict[str, Any]]]] = deque(maxlen=_CHECKED)
        #: Alarms with the second of the stream that they are about (at) and in which they were told (told).
        self.alarms: deque[dict[str, Any]] = deque(maxlen=1000)
        #: The second that the newest batch came to.
        self.second = -1
        self._totals = {"batches": 0, "rows": 0, "late": 0, "rejected": 0}

    def take(self, done: Done, second: int, clock: float) -> None:
        """A batch is done, which came to a second of the stream; ``clock`` is which one it is now."""
        self.second = second
        self._totals["batches"] += 1
        for name in ("rows", "late", "rejected"):
            self._totals[name] += getattr(done, name)
        self._answers.append((second, done.answers))
        for row in done.alerts:
            kept = with_state({name: row[name] for name in ("monitor", "item", "raised", "value")})
            self.alarms.append(kept | {"at": second, "told": round(clock, 1)})

    def delay(self) -> float | None:
        """Seconds from the beginning of the newest attack to its alarm; None if there was no alarm yet."""
        began = self._story.attack_before(self.second)
        told = [row["told"] for row in self.alarms if row["monitor"] == FLOOD and row["raised"]]
        after = [moment - began for moment in told if began is not None and moment >= began]
        return min(after) if after else None

    def false_alarms(self) -> int:
        """How often the flood was told while there was none."""
        floods = [row for row in self.alarms if row["monitor"] == FLOOD and row["raised"]]
        return sum(not any(self._story.attack_at(row["at"] - since) for since in (0, FLOOD_SECONDS)) for row in floods)

    def missed(self) -> bool:
        """Whether there was an attack, and no alarm when there was time for it."""
        began = self._story.attack_before(self.second)
        early = self._story.period is not None and began is not None and self.second - began < FLOOD_SECONDS
        return began is not None and not early and self.delay() is None

    def summary(self, store: Store) -> dict[str, Any]:
        """What it came to, as JSON can hold it; ``ok`` if bounds were kept as promised and the alarm came, once and rightly."""
        truth = Truth(self._config, self._seed, self._story)
        batches = [checked(truth, answers, second) for second, answers in self._answers]
        answers = [row for batch in batches for row in batch]
        broken, most = sum(not row["held"] for row in answers), allowed(answers)
        delay = self.delay()
        runs = store.read("runs").to_pydict()  # of a long demo the last minutes, which is what the store keeps
        # Counted once. The table has it for each monitor, and two of them would make twice as much of the same rows.
        sent = {"answers": sum(runs["shipped_bytes"]), "monitors": sum(runs["monitor_bytes"])}
        sent["every_row"] = _HASH * sum(runs["rows"])
        return {
            "ok": bool(answers) and broken <= most and self.false_alarms() == 0 and not self.missed(),
            "seconds": self.second + 1,
            **self._totals,
            "answers": {"checked": len(answers), "broken": broken, "allowed": most},
            "alarm": {
                "attack": self._story.attack_before(self.second),
                "delay": None if delay is None else round(delay, 1),
                "false": self.false_alarms(),
            },
            "alarms": list(self.alarms),
            "bytes": sent,
            "memory": {"state": runs["state_bytes"][-1] if runs["state_bytes"] else 0, "rows": truth.nbytes(self.second)},
            "last": [_plain(row) for row in (batches[-1] if batches else [])],
        }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """An answer as JSON can hold it."""
    names = ("query", "site", "item", "exact", "value", "low", "high", "confidence", "held")
    return {name: None if row[name] in (float("inf"), -float("inf")) else row[name] for name in names}
