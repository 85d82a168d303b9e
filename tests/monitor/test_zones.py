"""Distances, balls and pressures of zones against numerical minimisation, and against the condition itself at many points."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lately.monitor.zones import SHRINK, Zone, hyperbola_distance, median_distance, on_hyperbola, to_float32_conservative

#: Of either sign, from tiny to huge, and nothing at all.
wide = st.one_of(
    st.just(0.0),
    st.builds(lambda sign, power: sign * 10.0**power, st.sampled_from([-1, 1]), st.floats(-6, 6)),
    st.floats(-10, 10).map(lambda x: round(x, 3)),
)
sizes = st.one_of(st.just(0.0), st.floats(0, 100).map(lambda x: round(x, 2)), st.sampled_from([1e-3, 1e4]))
rooms = st.one_of(st.sampled_from([0.0, -1.0, 1e5]), st.floats(-50, 200).map(lambda x: round(x, 2)))
seeds = st.integers(0, 2**32 - 1)
forms = st.sampled_from(["linear", "plane", "bilinear"])


@st.composite
def zones(draw, most=11, least_room=None):
    """Any zone of up to so many rows; with ``least_room`` enough rows hold before anything drifts."""
    form, m = draw(forms), draw(st.integers(1, most))
    quorum = draw(st.one_of(st.integers(1, m), st.just((m + 1) // 2)))
    if form == "linear":
        rows = np.array(draw(st.lists(rooms, min_size=m, max_size=m)))[:, None]
    else:
        rows = np.array(draw(st.lists(st.tuples(sizes, sizes, rooms), min_size=m, max_size=m)))
    if least_room is not None:
        held = draw(st.permutations(range(m)))[:quorum]
        rows[held, -1] = np.maximum(rows[held, -1], least_room)
    return Zone(form, rows, quorum)


def width(zone):
    return 1 if zone.form == "linear" else 2


def holds(zone, points):
    return naive.zone_holds(zone.form, zone.rows, zone.quorum, points)


def nowhere(zone):
    return np.zeros((zone.rows.shape[0], width(zone)))


def somewhere(zone, seed, scale=10.0, low=0.0):
    """A few drifts: in all rows, in one, near each edge, and far away."""
    rng = np.random.default_rng(seed)
    shape = nowhere(zone).shape
    drifts = [rng.uniform(low, 1, shape) * scale * 10.0 ** rng.uniform(-3, 3) for _ in range(6)]
    drifts += [rng.uniform(low, 1, shape) * 10.0 ** rng.uniform(-4, 4, (shape[0], 1)) for _ in range(6)]
    drifts += [drifts[0] * (rng.random(shape) < 0.3), nowhere(zone)]
    edges = np.array([naive.row_break(zone.form, row, np.zeros(shape[1]))[1] for row in zone.rows])
    edges = np.where(np.isfinite(edges), edges, 1.0)
    drifts += [edges * rng.uniform(0.8, 1.2, (shape[0], 1)) for _ in range(4)]
    drifts += [edges * (rng.random((shape[0], 1)) < 0.5) * 1.01, edges * 0.999]
    return drifts if low < 0 else [np.maximum(points, 0) for points in drifts]


# -- one row -----------------------------------------------------------------------------------------------------------


@given(wide, wide, wide)
def test_the_distance_to_a_hyperbola_is_what_a_search_finds(alpha, beta, tau):
    distance, expected = hyperbola_distance(alpha, beta, tau), naive.hyperbola_distance(alpha, beta, tau)
    scale = abs(alpha) + abs(beta) + math.sqrt(abs(tau))
    assert distance == pytest.approx(expected, rel=1e-6, abs=1e-9 * scale)


@given(wide, wide, wide, st.sampled_from([1e-9, 1e9]))
def test_the_distance_to_a_hyperbola_does_not_depend_on_the_unit(alpha, beta, tau, unit):
    distance = hyperbola_distance(alpha * unit, beta * unit, tau * unit * unit)
    assert distance == pytest.approx(
        unit * hyperbola_distance(alpha, beta, tau), rel=1e-6, abs=1e-9 * unit * (abs(alpha) + abs(beta))
    )


@given(wide, wide, wide)
def test_the_distance_to_a_hyperbola_is_symmetric(alpha, beta, tau):
    distance = hyperbola_distance(alpha, beta, tau)
    near = 1e-9 * (abs(alpha) + abs(beta) + math.sqrt(abs(tau)))
    for twin in ((beta, alpha, tau), (-alpha, -beta, tau), (alpha, -beta, -tau), (-beta, alpha, -tau)):
        assert hyperbola_distance(*twin) == pytest.approx(distance, rel=1e-6, abs=near)


def test_a_product_of_nothing_is_two_straight_lines():
    assert hyperbola_distance(3.0, -4.0, 0.0) == 3.0
    assert hyperbola_distance(-9.0, 4.0, 0.0) == 4.0
    assert hyperbola_distance(0.0, 4.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("alpha", "beta", "tau", "expected"), [(0, 0, 2, 2), (2, 2, 4, 0), (3, 3, 4, 2**0.5), (-1, -1, 4, 2**0.5)]
)
def test_known_distances_to_a_hyperbola(alpha, beta, tau, expected):
    assert hyperbola_distance(alpha, beta, tau) == pytest.approx(expected, abs=1e-9)


@given(wide, wide, wide.map(abs).filter(bool))
def test_the_nearest_point_on_a_hyperbola_is_on_it_and_across(alpha, beta, tau):
    if alpha * beta > tau or alpha + beta < 0:
        return
    p = on_hyperbola(alpha, beta, tau)
    q = tau / p
    assert p > 0
    # the way there is across the curve, whose normal is (q, p)
    scale = math.hypot(p, q) * (abs(alpha) + abs(beta) + p + q)
    assert (p - alpha) * p == pytest.approx((q - beta) * q, abs=1e-6 * scale)


def test_a_very_steep_part_of_a_hyperbola_is_not_further_than_it_is():
    assert hyperbola_distance(1e-3, 1e12, 1e-3) <= 1e-3


# -- many rows ---------------------------------------------------------------------------------------------------------


@given(zones(), seeds)
def test_the_distance_is_what_a_search_over_all_sets_of_rows_finds(zone, seed):
    points = np.random.default_rng(seed).choice([0.0, 1.0, 5.0, 30.0, -2.0], nowhere(zone).shape)
    distance = zone.distance(points)
    expected, place = naive.zone_break(zone.form, zone.rows, zone.quorum, points)
    if math.isinf(expected):
        assert distance > 1e20
        return
    assert distance == pytest.approx(expected, rel=1e-5, abs=1e-6)
    # just beyond the place that was found too few rows hold; nearer, everywhere, enough
    if distance > 1e-6:
        beyond = place + 1e-4 * (1 + distance) * uphill(zone, place)
        assert naive.zone_break(zone.form, zone.rows, zone.quorum, beyond)[0] == 0
        for nearer in in_ball(points, distance * (1 - 1e-6), seed):
            assert holds(zone, nearer)
        assert holds(zone, points + (place - points) * (1 - 1e-4))


def uphill(zone, points):
    """For each row the way on which its form rises most."""
    if zone.form == "linear":
        return np.ones_like(points)
    way = zone.rows[:, :2] + (points[:, ::-1] if zone.form == "bilinear" else 0)
    way = np.where(way.any(axis=1, keepdims=True), way, 1.0)
    return way / np.linalg.norm(way, axis=1, keepdims=True)


def in_ball(centre, radius, seed, count=60):
    """Points on and in a ball, also along few coordinates, where edges are near."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        way = rng.normal(size=centre.shape) * (rng.random(centre.shape) < (1.0, 0.5, 0.2)[i % 3])
        length = np.linalg.norm(way)
        if length:
            yield centre + way / length * radius * (1 if i % 2 else rng.random())


@pytest.mark.parametrize("m", range(1, 12))
def test_algorithm_1_is_the_distance_to_where_the_median_is_nothing(m):
    rng = np.random.default_rng(m)
    for _ in range(20):
        points, margins = rng.normal(size=m).round(1), rng.normal(1, 2, m).round(1)
        z = np.sort(points - margins)
        breaking = z[m - (m - (m + 1) // 2 + 1) :]  # from the middle on: as many as a median needs
        expected = math.sqrt(sum(x * x for x in breaking if x < 0))
        assert median_distance(points, margins) == pytest.approx(expected)
        assert expected == pytest.approx(naive.zone_break("linear", margins[:, None], (m + 1) // 2, points[:, None])[0])


@pytest.mark.parametrize("m", range(1, 12))
@pytest.mark.parametrize("form", ["linear", "plane", "bilinear"])
def test_every_quorum(form, m):
    rng = np.random.default_rng(m)
    rows = rng.uniform(0.1, 5, (m, 1 if form == "linear" else 3))
    points = rng.uniform(0, 0.1, (m, 1 if form == "linear" else 2))
    each = np.sort([naive.row_break(form, row, point)[0] for row, point in zip(rows, points, strict=True)])
    for quorum in range(1, m + 1):
        zone = Zone(form, rows, quorum)
        assert zone.rows_to_break == m - quorum + 1
        assert zone.distance(points) == pytest.approx(math.sqrt((each[: m - quorum + 1] ** 2).sum()), rel=1e-5)


def test_rows_that_can_never_break_are_far_and_rows_without_room_are_not():
    zone = Zone("plane", np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [3.0, 4.0, 10.0]]), 2)
    assert zone.distances(np.ones((3, 2))).tolist() == pytest.approx([1e30, 0, 0.6])
    assert zone.distance(np.ones((3, 2))) == pytest.approx(0.6)


# -- balls -------------------------------------------------------------------------------------------------------------


@given(zones(most=7, least_room=0.5), seeds)
def test_a_ball_with_room_touches_nothing_inadmissible(zone, seed):
    rng = np.random.default_rng(seed)
    shape = nowhere(zone).shape
    centre = rng.uniform(0, 0.5, shape) * rng.choice([0, 1])
    point = centre + rng.normal(size=shape) * 10.0 ** rng.uniform(-2, 2)
    room, middle, radius = zone.ball_distance(centre, point), (centre + point) / 2, float(np.linalg.norm(point - centre)) / 2
    distance, place = naive.zone_break(zone.form, zone.rows, zone.quorum, middle)
    if room < 1e20:
        assert room == pytest.approx(distance - radius, abs=1e-5 * (1 + distance + radius))
    if room >= 0:
        for inside in (centre, point, *in_ball(middle, radius * (1 - 1e-9), seed)):
            assert holds(zone, inside) or zone.distance(inside) <= 1e-6 * (1 + radius)
        # and with its room used up it is still one: the point may go so far
        way = rng.normal(size=shape)
        on = point + way / np.linalg.norm(way) * room * (1 - 1e-6)
        if room < 1e20:
            assert zone.ball_distance(centre, on) >= -1e-9 * (1 + room + radius)
    else:
        assert np.linalg.norm(place - middle) <= radius * (1 + 1e-5) + 1e-6


@given(zones(most=7), seeds)
def test_the_room_of_a_ball_shrinks_no_faster_than_the_point_moves(zone, seed):
    rng = np.random.default_rng(seed)
    shape = nowhere(zone).shape
    centre, point = rng.uniform(-1, 3, shape), rng.uniform(-1, 10, shape)
    for _ in range(10):
        move = rng.normal(size=shape) * 10.0 ** rng.uniform(-4, 2)
        before, after = zone.ball_distance(centre, point), zone.ball_distance(centre, point + move)
        if abs(before) < 1e20:
            assert abs(after - before) <= np.linalg.norm(move) * (1 + 1e-6) + 1e-6


# -- pressure ----------------------------------------------------------------------------------------------------------


@given(zones())
def test_no_drift_is_a_pressure_of_minus_one_or_there_is_no_room(zone):
    none = nowhere(zone)
    if naive.zone_break(zone.form, zone.rows, zone.quorum, none)[0] > 0:
        assert zone.safe_function(none) == pytest.approx(-1, rel=1e-12)
        assert 0 <= zone.lipschitz_constant < math.inf
    else:
        assert zone.safe_function(none) == 0
        assert zone.lipschitz_constant == math.inf
        assert zone.safe_function(none + 1e-9) >= 1e30


@given(zones(least_room=0.01), seeds)
def test_without_pressure_the_estimate_is_within_its_tolerance(zone, seed):
    for points in somewhere(zone, seed):
        if zone.safe_function(points) <= 0:
            assert holds(zone, points) or holds(zone, points * (1 - 1e-9))


@given(zones(least_room=0.01), seeds)
def test_there_is_no_pressure_up_to_where_a_drift_may_break_it(zone, seed):
    """The planes touch the region: no zone that is made of planes could be larger everywhere."""
    distance, place = naive.zone_break(zone.form, zone.rows, zone.quorum, nowhere(zone))
    if 1e-6 < distance < 1e10:
        assert zone.safe_function(place) == pytest.approx(0, abs=1e-4)
        assert zone.safe_function(place * (1 - 1e-3)) < 0


@given(zones(), seeds)
def test_pressure_is_convex(zone, seed):
    rng = np.random.default_rng(seed)
    drifts = somewhere(zone, seed, low=-1.0)
    for _ in range(15):
        x, y = (drifts[i] for i in rng.integers(0, len(drifts), 2))
        t = rng.random()
        ends = [zone.safe_function(x), zone.safe_function(y)]
        if math.isfinite(zone.lipschitz_constant):  # else it is nothing at no drift, and more than anything elsewhere
            assert zone.safe_function((1 - t) * x + t * y) <= (1 - t) * ends[0] + t * ends[1] + 1e-9 * max(1, *map(abs, ends))


@given(zones(), seeds)
def test_pressure_rises_no_faster_than_its_steepness(zone, seed):
    rng = np.random.default_rng(seed)
    for points in somewhere(zone, seed, low=-1.0):
        move = rng.normal(size=points.shape) * 10.0 ** rng.uniform(-3, 3)
        if math.isfinite(zone.lipschitz_constant):
            before, after = zone.safe_function(points), zone.safe_function(points + move)
            assert abs(after - before) <= zone.lipschitz_constant * np.linalg.norm(move) * (1 + 1e-9) + 1e-9 * max(
                abs(before), abs(after), 1
            )


def test_a_zone_whose_rows_can_never_break_has_no_pressure():
    for zone in (Zone("plane", np.array([[0.0, 0.0, 5.0]]), 1), Zone("linear", np.array([[1e30], [1e30], [-1.0]]), 2)):
        assert zone.safe_function(nowhere(zone) + 1e12) == pytest.approx(-1)
        assert zone.lipschitz_constant < 1e-12


def test_rows_broken_from_the_start_count_among_those_that_must_break():
    # the median of three, one of which is out already: the nearer of the others is all that is left
    zone = Zone("linear", np.array([[-5.0], [3.0], [4.0]]), 2)
    assert zone.distance(np.zeros((3, 1))) == 3
    assert zone.safe_function(np.array([[100.0], [2.9], [0.0]])) < 0 < zone.safe_function(np.array([[0.0], [3.1], [0.0]]))


@pytest.mark.parametrize("form", ["linear", "bilinear"])
def test_very_wide_zones_are_steep_too(form):
    rows = np.array([[1e17]]) if form == "linear" else np.array([[0.0, 0.0, 1e34]])
    zone = Zone(form, rows, 1)
    place = naive.row_break(form, rows[0], np.zeros(width(zone)))[1]
    assert zone.safe_function(place[None]) == pytest.approx(0, abs=1e-6)
    assert zone.lipschitz_constant == pytest.approx(1 / np.linalg.norm(place), rel=1e-6, abs=0)


# -- over the wire -----------------------------------------------------------------------------------------------------


@given(zones(), seeds)
def test_what_travelled_allows_no_more(zone, seed):
    arrived = Zone(zone.form, to_float32_conservative(zone.form, zone.rows), zone.quorum)
    assert (arrived.rows.astype(np.float32) == arrived.rows).all()
    for points in somewhere(zone, seed):
        for row, less, point in zip(zone.rows, arrived.rows, points, strict=True):
            assert naive.row_holds(zone.form, row, point) or not naive.row_holds(zone.form, less, point)
        if zone.form == "linear":
            assert (arrived.distances(points) <= zone.distances(points)).all()


@given(st.lists(st.floats(-1e30, 1e30).filter(lambda x: x == 0 or abs(x) > 1e-30), min_size=1))
def test_every_margin_arrives_a_little_smaller(margins):
    exact = np.array(margins)[:, None]
    less = to_float32_conservative("linear", exact)
    assert (less[exact != 0] < exact[exact != 0]).all()
    assert (less >= exact - 1.2 * SHRINK * np.abs(exact)).all()
    assert (to_float32_conservative("linear", [[1e300], [-1e300]]) == np.float32([[1e30], [-1e30]])).all()


@given(st.tuples(sizes, sizes, st.floats(0.01, 1e6)), st.sampled_from(["plane", "bilinear"]), st.floats(0, math.pi / 2))
def test_what_travelled_stops_short_of_every_edge(row, form, angle):
    a, b, room = row
    c, s = math.cos(angle), math.sin(angle)
    slope, square = a * c + b * s, c * s if form == "bilinear" else 0.0
    if slope + square > 1e-6:
        t = 2 * room / (slope + math.sqrt(slope * slope + 4 * square * room))
        (arrived,) = to_float32_conservative(form, [row])
        assert not naive.row_holds(form, arrived, (t * c, t * s))
        assert naive.row_holds(form, arrived, (t * c * (1 - 1e-5), t * s * (1 - 1e-5)))
