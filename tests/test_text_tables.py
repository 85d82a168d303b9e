"""Tables in narrow and wide terminals and in pipes: no digit and no character of a key is lost."""

import io

import pytest

from lately.text_tables import Output, bar, plain, show, table_of

NUMBERS = ["9,223,372,036,854,775,807", "1,234,567.890123", "110,000.25 … 120,000.75"]
KEYS = [f"/shop/very/long/path/that/all/keys/begin/with/{end}" for end in ("first", "second")]


def printed(width=None, terminal=True):
    table = table_of(("key", "site"), ("count", "value", "low … high"))
    table.add_column("")
    for key in KEYS:
        table.add_row(plain(key), "paris", *NUMBERS, bar(1, 1))
    console = Output(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, _environ={})
    show(console, table)
    return console.file.getvalue()


def columns(text):
    rows = [[cell.strip() for cell in line.strip().strip("│").split("│")] for line in text.splitlines() if "│" in line]
    return list(zip(*rows, strict=True))


@pytest.mark.parametrize("width", [20, 60, 80, 120, 400])
def test_whatever_the_width_numbers_are_whole_and_keys_are_folded(width):
    keys, sites, *numbers, bars = columns(printed(width))
    assert "".join(keys) == "".join(KEYS)
    assert "".join(sites) == "paris" * 2
    for shown, wanted in zip(numbers, NUMBERS, strict=True):
        assert [cell for cell in shown if cell] == [wanted] * 2
    assert len(set(bars) - {""}) <= 1  # a bar is cut, not folded


def test_a_table_is_no_wider_than_the_terminal_where_it_can_be():
    assert max(map(len, printed(140).splitlines())) <= 140


def test_what_is_no_terminal_has_no_width():
    assert printed(terminal=False) == printed(1000)


def test_the_width_that_the_environment_says_counts():
    console = Output(file=io.StringIO(), force_terminal=False, _environ={"COLUMNS": "60"})
    assert console.width == 60


def test_more_numbers_than_fit_make_lines_longer_than_the_terminal():
    table = table_of(("key",), [f"n{i}" for i in range(6)])
    table.add_row(plain(KEYS[0]), *[NUMBERS[0]] * 6)
    console = Output(file=io.StringIO(), width=60, force_terminal=True, color_system=None, _environ={})
    show(console, table)
    keys, *numbers = columns(console.file.getvalue())
    assert "".join(keys) == KEYS[0]
    assert all([cell for cell in shown if cell] == [NUMBERS[0]] for shown in numbers)
