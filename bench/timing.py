"""Timing on a machine that others use too: contestants take turns, and each one's best turn counts."""

from collections.abc import Callable
from time import perf_counter

Contestants = dict[str, Callable[[], Callable[[], object]]]


def race(rounds: int, contestants: Contestants) -> dict[str, float]:
    """The best time of each contestant, in seconds."""
    return {name: min(seconds) for name, seconds in laps(rounds, contestants).items()}


def laps(rounds: int, contestants: Contestants) -> dict[str, list[float]]:
    """The time of each contestant in each round, in seconds.

    A contestant is a function that prepares (unmeasured) and returns what is to be measured. All of them run once per
    round, so that a slow spell of the machine hits them alike; a first, uncounted round compiles and warms up.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, prepare in contestants.items():
            run = prepare()
            start = perf_counter()
            run()
            if turn:
                times[name].append(perf_counter() - start)
    return times
