"""The metrics can be parsed by Prometheus' own parser, and their numbers are those of the store."""

import stores
from patience import wait_until
from prometheus_client.parser import text_string_to_metric_families
from serving import serving
from store_builder import new_store


def samples(client):
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    families = list(text_string_to_metric_families(response.text))
    assert all(family.documentation for family in families)
    return {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}


def test_numbers_of_the_store(tmp_path):
    store = stores.shop(tmp_path / "store")
    with serving(store.path) as client:
        values = samples(client)
        sums = {"rows": 5400, "counted_rows": 5370, "late_rows": 21, "rejected_rows": 9, "shipped_bytes": 6144}
        sums |= {"monitor_bytes": 1536, "everything_bytes": 270_000, "batches": 3, "batch_work_seconds": 0.75}
        for name, value in sums.items():
            assert values[f"lately_{name}_total",] == value
        for name, value in {"newest_batch": 2, "batch_seconds": 0.25, "state_bytes": 30_000, "sites": 3}.items():
            assert values[f"lately_{name}",] == value
        assert values["lately_batch_age_seconds",] > 0
        assert values["lately_alerts_total", ("monitor", "attack"), ("state", "firing")] == 1
        assert values["lately_alerts_total", ("monitor", "attack"), ("state", "resolved")] == 1
        stores.put_shop_batch(store, 3, [stores.alert("firing")])
        values = wait_until(lambda: (now := samples(client))["lately_newest_batch",] == 3 and now)
        assert values["lately_rows_total",] == 7200
        assert values["lately_alerts_total", ("monitor", "attack"), ("state", "firing")] == 2


def test_numbers_of_the_service(shop_path):
    with serving(shop_path) as client:
        for _ in range(3):
            client.get("/api/count?key=/")
        client.get("/api/count?key=/&site=rome")
        for name in ("a", "b", "c"):
            client.get(f"/{name}")
            client.get(f"/static/{name}")
        values = samples(client)
    assert values["lately_http_requests_total", ("path", "/api/count"), ("status", "200")] == 3
    assert values["lately_http_requests_total", ("path", "/api/count"), ("status", "404")] == 1
    assert values["lately_http_request_seconds_count", ("path", "/api/count")] == 4
    # However many paths are tried, there is one series for those that do not exist.
    assert values["lately_http_requests_total", ("path", "other"), ("status", "404")] == 3
    assert values["lately_http_requests_total", ("path", "/static"), ("status", "404")] == 3


def test_an_empty_store(tmp_path):
    store = new_store(tmp_path / "store", **stores.ABOUT)
    with serving(store.path) as client:
        values = samples(client)
    assert values["lately_batches_total",] == 0
    assert ("lately_newest_batch",) not in values
