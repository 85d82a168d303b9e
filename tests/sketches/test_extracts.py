"""What sites extract and a coordinator adds up: one site's answers are the sketch's own, many sites' bounds hold."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow, between_keys, entropy, hoeffding, quantile, second_moment
from streams import Stream, cuts, streams

import lately as lt
from lately.core.errors import FormatError, MergeError, QueryError, RangeError
from lately.sketches import candidates
from lately.sketches.dyadic import DyadicView
from lately.sketches.ecm import EcmView
from lately.sketches.extracts import Extract, extract, view_of
from lately.sketches.quantiles import QuantilesView
from lately.sketches.topk import TopKView
from lately.sketches.windowed_ams import AmsView

#: What answers, of each class: a sketch, or a view of an extract.
ECM, TOPK = lt.EcmSketch | EcmView, lt.TopK | TopKView
QUANTILES, DYADIC = lt.Quantiles | QuantilesView, lt.Dyadic | DyadicView
AMS = lt.WindowedAmsSketch | AmsView

WINDOW = 900
KEYS = 24
SURE = 1e-7  # so small that what is likely can be taken for certain


def ecm(**options):
    return lt.EcmSketch(**({"window": WINDOW, "eps": 0.2, "delta": SURE} | options))


def inner(**options):
    return ecm(**({"query": "inner", "eps": 0.3} | options))


def exphist(**options):
    return ecm(**({"counter": "exphist"} | options))


def topk(**options):
    return lt.TopK(**({"phi": 0.1, "window": WINDOW, "eps": 0.05, "delta": SURE} | options))


def quantiles(**options):
    return lt.Quantiles(**({"lo": 0, "hi": KEYS, "resolution": 1, "window": WINDOW, "eps": 0.3, "delta": SURE} | options))


def dyadic(**options):
    return lt.Dyadic(**({"universe": 1000, "window": WINDOW, "eps": 0.3, "delta": SURE} | options))


def wide(**options):
    """With levels whose cells are shared by many nodes."""
    return dyadic(**({"universe": 100_000, "eps": 0.5} | options))


def joins(**options):
    return lt.WindowedAmsSketch(**({"window": WINDOW, "eps": 0.9, "delta": SURE} | options))


def joined_waves(**options):
    """Signed cells with a counter each."""
    return joins(**({"counter": "wave", "delta": 0.01} | options))


BUILD = {build.__name__: build for build in (ecm, inner, exphist, topk, quantiles, dyadic, wide, joins, joined_waves)}
kinds = pytest.mark.parametrize("build", BUILD.values(), ids=BUILD)


@pytest.fixture(scope="module", autouse=True)
def _small_lists():
    """Rows of a TopK become lists after 64 of them, so that short streams have many lists."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_FEWEST_ROWS", 64)
        yield


def asked(ask, *arguments, **question):
    """An answer that can be compared, also when there is none."""
    try:
        return repr(ask(*arguments, **question))
    except RangeError as error:
        return str(error)


def answers(sketch, **question):
    """Every question that a sketch of its kind can be asked, with its answer."""
    found = [sketch.total(**question)]
    everything = np.arange(KEYS)
    if isinstance(sketch, QUANTILES):
        found += [asked(sketch.quantile, q, **question) for q in (0, 0.2, 0.5, 0.99, 1)]
        found += [sketch.rank(x, **question) for x in (0, 3.5, KEYS)]
        found += [sketch.count_range(2, 7.5, **question)]
        return found
    if isinstance(sketch, AMS):
        view = sketch if isinstance(sketch, AmsView) else sketch.in_range(**question)
        return [*found, view.self_join(), view.inner_product(view)]
    counts = sketch.counts(everything, **question)
    found += [list(counts), sketch.count(0, **question), sketch.count(3, **question)]
    found += [sketch.self_join(**question)]
    if isinstance(sketch, ECM):
        return found
    found += [sketch.largest(**question), sketch.entropy(**question)]
    if isinstance(sketch, TOPK):
        for rows in (sketch.top(**question), sketch.top(3, **question), sketch.heavy_hitters(**question)):
            found += [list(rows), rows.missed]
        return found
    found += [asked(sketch.quantile, q, **question) for q in (0, 0.2, 0.5, 0.99, 1)]
    found += [sketch.count_range(2, 7, **question), sketch.rank(11, **question), sketch.rank(900, **question)]
    found += [list(sketch.heavy_hitters(phi=0.6, **question)), list(sketch.heavy_hitters(at_least=3, **question))]
    found += [list(sketch.hierarchical(0.6, **question))]
    return found


def fed(sketch, stream, pieces, shuffled=None):
    """The sketch with the stream in it; with lateness in any order that is not too late."""
    lateness = sketch._lateness
    for piece in stream.pieces(pieces):
        order = np.arange(len(piece))
        if shuffled is not None and lateness:
            order = np.argsort(piece.ticks + np.random.default_rng(shuffled).random(len(piece)) * lateness, kind="stable")
        for at in np.array_split(order, 3):
            if at.size:
                sketch.update(piece.cells[at], piece.ticks[at], None if piece.counts is None else piece.counts[at])
    assert sketch.late == 0
    return sketch


def union(parts):
    twin = NaiveWindow(WINDOW)
    for stream in parts:
        for tick, key, count in zip(stream.ticks, stream.cells, stream.weights, strict=True):
            twin.add(tick, int(key), count)
    return twin


def many(parts):
    """A sum of extracts, one after the other."""
    return sum(parts[1:], parts[0])


ages = st.sampled_from([None, 0, 1, 60, 500, WINDOW])
lateness = st.sampled_from([None, None, 40])
sites_of = st.lists(streams(most=300, cells=KEYS), min_size=1, max_size=4)


# -- one site ----------------------------------------------------------------------------------------------------------


@kinds
@given(stream=streams(most=400, cells=KEYS), pieces=cuts, last=ages, late=lateness, further=st.sampled_from([0, 0, 13, 5000]))
def test_one_site_answers_as_its_sketch_does(build, stream, pieces, last, late, further):
    """Also when time has passed, with arrivals held back, and after the extract was carried as bytes."""
    sketch = fed(build(lateness=late), stream, pieces, shuffled=len(stream))
    sketch.advance(int(stream.ticks[-1]) + further)
    expected = answers(sketch, last=last)
    known = extract(sketch, last)
    assert answers(view_of(build(lateness=late), known)) == expected
    assert answers(view_of(build(lateness=late), Extract.from_bytes(known.to_bytes()))) == expected
    assert answers(view_of(sketch, known)) == expected


@kinds
@given(parts=st.lists(streams(most=300, cells=KEYS), min_size=2, max_size=3), last=ages)
def test_a_merged_sketch_is_extracted_like_any_other(build, parts, last):
    merged = lt.merge([fed(build(merge_height=1), stream, ()) for stream in parts])
    assert answers(view_of(build(merge_height=1), extract(merged, last))) == answers(merged, last=last)


# -- many sites --------------------------------------------------------------------------------------------------------


def at_one_time(build, parts, late, pieces=(), **options):
    """Sites that all have come to the newest tick, and the exact window over all."""
    sites = [fed(build(lateness=late, **options), stream, pieces, shuffled=i) for i, stream in enumerate(parts)]
    twin = union(parts)
    for site in sites:
        site.advance(twin.now)
    return sites, twin


@kinds
@given(parts=sites_of, pieces=cuts, last=ages, late=lateness)
def test_the_truth_over_all_sites_lies_within_the_bounds(build, parts, pieces, last, late):
    sites, twin = at_one_time(build, parts, late, pieces)
    age = WINDOW if last is None else last
    exact = twin.frequencies(twin.now - age + 1)
    known = many([Extract.from_bytes(extract(site, last).to_bytes()) for site in sites])
    everywhere = view_of(build(lateness=late), known)
    assert_bounds(everywhere, exact)
    assert_close(everywhere, exact)


def assert_bounds(sketch, exact):
    present, total = +exact, sum(exact.values())
    assert total in sketch.total()
    if isinstance(sketch, QUANTILES):
        assert between_keys(present, 0, 3) in sketch.rank(3)
        assert between_keys(present, 2, 7) in sketch.count_range(2, 7)
    elif isinstance(sketch, AMS):
        own = sketch.self_join()
        assert own.low * (1 - 1e-9) <= second_moment(exact) <= own.high * (1 + 1e-9)
    else:
        for key, estimate in zip(range(KEYS), sketch.counts(np.arange(KEYS)), strict=True):
            assert exact[key] in estimate
        assert second_moment(exact) in sketch.self_join()
    if isinstance(sketch, QUANTILES | DYADIC) and total:
        for q in (0, 0.3, 0.5, 1):
            assert quantile(present, q) in sketch.quantile(q)
    if isinstance(sketch, TOPK | DYADIC):
        assert max(exact.values(), default=0) in sketch.largest()
        answer = sketch.entropy()
        assert answer.low - 1e-9 <= (entropy(exact) if total else 0) <= answer.high + 1e-9
    if isinstance(sketch, DYADIC):
        assert between_keys(present, 2, 7) in sketch.count_range(2, 7)
        listed = sketch.heavy_hitters(phi=0.6).key.tolist()
        assert {key for key, count in present.items() if count >= (0.6 + sketch.shape.eps) * total} <= set(listed)
    if isinstance(sketch, TOPK):
        assert {key for key, count in present.items() if count >= (0.1 + 0.05) * total} <= set(sketch.heavy_hitters().key)
        for rows in (sketch.heavy_hitters(), sketch.top(), sketch.top(2)):
            assert all(exact[row.key] in row.count for row in rows)
            assert max((count for key, count in exact.items() if key not in set(rows.key)), default=0) <= rows.missed


def assert_close(sketch, exact):
    """Sums are as good as what one site promises: within eps of all arrivals in range."""
    total = sum(exact.values())
    if (isinstance(sketch, ECM) and sketch.shape.query == "inner") or isinstance(sketch, AMS):
        assert abs(sketch.self_join().value - second_moment(exact)) <= sketch.shape.eps * total**2
    elif not isinstance(sketch, QUANTILES):
        off = np.abs(sketch.counts(np.arange(KEYS)).value - np.array([exact[key] for key in range(KEYS)]))
        assert off.max() <= sketch.shape.eps * total + 1e-9


@pytest.mark.parametrize("build", [ecm, exphist, topk, dyadic, wide])
@given(parts=sites_of, last=ages, late=lateness)
def test_what_is_certain_stays_certain(build, parts, last, late):
    """However little was asked for: no key came more often than ``high`` says."""
    sites, twin = at_one_time(build, parts, late, delta=0.5)
    exact = twin.frequencies(twin.now + 1 - (WINDOW if last is None else last))
    everywhere = view_of(build(delta=0.5, lateness=late), many([extract(site, last) for site in sites]))
    high = everywhere.counts(np.arange(KEYS)).high.tolist()
    assert all(exact[key] <= high[key] for key in range(KEYS))
    assert sum(exact.values()) in everywhere.total()


@pytest.mark.parametrize("build", [ecm, inner, joins])
@given(parts=sites_of, others=sites_of)
def test_two_streams_at_many_sites_are_joined(build, parts, others):
    now = max(int(stream.ticks[-1]) for stream in (*parts, *others))
    pair, exact = [], []
    for streams_of in (parts, others):
        sites, twin = at_one_time(build, streams_of, None)
        for site in sites:
            site.advance(now)
        pair.append(view_of(build(), many([extract(site, 500) for site in sites])))
        exact.append(twin.frequencies(now - 499))
    joined = pair[0].inner_product(pair[1])
    truth = sum(count * exact[1][key] for key, count in exact[0].items())
    assert joined.low * (1 - 1e-9) <= truth <= joined.high * (1 + 1e-9)


@kinds
@given(parts=st.lists(streams(most=200, cells=KEYS), min_size=3, max_size=3), last=ages, late=lateness)
def test_sums_do_not_depend_on_the_order(build, parts, last, late):
    sites, _ = at_one_time(build, parts, late)
    known = [extract(site, last) for site in sites]
    sums = {many(list(order)).to_bytes() for order in itertools.permutations(known)}
    sums.add((known[0] + (known[1] + known[2])).to_bytes())
    assert len(sums) == 1


@kinds
@given(
    stream=streams(most=200, cells=KEYS), last=ages, late=lateness, silent=st.sampled_from([0, 1, 39, 40, 500, 899, 900, 5000])
)
def test_a_site_that_has_been_silent_knows_what_it_would_know_had_time_passed(build, stream, last, late, silent):
    site = fed(build(lateness=late), stream, (), shuffled=1)
    now = site.now + silent
    moved = site.copy()
    moved.advance(now)
    known, length = extract(site, last, now), WINDOW if last is None else last
    if late is None:
        assert known.to_bytes() == extract(moved, last).to_bytes()
    assert int(stream.weights[stream.ticks > now - length].sum()) in view_of(build(lateness=late), known).total()
    if silent > length:
        assert known.to_bytes() == extract(build(lateness=late)).to_bytes()
    assert extract(build(), last, now).to_bytes() == extract(build()).to_bytes()


@kinds
@given(parts=st.lists(streams(most=200, cells=KEYS), min_size=1, max_size=2), last=ages)
def test_sites_that_saw_nothing_add_nothing(build, parts, last):
    sites, _ = at_one_time(build, parts, None)
    idle = build()
    idle.advance(sites[0].now)
    known = many([extract(site, last) for site in sites])
    for empty in (extract(build()), extract(build(), last), extract(idle, last)):
        assert (known + empty).to_bytes() == (empty + known).to_bytes() == known.to_bytes()
    expected = answers(build()), answers(build(), last=last)
    assert (answers(view_of(build(), extract(build()))),) * 2 == expected


@pytest.mark.parametrize("build", [quantiles, dyadic, wide, ecm, topk])
def test_sites_that_still_know_every_arrival_are_exact_together(build):
    """Nothing has been forgotten at any site, so nothing is uncertain about the sum."""
    parts = [Stream(np.arange(20), np.arange(20) % 5 + i, None) for i in range(4)]
    sites, twin = at_one_time(build, parts, None)
    exact = twin.frequencies(0)
    everywhere = view_of(build(), many([extract(site) for site in sites]))
    assert repr(everywhere.total()) == "Estimate(80, 80..80, 100%)"
    if build in (quantiles, dyadic):
        answer = everywhere.quantile(0.5)
        assert answer.high - answer.low <= 1
        assert quantile(exact, 0.5) in answer
    if build is dyadic:
        answer = everywhere.count_range(1, 3)
        assert answer.low == answer.value == answer.high == between_keys(exact, 1, 3)


def test_a_key_that_is_heavy_only_in_the_union_is_listed():
    """Second at each of ten sites, where another key is far ahead; and text comes back as text."""
    sites = []
    for i in range(10):
        site = topk(phi=0.06, eps=0.05)
        words = [f"only here {i}"] * 70 + ["everywhere"] * 30
        site.update(np.random.default_rng(i).permutation(words), np.arange(100))
        sites.append(site)
    everywhere = view_of(topk(phi=0.06, eps=0.05), many([Extract.from_bytes(extract(site).to_bytes()) for site in sites]))
    top = everywhere.top(1)
    assert (top[0].key, 300 in top[0].count, top.missed >= 70) == ("everywhere", True, True)
    assert "everywhere" in everywhere.heavy_hitters().key


@pytest.mark.parametrize("late", [None, 40])
def test_keys_of_all_kinds_are_carried(late):
    names = ["a", 1, b"c", ("a", 1), (("x", b"y"), -(2**63)), "Grüße", 2**63 - 1]
    sites = [topk(phi=0.05, eps=0.02, lateness=late) for _ in range(3)]
    for tick, name in enumerate(2 * names):
        sites[0].update([name], [1000 + tick])
    sites[1].update(["b"], [1014])
    sites[2].update(["a", "a"], [1013, 1014])
    known = many([extract(site) for site in sites])
    top = view_of(topk(phi=0.05, eps=0.02, lateness=late), Extract.from_bytes(known.to_bytes())).top(100)
    assert sorted(map(repr, top.key)) == sorted(map(repr, [*names, "b"]))
    assert (top[0].key, top[0].count.value) == ("a", 4)


def test_many_sites_leave_one_list_of_each_key():
    sites = []
    for i in range(30):
        sites.append(topk())
        sites[-1].update(np.arange(200) % (3 + i % 4), np.arange(200))
    known = many([extract(site) for site in sites])
    assert sorted(known.candidates.hashes.tolist()) == sorted(lt.hash_keys(range(6)).tolist())
    exact = Counter()
    for i in range(30):
        exact.update((np.arange(200) % (3 + i % 4)).tolist())
    assert (known.candidates.least <= known.candidates.most).all()
    names = known.candidates.keys.pick(known.candidates.rows)
    for name, least, most in zip(names, known.candidates.least.tolist(), known.candidates.most.tolist(), strict=True):
        assert least <= exact[name] <= most


# -- likely bounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [quantiles, wide])
def test_likely_bounds_of_sums_hold_as_often_as_they_promise(build):
    """Sites that have forgotten most arrivals: the bounds are Hoeffding's, and narrower than what is certain."""
    trials, delta, failures, widths = 150, 0.1, Counter(), []
    top = KEYS * 16 - 1 if build is quantiles else 10**6 - 1
    options = {"delta": delta, "eps": 0.15, "window": 10_000, "hi" if build is quantiles else "universe": top + 1}
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        sites, everything = [], []
        for _ in range(4):
            values = np.minimum(np.abs(rng.normal(0.3, 0.2, 1500)) * top, top).astype(np.int64)
            ticks = np.sort(rng.integers(0, 10_000, 1500))
            site = build(**options)
            site.update(values, ticks)
            site.advance(10_000)
            sites.append(site)
            everything.append(values[ticks >= 10_000 - 7000])
        exact = np.sort(np.concatenate(everything))
        asked_of = view_of(build(**options), many([extract(site, 7000) for site in sites]))
        q = float(rng.random())
        truth = exact[max(int(np.ceil(q * exact.size - 1e-9)), 1) - 1]
        failures["quantile"] += truth not in asked_of.quantile(q)
        lo, hi = sorted(rng.integers(0, top, 2).tolist())
        answer = asked_of.count_range(lo, hi)
        failures["count_range"] += int(((exact >= lo) & (exact <= hi)).sum()) not in answer
        widths.append((answer.high - answer.low) / exact.size)
    assert max(failures.values(), default=0) <= hoeffding(trials, delta, 1e-6)
    assert 0 < np.median(widths) < 2 * 0.15


# -- what does not fit -------------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("options", [{"eps": 0.03}, {"delta": 0.3}, {"seed": 1}, {"window": 901}, {"merge_height": 1}])
def test_extracts_of_other_sketches_are_refused(build, options):
    """Also where the numbers are as many: other seeds have other keys in a cell."""
    other = build(**options)
    with pytest.raises(MergeError, match="not built alike; give all sites the same options"):
        extract(build()) + extract(other)
    with pytest.raises(MergeError, match="an extract of a sketch that was built otherwise; build all sites alike"):
        view_of(build(), extract(other))


def test_extracts_of_other_classes_are_refused():
    for left, right in itertools.permutations([extract(build()) for build in (ecm, topk, quantiles, dyadic)], 2):
        with pytest.raises(MergeError, match="not built alike"):
            left + right


@kinds
@pytest.mark.parametrize("question", [{"last": 10}, {"between": (20, 10)}])
def test_an_extract_has_one_range(build, question):
    sketch = fed(build(), Stream(np.arange(50), np.arange(50) % KEYS, None), ())
    known = view_of(build(), extract(sketch, 30))
    questions = [known.total]
    if build is quantiles:
        questions += [lambda **q: known.quantile(0.5, **q), lambda **q: known.count_range(1, 5, **q)]
    elif build in (joins, joined_waves):
        questions += [known.self_join]
    else:
        questions += [lambda **q: known.count(3, **q), known.self_join]
    for ask in questions:
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            ask(**question)


@pytest.mark.parametrize("other", [lt.SimpleCountMin(window=100, eps=0.5, delta=0.5), lt.WindowCounter(window=100, eps=0.1)])
def test_sketches_without_extracts_say_what_to_do(other):
    with pytest.raises((QueryError, AttributeError)):
        extract(other)
    with pytest.raises(QueryError, match=r"does not answer from extracts; merge such sketches with lt\.merge"):
        view_of(other, extract(ecm()))


@kinds
def test_bytes_that_were_damaged_are_refused(build):
    data = extract(fed(build(), Stream(np.arange(50), np.arange(50) % KEYS, None), ())).to_bytes()
    for bad in (b"", data[:-1], data + b"\0", data[: len(data) // 2]):
        with pytest.raises(FormatError):
            Extract.from_bytes(bad)


@kinds
@given(stream=streams(most=200, cells=KEYS), last=ages, late=lateness)
def test_bytes_come_back_as_they_were(build, stream, last, late):
    known = extract(fed(build(lateness=late), stream, (), shuffled=1), last)
    again = Extract.from_bytes(known.to_bytes())
    for mine, its in ((known.cells, again.cells), (known.total, again.total)):
        assert all((a == b).all() for a, b in zip(mine, its, strict=True))
    assert (known.spread == again.spread).all()
    assert again.to_bytes() == known.to_bytes()
    assert (known.candidates is None) == (again.candidates is None)


def test_extracting_leaves_no_more_in_memory_than_the_sketch():
    """A task keeps the sketches of thousands of sites: what a question left behind would be several times their bytes."""
    sketch = lt.EcmSketch(window=1_000, eps=0.05, delta=0.1)
    sketch.update(np.arange(5_000) % 300, np.arange(5_000) // 5)
    sketch.count(3, last=100)
    assert sketch._parts[0].multiples_since
    sketch.extract_range(last=100)
    assert not sketch._parts[0].multiples_since
