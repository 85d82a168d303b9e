"""Rows that are ahead: which are refused, against a plain reading of the rule, and what a stream with fast clocks answers."""

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines import START, add_file, answers_to, content, events, in_order, micros, run, table

from lately.spark.ahead import AHEAD, FADING, SiteClock, most_ahead
from lately.spark.pipeline import Pipeline


class Block:
    """The columns of a block, as far as a site's clock looks at them."""

    def __init__(self, ticks):
        self.ticks = self.times = np.asarray(ticks, np.int64)

    def part(self, rows):
        return Block(self.ticks[rows])


def by_the_rule(ticks, ahead, before, usual):
    """Which of these ticks, in order, are refused: gap by gap, as the documentation says it."""
    few = max(len(ticks) // 10, min((len(ticks) - 1) // 2, 2))
    gaps = [max(tick - (ticks[i - 1] if i else tick if before is None else before), 0) for i, tick in enumerate(ticks)]
    for i in range(max(len(ticks) - few, 0), len(ticks)):
        if gaps[i] > ahead and gaps[i] > 4 * max([usual, *gaps[:i]]):
            return ticks[i:]
    return []


steps = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2_000)), min_size=1, max_size=60)


@given(steps, st.integers(1, 100), st.one_of(st.none(), st.integers(-300, 300)), st.sampled_from([0.0, 5.0, 200.0]))
def test_what_is_refused_follows_the_rule(steps, ahead, before, usual):
    ticks = np.cumsum(steps).tolist()
    clock = SiteClock(ahead, before, usual)
    admitted = [tick for block, rows in clock.admit(Block(ticks), np.arange(len(ticks))) for tick in block.ticks[rows].tolist()]
    refused = by_the_rule(ticks, ahead, before, usual)
    assert admitted == ticks[: len(ticks) - len(refused)]
    assert clock.held_back == len(refused) <= most_ahead(len(ticks))
    assert clock.held_back_from == (refused[0] if refused else None)
    if admitted:
        assert clock.newest == admitted[-1]
        assert clock.gap >= FADING * usual


@given(steps, st.integers(1, 100), st.lists(st.integers(1, 12), min_size=1, max_size=60))
def test_rows_in_blocks_are_admitted_once_in_order_and_no_more_are_refused_than_may_be(steps, ahead, cuts):
    ticks, clock, admitted, start = np.cumsum(steps), SiteClock(ahead, None, 0.0), [], 0
    for size in [*cuts, len(ticks)]:
        block = ticks[start : start + size]
        start += size
        if block.size:
            admitted += [t for one, rows in clock.admit(Block(block), np.arange(block.size)) for t in one.ticks[rows].tolist()]
    assert admitted == ticks.tolist()[: len(admitted)]
    assert clock.held_back == len(ticks) - len(admitted) <= most_ahead(len(ticks))
    if clock.held_back:
        assert clock.held_back_from == ticks[len(admitted)] > ticks[max(len(admitted) - 1, 0)] + ahead


def test_any_gap_may_be_allowed():
    clock = SiteClock(None, None, 0.0)
    assert len(clock.admit(Block([0, 1, 2, 10**9]), np.arange(4))[0][1]) == 4
    assert clock.held_back == 0


# -- streams ------------------------------------------------------------------------------------------------------------


def faster(rows, number, ahead):
    """The rows with one of every ``number`` stamped by a clock that is ahead."""
    times = rows["ts"].cast(pa.int64()).to_numpy().copy()
    times[::number] += int(ahead.total_seconds()) * 10**6
    return rows.set_column(0, "ts", pa.array(times, pa.timestamp("us", "UTC")))


QUERIES = [
    {"name": "all", "kind": "exact", "aggregate": "count", "last": "1m"},
    {"name": "n", "kind": "counts", "keys": [0, 1, 2], "last": "5m"},
]


@pytest.mark.parametrize("mode", ["available-now", "batch"])
@pytest.mark.parametrize("ahead", [dt.timedelta(minutes=5), dt.timedelta(hours=22)])
def test_a_few_fast_rows_ruin_nothing(spark, tmp_path, ahead, mode):
    """Twelve minutes of three sites, a few rows of each batch ahead: all others count, and the answers are right."""
    whole = events(12_000, minutes=12)
    times = whole["ts"].cast(pa.int64()).to_numpy()
    minutes = [whole.filter(pa.array(times // (60 * 10**6) == micros(START) // (60 * 10**6) + i)) for i in range(12)]
    are_fast = [mode == "available-now" or number == 11 for number in range(12)]  # in each batch, of which one is all
    (tmp_path / "source").mkdir()
    for number, rows in enumerate(minutes):
        add_file(faster(rows, 97, ahead) if are_fast[number] else rows, tmp_path / "source", number)
    config = content(tmp_path / "source", tmp_path, mode, queries=QUERIES, window={"length": "10m", "lateness": "10s"})
    run(spark, config)
    runs, rejected = table(config, "runs"), table(config, "rejected")
    fast = sum(len(range(0, rows.num_rows, 97)) for rows, is_fast in zip(minutes, are_fast, strict=True) if is_fast)
    assert len(runs) == (12 if mode == "available-now" else 1)
    assert sum(row["rows"] for row in runs) == 12_000
    assert sum(row["counted"] for row in runs) == 12_000 - fast
    assert sum(row["late"] for row in runs) == 0
    assert sum(row["rejected"] for row in runs) == fast == len(rejected) == sum(row["ahead"] for row in last_sites(config))
    assert {row["reason"] for row in rejected} == {AHEAD}
    assert len({json.loads(row["row"])["ts"] for row in rejected}) == fast  # each row as it was, once
    counted = minutes[11]["ts"].cast(pa.int64()).to_numpy()
    counted = counted[np.arange(counted.size) % 97 != 0] // 10**6
    assert answers_to(config, "all")[None, None][1] == (counted > counted.max() - 60).sum()
    for row in last_sites(config):
        assert row["time"] < START + dt.timedelta(minutes=12)
        assert row["ahead"] > 0
        assert row["ahead_seen"] == row["seen"] == runs[-1]["began"]


def last_sites(config):
    rows = table(config, "sites")
    return [row for row in rows if row["batch"] == max(one["batch"] for one in rows)]


def test_a_stream_goes_on_after_a_pause_of_any_length(spark, tmp_path):
    """Whole batches that follow a gap count, however long it is."""
    pauses = [0, 3_600, 86_400 * 3, 30]
    (tmp_path / "source").mkdir()
    moment = START
    for number, pause in enumerate(pauses):
        moment += dt.timedelta(seconds=pause)
        rows = [{"ts": moment + dt.timedelta(milliseconds=50 * i), "key": 0, "site": "lima"} for i in range(200)]
        add_file(pa.Table.from_pylist(rows, events(1).schema), tmp_path / "source", number)
        moment = rows[-1]["ts"]
    config = content(tmp_path / "source", tmp_path, queries=QUERIES, window={"length": "1h"})
    run(spark, config)
    assert [(row["counted"], row["late"], row["rejected"]) for row in table(config, "runs")] == [(200, 0, 0)] * 4


def test_a_site_whose_rows_come_far_apart_loses_none(spark, tmp_path):
    (tmp_path / "source").mkdir()
    for number in range(4):
        rows = [{"ts": START + dt.timedelta(minutes=10 * (7 * number + i)), "key": 0, "site": "lima"} for i in range(7)]
        add_file(pa.Table.from_pylist(rows, events(1).schema), tmp_path / "source", number)
    config = content(tmp_path / "source", tmp_path, queries=QUERIES, window={"length": "1h"})
    run(spark, config)
    assert [(row["counted"], row["rejected"]) for row in table(config, "runs")] == [(7, 0)] * 4


def test_sites_are_told_with_when_they_were_last_seen(spark, tmp_path):
    (tmp_path / "source").mkdir()
    table_ = events(3_000, minutes=3, sites=("lima", "oslo", "pune"))
    times = table_["ts"].cast(pa.int64()).to_numpy()
    names = np.array(table_["site"].to_pylist())
    for number in range(3):
        low = micros(START) + number * 60 * 10**6
        keep = (times >= low) & (times < low + 60 * 10**6) & ~((names == "oslo") & (number > 0))
        add_file(table_.filter(pa.array(keep)), tmp_path / "source", number)
    config = content(tmp_path / "source", tmp_path, queries=QUERIES)
    run(spark, config)
    sites = {row["site"]: row for row in last_sites(config)}
    runs = {row["batch"]: row for row in table(config, "runs")}
    assert {site: row["seen"] for site, row in sites.items()} == {
        "lima": runs[2]["began"], "oslo": runs[0]["began"], "pune": runs[2]["began"]}  # fmt: skip
    for site, row in sites.items():
        times_at_site = times[(names == site) & ((site != "oslo") | (times < micros(START) + 60 * 10**6))]
        assert row["counted"] == times_at_site.size
        assert row["time"] == dt.datetime.fromtimestamp(int(times_at_site.max()) // 10**6, dt.UTC)
        assert (row["late"], row["rejected"], row["ahead"], row["ahead_seen"]) == (0, 0, 0, None)


def test_a_batch_that_is_run_again_refuses_the_same_rows(spark, tmp_path):
    (tmp_path / "source").mkdir()
    add_file(faster(events(2_000, minutes=1), 97, dt.timedelta(minutes=5)), tmp_path / "source", 0)
    tables = []
    for name in ("a", "b"):
        config = content(tmp_path / "source", tmp_path / name, queries=QUERIES)
        run(spark, config)
        tables.append(in_order(table(config, "rejected")))
        assert Pipeline.of(config).versions.read(0).clocks == {
            site: micros(START) // 10**6 + 59 for site in ("lima", "oslo", "pune")
        }
    assert tables[0] == tables[1]
    assert len(tables[0]) == len(range(0, 2_000, 97))


def test_any_gap_is_allowed_where_the_file_says_so(spark, tmp_path):
    (tmp_path / "source").mkdir()
    add_file(faster(events(2_000, minutes=1), 97, dt.timedelta(minutes=5)), tmp_path / "source", 0)
    config = content(tmp_path / "source", tmp_path, queries=QUERIES, window={"length": "10m", "ahead": "any"})
    run(spark, config)
    assert [row["rejected"] for row in table(config, "runs")] == [0]
    assert answers_to(config, "all")[None, None][1] == len(range(0, 2_000, 97))
