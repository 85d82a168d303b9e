"""The pipeline file of the demo, as data."""

from typing import Any

from lately.demo.traffic import LOGIN, RATE

#: The monitor that must detect the attack, its threshold in requests for the login page, and its range in seconds.
FLOOD, FLOOD_THRESHOLD, FLOOD_SECONDS = "login flood", 1.5 * RATE, 30
COLUMNS = "ts timestamp, site string, path string, event string, ms double"
#: How late a row may arrive; all delays of the traffic are shorter.
LATENESS = "5s"


def pipeline_file(folder: str, trigger: str = "2 seconds") -> dict[str, Any]:
    """The content of the demo's pipeline file.

    Parameters
    ----------
    folder
        Holds the events, the checkpoint and the store.
    trigger
        The interval of the batches, as Spark reads it.
    """
    return {
        "name": "demo",
        "source": {
            "format": "parquet",
            "path": f"{folder}/events",
            "mode": "continuous",
            "columns": COLUMNS,
            "options": {"cleanSource": "delete"},  # files that have been read are not needed again
        },
        "columns": {"time": "ts", "key": "path", "site": "site", "value": "ms"},
        "window": {"length": "5m", "tick": "1s", "lateness": LATENESS},
        "guarantee": {"eps": 0.01, "delta": 0.05},
        "queries": [
            {"name": "hot pages", "kind": "top", "k": 10, "last": "1m", "eps": 0.005},
            {"name": "hot pages by site", "kind": "top", "k": 5, "last": "1m", "by": "site", "eps": 0.005},
            {"name": "latency", "kind": "quantiles", "last": "1m", **_LATENCY},
            {"name": "latency by site", "kind": "quantiles", "last": "1m", "by": "site", **_LATENCY},
            {"name": "funnel", "kind": "counts", "keys": [LOGIN, "/cart", "/checkout", "/thanks"], "last": "1m"},
            {"name": "skew", "kind": "self-join", "last": "1m", "eps": 0.1},
            {"name": "seen and bought", "kind": "join", "left": "event = 'view'", "right": "event = 'buy'", **_JOIN},
            {"name": "requests", "kind": "exact", "aggregate": "count", "last": "1m"},
            {"name": "requests by site", "kind": "exact", "aggregate": "count", "last": "1m", "by": "site"},
        ],
        "monitors": [
            {"name": FLOOD, "kind": "count", "key": LOGIN, "above": FLOOD_THRESHOLD, "last": f"{FLOOD_SECONDS}s", "eps": 0.005},
            {"name": "rush to one page", "kind": "self-join", "above": 30 * RATE**2, "last": "30s", "eps": 0.01},
        ],
        "store": {"path": f"{folder}/store", "sketches": "5s", "keep": "5m"},
        "run": {"checkpoint": f"{folder}/state", "trigger": trigger, "master": "local[2]", "spark": _settings(folder)},
    }


_JOIN = {"last": "1m", "eps": 0.1}
_LATENCY = {"q": [0.5, 0.9, 0.99], "lo": 0, "hi": 4000, "resolution": 1, "outside": "clip"}


def _settings(folder: str) -> dict[str, Any]:
    """Settings for a fast start, with all files in the demo's folder; Java's second compiler does not help small batches."""
    return {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}/spark",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": f"{folder}/spark/warehouse",
        "spark.local.dir": f"{folder}/spark",
    }
