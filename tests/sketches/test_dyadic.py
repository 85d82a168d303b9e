"""Questions about ranges of integers against exact answers: exact while nothing is lost, then within the bounds."""

import math
from collections import Counter

import numpy as np
import pytest
from dyadic_cases import (
    SHARES,
    SMALL,
    SURE,
    UNIVERSES,
    assert_heavy,
    assert_hierarchy,
    build,
    came,
    drifting,
    key_ranges,
    pool,
    ranges,
    rank_error,
    spread,
)
from ecm_cases import feed
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import between_keys, entropy, hierarchical, quantile, second_moment
from streams import Stream, cuts, make, streams

import lately as lt
from lately.sketches.ranks import cover
from lately.sketches.tree import Level

# -- exact while nothing is lost ---------------------------------------------------------------------------------------


@settings(max_examples=2 * settings().max_examples)
@given(
    universe=st.sampled_from([*SMALL, 10**9]),
    stream=streams(most=60, cells=41),
    kind=st.sampled_from(["time", "integer", "arrivals"]),
    window=st.sampled_from([5, 60, 5000]),
    pieces=cuts,
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_answers_are_the_exact_ones_while_nothing_is_lost(universe, stream, kind, window, pieces, shares):
    """Few arrivals, whatever their counts, are all noted; and few keys do not collide in every row."""
    sketch, twin = build(kind, window, universe)
    feed(sketch, twin, spread(stream, universe), pieces)
    keys = pool(universe)
    for question, frequencies in ranges(kind, twin, window, shares):
        total = sum(frequencies.values())
        assert sketch.counts(keys, **question).value.tolist() == [frequencies[k] for k in keys.tolist()]
        assert sketch.count(int(keys[3]), **question).value == frequencies[int(keys[3])]
        for lo, hi in key_ranges(universe, len(stream)):
            if (lo, hi) == (0, universe - 1):
                assert sketch.count_range(lo, hi, **question) == sketch.total(**question)
                continue
            answer = sketch.count_range(lo, hi, **question)
            assert answer.value == between_keys(frequencies, lo, hi)
            assert answer.low <= answer.value <= answer.high
            if universe in SMALL:
                assert answer.low == answer.high
        x = int(keys[-1])
        assert sketch.rank(x, **question) == sketch.count_range(0, x, **question)
        known = sketch.total(**question)
        assert total in known
        if total and known.low == known.high:
            answers = sketch.quantile(SHARES, **question)
            assert answers.q == SHARES
            assert answers.value.value.tolist() == [quantile(frequencies, q) for q in SHARES]
            assert (answers.value.low <= answers.value.value).all()
            assert (answers.value.value <= answers.value.high).all()
            assert sketch.quantile(0.5, **question) == answers[3].value
            if universe in SMALL and "between" not in question:
                assert (answers.value.low == answers.value.high).all()


@settings(max_examples=2 * settings().max_examples)
@given(
    universe=st.sampled_from(SMALL),
    stream=streams(most=60, cells=41),
    window=st.sampled_from([5, 60, 5000]),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    step=st.integers(1, 10),
    phi=st.sampled_from([0.31, 0.5, 0.69]),
)
def test_heavy_keys_and_prefixes_are_the_exact_ones_while_nothing_is_lost(universe, stream, window, shares, step, phi):
    sketch, twin = build("integer", window, universe)
    feed(sketch, twin, spread(stream, universe))
    bits = (universe - 1).bit_length()
    step = min(step, bits)
    for question, frequencies in ranges("integer", twin, window, shares)[:2]:
        total, known = sum(frequencies.values()), sketch.total(**question)
        if known.low < known.high:
            continue
        least = max((phi + 0.3) * total * (1 - 1e-9), 1)
        heavy = sorted(((k, c) for k, c in frequencies.items() if c >= least), key=lambda kc: (-kc[1], kc[0]))
        found = sketch.heavy_hitters(phi=phi, **question)
        assert [(row.key, row.count.value) for row in found] == heavy
        assert found.missed in (math.ceil(least) - 1, math.ceil(least))
        if total:
            fixed = sketch.heavy_hitters(at_least=max(total // 2, 1), **question)
            assert {row.key for row in fixed} == {k for k, c in frequencies.items() if c >= max(total // 2, 1)}
        answers = [
            (row.prefix, row.bits, row.count.value, row.own.value)
            for row in sketch.hierarchical(phi, bits_per_level=step, **question)
        ]
        assert answers == hierarchical(frequencies, bits, step, least)


def test_heavy_keys_come_in_the_order_of_their_counts():
    sketch = lt.Dyadic(universe=1000, window=100, eps=0.01, delta=0.1)
    sketch.update([5, 700, 3, 999, 0, 8], 1, [20, 30, 20, 5, 20, 5])
    found = sketch.heavy_hitters(phi=0.03)
    assert [(row.key, row.count.value) for row in found] == [(700, 30), (0, 20), (3, 20), (5, 20), (8, 5), (999, 5)]
    assert sketch.heavy_hitters(at_least=20).key.tolist() == [700, 0, 3, 5]


@pytest.mark.parametrize("universe", [2, 17, 300, 5000])
def test_a_range_of_keys_is_the_fewest_nodes_whose_keys_it_is(universe):
    """Whole nodes only, each key once, and never all the children of one node; no more than 30 on a level."""
    levels = lt.Dyadic(universe=universe, window=100, eps=0.5, delta=0.5)._layout.levels
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, universe, (400, 2))
    for lo, hi in [(0, universe - 1), (0, 0), (universe - 1, universe - 1), *np.sort(pairs, axis=1).tolist()]:
        covered, nodes = [], {}
        for level, first, last in cover(levels, lo, hi):
            covered += range(first << level.shift, min((last + 1) << level.shift, universe))
            nodes.setdefault(level.shift, []).extend(range(first, last + 1))
        assert sorted(covered) == list(range(lo, hi + 1))
        assert all(len(found) <= 30 for found in nodes.values())
        for shift, found in nodes.items():
            if shift != levels[0].shift:
                assert max(Counter(node >> 4 for node in found).values()) < 16


@pytest.mark.parametrize("universe", [3, 17, 1000, 10**9])
def test_no_question_looks_beyond_the_universe(universe, monkeypatch):
    """A cell beyond a level's nodes is another level's, or none."""
    sketch, asked = lt.Dyadic(universe=universe, window=100, eps=0.1, delta=0.1), []
    sketch.update([universe - 1] * 6 + [universe - 2] * 5 + [0], 1)
    plain = Level.cells
    monkeypatch.setattr(Level, "cells", lambda self, nodes: asked.append((self, np.asarray(nodes))) or plain(self, nodes))
    sketch.heavy_hitters(phi=0.2)
    sketch.quantile([0.0, 0.5, 1.0])
    sketch.entropy()
    sketch.count_range(1, universe - 1)
    for step in range(1, min((universe - 1).bit_length(), 8) + 1):
        sketch.hierarchical(0.2, bits_per_level=step)
    assert asked
    assert all(nodes.size == 0 or 0 <= nodes.min() <= nodes.max() < level.nodes for level, nodes in asked)


# -- bounds ------------------------------------------------------------------------------------------------------------


question_shapes = {
    "stream": streams(most=600, cells=41),
    "kind": st.sampled_from(["time", "integer", "arrivals"]),
    "window": st.sampled_from([60, 5000]),
    "pieces": cuts,
    "shares": st.tuples(st.floats(0, 1), st.floats(0, 1)),
}


@settings(max_examples=2 * settings().max_examples)
@given(universe=st.sampled_from(SMALL), **question_shapes)
def test_every_answer_contains_the_truth(universe, stream, kind, window, pieces, shares):
    assert_truthful(universe, stream, kind, window, pieces, shares)


@pytest.mark.parametrize("universe", UNIVERSES[-3:])
@settings(max_examples=settings().max_examples // 6 + 1)  # a hundred rows and more each
@given(**question_shapes)
def test_every_answer_about_a_large_universe_contains_the_truth_whatever_the_stream(
    universe, stream, kind, window, pieces, shares
):
    assert_truthful(universe, stream, kind, window, pieces, shares)


def assert_truthful(universe, stream, kind, window, pieces, shares):
    eps = 0.5
    sketch, twin = build(kind, window, universe, eps=eps)
    feed(sketch, twin, spread(stream, universe), pieces)
    keys = np.unique(pool(universe))
    for question, frequencies in ranges(kind, twin, window, shares):
        exact, total = np.array([frequencies[k] for k in keys.tolist()]), sum(frequencies.values())
        answers = sketch.counts(keys, **question)
        assert (answers.high >= exact).all()
        assert (answers.low <= exact).all()
        assert (answers.low <= answers.value).all()
        assert (answers.value <= answers.high).all()
        assert total in sketch.total(**question)
        for lo, hi in key_ranges(universe, len(stream)):
            answer = sketch.count_range(lo, hi, **question)
            assert between_keys(frequencies, lo, hi) in answer
            assert answer.low <= answer.value <= answer.high
        if total:
            for q, answer in sketch.quantile(SHARES, **question):
                assert quantile(frequencies, q) in answer
                assert answer.value in answer
        if "between" in question:
            continue
        assert_heavy(sketch.heavy_hitters(phi=0.51, **question), frequencies, 0.51, eps)
        assert max(frequencies.values(), default=0) in sketch.largest(**question)
        joined = sketch.self_join(**question)
        assert joined.low * (1 - 1e-12) <= second_moment(frequencies) <= joined.high * (1 + 1e-12)
        bits = sketch.entropy(**question)
        assert bits.low - 1e-9 <= (entropy(frequencies) if total else 0) <= bits.high + 1e-9


@pytest.mark.parametrize("universe", [17, 1000, 2**32])
@settings(max_examples=settings().max_examples // 3 + 1)
@given(seed=st.integers(0, 999), step=st.integers(1, 12), weight=st.sampled_from([0, 7]), half=st.booleans())
def test_prefixes_that_are_not_listed_are_light_whatever_the_stream(universe, seed, step, weight, half):
    """Keys that lie close together: many prefixes are heavy whose keys are not."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, universe, 4)
    keys = (centres[rng.integers(0, 4, 1500)] + rng.integers(0, rng.choice([2, 9, 70]), 1500)) % universe
    counts = rng.integers(0, weight, 1500) if weight else None
    sketch, twin = build("integer", 2000, universe, eps=0.15)
    feed(sketch, twin, Stream(np.arange(1500), keys, counts))
    question = {"last": 700} if half else {}
    frequencies = twin.frequencies(1500 - 700 if half else 0)
    step = min(step, (universe - 1).bit_length())
    for phi in (0.16, 0.3):
        found = sketch.hierarchical(phi, bits_per_level=step, **question)
        assert_hierarchy(found, frequencies, universe, step, (phi + 0.15) * sum(frequencies.values()))


def test_low_and_high_never_cross_however_unlucky_the_rows():
    """Where every row collides somewhere, but no key in all of them, what is certain wins over what is likely."""
    for seed in range(60):
        sketch, twin = build("integer", 100, 10**9, delta=0.5, seed=1000 * seed)
        feed(sketch, twin, spread(make(seed, 40, 41, 0, 0), 10**9))
        frequencies = came(twin, 0)
        for lo, hi in key_ranges(10**9, seed):
            answer = sketch.count_range(lo, hi)
            assert answer.low <= answer.value <= answer.high
            assert answer.high >= between_keys(frequencies, lo, hi)  # nothing is lost, so this is certain


@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_prefixes_between_two_levels_of_the_tree_are_found_too(step):
    """Eight keys of an eighth each: their halves and quarters are heavy though no key is, and no node is but the root's."""
    sketch = lt.Dyadic(universe=256, window=100, eps=0.05, delta=0.1)
    keys = np.arange(8).repeat(100)
    sketch.update(keys, 1)
    frequencies = dict.fromkeys(range(8), 100)
    found = [(r.prefix, r.bits, r.count.value, r.own.value) for r in sketch.hierarchical(0.2, bits_per_level=step)]
    assert found == hierarchical(frequencies, 8, step, 0.25 * 800)


def test_the_last_key_of_the_largest_universe_is_counted():
    sketch = lt.Dyadic(universe=2**63, window=100, eps=0.3, delta=0.3)
    sketch.update([2**63 - 1, 2**63 - 1, 2**63 - 3, 0], 1)
    assert sketch.count(2**63 - 1).value == 2
    assert sketch.count_range(2**63 - 1, 2**63 - 1).value == 2
    assert sketch.count_range(2**63 - 5, 2**63 - 1).value == 3
    assert sketch.rank(2**63 - 2).value == 2
    assert sketch.rank(2**63 - 1).value == 4
    assert sketch.quantile([0.0, 1.0]).value.value.tolist() == [0, 2**63 - 1]
    assert sketch.heavy_hitters(phi=0.4).key.tolist() == []
    assert sketch.heavy_hitters(at_least=2).key.tolist() == [2**63 - 1]
    assert sketch.hierarchical(0.4, bits_per_level=63).bits.tolist() == []
    assert sketch.hierarchical(0.4)[0].prefix == 2**63 - 256


def test_shares_that_no_float_hits_are_met_all_the_same():
    """0.2 + 0.1 is a little more than 0.3, and 0.07 of 100 a little more than 7; what people mean is not."""
    sketch = lt.Dyadic(universe=256, window=100, eps=0.1, delta=0.1)
    sketch.update([1, 1, 1, 2, 3, 4, 5, 6, 7, 8], 1)
    assert sketch.heavy_hitters(phi=0.2).key.tolist() == [1]
    ranks = lt.Dyadic(universe=256, window=100, eps=0.1, delta=0.1)
    ranks.update(np.arange(100), 1)
    shares = np.arange(1, 100) / 100
    assert ranks.quantile(shares).value.value.tolist() == list(range(99))


# -- time --------------------------------------------------------------------------------------------------------------


@given(stream=streams(most=200, cells=41), lateness=st.sampled_from([1, 10, 90]), seed=st.integers(0, 999), pieces=cuts)
def test_lateness_sorts_in_what_comes_late(stream, lateness, seed, pieces):
    """A stream shuffled by less than the lateness: what is held back is counted at once, exactly, in every answer."""
    universe, rng = 1000, np.random.default_rng(seed)
    stream = spread(stream, universe)
    order = np.argsort(stream.ticks + rng.integers(0, lateness + 1, len(stream)), kind="stable")
    shuffled = Stream(stream.ticks[order], stream.cells[order], stream.weights[order])
    sketch, twin = build("integer", 100, universe, lateness=lateness)
    keys = np.unique(pool(universe))
    for piece in shuffled.pieces(pieces[:3]):
        feed(sketch, twin, piece)
        for question, frequencies in ranges("integer", twin, 100, (0.6, 0.05)):
            exact = np.array([frequencies[k] for k in keys.tolist()])
            answers = sketch.counts(keys, **question)
            assert (answers.low <= exact).all()
            assert (exact <= answers.high).all()
            assert sum(frequencies.values()) in sketch.total(**question)
            for lo, hi in key_ranges(universe, seed)[4:9]:
                assert between_keys(frequencies, lo, hi) in sketch.count_range(lo, hi, **question)
            if frequencies:
                for q, answer in sketch.quantile(SHARES, **question):
                    assert quantile(frequencies, q) in answer
        assert_heavy(sketch.heavy_hitters(phi=0.31), came(twin, twin.now - 99), 0.31, 0.3)
    assert sketch.late == 0
    assert lt.from_bytes(sketch.to_bytes()).counts(keys).high.tolist() == sketch.counts(keys).high.tolist()
    assert 2 * twin.since(twin.now - 99) in lt.merge([sketch, sketch]).total()


def test_ranks_outlive_32_bits_of_ticks():
    """Counts across the edge where stamps run over, several times."""
    sketch, twin = build("integer", 500, 1000, delta=0.1)
    sketch.update(7, 0)
    for lap in range(3):
        stream = make(lap, 2000, 41, 1, 3, start=2**32 - 2 * 500 - 2 - 500 + lap * (2**32 - 700))
        before = sketch._origin
        feed(sketch, twin, spread(stream, 1000), pieces=(700, 1500))
        assert sketch._origin > before
        for last in (10, 100, 500):
            recent = twin.frequencies(twin.now - last + 1)
            total = sum(recent.values())
            assert total in sketch.total(last=last)
            for x in (0, 16, 500, 998):
                assert abs(sketch.rank(x, last=last).value - between_keys(recent, 0, x)) <= 0.3 * total
            assert rank_error(recent, sketch.quantile(0.5, last=last).value, 0.5) <= 0.3
        twin.events = [e for e in twin.events if e[0] >= twin.now - 500]


@given(stream=streams(most=150, cells=41), window=st.sampled_from([10, 200]), gap=st.integers(0, 300))
def test_advance_ages_a_quiet_stream(stream, window, gap):
    sketch, twin = build("integer", window, 1000)
    feed(sketch, twin, spread(stream, 1000))
    later = twin.now + gap
    sketch.advance(later)
    once = sketch.to_bytes()
    sketch.advance(later)
    sketch.advance(later - 5)
    assert sketch.to_bytes() == once
    frequencies = twin.frequencies(later - window + 1)
    assert between_keys(frequencies, 0, 500) in sketch.rank(500)
    assert sum(frequencies.values()) in sketch.total()


def test_an_empty_sketch_answers_nothing_seen():
    sketch = lt.Dyadic(universe=2**20, window="1h", eps=0.1, delta=0.1)
    for one in (sketch, lt.merge([sketch, sketch]), lt.from_bytes(sketch.to_bytes())):
        for answer in (one.count(5), one.total(), one.count_range(3, 2**19), one.rank(7), one.largest(), one.self_join()):
            assert (answer.low, answer.value, answer.high) == (0, 0, 0)
        assert one.entropy().value == 0
        assert len(one.heavy_hitters(phi=0.2)) == len(one.hierarchical(0.2)) == 0
        assert one.counts([1, 2, 3]).value.tolist() == [0, 0, 0]
        assert len(one.counts([])) == 0
        with pytest.raises(lt.RangeError, match=r"no arrivals in this range.*ask for a longer one"):
            one.quantile(0.5)


# -- size and looks ----------------------------------------------------------------------------------------------------


def test_memory_stays_bounded_as_the_window_slides():
    rng = np.random.default_rng(0)
    sketch = lt.Dyadic(universe=2**32, window=1000, eps=0.2, delta=0.2)
    sizes = []
    for block in range(30):
        sketch.update(rng.integers(0, 2**32, 5000), np.sort(rng.integers(1000 * block, 1000 * block + 1000, 5000)))
        sizes.append(sketch.nbytes)
    assert max(sizes[10:]) <= 1.05 * max(sizes[:10])
    assert max(sizes) < 4_000_000


@pytest.mark.parametrize("universe", [300, 2**18, 10**9])
def test_what_cannot_be_told_from_nothing_is_answered_in_short(universe, monkeypatch):
    """In a short range long ago every key of the universe could have come: the list is cut, and ``missed`` tells where."""
    looked_at, plain = [], Level.cells
    monkeypatch.setattr(Level, "cells", lambda self, nodes: looked_at.append(np.size(nodes)) or plain(self, nodes))
    for seed in range(5):
        rng = np.random.default_rng(seed)
        keys = rng.integers(0, universe, 6000) if seed % 2 else drifting(seed, 6000, universe).cells
        sketch = lt.Dyadic(universe=universe, window=10_000, eps=0.2, delta=SURE, seed=1000 * seed)
        sketch.update(keys, np.arange(6000))
        for older, newer in ((5900, 5890), (3551, 3549), (1894, 1865)):
            question, frequencies = {"between": (older, newer)}, Counter(keys[6000 - older : 6000 - newer].tolist())
            found = sketch.heavy_hitters(phi=0.25, **question)
            listed = dict(found)
            assert all(count <= found.missed for key, count in frequencies.items() if key not in listed)
            assert all(frequencies[key] in count for key, count in listed.items())
            assert len(found) < 1000
            assert max(frequencies.values()) in sketch.largest(**question)
            assert second_moment(frequencies) in sketch.self_join(**question)
            assert entropy(frequencies) in sketch.entropy(**question)
            for step in (1, 3, 4, 8):
                found = sketch.hierarchical(0.25, bits_per_level=step, **question)
                assert_hierarchy(found, frequencies, universe, step, found.missed + 1)
                assert len(found) < 10_000
        every = sketch.heavy_hitters(at_least=1)
        assert len(every) < 1000
        assert all(c <= every.missed for k, c in Counter(keys.tolist()).items() if k not in set(every.key.tolist()))
    assert max(looked_at) < 100_000


def test_bars_are_drawn_over_the_whole_universe():
    from matplotlib.figure import Figure

    sketch = lt.Dyadic(universe=1000, window=100, eps=0.1, delta=0.1)
    sketch.update([0, 250, 251, 999], 1)
    ax = sketch.plot(bins=4, ax=Figure().subplots())
    assert sorted(bar.get_width() for bar in ax.patches) == [0, 1, 1, 2]
    assert len(lt.Dyadic(universe=3, window=100, eps=0.1, delta=0.1).plot(ax=Figure().subplots()).patches) == 3


def test_it_says_what_it_is():
    sketch = lt.Dyadic(universe=1000, window="1h", eps=0.1, delta=0.05)
    assert repr(sketch).startswith("Dyadic(universe=1000, Window('1h', tick='1s'), eps=0.1, delta=0.05, merges=0, nbytes=")
    assert (sketch.universe, sketch.eps, sketch.delta, sketch.late, sketch.now) == (1000, 0.1, 0.05, 0, None)
