"""Hundreds and thousands of sites in every mode: every row is accounted for, and answers agree with brute force.

A third of the sites has one row, in the first file, and is silent from then on; a third appears in the last file; a third has
rows in all of them.
"""

import threading
import time
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from naive import hoeffding
from pipelines import START, add_file, content, last_answers, micros, table

from lately.pipeline.task_payload import unpacked
from lately.spark import micro_batch
from lately.spark.pipeline import Pipeline

QUERIES = [
    {"name": "top", "kind": "top", "k": 5, "last": "5m"},
    {"name": "values", "kind": "quantiles", "lo": 0, "hi": 100, "resolution": 0.5},
    {"name": "counts", "kind": "counts", "keys": [0, 1, 2]},
    {"name": "counts of sites", "kind": "counts", "keys": [0], "by": "site", "last": "3m"},
    {"name": "skew", "kind": "self-join"},
    {"name": "sum of sites", "kind": "exact", "aggregate": "sum", "of": "ms", "last": "5m", "by": "site"},
    {"name": "busy", "kind": "exact", "aggregate": "count", "per": "key", "above": 20},
]
RUSH = {"name": "rush", "kind": "count", "key": 0, "theta": 0.2, "last": "10m"}
#: Seconds of the stream in a file.
STEP = 60
#: Seconds after which a stream that does not end is taken for one that hangs.
HANGS = 3600


def names_of(count, kind):
    return np.arange(count) * 7 - 5 if kind == "integer" else np.array([f"site {number:05d}" for number in range(count)])


def files_of(count, files, kind, seed=5):
    """The rows of each file; some of the last one are older than what their sites had, and some have no key."""
    random, names = np.random.default_rng(seed), names_of(count, kind)
    once, new, steady = (np.arange(count)[third::3] for third in range(3))
    made = []
    for number in range(files):
        last = number == files - 1
        sites = np.concatenate([once if number == 0 else new if last else [], steady, steady]).astype(int)
        random.shuffle(sites)
        seconds = np.sort(random.integers(0, (STEP - 1) * 1000, sites.size)) / 1000 + number * STEP
        keys = np.minimum(random.zipf(1.5, sites.size) - 1, 200)
        no_key = random.random(sites.size) < 0.02 if last else np.zeros(sites.size, bool)
        if last and files > 1:
            sites, keys = np.append(sites, steady[:7]), np.append(keys, [0] * 7)
            seconds, no_key = np.append(seconds, [0.5] * 7), np.append(no_key, [False] * 7)
        made.append(
            pa.table(
                {
                    "ts": pa.array((seconds * 10**6).astype(np.int64) + micros(START), pa.timestamp("us", "UTC")),
                    "key": pa.array(keys.astype(np.int64), mask=no_key),
                    "site": pa.array(names[sites]),
                    "ms": random.integers(0, 800, sites.size) / 8,
                }
            )
        )
    return made


def finish(spark, config, batches):
    """Run to the end; a continuous stream is stopped after its last file."""
    pipeline = Pipeline.of(config)
    ended = threading.Event()

    def stop():
        if ended.wait(HANGS):
            while pipeline._query.status["isTriggerActive"]:
                time.sleep(0.05)
        pipeline.stop()

    def on_batch(report):
        if report.batch == batches - 1:
            ended.set()

    if config["source"]["mode"] == "continuous":
        threading.Thread(target=stop, daemon=True).start()
    assert pipeline.run(spark, on_batch) == batches


class Truth:
    """The rows that count, and what they answer."""

    def __init__(self, files, streamed):
        rows, newest = [], {}
        self.late = self.rejected = 0
        # What arrives at once is sorted; what is older than what its site had before is late.
        for part in files if streamed else [pa.concat_tables(files)]:
            seconds = part["ts"].cast(pa.int64()).to_numpy() // 10**6
            columns = (part["site"].to_pylist(), seconds.tolist(), part["key"].to_pylist(), part["ms"].to_pylist())
            taken = []
            for site, second, key, ms in zip(*columns, strict=True):
                if key is None:
                    self.rejected += 1
                elif second < newest.get(site, second):
                    self.late += 1
                else:
                    taken.append((str(site), second, key, ms))
            rows += taken
            for site, second, key in zip(*columns[:3], strict=True):
                if key is not None:
                    newest[site] = max(newest.get(site, second), second)
        self.rows, self.now = rows, max(row[1] for row in rows)
        self.sites = {row[0] for row in rows}

    def last(self, seconds):
        return [row for row in self.rows if row[1] > self.now - seconds]


def check(config, files, streamed):
    truth = Truth(files, streamed)
    runs = table(config, "runs")
    totals = {name: sum(run[name] for run in runs) for name in ("rows", "counted", "late", "rejected")}
    assert totals == {
        "rows": sum(part.num_rows for part in files),
        "counted": len(truth.rows),
        "late": truth.late,
        "rejected": truth.rejected,
    }
    assert len(table(config, "late")) == truth.late
    assert len(table(config, "rejected")) == truth.rejected
    assert runs[-1]["sites"] == len(truth.sites)
    newest = {row["site"]: row["counted"] for row in table(config, "sites") if row["batch"] == runs[-1]["batch"]}
    assert newest == Counter(row[0] for row in truth.rows)
    answers = defaultdict(dict)
    for row in last_answers(config):
        answers[row["query"]][row["site"], row["item"]] = row["low"], row["value"], row["high"]
    check_exact(answers, truth)
    check_sketched(answers, truth)
    return answers, truth


def check_exact(answers, truth):
    sums = dict.fromkeys(truth.sites, None)
    for site, _, _, ms in truth.last(300):
        sums[site] = (sums[site] or 0) + ms
    assert {site: value for (site, _), (_, value, _) in answers["sum of sites"].items()} == sums
    counts = Counter(str(row[2]) for row in truth.last(600))
    busy = {key: float(count) for key, count in counts.items() if count > 20}
    assert {key: value for (_, key), (_, value, _) in answers["busy"].items()} == busy
    assert busy


def check_sketched(answers, truth):
    def outside(bounds, real):
        return sum(not low <= real(item) <= high for item, (low, _, high) in bounds.items()) / len(bounds)

    def too_many(bounds, real):
        """Upper bounds are certain; lower ones of counts may be wrong, each with a probability of 0.1."""
        assert all(real(item) <= high for item, (_, _, high) in bounds.items())
        return outside(bounds, real) > hoeffding(len(bounds), 0.1, doubt=1e-3) / len(bounds)

    whole, recent = (Counter(row[2] for row in truth.last(seconds)) for seconds in (600, 300))
    assert not too_many(answers["top"], lambda item: recent[int(item[1])])
    assert (None, str(recent.most_common(1)[0][0])) in answers["top"]
    assert not too_many(answers["counts"], lambda item: whole[int(item[1])])
    assert outside(answers["skew"], lambda item: sum(count**2 for count in whole.values())) == 0
    values = np.array([row[3] for row in truth.last(600)])
    assert outside(answers["values"], lambda item: np.quantile(values, float(item[1]), method="inverted_cdf")) == 0
    alone = Counter(row[0] for row in truth.last(180) if row[2] == 0)
    assert {site for site, _ in answers["counts of sites"]} == truth.sites
    assert not too_many(answers["counts of sites"], lambda item: alone[item[0]])
    if "rush" in answers:
        assert outside(answers["rush"], lambda item: whole[0]) == 0


def run_and_check(spark, folder, count, mode, kind, files=3):
    rows = files_of(count, files, kind)
    (folder / "source").mkdir()
    for number, part in enumerate(rows):
        add_file(part, folder / "source", number)
    config = content(
        folder / "source",
        folder,
        mode,
        columns={"value": "ms"},
        queries=QUERIES,
        window={"length": "10m", "ahead": "any"},  # sites of a few rows have any gaps between them
        monitors=[RUSH] if mode != "batch" else [],  # monitors watch streams
        store={"sketches": "never"},
    )
    config["source"]["columns"] = f"ts timestamp, key bigint, site {'bigint' if kind == 'integer' else 'string'}, ms double"
    if mode == "continuous":
        config["run"]["trigger"] = "1 second"
    streamed = mode != "batch"
    finish(spark, config, files if streamed else 1)
    answers, truth = check(config, rows, streamed)
    assert ("rush" in answers) == streamed
    return truth


@pytest.mark.parametrize(("mode", "kind"), [("batch", "text"), ("available-now", "integer"), ("continuous", "text")])
def test_three_hundred_sites(spark, tmp_path, mode, kind):
    truth = run_and_check(spark, tmp_path, 300, mode, kind)
    assert len(truth.sites) == pytest.approx(300, abs=5)  # the only row of a site may be one of those without a key
    assert truth.rejected
    assert bool(truth.late) == (mode != "batch")


@pytest.mark.parametrize(("mode", "kind"), [("batch", "integer"), ("available-now", "text")])
def test_three_thousand_sites(spark, tmp_path, mode, kind):
    truth = run_and_check(spark, tmp_path, 3000, mode, kind, files=2)
    assert len(truth.sites) == pytest.approx(3000, abs=40)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "kind"), [("batch", "text"), ("available-now", "integer"), ("continuous", "text")])
def test_ten_thousand_sites(spark, tmp_path, mode, kind):
    truth = run_and_check(spark, tmp_path, 10_000, mode, kind)
    assert len(truth.sites) == pytest.approx(10_000, abs=100)


def test_sites_whose_rows_have_left_the_window_are_not_read(spark, tmp_path, monkeypatch):
    """They add nothing to what is asked of all sites; once they have rows again they count."""
    sites_read = []
    job = micro_batch.partial_answers_job

    def noting(plan, state, now, chunks):
        sites_read.append(sorted(site for chunk in chunks for site in unpacked(chunk)))
        return job(plan, state, now, chunks)

    monkeypatch.setattr(micro_batch, "partial_answers_job", noting)
    (tmp_path / "source").mkdir()
    batches = [("old", 0), ("quiet", 400), ("new", 600), ("old", 700)]
    for number, (site, second) in enumerate(batches):
        ts = pa.array([micros(START) + second * 10**6], pa.timestamp("us", "UTC"))
        add_file(pa.table({"ts": ts, "key": [3], "site": [site], "ms": [1.0]}), tmp_path / "source", number)
    queries = [{"name": "skew", "kind": "self-join"}, {"name": "n", "kind": "exact", "aggregate": "count"}]
    config = content(tmp_path / "source", tmp_path, queries=queries)
    config["source"]["columns"] = "ts timestamp, key bigint, site string, ms double"
    assert Pipeline.of(config).run(spark) == 4
    assert sites_read == [["old"], ["quiet"], ["new", "quiet"]]
    values = {(row["batch"], row["query"]): row["value"] for row in table(config, "answers")}
    # A window of 600 seconds holds those after 600 - 600 and after 700 - 600.
    assert [values[batch, "skew"] for batch in range(4)] == [1, 4, 4, 9]
    assert [values[batch, "n"] for batch in range(4)] == [1, 2, 2, 3]
