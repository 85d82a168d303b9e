"""Signed cells on shared waves: the moments of their noise by enumeration, answers and bounds against exact counts."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import NaiveWindow, hoeffding, inner_product, second_moment
from streams import cuts, make, streams

import lately as lt
from lately.core.plan import LEAST_NORM, MISSING_LEVEL, row_odds, signed_waves
from lately.sketches.dithered import DitheredRows, Noise, _roots, level_for
from lately.sketches.extracts import Extract, ExtractSum, extract, view_of

WINDOW = 1_000
RANGES = {"last": ({"last": 1_000}, {"last": 150}), "between": ({"between": (1_000, 400)}, {"between": (300, 100)})}


def build(**options):
    return lt.WindowedAmsSketch(**({"window": WINDOW, "eps": 0.7, "delta": 0.1} | options))


# -- noise, by enumeration ---------------------------------------------------------------------------------------------


def dither(level):
    """The noise of a cell at every phase."""
    return np.arange(1 << level) - ((1 << level) - 1) / 2


def noise(level, slack=0, draw=1, width=3):
    return Noise.of(np.array([level]), np.array([slack]), width, draw)


@pytest.mark.parametrize("level", range(9))
def test_the_noise_of_a_suffix(level):
    every, known = dither(level), noise(level)
    assert every.mean() == 0
    assert known.variance[0] == pytest.approx((every**2).mean())
    assert known.norm[0] ** 4 >= (every**4).mean() * (1 - 1e-12)
    assert known.norm[0] ** 4 <= (every**4).mean() * 1.8 + 1e-9
    assert known.least[0] == known.likely[0] == known.most[0] == pytest.approx(6 * (every**2).mean())
    assert known.draws == ((1,) if level else ())


@pytest.mark.parametrize(("level", "newer"), [(a, b) for a in range(7) for b in range(a + 1)])
def test_the_noise_of_a_difference(level, newer):
    """Two boundaries of one cell: the newer number is the older one plus the count between, whatever that is."""
    width = 3
    older = np.arange(1 << level)
    for between in range(1 << newer):
        recent = (older + between) % (1 << newer)
        every = (older - older.mean()) - (recent - ((1 << newer) - 1) / 2)
        assert every.mean() == pytest.approx(0)
        arrivals = 2 * width * between  # as many in each cell
        known = noise(level).less(noise(newer), np.array([newer]), arrivals, width)
        total = 2 * width * (every**2).mean()
        assert known.least[0] - 1e-9 <= total <= known.most[0] + 1e-9
        assert known.least[0] - 1e-9 <= known.likely[0] <= known.most[0] + 1e-9
        assert (every**2).mean() <= known.variance[0] + 1e-9
        assert (every**4).mean() <= known.norm[0] ** 4 + 1e-9
    exact = Noise.none(1).less(noise(newer), np.array([newer]), 10**9, width)
    assert exact.variance[0] == pytest.approx((dither(newer) ** 2).mean())
    assert exact.least[0] == exact.most[0] == pytest.approx(6 * (dither(newer) ** 2).mean())


@pytest.mark.parametrize("levels", [(1, 1), (3, 5), (4, 0), (5, 5, 2)])
def test_the_noise_of_a_sum_over_sites(levels):
    each = [noise(level, draw=site) for site, level in enumerate(levels)]
    parts, draws = sum(part.parts() for part in each), tuple(draw for part in each for draw in part.draws)
    apart = Noise.of_parts(parts, 3, draws)
    every = np.array([sum(values) for values in itertools.product(*map(dither, levels))])
    assert apart.variance[0] == pytest.approx((every**2).mean())
    assert apart.least[0] == apart.likely[0] == apart.most[0] == pytest.approx(6 * (every**2).mean())
    assert (every**4).mean() <= apart.norm[0] ** 4 * (1 + 1e-12) <= 1.8 * (every**4).mean() + 1e-9
    if len(draws) > 1:
        alike = Noise.of_parts(parts, 3, (7,) * len(draws))
        together = sum(np.resize(dither(level), 1 << max(levels)) for level in levels)  # all follow one phase
        assert (together**2).mean() <= alike.variance[0] + 1e-9
        assert alike.least[0] <= 6 * (together**2).mean() <= alike.most[0] + 1e-9
        assert (together**4).mean() <= alike.norm[0] ** 4 + 1e-9


def test_slack_widens_what_is_known():
    plain, merged = noise(3), noise(3, slack=5)
    assert merged.variance[0] == plain.variance[0] + 25
    assert (merged.least[0], merged.most[0]) == (plain.least[0], plain.most[0] + 6 * 25)
    assert plain.least[0] < merged.likely[0] < merged.most[0]
    assert merged.norm[0] == plain.norm[0] + 5
    past = merged.less(noise(1, slack=2), np.array([1]), 0, 3)
    assert past.slack[0] == 7
    assert past.most[0] == pytest.approx(noise(3).less(noise(1), np.array([1]), 0, 3).most[0] + 6 * 49)
    depends = Noise.of_parts(2 * merged.parts(), 3, (1, 2))  # nothing is known of what merges share
    assert depends.most[0] == pytest.approx(6 * (2 * plain.variance[0] + 10**2))  # slack adds up in the worst case


@pytest.mark.parametrize("square", [0.0, 0.1, 0.9])
def test_the_roots_enclose_all_that_an_answer_allows(square):
    moments = np.linspace(0, 4_000, 40_001)
    for value, linear, constant in itertools.product((-50.0, 0.0, 7.0, 300.0), (0.0, 5.0), (0.0, 40.0, 9_000.0)):
        low, high = (float(part[0]) for part in _roots(np.array([value]), square, np.array([linear]), np.array([constant])))
        allowed = moments[(max(value, 0) - moments) ** 2 <= square * moments**2 + linear * moments + constant]
        assert low == pytest.approx(allowed[0], abs=0.11)
        assert high == pytest.approx(min(allowed[-1], 4_000) if high <= 4_000 else high, abs=0.11)


@pytest.mark.parametrize("eps", [0.3, 0.01, 0.0007])
def test_the_level_has_no_more_notes_than_expected(eps):
    for arrivals in (0, 1, 2, 3, 10, 999, 10**5, 10**9):
        level = level_for(arrivals, eps)
        assert arrivals / 2 ** (level + 1) <= 1 / eps * (1 + 1e-9)
        assert level == 0 or arrivals / 2**level > 1 / eps * (1 - 1e-9)
        assert level == 0 or 2**level <= eps * arrivals


@pytest.mark.parametrize(("eps", "delta"), [(0.05, 0.05), (0.1, 0.01), (0.3, 1e-7), (0.9, 0.4), (0.99, 0.001)])
def test_sizes_are_those_of_the_proof(eps, delta):
    width, depth, eps_sw = signed_waves(eps, delta)
    sketch = build(eps=eps, delta=delta)
    assert (sketch.width, sketch.depth, sketch._parts[0].eps) == (width, depth, eps_sw)
    assert sketch._parts[0].starts.tolist() == [2 * width * row for row in range(depth + 1)]
    u = (eps_sw * (1 + eps / 5) / LEAST_NORM) ** 2 / 12
    assert 2 / width + 8 * u + 5.6 * width * u * u == pytest.approx((row_odds(depth, delta) - MISSING_LEVEL) * eps**2)
    assert build(eps=eps, delta=delta, merge_height=3)._parts[0].eps == pytest.approx(eps_sw / 4, rel=0.3)


# -- answers -----------------------------------------------------------------------------------------------------------


@given(stream=streams(most=300, cells=40), window=st.sampled_from([60, 5000]), pieces=cuts, share=st.floats(0, 1))
def test_what_no_arrival_precedes_is_exact(stream, window, pieces, share):
    """Nothing was overwritten, or all that the cells ever counted is in the range: as with exact counters."""
    sketch, twin = build(window=window), NaiveWindow(window)
    for piece in stream.pieces(pieces):
        sketch.update(piece.cells, piece.ticks, piece.counts)
    for tick, key, count in zip(stream.ticks.tolist(), stream.cells.tolist(), stream.weights.tolist(), strict=True):
        twin.add(tick, key, count)
    for age in {int(share * window), window}:
        frequencies = twin.frequencies(twin.now - age + 1)
        rows = sketch.in_range(age).rows
        plain = sketch._plain()
        if frequencies:
            plain.update(list(frequencies), counts=list(frequencies.values()))
        elif not sum(twin.frequencies(-1).values()):
            continue
        if not rows.noise.draws:
            assert (rows.table == plain.table).all()
            assert sketch.self_join(age).value == pytest.approx(min(plain.self_join().value, sketch.total(age).high ** 2))
        levels = np.log2(12 * rows.noise.variance + 1) / 2
        assert (np.abs(rows.table - plain.table) <= 2 * (2.0 ** levels[:, None] - 1)).all()
        if stream.ticks[0] > twin.now - age:
            assert not rows.noise.draws


KINDS = {
    "skewed": lambda rng, size: rng.zipf(1.5, size) % 2_000,
    "uniform": lambda rng, size: rng.integers(0, 300, size),
    "one heavy key": lambda rng, size: np.where(rng.random(size) < 0.7, 0, rng.integers(0, 5_000, size)),
    "all distinct": lambda rng, size: rng.permutation(size),
    "regular": lambda rng, size: np.arange(size) // 32 % 16,  # runs as long as a power of two: not random at all
}


def pair(kind, seed, size=4_000):
    """Two streams, as keys and ticks."""
    rng = np.random.default_rng(seed)
    for stream in range(2):
        ticks = np.arange(size) * 3 * WINDOW // size if kind == "regular" else np.sort(rng.integers(0, 3 * WINDOW, size))
        ticks = np.maximum(ticks, 2)
        ticks[0] = stream  # so that no two of them begin alike
        yield KINDS[kind](rng, size), ticks


def sites_of(keys, ticks, sites, **options):
    for site in range(sites):
        sketch = build(**options)
        sketch.update(keys[site::sites], ticks[site::sites])
        sketch.advance(3 * WINDOW)
        yield sketch


def added(parts, question):
    """The view of the sum of what sites extracted."""
    total = ExtractSum()
    for part in parts:
        total.add(Extract.from_bytes(extract(part, **question).to_bytes()))
    return view_of(parts[0], total.result())


def views(how, keys, ticks, seed):
    """For each question, a view of the stream's range."""
    options = {"seed": seed, "delta": 0.2}
    parts = list(sites_of(keys, ticks, 1 if how == "one sketch" else 3, **options))
    if how == "extracts":
        return [added(parts, question) for question in RANGES["last"]]
    whole = lt.merge(parts) if how == "merged" else parts[0]
    return [whole.in_range(**question) for questions in RANGES.values() for question in questions]


def frequencies_in(keys, ticks, question):
    older, newer = question["between"] if "between" in question else (question["last"], 0)
    inside = (ticks > 3 * WINDOW - older) & (ticks <= 3 * WINDOW - newer)
    return np.bincount(keys[inside], minlength=5_000).astype(float)


@pytest.mark.parametrize("how", ["one sketch", "merged", "extracts"])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_miss_no_more_often_than_delta(kind, how):
    """Over 400 pairs of streams each, 6,000 in all, with other hash functions for each; the promise of eps as well."""
    delta, eps, seeds = 0.2, 0.7, 400
    missed, far, relative = np.zeros(3), np.zeros(2), {}
    for seed in range(seeds):
        streams = list(pair(kind, seed))
        questions = [question for questions in RANGES.values() for question in questions]
        for question, left, right in zip(questions, *(views(how, *stream, seed) for stream in streams), strict=False):
            a, b = (frequencies_in(*stream, question) for stream in streams)
            join, product, some = left.self_join(), left.inner_product(right), a[:20].sum()
            vector = build(seed=seed, delta=delta)._plain()._vector(range(20), None)
            part = left.range_sum(vector[0].table.astype(float), vector[1], 0.0)
            for answer in (join, product, part):
                assert answer.low <= answer.value <= answer.high
            missed += [a @ a not in join, a @ b not in product, some not in part]
            norms = [max(math.sqrt(f @ f), LEAST_NORM * f.sum()) for f in (a, b)]
            relative.setdefault(str(question), []).append((left.rows.squares().value.mean() - a @ a) / norms[0] ** 2)
            if how != "merged" and "last" in question:
                far += [abs(join.value - a @ a) > eps * norms[0] ** 2, abs(product.value - a @ b) > eps * norms[0] * norms[1]]
    trials = sum(map(len, relative.values()))
    assert trials >= 800
    assert (missed <= [hoeffding(trials, delta), hoeffding(trials, 3 * delta), hoeffding(trials, 2 * delta)]).all()
    assert far.max() <= hoeffding(2 * seeds, delta)
    if how != "merged":  # right on average: a noise that is not taken off, or taken off twice, shows at once
        for question in RANGES["last"]:
            errors = np.array(relative[str(question)])
            assert abs(errors.mean()) <= 5 * errors.std() / math.sqrt(seeds) + 1e-12


def test_without_the_correction_answers_would_be_too_high():
    """How much noise there is to take off where these tests ask."""
    keys, ticks = next(pair("uniform", 5, 20_000))
    view = next(sites_of(keys, ticks, 1)).in_range(last=WINDOW)
    truth = second_moment(dict(enumerate(frequencies_in(keys, ticks, {"last": WINDOW}))))
    assert view.rows.noise.likely.min() > 0.2 * truth


@pytest.mark.parametrize("kind", ["skewed", "one heavy key"])
def test_bounds_are_as_tight_as_promised(kind):
    """Of a second moment in a suffix, where the norm is no less than a sixteenth of the arrivals."""
    keys, ticks = next(pair(kind, 3, 40_000))
    for eps in (0.2, 0.5):
        sketch = next(sites_of(keys, ticks, 1, eps=eps))
        for last in (100, WINDOW):
            answer = sketch.self_join(last)
            assert answer.high <= answer.value * (1 + eps / (1 - eps) + 1e-9)
            assert answer.low >= answer.value * (1 - eps)


def test_a_stream_joined_with_itself_is_its_self_join():
    keys, ticks = next(pair("skewed", 1))
    sketch = next(sites_of(keys, ticks, 1))
    for last in (100, WINDOW):
        twice, join = sketch.inner_product(lt.from_bytes(sketch.to_bytes()), last=last), sketch.self_join(last)
        assert twice.value == pytest.approx(join.value)
        assert twice.low <= join.low
        assert twice.high == pytest.approx(join.high)


def test_streams_that_begin_alike_have_wider_bounds():
    """Phases are drawn from the first arrival, its key and time; with equal ones errors may add up."""
    (keys, ticks), (other, other_ticks) = pair("skewed", 1)
    widths = []
    for same in (False, True):
        if same:
            other[0], other_ticks[0] = keys[0], ticks[0]
        left, right = (next(sites_of(*stream, 1)) for stream in ((keys, ticks), (other, other_ticks)))
        assert (left._parts[0].draw == right._parts[0].draw) == same
        answer = left.inner_product(right)
        widths.append(answer.high - answer.low)
    assert widths[1] > widths[0]
    twins = [next(sites_of(keys, ticks, 1)) for _ in range(2)]
    joined = added(twins, {"last": WINDOW}).self_join()
    assert 4 * second_moment(dict(enumerate(frequencies_in(keys, ticks, {"last": WINDOW})))) in joined
    distinct = added([twins[0], next(sites_of(keys[1:], ticks[1:], 1))], {"last": WINDOW}).rows.noise
    assert (distinct.least == distinct.most).all()
    assert (added(twins, {"last": WINDOW}).rows.noise.least == 0).all()


def test_phases_follow_the_first_arrival_however_the_stream_is_cut():
    keys, ticks = next(pair("skewed", 2))
    whole, pieces = build(), build()
    whole.update(keys, ticks)
    for at in np.array_split(np.arange(keys.size), 7):
        pieces.update(keys[at], ticks[at])
    assert whole.to_bytes() == pieces.to_bytes()
    assert whole._parts[0].salt == lt.from_bytes(whole.to_bytes())._parts[0].salt == whole.copy()._parts[0].salt != 0
    later = build()
    later.update(keys, ticks + 1)
    assert later._parts[0].salt != whole._parts[0].salt


def test_sites_draw_their_phases_from_their_names():
    keys, ticks = next(pair("skewed", 2))
    sites = {}
    for name in ("lima", "paris", "lima again"):
        sites[name] = build()
        sites[name].draw_phases(name.split()[0])
        sites[name].update(keys, ticks)
    draws = {name: int(site._parts[0].draw) for name, site in sites.items()}
    assert draws["lima"] == draws["lima again"] != draws["paris"]
    assert sites["lima"].to_bytes() == sites["lima again"].to_bytes()
    noise = added([sites["lima"], sites["paris"]], {"last": WINDOW}).rows.noise
    assert (noise.least == noise.most).all()
    with pytest.raises(lt.ParameterError, match="call draw_phases before any update"):
        sites["lima"].draw_phases("paris")
    build(counter="wave").draw_phases("lima")  # has no phases to draw


@given(stream=streams(most=200, cells=20), lateness=st.sampled_from([1, 10, 90]), seed=st.integers(0, 999))
def test_lateness_sorts_in_what_comes_late(stream, lateness, seed):
    rng = np.random.default_rng(seed)
    order = np.argsort(stream.ticks + rng.integers(0, lateness + 1, len(stream)), kind="stable")
    held, plain = build(window=100, lateness=lateness), build(window=100, counter="exact", eps=0.9)
    for part in np.array_split(order, 3):
        if part.size:
            held.update(stream.cells[part], stream.ticks[part], stream.weights[part])
    plain.update(stream.cells, stream.ticks, stream.weights)
    twin = NaiveWindow(100)
    for tick, key, count in zip(stream.ticks.tolist(), stream.cells.tolist(), stream.weights.tolist(), strict=True):
        twin.add(tick, key, count)
    for last in (7, 100):
        exact = held._plain()
        frequencies = twin.frequencies(twin.now - last + 1)
        if frequencies:
            exact.update(list(frequencies), counts=list(frequencies.values()))
        view = held.in_range(last)
        if not view.rows.noise.draws:
            assert (view.rows.table == exact.table).all()
        assert plain.total(last).value in held.total(last)
    assert lt.from_bytes(held.to_bytes()).self_join() == held.self_join()


def test_certain_bounds_of_the_total_limit_every_answer():
    sketch = build()
    assert sketch.self_join() == lt.Estimate(0.0, 0.0, 0.0, 0.9)
    assert sketch.inner_product(sketch) == lt.Estimate(0.0, 0.0, 0.0, 1 - 3 * 0.1)
    sketch.update(["a"], [5])
    assert sketch.self_join() == lt.Estimate(1.0, 1.0, 1.0, 0.9)
    rng = np.random.default_rng(3)
    many = build()
    many.update(np.arange(50_000), np.sort(rng.integers(0, 3_000, 50_000)))
    for last in (10, 1_000):
        total, joined = many.total(last), many.self_join(last)
        assert joined.low >= total.low
        assert joined.high <= total.high**2


def test_streams_outlive_32_bits_of_ticks():
    sketch = build(window=500)
    for start in (0, 2**32 - 600, 2**33 + 5):
        sketch.update(np.arange(300) % 3, start + np.arange(300))
        assert 3 * 100**2 in sketch.self_join()
        assert sketch.self_join(last=3).value == 3


def test_a_window_of_arrivals():
    sketch = lt.WindowedAmsSketch(window=lt.arrivals(2_000), eps=0.3, delta=0.05)
    keys = np.random.default_rng(1).zipf(1.5, 9_000) % 100
    sketch.update(keys)
    for last in (500, 2_000):
        assert second_moment(dict(enumerate(np.bincount(keys[-last:]).tolist()))) in sketch.self_join(last)


def test_shared_waves_and_other_counters_have_tables_of_other_sizes():
    with pytest.raises(lt.MergeError, match="differ in counter: 'shared' and 'wave'"):
        build().inner_product(build(counter="wave"))


def test_shared_waves_cannot_be_made_finer_by_merging():
    sketch = build()
    sketch.update(["a"], [1])
    with pytest.raises(lt.MergeError, match="the sizes of a WindowedAmsSketch of shared waves follow from the eps"):
        lt.merge([sketch, sketch], eps=0.1)


def test_a_merge_of_many_keeps_hold_of_the_truth():
    """Bounds of merged sketches contain the truth, and are no closer than those of the sketch that was never merged."""
    stream = make(4, 6_000, 50, 1, 3)
    truth = {int(k): int(c) for k, c in enumerate(np.bincount(stream.cells, stream.weights))}
    whole = build(window=10**6)
    whole.update(stream.cells, stream.ticks, stream.weights)
    parts = []
    for site in range(4):
        parts.append(build(window=10**6))
        parts[-1].update(stream.cells[site::4], stream.ticks[site::4], stream.weights[site::4])
    merged = lt.merge([lt.merge(parts[:2]), lt.merge(parts[2:])])
    assert second_moment(truth) in merged.self_join()
    assert inner_product(truth, truth) in merged.inner_product(whole)
    assert merged.self_join().high - merged.self_join().low >= whole.self_join().high - whole.self_join().low
    assert merged.merges == 2


def test_a_view_tells_the_noise_of_its_rows():
    rows = build().in_range().rows
    assert isinstance(rows, DitheredRows)
    assert rows.noise.draws == ()
