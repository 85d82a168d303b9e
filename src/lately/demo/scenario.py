"""What happens in the demo, and when: a rush of visitors to one page, then an attack on the login page at all sites at once."""

from dataclasses import dataclass

from lately.core.errors import ParameterError

#: The shortest demo, in seconds: the attack needs normal traffic before it to stand out from.
SHORTEST = 20


@dataclass(frozen=True)
class Scenario:
    """The seconds at which the events begin, and how long they take.

    Parameters
    ----------
    rush
        The second in which the rush begins.
    rush_seconds
        How long it takes.
    attack
        The second in which the attack begins.
    attack_seconds
        How long it takes.
    period
        Seconds after which everything repeats; None for never.
    """

    rush: int = 30
    rush_seconds: int = 35
    attack: int = 85
    attack_seconds: int = 40
    period: int | None = 240

    @classmethod
    def of(cls, seconds: int | None) -> "Scenario":
        """The scenario of a demo of this many seconds; None: of a demo without an end, which repeats every four minutes.

        >>> Scenario.of(60)
        Scenario(rush=12, rush_seconds=15, attack=33, attack_seconds=27, period=None)
        """
        if seconds is None:
            return cls()
        if seconds < SHORTEST:
            raise ParameterError(f"{seconds} seconds are too short for the demo", remedy=f"give at least {SHORTEST}")
        attack = seconds * 11 // 20
        return cls(seconds // 5, seconds // 4, attack, seconds - attack, None)

    def rush_at(self, second: float) -> float:
        """The strength of the rush, from 0 to 1: it rises and falls within four seconds.

        >>> [Scenario().rush_at(second) for second in (29, 32, 40, 64, 100)]
        [0.0, 0.5, 1.0, 0.25, 0.0]
        """
        since = self._in_period(second) - self.rush
        return max(0.0, min(1.0, since / 4, (self.rush_seconds - since) / 4))

    def attack_at(self, second: float) -> bool:
        """Whether the attack is under way.

        >>> [Scenario().attack_at(second) for second in (84, 85, 124, 125, 240 + 85)]
        [False, True, True, False, True]
        """
        return 0 <= self._in_period(second) - self.attack < self.attack_seconds

    def newest_attack(self, second: float) -> int | None:
        """The second in which the newest attack began; None before the first.

        >>> [Scenario().newest_attack(second) for second in (84, 90, 300, 330)]
        [None, 85, 85, 325]
        """
        start = self.attack + (0 if self.period is None else int(second) // self.period * self.period)
        if start > second and self.period is not None:
            start -= self.period
        return start if self.attack <= start <= second else None

    def phase(self, second: float) -> str:
        """What is under way, in a few words."""
        if self.attack_at(second):
            return "attack on the login page"
        return "rush to one page" if self.rush_at(second) > 0 else "normal traffic"

    def _in_period(self, second: float) -> float:
        return second if self.period is None else second % self.period
