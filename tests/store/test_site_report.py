"""Which sites are silent and which are ahead, against a plain loop over all of them."""

import random
from datetime import timedelta
from statistics import median_low

import pytest
from small_stores import filled
from store_builder import NOON, duration, new_store, put_batch, site_row, time_at

from lately.store.site_report import STATES, site_report
from lately.store.upkeep import tidy
from lately.store.view import View


def stream(path, batches=30, time_type="integer", lateness=None):
    """Batches 10 of time and a minute of the clock apart, without a snapshot yet."""
    store = new_store(path, time_type, window={"lateness": lateness})
    for batch in range(batches):
        put_batch(store, batch, time_at(10 * batch, time_type), run={"began": clock(batch)})
    return store


def clock(batch):
    return NOON + timedelta(minutes=batch)


def report_of(store):
    return site_report(View(store.path))


@pytest.mark.parametrize("time_type", ["integer", "timestamp"], ids=["integers", "timestamps"])
@pytest.mark.parametrize("sites", [200, 2_000])
def test_many_sites_against_a_plain_loop(tmp_path, time_type, sites):
    dice = random.Random(sites)
    store = stream(tmp_path, 30, time_type, duration(70, time_type))
    last_rows = {}
    for number in range(sites):
        last = 29 if dice.random() < 0.8 else dice.randrange(30)
        last_rows[f"site-{number:04}"] = 10 * last - dice.choice([0, 3, 9, 90]) + (5_000 if dice.random() < 0.03 else 0), last
    rows = [site_row(29, site, time_at(ticks, time_type), seen=clock(last)) for site, (ticks, last) in last_rows.items()]
    dice.shuffle(rows)
    store.put("sites", 29, rows)
    report = report_of(store)

    middle = median_low([ticks for ticks, last in last_rows.values() if last >= 25])
    ahead = {site for site, (ticks, _) in last_rows.items() if ticks > middle + 70}
    newest = max(ticks for site, (ticks, _) in last_rows.items() if site not in ahead)
    expected = {}
    for site, (ticks, last) in last_rows.items():
        far = newest - ticks > 70
        expected[site] = "ahead" if site in ahead else "ok" if not far else "behind" if last >= 25 else "silent"
    assert report.tolerance == 70
    assert {row.site: row.state for row in report.rows} == expected
    assert {row.site: row.behind for row in report.rows} == {site: newest - ticks for site, (ticks, _) in last_rows.items()}
    assert set(expected.values()) == set(STATES)
    behind = [row.behind for row in report.rows]
    assert behind == sorted(behind, reverse=True)
    assert (report.lag, report.newest) == (behind[0], time_at(newest, time_type))
    pages = [report.page(150, offset).rows for offset in range(0, sites, 150)]
    assert [row for page in pages for row in page] == report.rows
    assert report.page(1).silent == sum(state == "silent" for state in expected.values())
    assert [row.site for row in report.page(sites, state="ahead").rows] == [
        row.site for row in report.rows if row.site in ahead
    ]


def test_one_fast_clock_does_not_make_the_others_look_silent(tmp_path):
    """Also with two sites: both had rows in the newest batch, so neither of them is silent."""
    store = stream(tmp_path)
    store.put("sites", 29, [site_row(29, "lima", 290, seen=clock(29)), site_row(29, "oslo", 80_000, seen=clock(29))])
    report = report_of(store)
    assert [(row.site, row.behind, row.state) for row in report.rows] == [
        ("lima", 0, "ok"),
        ("oslo", -79_710, "ahead"),
    ]
    assert report.newest == 290
    rows = [site_row(29, "lima", 290, seen=clock(29)), site_row(29, "oslo", 80_000, seen=clock(3))]
    store.put("sites", 29, rows)  # it has not been seen since, but its time must not rule
    first = report_of(store).rows[0]
    assert (first.site, first.behind, first.state) == ("lima", 0, "ok")


def test_the_usual_step_or_lateness_is_tolerated_whichever_is_longer(tmp_path):
    for lateness, tolerance in ((None, 50), (20, 50), (300, 300)):
        store = stream(tmp_path / str(lateness), lateness=lateness)
        store.put("sites", 29, [site_row(29, "lima", 290, seen=clock(29)), site_row(29, "oslo", 200, seen=clock(20))])
        report = report_of(store)
        assert report.tolerance == tolerance
        assert report.rows[0].state == ("silent" if tolerance < 90 else "ok")


def test_a_site_without_a_counted_row_comes_first(tmp_path):
    store = stream(tmp_path)
    refused = site_row(29, "oslo", None, seen=None, counted=0, rejected=7, ahead=7, ahead_seen=clock(29))
    store.put("sites", 29, [site_row(29, "lima", 290, seen=clock(29)), refused])
    first = report_of(store).rows[0]
    assert (first.site, first.behind, first.state) == ("oslo", None, "silent")
    assert (first.ahead, first.ahead_seen) == (7, clock(29))


def test_stores_without_snapshots_and_without_batches(tmp_path):
    empty = stream(tmp_path / "empty", batches=0)
    assert (report_of(empty).rows, report_of(empty).lag) == ([], None)
    store = stream(tmp_path / "old", batches=2)
    store.put("answers", 1, [{"batch": 1, "query": "hot", "site": "lima", "item": "/", "value": 1.0}])
    report = report_of(store)
    assert [(row.site, row.state, row.counted) for row in report.rows] == [("lima", None, None)]
    assert report.page(10).silent == 0


def test_a_view_shows_the_snapshot_of_its_own_batch(tmp_path):
    """One that a later batch writes is not shown before that batch has finished; upkeep leaves the newest."""
    store = filled(tmp_path, 80, sites=3)
    view = View(store.path)
    store.put("sites", 80, [site_row(80, "new", 800)])
    assert {row.site for row in view.site_rows()} == {"site-0000", "site-0001", "site-0002"}
    assert {row.batch for row in view.site_rows()} == {79}
    put_batch(store, 80, 800)
    tidy(store)
    assert view.refresh()
    assert [(row.site, row.batch) for row in view.site_rows()] == [("new", 80)]
