"""``lately query`` says what the library says of a store, as data and as tables, and refuses in one line."""

import re
import shutil
from pathlib import Path

import pytest
from cli_cases import assert_refused, assert_wrong_usage, cells_of, data_of, run, run_apart, without_colours
from cli_stores import PAGES, QUESTIONS, REJECTED, SITES, traffic
from store_builder import RUN, new_store, put_batch

import lately as lt
from lately import config
from lately.core.json_encoding import to_json
from lately.service.request_models import QuantilesParams
from lately.store.questions import Questions
from lately.store.view import View

pytestmark = pytest.mark.usefixtures("wide_and_plain")


def ask(store, *args):
    return run("query", *args, "--store", store)


def data(store, *args):
    return data_of(ask(store, *args, "--json"))


def exactly(page, since=0, until=1800, sites=SITES):
    return sum(traffic(site)[0][since:until].count(page) for site in sites)


@pytest.fixture
def questions(shop):
    return Questions(View(shop))


# -- what it says ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_every_question_is_answered_as_data_and_as_a_table(question, shop):
    document = data(shop, *question)
    assert document
    result = ask(shop, *question)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    rows = document.get("rows", [document])
    if rows and "sites" not in document:
        assert len(cells_of(result.stdout)) == len(rows)


def test_counts_are_those_of_the_library(shop, questions):
    document = data(shop, "count", "/cart", "/nowhere", "--last", "10m", "--site", "paris")
    counts = questions.counts(["/cart", "/nowhere"], last="10m", sites=["paris"])
    assert document == {
        "rows": [{"key": key, "estimate": to_json(estimate)} for key, estimate in counts],
        "asof": "2026-01-01T00:29:59Z",
    }
    estimate = document["rows"][0]["estimate"]
    assert estimate["low"] <= exactly("/cart", 1199, sites=["paris"]) <= estimate["high"]
    assert estimate["confidence"] == 0.99
    (row,) = data(shop, "count", "/", "--from", "20m", "--to", "10m")["rows"]
    assert row["estimate"] == to_json(questions.count("/", between=("20m", "10m")))


def test_top_keys_come_in_their_order(shop, questions):
    document = data(shop, "top", "--last", "10m", "-k", 3)
    assert [(row["key"], row["estimate"]) for row in document["rows"]] == [
        (key, to_json(one)) for key, one in questions.top(3, last="10m")
    ]
    assert [row["key"] for row in document["rows"]] == PAGES[:3]
    each = data(shop, "top", "--each", "-k", 1)["sites"]
    assert {site: [row["key"] for row in rows] for site, rows in each.items()} == {site: ["/"] for site in SITES}


def test_other_questions_are_those_of_the_library(shop, questions):
    assert [row["estimate"] for row in data(shop, "quantiles", "0.5", "0.9")["rows"]] == [
        to_json(one) for _, one in questions.quantile([0.5, 0.9])
    ]
    assert data(shop, "range", 0, 99)["estimate"] == to_json(questions.count_range(0, 99))
    assert data(shop, "self-join")["estimate"] == to_json(questions.self_join())
    assert data(shop, "total", "--site", "lima")["estimate"] == to_json(questions.total(sites=["lima"]))
    product = questions.inner_product("ecm odd", "ecm even")
    assert data(shop, "inner-product", "both", "both")["estimate"] == to_json(product)


def test_the_default_quantiles_are_the_same_everywhere(shop, service):
    default = [0.5, 0.9, 0.99]
    page = (Path(lt.__file__).parent / "service" / "static" / "index.html").read_text()
    assert [row["q"] for row in data(shop, "quantiles")["rows"]] == default
    assert [row["q"] for row in data_of(run("query", "quantiles", "--url", service, "--json"))["rows"]] == default
    assert QuantilesParams().q == default
    assert config.Quantiles(name="q", kind="quantiles", lo=0, hi=1, resolution=0.1).q == default
    assert 'name="q" value="0.5, 0.9, 0.99"' in page


def test_a_stream_of_integers_is_asked_with_integers(flows):
    (row,) = data(flows, "count", "7", "--last", "100")["rows"]
    assert row["key"] == "7"
    assert row["estimate"]["low"] <= 1 <= row["estimate"]["high"]
    assert data(flows, "range", 0, 9, "--from", "200", "--to", "100")["estimate"]["value"] == 10
    assert data(flows, "range", 0, 9, "--from", "100")["estimate"]["value"] == 10
    assert data(flows, "total")["asof"] == 499
    assert_refused(ask(flows, "total", "--last", "10m"), "10m", "give an integer")
    assert_refused(ask(flows, "count", "/cart"), "/cart", "give an integer")


def test_what_the_pipeline_wrote_is_told(shop):
    document = data(shop, "answers", "hot")
    assert (document["batch"], document["time"]) == (2, "2026-01-01T00:29:59Z")
    assert [row["item"] for row in document["rows"]] == PAGES[:3]
    history = data(shop, "history", "hot", "--item", "/cart")
    assert [row["value"] for row in history["rows"]] == [99, 98, 97]
    assert [row["time"] for row in history["rows"]] == [f"2026-01-01T00:{minute}:59Z" for minute in ("09", "19", "29")]
    alerts = data(shop, "alerts")["rows"]
    assert [(row["batch"], row["state"], row["high"]) for row in alerts] == [(1, "firing", None), (2, "resolved", None)]
    assert [row["batch"] for row in data(shop, "runs", "--limit", 2)["rows"]] == [1, 2]


def test_sites_that_are_behind_or_ahead_are_told(shop, flows):
    document = data(shop, "sites")
    assert [(row["site"], row["behind"], row["state"]) for row in document["rows"]] == [
        ("paris", 9000.0, "behind"),  # there are too few batches to call it silent
        ("lima", 0.0, "ok"),
        ("oslo", -86_400.0, "ahead"),
    ]
    assert (document["newest"], document["lag"], document["tolerance"]) == ("2026-01-01T00:29:59Z", 9000.0, 3000.0)
    assert (document["sites"], document["silent"], document["ahead"], document["behind"]) == (3, 0, 1, 1)
    assert (document["rows"][2]["ahead"], document["rows"][2]["ahead_seen"]) == (5, "2026-01-01T02:00:00Z")
    assert [row["site"] for row in data(shop, "sites", "--limit", 1)["rows"]] == ["paris"]
    assert [row["site"] for row in data(shop, "sites", "--state", "ahead")["rows"]] == ["oslo"]
    shown = ask(shop, "sites").stdout
    assert shown.startswith("3 sites: 0 silent, 1 ahead, 1 behind, up to 2026-01-01 00:29:59\n")
    numbers = ["600", "2", "1", "0"]
    assert cells_of(shown)[0] == ["paris", "behind", "2025-12-31 21:59:59", "2h 30m", "2026-01-01 00:00:00", *numbers]
    assert "behind; 1 shown, up to" in ask(shop, "sites", "--limit", 1).stdout
    assert data(flows, "sites")["rows"][0]["state"] is None  # a store of an earlier version has no snapshot


def test_rejected_rows_come_with_their_reasons(shop):
    document = data(shop, "rejected")
    assert [(row["batch"], row["site"], row["reason"]) for row in document["rows"]] == REJECTED[::-1]
    assert document["reasons"] == [{"reason": "no key", "rows": 2}, *document["reasons"][1:]]
    assert {one["reason"]: one["rows"] for one in document["reasons"]} == {"no key": 2, "count is negative": 1, "no time": 1}
    assert document["complete"]
    at_lima = data(shop, "rejected", "--site", "lima", "--reason", "no", "--limit", 1)
    assert [(row["batch"], row["reason"]) for row in at_lima["rows"]] == [(2, "no time")]
    assert sum(one["rows"] for one in at_lima["reasons"]) == 3
    shown = ask(shop, "rejected", "--limit", 1).stdout
    assert shown.startswith("4 rejected rows: 2 no key, 1 ")
    assert cells_of(shown) == [["2026-01-01 00:29:59", "2", "lima", "no time", '{"page":"/[red]"}']]
    assert ask(shop, "late").stdout == "No late rows.\n"
    assert data(shop, "late") == {"reasons": [], "complete": True, "rows": []}


def test_tables_say_what_is_asked_and_how_sure_it_is(shop):
    shown = ask(shop, "count", "/cart", "--last", "10m", "--site", "paris").stdout
    (row,) = data(shop, "count", "/cart", "--last", "10m", "--site", "paris")["rows"]
    estimate = row["estimate"]
    assert shown.startswith("arrivals in the last 10m at paris, up to 2026-01-01 00:29:59\n")
    assert cells_of(shown) == [["/cart", str(estimate["value"]), f"{estimate['low']} … {estimate['high']}", "99%"]]
    assert "The true value is between low and high with at least this confidence." in shown
    bars = [row[-1] for row in cells_of(ask(shop, "top", "--last", "10m").stdout)]
    assert bars[0] == "█" * 24
    assert [len(bar) for bar in bars] == sorted((len(bar) for bar in bars), reverse=True)
    alerts = cells_of(ask(shop, "alerts").stdout)
    assert ["rush", "–", "2026-01-01 00:19:59", "firing", "120", "110 … ∞", "99%"] in alerts
    assert [row[3] for row in alerts] == ["firing", "resolved"]
    runs = cells_of(ask(shop, "runs").stdout)
    assert runs[0] == ["0", "2026-01-01 00:09:59", "1,800", "7", "3", "0.25", "2.0 KiB", "87.9 KiB"]
    assert "[red]/odd\\x1b[2J" in ask(shop, "top").stdout


def test_ranges_without_anything_say_so(shop, flows):
    assert "No answers of 'both' so far." in ask(shop, "history", "both").stdout
    assert ask(flows, "alerts").stdout == "No alerts so far.\n"
    assert "No answers yet" in ask(flows, "answers").stdout


# -- where the store is ------------------------------------------------------------------------------------------------


def test_the_store_is_named_or_in_the_environment_or_here(shop, flows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LATELY_STORE", raising=False)
    assert_refused(run("query", "top"), "'store'", "--store PATH", "LATELY_STORE", "--url URL")
    (tmp_path / "store").symlink_to(shop)
    assert data_of(run("query", "top", "--json")) == data(shop, "top")
    monkeypatch.setenv("LATELY_STORE", flows)
    assert data_of(run("query", "total", "--json"))["estimate"]["value"] == 500
    assert data(shop, "total")["estimate"]["value"] == 5400


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "named"),
    [
        (["count", "/", "--site", "rome"], ["'rome'", "'lima'", "'paris'"]),
        (["count", "/", "--of", "hottest"], ["'hottest'", "'hot'"]),
        (["count", "/", "--last", "2h"], ["2h", "1h"]),
        (["count", "/", "--last", "soon"], ["'soon'", "10m"]),
        (["count", "/", "--from", "10m", "--to", "20m"], ["backwards"]),
        (["count", "/", "--of", "latency"], ["'latency'", "count"]),
        (["quantiles", "1.5"], ["1.5"]),
        (["quantiles", "nan"], ["nan"]),
        (["answers", "cold"], ["'cold'", "'hot'"]),
        (["history", "cold"], ["'cold'", "'hot'"]),
        (["inner-product", "hot", "none"], ["'hot'"]),
        (["history", "hot"], ["--item", "'/cart'"]),
        (["history", "latency", "--item", "0.5"], ["--site", "'lima'"]),
    ],
    ids=lambda value: " ".join(value),
)
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_what_the_store_does_not_have_is_refused_in_one_line(question, named, options, shop):
    assert_refused(ask(shop, *question, *options), *named)


def test_no_store_is_refused_with_the_remedy(shop, tmp_path):
    assert_refused(ask(tmp_path / "nowhere", "top"), "nowhere", "[store] path")
    assert_refused(ask(tmp_path, "top"), tmp_path, "about.json")
    (tmp_path / "file").write_text("a file")
    assert_refused(ask(tmp_path / "file", "top"), "file")


def test_a_store_without_sketches_says_what_to_write(tmp_path):
    store = new_store(tmp_path / "bare", name="bare", keys="text")
    assert_refused(ask(store.path, "top"), "no sketches", 'sketches = "always"')
    assert data(store.path, "runs") == {"rows": []}
    put_batch(store, 0, None, run=RUN)
    assert data(store.path, "runs")["rows"][0]["time"] is None
    assert ask(store.path, "runs").exit_code == 0
    assert (data(store.path, "sites")["rows"], data(store.path, "sites")["sites"]) == ([], 0)
    assert ask(store.path, "sites").stdout == "No sites so far.\n"


def test_keys_of_any_bytes_are_taken(shop):
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")  # as Python hands on what a shell was given
    result = ask(shop, "count", odd)
    assert result.exit_code in (0, 1)
    assert "Traceback" not in result.output
    assert_refused(ask(shop, "count", "/", "--site", odd), "caf")


def test_damaged_files_are_told_in_one_line(shop, tmp_path):
    shutil.copytree(shop, tmp_path / "damaged")
    for file in (tmp_path / "damaged" / "answers").iterdir():
        file.write_bytes(b"PAR1 and then the lights went out")
    assert_refused(ask(tmp_path / "damaged", "answers"), "lately store check")


@pytest.mark.parametrize(
    ("question", "named"),
    [
        (["forecast"], "forecast"),
        (["count"], "KEY"),
        (["history"], "QUERY"),
        (["range", "a", "b"], "LO"),
        (["top", "-k", "0"], "-k"),
        (["top", "--last", "1m", "--from", "2m"], "--last"),
        (["top", "--to", "2m"], "--from"),
        (["top", "--url", "http://127.0.0.1:1"], "--url"),
        (["quantiles", "half"], "Q"),
        (["runs", "--limit", "0"], "--limit"),
        (["sites", "--state", "asleep"], "--state"),
        (["rejected", "--limit", "0"], "--limit"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_wrong_usage_is_known(question, named, shop):
    assert_wrong_usage(ask(shop, *question), named)


def test_no_question_shows_the_help():
    result = run("query")
    assert result.exit_code == 2
    assert "inner-product" in without_colours(result.output)


# -- how wide it is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["60", "80", None])
@pytest.mark.parametrize("question", [["runs"], ["top"], ["history", "hot", "--item", "/cart"]], ids=lambda one: one[0])
def test_no_digit_is_lost_in_a_narrow_terminal_or_a_pipe(question, columns, shop, monkeypatch):
    expected = {cell for row in cells_of(ask(shop, *question).stdout) for cell in row if re.fullmatch(r"[\d,.:\- …]*\d", cell)}
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    done = run_apart("query", *question, "--store", shop, **({} if columns is None else {"COLUMNS": columns}))
    assert done.returncode == 0, done.stderr
    cells = {cell for row in cells_of(done.stdout) for cell in row}
    assert expected
    assert expected <= cells
    if columns is None:
        assert done.stdout == ask(shop, *question).stdout  # as wide as the content, as where there is room
