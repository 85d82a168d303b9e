"""Monitors as rounds: a pipeline's monitors say after each batch what sites and a coordinator say that are carried by hand."""

import math

import numpy as np
import pyarrow as pa
import pytest
from pipelines import SITES, add_file, content, events, run, table

import lately as lt
from lately.config import of
from lately.core.json_encoding import encode, to_json
from lately.core.keys import hash_keys
from lately.core.times import instant_of
from lately.monitor import Announcement
from lately.pipeline.plan import PipelinePlan
from lately.pipeline.site_assignment import site_number

WATCHES = {
    "skew": {"name": "skew", "kind": "self-join", "above": 60_000, "theta": 0.2, "last": "2m"},
    "followed": {"name": "followed", "kind": "self-join", "theta": 0.3, "last": "2m", "scheme": "geometric"},
    "rush": {"name": "rush", "kind": "count", "key": 0, "above": 450, "last": "1m"},
    "buys": {"name": "buys", "kind": "count", "key": 0, "above": 135, "last": "1m", "where": "event = 'buy'"},
    "floods": {"name": "floods", "kind": "frequent", "tau": 200, "last": "1m"},
}


def bursts(size=4_000, minutes=4):
    """Rows of which three eighths hold little else than the keys 0, which is frequent anyway, and 7."""
    rows = events(size, minutes=minutes, seed=4)
    keys = rows["key"].to_numpy().copy()
    burst = slice(size // 4, size * 5 // 8)
    turns = np.arange(keys[burst].size) % 4
    keys[burst] = np.where(turns == 3, keys[burst], turns % 2 * 7)
    return rows.set_column(1, "key", pa.array(keys))


class ByHand:
    """A monitor's sites and coordinator without Spark: a batch is told to all sites, then messages are carried to their end."""

    def __init__(self, config, watch, lateness=0):
        parsed = of(config)
        self.watch = watch
        self.monitor = parsed.monitor_of(next(one for one in parsed.monitors if one.name == watch["name"]))
        self.window, self.lateness = parsed.window.window, lateness
        self.sites, self.coordinator, self.clocks, self.now, self.bytes = {}, None, {}, None, 0

    def batch(self, rows):
        """Returns what the coordinator announces after it."""
        self.bytes = 0
        messages, spoke = [], set()
        for name in sorted(set(rows["site"].to_pylist())):
            site_rows = rows.filter(pa.compute.equal(rows["site"], name))
            newest = site_rows["ts"].cast(pa.int64()).to_numpy().max() // 10**6
            self.clocks[name] = max(self.clocks.get(name, newest), newest)
            self.now = max(self.clocks.values())
            if name not in self.sites:
                birth = int(hash_keys([f"monitor {self.watch['name']} {name}"])[0])
                self.sites[name] = self.monitor.site(site_number(name), birth=birth)
            if self.watch.get("where"):
                site_rows = site_rows.filter(pa.compute.equal(site_rows["event"], "buy"))
            spoke.add(name)
            if site_rows.num_rows:
                messages += self.sites[name].update(site_rows["key"].to_numpy(), site_rows["ts"].combine_chunks())
            messages += self.sites[name].advance(instant_of(int(self.clocks[name]), self.window))
        if self.coordinator is None and spoke:
            self.coordinator = self.monitor.coordinator(sorted(site_number(name) for name in spoke))
        if self.coordinator is None:
            return None
        numbers = {site_number(name): name for name in self.sites}
        down = []
        silent = [name for name in numbers.values() if name not in spoke]
        while messages or down or silent:
            for message in sorted(messages, key=lambda one: (one.site, one.sequence)):
                self.bytes += message.nbytes
                for reply in self.coordinator.receive(message):
                    self.bytes += reply.nbytes
                    down.append(reply)
            messages = [answer for message in down for answer in self.sites[numbers[message.site]].receive(message)]
            for name in silent:
                messages += self.sites[name].advance(instant_of(int(self.now) - self.lateness, self.window))
            down, silent = [], []
        return self.coordinator[self.watch["name"]]


def watched(spark, folder, batches, watches, lateness=None):
    """Run a pipeline with these monitors over these batches; returns what it says, and what is said by hand."""
    (folder / "source").mkdir()
    for number, rows in enumerate(batches):
        add_file(rows, folder / "source", number)
    config = content(folder / "source", folder, monitors=watches, store={"sketches": "never"})
    if lateness:
        config["window"]["lateness"] = f"{lateness}s"
    run(spark, config)
    hands = {watch["name"]: ByHand(config, watch, lateness or 0) for watch in watches}
    by_hand = {name: [(hand.batch(rows), hand.bytes) for rows in batches] for name, hand in hands.items()}
    return config, by_hand


def shown(announced):
    """An announcement as rows of the table ``answers``: {item: (value, low, high, confidence)}."""
    if announced is None:
        return {}
    if isinstance(announced, Announcement):
        return (
            {}
            if math.isnan(announced.value)
            else {None: (announced.value, announced.low, announced.high, announced.confidence)}
        )
    return {str(key): (float(count), 0.0, math.inf, 0.9) for key, count in announced.counts.items()}


def bounded(row):
    return row["value"], row["low"], row["high"], row["confidence"]


def raised_in(announced):
    if announced is None:
        return set()
    return (
        ({None} if announced.alarm else set())
        if isinstance(announced, Announcement)
        else {str(key) for key in announced.counts}
    )


def check(config, steps_by_monitor, batches):
    """The store says after each batch what was said by hand, and alerts are what changes between batches."""
    answers, alerts, runs = table(config, "answers"), table(config, "alerts"), table(config, "runs")
    seen = 0
    for name, steps in steps_by_monitor.items():
        before = set()
        for number, (announced, _) in enumerate(steps):
            monitor_rows = [row for row in answers if row["query"] == name and row["batch"] == number]
            assert {row["item"]: bounded(row) for row in monitor_rows} == shown(announced)
            now = raised_in(announced)
            changes = [row for row in alerts if row["monitor"] == name and row["batch"] == number]
            assert {row["item"] for row in changes if row["state"] == "firing"} == now - before
            assert {row["item"] for row in changes if row["state"] == "resolved"} == before - now
            seen += len(changes)
            before = now
    assert seen == len(alerts)
    for number, row in enumerate(runs):
        assert row["monitor_bytes"] == sum(steps[number][1] for steps in steps_by_monitor.values())
        assert row["rows"] == row["counted"] == batches[number].num_rows
    return alerts


def test_all_kinds_at_once_say_what_is_said_by_hand(spark, tmp_path):
    rows = bursts()
    batches = [rows.slice(start, 800) for start in range(0, 4_000, 800)]
    config, by_hand = watched(spark, tmp_path, batches, [WATCHES[name] for name in ("skew", "rush", "buys", "floods")])
    alerts = check(config, by_hand, batches)
    for name in ("rush", "buys", "floods"):  # each is raised, and withdrawn again
        kinds = [row["state"] == "firing" for row in alerts if row["monitor"] == name]
        assert {True, False} == set(kinds), name
    assert {"0", "7"} <= {row["item"] for row in alerts if row["monitor"] == "floods"}
    assert sum(row["monitor_bytes"] for row in table(config, "runs")) > 0
    assert {row["confidence"] for row in alerts if row["monitor"] == "floods"} == {0.9}
    assert {row["confidence"] for row in alerts if row["monitor"] in ("rush", "buys")} == {1.0}  # counts have no collisions


def test_a_site_that_falls_silent_ages_and_one_that_comes_later_joins(spark, tmp_path):
    rows = bursts(3_000, minutes=6)
    site = np.array(rows["site"].to_pylist())
    place = np.arange(3_000)
    sent = rows.filter(pa.array(((site != "oslo") | (place < 1_200)) & ((site != "pune") | (place >= 1_000))))
    size = sent.num_rows // 6
    batches = [sent.slice(start, size) for start in range(0, 6 * size, size)]
    assert [set(batch["site"].to_pylist()) for batch in (batches[0], batches[-1])] == [{"lima", "oslo"}, {"lima", "pune"}]
    config, by_hand = watched(spark, tmp_path, batches, [WATCHES["rush"], WATCHES["followed"]])
    check(config, by_hand, batches)
    # What is followed is the truth of the last two minutes, silent sites' too, within theta and its sketches' error.
    *_, last = [row for row in table(config, "answers") if row["query"] == "followed"]
    seconds = sent["ts"].cast(pa.int64()).to_numpy() // 10**6
    recent = sent["key"].to_numpy()[seconds > seconds.max() - 120]
    truth = (np.bincount(recent) ** 2).sum()
    assert abs(last["value"] - truth) <= 0.5 * truth
    assert last["low"] <= truth <= last["high"]


def test_clocks_that_differ_within_lateness(spark, tmp_path):
    rows = bursts(2_000)
    times = rows["ts"].cast(pa.int64()).to_numpy() - np.where(np.array(rows["site"].to_pylist()) == "lima", 20 * 10**6, 0)
    moved = rows.set_column(0, "ts", pa.array(times, rows["ts"].type))
    site = np.array(moved["site"].to_pylist())
    batches = [moved.slice(start, 400) for start in range(0, 2_000, 400)]
    batches[2] = batches[2].filter(pa.array(site[800:1200] != "lima"))  # the slow one is silent for a batch
    config, by_hand = watched(spark, tmp_path, batches, [WATCHES["rush"]], lateness=30)
    check(config, by_hand, batches)


def test_rows_that_come_late_but_in_time_are_counted(spark, tmp_path):
    """Rows of every site up to half a minute out of order, none of them late: the monitor counts what is in the window."""
    rows = bursts(3_000)
    seconds = rows["ts"].cast(pa.int64()).to_numpy() // 10**6
    order = np.argsort(seconds + np.random.default_rng(3).uniform(0, 30, 3_000), kind="stable")
    mixed = rows.take(pa.array(order))
    batches = [mixed.slice(start, 600) for start in range(0, 3_000, 600)]
    watch = {"name": "zeros", "kind": "count", "key": 0, "theta": 0.05, "eps": 0.02, "last": "2m"}
    config, by_hand = watched(spark, tmp_path, batches, [watch], lateness=30)
    check(config, by_hand, batches)
    sites, keys = np.array(mixed["site"].to_pylist()), mixed["key"].to_numpy()
    times = mixed["ts"].cast(pa.int64()).to_numpy() // 10**6
    for number, row in enumerate(table(config, "answers")):
        seen = slice(0, 600 * (number + 1))
        newest = {name: times[seen][sites[seen] == name].max() for name in set(sites[seen])}
        ends = np.array([newest[name] for name in sites[seen]])
        truth = int(((keys[seen] == 0) & (times[seen] > ends - 120)).sum())
        assert abs(row["value"] - truth) <= 0.08 * truth + 3


def test_a_site_none_of_whose_rows_pass_the_filter_holds_nobody_up(spark, tmp_path):
    rows = bursts(2_000)
    site, event = np.array(rows["site"].to_pylist()), np.array(rows["event"].to_pylist())
    rows = rows.filter(pa.array((site != "oslo") | (event == "view")))
    batches = [rows.slice(start, rows.num_rows // 4) for start in range(0, 4 * (rows.num_rows // 4), rows.num_rows // 4)]
    config, _ = watched(spark, tmp_path, batches, [WATCHES["buys"] | {"above": 50}])
    answers = [row for row in table(config, "answers") if row["query"] == "buys"]
    assert {row["batch"] for row in answers} == {0, 1, 2, 3}
    assert any(row["state"] == "firing" for row in table(config, "alerts"))


def test_a_site_whose_rows_no_longer_pass_the_filter_ages_too(spark, tmp_path):
    rows = bursts(2_000)
    calm = np.where(np.arange(2_000) < 1_000, np.array(rows["event"].to_pylist()), "view")
    rows = rows.set_column(3, "event", pa.array(calm))
    batches = [rows.slice(start, 500) for start in range(0, 2_000, 500)]
    config, by_hand = watched(spark, tmp_path, batches, [WATCHES["buys"] | {"above": 40}])
    assert [row["state"] for row in check(config, by_hand, batches)] == ["firing", "resolved"]
    assert answers_at(config, 3) == [0.0]


def test_an_alert_below_a_line_fires_until_enough_came_and_when_rows_stay_away(spark, tmp_path):
    rows = bursts(2_000)
    calm = np.where(np.arange(2_000) < 1_000, np.array(rows["event"].to_pylist()), "view")
    rows = rows.set_column(3, "event", pa.array(calm))
    batches = [rows.slice(start, size) for start, size in ((0, 50), (50, 450), (500, 500), (1_000, 500), (1_500, 500))]
    watch = {name: value for name, value in WATCHES["buys"].items() if name != "above"} | {"below": 40}
    config, by_hand = watched(spark, tmp_path, batches, [watch])
    assert [row["state"] for row in check(config, by_hand, batches)] == ["firing", "resolved", "firing"]
    assert answers_at(config, 4) == [0.0]


def test_a_state_from_before_there_was_below_goes_on(tmp_path):
    """Such a state describes its monitors without it."""
    watches = [WATCHES["skew"], WATCHES["rush"]]
    parsed = of(content(tmp_path / "source", tmp_path, monitors=watches, store={"sketches": "never"}))
    plan = PipelinePlan.of(parsed, seed=1)
    earlier = plan.compatibility()
    assert all("below" not in watch for watch in earlier["monitors"].values())
    assert plan.check_compatible(earlier) == []
    watches[1] = {name: value for name, value in watches[1].items() if name != "above"} | {"below": 450}
    changed = PipelinePlan.of(of(content(tmp_path / "source", tmp_path, monitors=watches, store={"sketches": "never"})), seed=1)
    with pytest.raises(lt.ParameterError, match="the monitor 'rush' has changed"):
        changed.check_compatible(earlier)


def answers_at(config, batch):
    return [row["value"] for row in table(config, "answers") if row["batch"] == batch]


def test_a_monitor_that_is_new_begins_with_whoever_comes(spark, tmp_path):
    rows = bursts(2_000)
    batches = [rows.slice(start, 500) for start in range(0, 2_000, 500)]
    (tmp_path / "source").mkdir()
    for number in range(2):
        add_file(batches[number], tmp_path / "source", number)
    config = content(tmp_path / "source", tmp_path, monitors=[WATCHES["rush"]], store={"sketches": "never"})
    run(spark, config)
    add_file(batches[2], tmp_path / "source", 2)
    config["monitors"] = [WATCHES["floods"]]
    pipeline = run(spark, config)
    assert pipeline.notes == ["monitor 'floods' is new and starts now", "monitor 'rush' is gone"]
    hand = ByHand(config, WATCHES["floods"])
    newest = [row for row in table(config, "answers") if row["batch"] == 2]
    assert {row["item"]: bounded(row) for row in newest} == shown(hand.batch(batches[2]))
    add_file(batches[3], tmp_path / "source", 3)
    config["monitors"] = [WATCHES["rush"]]  # back again, and anew
    run(spark, config)
    alerts = [row for row in table(config, "alerts") if row["batch"] == 3 and row["monitor"] == "rush"]
    assert all(row["state"] == "firing" for row in alerts)


def test_numbers_of_sites_are_the_same_everywhere():
    assert [site_number(site) for site in SITES] == [int(hash_keys([site])[0]) >> 16 for site in SITES]
    assert len({site_number(f"site {i}") for i in range(100_000)}) == 100_000  # of 32 bits one pair would be the same


def test_a_pipeline_draws_a_secret_seed_and_goes_on_with_it(spark, tmp_path):
    """Sketches and monitors of all sites and batches have it, that of another pipeline differs, and no table tells it."""
    rows = bursts(1_500)
    batches = [rows.slice(start, 500) for start in range(0, 1_500, 500)]
    seeds = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        (folder / "source").mkdir(parents=True)
        queries = [{"name": "skew of all", "kind": "self-join"}]
        config = content(folder / "source", folder, monitors=[WATCHES["skew"]], queries=queries, run={"seed": None})
        for number, batch in enumerate(batches):
            add_file(batch, folder / "source", number)
            if number:  # two runs, the second of which finds a state
                pipeline = run(spark, config)
        blobs = [lt.from_bytes(row["blob"]) for row in table(config, "sketches")]
        seeds_of_sketches = {sketch._shape.seed for sketch in blobs}
        assert len({row["site"] for row in table(config, "sketches")}) > 1
        lt.merge(blobs)
        version = pipeline.versions.read(pipeline.versions.batches()[-1])
        assert seeds_of_sketches == {version.plan["seed"]} == {pipeline.versions.seed()}
        restored = [pipeline.plan.monitors[0].monitor.restore(blob) for blob in monitor_blobs(pipeline, version)]
        assert {one.monitor.seed for one in restored} == seeds_of_sketches
        assert str(*seeds_of_sketches) not in encode(to_json(pipeline.store.about()))
        seeds += seeds_of_sketches
    assert len({*seeds, 20_120_615}) == 3
    config["run"]["seed"] = 7
    with pytest.raises(lt.ParameterError, match=r"run\.seed differs from"):
        run(spark, config)


def monitor_blobs(pipeline, version):
    places = [place for its in version.places.values() for name, place in its.items() if name.startswith("monitor ")]
    return pipeline.versions.blobs([*places, *version.coordinators.values()]).values()
