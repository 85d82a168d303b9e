"""Laws that every stored class obeys. A class that is registered and has no case here fails the first test.

A case is a builder of an empty one, a way to feed it a batch, and the questions to ask it.
"""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import exact_cases
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import FAMILIES, Stream, cuts, streams

import lately as lt
from lately.core import codec
from lately.sketches import candidates


@dataclass(frozen=True)
class Case:
    """How to build, feed and question a class."""

    build: Callable[..., Any]  # takes a salt if it is random
    feed: Callable[[Any, Any], None]
    ask: Callable[[Any], list[Any]]  # estimates and rows of them; anything else must be the same however it was merged
    windowed: bool = True
    mergeable: bool = True
    lossless: bool = False
    random: bool = False
    shared: bool = False  # cells share room, so what comes first within a tick may decide how finely the rest is noted


def _ask_counter(counter):
    return [counter.count(), counter.count(last=30), counter.count(between=(80, 20))]


def _ask_sketch(sketch):
    answers = [sketch.total(), sketch.total(last=30), sketch.count(0), sketch.count(1, between=(80, 20)), sketch.late]
    answers += list(sketch.counts(np.arange(20), last=50))
    if sketch.counter != "randwave":
        answers += [sketch.self_join(), sketch.inner_product(sketch, last=10)]
    return answers


def _feed_sketch(sketch, piece):
    sketch.update(piece.cells, piece.ticks, piece.counts)


def _ask_dyadic(sketch):
    answers = [sketch.total(last=30), sketch.late, *sketch.counts(np.arange(20), last=50)]
    answers += [sketch.count_range(3, 19, between=(80, 20)), sketch.heavy_hitters(phi=0.3)]
    answers += [sketch.hierarchical(0.3, last=50, bits_per_level=4), sketch.heavy_hitters(at_least=2, between=(80, 20))]
    answers += [sketch.largest(), sketch.self_join(last=30), sketch.entropy(), _quantiles(sketch)]
    return answers


def _ask_quantiles(sketch):
    answers = [sketch.total(), sketch.total(between=(80, 20)), sketch.late, _quantiles(sketch)]
    answers += [sketch.rank(0.75), sketch.rank(1.2, last=30), sketch.count_range(0.5, 1.5, between=(80, 20))]
    return answers


def _quantiles(sketch):
    """Of nothing there are none."""
    return sketch.quantile([0, 0.25, 0.5, 1]) if sketch.total().high else None


def _ask_top(sketch):
    answers = [sketch.total(last=30), sketch.count(1, between=(80, 20)), sketch.late]
    answers += list(sketch.counts(np.arange(20), last=50))
    answers += [sketch.top(), sketch.top(3, between=(80, 20)), sketch.heavy_hitters(phi=0.35, last=30)]
    answers += [sketch.largest(), sketch.self_join(last=30), sketch.entropy(between=(80, 20))]
    return answers


def _ask_wcm(sketch):
    return [sketch.total(), sketch.late, *sketch.counts(np.arange(20)), sketch.count(3)]


def _ask_linear(sketch):
    answers = [sketch.total(), sketch.weight, sketch.self_join(), sketch.inner_product(sketch)]
    return [*answers, sketch.range_sum(range(3, 9)), sketch.range_sum([1, "a"], weights=[2, -1])]


def _ask_windowed_ams(sketch):
    answers = [sketch.total(), sketch.total(last=30), sketch.late, sketch.self_join(), sketch.self_join(between=(80, 20))]
    return [*answers, sketch.inner_product(sketch, last=10), sketch.range_sum([3, 1], weights=[1, -2], last=50)]


CASES: dict[str, Case] = {}
for _family in FAMILIES:
    for _lateness in (None, 15):
        CASES[f"WindowCounter-{_family}-{_lateness}"] = Case(
            lambda family=_family, lateness=_lateness, salt=4: lt.WindowCounter(
                window=100, eps=0.3, counter=family, lateness=lateness, salt=salt
            ),
            lambda counter, piece: counter.add(piece.ticks, piece.counts),
            _ask_counter,
            lossless=_family == "exact",
            random=_family == "randwave",
        )
        CASES[f"EcmSketch-{_family}-{_lateness}"] = Case(
            lambda family=_family, lateness=_lateness, salt=4: lt.EcmSketch(
                window=100, eps=0.4, delta=0.4, counter=family, lateness=lateness, salt=salt
            ),
            _feed_sketch,
            _ask_sketch,
            lossless=_family == "exact",
            random=_family == "randwave",
        )
    CASES[f"EcmSketch-{_family}-arrivals"] = Case(
        lambda family=_family, salt=4: lt.EcmSketch(window=lt.arrivals(100), eps=0.4, delta=0.4, counter=family, salt=salt),
        lambda sketch, piece: sketch.update(piece.cells, counts=piece.counts),
        _ask_sketch,
        mergeable=False,
        random=_family == "randwave",
    )

_WINDOWS = {"None": {"window": 100}, "15": {"window": 100, "lateness": 15}, "arrivals": {"window": lt.arrivals(100)}}
for _name, _class, _options, _keys, _ask, _when in (
    ("Dyadic", lt.Dyadic, {"universe": 1000}, lambda cells: cells % 1000, _ask_dyadic, _WINDOWS),
    ("Quantiles", lt.Quantiles, {"lo": 0, "hi": 20, "resolution": 0.1}, lambda c: c % 200 / 10, _ask_quantiles, ("15",)),
    ("TopK-k", lt.TopK, {"k": 5}, lambda cells: cells, _ask_top, ("None", "arrivals")),
    ("TopK-phi", lt.TopK, {"phi": 0.3}, lambda cells: cells, _ask_top, ("15",)),
):
    for _window in _when:
        CASES[f"{_name}-{_window}"] = Case(
            lambda build=_class, options=_options | _WINDOWS[_window]: build(eps=0.2, delta=0.05, **options),
            lambda sketch, piece, keys=_keys: sketch.update(
                keys(piece.cells), None if sketch.window.kind == "arrivals" else piece.ticks, piece.counts
            ),
            _ask,
            mergeable=_window != "arrivals",
            shared=True,
        )
for _class in (lt.PerfectCountMin, lt.SimpleCountMin, lt.ProportionalCountMin, lt.SplitterCountMin):
    for _window in _WINDOWS:
        CASES[f"{_class.__name__}-{_window}"] = Case(
            lambda build=_class, options=_WINDOWS[_window]: build(eps=0.3, delta=0.3, **options),
            lambda sketch, piece: sketch.update(
                piece.cells, None if sketch.window.kind == "arrivals" else piece.ticks, piece.counts
            ),
            _ask_wcm,
            mergeable=_window != "arrivals",
            lossless=_class is lt.PerfectCountMin,
            shared=True,
        )
CASES["CountMin"] = Case(
    lambda: lt.CountMin(eps=0.1, delta=0.1),
    lambda sketch, piece: sketch.update(piece.cells, piece.counts),
    lambda sketch: [*sketch.counts(np.arange(20)), sketch.total(), sketch.self_join()],
    windowed=False,
    lossless=True,
)

for _class in (lt.AmsSketch, lt.FastAmsSketch):
    CASES[_class.__name__] = Case(
        lambda build=_class: build(eps=0.8, delta=0.1),
        lambda sketch, piece: sketch.update(piece.cells, counts=piece.weights - 3 if piece.counts is not None else None),
        _ask_linear,
        windowed=False,
        lossless=True,
    )
for _counter, _window in (
    ("shared", "None"),
    ("shared", "15"),
    ("shared", "arrivals"),
    ("wave", "None"),
    ("exphist", "15"),
    ("exact", "15"),
    ("wave", "arrivals"),
):
    CASES[f"WindowedAmsSketch-{_counter}-{_window}"] = Case(
        lambda counter=_counter, options=_WINDOWS[_window]: lt.WindowedAmsSketch(
            eps=0.7, delta=0.3, counter=counter, **options
        ),
        lambda sketch, piece: sketch.update(
            piece.cells, None if sketch.window.kind == "arrivals" else piece.ticks, piece.counts
        ),
        _ask_windowed_ams,
        mergeable=_window != "arrivals",
        lossless=_counter == "exact",
    )

for _name, _build, _timed in (
    ("Windows", exact_cases.windows, True),
    ("Windows-lateness", lambda: exact_cases.windows(lateness=15), True),
    ("Windows-filters", exact_cases.filters, True),
    ("Windows-arrivals", exact_cases.arrivals, False),
):
    CASES[_name] = Case(
        _build,
        lambda w, piece, timed=_timed: exact_cases.feed(w, piece.cells, piece.ticks if timed else None),
        exact_cases.ask,
        windowed=_timed,
        mergeable=False,
    )

every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
mergeable = pytest.mark.parametrize(
    "case", [c for c in CASES.values() if c.mergeable], ids=[n for n, c in CASES.items() if c.mergeable]
)
#: Exact windows take columns of many names, and no single values.
TAKING_SINGLE_ROWS = [name for name in CASES if not name.startswith("Windows")]
small = streams(most=120, cells=20)


def built(case, stream, pieces=(), site=0, name=""):
    """What a site has after a stream; sites draw with different salts, by their names if there is one."""
    thing = case.build(salt=4 + site) if case.random else case.build()
    if name and isinstance(thing, lt.WindowedAmsSketch):
        thing.draw_phases(name)
    for piece in stream.pieces(pieces):
        case.feed(thing, piece)
    return thing


def agree(mine, its):
    """Whether two answers to one question can both be right: bounds that overlap, of every row that both have."""
    if isinstance(mine, lt.Estimate):
        return mine.low <= its.high and its.low <= mine.high
    if isinstance(mine, lt.Answers):
        rows, others = (dict(map(_name_and_estimate, answers)) for answers in (mine, its))
        return all(agree(rows[name], others[name]) for name in rows.keys() & others.keys())
    return mine == its or mine is None or its is None  # one of them could not tell


def _name_and_estimate(row):
    """What a row is about, and the first thing that it says; what else it says may depend on the other rows."""
    names = tuple(field for field in row if not isinstance(field, lt.Estimate))
    return names, row[len(names)]


def test_every_stored_class_has_a_case():
    covered = {type(case.build()) for case in CASES.values()}
    assert covered | {lt.Partials} == set(codec.families().values())  # partials take no arrivals: exact/test_partials.py


@every
@given(stream=small)
def test_bytes_and_pickle_bring_back_the_same(case, stream):
    thing = built(case, stream)
    data = thing.to_bytes()
    for twin in (lt.from_bytes(data), pickle.loads(pickle.dumps(thing)), thing.copy()):
        assert type(twin) is type(thing)
        assert twin.to_bytes() == data
        assert case.ask(twin) == case.ask(thing)


@every
@given(stream=small, pieces=cuts)
def test_the_split_into_batches_does_not_matter(case, stream, pieces):
    assert built(case, stream, pieces).to_bytes() == built(case, stream).to_bytes()


@pytest.mark.parametrize("case", [CASES[name] for name in TAKING_SINGLE_ROWS], ids=TAKING_SINGLE_ROWS)
@given(stream=small)
def test_one_at_a_time_is_all_at_once(case, stream):
    thing = case.build()
    counts = [None] * len(stream) if stream.counts is None else stream.counts.tolist()
    for row in zip(stream.ticks.tolist(), stream.cells.tolist(), counts, strict=True):
        case.feed(thing, Stream(*row))
    assert thing.to_bytes() == built(case, stream).to_bytes()


@every
@given(stream=small, seed=st.integers(0, 99))
def test_the_order_within_a_batch_does_not_matter_to_the_answers(case, stream, seed):
    """Sorted, a batch is a batch. Only how a randomized or a shared wave notes arrivals of one tick depends on their order."""
    order = np.random.default_rng(seed).permutation(len(stream))
    if not case.windowed or "arrivals" in str(getattr(case.build(), "window", "")):
        order = np.arange(len(stream))
    shuffled = type(stream)(stream.ticks[order], stream.cells[order], None if stream.counts is None else stream.counts[order])
    # A WindowedAmsSketch draws from its first arrival, which the order decides, unless its site has a name.
    one, other = built(case, stream, name="paris"), built(case, shuffled, name="paris")
    for mine, its in zip(case.ask(one), case.ask(other), strict=True):
        assert agree(mine, its) if case.random or case.shared else mine == its


@every
@given(stream=small)
def test_reading_changes_nothing(case, stream):
    thing = built(case, stream)
    before = thing.to_bytes()
    case.ask(thing)
    repr(thing)
    if case.mergeable:
        lt.merge([thing, built(case, stream, site=1)])
        thing | built(case, stream, site=2)
    assert thing.to_bytes() == before


@every
@given(stream=small)
def test_copies_are_independent(case, stream):
    thing = built(case, stream)
    before = thing.to_bytes()
    twin = thing.copy()
    case.feed(twin, type(stream)(stream.ticks[-1:], stream.cells[-1:], None))
    assert thing.to_bytes() == before
    assert twin.to_bytes() != before


@mergeable
@given(left=small, right=small)
def test_merging_commutes_within_the_bounds_and_leaves_inputs_alone(case, left, right):
    a, b = built(case, left), built(case, right, site=1)
    before = a.to_bytes(), b.to_bytes()
    one, other = lt.merge([a, b]), b | a
    assert (a.to_bytes(), b.to_bytes()) == before
    for mine, its in zip(case.ask(one), case.ask(other), strict=True):
        assert agree(mine, its)


@mergeable
@given(stream=small, share=st.integers(1, 4))
def test_merging_disjoint_sites_gives_the_whole_stream(case, stream, share):
    whole = built(case, stream)
    sites = []
    for site in range(share):
        mine = slice(site, None, share)
        part = type(stream)(stream.ticks[mine], stream.cells[mine], None if stream.counts is None else stream.counts[mine])
        if len(part):
            sites.append(built(case, part, site=site))
    merged = lt.merge(sites)
    for mine, its in zip(case.ask(merged), case.ask(whole), strict=True):
        assert mine == its if case.lossless else agree(mine, its)
    again = lt.from_bytes(merged.to_bytes())
    assert case.ask(again) == case.ask(merged)


@pytest.mark.parametrize("case", [c for c in CASES.values() if c.mergeable and c.windowed])
@given(left=small, right=small, more=small, gap=st.sampled_from([0, 3, 90, 500]))
@settings(max_examples=max(1, settings().max_examples // 6))
def test_what_was_merged_counts_on_and_can_be_stored(case, left, right, more, gap):
    """Merged twice, the second time perhaps after all that was in it has expired: it and its twin from bytes stay alike."""
    merged = lt.merge([built(case, left), built(case, right, site=1)])
    merged.advance(int(max(left.ticks[-1], right.ticks[-1])) + gap)
    merged = lt.merge([merged, built(case, left, site=2)])
    start = int(max(left.ticks[-1], right.ticks[-1])) + gap
    for seconds in (0, 40):
        case.feed(merged, Stream(more.ticks - more.ticks[0] + start + seconds, more.cells, more.counts))
        start += int(more.ticks[-1] - more.ticks[0])
        twin = lt.from_bytes(merged.to_bytes())
        assert twin.to_bytes() == merged.to_bytes()
        assert case.ask(twin) == case.ask(merged)
        merged = twin


@pytest.mark.parametrize("case", [c for c in CASES.values() if c.mergeable and c.windowed])
@given(stream=small, gap=st.integers(0, 150))
def test_advance_twice_is_advance_once_and_counts_nothing(case, stream, gap):
    thing = built(case, stream)
    later = int(stream.ticks[-1]) + gap
    thing.advance(later)
    once = thing.to_bytes()
    thing.advance(later)
    assert thing.to_bytes() == once
    if isinstance(thing, lt.EcmSketch | lt.Dyadic | lt.TopK):
        twin = built(case, stream)
        twin.update([3], [later], [0])  # nothing at a later time is the same as time passing
        assert [twin.total(), twin.count(1, last=20)] == [thing.total(), thing.count(1, last=20)]


@every
def test_memory_is_bounded_whatever_the_stream(case, monkeypatch):
    """A hundred windows' worth of fresh keys, then of one key: the state stops growing."""
    monkeypatch.setattr(candidates, "_FEWEST_ROWS", 64)  # so that they are enough to fill what a TopK keeps as it came
    thing = case.build()
    sizes = []
    for block in range(60):
        ticks = np.arange(100 * block, 100 * block + 100)
        keys = np.arange(100 * block, 100 * block + 100) if block < 30 else np.zeros(100, int)
        case.feed(thing, Stream(ticks, keys, None))
        sizes.append(thing.nbytes)
    assert max(sizes[45:]) <= (2.2 if case.random else 1.3) * max(sizes[:45])  # luck may need one level more
