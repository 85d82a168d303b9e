"""What a demo records, and when its summary is ok."""

from datetime import UTC, datetime

import pytest
from store_builder import new_store, put_batch

from lately.config import of
from lately.demo.pipeline_file import FLOOD, FLOOD_SECONDS, pipeline_file
from lately.demo.record import Record
from lately.demo.scenario import Scenario
from lately.demo.traffic import rows_of_second
from lately.pipeline.batch_report import BatchReport
from lately.store import Store
from lately.store.tables import Alert, Answer

SCENARIO = Scenario.of(60)


def batch(number, answers=(), alerts=()):
    now = datetime.fromtimestamp(1_780_000_000 + number, UTC)
    return BatchReport(number, now, 10, 10, 0, 0, 8, 1.0, 1000, list(answers), list(alerts))


def alert(state="firing", monitor=FLOOD):
    return Alert(None, 0, monitor, None, state, 1.0, 0.0, 2.0, 0.9)


def requests(now, off=0, confidence=1.0):
    """The answer to "requests" after a second, wrong by ``off``."""
    value = float(sum(len(rows_of_second(number, 1, SCENARIO)) for number in range(now + 1)) + off)
    return Answer(None, 0, "requests", None, None, value, value, value, confidence)


@pytest.fixture
def record():
    return Record(of(pipeline_file("nowhere")), 1, SCENARIO)


@pytest.fixture
def store(tmp_path):
    made = new_store(tmp_path)
    sizes = [f"{what}_bytes" for what in ("state", "shipped", "monitor", "everything")]
    counts = ("rows", "counted", "late", "rejected", "sites", *sizes)
    for number in range(2):
        put_batch(made, number, None, run={"seconds": 1.0, "began": datetime.now(UTC)} | dict.fromkeys(counts, 10))
    return made


def test_bounds_that_hold_and_an_alert_in_time_are_fine(record, store):
    record.add_batch(batch(5, [requests(5)]), 5, 6.5)
    record.add_batch(batch(40, [requests(40)], [alert()]), SCENARIO.attack + 7, SCENARIO.attack + 9.5)
    found = record.summary(store)
    assert found["ok"]
    assert found["detection"] == {"attack": SCENARIO.attack, "delay": 9.5, "false_alerts": 0}
    assert found["answers"] == {"checked": 2, "misses": 0, "allowed_misses": 0}
    assert found["bytes"] == {"answers": 20, "monitors": 20, "every_row": 160}
    assert found["memory"]["state"] == 10
    assert found["memory"]["rows"] > 1_000_000
    assert (found["rows"], found["batches"], found["late"], found["seconds"]) == (20, 2, 0, SCENARIO.attack + 8)
    assert [row["exact"] for row in found["last"]] == [requests(40).value]


def test_no_alert_is_not(record, store):
    record.add_batch(batch(40, [requests(40)]), 40, 42)
    assert not record.summary(store)["ok"]


def test_an_alert_of_another_monitor_is_no_alert(record):
    record.add_batch(batch(40, alerts=[alert(monitor="rush to one page")]), 40, 42)
    assert record.detection_delay() is None
    assert record.missed_attack()


def test_before_the_attack_nothing_is_missed_but_an_alert_is_false(record, store):
    record.add_batch(batch(10, [requests(10)]), 10, 12)
    assert not record.missed_attack()
    assert record.summary(store)["ok"]
    record.add_batch(batch(20, [requests(20)], [alert()]), 20, 22)
    assert record.false_alerts() == 1
    assert not record.summary(store)["ok"]


def test_a_line_that_is_passed_again_while_the_attack_is_in_the_range_is_not_false():
    scenario = Scenario()
    record = Record(of(pipeline_file("nowhere")), 1, scenario)
    over = scenario.attack + scenario.attack_seconds
    record.add_batch(batch(1, alerts=[alert()]), over + FLOOD_SECONDS // 2, over + 20)
    assert record.false_alerts() == 0


def test_without_an_end_an_alert_has_time_to_come():
    scenario = Scenario()
    record = Record(of(pipeline_file("nowhere")), 1, scenario)
    record.add_batch(batch(1), scenario.attack + 3, scenario.attack + 5)
    assert not record.missed_attack()
    record.add_batch(batch(2), scenario.attack + FLOOD_SECONDS, scenario.attack + FLOOD_SECONDS + 2)
    assert record.missed_attack()


@pytest.mark.parametrize(("confidence", "fine"), [(1.0, False), (0.9, True)])
def test_broken_bounds_count_against_what_was_promised(record, store, confidence, fine):
    record.add_batch(batch(5, [requests(5, off=1, confidence=confidence)]), 5, 6)
    found = record.summary(store)
    assert found["answers"]["misses"] == 1
    assert found["ok"] is fine


def test_no_answers_at_all_are_not_fine(record, tmp_path):
    found = record.summary(Store(str(tmp_path / "empty")))
    assert not found["ok"]
    assert found["last"] == []
