"""A service over stores of 200 and 2,000 sites: everything is answered, no answer grows with the sites, times end with Z."""

import pytest
import stores
from patience import wait_until
from prometheus_client.parser import text_string_to_metric_families
from serving import serving

from lately.service.response_models import response_model
from lately.store.documents import UncountedDocument
from lately.store.site_report import SitePage


@pytest.fixture(scope="module", params=[(200, "timestamp"), (2_000, "integer")], ids=["200", "2000 integers"])
def many(request, tmp_path_factory):
    sites, moment = request.param
    store = stores.many_sites(tmp_path_factory.mktemp("many") / "store", sites, moment)
    with serving(store.path) as client:
        yield client, sites, moment


def get(client, path, **params):
    """An answer; one that is being prepared is asked for again, as the page and the command do."""
    response = wait_until(lambda: (reply := client.get(f"/api/{path}", params=params)).status_code != 503 and reply, pause=0.5)
    assert response.status_code == 200, response.text
    return response.json()


def test_silent_and_ahead_sites(many):
    client, sites, moment = many
    page = response_model(SitePage).model_validate(get(client, "sites", limit=5)).model_dump()
    assert (page["sites"], page["silent"], page["ahead"], page["behind"]) == (sites, sites // 100, sites // 100, 0)
    assert (page["tolerance"], page["lag"]) == (50, 290)
    assert page["newest"] == (1_790_000_290 if moment == "integer" else "2026-01-01T12:04:50Z")
    assert [(row["site"], row["state"], row["behind"]) for row in page["rows"][:2]] == [
        ("site-0003", "silent", 290),
        ("site-0103", "silent", 290),
    ]
    assert page["rows"][0]["seen"] == "2026-01-02T00:00:00Z"
    ahead = get(client, "sites", state="ahead")["rows"]
    assert [row["site"] for row in ahead] == [f"site-{number:04}" for number in range(5, sites, 100)]
    assert {(row["behind"], row["ahead"]) for row in ahead} == {(-79_200, 4)}
    assert {row["ahead_seen"] for row in ahead} == {"2026-01-02T00:29:00Z"}


def test_pages_of_sites(many):
    client, sites, _ = many
    names = []
    for offset in range(0, sites + 70, 70):
        names += [row["site"] for row in get(client, "sites", limit=70, offset=offset)["rows"]]
    assert len(names) == sites
    assert sorted(names) == [f"site-{number:04}" for number in range(sites)]
    assert len(get(client, "sites")["rows"]) == 100
    for wrong in ({"limit": 1001}, {"limit": 0}, {"offset": -1}, {"state": "asleep"}):
        assert client.get("/api/sites", params=wrong).status_code == 400


def test_questions_over_all_sites(many):
    client, sites, _ = many
    for when in ({}, {"last": "500" if many[2] == "integer" else "500s"}):
        estimate = get(client, "count", key="/", **when)["estimate"]
        assert estimate["low"] <= sites <= estimate["high"]
        estimate = get(client, "total", **when)["estimate"]
        assert estimate["low"] <= 2 * sites <= estimate["high"]
    assert get(client, "top", k=1)["rows"][0]["key"] == "/"


def test_answers_do_not_grow_with_the_sites(many):
    client, sites, _ = many
    totals = get(client, "site-totals")
    assert (totals["sites"], len(totals["rows"])) == (sites, 100)
    assert totals["rows"][0]["site"] == f"site-{sites - 1:04}"  # which had the most rows
    assert {row["total"]["value"] for row in totals["rows"]} == {2}
    about = get(client, "about")
    assert (about["site_count"], len(about["sites"])) == (sites, min(sites, 1000))
    for path in ("about", "sites", "site-totals"):
        assert len(client.get(f"/api/{path}").content) < 50_000


def test_late_and_rejected_rows(many):
    client, _, moment = many
    late = response_model(UncountedDocument).model_validate(get(client, "late", limit=3)).model_dump()
    assert [row["batch"] for row in late["rows"]] == [29, 28, 27]
    assert (late["reasons"], late["complete"]) == ([{"reason": "late", "rows": 30}], True)
    assert late["rows"][0]["time"] == (1_790_000_290 if moment == "integer" else "2026-01-01T12:04:50Z")
    rejected = get(client, "rejected", reason="no key", limit=2)
    assert [row["reason"] for row in rejected["rows"]] == ["no key: 29", "no key: 28"]
    assert {one["reason"]: one["rows"] for one in rejected["reasons"]} == {"no key": 30, "no time": 30}
    assert get(client, "late", site="site-0007")["reasons"] == [{"reason": "late", "rows": 1}]
    assert [row["row"] for row in get(client, "late", site="site-0007")["rows"]] == ['{"batch": 7}']
    assert get(client, "late", site="nowhere") == {"reasons": [], "complete": True, "rows": []}
    assert client.get("/api/late", params={"limit": 10_001}).status_code == 400


def test_times_end_with_z(many):
    client, _, _ = many
    for path in ("about", "health", "answers", "runs", "sites", "site-totals", "late", "rejected", "total", "top"):
        get(client, path)  # which may need preparing
        assert "+00:00" not in client.get(f"/api/{path}").text, path


def test_metrics_have_no_series_for_each_site(many):
    client, sites, moment = many
    families = list(text_string_to_metric_families(client.get("/metrics").text))
    values = {one.name: one.value for family in families for one in family.samples if not one.labels}
    states = [values[f"lately_{state}_sites"] for state in ("silent", "ahead", "behind")]
    assert states == [sites // 100, sites // 100, 0]
    assert values["lately_site_lag" if moment == "integer" else "lately_site_lag_seconds"] == 290
    assert values["lately_ahead_rows_total"] == 4 * (sites // 100)
    assert not any("site" in label for family in families for one in family.samples for label in one.labels)
