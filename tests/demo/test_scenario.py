"""A scenario fits into its time."""

import pytest

from lately.core.errors import ParameterError
from lately.demo.scenario import SHORTEST, Scenario


@pytest.mark.parametrize("seconds", [SHORTEST, 25, 60, 600, None])
def test_the_rush_comes_and_goes_before_the_attack_begins(seconds):
    scenario = Scenario.of(seconds)
    last = seconds or scenario.period
    phases = [scenario.phase(second) for second in range(last)]
    assert [phase for phase, before in zip(phases, [None, *phases], strict=False) if phase != before][:4] == [
        "normal traffic", "rush to one page", "normal traffic", "attack on the login page",
    ]  # fmt: skip
    assert phases.index("attack on the login page") == scenario.attack
    assert max(scenario.rush_at(second) for second in range(last)) >= 0.5


@pytest.mark.parametrize("seconds", [0, -1, SHORTEST - 1])
def test_too_short_a_demo_is_refused(seconds):
    with pytest.raises(ParameterError, match=f"{seconds} seconds are too short.*{SHORTEST}"):
        Scenario.of(seconds)


def test_a_scenario_without_an_end_repeats():
    scenario = Scenario()
    assert [scenario.attack_at(second + scenario.period) for second in range(scenario.period)] == [
        scenario.attack_at(second) for second in range(scenario.period)
    ]
    assert scenario.newest_attack(3 * scenario.period + scenario.attack + 5) == 3 * scenario.period + scenario.attack


def test_an_attack_that_has_not_begun_is_none():
    assert Scenario.of(60).newest_attack(32) is None
    assert Scenario.of(60).newest_attack(1000) == 33
