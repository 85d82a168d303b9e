"""What answers look like."""

import dataclasses

import numpy as np
import pytest

import lately as lt


def test_an_estimate_contains_its_bounds():
    answer = lt.Estimate(10, 8, 13, 0.95)
    assert all(x in answer for x in (8, 10, 12.5, 13))
    assert not any(x in answer for x in (7.999, 14, -1))


def test_an_estimate_is_a_number():
    assert int(lt.Estimate(10, 8, 13, 1.0)) == 10
    assert float(lt.Estimate(2.5, 2.0, 3.0, 1.0)) == 2.5
    assert int(lt.Estimate(2.9, 2.0, 3.0, 1.0)) == 2


def test_estimates_are_equal_by_value_and_cannot_change():
    answer = lt.Estimate(10, 8, 13, 0.95)
    assert answer == lt.Estimate(10, 8, 13, 0.95) != lt.Estimate(10, 8, 13, 0.9)
    assert len({answer, lt.Estimate(10, 8, 13, 0.95)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.value = 11


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lt.Estimate(4812, 4790, 4815, 0.99), "Estimate(4_812, 4_790..4_815, 99%)"),
        (lt.Estimate(0, 0, 0, 1.0), "Estimate(0, 0..0, 100%)"),
        (lt.Estimate(5, 4, 6, 0.9), "Estimate(5, 4..6, 90%)"),
        (lt.Estimate(5, 4, 6, 0.999), "Estimate(5, 4..6, 99.9%)"),
        (lt.Estimate(5, 4, 6, 0.9999), "Estimate(5, 4..6, 99.99%)"),
        (lt.Estimate(5, 4, 6, 0.1), "Estimate(5, 4..6, 10%)"),
        (lt.Estimate(1234567.8, 2.34567, 100.0, 0.5), "Estimate(1_234_568, 2.346..100, 50%)"),
    ],
)
def test_estimates_print_as_people_read(answer, text):
    assert repr(answer) == text


def test_many_estimates_are_columns_and_a_sequence():
    answers = lt.Estimates(np.array([7, 9]), np.array([6, 9]), np.array([8, 9]), 0.9)
    assert len(answers) == 2
    assert list(answers) == [lt.Estimate(7, 6, 8, 0.9), lt.Estimate(9, 9, 9, 0.9)]
    assert answers[-1] == answers[1]
    assert type(answers[0].value) is int
    with pytest.raises(IndexError):
        answers[2]


def test_every_error_is_a_lately_error_and_of_a_builtin_kind():
    kinds = {
        lt.ParameterError: ValueError,
        lt.InputError: ValueError,
        lt.RangeError: ValueError,
        lt.QueryError: TypeError,
        lt.MergeError: ValueError,
        lt.FormatError: ValueError,
    }
    for ours, builtin in kinds.items():
        assert issubclass(ours, lt.LatelyError)
        assert issubclass(ours, builtin)
    assert set(kinds) == set(lt.LatelyError.__subclasses__())
