"""What readers see: finished batches only, each row once, whatever upkeep does meanwhile; and no file is opened for nothing."""

import os
import subprocess
import sys
import threading
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_builder import new_store, put_batch
from store_cases import StoredStream, about, filled

from lately.core.errors import FormatError, InputError
from lately.store import View
from lately.store.about import SketchInfo
from lately.store.errors import UnknownError
from lately.store.tables import Alert, Answer
from lately.store.upkeep import tidy


def store_at(path):
    return new_store(path, **about())


def answer(batch, query="hot", item="a", site=None, value=None):
    value = float(batch) if value is None else value
    return Answer(10 * batch, batch, query, site, item, value, value, value, confidence=1.0)


def finish(store, batch, answers=None, **more):
    answers = [answer(batch)] if answers is None else answers
    put_batch(store, batch, 10 * batch, {"rows": 7, "seconds": 0.5}, answers=answers, **more)


def spoil(file):
    """Make a file unreadable without anybody seeing it from outside."""
    info = os.stat(file.path)
    Path(file.path).write_bytes(b"x" * info.st_size)
    os.utime(file.path, ns=(info.st_atime_ns, info.st_mtime_ns))


def test_readers_need_no_spark_no_models_no_web(tmp_path):
    stream = filled(tmp_path, names=["ecm fine"], time_type="timestamp")
    stream.finish(0)
    stream.store.put("answers", 0, [{"batch": 0, "time": stream.time(3000), "query": "hot"}])
    code = f"""
import sys
from lately.store import Questions, View
view = View({stream.store.path!r})
assert Questions(view).count(1, last="400s").value and view.answers() and view.history("hot") and view.runs()
print(*{{"pydantic", "pyspark", "fastapi", "starlette", "polars", "typer"}}.intersection(sys.modules))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


# -- the newest batch ------------------------------------------------------------------------------------------------------


def test_an_empty_store_has_no_batch(tmp_path):
    view = View(store_at(tmp_path).path)
    assert (view.batch, view.now, view.name, view.time_type, view.refresh()) == (None, None, "shop", "integer", False)
    assert (view.answers(), view.answers("hot"), view.answers(batch=3), view.sites(), view.versions()) == ([], [], [], [], [])
    assert (view.history("hot"), view.alerts(), view.runs(), view.late(), view.rejected()) == ([], [], [], [], [])
    assert (view.version(), view.sketch_infos(), view.sketches("topk"), view.sketch_bytes()) == (None, {}, {}, {})


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no store at"):
        View(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"has no about\.json"):
        View(str(tmp_path))
    (tmp_path / "about.json").write_text('{"format": 2, "time_type": "integer"}')
    with pytest.raises(InputError, match="format 2, and this version of lately knows formats up to 1; upgrade lately"):
        View(str(tmp_path))


def test_a_batch_is_seen_when_it_has_finished_and_after_a_refresh(tmp_path):
    store = store_at(tmp_path)
    view = View(store.path)
    finish(store, 0)
    assert (view.batch, view.refresh(), view.refresh(), view.batch, view.now) == (None, True, False, 0, 0)
    for table, row in {
        "answers": answer(1),
        "alerts": {"batch": 1, "monitor": "rush"},
        "late": {"batch": 1, "row": "{}"},
        "rejected": {"batch": 1, "row": "{}"},
        "sketches": {"version": 1, "site": "lima", "sketch": "topk"},
    }.items():
        store.put(table, 1, [row])
    assert (view.refresh(), view.answers(batch=1), len(view.history("hot"))) == (False, [], 1)
    assert (view.alerts(), view.late(), view.rejected(), view.version(), view.versions()) == ([], [], [], None, [])
    put_batch(store, 1, 10)
    assert (view.refresh(), view.batch, view.now, view.answers()) == (True, 1, 10, [answer(1)])
    assert (len(view.alerts()), len(view.late()), len(view.rejected()), view.versions()) == (1, 1, 1, [(1, None)])


def test_times_are_dates_in_utc(tmp_path):
    stream = filled(tmp_path, time_type="timestamp", names=["ecm fine"])
    stream.finish(0)
    view = View(stream.store.path)
    assert (view.time_type, view.now) == ("timestamp", datetime(2026, 1, 1, 12, 50, tzinfo=UTC))
    assert view.now.utcoffset().total_seconds() == 0
    assert view.versions() == [(0, view.now)]


def test_answers_of_the_newest_batch_are_read_from_its_own_file_alone(tmp_path):
    store = store_at(tmp_path)
    for batch in range(40):
        finish(store, batch, [answer(batch), answer(batch, "funnel", "b"), answer(batch, "hot", "c", "lima")])
    for file in store.files("answers")[:-1]:
        spoil(file)
    view = View(store.path)
    assert view.answers() == [answer(39), answer(39, "funnel", "b"), answer(39, "hot", "c", "lima")]
    assert [row.item for row in view.answers("hot")] == ["a", "c"]
    assert view.sites() == ["lima"]
    assert view.answers(batch=40) == view.answers(batch=-1) == []
    with pytest.raises(UnknownError, match="no query 'cold'; there are 'hot', 'funnel', 'pairs', 'slow', 'longest' and 2 more"):
        view.answers("cold")


def test_answers_of_earlier_batches_are_found_wherever_they_are(tmp_path):
    store = store_at(tmp_path)
    for batch in range(100):
        finish(store, batch, [] if batch == 50 else None)
    view = View(store.path)
    before = [view.answers(batch=batch) for batch in range(100)]
    tidy(store)
    assert any(one.is_range for one in store.files("answers"))
    assert [view.answers(batch=batch) for batch in range(100)] == before
    assert (before[50], before[7]) == ([], [answer(7)])


def test_a_batch_that_is_run_again_is_seen_again(tmp_path):
    store = store_at(tmp_path)
    finish(store, 0)
    finish(store, 1)
    view = View(store.path)
    assert (view.answers(), [row.value for row in view.history("hot")]) == ([answer(1)], [0.0, 1.0])
    store.clear(1)
    assert (view.refresh(), view.batch, view.answers()) == (True, 0, [answer(0)])
    put_batch(store, 1, 10, {"seconds": 9.0}, answers=[answer(1, value=9.0)])
    assert (view.refresh(), view.batch, [row.value for row in view.history("hot")]) == (True, 1, [0.0, 9.0])
    store.clear(1)  # and all of it between two looks
    put_batch(store, 1, 10, {"seconds": 5.0}, answers=[answer(1, value=5.0)])
    assert (view.refresh(), view.answers()[0].value, view.history("hot")[-1].value) == (True, 5.0, 5.0)
    assert view.refresh() is False


def test_what_a_pipeline_says_of_itself_is_read_again_with_a_new_batch(tmp_path):
    store = store_at(tmp_path)
    finish(store, 0)
    view = View(store.path)
    store.describe(about() | {"name": "shop 2"})
    assert (view.refresh(), view.name) == (False, "shop")
    finish(store, 1)
    assert (view.refresh(), view.name) == (True, "shop 2")


# -- the batches before ------------------------------------------------------------------------------------------------------


def test_history_is_that_of_a_query_an_item_a_site(tmp_path):
    store = store_at(tmp_path)
    expected = []
    for batch in range(30):
        rows = [answer(batch, query, item, site) for query in ("hot", "funnel") for item in "ab" for site in (None, "lima")]
        finish(store, batch, rows)
        expected += rows
    view = View(store.path)
    assert view.history("hot") == [row for row in expected if row.query == "hot"]
    assert view.history("hot", item="a") == [row for row in expected if (row.query, row.item) == ("hot", "a")]
    lima = [row for row in expected if (row.query, row.item, row.site) == ("funnel", "b", "lima")]
    assert view.history("funnel", item="b", site="lima") == lima
    assert view.history("funnel", "b", "lima", limit=7) == lima[-7:]
    assert (view.history("funnel", limit=0), view.history("funnel", "c"), view.history("rush")) == ([], [], [])
    assert view.history("hot", item="\ud800") == view.history("hot", item=7) == []
    for unknown in ("cold", "\ud800"):
        with pytest.raises(UnknownError, match="no query"):
            view.history(unknown)


def test_history_goes_no_further_back_than_it_must_and_reads_a_file_once(tmp_path):
    store = store_at(tmp_path)
    for batch in range(50):
        finish(store, batch)
    files = store.files("answers")
    for file in files[:20]:
        spoil(file)
    view = View(store.path)
    assert [row.batch for row in view.history("hot", limit=10)] == list(range(40, 50))
    for file in files[20:]:
        spoil(file)
    assert [row.batch for row in view.history("hot", limit=10)] == list(range(40, 50))
    finish(store, 50)
    view.refresh()
    assert [row.batch for row in view.history("hot", limit=10)] == list(range(41, 51))


def test_alerts_and_runs_after_a_batch(tmp_path):
    store = store_at(tmp_path)
    for batch in range(90):
        alerts = [Alert(batch, batch, "rush", state=("resolved", "firing")[k]) for k in range(batch % 3)]
        finish(store, batch, alerts=alerts)
    view = View(store.path)
    for _ in range(2):
        assert [row.batch for row in view.alerts(limit=4)] == [86, 86, 88, 89, 89][-4:]
        assert len(view.alerts(limit=1000)) == 90
        assert {row.batch for row in view.alerts(after_batch=80)} == {82, 83, 85, 86, 88, 89}
        assert view.alerts(after_batch=89) == view.runs(after_batch=89) == []
        assert [row.batch for row in view.runs()] == list(range(90))
        assert [row.batch for row in view.runs(limit=3)] == [87, 88, 89]
        assert [row.batch for row in view.runs(after_batch=30)] == list(range(31, 90))
        assert view.runs(limit=1)[0].rows == 7
        tidy(store)
        view.refresh()


@given(
    cut=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    kinds=st.lists(st.sampled_from(["small", "parts", "range", "range and small", "range and range"]), min_size=8, max_size=8),
    limit=st.integers(1, 60),
)
def test_every_row_is_seen_once_however_the_files_are_cut(tmp_path_factory, cut, kinds, limit):
    store = store_at(tmp_path_factory.mktemp("store"))
    first, expected = 0, []
    for size, kind in zip(cut, kinds, strict=False):
        rows = [answer(batch, item=item) for batch in range(first, first + size) for item in "ab"]
        expected += rows
        last = first + size - 1
        table = pa.Table.from_pylist([asdict(row) for row in rows], store.schema("answers"))
        if kind in ("small", "range and small") or size == 1:
            for batch in range(first, first + size):
                store.put("answers", batch, [row for row in rows if row.batch == batch])
        elif kind == "parts":
            for row in rows:
                store.put("answers", row.batch, [row], part=row.item)
        elif kind == "range and range" and size > 3:
            store.put_range("answers", first, first + 1, table.slice(0, 4))
        if "range" in kind and size > 1:
            store.put_range("answers", first, last, table)
        first += size
    put_batch(store, first - 1, 0)
    view = View(store.path)
    assert view.history("hot", limit=10_000) == expected
    assert view.history("hot", limit=limit) == expected[-limit:]
    assert view.history("hot", item="b", limit=limit) == [row for row in expected if row.item == "b"][-limit:]
    assert view.answers() == expected[-2:]


def test_files_that_have_been_put_together_since_they_were_listed(tmp_path):
    store = store_at(tmp_path)
    for batch in range(100):
        finish(store, batch)
    view = View(store.path)
    assert len(view.history("hot", limit=3)) == 3  # the table is listed, and few of its files are read
    tidy(store)
    assert [row.batch for row in view.history("hot")] == list(range(100))
    assert [row.batch for row in view.runs()] == list(range(100))
    tidy(store, keep=300)
    assert [row.batch for row in View(store.path).history("hot")] == list(range(69, 100))


def test_nothing_is_missed_or_seen_twice_while_upkeep_runs(tmp_path):
    store = store_at(tmp_path)
    for batch in range(20):
        finish(store, batch)
    done = threading.Event()

    def write():
        for batch in range(20, 400):
            finish(store, batch)
            if batch % 7 == 0:
                tidy(store)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    looks, views = 0, [View(store.path), View(store.path, table_bytes=0)]
    while not done.is_set() or looks < 5:
        looks += 1
        for view in views:
            view.refresh()
            newest = view.batch
            assert [row.batch for row in view.runs(limit=10**6)] == list(range(newest + 1))
            assert [row.batch for row in view.history("hot", limit=10**6)] == list(range(newest + 1))
            assert [row.batch for row in view.answers()] == [newest]
            assert [row.batch for row in view.answers(batch=newest // 2)] == [newest // 2]
    writer.join()
    for view in views:
        view.refresh()
        assert view.batch == 399


def test_what_is_remembered_is_bounded(tmp_path):
    store = store_at(tmp_path)
    for batch in range(60):
        finish(store, batch)
    view = View(store.path, table_bytes=20_000)
    assert len(view.history("hot")) == 60
    assert 0 < view._tables._used <= 20_000
    assert len(view._tables._values) < 20


# -- stored sketches -----------------------------------------------------------------------------------------------------------


def test_sketches_of_the_newest_version(tmp_path):
    stream = filled(tmp_path)
    stream.finish(0)
    stream.add("lima", [1, 2], [3001, 3002])
    stream.finish(3)
    stream.finish(5, stored=False)
    view = View(stream.store.path)
    assert (view.batch, view.versions(), view.sites()) == (5, [(0, 3000), (3, 3002)], ["lima", "paris", "quiet", "tokyo"])
    assert list(view.sketch_infos()) == list(stream.names)
    assert view.sketch_infos()["topk"] == SketchInfo("topk", eps=0.05, delta=1e-7)
    sketches = view.sketches("ecm fine")
    assert list(sketches) == ["lima", "paris", "quiet", "tokyo"]
    for site, sketch in sketches.items():
        assert sketch.to_bytes() == stream.sketches[site]["ecm fine"].to_bytes()
        assert view.sketches("ecm fine", ["paris", site])[site] is sketch  # decoded once
    sizes = {site: sum(len(one.to_bytes()) for one in of.values()) for site, of in stream.sketches.items()}
    assert view.sketch_bytes() == sizes
    with pytest.raises(UnknownError, match="no sketch 'ecm'"):
        view.sketches("ecm")
    with pytest.raises(UnknownError, match="no site 'rome'; there are 'lima'"):
        view.sketches("topk", ["rome"])


def test_only_the_files_of_the_asked_sites_are_opened(tmp_path):
    stream = filled(tmp_path, names=["ecm fine", "topk"])
    stream.finish(0)
    stream.finish(1)
    view = View(stream.store.path)
    assert view.version().number == 1
    for file in stream.store.files("sketches"):
        if file.first == 0 or file.name.endswith("-tokyo.parquet"):
            spoil(file)
    assert list(view.sketches("topk", ["lima", "quiet"])) == ["lima", "quiet"]


def test_sketches_of_many_versions_in_one_file(tmp_path):
    stream = filled(tmp_path, names=["ecm fine", "topk"])
    for batch in range(4):
        stream.add("lima", [1], [3000 + batch])
        stream.finish(batch)
    rows, files = stream.store.read("sketches"), stream.store.files("sketches")
    view = View(stream.store.path)
    assert view.version().number == 3
    stream.store.put_range("sketches", 0, 3, rows)
    for file in files:
        stream.store.remove(file)
    for seen in (view, View(stream.store.path)):  # also where the small files were listed before they went
        assert seen.sketches("ecm fine")["lima"].to_bytes() == stream.sketches["lima"]["ecm fine"].to_bytes()
        assert (len(seen.versions()), seen.version().number) == (4, 3)


def test_a_damaged_sketch_is_named(tmp_path):
    stream = StoredStream(tmp_path, names=["ecm fine"])
    stream.add("lima", [1], [1])
    row = {"version": 0, "time": 1, "site": "lima", "sketch": "ecm fine", "kind": "ecm"}
    stream.store.put("sketches", 0, [row | {"blob": stream.sketches["lima"]["ecm fine"].to_bytes()[:-1]}])
    stream.finish(0, stored=False)
    with pytest.raises(FormatError, match=r"'ecm fine' of site 'lima' after batch 0 cannot be read .*; run lately store check"):
        View(stream.store.path).sketches("ecm fine")
