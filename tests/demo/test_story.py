"""The story fits into the time that it is given."""

import pytest

from lately.core.errors import ParameterError
from lately.demo.story import SHORTEST, Story


@pytest.mark.parametrize("seconds", [SHORTEST, 25, 60, 600, None])
def test_the_crowd_comes_and_goes_before_the_attack_begins(seconds):
    story = Story.of(seconds)
    last = seconds or story.period
    told = [story.chapter(second) for second in range(last)]
    assert [one for one, before in zip(told, [None, *told], strict=False) if one != before][:4] == [
        "calm", "a crowd comes", "calm", "attack on the login",
    ]  # fmt: skip
    assert told.index("attack on the login") == story.attack
    assert max(story.crowd_at(second) for second in range(last)) >= 0.5


@pytest.mark.parametrize("seconds", [0, -1, SHORTEST - 1])
def test_too_short_a_demo_is_refused(seconds):
    with pytest.raises(ParameterError, match=f"{seconds} seconds are too short.*{SHORTEST}"):
        Story.of(seconds)


def test_a_story_without_an_end_is_told_again():
    story = Story()
    assert [story.attack_at(second + story.period) for second in range(story.period)] == [
        story.attack_at(second) for second in range(story.period)
    ]
    assert story.attack_before(3 * story.period + story.attack + 5) == 3 * story.period + story.attack


def test_an_attack_that_has_not_begun_is_none():
    assert Story.of(60).attack_before(32) is None
    assert Story.of(60).attack_before(1000) == 33
