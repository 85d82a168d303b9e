"""Polynomials over a prime field: equal to Python's integers, and as random for four keys at a time as AMS needs."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import signed_cell

from lately.core.splitmix64 import random_words
from lately.sketches.fourwise import PRIME, polynomials, signed_cells

EDGES = [0, 1, PRIME - 1, PRIME, PRIME + 1, 2 * PRIME, 7 * PRIME, 8 * PRIME, 2**63, 2**64 - 1]
hashed = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**64 - 1))
coefficient = st.one_of(st.sampled_from([0, 1, 2**32 - 1, 2**32, PRIME - 2, PRIME - 1]), st.integers(0, PRIME - 1))


def cells(keys, coefficients, width, row=0):
    out = np.empty(len(keys), np.uint32)
    signed_cells(np.array(keys, np.uint64), row, np.array(coefficients, np.uint64), np.uint64(width), out)
    return out


def drawn(keys, width, seeds, change=lambda table: table):
    """(buckets, signs) of these keys under many seeds, a row of the result for each."""
    found = np.stack([cells(keys, change(polynomials(seed, 1)), width) for seed in range(seeds)])
    return found >> 1, 1 - 2 * (found & 1).astype(np.int64)


@given(
    keys=st.lists(hashed, min_size=1, max_size=20),
    coefficients=st.lists(st.tuples(*[coefficient] * 4), min_size=3, max_size=3),
    width=st.one_of(st.sampled_from([1, 2, 3, 2**20]), st.integers(1, 2**28)),
)
def test_cells_and_signs_are_those_of_python_integers(keys, coefficients, width):
    for row, words_of_row in enumerate(coefficients):
        for key, found in zip(keys, cells(keys, coefficients, width, row).tolist(), strict=True):
            bucket, sign = signed_cell(key, words_of_row, width)
            assert found == 2 * (row * width + bucket) + (sign == -1)


@given(st.lists(st.tuples(*[coefficient] * 4), min_size=1, max_size=1))
def test_edge_keys_are_reduced(coefficients):
    for key in EDGES:
        assert cells([key], coefficients, 1000) == cells([key % PRIME], coefficients, 1000)


def test_words_are_those_of_splitmix64():
    assert random_words(0, 1).tolist() == [0xE220A8397B1DCDAF]
    assert random_words(1234567, 3).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert random_words(2**64 - 1, 2).dtype == np.uint64
    assert random_words(5, 8)[:3].tolist() == random_words(5, 3).tolist()


def test_coefficients_lie_in_the_field():
    table = polynomials(3, 1000)
    assert table.shape == (1000, 4)
    assert int(table.max()) < PRIME
    assert (polynomials(3, 10) == table[:10]).all()
    assert np.unique(table).size == table.size


SEEDS = 20_000
#: The mean of so many signs is further from 0 with a probability below 1e-9.
SLACK = math.sqrt(2 * math.log(2 / 1e-9) / SEEDS)
KEYS = [0, 1, 2, 3, 2**63, PRIME - 1, 987654321987654321]


def test_products_of_up_to_four_signs_are_unbiased():
    _, signs = drawn(KEYS, 16, SEEDS)
    for number in (1, 2, 3, 4):
        for some in itertools.combinations(range(len(KEYS)), number):
            assert abs(signs[:, some].prod(axis=1).mean()) <= SLACK, [KEYS[i] for i in some]


def test_lines_are_not_unbiased_for_four_keys():
    """What the test above would see of polynomials that are only pairwise independent."""

    def line(table):
        table[:, :2] = 0
        return table

    _, signs = drawn(KEYS[:4], 16, SEEDS, line)
    assert abs(signs[:, [0, 3]].prod(axis=1).mean()) <= SLACK
    assert abs(signs.prod(axis=1).mean()) > 2 * SLACK


@pytest.mark.parametrize("width", [1, 5, 64])
def test_buckets_collide_as_planned(width):
    """With probability 1/width, and whatever the signs are."""
    buckets, signs = drawn(KEYS, width, SEEDS)
    for i, j in itertools.combinations(range(len(KEYS)), 2):
        meet = buckets[:, i] == buckets[:, j]
        assert abs(meet.mean() - 1 / width) <= SLACK
        assert abs((meet * signs[:, i] * signs[:, j]).mean()) <= SLACK
    two = (buckets[:, 0] == buckets[:, 1]) & (buckets[:, 2] == buckets[:, 3])
    assert abs(two.mean() - 1 / width**2) <= SLACK
    assert all(abs((buckets[:, i] == b).mean() - 1 / width) <= SLACK for i in range(len(KEYS)) for b in range(width))
