"""Partial results of several sites, combined: the answers that one Windows over all of them gives."""

import dataclasses
import pickle

import exact_cases
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt

rows = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 200), st.integers(0, 2)), min_size=1, max_size=80)


def _sites(stream, build=exact_cases.filters, number=3):
    """The whole stream in one, and dealt out to sites that all know what time it is."""
    stream = sorted(stream)
    whole, sites = build(), [build() for _ in range(number)]
    for w, mine in ((whole, stream), *((site, [row for row in stream if row[2] == i]) for i, site in enumerate(sites))):
        if mine:
            exact_cases.feed(w, [number for _, number, _ in mine], [tick for tick, _, _ in mine])
        w.advance(stream[-1][0] + 5)
    return whole, sites


def _tables(answers):
    return [
        (name, sorted(tuple(row) for row in a.value) if isinstance(a.value, lt.Answers) else a.value)
        for name, a in answers.items()
    ]


@given(stream=rows)
def test_partials_of_sites_combine_to_the_answers_of_all(stream):
    whole, sites = _sites(stream)
    combined = lt.merge([site.partials() for site in sites])
    expected, found = dict(_tables(whole.answers())), dict(_tables(combined.answers()))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == (pytest.approx(value, rel=1e-15) if isinstance(value, float) else value), name
    assert [a.rows for n, a in combined.answers().items() if n == "rows"] == [whole["rows"].rows]


@given(stream=rows)
def test_order_and_grouping_do_not_matter_and_inputs_stay(stream):
    a, b, c = (site.partials() for site in _sites(stream)[1])
    before = a.to_bytes(), b.to_bytes(), c.to_bytes()
    ways = [(a | b) | c, a | (b | c), c | b | a, lt.merge([b, c, a])]
    assert len({way.to_bytes() for way in ways}) == 1
    assert (a.to_bytes(), b.to_bytes(), c.to_bytes()) == before


@given(stream=rows)
def test_bytes_and_pickle_bring_back_the_same(stream):
    part = _sites(stream)[1][0].partials()
    for twin in (lt.from_bytes(part.to_bytes()), pickle.loads(pickle.dumps(part))):
        assert twin.to_bytes() == part.to_bytes()
        assert _tables(twin.answers()) == _tables(part.answers())


@pytest.mark.parametrize("values", [[np.inf] * 3, [-np.inf, 1.0, -np.inf], [-np.inf, -np.inf, 0.5, np.inf, np.inf]])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_quantiles_over_infinities_are_read_back(values, share):
    w = lt.Windows(tick=1)
    w.add("q", lt.agg.quantile("x", share), last=10)
    w.update({"x": values}, 0)
    part = lt.from_bytes(w.partials().to_bytes())
    assert part["q"] == w["q"]
    assert (part | part)["q"].value == w["q"].value


def test_every_aggregate_combines():
    product = lt.agg.custom("product", lift=lambda x: x, combine=lambda a, b: a * b, lower=lambda s: s, identity=1.0)
    aggregates = {
        "count": lt.agg.count("x"),
        "sum": lt.agg.sum("x"),
        "avg": lt.agg.avg("x"),
        "min": lt.agg.min("x"),
        "max": lt.agg.max("x"),
        "variance": lt.agg.variance("x"),
        "stddev": lt.agg.stddev("x", ddof=0),
        "first": lt.agg.first("x"),
        "last": lt.agg.last("x"),
        "quantile": lt.agg.quantile("x", 0.7),
        "product": product("x"),
    }
    whole, *sites = (lt.Windows(tick=1) for _ in range(3))
    for w in (whole, *sites):
        for name, what in aggregates.items():
            w.add(name, what, last=10)
    values = [0.1, 5.0, float("nan"), 2.0, 0.2, 8.0]
    whole.update({"x": values}, range(6))
    for i, site in enumerate(sites):
        site.update({"x": values[i::2]}, range(6)[i::2])
        site.advance(5)
    combined = lt.merge([site.partials() for site in sites])
    for name in aggregates:
        assert combined[name].value == pytest.approx(whole[name].value, rel=1e-15)
        assert (combined[name].rows, combined[name].missing) == (6, 1)
    assert lt.from_bytes(combined.to_bytes())["product"].value == pytest.approx(8 * 2 * 5 * 0.02, rel=1e-15)


def test_infinities_and_nothing_combine_as_in_one_window():
    sites = [lt.Windows(tick=1) for _ in range(3)]
    for site, values in zip(sites, ([1.0, np.inf], [-np.inf], None), strict=True):
        site.add("sum", lt.agg.sum("x"), last=10)
        if values:
            site.update({"x": values}, 3)
        site.advance(3)
    one, two, none = (site.partials() for site in sites)
    assert (one | none)["sum"].value == np.inf
    assert (two | none)["sum"].value == -np.inf
    assert (one | two)["sum"].value is None  # not a number, as in any sum of both
    assert none["sum"].value is None


def test_what_is_covered_least_decides():
    early, late = lt.Windows(tick=1), lt.Windows(tick=1)
    early.add("sum", lt.agg.sum("x"), last=10)
    for w in (early, late):
        w.update({"x": [1, 2]}, [0, 5])
    late.add("sum", lt.agg.sum("x"), last=10)
    both = early.partials() | late.partials()
    assert both["sum"].value is None
    assert both["sum"].covered == late["sum"].covered < 1


def _site(now=10, tick=1, **query):
    w = lt.Windows(tick=tick)
    w.add("q", **({"what": lt.agg.sum("x"), "last": 5} | query))
    w.update({"x": [1.0], "key": ["a"]}, now)
    return w


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: _site(now=11).partials(), "of 10 with those of 11.*advance"),
        (lambda: _site(last=6).partials(), r"sum\('x'\), last 5 in one and sum\('x'\), last 6 in another"),
        (lambda: _site(what=lt.agg.avg("x")).partials(), r"sum\('x'\), last 5 in one and avg\('x'\), last 5 in another"),
        (lambda: lt.Windows(tick=1).partials(), "partial results of 10 with those of None"),
        (lambda: lt.CountMin(eps=0.1, delta=0.1), "Partials with CountMin"),
    ],
)
def test_what_cannot_be_combined_is_refused_with_the_reason(other, message):
    with pytest.raises(lt.MergeError, match=message):
        _site().partials() | other()


def test_windows_of_arrivals_and_guesses_cannot_be_combined():
    last = _site(last=lt.arrivals(3)).partials()
    with pytest.raises(lt.MergeError, match=r"window of arrivals.*use a window of time"):
        last | last
    with pytest.raises(lt.QueryError, match=r"approximate.*exact=True"):
        _site(what=lt.agg.count() > 20, per="key", exact=False).partials()
    with pytest.raises(lt.QueryError, match="no query named 'z'"):
        last["z"]


def test_some_queries_by_their_names():
    w = exact_cases.arrivals()
    w.add("last", lt.agg.last("y"), last="1m")
    exact_cases.feed(w, np.arange(30), np.arange(30))
    part = w.partials(["last"])
    assert (part | part)["last"] == lt.Answer(w["last"].value, 60, 2 * w["last"].missing)
    assert repr(part) == "Partials(last; now=1970-01-01 00:00:29+00:00)"
    with pytest.raises(lt.QueryError, match="no query named 'z'"):
        w.partials(["z"])
    with pytest.raises(lt.MergeError, match=r"Windows are not merged.*partials\(\)"):
        lt.merge([w, w])


def test_states_that_are_no_numbers_combine_but_are_not_stored():
    names = lt.agg.custom("names", lift=lambda x: f"{x} ", combine=lambda a, b: a + b, lower=lambda s: s, identity="")
    part = _site(what=names("x")).partials()
    assert (part | part)["q"].value == "1.0 1.0 "
    with pytest.raises(lt.LatelyError, match=r"'names' has the state '1.0 '.*only states of numbers can be stored"):
        part.to_bytes()


def test_a_forged_state_of_a_users_aggregate_is_refused():
    pair = lt.agg.custom(
        "pair",
        lift=lambda x: (x, 1.0),
        combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lower=lambda s: s[0],
        identity=(0.0, 0.0),
    )
    part = _site(what=pair("x")).partials()
    assert lt.from_bytes(part.to_bytes())["q"].value == 1.0
    for state in ((1.0,), (1.0, 1.0, 1.0), 1.0):
        forged = lt.from_bytes(part.to_bytes())
        forged._parts["q"] = dataclasses.replace(forged._parts["q"], state=state)
        with pytest.raises(lt.FormatError, match="a state that is not one of 'pair'"):
            lt.from_bytes(forged.to_bytes())
