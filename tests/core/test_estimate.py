"""What answers look like."""

import dataclasses
import operator
import random
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.core.estimate import html_table


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


# -- comparing, adding, printing -----------------------------------------------------------------------------------------

# Multiples of 1/8, so that sums and products of a few are exact also as floats.
numbers = st.integers(-(10**6), 10**6) | st.integers(-(10**6), 10**6).map(lambda n: n / 8)
confidences = st.integers(0, 64).map(lambda n: n / 64)


@st.composite
def estimates_with_truth(draw):
    """An estimate that holds, and the truth."""
    low, truth, high = sorted(draw(st.tuples(numbers, numbers, numbers)))
    return lt.Estimate(draw(numbers), low, high, draw(confidences)), truth


@given(one=estimates_with_truth(), other=estimates_with_truth(), by=numbers)
def test_what_holds_still_holds_after_arithmetic(one, other, by):
    (a, x), (b, y) = one, other
    for result, truth, value in (
        (a + b, x + y, a.value + b.value),
        (a - b, x - y, a.value - b.value),
        (a - a, 0, 0),
        (sum([a, b, a]), x + y + x, a.value + b.value + a.value),
        (a + by, x + by, a.value + by),
        (by + a, x + by, a.value + by),
        (a - by, x - by, a.value - by),
        (by - a, by - x, by - a.value),
        (a * by, x * by, a.value * by),
        (by * a, x * by, a.value * by),
        (-a, -x, -a.value),
        (a / 4, x / 4, a.value / 4),
        (a / -4, x / -4, a.value / -4),
    ):
        assert truth in result
        assert result.value == value


@given(one=estimates_with_truth(), other=estimates_with_truth(), by=numbers)
def test_arithmetic_widens_no_more_than_it_must(one, other, by):
    """Every number within the bounds of a result comes from some within the bounds of the parts."""
    (a, _), (b, _) = one, other
    for result, op in ((a + b, operator.add), (a - b, operator.sub)):
        corners = [op(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        assert (result.low, result.high) == (min(corners), max(corners))
    assert ((a * by).low, (a * by).high) == (min(a.low * by, a.high * by), max(a.low * by, a.high * by))


@given(a=estimates_with_truth(), b=estimates_with_truth(), by=numbers)
def test_confidence_is_the_union_bound(a, b, by):
    (a, _), (b, _) = a, b
    for result in (a + b, a - b):
        assert result.confidence == max(a.confidence + b.confidence - 1, 0)
    for result in (a + by, by - a, a * by, -a, a / 2, sum([a])):
        assert result.confidence == a.confidence


def test_sums_hold_as_often_as_they_say_even_if_parts_fail_apart():
    """The worst case: parts that never fail at once. Twenty estimates of 96 %, so that the sum fails in 80 % of all cases."""
    rng, held, rounds = random.Random(5), 0, 4_000
    for _ in range(rounds):
        bad = rng.randrange(25)  # each part fails in 4 % of all cases, a different one each time
        parts = [lt.Estimate(10, 8, 12, 0.96) for _ in range(20)]
        truths = [rng.randint(8, 12) if i != bad else 1_000 for i in range(20)]
        held += sum(truths) in sum(parts)
    assert sum(parts).confidence == pytest.approx(0.2)
    assert abs(held / rounds - 0.2) < 0.03
    assert sum(parts * 2).confidence == 0


@given(a=estimates_with_truth(), b=estimates_with_truth(), x=numbers)
def test_order_is_that_of_values(a, b, x):
    (a, _), (b, _) = a, b
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        assert compare(a, b) == compare(a.value, b.value)
        assert compare(a, x) == compare(a.value, x)
        assert compare(x, a) == compare(x, a.value)
    assert max([a, b]).value == max(a.value, b.value)


def test_equality_is_of_all_fields_and_agrees_with_the_hash():
    answer = lt.Estimate(10, 8, 13, 0.95)
    wider = lt.Estimate(10, 0, 20, 0.95)
    assert answer <= wider <= answer
    assert answer != wider
    assert answer != 10
    assert len({answer, wider, 10}) == 3


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, np.uint64, np.float32, np.float64, Fraction])
def test_any_kind_of_number_will_do(kind):
    answer, three = lt.Estimate(10, 8, 13, 0.95), kind(3)
    for result, expected in (
        (answer + three, (13, 11, 16)),
        (three + answer, (13, 11, 16)),
        (answer - three, (7, 5, 10)),
        (three - answer, (-7, -10, -5)),
        (answer * three, (30, 24, 39)),
        (three * answer, (30, 24, 39)),
    ):
        assert (result.value, result.low, result.high, result.confidence) == (*expected, 0.95)
        assert type(result.value) in (int, float)
    assert answer > three
    assert three < answer


def test_infinite_bounds_stay_infinite_unless_nothing_is_left():
    answer = lt.Estimate(5, 1, float("inf"), 0.9)
    assert (answer + answer).high == float("inf")
    assert (answer - answer).low == -float("inf")
    assert (answer * -1).low == -float("inf")
    assert answer * 0 == lt.Estimate(0, 0, 0, 0.9)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_arithmetic_with_no_number_is_refused(bad):
    answer = lt.Estimate(10, 8, 13, 0.95)
    for symbol, compute in (("+", operator.add), ("-", operator.sub), ("*", operator.mul), ("/", operator.truediv)):
        with pytest.raises(lt.InputError, match=rf"Estimate \{symbol} {bad}; give a finite number"):
            compute(answer, bad)


@pytest.mark.parametrize("other", ["10", None, [1], 1j])
def test_what_is_no_number_is_refused(other):
    answer = lt.Estimate(10, 8, 13, 0.95)
    for compute in (operator.lt, operator.ge, operator.add, operator.sub, operator.truediv):
        with pytest.raises(TypeError):
            compute(answer, other)
        with pytest.raises(TypeError):
            compute(other, answer)
    with pytest.raises(TypeError):
        answer * answer  # the bounds of a product are not asked for; nobody should think that they are kept


def test_rounding_and_formats_are_of_the_value():
    answer = lt.Estimate(1234567.891, 1.5e6, 2e6, 0.99)
    assert (round(answer), round(answer, 1), round(answer, -3)) == (1234568, 1234567.9, 1235000.0)
    assert type(round(answer)) is int
    assert f"{answer:,.0f}|{answer:>12.1f}|{lt.Estimate(5, 4, 6, 1.0):03d}" == "1,234,568|   1234567.9|005"
    assert f"{answer}" == str(answer) == repr(answer) == "Estimate(1_234_568, 1_500_000..2_000_000, 99%)"
    with pytest.raises(ValueError, match="format"):
        f"{answer:nonsense}"


def test_many_estimates_are_columns_and_a_sequence():
    answers = lt.Estimates(np.array([7, 9]), np.array([6, 9]), np.array([8, 9]), 0.9)
    assert len(answers) == 2
    assert list(answers) == [lt.Estimate(7, 6, 8, 0.9), lt.Estimate(9, 9, 9, 0.9)]
    assert answers[-1] == answers[1]
    assert type(answers[0].value) is int
    with pytest.raises(IndexError):
        answers[2]


def test_an_estimate_is_a_table_in_a_notebook():
    html = lt.Estimate(4812, 4790, 4815, 0.99)._repr_html_()
    assert html.startswith("<table")
    assert "<th>value</th><th>low</th><th>high</th><th>confidence</th>" in html
    assert "<td>4_812</td><td>4_790</td><td>4_815</td><td>99%</td>" in html


def test_estimates_are_a_table_in_a_notebook():
    answers = lt.Estimates(np.array([7, 9]), np.array([6.5, 9.0]), np.array([8, 9]), 0.9)
    html = answers._repr_html_()
    assert "<tr><td>7</td><td>6.5</td><td>8</td></tr><tr><td>9</td><td>9</td><td>9</td></tr>" in html
    assert "confidence 90%" in html
    assert "more" not in html


@pytest.mark.parametrize(("rows", "shown", "said"), [(0, 0, None), (50, 50, None), (51, 50, "… and 1 more")])
def test_a_notebook_shows_the_first_rows(rows, shown, said):
    column = np.arange(rows)
    html = lt.Estimates(column, column, column, 1.0)._repr_html_()
    assert html.count("<tr>") == 1 + shown + (said is not None) + 1  # heading, rows, what is left out, confidence
    assert said is None or said in html


def test_html_is_escaped_and_no_mathematics():
    html = html_table([["<b>", "<script>alert('&')</script>"]], ["<i>"])
    assert "<th>&lt;b&gt;</th>" in html
    assert "<td>&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;</td>" in html
    assert ">&lt;i&gt;</td>" in html
    assert "mathjax_ignore" in html


def test_estimates_become_arrow_and_pandas():
    strided = np.arange(6).reshape(2, 3).T  # as the columns of a sketch's answers are
    answers = lt.Estimates(strided[:, 0], strided[:, 0] / 2, strided[:, 1], 0.9)
    expected = {"value": [0, 1, 2], "low": [0.0, 0.5, 1.0], "high": [3, 4, 5]}
    table = answers.to_arrow()
    assert table.to_pydict() == expected
    assert [str(field.type) for field in table.schema] == ["int64", "double", "int64"]
    assert answers.to_pandas().to_dict("list") == expected


def test_without_pandas_the_error_says_what_to_install():
    code = """
import sys

class NoPandas:
    def find_spec(name, path, target=None):
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'")

sys.meta_path.insert(0, NoPandas)
import numpy as np
import lately as lt
one = np.array([1])
answers = lt.Estimates(one, one, one, 1.0)
assert answers.to_arrow().num_rows == 1
try:
    answers.to_pandas()
except lt.LatelyError as error:
    print(error, isinstance(error.__cause__, ImportError))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install pandas" in done.stdout, done.stderr
    assert done.stdout.endswith("True\n")


def test_every_error_is_a_lately_error_and_of_a_builtin_kind():
    kinds = {
        lt.ParameterError: ValueError,
        lt.InputError: ValueError,
        lt.LeaseError: RuntimeError,
        lt.RangeError: ValueError,
        lt.QueryError: TypeError,
        lt.MergeError: ValueError,
        lt.FormatError: ValueError,
    }
    for ours, builtin in kinds.items():
        assert issubclass(ours, lt.LatelyError)
        assert issubclass(ours, builtin)
    public = {kind for kind in lt.LatelyError.__subclasses__() if kind.__module__ == lt.LatelyError.__module__}
    assert set(kinds) == public
