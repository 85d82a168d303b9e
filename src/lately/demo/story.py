"""What happens in the demo, and when: a crowd that comes for one page, then an attack on the login of all sites at once."""

from dataclasses import dataclass

from lately.core.errors import ParameterError

#: The least that a demo needs, so that the attack can be told from the calm before it.
SHORTEST = 20


@dataclass(frozen=True)
class Story:
    """Seconds at which things begin and how long they take; all of it again after ``period``, if there is one."""

    crowd: int = 30
    crowd_lasts: int = 35
    attack: int = 85
    attack_lasts: int = 40
    period: int | None = 240

    @classmethod
    def of(cls, seconds: int | None) -> "Story":
        """The story that fits into so many seconds; without an end, the one that is told every four minutes.

        >>> Story.of(60)
        Story(crowd=12, crowd_lasts=15, attack=33, attack_lasts=27, period=None)
        """
        if seconds is None:
            return cls()
        if seconds < SHORTEST:
            raise ParameterError(f"{seconds} seconds are too short for the demo; give {SHORTEST} at the least")
        attack = seconds * 11 // 20
        return cls(seconds // 5, seconds // 4, attack, seconds - attack, None)

    def crowd_at(self, second: float) -> float:
        """How much of the crowd is there: from 0 to 1, coming within some seconds and leaving more slowly.

        >>> [Story().crowd_at(second) for second in (29, 32, 40, 64, 100)]
        [0.0, 0.5, 1.0, 0.25, 0.0]
        """
        since = self._round(second) - self.crowd
        return max(0.0, min(1.0, since / 4, (self.crowd_lasts - since) / 4))

    def attack_at(self, second: float) -> bool:
        """Whether the attack is on.

        >>> [Story().attack_at(second) for second in (84, 85, 124, 125, 240 + 85)]
        [False, True, True, False, True]
        """
        return 0 <= self._round(second) - self.attack < self.attack_lasts

    def attack_before(self, second: float) -> int | None:
        """The second in which the newest attack began, if there was one.

        >>> [Story().attack_before(second) for second in (84, 90, 300, 330)]
        [None, 85, 85, 325]
        """
        began = self.attack + (0 if self.period is None else int(second) // self.period * self.period)
        if began > second and self.period is not None:
            began -= self.period
        return began if self.attack <= began <= second else None

    def chapter(self, second: float) -> str:
        """What is going on, in a word or two."""
        if self.attack_at(second):
            return "attack on the login"
        return "a crowd comes" if self.crowd_at(second) > 0 else "calm"

    def _round(self, second: float) -> float:
        return second if self.period is None else second % self.period
