"""The demo's traffic: the same for the same seed, and with all events of the scenario."""

import numpy as np
import pyarrow as pa
import pytest

from lately.demo.scenario import Scenario
from lately.demo.traffic import EVENTS, LOGIN, MAX_DELAY, PATHS, RATE, RUSH_PAGE, SITES, concat, rows_of_second

SCENARIO = Scenario()


def rows_of(first, last, seed=1):
    return concat([rows_of_second(number, seed, SCENARIO) for number in range(first, last)])


def share_of(path, rows):
    return np.mean(rows.path == PATHS.index(path))


def test_a_second_is_always_the_same():
    one, two = rows_of_second(7, 3, SCENARIO), rows_of_second(7, 3, SCENARIO)
    assert one.table(0).equals(two.table(0))
    assert not one.table(0).equals(rows_of_second(7, 4, SCENARIO).table(0))
    assert not one.table(0).equals(rows_of_second(8, 3, SCENARIO).table(0))


def test_rows_are_what_the_pipeline_reads():
    table = rows_of_second(5, 1, SCENARIO).table(1_780_000_000)
    assert table.schema == pa.schema(
        {"ts": pa.timestamp("us", "UTC"), "site": pa.string(), "path": pa.string(), "event": pa.string(), "ms": pa.float64()}
    )
    assert table.num_rows == len(rows_of_second(5, 1, SCENARIO))
    assert set(table["site"].to_pylist()) == set(SITES)
    assert set(table["event"].to_pylist()) == set(EVENTS)
    assert all(column.null_count == 0 for column in table.columns)
    assert min(table["ms"].to_pylist()) > 0


@pytest.mark.parametrize("number", [0, 1, 2, 50, 10_000])
def test_rows_arrive_in_their_second_or_a_little_later(number):
    rows = rows_of_second(number, 1, SCENARIO)
    assert rows.tick.max() == number
    assert rows.tick.min() >= max(0, number - MAX_DELAY)
    for site in range(len(SITES)):  # so that no site is ever behind
        assert rows.tick[rows.site == site].max() == number
    if number > MAX_DELAY:
        assert 0.01 < np.mean(rows.tick < number) < 0.05


def test_there_are_about_as_many_rows_as_said_and_every_site_has_its_day():
    calm = [rows_of_second(number, 1, SCENARIO) for number in range(240, 265)]
    assert RATE * 0.9 < np.mean([len(rows) for rows in calm]) < RATE * 1.1
    busy = np.array(
        [np.bincount(rows_of_second(number, 1, SCENARIO).site, minlength=len(SITES)) for number in range(0, 240, 8)]
    )
    assert (busy.max(axis=0) > 1.8 * busy.min(axis=0)).all()
    assert len(set(np.argmax(busy, axis=0).tolist())) > 4, "not all at once"


def test_the_rush_comes_for_one_page():
    assert share_of(RUSH_PAGE, rows_of(0, SCENARIO.rush)) == 0
    assert share_of(RUSH_PAGE, rows_of(SCENARIO.rush + 5, SCENARIO.rush + 25)) > 0.25
    assert share_of(RUSH_PAGE, rows_of(SCENARIO.rush + SCENARIO.rush_seconds, SCENARIO.attack)) == 0


def test_the_attack_is_on_every_site_and_small_at_each():
    before, during = rows_of(SCENARIO.attack - 10, SCENARIO.attack), rows_of(SCENARIO.attack, SCENARIO.attack + 10)
    for site in range(len(SITES)):
        calm, hit = (rows.where(rows.site == site) for rows in (before, during))
        assert share_of(LOGIN, calm) < 0.03
        assert 0.1 < share_of(LOGIN, hit) < 0.3


def test_popularity_drifts():
    def hottest(rows):
        return set(np.argsort(-np.bincount(rows.path))[:20].tolist())

    now, soon, later = (hottest(rows_of(240 * 4 + at, 240 * 4 + at + 10)) for at in (0, 10, 180))
    assert len(now & soon) > len(now & later)
    assert len(now & later) < 15


def test_what_is_bought_was_looked_at():
    rows = rows_of(0, 10)
    bought, seen = (set(rows.path[rows.event == EVENTS.index(event)].tolist()) for event in ("buy", "view"))
    assert len(bought & seen) > 100
    assert {PATHS[place] for place in bought} <= {path for path in PATHS if path.startswith(("/item/", "/tickets/"))}
