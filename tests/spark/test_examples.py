"""The pipelines and the notebook in examples/ run, and say what is in the data."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from patience import PATIENCE

from lately.config import parse
from lately.spark.pipeline import Pipeline
from lately.store import Store

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("weblogs", "trades", "flows")


@pytest.fixture(scope="module")
def top(tmp_path_factory):
    """A folder with the data of all examples, made as users make it."""
    folder = tmp_path_factory.mktemp("examples")
    command = [sys.executable, str(EXAMPLES / "make_data.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert len(done.stdout.splitlines()) == len(NAMES)
    return folder


@pytest.fixture(scope="module")
def stores(top, spark):
    """What the pipelines have answered, by name."""
    store_of_pipeline = {}
    for name in NAMES:
        text = (EXAMPLES / name / "pipeline.toml").read_text().replace("examples/", f"{top}/")
        pipeline = Pipeline(parse(text, name))
        pipeline.run(spark)
        store_of_pipeline[name] = pipeline.store
    return store_of_pipeline


def answers(store: Store, query):
    """The newest answers to a query: item to row, and by site where there are several."""
    rows = store.read("answers").to_pylist()
    newest = max(row["batch"] for row in rows)
    return {(row["site"], row["item"]): row for row in rows if row["batch"] == newest and row["query"] == query}


def lines(folder):
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_no_row_is_lost(stores, top, name):
    runs = stores[name].read("runs").to_pydict()
    headers = 2 if name == "trades" else 0
    assert sum(runs["counted"]) == len(lines(top / name / "data")) - headers == 20_000
    assert sum(runs["late"]) == sum(runs["rejected"]) == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_query_is_answered_and_every_sketch_is_there(stores, name):
    text = (EXAMPLES / name / "pipeline.toml").read_text()
    names = {query.name for query in parse(text, name).queries}
    assert {row["query"] for row in stores[name].read("answers").to_pylist()} >= names
    assert stores[name].read("sketches").num_rows > 0


def test_weblogs_has_the_hot_pages_in_its_logs(stores, top):
    seen = Counter()
    for line in lines(top / "weblogs" / "data"):
        if "[01/Jun/2026:09:2" in line:
            seen[line.split('"GET ')[1].split("?")[0]] += 1
    rows = answers(stores["weblogs"], "hot pages")
    assert (None, "/") in rows
    for (_, path), row in rows.items():
        assert row["low"] <= seen[path] <= row["high"], path
    assert {site for site, _ in answers(stores["weblogs"], "hot pages by site")} == {"paris", "tokyo", "lima"}


def test_trades_has_the_rush(stores, top):
    shares, moved = Counter(), 0.0
    for line in lines(top / "trades" / "data"):
        at, _, symbol, price, amount = line.split(",")
        if at[10:] > "T09:24:59Z":
            shares[symbol] += int(amount)
            moved += float(price) * int(amount)
    busy = answers(stores["trades"], "busy symbols")
    assert {symbol: row["value"] for (_, symbol), row in busy.items()} == {
        symbol: count for symbol, count in shares.items() if count > 50_000
    }
    assert (None, "EOX") in busy
    (turnover,) = answers(stores["trades"], "turnover").values()
    assert turnover["value"] == pytest.approx(moved)
    for (_, symbol), row in answers(stores["trades"], "most traded").items():
        assert row["low"] <= shares[symbol] <= row["high"]


def test_flows_tells_of_the_scan(stores):
    alerts = stores["flows"].read("alerts").to_pylist()
    assert [(row["monitor"], row["state"]) for row in alerts] == [("scan", "firing")]
    assert (None, "2323") in answers(stores["flows"], "busiest ports")
    ports = answers(stores["flows"], "ports")
    assert [item for _, item in ports] == ["0..1023", "1024..49151", "49152..65535"]


def test_an_example_runs_as_it_says(tmp_path):
    """As people do it, on Spark's own defaults, in a folder like the one of the source."""
    folder = tmp_path / "examples" / "flows"
    folder.mkdir(parents=True)
    for name in ("make_data.py", "flows/pipeline.toml"):
        (tmp_path / "examples" / name).write_text((EXAMPLES / name).read_text())
    subprocess.run([sys.executable, "examples/make_data.py"], cwd=tmp_path, capture_output=True, check=True, timeout=PATIENCE)
    command = [sys.executable, "-m", "lately", "run", "examples/flows/pipeline.toml"]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "answers are in examples/flows/store" in done.stdout


def test_the_tour_runs(tmp_path):
    """In a process of its own, as Jupyter has warnings of its own."""
    code = """
import sys
import nbformat
from nbclient import NotebookClient

book = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(book)
NotebookClient(book, timeout=int(sys.argv[2]), kernel_name="python3").execute()
print("".join(out["text"] for cell in book.cells for out in cell.get("outputs", ()) if out.get("name") == "stdout"))
"""
    command = [sys.executable, "-c", code, str(EXAMPLES / "tour.ipynb"), str(PATIENCE)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    for text in ("/tickets", "the alarm came", "Estimate("):
        assert text in done.stdout
