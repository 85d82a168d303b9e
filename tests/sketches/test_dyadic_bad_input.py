"""What a sketch of integers refuses: with the value and the remedy in the message, and nothing changed."""

import numpy as np
import pytest

import lately as lt


def filled(**options):
    sketch = lt.Dyadic(**({"universe": 1000, "window": 100, "eps": 0.1, "delta": 0.1} | options))
    sketch.update([1, 999, 0], [1, 5, 9])
    return sketch


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"universe": 1}, "universe=1 is not an integer from 2 to 2\\*\\*63"),
        ({"universe": 0}, "universe=0"),
        ({"universe": -5}, "universe=-5"),
        ({"universe": 2**63 + 1}, "universe=9223372036854775809"),
        ({"universe": 1000.0}, "universe=1000.0"),
        ({"universe": True}, "universe=True"),
        ({"universe": "1000"}, "universe='1000'"),
        ({"universe": None}, "universe=None"),
        ({"eps": 0}, "eps=0"),
        ({"eps": 1.0}, "eps=1.0"),
        ({"eps": float("nan")}, "eps=nan"),
        ({"eps": "0.1"}, "eps='0.1'"),
        ({"delta": 0}, "delta=0"),
        ({"delta": 1}, "delta=1"),
        ({"window": "soon"}, "cannot read the duration 'soon'"),
        ({"window": -5}, "longer than nothing"),
        ({"window": lt.arrivals(5), "lateness": 1}, "none is late"),
        ({"lateness": 200}, "lateness=200 is negative or longer"),
        ({"seed": -1}, "seed=-1"),
        ({"merge_height": -1}, "merge_height=-1"),
        ({"merge_height": 1.5}, "merge_height=1.5"),
        ({"universe": 2**63, "eps": 1e-6}, "eps=1e-06, delta=0.1 over .* cells; give a larger eps"),
    ],
)
def test_what_cannot_be_built_is_refused(options, says):
    with pytest.raises(lt.ParameterError, match=says):
        lt.Dyadic(**({"universe": 1000, "window": 100, "eps": 0.1, "delta": 0.1} | options))


def test_options_are_given_by_name_and_a_universe_of_any_integer_type():
    with pytest.raises(TypeError):
        lt.Dyadic(1000, 100, 0.1, 0.1)
    assert filled(universe=np.int32(1000)).universe == 1000
    assert type(filled(universe=np.uint64(1000)).universe) is int


@pytest.mark.parametrize("lateness", [None, 5])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([5, 1000], [10, 11]), "the key 1000 lies outside of 0..999; filter it, or build a larger universe"),
        (([5, -1], [10, 11]), "the key -1 lies outside of 0..999"),
        ((np.array([5, 2**63], np.uint64), [10, 11]), "9223372036854775808.*below 2\\*\\*63"),
        (([5, 2**70], [10, 11]), "whole numbers"),
        (([5, 1.5], [10, 11]), "1.5.*whole numbers"),
        (([5, float("nan")], [10, 11]), "nan"),
        (([5, None], [10, 11]), "None"),
        ((["5", "6"], [10, 11]), "'5'.*whole numbers"),
        (([True, False], [10, 11]), "True|False"),
        (([[1, 2], [3, 4]], [10, 11]), "2 dimensions; give one column"),
        (([[1, 2], [3]], [10, 11]), "cannot read keys"),
        ((np.ma.array([1, 2], mask=[0, 1]), [10, 11]), "1 of the keys are masked"),
        (([], []), "empty column"),
        (([5, 6], [10]), "2 keys but 1 times"),
        (([5, 6], [10, None]), "None"),
        (([5, 6], None), "times is None"),
        (([5, 6], [10, 11], [1, -1]), "-1"),
        (([5, 6], [10, 11], [1, 0.5]), "0.5"),
        (([5, 6], [10, 11], [1]), "1 counts for 2 keys"),
        (([5, 6], [10, 11], [2**62, 2**62]), "more than 2\\*\\*62"),
        (([5, 6], [10, 11], [2**61, 2**61]), "more than 2\\*\\*62"),
    ],
)
def test_bad_batches_are_refused_whole(lateness, arguments, says):
    sketch = filled(lateness=lateness)
    before = sketch.to_bytes()
    with pytest.raises(lt.InputError, match=says):
        sketch.update(*arguments)
    assert sketch.to_bytes() == before


def test_nulls_in_columns_are_refused():
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    sketch = filled()
    before = sketch.to_bytes()
    for keys in (pa.array([1, None]), pl.Series([1, None]), pd.Series([1, None], dtype="Int64"), pd.Series([1, None])):
        with pytest.raises(lt.InputError, match=r"null|NA|nan|missing"):
            sketch.update(keys, [10, 11])
    assert sketch.to_bytes() == before


def test_whole_numbers_are_taken_from_any_column():
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    expected = None
    for keys in ([1, 2, 1], (1, 2, 1), np.array([1.0, 2.0, 1.0]), np.array([1, 2, 1], np.uint8), pd.Series([1, 2, 1]),
                 pl.Series([1, 2, 1]), pa.array([1, 2, 1]), pa.chunked_array([[1], [2, 1]]), range(1, 4)):  # fmt: skip
        sketch = lt.Dyadic(universe=1000, window=100, eps=0.1, delta=0.1)
        sketch.update(keys, [10, 11, 12])
        expected = expected or sketch.to_bytes()
        assert (sketch.to_bytes() == expected) == (not isinstance(keys, range))
    one = lt.Dyadic(universe=1000, window=100, eps=0.1, delta=0.1)
    for key, time in ((1, 10), (np.int64(2), 11), (1.0, 12)):
        one.update(key, time)
    assert one.to_bytes() == expected


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda s: s.count(1000), lt.RangeError, "the key 1000 lies outside of 0..999; filter it, or build a larger universe"),
        (lambda s: s.count(-1), lt.RangeError, "the key -1 lies outside"),
        (lambda s: s.counts([1, 5000]), lt.RangeError, "the key 5000 lies outside"),
        (lambda s: s.count("a"), lt.InputError, "'a'.*whole numbers"),
        (lambda s: s.count(1.5), lt.InputError, "1.5.*whole numbers"),
        (lambda s: s.count(True), lt.InputError, "True"),
        (lambda s: s.count(None), lt.InputError, "None"),
        (lambda s: s.count([1, 2]), lt.InputError, r"use counts\(\)"),
        (lambda s: s.count([]), lt.InputError, r"use counts\(\)"),
        (lambda s: s.counts([[1, 2]]), lt.InputError, "2 dimensions"),
        (lambda s: s.count_range(5, 4), lt.RangeError, r"count_range\(5, 4\) runs backwards; give the smaller key first"),
        (lambda s: s.count_range(0, 1000), lt.RangeError, "the key 1000 lies outside"),
        (lambda s: s.count_range(-1, 5), lt.RangeError, "the key -1 lies outside"),
        (lambda s: s.count_range(0.5, 5), lt.InputError, "0.5"),
        (lambda s: s.count_range(None, 5), lt.InputError, "None"),
        (lambda s: s.count_range([1, 2], 5), lt.InputError, "."),
        (lambda s: s.rank(1000), lt.RangeError, "the key 1000 lies outside"),
        (lambda s: s.rank([1, 2]), lt.InputError, "."),
        (lambda s: s.rank(2**70), lt.LatelyError, "."),
        (lambda s: s.quantile(1.1), lt.ParameterError, "q=1.1; give a share from 0 to 1"),
        (lambda s: s.quantile(-0.1), lt.ParameterError, "q=-0.1"),
        (lambda s: s.quantile(float("nan")), lt.ParameterError, "q=nan"),
        (lambda s: s.quantile(None), lt.ParameterError, "q=None"),
        (lambda s: s.quantile("half"), lt.ParameterError, "q='half'"),
        (lambda s: s.quantile([]), lt.ParameterError, "q=\\[\\]"),
        (lambda s: s.quantile([0.5, 2]), lt.ParameterError, "q=\\[0.5, 2\\]"),
        (lambda s: s.quantile([[0.5]]), lt.ParameterError, "q=\\[\\[0.5\\]\\]"),
        (lambda s: s.quantile(0.5, between=(50, 20)), lt.RangeError, "no arrivals in this range"),
        (lambda s: s.heavy_hitters(), lt.ParameterError, "phi=None and at_least=None; give one of them"),
        (lambda s: s.heavy_hitters(phi=0.5, at_least=3), lt.ParameterError, "phi=0.5 and at_least=3; give one of them"),
        (lambda s: s.heavy_hitters(phi=0), lt.ParameterError, "phi=0 is not between 0 and 1"),
        (lambda s: s.heavy_hitters(phi=1), lt.ParameterError, "phi=1 is not between 0 and 1"),
        (lambda s: s.heavy_hitters(phi=-0.5), lt.ParameterError, "phi=-0.5 is not between 0 and 1"),
        (lambda s: s.heavy_hitters(phi=float("nan")), lt.ParameterError, "phi=nan"),
        (lambda s: s.heavy_hitters(phi="a lot"), lt.ParameterError, "phi='a lot'"),
        (lambda s: s.heavy_hitters(phi=True), lt.ParameterError, "phi=True"),
        (lambda s: s.heavy_hitters(0.1), lt.ParameterError, "phi=0.1 is not above eps=0.1"),
        (lambda s: s.heavy_hitters(0.08), lt.ParameterError, "an eps below 0.08, such as 0.02, or ask for a phi above 0.1"),
        (lambda s: s.heavy_hitters(at_least=0), lt.ParameterError, "at_least=0 is not a number from 1 to 2.*62"),
        (lambda s: s.heavy_hitters(at_least=-3), lt.ParameterError, "at_least=-3"),
        (lambda s: s.heavy_hitters(at_least=float("nan")), lt.ParameterError, "at_least=nan"),
        (lambda s: s.heavy_hitters(at_least=float("inf")), lt.ParameterError, "at_least=inf"),
        (lambda s: s.heavy_hitters(at_least="3"), lt.ParameterError, "at_least='3'"),
        (lambda s: s.heavy_hitters(at_least=True), lt.ParameterError, "at_least=True"),
        (lambda s: s.hierarchical(0.05), lt.ParameterError, "phi=0.05 is not above eps=0.1.*such as 0.0125"),
        (lambda s: s.hierarchical(None), lt.ParameterError, "phi=None"),
        (lambda s: s.hierarchical(0.5, bits_per_level=0), lt.ParameterError, "bits_per_level=0.*from 1 to 10; a key"),
        (lambda s: s.hierarchical(0.5, bits_per_level=11), lt.ParameterError, "bits_per_level=11.*from 1 to 10"),
        (lambda s: s.hierarchical(0.5, bits_per_level=2.0), lt.ParameterError, "bits_per_level=2.0"),
        (lambda s: s.hierarchical(0.5, bits_per_level=True), lt.ParameterError, "bits_per_level=True"),
        (lambda s: s.plot(bins=0), lt.ParameterError, "bins=0 is not an integer from 1 to 10,000"),
        (lambda s: s.plot(bins=2.5), lt.ParameterError, "bins=2.5"),
    ],
)  # fmt: skip
def test_bad_questions_are_refused(ask, error, says):
    sketch = filled()
    before = sketch.to_bytes()
    with pytest.raises(error, match=says):
        ask(sketch)
    assert sketch.to_bytes() == before


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ({"last": 200}, "does not lie in the window of 100"),
        ({"last": "5m"}, "."),
        ({"last": -5}, "negative"),
        ({"last": 5, "between": (20, 10)}, "give one of them"),
        ({"between": (10, 20)}, "runs backwards"),
        ({"between": (200, 10)}, "does not lie in the window"),
        ({"between": 10}, "give two ages"),
    ],
)
@pytest.mark.parametrize(
    "ask",
    [
        lambda s, **r: s.count(1, **r),
        lambda s, **r: s.counts([1, 2], **r),
        lambda s, **r: s.count_range(0, 5, **r),
        lambda s, **r: s.count_range(0, 999, **r),
        lambda s, **r: s.rank(5, **r),
        lambda s, **r: s.quantile(0.5, **r),
        lambda s, **r: s.heavy_hitters(phi=0.5, **r),
        lambda s, **r: s.hierarchical(0.5, **r),
        lambda s, **r: s.total(**r),
        lambda s, **r: s.largest(**r),
        lambda s, **r: s.self_join(**r),
        lambda s, **r: s.entropy(**r),
    ],
)
def test_bad_ranges_are_refused(ask, question, says):
    with pytest.raises(lt.RangeError, match=says):
        ask(filled(), **question)


def test_late_arrivals_are_refused_and_told():
    sketch = lt.Dyadic(universe=1000, window=100, eps=0.1, delta=0.1)
    sketch.update([5, 6], [50, 40])  # within a batch any order is fine
    sketch.update([5, 6, 7], [49, 50, 51], [3, 1, 1])
    assert (sketch.late, sketch.total().value, sketch.count(5).value, sketch.now) == (3, 4, 1, 51)
    patient = lt.Dyadic(universe=1000, window=100, eps=0.1, delta=0.1, lateness=20)
    patient.update([5], [50])
    patient.update([6, 7], [30, 29])
    assert (patient.late, patient.total().value, patient.rank(6).value) == (1, 2, 2)
