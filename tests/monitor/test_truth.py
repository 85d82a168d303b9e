"""What is announced is about the sketches; here it is held against the streams themselves, eps and delta included."""

import math

import numpy as np
import pytest

from lately.monitor import Ecm, FastAms, Monitor, SelfJoin, simulate

SEEDS = 120
#: With probability 0.999 no more than this share of the seeds fails, each with probability delta at the most (Hoeffding).
SLACK = math.sqrt(math.log(1000) / (2 * SEEDS))


def events(seed, size=300):
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 100, size)  # all alike: where sketches are at their worst
    return {"key": keys, "site": rng.integers(0, 3, size)}, np.sort(rng.integers(0, 300, size))


def second_moment(keys):
    return float((np.unique(keys, return_counts=True)[1].astype(float) ** 2).sum())


@pytest.mark.parametrize("scheme", ["functional", "geometric", "push"])
def test_fast_ams_is_within_theta_of_the_truth(scheme):
    """Sketching error and drift together, as GM-AMS §3.1 has it."""
    theta, delta, failed = 0.4, 0.05, 0
    for seed in range(SEEDS):
        columns, _ = events(seed)
        watch = Monitor(FastAms(eps=0.2, delta=delta, seed=seed), {"f2": SelfJoin(theta=theta)}, scheme=scheme)
        history = simulate(columns, watch, step=50).history
        failed += any(abs(said.value - second_moment(columns["key"][:at])) > theta * second_moment(columns["key"][:at])
                      for at, _, said, _, _ in history[-2:])  # fmt: skip
    assert failed / SEEDS <= delta + SLACK


@pytest.mark.parametrize("scheme", ["functional", "geometric"])
@pytest.mark.parametrize("sketch", [Ecm, FastAms])
def test_over_a_window_theta_and_eps_hold_against_the_truth(sketch, scheme):
    """ECM-15 Theorem 2 beside theta; and Fast-AMS within half of eps of what it may collide with, beside theta."""
    theta, eps, delta, window, failed = 0.4, 0.2, 0.1, 100, 0
    for seed in range(SEEDS):
        columns, times = events(seed)
        watch = Monitor(sketch(window=window, eps=eps, delta=delta, seed=seed), {"f2": SelfJoin(theta=theta)}, scheme=scheme)
        done = simulate(columns | {"time": times}, watch, step=50)
        at, _, announcement, _, _ = done.history[-1]
        inside = columns["key"][:at][times[:at] >= times[at - 1] - window]
        truth, arrivals = second_moment(inside), inside.size
        off = eps * arrivals**2 if sketch is Ecm else eps / 2 * (2 * truth + arrivals**2 / watch.layouts[0].width)
        failed += not (1 - theta) * (truth - off) <= announcement.value <= (1 + theta) * (truth + off)
    assert failed / SEEDS <= delta + SLACK
