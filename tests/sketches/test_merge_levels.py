"""What merging costs: no level for nothing, chains as good as trees, finer and coarser results, planned heights."""

import copy
import functools
import operator
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow
from streams import make, streams

import lately as lt
from lately.ingest import merging

BUILD = {
    "counter-wave": lambda **o: lt.WindowCounter(window=100, eps=0.1, **o),
    "counter-exphist": lambda **o: lt.WindowCounter(window=100, eps=0.1, counter="exphist", **o),
    "counter-exact": lambda **o: lt.WindowCounter(window=100, eps=0.1, counter="exact", **o),
    "counter-randwave": lambda **o: lt.WindowCounter(window=100, eps=0.3, counter="randwave", **o),
    "ecm": lambda **o: lt.EcmSketch(window=100, eps=0.2, delta=0.2, **o),
    "ecm-randwave": lambda **o: lt.EcmSketch(window=100, eps=0.5, delta=0.5, counter="randwave", samples=2, **o),
    "ams": lambda **o: lt.WindowedAmsSketch(window=100, eps=0.5, delta=0.3, **o),
    "topk": lambda **o: lt.TopK(k=3, window=100, eps=0.2, delta=0.2, **o),
    "dyadic": lambda **o: lt.Dyadic(universe=1000, window=100, eps=0.3, delta=0.3, **o),
    "quantiles": lambda **o: lt.Quantiles(lo=0, hi=1000, resolution=1, window=100, eps=0.3, delta=0.3, **o),
    "perfect": lambda **o: lt.PerfectCountMin(window=100, eps=0.2, delta=0.2, **o),
    "simple": lambda **o: lt.SimpleCountMin(window=100, eps=0.2, delta=0.2, **o),
    "proportional": lambda **o: lt.ProportionalCountMin(window=100, eps=0.2, delta=0.2, **o),
    "splitter": lambda **o: lt.SplitterCountMin(window=100, eps=0.2, delta=0.2, **o),
}
every = pytest.mark.parametrize("name", BUILD)
replayed = pytest.mark.parametrize("counter", ["wave", "exphist"])


def feed(thing, ticks, counts=None, seed=1):
    if isinstance(thing, lt.WindowCounter):
        thing.add(ticks, counts)
    else:
        thing.update(np.random.default_rng(seed).integers(0, 30, len(ticks)), ticks, counts)
    return thing


def counter(kind, ticks, counts=None, eps=0.1, window=100, **options):
    one = lt.WindowCounter(window=window, eps=eps, counter=kind, **options)
    one.add(ticks, counts)
    return one


def since(ticks, counts, start):
    return int(np.asarray(counts)[np.asarray(ticks) >= start].sum())


def range_start(thing, last):
    """The first tick of a range, as the window has it."""
    return thing._tick_at(last, thing._now)


# -- nothing costs no level --------------------------------------------------------------------------------------------


@every
def test_merging_one_with_nothing_is_a_copy(name):
    build = BUILD[name]
    one = feed(build(), np.arange(500, 700))
    never, old, gone = build(), feed(build(), np.arange(10)), feed(build(), np.arange(300, 400))
    gone.advance(650)  # its clock is in the window, its arrivals are not
    nothing = feed(build(), np.arange(690, 695), np.zeros(5, np.int64))  # five times no arrival
    for others in ([], [never], [old], [gone], [nothing], [never, old, gone, nothing]):
        for things in ([one, *others], [*others, one]):
            merged = lt.merge(things)
            assert merged.merges == 0
            assert merged is not one
            assert merged._arrived == sum(thing._arrived for thing in things)
            twin = one.copy()
            twin._arrived = merged._arrived
            assert merged.to_bytes() == twin.to_bytes()
            assert functools.reduce(operator.or_, things).to_bytes() == merged.to_bytes()


@every
def test_merging_nothing_with_nothing_is_nothing(name):
    build = BUILD[name]
    assert lt.merge([build(), build()]).now is None
    old = feed(build(), np.arange(10))
    late = build()
    late.advance(500)
    for things in ([old, late], [late, old], [late, late]):
        merged = lt.merge(things)
        assert (merged.now, merged.merges) == (500, 0)
        assert (merged.count() if isinstance(merged, lt.WindowCounter) else merged.total()).high == 0


def test_time_passes_for_the_one_that_is_left():
    one = counter("wave", np.arange(100), window=50, lateness=20)
    ahead = lt.WindowCounter(window=50, eps=0.1, lateness=20)
    ahead.advance(110)
    merged = lt.merge([one, ahead])
    one.advance(110)
    one._arrived = merged._arrived
    assert merged.to_bytes() == one.to_bytes()
    merged.add([115])
    assert merged.count(last=5).value == 1


def test_what_has_expired_does_not_raise_the_height():
    deep = counter("wave", np.arange(100))
    for _ in range(6):
        deep = lt.merge([deep, counter("wave", np.arange(100))])
    assert deep.merges == 6
    fresh = [counter("wave", np.arange(1000, 1100)) for _ in range(2)]
    assert lt.merge([deep, *fresh]).merges == 1


# -- heights that keep their word --------------------------------------------------------------------------------------


@replayed
@pytest.mark.parametrize(("eps", "height"), [(0.3, 8), (0.5, 3), (0.2, 2), (0.9, 20)])
def test_a_planned_height_ends_within_eps(counter, eps, height):
    """A chain of as many levels as planned, each a real merge: the error it states and the one it has are within eps."""
    rng = np.random.default_rng(height)
    ticks, counts = np.sort(rng.integers(0, 5000, 20_000)), rng.integers(0, 9, 20_000)
    sites = rng.integers(0, height + 1, ticks.size)
    parts = []
    for site in range(height + 1):
        one = lt.WindowCounter(window=5000, eps=eps, merge_height=height, counter=counter)
        one.add(ticks[sites == site], counts[sites == site])
        parts.append(one)
    merged = parts[0]
    for part in parts[1:]:
        merged = lt.merge([merged, part])
    assert merged.merges == height
    assert merged.error <= eps * (1 + 1e-12)
    for last in (30, 200, 1000, 4000):
        truth, answer = since(ticks, counts, range_start(merged, last)), merged.count(last=last)
        assert abs(answer.value - truth) <= eps * truth
        assert truth in answer


@pytest.mark.parametrize("name", ["counter-wave", "counter-exphist", "ecm", "ams", "topk", "dyadic", "quantiles"])
def test_sketches_planned_by_the_sum_over_levels_are_read_and_merged(name):
    """Bytes without extended fields have counters sized by the paper's sum: they keep their sizes, and merge with new ones."""
    new = BUILD[name](merge_height=4)
    shape = replace(new._shape, additive=True)
    old = object.__new__(type(new))._begin(shape, type(new)._new_parts(shape))
    for one in (old, new):
        feed(one, np.arange(500, 900), seed=3)
    assert (old.to_bytes()[6], new.to_bytes()[6]) == (0, 1)  # the flags of the header
    again = lt.from_bytes(old.to_bytes())
    assert again.to_bytes() == old.to_bytes()
    assert again._total_counter.eps == old._total_counter.eps > new._total_counter.eps
    for things in ([old, new], [new, again]):
        merged = lt.merge(things)
        assert merged._total_counter.eps == new._total_counter.eps
        total = merged.count(last=50) if isinstance(merged, lt.WindowCounter) else merged.total(last=50)
        assert 2 * since(range(500, 900), np.ones(400, int), range_start(merged, 50)) in total
        assert lt.from_bytes(merged.to_bytes()).to_bytes() == merged.to_bytes()


# -- finer and coarser results -----------------------------------------------------------------------------------------


@replayed
@given(
    inputs=st.lists(streams(most=200), min_size=1, max_size=4),
    window=st.sampled_from([20, 3000]),
    eps=st.sampled_from([0.5, 0.2, 0.05]),
    wanted=st.sampled_from([0.5, 0.2, 0.03, 0.005]),
    then=st.sampled_from([None, 0.3, 0.01]),
)
def test_a_finer_or_coarser_result_has_the_error_of_theorem_4(counter, inputs, window, eps, wanted, then):
    twin, sites = NaiveWindow(window), []
    for stream in inputs:
        one = lt.WindowCounter(window=window, eps=eps, counter=counter)
        one.add(stream.ticks, stream.counts)
        sites.append(one)
        for tick, count in zip(stream.ticks, stream.weights, strict=True):
            twin.add(tick, None, count)
    merged = lt.merge(sites, eps=wanted)
    assert merged.error <= eps + wanted + eps * wanted + 1e-12
    things = [(merged, 1, merged.error)]
    if any(one._is_live(twin.now) for one in sites):
        again = lt.merge([merged, *sites], eps=then)  # a second level, over inputs of two kinds
        own = then or min(eps, wanted)
        things.append((again, 2, max((1 + eps) * (1 + wanted) * (1 + own), 1 + eps) - 1))
    for thing, times, error in things:
        stored = lt.from_bytes(thing.to_bytes())
        assert stored.to_bytes() == thing.to_bytes()
        for last in (window // 4, window // 2, window):
            exact = times * twin.since(range_start(thing, last))
            answer = thing.count(last=last)
            assert exact in answer
            assert abs(answer.value - exact) <= error * exact + 1e-9
            assert stored.count(last=last) == answer


@replayed
def test_a_finer_result_has_tighter_bounds_and_a_coarser_one_is_smaller(counter):
    rng = np.random.default_rng(0)
    sites = []
    for _ in range(8):
        sites.append(lt.WindowCounter(window=10**5, eps=0.05, counter=counter))
        sites[-1].add(np.sort(rng.integers(0, 10**5, 5000)))
    coarse, plain, fine = (lt.merge(sites, eps=eps) for eps in (0.3, None, 0.002))
    assert coarse.nbytes < plain.nbytes < fine.nbytes
    assert coarse.error > plain.error > fine.error > 0.02
    answers = [one.count(last=30_000) for one in (coarse, plain, fine)]
    widths = [answer.high - answer.low for answer in answers]
    assert widths[0] > widths[1] > widths[2]
    assert coarse.eps == fine.eps == 0.05  # what was asked for; ``error`` says what it has become
    merged = lt.merge([coarse, plain, fine])  # as fine as the finest
    assert merged._total_counter.eps == 0.002
    assert lt.merge([fine], eps=0.002).merges == 1  # no change of eps, no level


@replayed
def test_sketches_of_finer_and_coarser_counters(counter):
    rng = np.random.default_rng(2)
    parts = [make(seed, 2000, 20, 1, 3) for seed in range(3)]
    now = max(int(part.ticks[-1]) for part in parts)
    for eps in (0.4, 0.01):
        sketches = [lt.EcmSketch(window=1000, eps=0.1, delta=0.05, counter=counter) for _ in parts]
        for sketch, part in zip(sketches, parts, strict=True):
            sketch.update(part.cells, part.ticks, part.counts)
            sketch.advance(now)
        merged = lt.merge(sketches, eps=eps)
        start = range_start(merged, 400)
        exact = sum(np.bincount(p.cells[p.ticks >= start], p.weights[p.ticks >= start], minlength=20) for p in parts)
        found = merged.counts(np.arange(20), last=400)
        assert (exact <= found.high).all()
        assert exact.sum() in merged.total(last=400)
        assert merged.error <= 0.1 + eps + 0.1 * eps + 1e-12
        table = merged.extract(last=400)
        assert table.error == pytest.approx(merged.error)
        assert lt.from_bytes(merged.to_bytes()).counts([1, 2]).value.tolist() == merged.counts([1, 2]).value.tolist()
    keys = [rng.integers(0, 50, 500) for _ in range(2)]
    signed = [lt.WindowedAmsSketch(window=1000, eps=0.3, delta=0.05, counter=counter) for _ in keys]
    for sketch, column in zip(signed, keys, strict=True):
        sketch.update(column, np.arange(500))
    merged = lt.merge(signed, eps=0.02)
    assert int((np.bincount(np.concatenate(keys)) ** 2).sum()) in merged.self_join()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (BUILD["counter-exact"], "exact counters have no error; leave eps out"),
        (BUILD["ecm-randwave"], "randomized waves unite without any loss"),
        (BUILD["topk"], "sizes of a TopK follow"),
        (BUILD["dyadic"], "sizes of a Dyadic follow"),
        (BUILD["quantiles"], "sizes of a Quantiles follow"),
        (BUILD["splitter"], "sizes of a SplitterCountMin follow"),
        (lambda: lt.CountMin(eps=0.1, delta=0.1), "a CountMin is merged without any loss"),
        (lambda: lt.FastAmsSketch(eps=0.5, delta=0.1), "a FastAmsSketch is merged without any loss"),
    ],
)
def test_what_cannot_become_finer_says_why(build, says):
    with pytest.raises(lt.MergeError, match=says):
        lt.merge([build(), build()], eps=0.1)


@pytest.mark.parametrize("eps", [0, 1, -0.1, "0.1", float("nan"), True])
def test_a_bad_eps_is_refused(eps):
    with pytest.raises(lt.ParameterError, match="eps="):
        lt.merge([counter("wave", [1])], eps=eps)


# -- chains ------------------------------------------------------------------------------------------------------------


@replayed
def test_a_chain_over_many_sites_is_as_good_as_one_merge(counter):
    """The bounds of 64 counters reduced by ``|`` were 111..538,242 for 10,000 arrivals."""
    rng = np.random.default_rng(4)
    ticks = np.sort(rng.integers(0, 10_000, 10_000))
    sites = rng.integers(0, 64, ticks.size)
    parts = []
    for site in range(64):
        parts.append(lt.WindowCounter(window=10_000, eps=0.1, counter=counter))
        parts[-1].add(ticks[sites == site])
    chain = functools.reduce(operator.or_, parts)
    assert chain.merges == 1
    assert chain.to_bytes() == lt.merge(parts).to_bytes()
    assert 10_000 in chain.count()
    assert chain.count().high < 10_000 * 1.25
    right = parts[-1]
    for part in reversed(parts[:-1]):
        right = part | right
    assert right.to_bytes() == chain.to_bytes()


@every
def test_a_chain_is_merged_once_whatever_is_asked_of_it(name):
    parts = [feed(BUILD[name](), np.arange(500 + i, 600, 3)) for i in range(5)]
    flat = lt.merge(parts)

    def chain():
        return functools.reduce(operator.or_, parts)

    uses = [chain().copy(), copy.deepcopy(chain()), pickle.loads(pickle.dumps(chain())), lt.merge([chain()]), lt.merge(parts)]
    assert all(one.merges == flat.merges for one in uses)
    if "randwave" in name:  # copies of these draw salts of their own, which bytes may show
        assert all(one.nbytes == flat.nbytes for one in uses)
        return
    assert all(one.to_bytes() == flat.to_bytes() for one in [chain(), *uses])
    assert repr(chain()) == repr(flat)
    grown, twin = chain(), flat.copy()
    for one in (grown, twin):
        feed(one, np.arange(600, 640))
    assert grown.to_bytes() == twin.to_bytes()


def test_inputs_of_a_chain_may_change_afterwards():
    parts = [counter("wave", np.arange(i, 90, 3)) for i in range(3)]
    first = parts[0] | parts[1]
    chain = first | parts[2]
    expected = lt.merge(parts).to_bytes()
    for part in parts:
        part.add([95] * 50)
    first.add([95] * 50)
    assert chain.to_bytes() == expected
    assert 50 in first.count(last=2)
    assert chain.count(last=2).high < 10
    # what was read goes on as one input, of its own height
    longer = first | parts[2]
    assert longer.merges == 2


def test_a_long_chain_remembers_few_and_rises_slowly(monkeypatch):
    one = counter("wave", np.arange(50))
    chain, kept = one, []
    for _ in range(1000):
        chain = chain | one
        kept.append(len(vars(chain)["_inputs"]))
    assert max(kept) < 2 * 64
    assert chain.merges == 2
    assert 1001 * 50 in chain.count()
    monkeypatch.setattr(merging, "_INPUT_BYTES", 4 * one.nbytes)  # as if they were large
    chain = one
    for _ in range(300):
        chain = chain | one
        assert len(vars(chain)["_inputs"]) < 4 * 8
    assert chain.merges == 3
    assert 301 * 50 in chain.count()


def test_a_chain_refuses_at_once():
    one, other = counter("wave", [1, 2]), counter("exphist", [1, 2])
    chain = one | one
    for wrong, says in ((other, "counter is 'wave' in one and 'exphist'"), (3, "WindowCounter with a int")):
        with pytest.raises(lt.MergeError, match=says):
            chain | wrong
    heavy = counter("wave", [1], [2**61])
    with pytest.raises(lt.MergeError, match=r"more than 2\*\*62"):
        heavy | heavy | heavy
    last = lt.WindowCounter(window=lt.arrivals(5), eps=0.1)
    with pytest.raises(lt.MergeError, match="windows of arrivals"):
        last | last
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        chain.nonsense  # noqa: B018
