"""Timing on a machine that others use too: contestants take turns, and each one's best turn counts."""

from collections.abc import Callable
from time import perf_counter


def race(rounds: int, contestants: dict[str, Callable[[], Callable[[], object]]]) -> dict[str, float]:
    """The best time of each contestant, in seconds.

    A contestant is a function that prepares (unmeasured) and returns what is to be measured. All of them run once per
    round, so that a slow spell of the machine hits them alike; a first, uncounted round compiles and warms up.
    """
    best = dict.fromkeys(contestants, float("inf"))
    for turn in range(rounds + 1):
        for name, prepare in contestants.items():
            run = prepare()
            start = perf_counter()
            run()
            if turn:
                best[name] = min(best[name], perf_counter() - start)
    return best
