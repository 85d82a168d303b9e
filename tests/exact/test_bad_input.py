"""What is refused, in words that name the value and the remedy; and that a refusal changes nothing."""

import math

import numpy as np
import pyarrow as pa
import pytest

import lately as lt


def running(**options):
    """Windows over a stream that runs, with one query of each kind."""
    w = lt.Windows(**({"tick": 1} | options))
    w.add("sum", lt.agg.sum("x"), last=10)
    w.add("most", lt.agg.max("y"), last=lt.arrivals(3))
    w.add("median", lt.agg.quantile("x", 0.5), between=(9, 2))
    if "lateness" not in options:
        w.add("busy", lt.agg.count() > 1, per="k", last=10)
        w.add("heavy", lt.agg.sum("x") > 1, per="k", last=10)
    w.update({"x": [1, 2, 3], "y": [0.5, math.nan, 2.5], "k": ["a", "a", "b"]}, [1, 2, 3])
    return w


def state(w):
    """All that can be seen of them."""
    answers = {}
    for name, answer in w.answers().items():
        value = list(answer.value) if isinstance(answer.value, lt.Answers) else answer.value
        answers[name] = (value, answer.rows, answer.missing, answer.covered)
    return answers, w.queries, w.now, w.late, w.nbytes, repr(w.explain())


def refused(w, error, match, act):
    before = state(w)
    with pytest.raises(error, match=match):
        act(w)
    assert state(w) == before
    w.update({"x": 4, "y": 1.0, "k": "b"}, 4)  # and it runs on
    assert w["sum"] == lt.Answer(10, 4)


# -- queries -------------------------------------------------------------------------------------------------------------

QUERIES = {
    "unknown column": (lt.agg.avg("z"), {"last": 5}, lt.ParameterError, r"'q' asks for the column 'z'; the stream has x, y, k"),
    "unknown key": (lt.agg.count() > 5, {"last": 5, "per": "z"}, lt.ParameterError, r"column 'z'; the stream has x, y, k"),
    "no window": (lt.agg.count(), {}, lt.RangeError, r"last=None and between=None; give one of them: last='5m'"),
    "two windows": (lt.agg.count(), {"last": 5, "between": (2, 1)}, lt.RangeError, r"last=5 and between=\(2, 1\); give one"),
    "window of zero": (lt.agg.count(), {"last": 0}, lt.RangeError, r"last=0 is an empty window; give a length"),
    "negative window": (lt.agg.count(), {"last": -5}, lt.RangeError, "-5"),
    "too long": (lt.agg.count(), {"last": 2**41}, lt.RangeError, r"more than 2\*\*40 ticks; give an age"),
    "a date": (lt.agg.count(), {"last": "2026-01-01"}, lt.RangeError, r"'2026-01-01' is a date; .* give ages"),
    "no duration": (lt.agg.count(), {"last": "soon"}, lt.RangeError, "last: .*'soon'.*give a whole number"),
    "between reversed": (
        lt.agg.count(),
        {"between": (1, 2)},
        lt.RangeError,
        r"\(1, 2\) runs backwards; give the older end first",
    ),
    "between equal": (
        lt.agg.count(),
        {"between": (2, 2)},
        lt.RangeError,
        r"\(2, 2\) is an empty window; give two different",
    ),
    "between mixed": (
        lt.agg.count(),
        {"between": (lt.arrivals(5), 2)},
        lt.RangeError,
        r"arrivals\(n=5\), 2\) mixes time and arrivals; give both ends in one",
    ),
    "between of one": (
        lt.agg.count(),
        {"between": (2,)},
        lt.RangeError,
        r"between=\(2,\) is not a range; give two ages, the older first",
    ),
    "between of no pair": (
        lt.agg.count(),
        {"between": 7},
        lt.RangeError,
        r"between=7 is not a range; give two ages, the older first",
    ),
    "per without a condition": (
        lt.agg.sum("x"),
        {"last": 5, "per": "k"},
        lt.ParameterError,
        r"no condition; give one, such as",
    ),
    "condition without per": (lt.agg.sum("x") > 5, {"last": 5}, lt.ParameterError, r"per=None; name the column .*per='symbol'"),
    "filter on a mean": (
        lt.agg.avg("x") > 5,
        {"last": 5, "per": "k"},
        lt.ParameterError,
        r"avg\('x'\); only count\(\), sum, max",
    ),
    "filter on a quantile": (lt.agg.quantile("x", 0.5) > 5, {"last": 5, "per": "k"}, lt.ParameterError, "only count"),
    "filter on a count of a column": (
        lt.agg.count("x") > 5,
        {"last": 5, "per": "k"},
        lt.ParameterError,
        r"count\('x'\); only count",
    ),
    "filter of arrivals": (
        lt.agg.count() > 5,
        {"last": lt.arrivals(5), "per": "k"},
        lt.ParameterError,
        r"filters take last= in time",
    ),
    "filter of the past": (
        lt.agg.count() > 5,
        {"between": (5, 2), "per": "k"},
        lt.ParameterError,
        r"filters take last= in time",
    ),
    "filter by algorithm": (lt.agg.count() > 5, {"last": 5, "per": "k", "using": "B-INT"}, lt.ParameterError, "leave it out"),
    "filter that none passes": (
        lt.agg.count() < 0,
        {"last": 5, "per": "k"},
        lt.ParameterError,
        "no substream can pass that; give a bound",
    ),
    "eps of a number": (lt.agg.sum("x"), {"last": 5, "eps": 0.1}, lt.ParameterError, r"eps=0.1.*always exact; leave them out"),
    "eps of an exact filter": (
        lt.agg.count() > 5,
        {"last": 5, "per": "k", "eps": 0.1},
        lt.ParameterError,
        "leave it out, or set",
    ),
    "eps too large": (
        lt.agg.count() > 5,
        {"last": 5, "per": "k", "exact": False, "eps": 1},
        lt.ParameterError,
        "eps=1; give a share",
    ),
    "eps too small": (
        lt.agg.count() > 5,
        {"last": 5, "per": "k", "exact": False, "eps": 0},
        lt.ParameterError,
        "eps=0; give a share",
    ),
    "exact of what": (
        lt.agg.count() > 5,
        {"last": 5, "per": "k", "exact": "no"},
        lt.ParameterError,
        "exact='no'; give True or",
    ),
    "an approximate maximum": (
        lt.agg.max("x") > 5,
        {"last": 5, "per": "k", "exact": False},
        lt.ParameterError,
        "exact at no cost",
    ),
    "wrong algorithm": (
        lt.agg.sum("x"),
        {"last": 5, "using": "L-INT"},
        lt.ParameterError,
        r"using='L-INT' .* it can use R-INT",
    ),
    "unknown algorithm": (lt.agg.max("x"), {"last": 5, "using": "magic"}, lt.ParameterError, "it can use B-INT or L-INT"),
    "no aggregate": ("sum", {"last": 5}, lt.ParameterError, r"cannot register 'sum'; give an aggregate such as lt\.agg\.sum"),
    "not built yet": (lt.agg.sum, {"last": 5}, lt.ParameterError, "cannot register"),
}


@pytest.mark.parametrize(("what", "options", "error", "match"), QUERIES.values(), ids=QUERIES)
def test_a_query_that_cannot_be_is_refused(what, options, error, match):
    refused(running(), error, match, lambda w: w.add("q", what, **options))


@pytest.mark.parametrize("name", ["", None, 5, ("a",)])
def test_a_query_needs_a_name(name):
    refused(running(), lt.ParameterError, "give it a name, such as 'volume'", lambda w: w.add(name, lt.agg.count(), last=5))


def test_names_are_unique_and_known():
    w = running()
    refused(w, lt.ParameterError, "named 'sum' already; drop it first", lambda w: w.add("sum", lt.agg.count(), last=5))
    refused(
        running(), lt.QueryError, "no query named 'total'; the registered ones are: sum, most, median", lambda w: w["total"]
    )
    refused(running(), lt.QueryError, "no query named 'total'; the registered ones are: sum", lambda w: w.drop("total"))
    with pytest.raises(lt.QueryError, match="registered ones are: none"):
        lt.Windows()["x"]


def test_a_filter_takes_arrivals_in_order():
    act = lambda w: w.add("q", lt.agg.count() > 5, per="k", last=5)  # noqa: E731
    refused(running(lateness=5), lt.ParameterError, "takes arrivals in order; build the Windows without lateness=", act)


@pytest.mark.parametrize("lateness", [-1, "soon", "-5s", 0.5])
def test_a_lateness_that_is_none(lateness):
    with pytest.raises(lt.ParameterError, match="lateness"):
        lt.Windows(tick=1, lateness=lateness)


# -- aggregates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: lt.agg.sum(None), r"sum\(None\) names no column; give the name of a column"),
        (lambda: lt.agg.max(""), r"max\(''\) names no column; give the name"),
        (lambda: lt.agg.count(5), r"count\(5\) names no column; give the name"),
        (lambda: lt.agg.quantile("x", 1.5), "q=1.5 is not between 0 and 1; give one share from 0 to 1"),
        (lambda: lt.agg.quantile("x", 99), "q=99 is not between 0 and 1; give one share"),
        (lambda: lt.agg.quantile("x", math.nan), "q=nan is not between 0 and 1; give one share"),
        (lambda: lt.agg.quantile("x", "median"), "q='median' is not between 0 and 1; give one share"),
        (lambda: lt.agg.variance("x", ddof=2), "ddof=2; give 1 for a sample or 0 for a population"),
        (lambda: lt.agg.stddev("x", ddof=True), "ddof=True; give 1"),
        (lambda: lt.agg.count() > math.nan, "with nan; give a number"),
        (lambda: lt.agg.count() > "many", "with 'many'; give a number"),
        (lambda: lt.agg.count() <= None, "with None; give a number"),
        (lambda: lt.agg.max("x").between(3, 2), r"between\(3, 2\) is an empty range; give the smaller bound first"),
        (lambda: lt.agg.max("x").between(math.nan, 2), r"between\(nan, 2\)"),
        (lambda: 1 < lt.agg.max("x") < 2, r"is a condition, not an answer; .*use between\(low, high\) for two bounds"),
        (lambda: bool(lt.agg.max("x")), r"max\('x'\) is a query, not an answer; give it to Windows.add"),
    ],
)
def test_an_aggregate_that_cannot_be(make, match):
    with pytest.raises(lt.ParameterError, match=match):
        make()


@pytest.mark.parametrize("name", ["sum", "count", "max", "custom", "quantile", "", "two words", None, 5, "9lives"])
def test_names_of_aggregates_are_names_that_are_free(name):
    with pytest.raises(lt.ParameterError, match=r"give it a name of letters and digits that no built-in aggregate has"):
        lt.agg.custom(name, identity=0.0, lift=abs, combine=max, lower=abs)


@pytest.mark.parametrize("role", ["lift", "combine", "lower", "inverse"])
def test_an_aggregate_is_made_of_functions(role):
    parts = {"identity": 0.0, "lift": abs, "combine": max, "lower": abs, role: 5}
    with pytest.raises(lt.ParameterError, match=rf"{role}=5 of the aggregate 'bad_mine' is not a function"):
        lt.agg.custom("bad_mine", **parts)


def test_an_aggregate_of_no_column():
    mine = lt.agg.custom("bad_other", identity=0.0, lift=abs, combine=max, lower=abs)
    with pytest.raises(lt.ParameterError, match=r"bad_other\(None\) names no column; give the name of a column"):
        mine(None)


# -- batches -------------------------------------------------------------------------------------------------------------

FINE = {"x": [1, 2], "y": [1.0, 2.0], "k": ["a", "b"]}
BATCHES = {
    "no such column": ({"x": [1, 2], "k": ["a", "b"]}, [4, 5], r"no column 'y', which the query 'most' needs; .*x, k"),
    "no keys": ({"x": [1, 2], "y": [1, 2]}, [4, 5], r"no column 'k', which the query 'busy' needs; .*x, y"),
    "no columns": ({}, [4, 5], "the batch has no column '.', which .* none"),
    "text": (FINE | {"x": ["1", "2"]}, [4, 5], r"'x' has the type .*aggregates need numbers: cast it first"),
    "NumPy text": (FINE | {"x": np.array(["1", "2"])}, [4, 5], r"'x' has the type <U1; aggregates need numbers"),
    "dates": (FINE | {"x": np.array(["2026-01-01"] * 2, "M8[D]")}, [4, 5], r"'x' has the type datetime64\[D\]; aggreg"),
    "mixed": (FINE | {"x": [1, "2"]}, [4, 5], "cannot read the column 'x': .*give one column of numbers"),
    "a table": (FINE | {"x": np.ones((2, 2))}, [4, 5], "'x' has 2 dimensions; give one column"),
    "complex": (FINE | {"x": np.ones(2, complex)}, [4, 5], "'x' has the type complex128"),
    "masked": (FINE | {"x": np.ma.array([1, 2], mask=[0, 1])}, [4, 5], "x"),
    "beyond 2**53": (
        FINE | {"x": [1, 2**53 + 1]},
        [4, 5],
        r"'x' has the value 9007199254740993, .* a filter takes floats; subtract an offset, cast it .* or drop the filter",
    ),
    "far beyond": (FINE | {"x": [1, -(2**70)]}, [4, 5], rf"'x' has the value -{2**70}, which is not a 64-bit integer"),
    "NumPy far beyond": (FINE | {"x": np.array([1, 2**63], np.uint64)}, [4, 5], rf"{2**63}, which is not a 64-bit integer"),
    "Arrow far beyond": (
        FINE | {"x": pa.array([None, 2**63], pa.uint64())},
        [4, 5],
        rf"{2**63}, which is not a 64-bit integer .*subtract an offset",
    ),
    "Arrow beyond 2**53": (FINE | {"x": pa.array([None, -(2**53) - 1])}, [4, 5], "the value -9007199254740993"),
    "different lengths": (FINE | {"x": [1]}, [4, 5], r"columns of different lengths: .*'x' has 1.*one value for each row"),
    "empty": ({"x": [], "y": [], "k": []}, [], r"an empty batch; skip the call, or use advance\(time\)"),
    "no times": (FINE, None, "no times, but the query 'sum' has a window of time; give the time of each row"),
    "too few times": (FINE, [4], "2 rows but 1 times; give one time for each row, or one for all"),
    "too many times": (FINE, [4, 5, 6], "2 rows but 3 times"),
    "text for times": (FINE, ["then", "now"], "cannot read times"),
    "times that are missing": (FINE, [4.0, math.nan], "time"),
    "key that is missing": (FINE | {"k": ["a", None]}, [4, 5], "1 of the keys are null; fill or drop them first"),
    "key of a wrong kind": (FINE | {"k": [1.5, 2.5]}, [4, 5], "text, bytes, integers or tuples"),
    "weight below zero": (FINE | {"x": [1, -2]}, [4, 5], r"'x' has the value -2.0, .*finite values that are not negative"),
    "weight without end, late row": (FINE | {"x": [1, math.inf]}, [1, 5], "'x' has the value inf"),
    "a column without a name": ({5: [1, 2]} | FINE, [4, 5], "a column named 5; give columns by their names"),
    "a list": ([1, 2], [4, 5], "cannot read columns from a list; give a dict of columns, an Arrow table or a data frame"),
    "a number": (5, [4, 5], "cannot read columns from a int"),
}


@pytest.mark.parametrize(("columns", "times", "match"), BATCHES.values(), ids=BATCHES)
def test_a_wrong_batch_is_refused_whole(columns, times, match):
    refused(running(), lt.InputError, match, lambda w: w.update(columns, times))


@pytest.mark.parametrize(("columns", "times", "match"), BATCHES.values(), ids=BATCHES)
def test_a_first_batch_that_is_wrong_decides_nothing(columns, times, match):
    w = lt.Windows(tick=1)
    w.add("most", lt.agg.max("y"), last=lt.arrivals(3))
    w.add("sum", lt.agg.sum("x"), last=10)
    w.add("busy", lt.agg.count() > 1, per="k", last=10)
    w.add("heavy", lt.agg.sum("x") > 1, per="k", last=10)
    if times == [1, 5]:
        times = [4, 5]
    with pytest.raises(lt.InputError):
        w.update(columns, times)
    assert (w.now, w.late, w["sum"], w["most"], len(w["busy"].value)) == (None, 0, lt.Answer(None, 0), lt.Answer(None, 0), 0)
    w.drop("sum")
    w.drop("busy")
    w.drop("heavy")
    w.add("another", lt.agg.min("another"), last=lt.arrivals(2))
    w.update({"y": [1, 2], "another": [3, 4]})  # without times, with other columns
    assert (w["most"].value, w["another"].value, w.now) == (2, 3, 1)


def test_a_batch_with_neither_columns_nor_times():
    w = lt.Windows(tick=1)
    w.add("n", lt.agg.count(), last=lt.arrivals(5))
    with pytest.raises(lt.InputError, match="without columns and times; give at least one"):
        w.update({})


def test_a_stream_has_times_or_has_none():
    w = lt.Windows(tick=1)
    w.add("n", lt.agg.count(), last=lt.arrivals(5))
    w.update({"x": [1, 2]})
    with pytest.raises(lt.InputError, match="times given, but the stream came without so far; leave them out"):
        w.update({"x": 1}, 5)
    with pytest.raises(
        lt.ParameterError, match=r"'t' has a window of time, but the stream came without times; use lt\.arrivals"
    ):
        w.add("t", lt.agg.count(), last=5)
    with pytest.raises(lt.ParameterError, match="without times; it moves with its arrivals only"):
        w.advance(5)
    assert (w["n"], w.now, w.queries) == (lt.Answer(2, 2), 1, ("n",))
    w = lt.Windows(tick=1)
    w.add("n", lt.agg.count(), last=lt.arrivals(5))
    w.update({"x": 1}, 5)
    with pytest.raises(lt.InputError, match="no times, but the stream came with times so far; give the time of each row"):
        w.update({"x": 1})


@pytest.mark.parametrize("time", [None, "then", [1, 2], math.nan])
def test_a_time_to_advance_to(time):
    refused(running(), lt.InputError, "time|more than one instant", lambda w: w.advance(time))
