"""Windows with queries of every kind that is stored differently, for the tests that go over all stored classes."""

import numpy as np

import lately as lt

#: One of each built-in aggregate, of a column x.
AGGREGATES = [
    lt.agg.count("x"),
    lt.agg.sum("x"),
    lt.agg.avg("x"),
    lt.agg.min("x"),
    lt.agg.max("x"),
    lt.agg.first("x"),
    lt.agg.last("x"),
    lt.agg.variance("x"),
    lt.agg.variance("x", ddof=0),
    lt.agg.stddev("x"),
    lt.agg.stddev("x", ddof=0),
    lt.agg.quantile("x", 0),
    lt.agg.quantile("x", 0.25),
    lt.agg.quantile("x", 0.99),
    lt.agg.quantile("x", 1),
]


def windows(**options):
    """Queries over time: a number from each kind of index, and a filter of each kind."""
    w = lt.Windows(tick=1, **options)
    w.add("volume", lt.agg.sum("x"), last=60)
    w.add("mean", lt.agg.avg("x"), between=(80, 20))
    w.add("deviation", lt.agg.stddev("x"), last=100)
    w.add("high", lt.agg.max("y"), last=30)
    w.add("low", lt.agg.min("y"), between=(90, 10), using="L-INT")
    w.add("median", lt.agg.quantile("x", 0.5), last=100)
    w.add("rows", lt.agg.count(), last=50)
    return w


def filters(**options):
    """Filters of every kind, one of them approximate."""
    w = windows(**options)
    w.add("busy", lt.agg.count() > 2, per="key", last=50)
    w.add("heavy", lt.agg.sum("x") >= 10, per="key", last=80)
    w.add("peak", lt.agg.max("y").between(-3, 3), per="key", last=60)
    w.add("floor", lt.agg.min("y") < 0, per="key", last=100)
    return w


def approximate():
    w = lt.Windows(tick=1)
    w.add("busy", lt.agg.count() > 20, per="key", last=50, exact=False, eps=0.2)
    w.add("heavy", lt.agg.sum("x").between(5, 50), per="key", last=80, exact=False)
    return w


def arrivals():
    """Queries over arrivals only, for a stream without times."""
    w = lt.Windows()
    w.add("volume", lt.agg.sum("x"), last=lt.arrivals(30))
    w.add("oldest", lt.agg.first("y"), last=lt.arrivals(50))
    w.add("newest", lt.agg.last("y"), between=(lt.arrivals(40), lt.arrivals(3)))
    w.add("median", lt.agg.quantile("x", 0.5), last=lt.arrivals(100))
    return w


def large():
    """Queries for numbers of every kind over one column, for integers that no float is equal to."""
    w = lt.Windows(tick=1)
    for i, aggregate in enumerate(AGGREGATES):
        w.add(f"{i}", aggregate, last=100)
    w.add("landmarks", lt.agg.max("x"), between=(95, 15), using="L-INT")
    return w


def columns(numbers):
    """Columns out of one of integers: x is never negative, y is fractions of either sign and here and there missing."""
    numbers = np.asarray(numbers)
    y = (numbers % 14 - 7) / 4
    return {"key": numbers % 50, "x": (numbers % 9).astype(float) / 2, "y": np.where(numbers % 11 == 5, np.nan, y)}


def feed(w, numbers, times):
    w.update(columns(numbers), times)


def ask(w):
    """What all queries say, as tuples: tables of keys in no particular order among equals."""
    said = []
    for name, answer in w.answers().items():
        value = answer.value
        if isinstance(value, lt.Answers):
            value = sorted((row.key, *_bounds(row.value)) for row in value)
        said.append((name, value, answer.rows, answer.missing, answer.covered))
    return said


def _bounds(value):
    return (value.low, value.value, value.high) if isinstance(value, lt.Estimate) else (value,)


#: By the names of their files and specimens.
BUILDS = {"windows": windows, "filters": filters, "guesses": approximate}
