"""``lately plan`` says what the library says, and refuses in one line what the library refuses."""

from dataclasses import asdict

import pytest
from cli_cases import assert_refused, assert_wrong_usage, cells_of, data_of, run

import lately as lt
from lately.sketches.wcm_shape import wcm_plan

COUNTERS = ("shared", "wave", "exphist", "randwave", "exact")

pytestmark = pytest.mark.usefixtures("wide_and_plain")


def plans(eps, delta, window, **options):
    counters = COUNTERS[1:] if options.get("query") == "inner" else COUNTERS
    return [asdict(lt.plan(eps, delta, window, counter=counter, **options)) for counter in counters]


def test_plan_shows_every_counter():
    result = run("plan", "--eps", 0.05, "--delta", 0.1)
    assert result.exit_code == 0
    rows = cells_of(result.stdout)
    assert [row[0] for row in rows] == [*COUNTERS, *(row["sketch"] for row in wcm_plan(0.05, 0.1, 10**6))]
    for row, p in zip(rows, plans(0.05, 0.1, "1h"), strict=False):
        assert row[1:6] == [f"{p['eps']:.3g}", f"{p['width']:,}", str(p["depth"]), f"{p['eps_cm']:.4g}", f"{p['eps_sw']:.4g}"]
        number, unit = row[6].split()
        scale = 1024 ** ("B", "KiB", "MiB", "GiB").index(unit)
        assert float(number.replace(",", "")) * scale == pytest.approx(p["bytes"], abs=0.051 * scale)


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("1h", "1h"),
        ("1h 30m", "90m"),
        ("1000000", 1_000_000),
        ("1_000_000", 1_000_000),
        ("arrivals:500", lt.arrivals(500)),
        ("arrivals:1_000", lt.arrivals(1_000)),
    ],
)
def test_plan_as_json_equals_the_library(written, window):
    expected = plans(0.01, 0.01, window)
    assert data_of(run("plan", "--window", written, "--json")) == expected + wcm_plan(0.01, 0.01, expected[0]["arrivals"])


def test_bytes_instead_of_eps():
    found = data_of(run("plan", "--nbytes", 100_000, "--json"))
    assert found[:2] == [asdict(lt.plan(None, 0.01, "1h", nbytes=100_000, counter=counter)) for counter in COUNTERS[:2]]
    assert found[0]["eps"] < found[1]["eps"] / 10
    assert "nbytes=100,000" in run("plan", "--nbytes", 100_000).stdout


def test_a_window_of_arrivals_holds_as_many_as_it_says():
    assert {p["arrivals"] for p in data_of(run("plan", "--window", "arrivals:500", "--json"))} == {500}


def test_plan_hands_every_option_on():
    args = ["--eps=0.1", "--delta=0.2", "--window=1d", "--tick=1m", "--query=inner", "--merge-height=3", "--arrivals=5000"]
    expected = plans(0.1, 0.2, "1d", tick="1m", query="inner", merge_height=3, arrivals=5000)
    assert data_of(run("plan", *args, "--json")) == expected + wcm_plan(0.1, 0.2, 5000)
    assert data_of(run("plan", "--window", "600", "--tick", "60", "--json"))[:5] == plans(0.01, 0.01, 600, tick=60)


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("eps", "2", "eps=2.0"),
        ("eps", "0", "eps=0.0"),
        ("eps", "-0.1", "eps=-0.1"),
        ("eps", "nan", "eps=nan"),
        ("eps", "inf", "eps=inf"),
        ("delta", "1", "delta=1.0"),
        ("window", "soon", "'soon'"),
        ("window", "", "empty duration"),
        ("window", "0", "window=0"),
        ("window", "-5", "window=-5"),
        ("window", "1__0", "'1__0'"),
        ("window", "²", "'²'"),
        ("window", "10 parsecs", "'10 parsecs'"),
        ("window", "months:5", "'months:5'"),
        ("window", "arrivals:", "'arrivals:'"),
        ("window", "arrivals:many", "'arrivals:many'"),
        ("window", "arrivals:0", "arrivals(n): n=0"),
        ("window", "100000w", "'100000w'"),
        ("tick", "2h", "'2h'"),
        ("tick", "60", "tick=60"),
        ("tick", "arrivals:many", "'arrivals:many'"),
        ("merge-height", "999", "merge_height=999"),
        ("merge-height", "-1", "merge_height=-1"),
        ("arrivals", "0", "arrivals=0"),
    ],
)
def test_plan_refuses_in_one_line(option, value, named):
    assert_refused(run("plan", f"--{option}={value}"), named)
    assert_refused(run("plan", f"--{option}={value}", "--json"), named)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--query", "median"], "median"),
        (["--eps", "small"], "--eps"),
        (["--merge-height", "1.5"], "--merge-height"),
        (["--epsilon", "0.1"], "--epsilon"),
        (["--eps"], "--eps"),
        (["surplus"], "surplus"),
    ],
)
def test_plan_knows_wrong_usage(args, named):
    assert_wrong_usage(run("plan", *args), named)
