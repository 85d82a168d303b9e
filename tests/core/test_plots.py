"""Charts: what is drawn is the answer and its bounds."""

import sys
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lately as lt
from lately.core import plots
from lately.core.answers import KeyCount, PrefixCount, QuantileAt

mpl.use("Agg")

COUNTS = lt.Estimates(np.array([70, 30, 5]), np.array([66, 22, 0]), np.array([71, 30, 9]), 0.9)


@pytest.fixture(autouse=True)
def _no_figures_left():
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


def lengths(ax):
    """The ends of each error bar of a chart with bars."""
    (bars,) = (c for c in ax.containers if hasattr(c, "patches"))
    return [sorted(segment[:, 0].tolist()) for segment in bars.errorbar.lines[2][0].get_segments()]


def heights(ax):
    """The ends of each error bar of a curve."""
    (curve,) = ax.containers
    return [sorted(segment[:, 1].tolist()) for segment in curve.lines[2][0].get_segments()]


def bounds(estimates):
    return [[float(one.low), float(one.high)] for one in estimates]


def labels(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


# -- bars ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.float64, np.float32])
def test_bars_are_values_with_their_bounds(kind):
    answers = lt.Estimates(*(part.astype(kind) for part in (COUNTS.value, COUNTS.low, COUNTS.high)), 0.9)
    ax = plots.bars(["a", "b", "c"], answers)
    assert [bar.get_width() for bar in ax.patches] == [70, 30, 5]
    assert lengths(ax) == bounds(COUNTS)
    assert labels(ax) == ["a", "b", "c"]
    assert ax.yaxis.get_inverted()  # the first on top
    ax.figure.canvas.draw()


def test_error_bars_are_never_shorter_than_nothing():
    ax = plots.bars(["a", "b"], lt.Estimates(np.array([5, 5]), np.array([6, 1]), np.array([9, 4]), 0.9))
    assert lengths(ax) == [[5.0, 9.0], [1.0, 5.0]]


def test_bars_are_drawn_where_and_how_they_are_told():
    axes = mpl.figure.Figure().subplots(1, 2)
    assert plots.bars(["a", "b", "c"], COUNTS, axes[1], color="red", capsize=0) is axes[1]
    assert axes[0].patches[:] == []
    assert axes[1].patches[0].get_facecolor() == (1, 0, 0, 1)
    plots.bars(["a", "b", "c"], COUNTS, axes[1])
    assert axes[1].yaxis.get_inverted()


def test_labels_are_short_plain_and_need_not_differ():
    ax = plots.bars(["x" * 100, "x" * 100, r"$\frac$"], COUNTS)
    assert labels(ax) == ["x" * 31 + "…", "x" * 31 + "…", r"$\frac$"]
    assert [bar.get_y() + bar.get_height() / 2 for bar in ax.patches] == [0, 1, 2]
    ax.figure.canvas.draw()  # where mathematics would be read, and this is none


def test_as_many_labels_as_estimates():
    with pytest.raises(lt.ParameterError, match="2 labels for 3 estimates"):
        plots.bars(["a", "b"], COUNTS)


def test_many_bars_make_a_tall_figure_but_not_an_endless_one():
    for rows, inches in ((3, mpl.rcParams["figure.figsize"][1]), (100, 24), (1_000, 60)):
        column = np.arange(rows)
        ax = plots.bars(column, lt.Estimates(column, column, column, 1.0))
        assert ax.figure.get_figheight() == pytest.approx(inches)


def test_no_bars():
    none = np.empty(0, np.int64)
    ax = plots.bars([], lt.Estimates(none, none, none, 1.0))
    assert len(ax.patches) == 0
    ax.figure.canvas.draw()


# -- curves --------------------------------------------------------------------------------------------------------------


def test_a_curve_has_its_bounds():
    ax = plots.curve([1, 2, 4], COUNTS, color="red")
    assert ax.lines[0].get_xydata().tolist() == [[1, 70], [2, 30], [4, 5]]
    assert ax.lines[0].get_color() == "red"
    assert heights(ax) == bounds(COUNTS)
    assert plots.curve([1, 2, 4], COUNTS, ax) is ax


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [(1e-6, "seconds"), (10, "seconds"), (119, "seconds"), (120, "minutes"), (3600, "minutes"), (7200, "hours"), (1e6, "days")],
)
def test_axes_of_time_have_a_readable_unit(seconds, unit):
    assert plots.time_unit(int(seconds * 10**9))[1] == unit


# -- without matplotlib --------------------------------------------------------------------------------------------------


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    sketch = lt.EcmSketch(window=100, eps=0.1, delta=0.1)
    counter = lt.WindowCounter(window=100, eps=0.1)
    answers = lt.Answers(KeyCount, [["a", "b", "c"], COUNTS])
    for draw in (lambda: sketch.plot(["a"]), counter.plot, answers.plot):
        with pytest.raises(lt.LatelyError, match=r"pip install 'lately\[plot\]'") as caught:
            draw()
        assert isinstance(caught.value.__cause__, ImportError)


# -- what draws itself ---------------------------------------------------------------------------------------------------


def test_answers_draw_their_first_estimates():
    ax = lt.Answers(PrefixCount, [["10.", "9.", "8."], [8, 8, 8], COUNTS, COUNTS[::-1]]).plot()
    assert lengths(ax) == bounds(COUNTS)
    assert labels(ax) == ["10.", "9.", "8."]
    assert ax.get_xlabel() == "count"


def test_quantiles_draw_a_curve():
    own = mpl.figure.Figure().subplots()
    ax = lt.Answers(QuantileAt, [np.array([0.1, 0.5, 0.9]), COUNTS]).plot(own)
    assert ax is own
    assert ax.lines[0].get_xydata().tolist() == [[0.1, 70], [0.5, 30], [0.9, 5]]
    assert heights(ax) == bounds(COUNTS)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("q", "value")


def test_rows_without_estimates_have_no_plot():
    class Name(NamedTuple):
        name: str

    with pytest.raises(lt.QueryError, match="rows of Name have no plot"):
        lt.Answers(Name, [["a"]]).plot()


@pytest.mark.parametrize(
    ("window", "xlabel", "longest"),
    [
        ("1h", "most recent minutes", 60),
        (1_000, "most recent units of time", 1_000),
        (lt.arrivals(500), "most recent arrivals", 500),
    ],
)
def test_a_counter_draws_what_it_counts(window, xlabel, longest):
    counter = lt.WindowCounter(window=window, eps=0.1)
    counter.add(**({"counts": np.ones(2_000, int)} if isinstance(window, lt.arrivals) else {"times": range(2_000)}))
    ax = counter.plot(points=10)
    x, y = ax.lines[0].get_data()
    assert x.tolist() == pytest.approx([longest * i / 10 for i in range(1, 11)])
    assert ax.get_xlabel() == xlabel
    duration = "{:.0f}m".format if window == "1h" else int
    answers = [counter.count(last=duration(length)) for length in x]
    assert y.tolist() == [one.value for one in answers]
    assert heights(ax) == bounds(answers)


def test_a_counter_draws_a_part_of_its_window():
    counter = lt.WindowCounter(window="1h", eps=0.1, lateness="5s")
    counter.add(range(100))
    ax = counter.plot(last="10s")
    assert ax.lines[0].get_xdata().tolist() == list(range(1, 11))  # no more points than ticks
    assert ax.lines[0].get_ydata()[-1] == counter.count(last="10s").value == 10
    own = mpl.figure.Figure().subplots()
    assert counter.plot(last="1s", points=1, ax=own) is own
    assert own.lines[0].get_xydata().tolist() == [[1, 1]]


def test_a_counter_refuses_what_it_cannot_draw():
    counter = lt.WindowCounter(window="1h", eps=0.1)
    assert counter.plot(points=2).lines[0].get_ydata().tolist() == [0, 0]  # nothing arrived yet
    with pytest.raises(lt.ParameterError, match="points=0"):
        counter.plot(points=0)
    with pytest.raises(lt.RangeError):
        counter.plot(last="2h")


@pytest.fixture(scope="module")
def sketch():
    sketch = lt.EcmSketch(window=100, eps=0.1, delta=0.1)
    sketch.update(["a"] * 70 + ["b"] * 30, np.arange(100))
    return sketch


def test_a_sketch_draws_keys(sketch):
    for range_of_time in ({}, {"last": 40}, {"between": (90, 20)}):
        ax = sketch.plot(["b", "a", "none"], **range_of_time)
        answers = sketch.counts(["b", "a", "none"], **range_of_time)
        assert [bar.get_width() for bar in ax.patches] == answers.value.tolist()
        assert lengths(ax) == bounds(answers)
        assert labels(ax) == ["b", "a", "none"]
    own = mpl.figure.Figure().subplots()
    assert sketch.plot(["a"], ax=own) is own


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ("abc", ["abc"]),
        (12, ["12"]),
        (("a", 1), ["('a', 1)"]),
        (["a", 1], ["a", "1"]),
        ([("a", 1), ("b", 2)], ["('a', 1)", "('b', 2)"]),
        (np.array([1, 2]), ["1", "2"]),
        (pd.Series(["a", "b"], index=[7, 8]), ["a", "b"]),
        (pl.Series(["a", "b"]), ["a", "b"]),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        (pd.DataFrame({"x": ["a", "b"], "y": [1, 2]}), ["('a', 1)", "('b', 2)"]),
    ],
)
def test_keys_of_any_kind_are_labels(keys, shown):
    sketch = lt.EcmSketch(window=100, eps=0.1, delta=0.1)
    sketch.update(keys, [7] * len(shown))
    assert labels(sketch.plot(keys)) == shown
