"""What a demo remembers, and when it says that all went well."""

from datetime import UTC, datetime

import pytest

from lately.config import of
from lately.demo.asks import FLOOD, FLOOD_SECONDS, pipeline
from lately.demo.record import Record
from lately.demo.story import Story
from lately.demo.traffic import second
from lately.spark.pipeline import Done
from lately.store import Store

STORY = Story.of(60)


def batch(number, answers=(), alerts=()):
    now = datetime.fromtimestamp(1_780_000_000 + number, UTC)
    return Done(number, now, 10, 10, 0, 0, 8, 1.0, 1000, list(answers), list(alerts))


def alert(raised=True, monitor=FLOOD):
    return {"monitor": monitor, "item": None, "raised": raised, "value": 1.0, "low": 0.0, "high": 2.0, "confidence": 0.9}


def requests(now, off=0, confidence=1.0):
    """The answer to "requests" after a second, wrong by ``off``."""
    value = float(sum(len(second(number, 1, STORY)) for number in range(now + 1)) + off)
    row = {"query": "requests", "site": None, "item": None, "value": value, "low": value, "high": value}
    return row | {"confidence": confidence}


@pytest.fixture
def record():
    return Record(of(pipeline("nowhere")), 1, STORY)


@pytest.fixture
def store(tmp_path):
    made = Store(str(tmp_path))
    sizes = [f"{what}_bytes" for what in ("state", "shipped", "monitor", "everything")]
    counts = ("rows", "counted", "late", "rejected", "sites", *sizes)
    for number in range(2):
        row = {"batch": number, "seconds": 1.0, "began": datetime.now(UTC)} | dict.fromkeys(counts, 10)
        made.put("runs", number, [row])
    return made


def test_bounds_that_hold_and_an_alarm_in_time_are_fine(record, store):
    record.take(batch(5, [requests(5)]), 5, 6.5)
    record.take(batch(40, [requests(40)], [alert()]), STORY.attack + 7, STORY.attack + 9.5)
    found = record.summary(store)
    assert found["ok"]
    assert found["alarm"] == {"attack": STORY.attack, "delay": 9.5, "false": 0}
    assert found["answers"] == {"checked": 2, "broken": 0, "allowed": 0}
    assert found["bytes"] == {"answers": 20, "monitors": 20, "every_row": 160}
    assert found["memory"]["state"] == 10
    assert found["memory"]["rows"] > 1_000_000
    assert (found["rows"], found["batches"], found["late"], found["seconds"]) == (20, 2, 0, STORY.attack + 8)
    assert [row["exact"] for row in found["last"]] == [requests(40)["value"]]


def test_no_alarm_is_not(record, store):
    record.take(batch(40, [requests(40)]), 40, 42)
    assert not record.summary(store)["ok"]


def test_an_alarm_of_another_monitor_is_no_alarm(record):
    record.take(batch(40, alerts=[alert(monitor="one page for all")]), 40, 42)
    assert record.delay() is None
    assert record.missed()


def test_before_the_attack_nothing_is_missed_but_an_alarm_is_false(record, store):
    record.take(batch(10, [requests(10)]), 10, 12)
    assert not record.missed()
    assert record.summary(store)["ok"]
    record.take(batch(20, [requests(20)], [alert()]), 20, 22)
    assert record.false_alarms() == 1
    assert not record.summary(store)["ok"]


def test_a_line_that_is_passed_again_while_the_attack_is_in_the_range_is_not_false():
    story = Story()
    record = Record(of(pipeline("nowhere")), 1, story)
    over = story.attack + story.attack_lasts
    record.take(batch(1, alerts=[alert()]), over + FLOOD_SECONDS // 2, over + 20)
    assert record.false_alarms() == 0


def test_without_an_end_an_alarm_has_time_to_come():
    story = Story()
    record = Record(of(pipeline("nowhere")), 1, story)
    record.take(batch(1), story.attack + 3, story.attack + 5)
    assert not record.missed()
    record.take(batch(2), story.attack + FLOOD_SECONDS, story.attack + FLOOD_SECONDS + 2)
    assert record.missed()


@pytest.mark.parametrize(("confidence", "fine"), [(1.0, False), (0.9, True)])
def test_broken_bounds_count_against_what_was_promised(record, store, confidence, fine):
    record.take(batch(5, [requests(5, off=1, confidence=confidence)]), 5, 6)
    found = record.summary(store)
    assert found["answers"]["broken"] == 1
    assert found["ok"] is fine


def test_no_answers_at_all_are_not_fine(record, tmp_path):
    found = record.summary(Store(str(tmp_path / "empty")))
    assert not found["ok"]
    assert found["last"] == []
