"""The plain Count-Min: equal to its naive twin cell by cell, and what an ECM-sketch's range becomes over sites."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import count_min, hoeffding
from streams import make

import lately as lt

key = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=40), st.binary(max_size=40))


@given(keys=st.lists(key, min_size=1, max_size=60), seed=st.integers(0, 2**64 - 1))
def test_the_table_is_the_naive_one(keys, seed):
    sketch = lt.CountMin(eps=0.3, delta=0.1, seed=seed)
    sketch.update(keys)
    expected = count_min(
        Counter(k if isinstance(k, int) else k if isinstance(k, bytes) else k.encode() for k in keys),
        sketch._words,
        sketch.width,
    )
    assert (sketch.table == expected).all()
    assert sketch.total() == len(keys)


def test_answers_miss_no_more_often_than_delta():
    frequencies = {k: 1000 // (k + 1) for k in range(500)}
    total = sum(frequencies.values())
    off = outside = 0
    for seed in range(300):
        sketch = lt.CountMin(eps=0.05, delta=0.3, seed=seed)
        sketch.update(np.array(list(frequencies)), np.array(list(frequencies.values())))
        answer = sketch.count(seed)
        off += abs(answer.value - frequencies[seed]) > 0.05 * total
        outside += frequencies[seed] not in answer
        assert answer.high >= frequencies[seed]
    assert off <= hoeffding(300, 0.3)
    assert outside <= hoeffding(300, 0.3)


def test_extracted_ranges_add_up_over_sites_without_merge_error():
    streams = [make(seed, 2000, 30, 1, 0) for seed in range(4)]
    parts = []
    for stream in streams:
        sketch = lt.EcmSketch(window=1000, eps=0.2, delta=0.1, counter="wave")
        sketch.update(stream.cells, stream.ticks)
        sketch.advance(max(int(s.ticks[-1]) for s in streams))
        parts.append(sketch.extract(last=300))
    now = max(int(s.ticks[-1]) for s in streams)
    union = sum(np.bincount(s.cells[s.ticks > now - 300], minlength=30) for s in streams)
    merged = lt.merge(parts)
    table = count_min({k: int(c) for k, c in enumerate(union)}, merged._words, merged.width)
    assert (np.abs(merged.table - table) <= 0.2 * table).all()
    assert merged.error == pytest.approx(0.2)
    answers = merged.counts(np.arange(30))
    assert (answers.low <= union).all()
    assert (union <= answers.high).all()
    assert int(union @ union) in merged.self_join()


@given(seed=st.integers(0, 999), last=st.integers(1, 1000), counter=st.sampled_from(["wave", "exphist", "exact"]))
def test_extracted_numbers_keep_the_error_they_state(seed, last, counter):
    stream = make(seed, 1500, 30, 1, 5)
    sketch = lt.EcmSketch(window=1000, eps=0.2, delta=0.1, counter=counter)
    sketch.update(stream.cells, stream.ticks, stream.counts)
    merged = lt.merge([sketch, sketch])
    inside = stream.ticks > stream.ticks[-1] - last
    union = np.bincount(stream.cells[inside], stream.weights[inside], minlength=30).astype(int)
    for source, times in ((sketch, 1), (merged, 2)):
        extracted = source.extract(last)
        table = times * count_min({k: int(c) for k, c in enumerate(union)}, extracted._words, extracted.width)
        assert (np.abs(extracted.table - table) <= extracted.error * table + 1e-9).all()
    assert (sketch.extract(last).error == 0) == (counter == "exact")


def test_what_does_not_fit_is_refused():
    one = lt.CountMin(eps=0.1, delta=0.1)
    for other, says in (
        (lt.CountMin(eps=0.2, delta=0.1), "differ in width: 28 and 14"),
        (lt.CountMin(eps=0.1, delta=0.01), "differ in depth: 3 and 5"),
        (lt.CountMin(eps=0.1, delta=0.1, seed=1), "differ in seed"),
        ("x", "CountMin"),
    ):
        with pytest.raises(lt.MergeError, match=says):
            one.inner_product(other)
        with pytest.raises(lt.MergeError, match=says):
            lt.merge([one, other])
    before = one.to_bytes()
    for arguments, says in (([[]], "empty"), ([["a"], [-1]], "-1"), ([["a", "b"], [2**61, 2**62]], "more than 2")):
        with pytest.raises(lt.InputError, match=says):
            one.update(*arguments)
    assert one.to_bytes() == before
