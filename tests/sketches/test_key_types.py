"""Sketches refuse a question that confuses 3 with "3", as long as they know which keys they were given."""

import pickle
from functools import reduce
from operator import or_

import numpy as np
import pytest

import lately as lt
from lately.core.keys import HashedKeys


def ecm(keys=()):
    sketch = lt.EcmSketch(window=100, eps=0.1, delta=0.1)
    if len(keys):
        sketch.update(keys, np.arange(len(keys)))
    return sketch


def topk(keys=()):
    sketch = lt.TopK(k=3, window=100, eps=0.1, delta=0.1)
    if len(keys):
        sketch.update(keys, np.arange(len(keys)))
    return sketch


@pytest.mark.parametrize("build", [ecm, topk])
def test_text_asked_of_integers_and_the_reverse_is_refused_with_the_remedy(build):
    with pytest.raises(lt.InputError, match=r"^the key '3' is text, and all keys of this sketch are integers; ask for 3$"):
        build([3, 3, 4]).count("3")
    with pytest.raises(lt.InputError, match=r"^the key 3 is an integer, and all keys of this sketch are text; ask for '3'$"):
        build(["3", "4"]).count(3)
    with pytest.raises(lt.InputError, match="the key '-7'"):
        build([3]).counts(["x", "-7"])


@pytest.mark.parametrize(
    ("keys", "asked", "truth"),
    [
        ([3, 3], 3, 2),
        ([3, 3], "three", 0),  # no number: nobody confuses it
        ([3, 3], "03", 0),
        ([3, 3], b"3", 0),
        (["3"], "3", 1),
        ([3, "3"], "3", 1),  # both types were given
        ([3, "3"], 3, 1),
        ([(3, "a")], "3", 0),
        ([], "3", 0),
    ],
)
def test_other_questions_are_answered(keys, asked, truth):
    assert ecm(keys).count(asked).value == truth


def test_merged_and_copied_sketches_know_it_too():
    for merged in (
        lt.merge([ecm([3]), ecm([4])]),
        ecm([3]) | ecm([4]),
        reduce(or_, [ecm([3])] * 5),
        ecm([3]).copy(),
        lt.merge([ecm(), ecm([3])]),
    ):
        with pytest.raises(lt.InputError, match="all keys of this sketch are integers"):
            merged.count("3")
    assert lt.merge([ecm([3]), ecm(["3"])]).count("3").value == 1
    chain = ecm([3]) | ecm([3])
    chain.update(["3"], [50])
    assert (chain.count("3").value, chain.count(3).value) == (1, 2)


def test_what_came_hashed_or_was_read_from_bytes_is_not_known():
    hashed, given = ecm(), ecm()
    hashed.update(HashedKeys(lt.hash_keys([3, 3])), [1, 2])
    given.update([3, 3], [1, 2])
    assert hashed.to_bytes() == given.to_bytes()
    for sketch in (hashed, lt.from_bytes(given.to_bytes()), pickle.loads(pickle.dumps(given)), lt.merge([given, hashed])):
        assert sketch.count("3").value == 0
        assert sketch.count(3).value >= 2


def test_a_batch_that_is_refused_leaves_the_types_as_they_were():
    sketch = ecm([3])
    with pytest.raises(lt.InputError):
        sketch.update(["3"], [50], [-1])
    with pytest.raises(lt.InputError, match="all keys of this sketch are integers"):
        sketch.count("3")
