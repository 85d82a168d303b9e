"""What answers look like."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

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
