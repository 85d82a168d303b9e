"""Builders, streams and checks that the tests of the sketches of integers share."""

import numpy as np
from ecm_cases import duration, first_tick
from naive import NaiveWindow, between_keys, quantile
from streams import Stream

import lately as lt

#: None of them a power of sixteen; the last three have sketched levels.
UNIVERSES = (2, 3, 17, 1000, 10**9, 2**32, 2**63)
SMALL = (2, 3, 17, 1000)
SHARES = [0.0, 0.07, 0.1, 0.5, 0.99, 1.0]

#: So small that what is likely can be taken for certain.
SURE = 1e-7


def build(kind, window, universe, **options):
    """An empty sketch over a window of so many ticks of this kind, with its naive twin."""
    options = {"universe": universe, "eps": 0.3, "delta": SURE} | options
    if kind == "arrivals":
        return lt.Dyadic(window=lt.arrivals(window), **options), NaiveWindow(window - 1)
    return lt.Dyadic(window=f"{window}s" if kind == "time" else window, **options), NaiveWindow(window)


def pool(universe):
    """Keys that a stream's small cells stand for: both ends, where nodes meet, and any others."""
    rng = np.random.default_rng(universe % 1000)
    places = [0, universe - 1, universe - 2, 1, 15, 16, 17, 255, 256, universe // 2, universe // 2 + 1]
    return np.array([p % universe for p in places] + rng.integers(0, universe, 30).tolist(), np.int64)


def spread(stream, universe):
    """The stream with its cells turned into keys; which of them its favourite is depends on its length."""
    keys = pool(universe)
    return Stream(stream.ticks, keys[(stream.cells + len(stream)) % keys.size], stream.counts)


def ranges(kind, twin, window, shares):
    """A question for the whole window, one for the last so long and one in the past, with the frequencies of each."""
    older, newer = sorted((int(s * window) for s in shares), reverse=True)
    stop = first_tick(kind, twin, newer) if newer else None
    return [
        ({}, came(twin, first_tick(kind, twin, window))),
        ({"last": duration(kind, older)}, came(twin, first_tick(kind, twin, older))),
        ({"between": (duration(kind, older), duration(kind, newer))}, came(twin, first_tick(kind, twin, older), stop)),
    ]


def came(twin, start, stop=None):
    """The frequencies of all that came, without what came no times."""
    return +twin.frequencies(start, stop)


def key_ranges(universe, seed):
    """Pairs of keys: one key, everything, either end, and any others."""
    rng = np.random.default_rng(seed)
    some = [*pool(universe).tolist(), *rng.integers(0, universe, 10).tolist()]
    drawn = [sorted(rng.choice(len(some), 2).tolist(), key=lambda i: some[i]) for _ in range(4)]
    ends = [(0, 0), (universe - 1, universe - 1), (0, universe - 1), (0, universe - 2), (1, universe - 1)]
    return ends + [(some[0], some[0]), (some[-1], some[-1])] + [(some[i], some[j]) for i, j in drawn]


def rank_error(frequencies, key, q):
    """How far the ranks that a key has are from q, in shares of the arrivals."""
    total = sum(frequencies.values())
    upto = between_keys(frequencies, 0, key) / total
    before = upto - frequencies.get(key, 0) / total
    return max(before - q, q - upto, 0.0)


def assert_heavy(found, frequencies, phi, eps):
    """Every key with a share of phi + eps is listed, and the truth is within the bounds of what is."""
    total, listed = sum(frequencies.values()), dict(found)
    for key, count in frequencies.items():
        assert key in listed or count < (phi + eps) * total
    for key, count in listed.items():
        assert frequencies.get(key, 0) in count
    assert found.count.value.tolist() == sorted(found.count.value.tolist(), reverse=True)


def own_counts(frequencies, listed, bits, step):
    """For each prefix that came, of each length: its arrivals under no listed prefix below it."""
    own, covered = {}, set()
    for shift in range(0, bits, step):
        for key, count in frequencies.items():
            place = (key >> shift << shift, bits - shift)
            own[place] = own.get(place, 0) + (0 if key in covered else count)
        covered |= {key for key in frequencies if (key >> shift << shift, bits - shift) in listed}
    return own


def assert_hierarchy(found, frequencies, universe, step, threshold):
    """What is not listed has less than the threshold of its own; the truth is within the bounds of what is."""
    bits = (universe - 1).bit_length()
    listed = {(row.prefix, row.bits): row for row in found}
    own = own_counts(frequencies, listed, bits, step)
    for place, count in own.items():
        assert place in listed or count < threshold
    for (prefix, length), row in listed.items():
        last = prefix + (1 << (bits - length)) - 1
        assert between_keys(frequencies, prefix, last) in row.count
        assert own.get((prefix, length), 0) in row.own
    lengths = [row.bits for row in found]
    assert lengths == sorted(lengths, reverse=True)


def drifting(seed, size, universe):
    """Keys around a centre that wanders, a few favourites that change halfway, and some from anywhere."""
    rng = np.random.default_rng(seed)
    progress = np.arange(size) / size
    near = (0.2 + 0.5 * progress + 0.03 * rng.standard_normal(size)) % 1
    favourites = rng.integers(0, universe, 12)
    favourite = favourites[np.minimum(rng.zipf(1.6, size) - 1, 5) + 6 * (progress > 0.5)]
    kind = rng.random(size)
    keys = np.where(kind < 0.5, (near * universe).astype(np.int64), favourite)
    keys = np.where(kind > 0.9, rng.integers(0, universe, size), keys)
    return Stream(np.cumsum(rng.integers(0, 3, size)), np.minimum(keys, universe - 1), None)


def frequencies_of(stream, since, stop=None):
    inside = (stream.ticks >= since) & (stream.ticks < (stop if stop is not None else 2**62))
    keys, counts = np.unique(stream.cells[inside], return_counts=True)
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))


def asked_once(sketch, frequencies, scale, rng, question):
    """Every kind of question once; which answers are off by more than eps of ``scale``, and which bounds miss the truth."""
    eps, total, universe = sketch.eps, sum(frequencies.values()), sketch.universe
    key = int(rng.choice(list(frequencies)))
    lo, hi = sorted(rng.integers(0, universe, 2).tolist())
    q = float(rng.random())
    exact = {
        "count": (sketch.count(key, **question), frequencies[key]),
        "count_range": (sketch.count_range(lo, hi, **question), between_keys(frequencies, lo, hi)),
        "rank": (sketch.rank(key, **question), between_keys(frequencies, 0, key)),
    }
    off = {name: abs(answer.value - truth) > eps * scale for name, (answer, truth) in exact.items()}
    outside = {name: truth not in answer for name, (answer, truth) in exact.items()}
    ranged = exact["count_range"][0]  # at most 45 % of eps either way for the window, and as much for collisions
    off["too wide"] = ranged.high - ranged.low > 1.35 * eps * scale + 2
    answer = sketch.quantile(q, **question)
    off["quantile"] = rank_error(frequencies, answer.value, q) > eps * scale / total
    outside["quantile"] = quantile(frequencies, q) not in answer
    error = abs(exact["count_range"][0].value - exact["count_range"][1]) / (eps * scale)
    return off, outside, error, rank_error(frequencies, answer.value, q) / (eps * scale / total)
