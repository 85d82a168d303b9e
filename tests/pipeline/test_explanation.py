"""What --check says of a pipeline is what the pipeline does, and no Spark is started for it."""

import re
from pathlib import Path

import pytest

import lately as lt
from lately.config import of, parse
from lately.core import shared_sizes
from lately.pipeline.explanation import explain
from lately.pipeline.plan import PipelinePlan

ROOT = Path(__file__).parents[2]
PAGES = re.findall(r"(?s)```toml\n(.*?)```", (ROOT / "docs" / "pipeline.md").read_text())


def config_with(*queries, monitors=(), window=None, **tables):
    content = {
        "source": {"format": "rate", "mode": "available-now"},
        "columns": {"time": "ts", "key": "url", "site": "site", "value": "ms"},
        "window": window or {"length": "1h"},
        "queries": list(queries),
        "monitors": list(monitors),
        "store": {"path": "store"},
        "run": {"checkpoint": "state"},
    }
    return of(content | tables)


@pytest.fixture(scope="module")
def shop():
    return explain(parse(PAGES[0]), arrivals=20_000)


@pytest.mark.parametrize("text", PAGES)
def test_every_pipeline_in_the_docs_is_explained(text):
    config = parse(text)
    said = explain(config, arrivals=1000)
    assert [query["name"] for query in said["queries"]] == [query.name for query in config.queries]
    assert [watch["name"] for watch in said["monitors"]] == [watch.name for watch in config.monitors]
    assert [one["name"] for one in said["state"]] == [thing.name for thing in PipelinePlan.of(config).specs]
    asked = {name for one in said["state"] for name in one["queries"]}
    assert asked == {one["name"] for one in (*said["queries"], *said["monitors"])}


def test_queries_that_share_a_sketch_are_told_together(shop):
    (top,) = [one for one in shop["state"] if one["class"] == "TopK"]
    assert top["queries"] == ["hot pages", "hot pages by site"]
    joined = [one["where"] for one in shop["state"] if "seen and bought" in one["queries"]]
    assert joined == ["event = 'view'", "event = 'buy'"]


def test_what_each_query_promises(shop):
    said = {query["name"]: query for query in shop["queries"]}
    assert said["hot pages"]["error"] == "within 1% of the rows in the range, 99% sure"
    assert said["latency"]["error"] == "the rank is within 1% of the rows in the range, 99% sure"
    assert said["seen and bought"]["error"].startswith("within 5% of the product of both norms (the root of a self-join")
    assert (said["slow seconds"]["error"], said["slow seconds"]["eps"], said["slow seconds"]["confidence"]) == ("exact", 0, 1)
    assert "none for merging" in said["hot pages"]["all_sites"]
    assert "each site" in said["hot pages by site"]["all_sites"]
    assert (said["funnel"]["last"], said["funnel"]["question"]) == ("1h", "counts of 3 keys")


def test_sizes_are_those_of_sketches_that_were_fed():
    query = {"name": "a", "kind": "counts", "keys": ["x"]}
    small, large = (explain(config_with(query), arrivals)["state"][0] for arrivals in (100, 100_000))
    empty = lt.EcmSketch(window="1h", eps=0.01, delta=0.01)
    assert small["empty_bytes"] == large["empty_bytes"] == empty.nbytes
    assert empty.nbytes < small["bytes"] < large["bytes"]
    assert large["stored_bytes"] < large["bytes"] <= lt.plan(0.01, 0.01, "1h", arrivals=100_000).bytes


def test_exact_windows_grow_with_every_row_beyond_what_is_fed():
    query = {"name": "a", "kind": "exact", "aggregate": "max", "of": "ms"}
    once, twice = (explain(config_with(query), arrivals)["state"][0]["bytes"] for arrivals in (1_000_000, 2_000_000))
    assert once >= 8_000_000
    assert twice == 2 * once


def test_more_arrivals_than_are_fed_count_more_than_once():
    query = {"name": "a", "kind": "top"}
    once, more = (explain(config_with(query), arrivals)["state"][0]["bytes"] for arrivals in (1_000_000, 2**40))
    assert once < more < 10 * once


def test_a_site_is_the_sum_of_what_it_keeps(shop):
    for name in ("empty_bytes", "bytes", "stored_bytes"):
        assert shop["site"][name] == sum(one[name] for one in shop["state"]) > 0


def test_what_merging_adds_is_what_merged_counters_have():
    config = config_with({"name": "a", "kind": "counts", "eps": 0.1, "keys": ["x"]})
    (one,) = explain(config, 1000)["state"]
    (thing,) = PipelinePlan.of(config).specs
    made = thing.empty()
    made.update(["x"], [10])
    error = lt.merge([made, made]).error
    assert one["merged_eps"] == pytest.approx(shared_sizes.merged_error(0.1, made.delta, 1), rel=1e-4)
    assert one["merged_eps"] >= 0.1 + error - made.error  # the error of the waves grows, that of collisions does not


def test_what_crosses_to_python():
    def crossing(*queries, **tables):
        return {one["column"]: one for one in explain(config_with(*queries, **tables), 100)["row_columns"]}

    hashed = crossing({"name": "a", "kind": "counts", "keys": ["x"]})
    assert list(hashed) == ["site", "time", "key", "reason, row"]
    assert "hashed" in hashed["key"]["from"]
    shown = crossing(
        {"name": "a", "kind": "top", "where": "ms > 3"}, {"name": "b", "kind": "exact", "aggregate": "max", "of": "ms"}
    )
    assert shown["key"]["type"] == "as it is"
    assert "ms > 3" in shown["where"]["from"]
    assert shown["x0"]["from"] == "ms"
    valued = crossing({"name": "a", "kind": "quantiles", "lo": 0, "hi": 9, "resolution": 1})
    assert valued["value"]["from"] == "ms"


def test_windows_of_integers_and_lateness():
    query = {"name": "a", "kind": "top", "last": 100}
    said = explain(config_with(query, window={"length": 3600, "lateness": 60}), 1000)
    assert (said["window"]["length"], said["window"]["lateness"], said["window"]["future"]) == ("3,600", "60", None)
    assert "60 older than the newest row of its site" in said["window"]["description"]
    assert said["queries"][0]["last"] == "100"


def test_monitors_are_told_with_their_scheme_and_tolerance():
    watches = [
        {"name": "line", "kind": "count", "key": "x", "above": 5000, "theta": 0.2},
        {"name": "value", "kind": "self-join", "scheme": "geometric", "last": "10m"},
        {"name": "often", "kind": "frequent", "tau": 100},
        {"name": "pairs", "kind": "join", "left": "a", "right": "b", "above": 10},
        {"name": "quiet", "kind": "count", "key": "x", "below": 50},
    ]
    line, value, often, pairs, quiet = explain(config_with(monitors=watches), 1000)["monitors"]
    assert (line["scheme"], line["threshold"], line["theta"]) == ("functional", 5000, 0.2)
    assert "fires above 5,000; values within 0.2 of 5,000" in line["description"]
    assert quiet["threshold"] == 50
    assert "fires below 50; values within 0.1 of 50" in quiet["description"]
    assert (value["scheme"], value["threshold"], value["last"]) == ("geometric", None, "10m")
    assert "tracked to within" in value["description"]
    assert (often["threshold"], often["eps"]) == (100, 0.01)
    assert pairs["where"] == "a / b"


def test_where_it_goes():
    query = {"name": "a", "kind": "top"}
    stream = explain(config_with(query, store={"path": "s3://x/s", "sketches": "10m"}), 100)
    assert (stream["output"]["store"], stream["output"]["state"], stream["output"]["sketches"]) == (
        "s3://x/s",
        "state",
        "stored every 10m",
    )
    assert "sketches" in stream["output"]["tables"]
    assert stream["output"]["keep"] is None
    week = explain(config_with(query, store={"path": "s", "keep": "7d"}), 100)
    assert week["output"]["keep"] == "7d"
    batch = explain(config_with(query, source={"format": "rate", "mode": "batch"}), 100)
    assert batch["output"]["state"] is None
    assert "sketches" not in batch["output"]["tables"]
    live = explain(
        config_with(query, source={"format": "rate", "mode": "continuous"}, run={"checkpoint": "c", "trigger": "7s"}), 100
    )
    assert live["source"]["trigger"] == "7s"
    assert "every 7s" in live["source"]["description"]


def test_no_arrivals_are_refused():
    with pytest.raises(lt.ParameterError, match="arrivals=0; must be at least 1"):
        explain(config_with({"name": "a", "kind": "top"}), 0)
