"""Answers with many rows: a list, columns, a table."""

import copy
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

import lately as lt
from lately.core.answers import KeyCount, PrefixCount, QuantileAt


def estimates(values, slack=1, confidence=0.9):
    values = np.asarray(values)
    return lt.Estimates(values, values - slack, values + slack, confidence)


def key_counts(keys, missed=None):
    return lt.Answers(KeyCount, [keys, estimates(range(100, 100 + len(keys)))], missed=missed)


@pytest.fixture
def three():
    return key_counts(["a", "b", "c"], missed=7)


# -- a list --------------------------------------------------------------------------------------------------------------


def test_answers_are_read_like_a_list(three):
    rows = [KeyCount(key, lt.Estimate(n, n - 1, n + 1, 0.9)) for n, key in enumerate("abc", 100)]
    assert len(three) == 3
    assert list(three) == rows
    assert list(reversed(three)) == rows[::-1]
    assert three[0] == three[-3] == three[np.int64(0)] == three[np.array(0)] == rows[0]
    assert type(three[0]) is KeyCount
    assert rows[1] in three
    assert ("z", rows[1].count) not in three
    for i in (3, -4):
        with pytest.raises(IndexError):
            three[i]


def test_rows_have_values_of_python():
    rows = lt.Answers(PrefixCount, [np.array(["10."]), np.array([8], np.uint8), estimates([5]), estimates([2.5])])
    assert [type(value) for value in rows[0]] == [str, int, lt.Estimate, lt.Estimate]
    assert [type(rows[0].count.low), type(rows[0].own.low)] == [int, float]
    quantiles = lt.Answers(QuantileAt, [np.array([0.5, 0.99]), estimates([10, 80])])
    assert [type(row.q) for row in quantiles] == [float, float]


@pytest.mark.parametrize("keys", [["a", "b", "c"], ("a", "b", "c"), np.array(["a", "b", "c"])])
@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        (slice(1, None), "bc"),
        (slice(None, None, -1), "cba"),
        (slice(5, 9), ""),
        (np.array([True, False, True]), "ac"),
        ([False, True, False], "b"),
        (np.zeros(3, bool), ""),
        (np.array([2, 0]), "ca"),
    ],
)
def test_slices_and_masks_are_answers_with_their_bounds(keys, chosen, left):
    whole = key_counts(keys, missed=7)
    part = whole[chosen]
    assert isinstance(part, lt.Answers)
    assert part.missed == 7
    assert list(part.key) == list(left)
    values = [100 + "abc".index(key) for key in left]
    assert part.count.value.tolist() == values
    assert part.count.low.tolist() == [n - 1 for n in values]
    assert part.count.high.tolist() == [n + 1 for n in values]
    assert part.count.confidence == 0.9
    assert part == [whole["abc".index(key)] for key in left]


def test_a_mask_of_another_length_is_refused(three):
    with pytest.raises(IndexError):
        three[np.array([True, False])]


def test_answers_are_equal_by_their_rows(three):
    assert three == key_counts(np.array(["a", "b", "c"]))
    assert three == list(three)
    assert list(three) == three
    assert three != three[:2]
    assert three != key_counts(["a", "b", "d"])
    assert three != "abc"
    assert key_counts([]) == []


def test_columns_must_fit():
    with pytest.raises(lt.ParameterError, match=r"1 columns for a KeyCount; give key, count"):
        lt.Answers(KeyCount, [["a"]])
    with pytest.raises(lt.ParameterError, match="columns of 2, 1 rows"):
        lt.Answers(KeyCount, [["a", "b"], estimates([1])])


# -- columns -------------------------------------------------------------------------------------------------------------


def test_fields_are_columns(three):
    assert three.key == ["a", "b", "c"]
    assert isinstance(three.count, lt.Estimates)
    assert three.count.value.tolist() == [100, 101, 102]
    assert {"key", "count", "to_arrow", "missed"} <= set(dir(three))
    with pytest.raises(AttributeError, match="no attribute 'own'"):
        _ = three.own


def test_field_names_win_over_the_methods_of_sequences():
    class Oddly(NamedTuple):
        index: Any

    assert lt.Answers(Oddly, [[1, 2]]).index == [1, 2]


@pytest.mark.parametrize("twin_of", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_answers_can_be_copied(three, twin_of):
    twin = twin_of(three)
    assert twin == three
    assert twin.missed == 7


def test_answers_become_arrow_and_pandas():
    own = lt.Estimates(np.array([0.5, 1.0]), np.array([0.25, 0.75]), np.array([0.5, 2.0]), 0.9)
    rows = lt.Answers(PrefixCount, [["10.", "10.1."], np.array([8, 16]), estimates([5, 4]), own])
    expected = {
        "prefix": ["10.", "10.1."],
        "bits": [8, 16],
        "count": [5, 4],
        "count_low": [4, 3],
        "count_high": [6, 5],
        "own": [0.5, 1.0],
        "own_low": [0.25, 0.75],
        "own_high": [0.5, 2.0],
    }
    table = rows.to_arrow()
    assert table.to_pydict() == expected
    assert table.column_names == list(expected)
    assert str(table.schema.field("count_low").type) == "int64"
    frame = rows.to_pandas()
    assert frame.to_dict("list") == expected
    assert frame["bits"].dtype == np.int64


@pytest.mark.parametrize(
    ("keys", "column"),
    [
        (["a", 1], ["a", "1"]),
        ([1, "a"], ["1", "a"]),
        ([("a", 1), "b"], ["('a', 1)", "b"]),
        ([2**70, 1], [str(2**70), "1"]),
        (np.array(["a", 1], object), ["a", "1"]),
        ([1, 2], [1, 2]),
        ([b"a", b"b"], [b"a", b"b"]),
        ([("a", "b"), ("c", "d")], [["a", "b"], ["c", "d"]]),
    ],
)
def test_keys_that_arrow_refuses_become_text(keys, column):
    rows = key_counts(keys)
    assert rows.to_arrow()["key"].to_pylist() == column
    assert len(rows.to_pandas()) == 2


def test_no_rows_have_columns_too():
    table = key_counts([]).to_arrow()
    assert table.num_rows == 0
    assert table.column_names == ["key", "count", "count_low", "count_high"]


# -- a table -------------------------------------------------------------------------------------------------------------


def test_answers_print_as_a_table():
    counts = lt.Estimates(np.array([12_345, 7]), np.array([12_000, 7]), np.array([12_400, 9]), 0.99)
    assert repr(lt.Answers(KeyCount, [["/", "/a/cart"], counts])).splitlines() == [
        "key       count  low..high, 99%",
        "/        12_345  12_000..12_400",
        "/a/cart       7            7..9",
    ]
    assert repr(key_counts([])) == "key  count  low..high, 90%"


def test_text_that_would_break_the_table_is_quoted_or_cut():
    lines = repr(key_counts(["a\nb", "\x1b[31m", "x" * 100])).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["key", r"'a\nb'", r"'\x1b[31m'", "x" * 59 + "…"]


@pytest.mark.parametrize(("rows", "foot"), [(20, []), (21, ["… and 1 more"]), (1_520, ["… and 1_500 more"])])
def test_long_tables_are_cut(rows, foot):
    lines = repr(key_counts(range(rows))).splitlines()
    assert len(lines) == 1 + 20 + len(foot)
    assert lines[21:] == foot


def test_what_is_not_listed_is_bounded(three):
    assert repr(three).splitlines()[-1] == "not listed: 7 at most"
    assert "not listed: 7 at most" in three[:1]._repr_html_()
    assert "not listed: 0 at most" in repr(key_counts(["a"], missed=0))
    for text in (repr(key_counts(["a"])), key_counts(["a"])._repr_html_()):
        assert "listed" not in text


def test_answers_are_a_table_in_a_notebook(three):
    html = three._repr_html_()
    assert "<tr><th>key</th><th>count</th><th>low..high, 90%</th></tr>" in html
    assert "<tr><td>a</td><td>100</td><td>99..101</td></tr>" in html


def test_keys_are_escaped_in_a_notebook():
    html = key_counts(["<script>alert('&')</script>"])._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in html


def test_a_notebook_shows_the_first_fifty_rows():
    html = key_counts(range(53))._repr_html_()
    assert html.count("<tr>") == 1 + 50 + 1
    assert "… and 3 more" in html
