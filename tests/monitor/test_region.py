"""Wherever a region admits the mean drift of all sites, the estimate over all sites is within its tolerance.

That is Lemma 2 and Theorem 5 of ECM-15 and §3.3 to §3.5 of GM-AMS, tried on random sites.
"""

import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lately.monitor.layout import Layout
from lately.monitor.queries import LOWER, UPPER, Count, InnerProduct, KeyRange, RangeSum, SelfJoin
from lately.monitor.region import Region, limits_of, region_of
from lately.monitor.zones import Zone

ECM, AMS = Layout(3, 5, 7, signed=False), Layout(5, 6, 7, signed=True)
ONE = Layout(1, 1, 7, signed=False)
JOIN = {"of": ("a", "b")}
seeds = st.integers(0, 2**32 - 1)

#: Every query over every layout that can answer it.
CASES = {
    "self-join over ECM": (lambda **q: SelfJoin(**q), ECM, 0.0),
    "self-join over AMS": (lambda **q: SelfJoin(**q), AMS, 0.05),
    "self-join over one row": (lambda **q: SelfJoin(**q), Layout(1, 8, 3, signed=True), 0.05),
    "join over ECM": (lambda **q: InnerProduct(**JOIN, **q), ECM, 0.0),
    "join over AMS": (lambda **q: InnerProduct(**JOIN, **q), AMS, 0.05),
    "range over AMS": (lambda **q: RangeSum(keys=range(4), weights=[1, -2, 3, 1], **q), AMS, 0.05),
    "range in few cells": (lambda **q: RangeSum(keys=[1, 2], weights=[1, -1], **q), Layout(5, 2, 7, signed=True), 0.05),
    "count": (lambda **q: Count(key=1, **q), ONE, 0.0),
    "range of keys": (lambda **q: KeyRange(start=0, stop=9, **q), ONE, 0.0),
}


def build(name, rng):
    """(query, layout, eps, tables of each site and stream): nonnegative counts without signs, any numbers with them."""
    make, layout, eps = CASES[name]
    sites, streams = int(rng.integers(1, 6)), 2 if "join over" in name and "self" not in name else 1
    shape = (sites, streams, layout.rows, layout.width)
    tables = rng.integers(-20 if layout.signed else 0, 30, shape).astype(float) * (rng.random(shape) < 0.8)
    if layout.signed and rng.random() < 0.3 and streams == 2:
        tables[:, 1] *= -1  # mostly negative products
    theta = float(rng.choice([0.06, 0.1, 0.3, 0.9]))
    kind = rng.integers(4)
    query = make(theta=theta, floor=float(rng.choice([0, 0, 50])))
    if kind >= 2:
        value = query.estimate(tables.sum(axis=0), layout)
        query = make(theta=theta, above=value + rng.normal() * (abs(value) * 0.3 + 1))
    return query, layout, eps, tables


def drifts(tables, layout, rng, scale):
    """New tables, drifted at random: everywhere, in few places, or along the tables themselves."""
    kind = rng.integers(4)
    way = rng.normal(size=tables.shape)
    if kind == 0:
        way *= rng.random(tables.shape) < 0.2
    elif kind == 1:
        way = tables * rng.choice([-1, 1]) * rng.uniform(0.5, 1, (*tables.shape[:2], 1, 1))
    elif kind == 2:
        way = np.abs(way) * rng.choice([-1, 1])
    moved = tables + way * scale
    return moved if layout.signed else np.maximum(moved, 0)


def points_of(before, after, layout):
    """Where each site is: lines × rows × streams."""
    return [
        np.stack([naive.rise_and_fall(new, old, layout.rows, layout.signed) for old, new in zip(*pair, strict=True)], axis=-1)
        for pair in zip(before, after, strict=True)
    ]


def region_for(query, layout, eps, tables):
    total = list(tables.sum(axis=0))
    value = query.estimate(total, layout)
    bounds = query.tolerance(value, query.theta_unit(total, layout), eps)
    assert bounds[0] <= value <= bounds[1]
    return region_of(query, layout, limits_of(query, bounds, total, layout, len(tables))), bounds, value


@pytest.mark.parametrize("name", CASES)
@given(seeds)
def test_what_a_region_admits_is_within_the_tolerance(name, seed):
    rng = np.random.default_rng(seed)
    query, layout, eps, tables = build(name, rng)
    region, (low, high), value = region_for(query, layout, eps, tables)
    for scale in 10.0 ** rng.uniform(-2, 1.5, 12):
        after = drifts(tables, layout, rng, scale)
        points = points_of(tables, after, layout)
        mean = np.mean(points, axis=0)
        estimate = query.estimate(list(after.sum(axis=0)), layout)
        slack = 1e-9 * (abs(value) + abs(estimate) + 1)
        inside = low - slack <= estimate <= high + slack
        if region.distance(mean) > 0 or region.safe_function(mean) <= 0:
            assert inside
        # what sites may do without a word: every ball has room, or all pressures together are not above 0
        if min(region.ball_distance(np.zeros_like(mean), point) for point in points) >= 0:
            assert inside
        if np.mean([region.safe_function(point) for point in points]) <= 0:
            assert inside
        if min(region.plane_distance(point) for point in points) >= 0:
            assert inside


@pytest.mark.parametrize("name", CASES)
def test_regions_admit_something_and_not_everything(name):
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(60):
        query, layout, eps, tables = build(name, rng)
        region, _, _ = region_for(query, layout, eps, tables)
        for scale in (0.003, 30):
            after = drifts(tables, layout, rng, scale)
            mean = np.mean(points_of(tables, after, layout), axis=0)
            if mean.any():
                seen.add((region.distance(mean) > 0, region.safe_function(mean) <= 0))
    assert {(True, True), (False, False)} <= seen


@given(st.lists(st.floats(0, 50), min_size=1, max_size=30), seeds)
def test_lemma_2_and_theorem_5(numbers, seed):
    """In the words of ECM-15: for one row, with the sum over the sites of v(t0) and each site's own drift."""
    rng = np.random.default_rng(seed)
    sites, theta = int(rng.integers(1, 5)), float(rng.uniform(0.05, 0.9))
    layout = Layout(2, 2, 1, signed=False)
    before = rng.choice(numbers, (sites, 1, 2, 2))
    after = np.maximum(before + rng.normal(size=before.shape) * rng.choice([0.1, 1, 10]), 0)
    total, n = before.sum(axis=0)[0], sites
    f = min((total**2).sum(axis=1))
    d = np.mean(points_of(before, after, layout), axis=0)[:, :, 0]  # what rose, what fell
    lengths = np.sqrt((total**2).sum(axis=1))
    upper = min(lengths / n + d[0]) <= math.sqrt(f / (1 - theta)) / n
    lower = min(lengths / n - d[1]) >= math.sqrt(f / (1 + theta)) / n
    now = min((after.sum(axis=0)[0] ** 2).sum(axis=1))
    if upper and lower:
        assert (1 - theta) * now <= f * (1 + 1e-9) + 1e-9
        assert f <= (1 + theta) * now * (1 + 1e-9) + 1e-9
    region, _, _ = region_for(SelfJoin(theta=theta), layout, 0.0, before)
    if region.distance(d[:, :, None]) > 0:
        assert upper
        assert lower
    edge = 1e-5 * (math.sqrt(f) + 1)  # what is lost on the wire
    if (
        min(lengths / n + d[0]) < math.sqrt(f / (1 - theta)) / n - edge
        and min(lengths / n - d[1]) > math.sqrt(f / (1 + theta)) / n + edge
    ):
        assert region.distance(d[:, :, None]) > 0


# -- how close to the edge ---------------------------------------------------------------------------------------------


def edge_of(admits):
    """The largest factor up to which something is admitted, by halving."""
    low, high = 0.0, 1.0
    while admits(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if admits(middle) else (low, middle)
    return low


@pytest.mark.parametrize("side", [UPPER, LOWER])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("query", [SelfJoin(theta=0.2), InnerProduct(**JOIN, theta=0.2), RangeSum(keys=[1, 2, 3], theta=0.2)])
def test_a_drift_straight_to_the_edge_is_admitted_all_the_way(query, signed, side):
    if isinstance(query, RangeSum) and not signed:
        return
    layout = Layout(1, 4, 7, signed=signed)
    rng = np.random.default_rng(5)
    tables = rng.integers(5, 20, (1, 2, 1, 4)).astype(float)
    total = list(tables.sum(axis=0))
    low, high = query.tolerance(query.estimate(total, layout), query.theta_unit(total, layout), 0.0)
    bounds = (-math.inf, high) if side == UPPER else (low, math.inf)  # signed numbers have one drift for both sides
    region = region_of(query, layout, limits_of(query, bounds, total, layout, 1))
    way = np.zeros_like(tables)
    constant = query._table(layout) if isinstance(query, RangeSum) else None
    way[0, 0] = {SelfJoin: tables[0, 0], InnerProduct: tables[0, 1], RangeSum: constant}[type(query)]
    way *= 1 if side == UPPER else -1

    def points(factor):
        moved = points_of(tables, tables + factor * way, layout)[0]
        return moved if isinstance(query, InnerProduct) else moved[..., :1]

    def reached(admits):
        return query.estimate(list((tables + edge_of(admits) * way).sum(axis=0)), layout)

    bound = high if side == UPPER else low
    assert reached(lambda factor: region.distance(points(factor)) > 0) == pytest.approx(bound, rel=1e-4)
    if query.form(side, layout) == "linear":  # a plane stops before a curve, and before another plane, where one stream drifts
        assert reached(lambda factor: region.safe_function(points(factor)) <= 0) == pytest.approx(bound, rel=1e-4)


@pytest.mark.parametrize(("above", "before", "last"), [(100.0, 40.0, 110.0), (100.0, 140.0, 90.0)])
def test_an_alarm_stays_silent_as_far_as_it_may(above, before, last):
    query = Count(key=1, above=above, theta=0.1)
    tables = np.full((1, 1, 1, 1), before)
    region, _, _ = region_for(query, ONE, 0.0, tables)
    way = 1 if last > before else -1

    def admits(by):
        return region.distance(points_of(tables, tables + way * by, ONE)[0]) > 0

    assert before + way * edge_of(admits) == pytest.approx(last, rel=1e-4)
    # the other way it may go for ever
    assert region.distance(points_of(tables, tables - way * 30, ONE)[0]) > 0
    assert len(region.zones) == 1


def test_what_rises_only_presses_upwards_and_what_falls_downwards():
    query, tables = SelfJoin(theta=0.2), np.full((2, 1, 3, 5), 10.0)
    region, _, _ = region_for(query, ECM, 0.0, tables)
    rose, fell = np.zeros((2, 2, 3, 1))
    rose[0], fell[1] = 0.5, 0.5
    (up, upper), (down, lower) = region.zones
    assert (up, down) == (0, 1)
    assert upper.quorum == 1
    assert lower.quorum == 3
    assert lower.distance(rose[down]) == lower.distance(np.zeros((3, 1))) > lower.distance(fell[down])
    assert upper.distance(fell[up]) == upper.distance(np.zeros((3, 1))) > upper.distance(rose[up])


def test_counts_cannot_fall_below_nothing_so_that_side_is_not_watched():
    limits = limits_of(Count(key=1, theta=0.5, floor=10.0), (-5.0, 15.0), [np.array([[5.0]])], ONE, 1)
    assert limits.sides == UPPER
    assert limits.zones == pytest.approx([10], rel=1e-5)
    none = limits_of(Count(key=1, above=10.0), (-math.inf, math.inf), [np.array([[5.0]])], ONE, 1)
    assert (none.sides, none.zones.size) == (0, 0)


def test_a_region_without_zones_admits_everything():
    region = Region(())
    points = np.ones((1, 3, 1))
    assert region.distance(points) == region.ball_distance(points, points) == region.plane_distance(points) == math.inf
    assert (region.safe_function(points), region.lipschitz_constant) == (-1, 0)


def test_the_sites_share_the_room():
    query, table = InnerProduct(**JOIN, theta=0.2), [np.full((5, 6), 3.0), np.full((5, 6), 2.0)]
    alone, ten = (limits_of(query, (100.0, 200.0), table, AMS, sites).zones.reshape(2, 5, 3) for sites in (1, 10))
    # n·z₀ and n·z₁ take the place of z₀ and z₁, and n² is divided out
    assert ten[:, :, :2] == pytest.approx(alone[:, :, :2] / 10, rel=1e-5)
    assert ten[:, :, 2] == pytest.approx(alone[:, :, 2] / 100, rel=1e-5)


@given(seeds)
def test_the_room_before_the_planes_is_never_overrun(seed):
    rng = np.random.default_rng(seed)
    zones = tuple((line, Zone("linear", rng.uniform(0.1, 5, (3, 1)), int(rng.integers(1, 4)))) for line in range(2))
    region = Region(zones)
    points = rng.uniform(0, 2, (2, 3, 1))
    room = region.plane_distance(points)
    if room > 0:
        way = rng.normal(size=points.shape)
        assert region.safe_function(points + way / np.linalg.norm(way) * room) <= 1e-9
    assert (room >= 0) == (region.safe_function(points) <= 0)


def test_without_any_room_the_first_step_is_too_far():
    region = Region(((0, Zone("linear", np.zeros((1, 1)), 1)),))
    assert region.plane_distance(np.zeros((1, 1, 1))) == 0
    assert region.plane_distance(np.ones((1, 1, 1))) < 0
