"""Every path against answers that are known, by hand or from the events themselves."""

import math
from collections import Counter

import pytest
import stores
from patience import wait_until
from pydantic import TypeAdapter
from serving import serving
from store_builder import RUN, new_store

from lately.core.json_encoding import read_json, to_json
from lately.service.app import ROUTES
from lately.service.response_models import response_model
from lately.store.about import About

NOON = "2026-01-01T12:00:00Z"


def get(client, path, **params):
    """A response; one that is being prepared, as kernels may have to be compiled first, is requested again."""
    response = wait_until(lambda: (reply := client.get(f"/api/{path}", params=params)).status_code != 503 and reply, pause=0.5)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


def truth(oldest=60, newest=0, sites=tuple(stores.EVENTS)):
    """How often each key came less than so many minutes before noon and at least so many."""
    return Counter(key for site in sites for age, key, _ in stores.EVENTS[site] if newest <= age < oldest)


def assert_about(estimate, true):
    assert estimate["low"] <= true <= estimate["high"]
    assert 0.9 < estimate["confidence"] <= 1
    assert estimate["value"] == true  # with so few events nothing is lost


# -- questions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["/", "/cart", "/pay", "/nowhere", "", "ä 日 \U0001f600"])
def test_count_of_a_key(shop, key):
    document = get(shop, "count", key=key)
    assert (document["key"], document["asof"], document["range"]) == (key, NOON, {"last": None, "from": None, "to": None})
    assert_about(document["estimate"], truth()[key])


@pytest.mark.parametrize(("last", "minutes"), [("10m", 10), ("1h", 60), ("90s", 1.5), ("5 minutes", 5), ("301s", 301 / 60)])
def test_the_most_recent_period(shop, last, minutes):
    document = get(shop, "count", key="/cart", last=last)
    assert document["range"] == {"last": last, "from": None, "to": None}
    assert_about(document["estimate"], truth(minutes)["/cart"])


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("1h", "10m"),  # a date is the edge before its own second
        ("2026-01-01T11:00:01Z", "2026-01-01T11:50:01Z"),
        ("2026-01-01T12:00:01 01:00", "2026-01-01 11:50:01"),
    ],
)
def test_between_ages_or_times(shop, start, end):
    document = get(shop, "count", key="/cart", **{"from": start, "to": end})
    assert_about(document["estimate"], truth(60, 10)["/cart"])
    assert document["range"]["last"] is None


def test_from_without_to_ends_now(shop):
    assert_about(get(shop, "count", key="/cart", **{"from": "10m"})["estimate"], 4)


@pytest.mark.parametrize("sites", [["lima"], ["lima", "tokyo"], ["tokyo", "lima", "paris", "lima"]])
def test_some_sites(shop, sites):
    for key in ("/", "/cart"):
        assert_about(get(shop, "count", key=key, site=sites)["estimate"], truth(sites=set(sites))[key])
    merged = get(shop, "count", key="/", site=sites, **{"from": "1h", "to": "0s"})
    assert_about(merged["estimate"], truth(sites=set(sites))["/"])


@pytest.mark.parametrize("of", ["hot", "skew", stores.TOP, None])
def test_a_query_or_a_sketch_may_be_named(shop, of):
    assert_about(get(shop, "count", key="/cart", **({} if of is None else {"of": of}))["estimate"], 5)


def test_a_filtered_sketch_is_asked_by_its_name(shop):
    assert_about(get(shop, "count", key="/cart", of=stores.RIGHT)["estimate"], 3)


def test_many_keys(shop):
    keys = ["/cart", "/nowhere", "/", "/cart"]
    response = shop.post("/api/counts", json={"keys": keys, "last": "10m", "sites": ["lima", "paris"]})
    assert response.status_code == 200
    assert [row["key"] for row in response.json()["rows"]] == keys
    assert response.json()["asof"] == NOON
    for row in response.json()["rows"]:
        assert_about(row["estimate"], truth(10, sites=("lima", "paris"))[row["key"]])


def test_a_body_is_json_whatever_the_client_calls_it(shop):
    headers = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl -d says
    response = shop.post("/api/counts", content=b'{"keys": ["/cart"]}', headers=headers)
    assert (response.status_code, [row["key"] for row in response.json()["rows"]]) == (200, ["/cart"])


def test_ten_thousand_keys(shop):
    response = shop.post("/api/counts", json={"keys": [f"/{i}" for i in range(9_999)] + ["/cart"], "from": "1h", "to": "0s"})
    assert response.status_code == 200
    assert len(response.json()["rows"]) == 10_000
    assert response.json()["rows"][-1]["estimate"]["value"] == 5


def test_top_keys(shop):
    document = get(shop, "top", last="10m")
    assert {row["key"]: row["estimate"]["value"] for row in document["rows"]} == truth(10)
    assert document["rows"][0]["key"] == "/cart"
    assert [row["key"] for row in get(shop, "top", k=1, last="10m")["rows"]] == ["/cart"]


def test_top_keys_of_each_site(shop):
    document = get(shop, "top", by_site="true", k=5)
    assert list(document) == ["sites", "asof"]
    for site, rows in document["sites"].items():
        assert {row["key"]: row["estimate"]["value"] for row in rows} == truth(sites=[site])
    assert list(get(shop, "top", by_site=True, site="lima")["sites"]) == ["lima"]


def test_quantiles(shop):
    rows = get(shop, "quantiles", q=[0, 0.5, 1])["rows"]
    assert [row["q"] for row in rows] == [0, 0.5, 1]
    for row, true in zip(rows, (10, 60, 110), strict=True):
        assert row["estimate"]["low"] <= true <= row["estimate"]["high"]
    assert [row["q"] for row in get(shop, "quantiles")["rows"]] == [0.5, 0.9, 0.99]


def test_quantiles_of_nothing_are_no_rows(shop):
    assert get(shop, "quantiles", last="10m", site="tokyo")["rows"] == []


def test_joins_and_totals(shop):
    assert_about(get(shop, "self-join")["estimate"], 25 + 25 + 1)
    assert_about(get(shop, "self-join", last="10m")["estimate"], 1 + 16 + 1)
    assert_about(get(shop, "inner-product", left=stores.LEFT, right=stores.RIGHT)["estimate"], 4 * 1 + 2 * 3)
    assert_about(get(shop, "inner-product", left="bought")["estimate"], 10)
    assert_about(get(shop, "inner-product", left="bought", right="bought", site="lima")["estimate"], 1 + 1)
    assert_about(get(shop, "total")["estimate"], 11)
    assert_about(get(shop, "total", last="10m", site="lima")["estimate"], 2)


def test_integer_keys_and_times(ports):
    assert_about(get(ports, "range", lo=0, hi=1023)["estimate"], 5)
    assert_about(get(ports, "range", lo=0, hi=1023, last=10)["estimate"], 2)
    document = get(ports, "count", key="80", last="45")
    assert (document["key"], document["asof"], document["range"]["last"]) == ("80", 95, "45")
    assert_about(document["estimate"], 2)
    assert_about(get(ports, "count", key="80", last="46")["estimate"], 3)
    rows = ports.post("/api/counts", json={"keys": [80, "443"], "from": 50, "to": 10}).json()["rows"]
    assert [(row["key"], row["estimate"]["value"]) for row in rows] == [(80, 2), ("443", 0)]
    assert get(ports, "runs")["rows"][0]["time"] == 95


# -- tables ------------------------------------------------------------------------------------------------------------


def test_answers_of_the_newest_batch(shop):
    document = get(shop, "answers")
    assert (document["batch"], document["time"]) == (2, NOON)
    assert [(row["query"], row["site"], row["item"], row["value"]) for row in document["rows"]] == [
        ("hot", None, "/cart", 6.0),
        ("slow", "lima", "0.5", 25.0),
        ("sum", None, None, None),
    ]


def test_what_json_does_not_know_is_null(shop):
    slow, total = get(shop, "answers", query="slow")["rows"] + get(shop, "answers", query="sum")["rows"]
    assert (slow["low"], slow["value"], slow["high"]) == (None, 25.0, None)
    assert (total["low"], total["value"], total["high"]) == (None, None, None)


def test_history_is_oldest_first(shop):
    document = get(shop, "history", query="hot", item="/cart")
    assert (document["query"], document["item"], document["site"]) == ("hot", "/cart", None)
    assert [(row["batch"], row["value"]) for row in document["rows"]] == [(0, 4.0), (1, 5.0), (2, 6.0)]
    assert list(document["rows"][0]) == ["time", "batch", "query", "site", "item", "value", "low", "high", "confidence"]
    assert [row["batch"] for row in get(shop, "history", query="hot", limit=2)["rows"]] == [1, 2]
    assert get(shop, "history", query="slow", site="lima")["rows"][0]["value"] == 25.0
    assert get(shop, "history", query="hot", item="/nowhere")["rows"] == []


def test_alerts_and_runs(shop):
    rows = get(shop, "alerts")["rows"]
    assert [(row["batch"], row["monitor"], row["state"], row["value"]) for row in rows] == [
        (1, "attack", "firing", 120.0),
        (2, "attack", "resolved", 80.0),
    ]
    assert [row["batch"] for row in get(shop, "alerts", limit=1)["rows"]] == [2]
    rows = get(shop, "runs")["rows"]
    assert [row["batch"] for row in rows] == [0, 1, 2]
    assert rows[0] == RUN | {"batch": 0, "time": NOON, "began": "2026-01-02T00:00:00Z"}


def test_rows_by_site(shop):
    document = get(shop, "site-totals")
    assert (document["asof"], document["sites"]) == (NOON, 3)
    assert [row["site"] for row in document["rows"]] == ["lima", "paris", "tokyo"]
    for row in document["rows"]:
        assert_about(row["total"], len(stores.EVENTS[row["site"]]))
        assert row["bytes"] == sum(len(stores.sketch_of(name, row["site"]).to_bytes()) for name in stores.FILTERS)


def test_about_and_health(shop):
    document = get(shop, "about")
    expected = to_json(read_json(About, stores.ABOUT))
    assert {name: document[name] for name in expected} == expected
    assert (document["sites"], document["site_count"]) == (["lima", "paris", "tokyo"], 3)
    assert (document["batch"], document["now"], document["asof"]) == (2, NOON, NOON)
    assert set(document["questions"]) == {"count", "top", "quantiles", "self-join", "inner-product", "range", "total"}
    document = get(shop, "health")
    assert (document["status"], document["batch"], document["now"]) == ("ok", 2, NOON)
    assert document["age_seconds"] >= 0
    assert math.isfinite(document["age_seconds"])


# -- the document ------------------------------------------------------------------------------------------------------


def test_answers_are_what_the_models_say(shop):
    params = {
        "count": {"key": "/cart"},
        "range": {"lo": 0, "hi": 100},
        "inner-product": {"left": "bought"},
        "history": {"query": "slow"},
    }
    for route in ROUTES:
        if route.method == "GET" and route.response is not None:
            response = shop.get(route.path, params=params.get(route.path.removeprefix("/api/"), {}))
            assert response.status_code == 200, response.text
            TypeAdapter(response_model(route.response)).validate_json(response.content, strict=True)


def test_the_openapi_document_names_every_path_and_its_failures(shop):
    document = get(shop, "openapi.json")
    assert set(document["paths"]) == {route.path for route in ROUTES}
    for path in document["paths"].values():
        for operation in path.values():
            assert "422" not in operation["responses"]
            assert {"200", "400", "503"} <= set(operation["responses"])
            assert operation["summary"]
    parameters = {one["name"]: one for one in document["paths"]["/api/count"]["get"]["parameters"]}
    assert list(parameters) == ["last", "from", "to", "site", "of", "key"]
    assert [name for name, one in parameters.items() if one["required"]] == ["key"]
    assert all(one["description"] for one in parameters.values())


@pytest.mark.parametrize("batches", [0, 1])
def test_a_store_without_sketches(tmp_path, batches):
    store = new_store(tmp_path / "store", **stores.ABOUT)
    for batch in range(batches):
        stores.put_shop_batch(store, batch)
    with serving(store.path) as client:
        health = get(client, "health")
        assert (health["batch"], health["age_seconds"] is None) == ((0, False) if batches else (None, True))
        about = get(client, "about")
        assert (about["asof"], about["questions"], about["sites"]) == (None, [], ["lima"] if batches else [])
        assert get(client, "site-totals") == {
            "sites": batches,
            "rows": [{"site": "lima", "total": None, "bytes": 0}] if batches else [],
            "asof": None,
        }
        rows = get(client, "sites")["rows"]
        assert [(row["site"], row["state"]) for row in rows] == ([("lima", None)] if batches else [])
        assert get(client, "late") == {"reasons": [], "complete": True, "rows": []}
        assert len(get(client, "answers")["rows"]) == 3 * batches
        for path in ("alerts", "runs", "history"):
            assert len(get(client, path, **({"query": "hot"} if path == "history" else {}))["rows"]) <= batches
        for path, params in {"count": {"key": "/"}, "top": {}, "quantiles": {}, "self-join": {}, "total": {}}.items():
            response = client.get(f"/api/{path}", params=params)
            assert response.status_code == 409
            assert response.json()["error"]["code"] == "no_sketch"
            assert 'sketches = "always"' in response.json()["error"]["remedy"]
