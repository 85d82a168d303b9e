"""A pipeline is what the library makes of the same rows, however they are cut; what goes wrong leaves its state as it was."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pytest
from naive import hoeffding
from pipelines import (
    SITES,
    add_file,
    answers_to,
    content,
    events,
    in_order,
    in_range,
    last_answers,
    last_sketches,
    run,
    shuffled,
    table,
    write_files,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import lately as lt
from lately.core.errors import InputError, LatelyError, ParameterError
from lately.pipeline.state_versions import KEEP, StateVersions
from lately.spark.pipeline import Pipeline

BUYS = "event = 'buy'"
KEYS = list(range(60))
SKETCHED = [
    {"name": "counts", "kind": "counts", "keys": KEYS, "last": "5m"},
    {"name": "counts of buys", "kind": "counts", "keys": KEYS, "by": "site", "where": BUYS},
    {"name": "top", "kind": "top", "k": 5},
    {"name": "top of sites", "kind": "top", "k": 5, "by": "site", "last": "3m"},
    {"name": "values", "kind": "quantiles", "lo": 0, "hi": 100, "resolution": 0.5, "last": "4m"},
    {"name": "values of sites", "kind": "quantiles", "lo": 0, "hi": 100, "resolution": 0.5, "by": "site"},
    {"name": "ranges", "kind": "ranges", "universe": 1024, "ranges": [[0, 3], [4, 100], [5, 1023]], "last": "4m"},
    {"name": "ranges of sites", "kind": "ranges", "universe": 1024, "ranges": [[0, 3]], "by": "site"},
    {"name": "skew", "kind": "self-join"},
    {"name": "skew of sites", "kind": "self-join", "by": "site", "last": "2m"},
    {"name": "pairs", "kind": "join", "left": "event = 'view'", "right": BUYS, "last": "6m"},
    {"name": "pairs of sites", "kind": "join", "left": "event = 'view'", "right": BUYS, "by": "site"},
]
EXACT = [
    {"name": "n", "kind": "exact", "aggregate": "count", "last": "1m"},
    {"name": "sum of sites", "kind": "exact", "aggregate": "sum", "of": "ms", "last": "1m", "by": "site"},
    {"name": "mean of buys", "kind": "exact", "aggregate": "avg", "of": "ms", "where": BUYS},
    {"name": "worst", "kind": "exact", "aggregate": "max", "of": "ms", "last": "10s"},
    {"name": "p90", "kind": "exact", "aggregate": "quantile", "of": "ms", "q": 0.9, "last": "2m"},
]
GROUPS = [
    {"name": "busy", "kind": "exact", "aggregate": "count", "per": "key", "above": 50, "last": "5m"},
    {"name": "slow of sites", "kind": "exact", "aggregate": "max", "of": "ms", "per": "key", "above": 95, "by": "site"},
]
ALL = [*SKETCHED, *EXACT, *GROUPS]
VALUE = {"value": "ms"}


@pytest.fixture(scope="module")
def rows():
    return events()


@pytest.fixture(scope="module")
def batch(spark, rows, tmp_path_factory):
    """What a batch over all the rows has said."""
    folder = tmp_path_factory.mktemp("batch")
    config = content(write_files(rows, folder / "source", 20), folder, "batch", columns=VALUE, queries=ALL)
    run(spark, config)
    return config


# -- the library's own -----------------------------------------------------------------------------------------------


def built(name, site, lateness=None):
    """The sketch that a name in the table ``sketches`` stands for."""
    options = {"window": "10m", "eps": 0.1, "delta": 0.1} | ({"lateness": lateness} if lateness else {})
    if name.startswith("ecm"):
        return lt.EcmSketch(**options), "key"
    if name.startswith("ams"):
        sketch = lt.WindowedAmsSketch(**options)
        sketch.draw_phases(f"{name} {site}")
        return sketch, "key"
    if name.startswith("topk"):
        return lt.TopK(k=1, **options), "key"
    if name.startswith("quantiles"):
        return lt.Quantiles(lo=0, hi=100, resolution=0.5, outside="clip", **options), "ms"
    return lt.Dyadic(universe=1024, **options), "key"


def by_hand(rows, name, site, lateness=None):
    """The sketch of a site's rows that pass its filter."""
    keep = np.array(rows["site"].to_pylist()) == site
    for event in ("buy", "view"):
        if f"event = '{event}'" in name:
            keep &= np.array(rows["event"].to_pylist()) == event
    site_rows = rows.filter(pa.array(keep))
    sketch, column = built(name, site, lateness)
    sketch.update(site_rows[column].to_numpy(), site_rows["ts"].combine_chunks())
    return sketch


def test_sketches_are_those_of_the_library(batch, rows):
    sketches = last_sketches(batch)
    assert len(sketches) == 3 * 8  # two for points, three for pairs, one for each of the others: the rest is shared
    for (site, name), blob in sketches.items():
        assert by_hand(rows, name, site).to_bytes() == blob, (site, name)


def test_answers_of_sites_are_those_of_the_library(batch, rows):
    newest = rows["ts"][-1].as_py()
    answers = {row["query"]: {} for row in last_answers(batch)}
    for row in last_answers(batch):
        answers[row["query"]][row["site"], row["item"]] = (row["value"], row["low"], row["high"], row["confidence"])

    def of(estimate):
        return estimate.value, estimate.low, estimate.high, estimate.confidence

    for site in SITES:
        made = {name: by_hand(rows, name, site) for _, name in last_sketches(batch)}
        for sketch in made.values():
            sketch.advance(newest)
        buys = next(sketch for name, sketch in made.items() if '"point"' in name and "buy" in name)
        for key, estimate in zip(KEYS, buys.counts(KEYS), strict=True):
            assert answers["counts of buys"][site, str(key)] == of(estimate)
        top = next(sketch for name, sketch in made.items() if name.startswith("topk"))
        for row in top.top(5, last="3m"):
            assert answers["top of sites"][site, str(row.key)] == of(row.count)
        values = next(sketch for name, sketch in made.items() if name.startswith("quantiles"))
        for row in values.quantile([0.5, 0.9, 0.99]):
            assert answers["values of sites"][site, f"{row.q:g}"] == of(row.value)
        tree = next(sketch for name, sketch in made.items() if name.startswith("dyadic"))
        assert answers["ranges of sites"][site, "0..3"] == of(tree.count_range(0, 3))
        views, buys, both = (
            next(sketch for name, sketch in made.items() if name.startswith("ams") and name.endswith(end))
            for end in ("'view'", "'buy'", '"10m"')
        )
        assert answers["pairs of sites"][site, None] == of(views.inner_product(buys))
        assert answers["skew of sites"][site, None] == of(both.self_join(last="2m"))


def test_text_is_hashed_by_the_jvm_as_by_the_library(spark, rows, tmp_path):
    config = content(
        write_files(rows.slice(0, 3_000), tmp_path / "source", 2),
        tmp_path,
        "batch",
        columns={"key": "concat('/page/', key)", "count": "n"},
        queries=[{"name": "c", "kind": "counts", "keys": ["/page/0", "/page/1", "/page/none"], "by": "site"}],
    )
    run(spark, config)
    few = rows.slice(0, 3_000)
    for (site, _), blob in last_sketches(config).items():
        site_rows = few.filter(pa.array(np.array(few["site"].to_pylist()) == site))
        sketch = lt.EcmSketch(window="10m", eps=0.1, delta=0.1)
        sketch.update(
            [f"/page/{key}" for key in site_rows["key"].to_pylist()],
            site_rows["ts"].combine_chunks(),
            site_rows["n"].to_numpy(),
        )
        assert sketch.to_bytes() == blob


# -- however it is cut -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [20, 7, 1])
def test_streams_say_what_a_batch_says(spark, batch, rows, tmp_path, files):
    config = content(batch["source"]["path"], tmp_path, files=files, columns=VALUE, queries=ALL)
    run(spark, config)
    runs = table(config, "runs")
    assert len(runs) == -(-20 // files)
    assert sum(row["counted"] for row in runs) == rows.num_rows
    assert last_answers(config) == last_answers(batch)
    assert last_sketches(config) == last_sketches(batch)
    check_retirement(tmp_path / "state" / "state", len(runs))


def check_retirement(folder, batches):
    """At most three versions are left, with no part that none of them needs, and little that is dead."""
    versions = StateVersions(str(folder))
    assert versions.batches() == list(range(batches))[-KEEP:]
    needed = {place[0] for batch in versions.batches() for place in versions.read(batch).all_places()}
    assert set(os.listdir(folder / "parts")) == needed
    for batch in versions.batches():
        version = versions.read(batch)
        size = sum(os.path.getsize(folder / "parts" / part) for part in version.parts)
        assert size == sum(version.parts.values()) <= 1.2 * version.live_bytes


@pytest.mark.parametrize("mode", ["batch", "available-now"])
def test_rows_of_one_time_may_come_in_any_order(spark, tmp_path, mode):
    rows = events(3_000, minutes=2)
    rows = rows.set_column(0, "ts", pa.compute.floor_temporal(rows["ts"], 10, "second"))
    outcomes = []
    for name, order in (("one", np.arange(3_000)), ("two", np.random.default_rng(1).permutation(3_000))):
        source = write_files(rows.take(order), tmp_path / f"{name} source", 4)
        config = content(source, tmp_path / name, mode, 4, columns=VALUE, queries=[*SKETCHED, *EXACT])
        run(spark, config)
        outcomes.append((last_answers(config), last_sketches(config)))
    assert outcomes[0] == outcomes[1]


def test_rows_out_of_order_within_lateness_are_all_counted(spark, rows, tmp_path):
    window = {"length": "10m", "lateness": "30s"}
    configs = []
    for name, ordered, mode in (("sorted", rows, "batch"), ("mixed", shuffled(rows, 30), "available-now")):
        source = write_files(ordered, tmp_path / f"{name} source", 4)
        config = content(source, tmp_path / name, mode, columns=VALUE, window=window, queries=[*SKETCHED, *EXACT])
        run(spark, config)
        assert sum(row["counted"] for row in table(config, "runs")) == rows.num_rows
        configs.append(config)
    plain, mixed = ({(row["query"], row["site"], row["item"]): row for row in last_answers(config)} for config in configs)
    for key, row in plain.items():
        if not key[0].startswith(("top", "values", "ranges")):  # those depend on the order within a tick, their bounds do not
            assert mixed[key] == row
    check_truth(configs[1], rows)


# -- the truth -------------------------------------------------------------------------------------------------------


def check_truth(config, rows):
    """Answers over all sites against brute force: ``rows`` in the ranges that end with the newest of all."""
    last = in_range(rows, 300)
    keys = np.bincount(last["key"].to_numpy(), minlength=1024)
    counts = answers_to(config, "counts")
    assert all(keys[key] <= counts[None, str(key)][2] for key in KEYS)  # certain; lower bounds may be wrong one time in ten
    assert sum(keys[key] < counts[None, str(key)][0] for key in KEYS) <= hoeffding(len(KEYS), 0.1, doubt=1e-3)
    keys = np.bincount(in_range(rows, 600)["key"].to_numpy(), minlength=1024)
    top = answers_to(config, "top")
    assert all(keys[int(item)] <= high for (_, item), (_, _, high) in top.items())
    assert sum(keys[int(item)] < low for (_, item), (low, _, _) in top.items()) <= hoeffding(len(top), 0.1, doubt=1e-3)
    top_keys = {int(item) for _, item in top}
    assert all(key in top_keys or keys[key] <= 0.1 * keys.sum() + sorted(keys)[-5] for key in range(1024))
    low, _, high = answers_to(config, "skew")[None, None]
    assert low <= (keys**2).sum() <= high
    last = in_range(rows, 240)
    tree = np.bincount(last["key"].to_numpy(), minlength=1024)
    for first, final in ((0, 3), (4, 100), (5, 1023)):
        low, value, high = answers_to(config, "ranges")[None, f"{first}..{final}"]
        assert low <= tree[first : final + 1].sum() <= high
        assert abs(value - tree[first : final + 1].sum()) <= 0.1 * last.num_rows
    values = np.sort(last["ms"].to_numpy())
    for (_, q), (low, value, high) in answers_to(config, "values").items():
        truth = values[max(int(np.ceil(float(q) * values.size)) - 1, 0)]
        assert low - 0.5 <= truth <= high + 0.5
        assert abs(np.searchsorted(values, value) / values.size - float(q)) <= 0.1
    left, right = (np.bincount(in_range(rows, 360, where=event)["key"].to_numpy(), minlength=1024) for event in ("view", "buy"))
    low, _, high = answers_to(config, "pairs")[None, None]
    assert low <= (left * right).sum() <= high
    check_exact(config, rows)


def check_exact(config, rows):
    """Exact answers are the truth."""
    assert answers_to(config, "n")[None, None][1] == in_range(rows, 60).num_rows
    for site in SITES:
        assert answers_to(config, "sum of sites")[site, None][1] == (in_range(rows, 60, site)["ms"].to_numpy().sum() or None)
    buys = in_range(rows, 600, where="buy")["ms"].to_numpy()
    assert answers_to(config, "mean of buys")[None, None][1] == pytest.approx(buys.mean(), rel=1e-12)
    assert answers_to(config, "worst")[None, None][1] == in_range(rows, 10)["ms"].to_numpy().max()
    low = np.quantile(in_range(rows, 120)["ms"].to_numpy(), 0.9, method="inverted_cdf")
    assert answers_to(config, "p90")[None, None][1] == low


def test_answers_over_all_sites_are_true(batch, rows):
    check_truth(batch, rows)
    last = in_range(rows, 300)
    keys = np.bincount(last["key"].to_numpy(), minlength=1024)
    assert answers_to(batch, "busy") == {(None, str(k)): (keys[k],) * 3 for k in range(1024) if keys[k] > 50}


@pytest.mark.parametrize("silence", ["for a while", "for long", "just as long as the range"])
def test_sites_that_fall_silent_or_have_clocks_of_their_own(spark, rows, tmp_path, silence):
    """Ranges end at the newest row of all sites; nothing older counts, whatever the others have seen."""
    seconds = (rows["ts"].cast(pa.int64()).to_numpy() - rows["ts"][0].value) // 10**6
    site = np.array(rows["site"].to_pylist())
    newest = rows["ts"][-1].value // 10**6
    if silence == "just as long as the range":
        ticks = rows["ts"].cast(pa.int64()).to_numpy() // 10**6
        sent = rows.filter(pa.array((site != "oslo") | (ticks <= newest - 300)))
    else:
        sent = rows.filter(pa.array((site != "oslo") | (seconds < (7 if silence == "for long" else 17) * 60)))
    times = sent["ts"].cast(pa.int64()).to_numpy()
    ahead = np.where(np.array(sent["site"].to_pylist()) == "pune", 0, -240 * 10**6)  # the others' clocks are four minutes slow
    moved = sent.set_column(0, "ts", pa.array(times + (ahead if silence == "for long" else 0), rows["ts"].type))
    config = content(
        write_files(moved, tmp_path / "source", 3), tmp_path, "available-now", columns=VALUE, queries=[*SKETCHED, *EXACT]
    )
    run(spark, config)
    assert sum(row["counted"] for row in table(config, "runs")) == moved.num_rows
    check_truth(config, moved)


# -- what goes wrong -------------------------------------------------------------------------------------------------

FAILURES = (LatelyError, PySparkException, Py4JJavaError)
FEW = [{"name": "hot", "kind": "top"}, {"name": "n", "kind": "exact", "aggregate": "count"}]


@pytest.fixture
def stream(rows, tmp_path):
    """A small stream of three files, of which two are there."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(2):
        add_file(rows.slice(400 * number, 400), source, number)
    return content(source, tmp_path, queries=FEW)


def state_of(config):
    """Every file of the state, by its name."""
    contents = {}
    for folder, _, names in os.walk(f"{config['run']['checkpoint']}/state"):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                contents[os.path.relpath(os.path.join(folder, name), folder)] = file.read()
    return contents


def changed(config, **tables):
    return {name: {**value, **tables[name]} if isinstance(value, dict) and name in tables else tables.get(name, value)
            for name, value in config.items()}  # fmt: skip


def test_files_that_cannot_be_read(spark, stream, rows, tmp_path, capfd):
    """The state stays as the last batch left it, and goes on from there once the file is mended."""
    run(spark, stream)
    before = state_of(stream)
    damaged = add_file(rows.slice(800, 400), tmp_path / "source", 2)
    with open(damaged, "rb") as file:
        whole = file.read()
    with open(damaged, "wb") as file:
        file.write(b"PAR1 or not" + whole[11:-20])
    with pytest.raises(FAILURES):
        run(spark, stream)
    assert state_of(stream) == before
    with open(damaged, "wb") as file:
        file.write(whole)
    os.utime(damaged, (1_700_000_002,) * 2)
    assert run(spark, stream).notes == []
    assert [row["rows"] for row in table(stream, "runs")] == [400, 400, 400]
    assert answers_to(stream, "n")[None, None][1] == in_range(rows.slice(0, 1200), 600).num_rows
    capfd.readouterr()


def test_a_file_that_vanishes_is_left_out(spark, stream, rows, tmp_path):
    """Spark's own streams of files do that without a word; nothing else is lost by it."""
    pipeline = Pipeline.of(stream)

    def vanish(done):
        if done.batch == 0:
            os.remove(tmp_path / "source" / "0001.parquet")

    assert pipeline.run(spark, vanish) == 2
    assert [row["rows"] for row in table(stream, "runs")] == [400, 0]
    add_file(rows.slice(800, 400), tmp_path / "source", 2)
    run(spark, stream)
    remaining = pa.concat_tables([rows.slice(0, 400), rows.slice(800, 400)])
    assert answers_to(stream, "n")[None, None][1] == in_range(remaining, 600).num_rows


def test_a_source_that_is_not_there(spark, stream):
    with pytest.raises(InputError, match="cannot read the source"):
        run(spark, changed(stream, source={"path": f"{stream['source']['path']}/nowhere"}))
    with pytest.raises(InputError, match="cannot read the source"):
        run(spark, changed(stream, source={"path": f"{stream['source']['path']}/nowhere", "mode": "batch"}))


@pytest.mark.parametrize(("place", "message"), [("store", "cannot write to the store"), ("run", "cannot write the state")])
def test_places_that_cannot_be_written_to(spark, stream, tmp_path, place, message):
    (tmp_path / "a file").write_text("in the way")
    where = {"path": str(tmp_path / "a file")} if place == "store" else {"checkpoint": str(tmp_path / "a file")}
    with pytest.raises(InputError, match=message):
        run(spark, changed(stream, **{place: where}))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"window": {"length": "20m"}}, "window.length is '20m' and was '10m'"),
        ({"window": {"length": "10m", "tick": "2s"}}, "window.tick is '2s' and was None"),
        ({"columns": {"key": "n"}}, "columns.key is 'n' and was 'key'"),
        ({"columns": {"site": "event"}}, "columns.site is 'event' and was 'site'"),
        ({"guarantee": {"eps": 0.05, "delta": 0.1}}, "the query 'hot' needs topk .*eps=0.05.* its state has topk .*eps=0.1"),
        ({"queries": [FEW[0] | {"where": BUYS}, FEW[1]]}, "the query 'hot' needs"),
        ({"queries": [FEW[0], FEW[1] | {"last": "1m"}]}, "the exact query 'n' has changed"),
    ],
)
def test_a_checkpoint_of_another_pipeline_is_refused(spark, stream, shared_state, tables, message):
    config = {**shared_state, **{k: v for k, v in changed(stream, **tables).items() if k in tables}}
    before = state_of(config)
    with pytest.raises(ParameterError, match=message):
        run(spark, config)
    assert state_of(config) == before


@pytest.fixture(scope="module")
def shared_state(spark, rows, tmp_path_factory):
    """A stream that has run, and is only looked at."""
    folder = tmp_path_factory.mktemp("shared")
    config = content(write_files(rows.slice(0, 800), folder / "source", 2), folder, queries=FEW)
    run(spark, config)
    return config


def test_queries_that_come_and_go(spark, stream, rows, tmp_path):
    run(spark, stream)
    add_file(rows.slice(800, 400), tmp_path / "source", 2)
    more = [
        {"name": "hot lately", "kind": "top", "last": "1m", "k": 3},
        {"name": "sum", "kind": "exact", "aggregate": "sum", "of": "ms", "last": "10s"},
        {"name": "mean", "kind": "exact", "aggregate": "avg", "of": "ms"},
        {"name": "one", "kind": "counts", "keys": [0]},
    ]
    pipeline = run(spark, changed(stream, queries=[*FEW, *more]))
    assert pipeline.notes == [
        "query 'hot lately' is new and uses existing state",
        "query 'sum' is new and counts from now on",
        "query 'mean' is new and counts from now on",
        "query 'one' is new and counts from now on",
    ]
    assert answers_to(stream, "n")[None, None][1] == in_range(rows.slice(0, 1200), 600).num_rows
    late = rows.slice(800, 400)
    assert answers_to(stream, "sum")[None, None][1] == in_range(late, 10)["ms"].to_numpy().sum()
    assert answers_to(stream, "mean")[None, None] == (None, None, None)  # it has not seen its whole range yet
    low, _, high = answers_to(stream, "one")[None, "0"]
    assert low <= (late["key"].to_numpy() == 0).sum() <= high
    add_file(rows.slice(1200, 400), tmp_path / "source", 3)
    pipeline = run(spark, changed(stream, queries=more))
    assert pipeline.notes == [f"query {name!r} is gone; the state that only it needed is dropped" for name in ("hot", "n")]
    assert answers_to(stream, "sum")[None, None][1] == in_range(rows.slice(800, 800), 10)["ms"].to_numpy().sum()


def test_a_state_without_sparks_log_and_a_log_without_its_state(spark, stream, rows, tmp_path, capfd):
    run(spark, stream)
    home = stream["run"]["checkpoint"]
    add_file(rows.slice(800, 400), tmp_path / "source", 2)
    shutil.move(f"{home}/spark", f"{home}/elsewhere")
    with pytest.raises(ParameterError, match="has the state of batch 1, but Spark's own log beside it is missing"):
        run(spark, stream)
    shutil.copytree(f"{home}/elsewhere", f"{home}/spark")
    with open(f"{home}/spark/metadata", "w") as file:
        json.dump({"id": "00000000-0000-0000-0000-000000000000"}, file)
    with pytest.raises(ParameterError, match="belongs to the stream"):
        run(spark, stream)
    shutil.rmtree(f"{home}/spark")
    shutil.move(f"{home}/elsewhere", f"{home}/spark")
    shutil.move(f"{home}/state/000000000001.json", f"{home}/away")
    with pytest.raises(LatelyError, match="the state after batch 1 is missing"):
        run(spark, stream)
    shutil.move(f"{home}/away", f"{home}/state/000000000001.json")
    run(spark, stream)
    assert answers_to(stream, "n")[None, None][1] == in_range(rows.slice(0, 1200), 600).num_rows
    capfd.readouterr()


def test_a_batch_again_is_the_same_again(spark, rows, tmp_path):
    config = content(write_files(rows.slice(0, 800), tmp_path / "source", 2), tmp_path, "batch", queries=FEW)
    outcomes = []
    for _ in range(2):
        assert Pipeline.of(config).run(spark) == 1
        outcomes.append([in_order(table(config, name)) for name in ("answers", "sketches")])
    assert outcomes[0] == outcomes[1]
    assert not os.path.exists(tmp_path / "store" / ".state")
