"""What an ECM-sketch refuses: with the value and the remedy in the message, and nothing changed."""

import numpy as np
import pytest
from ecm_cases import build, feed
from streams import make

import lately as lt


def test_randomized_waves_refuse_inner_products():
    sketch, twin = build("integer", 100, counter="randwave")
    feed(sketch, twin, make(0, 50, 5, 1, 0))
    for question in (sketch.self_join, lambda: sketch.inner_product(sketch)):
        with pytest.raises(lt.QueryError, match="no guarantee for self-joins"):
            question()


def test_late_arrivals_are_refused_and_told():
    sketch, _ = build("integer", 100)
    sketch.update(["a", "b"], [50, 40])  # within a batch any order is fine
    assert (sketch.late, sketch.total().value) == (0, 2)
    sketch.update(["a", "b", "c"], [49, 50, 51], [3, 1, 1])
    assert (sketch.late, sketch.total().value) == (3, 4)
    sketch.update("a", 10)
    assert (sketch.late, sketch.total().value, sketch.now) == (4, 4, 51)
    patient, _ = build("integer", 100, lateness=20)
    patient.update(["a"], [50])
    patient.update(["b", "c"], [30, 29])
    assert (patient.late, patient.total().value) == (1, 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eps": 0}, "eps=0"),
        ({"eps": 1.0}, "eps=1.0"),
        ({"eps": float("nan")}, "eps=nan"),
        ({"eps": "0.1"}, "eps='0.1'"),
        ({"delta": -0.5}, "delta=-0.5"),
        ({"delta": 1}, "delta=1"),
        ({"window": "10ms"}, "shorter than one tick"),
        ({"window": "0s"}, "longer than nothing"),
        ({"window": -5}, "longer than nothing"),
        ({"window": "soon"}, "cannot read the duration 'soon'"),
        ({"window": "100d", "tick": "1ms"}, "coarser tick="),
        ({"window": 10, "tick": "1s"}, "give both the same way"),
        ({"window": lt.arrivals(5), "tick": 1}, "leave tick out"),
        ({"window": lt.arrivals(5), "lateness": 1}, "none is late"),
        ({"lateness": "2h"}, "lateness='2h' is negative or longer"),
        ({"counter": "bucket"}, "counter='bucket'; give one of wave, exphist, randwave, exact"),
        ({"query": "median"}, "query='median'; give one of point, inner"),
        ({"seed": -1}, "seed=-1"),
        ({"merge_height": -1}, "merge_height=-1"),
        ({"eps": 1e-9}, "cells; give a larger eps"),
        ({"counter": "randwave", "samples": 0}, "samples=0"),
    ],
)
def test_what_cannot_be_built_is_refused(options, says):
    with pytest.raises(lt.ParameterError, match=says):
        lt.EcmSketch(**({"window": "1h", "eps": 0.1, "delta": 0.1} | options))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([], []), "empty column"),
        ((["a", "b"], [1]), "2 keys but 1 times"),
        ((["a"], [1, 2]), "1 keys but 2 times"),
        ((["a", "b"], [1, None]), "None"),
        ((["a"], [float("nan")]), "nan"),
        ((["a"], [np.datetime64("NaT")]), "NaT"),
        ((["a"], ["yesterday"]), "cannot read times"),
        ((["a"], None), "times is None"),
        ((["a"], [2.0**80]), "seconds since 1970"),
        (([None], [1]), "null"),
        (([1.5], [1]), "not supported|is a float"),
        (([True], [1]), "bool"),
        (([2**70], [1]), "does not fit in 64 bits"),
        ((["a", "b"], [1, 2], [1, -1]), "-1"),
        ((["a", "b"], [1, 2], [1, 0.5]), "0.5"),
        ((["a", "b"], [1, 2], [1]), "1 counts for 2 keys"),
        ((["a"], [1], [2**63]), "below 2\\*\\*63"),
        ((["a", "b"], [1, 2], [2**62, 2**62]), "more than 2\\*\\*62"),
        ((["a"], [[1]]), "dimensions"),
    ],
)
def test_bad_batches_are_refused_whole(arguments, says):
    sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    sketch.update(["x", "y"], [0, 100])
    before = sketch.to_bytes()
    with pytest.raises(lt.LatelyError, match=says):
        sketch.update(*arguments)
    assert sketch.to_bytes() == before


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
def test_bad_ranges_are_refused(question, says):
    sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    with pytest.raises(lt.RangeError, match=says):
        sketch.count("x", **question)


def test_count_answers_for_one_key():
    sketch = lt.EcmSketch(window=100, eps=0.3, delta=0.3, counter="exact")
    sketch.update([("a", 1), ("b", 2), ("a", 1)], [1, 2, 3])
    assert sketch.count(("a", 1)).value == 2
    for keys in (["a", "b"], []):
        with pytest.raises(lt.InputError, match=r"use counts\(\)"):
            sketch.count(keys)


def test_ranges_in_the_past_are_extracted_from_exact_counters_only():
    sketch, twin = build("integer", 100, counter="wave")
    feed(sketch, twin, make(0, 50, 5, 1, 0))
    with pytest.raises(lt.QueryError, match=r"ask the sketch itself, or extract\(last=…\)"):
        sketch.extract(between=(50, 20))
    with pytest.raises(lt.QueryError, match="which the cells of shared waves do not have"):
        build("integer", 100)[0].extract(last=50)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((np.ma.array([1, 2], mask=[0, 1]), [1, 2]), "1 of the keys are masked"),
        (([1, 2], np.ma.array([1, 2], mask=[1, 1])), "2 of the times are masked"),
        ((["a"] * 3, [1_774_744_200, 1_774_744_200, 1_774_744_200_123]), "1774744200123.*divide milliseconds by 1000"),
        ((np.array([]), []), "empty column"),
        ((("a", "b", "a"), [0, 1, 2]), "a tuple is one key"),
    ],
)
def test_common_slips_are_caught(arguments, says):
    sketch = lt.EcmSketch(window="1h", eps=0.1, delta=0.1)
    with pytest.raises(lt.InputError, match=says):
        sketch.update(*arguments)
    assert sketch.now is None


def test_what_is_no_whole_number_of_ticks_is_refused():
    for options in ({"window": "1500ms"}, {"window": "1h", "tick": "7s"}, {"window": 1000, "tick": 60}):
        with pytest.raises(lt.ParameterError, match="not a whole number of ticks"):
            lt.EcmSketch(eps=0.1, delta=0.1, **options)
    sketch = lt.EcmSketch(window="1h", tick="1m", eps=0.1, delta=0.1)
    for question in ({"last": "90s"}, {"between": ("10m", "10s")}):
        with pytest.raises(lt.RangeError, match="not a whole number of ticks of 1m"):
            sketch.count("a", **question)
