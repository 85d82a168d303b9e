"""The four windowed Count-Mins as users see them."""

import math

import numpy as np
import pytest
from hypothesis import given
from naive import NaiveWindow, cell
from streams import cuts, streams

import lately as lt

KINDS = (lt.PerfectCountMin, lt.SimpleCountMin, lt.ProportionalCountMin, lt.SplitterCountMin)
every = pytest.mark.parametrize("kind", KINDS)
KEYS = np.arange(20)


def fed(kind, stream, window=100, pieces=(), **more):
    sketch = kind(window=window, eps=0.3, delta=0.3, **more)
    for piece in stream.pieces(pieces):
        times = None if isinstance(window, lt.arrivals) else piece.ticks
        sketch.update(piece.cells, times, piece.counts)
    return sketch


@every
@given(stream=streams(most=300, cells=20))
def test_the_bounds_hold_what_the_cells_should_count(kind, stream):
    """Collisions aside, which are the Count-Min's own: the count of each cell is in its bounds, for certain."""
    sketch = fed(kind, stream)
    window = NaiveWindow(100)
    for event in zip(stream.ticks, stream.cells, stream.weights, strict=True):
        window.add(*event)
    truth = np.zeros(sketch.width * sketch.depth, np.int64)
    for key, count in window.frequencies(window.now - 99).items():
        for row, words in enumerate(sketch.rows.words):
            truth[row * sketch.width + cell(int(key), words, sketch.width)] += count
    low, value, high = sketch._cells_in_range(None, (100, None))
    assert (low <= truth).all()
    assert (truth <= high).all()
    if kind is lt.PerfectCountMin:
        assert value.tolist() == truth.tolist()
    answers = sketch.counts(KEYS)
    assert (answers.high >= [window.since(window.now - 99, key) for key in KEYS]).all()
    assert ((answers.low <= answers.value) & (answers.value <= answers.high)).all()


@every
@given(stream=streams(most=200, cells=20), pieces=cuts)
def test_windows_of_arrivals(kind, stream, pieces):
    sketch = fed(kind, stream, lt.arrivals(50), pieces)
    assert sketch.to_bytes() == fed(kind, stream, lt.arrivals(50)).to_bytes()
    recent = slice(max(len(stream) - 50, 0), None)
    truth = np.bincount(stream.cells[recent], stream.weights[recent], 20)
    assert (sketch.counts(KEYS).high >= truth).all()


@every
@given(stream=streams(most=200, cells=20))
def test_merging_adds_up(kind, stream):
    """The cells of the merged sketch are the sums of the sites', but for rounding; of Perfect they are those of the whole."""
    halves = [type(stream)(s.ticks, s.cells, s.counts) for s in stream.pieces([len(stream) // 2])]
    sites = [fed(kind, half) for half in halves]
    merged = lt.merge(sites)
    now = max(site.now for site in sites)
    for site in sites:
        site.advance(now)
    cells = sum(site.cells() for site in sites)
    assert np.abs(merged.cells() - cells).max() <= len(sites)
    if kind is lt.PerfectCountMin:
        assert merged.cells().tolist() == fed(kind, stream).cells().tolist()


def test_the_guesses_improve_from_simple_to_proportional_to_splitter():
    """Keys come in bursts: Splitter is off least, Simple most, by the mean of squares over many moments."""
    rng = np.random.default_rng(5)
    window, kinds = 2000, KINDS[1:]
    errors = dict.fromkeys(kinds, 0.0)
    sketches = {kind: kind(window=lt.arrivals(window), eps=0.02, delta=0.1) for kind in kinds}
    perfect = lt.PerfectCountMin(window=lt.arrivals(window), eps=0.02, delta=0.1)
    for burst in range(40):
        keys = np.where(rng.random(500) < 0.6, burst % 7, rng.integers(0, 100, 500))
        for sketch in (perfect, *sketches.values()):
            sketch.update(keys)
        if burst > 4:
            for kind, sketch in sketches.items():
                errors[kind] += float(
                    ((sketch.counts(np.arange(100)).value - perfect.counts(np.arange(100)).value) ** 2).mean()
                )
    assert errors[lt.SplitterCountMin] < errors[lt.ProportionalCountMin] / 5 < errors[lt.SimpleCountMin] / 5


def test_splitter_takes_little_memory_whatever_comes():
    sketch = lt.SplitterCountMin(window=lt.arrivals(10_000), eps=0.1, delta=0.5, tau=0.05)
    rng = np.random.default_rng(1)
    sizes = []
    for _ in range(50):
        sketch.update(rng.integers(0, 2**40, 5_000))
        sizes.append(sketch.nbytes)
        assert sketch.splits <= sketch.width * sketch.depth / 0.05
    assert sizes[-1] == max(sizes[10:])
    assert sizes[-1] < 200_000


@every
def test_late_arrivals_are_sorted_in(kind):
    one = kind(window=60, eps=0.1, delta=0.1, lateness=20)
    one.update(["a", "b"], [100, 90])
    one.update(["a"], [85])
    other = kind(window=60, eps=0.1, delta=0.1, lateness=20)
    other.update(["a", "b", "a"], [85, 90, 100])
    assert one.counts(["a", "b"]).value.tolist() == other.counts(["a", "b"]).value.tolist()
    one.update(["c"], [200])
    other.update(["c"], [200])
    assert one.to_bytes() == other.to_bytes()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_other_ranges_than_the_window_are_refused(kind):
    sketch = kind(window="1h", eps=0.1, delta=0.1)
    sketch.update(["a"], [0])
    assert sketch.count("a", last="1h").value == 1
    for asked in ({"last": "10m"}, {"between": ("50m", "10m")}):
        with pytest.raises(lt.QueryError, match=r"whole window only.*EcmSketch"):
            sketch.count("a", **asked)


def test_perfect_answers_for_any_range():
    sketch = lt.PerfectCountMin(window=100, eps=0.1, delta=0.1)
    sketch.update(["a"] * 10, range(10, 20))
    assert sketch.count("a", last=4).value == 4
    assert sketch.count("a", between=(8, 4)).value == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0}, r"tau=0.*0\.0001 to 1"),
        ({"tau": 1.5}, r"tau=1\.5.*0\.0001 to 1"),
        ({"tau": True}, r"tau=True"),
        ({"tau": math.nan}, r"tau=nan"),
        ({"mu": 0.9}, r"mu=0\.9.*1 to 1,000,000"),
        ({"mu": "2"}, r"mu='2'"),
        ({"eps": 0}, r"eps=0"),
        ({"delta": 1}, r"delta=1"),
        ({"eps": 1e-8, "delta": 1e-8}, r"need .* cells; give a larger eps"),
        ({"window": 0}, r"window"),
        ({"seed": -1}, r"seed=-1"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(lt.ParameterError, match=message):
        lt.SplitterCountMin(**{"window": 100, "eps": 0.1, "delta": 0.1} | options)


def test_different_kinds_and_shapes_do_not_merge():
    one = lt.SplitterCountMin(window=100, eps=0.1, delta=0.1)
    with pytest.raises(lt.MergeError, match=r"mu is 1\.5 in one and 2\.0 in another"):
        lt.merge([one, lt.SplitterCountMin(window=100, eps=0.1, delta=0.1, mu=2.0)])
    with pytest.raises(lt.MergeError, match="SplitterCountMin with a SimpleCountMin"):
        lt.merge([one, lt.SimpleCountMin(window=100, eps=0.1, delta=0.1)])
    with pytest.raises(lt.MergeError, match="windows of arrivals"):
        lt.merge([lt.SimpleCountMin(window=lt.arrivals(10), eps=0.1, delta=0.1)] * 2)
