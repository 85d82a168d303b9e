"""What a TopK refuses: with the value and the remedy in the message, and nothing changed."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lately as lt


def build(**options):
    return lt.TopK(**({"phi": 0.1, "window": "1h", "eps": 0.05, "delta": 0.05} | options))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"phi": None}, "k=None and phi=None; give one of them"),
        ({"k": 5}, "k=5 and phi=0.1; give one of them"),
        ({"phi": None, "k": 0}, "k=0 is not an integer from 1 to 1,000,000"),
        ({"phi": None, "k": -3}, "k=-3 is not an integer"),
        ({"phi": None, "k": 1_000_001}, "k=1000001 is not an integer"),
        ({"phi": None, "k": 2.0}, "k=2.0 is not an integer"),
        ({"phi": None, "k": "10"}, "k='10' is not an integer"),
        ({"phi": None, "k": True}, "k=True is not an integer"),
        ({"phi": 0}, "phi=0 is not between 0 and 1"),
        ({"phi": 1}, "phi=1 is not between 0 and 1"),
        ({"phi": 5}, "phi=5 is not between 0 and 1"),
        ({"phi": -0.1}, "phi=-0.1 is not between 0 and 1"),
        ({"phi": float("nan")}, "phi=nan is not between 0 and 1"),
        ({"phi": "0.1"}, "phi='0.1' is not between 0 and 1"),
        ({"phi": True}, "phi=True is not between 0 and 1"),
        ({"phi": 0.05}, r"phi=0\.05 is not above eps=0\.05.*an eps below 0\.05, such as 0\.0125, or ask for a phi above 0\.05"),
        ({"phi": 0.01}, r"phi=0\.01 is not above eps=0\.05.*such as 0\.0025"),
        ({"eps": 0}, "eps=0 is not between 0 and 1"),
        ({"eps": 1.0}, "eps=1.0 is not between 0 and 1"),
        ({"eps": float("nan")}, "eps=nan"),
        ({"eps": "0.1"}, "eps='0.1'"),
        ({"delta": -0.5}, "delta=-0.5 is not between 0 and 1"),
        ({"delta": 1}, "delta=1 is not between"),
        ({"eps": 1e-9, "delta": 1e-6}, "cells; give a larger eps"),
        ({"merge_height": -1}, "merge_height=-1 is not an integer from 0 to 255"),
        ({"merge_height": 1.5}, "merge_height=1.5"),
        ({"seed": -1}, "seed=-1 is not an integer"),
        ({"seed": 2**64}, "seed=18446744073709551616 is not an integer"),
        ({"window": "10ms"}, "shorter than one tick"),
        ({"window": -5}, "longer than nothing"),
        ({"window": "soon"}, "cannot read the duration 'soon'"),
        ({"window": "1500ms"}, "not a whole number of ticks"),
        ({"window": lt.arrivals(5), "tick": 1}, "leave tick out"),
        ({"window": lt.arrivals(5), "lateness": 1}, "none is late"),
        ({"lateness": "2h"}, "lateness='2h' is negative or longer"),
    ],
)
def test_what_cannot_be_built_is_refused(options, says):
    with pytest.raises(lt.ParameterError, match=says):
        build(**options)


def test_what_is_missing_or_unknown_is_refused_by_python():
    for options in (
        {"window": "1h", "eps": 0.1, "k": 3},
        {"k": 3, "eps": 0.1, "delta": 0.1},
        {"k": 3, "window": "1h", "delta": 0.1},
    ):
        with pytest.raises(TypeError, match="missing 1 required keyword-only argument"):
            lt.TopK(**options)
    with pytest.raises(TypeError, match="counter"):
        build(counter="wave")
    with pytest.raises(TypeError, match="positional"):
        lt.TopK(10, window="1h", eps=0.1, delta=0.1)


def test_numbers_of_numpy_are_numbers():
    assert build(phi=None, k=np.int64(3)).k == 3
    assert build(phi=np.float64(0.25)).k == 4
    assert lt.from_bytes(build(phi=np.float32(0.5)).to_bytes()).k == 2


@pytest.mark.parametrize("lateness", [None, "10s"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([], []), "empty column"),
        ((np.array([]), []), "empty column"),
        ((pa.array([], pa.string()), []), "empty column"),
        ((["a", "b"], [201]), "2 keys but 1 times"),
        ((["a"], [201, 202]), "1 keys but 2 times"),
        ((("a", "b", "a"), [200, 201, 202]), "a tuple is one key"),
        ((["a", "b"], [201, None]), "None"),
        ((["a"], [float("nan")]), "nan"),
        ((["a"], [np.datetime64("NaT")]), "NaT"),
        ((["a"], ["yesterday"]), "cannot read times"),
        ((["a"], None), "times is None"),
        ((["a"], [2.0**80]), "seconds since 1970"),
        (([None], [201]), "null"),
        ((["a", None, "b"], [201, 202, 203]), "null|None"),
        (([("a", 1), ("b", None)], [201, 202]), "null|None"),
        ((pa.array(["a", None]), [201, 202]), "1 of the keys are null; fill or drop"),
        ((pa.array([1, None, None]), [201, 202, 203]), "2 of the keys are null; fill or drop"),
        ((pl.Series(["a", None]), [201, 202]), "1 of the keys are null; fill or drop"),
        ((pd.Series(["a", None]), [201, 202]), "null|None"),
        ((np.ma.array([1, 2], mask=[0, 1]), [201, 202]), "1 of the keys are masked"),
        (([1.5], [201]), "not supported|is a float"),
        (([True], [201]), "bool"),
        (([2**70], [201]), "does not fit in 64 bits"),
        ((["\ud800"], [201]), "not valid Unicode"),
        (([()], [201]), "empty tuple"),
        (([("a", 1), ("a", 1, 2)], [201, 202]), "must all have 2 parts"),
        ((["a", "b"], [201, 202], [1, -1]), "-1"),
        ((["a", "b"], [201, 202], [1, 0.5]), "0.5"),
        ((["a", "b"], [201, 202], [1]), "1 counts for 2 keys"),
        ((["a"], [201], [2**63]), r"below 2\*\*63"),
        ((["a", "b"], [201, 202], [2**62, 2**62]), r"more than 2\*\*62"),
        ((["a"], [[201]]), "dimensions"),
    ],
)
def test_bad_batches_are_refused_whole(arguments, says, lateness):
    sketch = build(lateness=lateness)
    sketch.update(["x", "y", "y", "z"], [0, 100, 195, 200])
    before, answers = sketch.to_bytes(), sketch.top()
    with pytest.raises(lt.InputError, match=says):
        sketch.update(*arguments)
    assert sketch.to_bytes() == before
    assert sketch.top() == answers


def test_times_are_not_given_to_a_window_of_arrivals():
    sketch = build(window=lt.arrivals(100))
    sketch.update(["a"])
    before = sketch.to_bytes()
    with pytest.raises(lt.InputError, match="leave times out"):
        sketch.update(["a"], [1])
    with pytest.raises(lt.ParameterError, match="moves with its arrivals only"):
        sketch.advance(5)
    assert sketch.to_bytes() == before


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (lambda s: s.top(0), "k=0 is not an integer from 1 to 1,000,000"),
        (lambda s: s.top(2.5), "k=2.5 is not an integer"),
        (lambda s: s.top("5m"), "k='5m' is not an integer"),
        (lambda s: s.top(True), "k=True is not an integer"),
        (lambda s: s.plot(0), "k=0 is not an integer"),
        (lambda s: s.heavy_hitters(0), "phi=0 is not between 0 and 1"),
        (lambda s: s.heavy_hitters("5m"), "phi='5m' is not between 0 and 1"),
        (lambda s: s.heavy_hitters(2), "phi=2 is not between 0 and 1"),
        (lambda s: s.heavy_hitters(0.05), r"phi=0\.05 is not above eps=0\.05.*such as 0\.0125"),
        (lambda s: s.heavy_hitters(0.08), r"phi=0\.08 is below 0\.1, from which on keys are listed; build it with less"),
    ],
)
def test_bad_questions_are_refused(question, says):
    sketch = build()
    sketch.update(["x", "y"], [0, 100])
    before = sketch.to_bytes()
    with pytest.raises(lt.ParameterError, match=says):
        question(sketch)
    assert sketch.to_bytes() == before


def test_a_sketch_built_with_k_must_be_told_what_is_heavy():
    sketch = build(phi=None, k=5)
    sketch.update(["a"] * 9 + ["b"], 7)
    with pytest.raises(lt.ParameterError, match=r"built with k=; say which share is heavy, as in heavy_hitters\(phi=0\.05\)"):
        sketch.heavy_hitters()
    assert sketch.heavy_hitters(0.5).key == sketch.heavy_hitters(phi=0.051, last="1m").key[:1] == ["a"]
    with pytest.raises(lt.ParameterError, match=r"phi=0\.05 is not above eps=0\.05"):
        sketch.heavy_hitters(0.05)
    assert build(phi=0.1).heavy_hitters(0.1) == build(phi=0.1).heavy_hitters() == []


@pytest.mark.parametrize("ask", ["top", "heavy_hitters", "largest", "self_join", "entropy", "total", "plot"])
@pytest.mark.parametrize(
    ("question", "says"),
    [
        ({"last": "2h"}, "does not lie in the window of 1h"),
        ({"last": 5}, "write it like '10m'"),
        ({"last": "-5m"}, "cannot read"),
        ({"last": "5m", "between": ("2m", "1m")}, "give one of them"),
        ({"between": ("1m", "2m")}, "runs backwards"),
        ({"between": ("2h", "1m")}, "does not lie in the window"),
        ({"between": "10m"}, "give two ages"),
    ],
)
def test_bad_ranges_are_refused(ask, question, says):
    sketch = build()
    for _ in range(2):  # also when it has seen something
        with pytest.raises(lt.RangeError, match=says):
            getattr(sketch, ask)(**question)
        sketch.update("x", 5)


def test_counts_are_of_one_key_or_of_columns():
    sketch = build()
    sketch.update([("a", 1), ("b", 2), ("a", 1)], [1, 2, 3])
    assert sketch.count(("a", 1)).value == 2
    assert sketch.counts([("b", 2), ("c", 3)]).value.tolist() == [1, 0]
    for keys in (["a", "b"], []):
        with pytest.raises(lt.InputError, match=r"use counts\(\)"):
            sketch.count(keys)


def test_what_is_no_sketch_of_its_kind_is_not_merged():
    sketch = build()
    with pytest.raises(lt.MergeError, match="TopK with a EcmSketch"):
        lt.merge([sketch, lt.EcmSketch(window="1h", eps=0.05, delta=0.05)])
    full = build(window=100)
    full.update("a", 5, 2**61)
    with pytest.raises(lt.MergeError, match=r"more than 2\*\*62"):
        lt.merge([full, full, full])
    before = full.to_bytes()
    with pytest.raises(lt.InputError, match=r"more than 2\*\*62"):
        full.update(["b", "c"], [6, 6], [2**61, 1])
    assert full.to_bytes() == before
