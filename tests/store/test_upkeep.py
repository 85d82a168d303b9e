"""A store that is looked after: old batches go, small files become few, and nobody who reads it notices the second."""

import os
import random
import shutil
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from small_stores import Faulty, PowerCutError, add_batch, all_names, everything, filled, names, on
from store_builder import INTEGERS, duration, new_store, put_batch, site_row, time_at

from lately.core.errors import InputError, ParameterError
from lately.store import Store, upkeep
from lately.store.files import File, effective_files, name_of
from lately.store.upkeep import ALONE, BLOCK, SNAPSHOTS, VERSIONS, Tidied, blocks, is_due, tidy

SMALL = {"BLOCK": 4, "_SMALL_BLOCK": 2, "ALONE": 2}


@pytest.fixture
def small(monkeypatch):
    """Blocks of a few batches, so that tests need only dozens of them."""
    for name, value in SMALL.items():
        monkeypatch.setattr(upkeep, name, value)


# -- putting together --------------------------------------------------------------------------------------------------


def test_old_batches_become_one_file_and_all_rows_stay(tmp_path):
    store = filled(tmp_path, 100)
    before = everything(store)
    done = tidy(store)
    assert everything(store) == before
    assert names(store, "runs") == [name_of(0, 63), *(name_of(batch) for batch in range(64, 100))]
    assert names(store, "late")[0] == name_of(0, 63)
    assert names(store, "sketches") == sorted(name_of(b, part=p) for b in range(0, 100, 5) for p in ("00000", "00001"))
    assert done.into == 4
    assert done.merged == 64 + 64 + 2 * 16 + 9
    assert tidy(store) == Tidied()


def test_nothing_is_due_is_nothing_done(tmp_path):
    store = filled(tmp_path, BLOCK + ALONE - 1)
    before = all_names(store)
    assert tidy(store) == Tidied()
    assert all_names(store) == before
    add_batch(store, BLOCK + ALONE - 1, 10_000)
    assert tidy(store).into == 4


def test_the_newest_batches_are_never_touched(tmp_path, small):
    for batches in (1, 2, 3, 5, 6, 7, 17, 18, 19, 34):
        store = filled(tmp_path / str(batches), batches)
        tidy(store)
        own = {name_of(batch) for batch in range(max(0, batches - 2), batches)}
        assert own <= set(names(store, "runs"))
        store.clear(batches - 1)
        assert store.read("runs")["batch"].to_pylist() == list(range(batches - 1))


def test_a_stream_leaves_few_files_however_long_it_runs(tmp_path, small):
    """Files grow with the logarithm of the batches, and every pass leaves all rows where they were."""
    store = new_store(tmp_path, "integer")
    counts = []
    for batch in range(300):
        add_batch(store, batch, batch, sketches_every=None)
        if is_due(batch, None, None, None):
            tidy(store, None, batch)
        counts.append(len(names(store, "runs")))
    assert store.read("runs")["batch"].to_pylist() == list(range(300))
    assert len(store.read("answers")) == 900
    assert names(store, "runs")[0] == name_of(0, 255)
    assert max(counts) <= 3 * 5 + 4 + 2


def test_files_do_not_become_too_large(tmp_path, small, monkeypatch):
    store = filled(tmp_path, 40)
    size = max(one.size for one in store.files("answers"))
    monkeypatch.setattr(upkeep, "MOST_BYTES", 3 * size)
    before = everything(store)
    tidy(store)
    assert names(store, "answers")[:2] == [name_of(0, 1), name_of(2, 3)]
    assert everything(store) == before
    monkeypatch.setattr(upkeep, "MOST_BYTES", size)
    untouched = filled(tmp_path / "other", 40)
    tidy(untouched)
    assert names(untouched, "answers") == [name_of(batch) for batch in range(40)]


def test_a_store_of_another_filesystem(small):
    pytest.importorskip("fsspec")
    store = filled("memory://upkeep", 30)
    before = everything(store)
    assert tidy(store).into > 0
    assert everything(store) == before
    tidy(store, keep=50)
    assert store.read("runs")["time"].to_pylist() == [240, 250, 260, 270, 280, 290]


def test_a_damaged_file_stays_and_is_told(tmp_path, small):
    store = filled(tmp_path, 12)
    path = tmp_path / "answers" / name_of(5)
    path.write_bytes(path.read_bytes()[:-20])
    done = tidy(store)
    assert done.unreadable == (f"answers/{name_of(5)}",)
    assert names(store, "answers")[:5] == [name_of(0, 3), *(name_of(batch) for batch in (4, 5, 6, 7))]
    assert names(store, "runs")[:2] == [name_of(0, 3), name_of(4, 7)]


def test_batches_that_are_done_for_good_are_not_run_again(tmp_path, small):
    store = filled(tmp_path, 12)
    tidy(store)
    before = all_names(store)
    with pytest.raises(
        InputError, match=r"batch 3 is to be run again.*put batches \d to \d+ into one file.*checkpoint is older"
    ):
        store.clear(3)
    assert all_names(store) == before


def test_what_writers_left_unfinished_goes_when_it_is_old(tmp_path):
    store = filled(tmp_path, 20)
    now = os.stat(tmp_path / "runs" / name_of(19)).st_mtime
    for name, age in {
        f".{name_of(3)}.0123abcd": 7200,
        f".{name_of(0, 63)}.0123abcd": 7200,
        f".{name_of(4)}.0123abcd": 60,
    }.items():
        (tmp_path / "late" / name).write_bytes(b"PAR1")
        os.utime(tmp_path / "late" / name, (now - age, now - age))
    (tmp_path / "late" / ".notes").write_bytes(b"mine")
    os.utime(tmp_path / "late" / ".notes", (1, 1))
    tidy(store)
    assert sorted(name for name in os.listdir(tmp_path / "late") if name[0] == ".") == [f".{name_of(4)}.0123abcd", ".notes"]


# -- crashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [None, 125])
def test_killed_at_every_step_it_shows_every_row_once_and_ends_the_same(tmp_path, small, keep, monkeypatch):
    monkeypatch.setattr(upkeep, "VERSIONS", 3)
    whole = filled(tmp_path / "whole", 12, sites=2)
    tidy(whole)  # so that some files are of many batches already
    for batch in range(12, 19):
        add_batch(whole, batch, 10 * batch, sites=2)
    shutil.copytree(tmp_path / "whole", tmp_path / "peace")
    peace = Store.open(str(tmp_path / "peace"))
    before = everything(peace)
    steady = Faulty()
    tidy(on(peace, steady), keep)
    after = everything(peace)
    assert steady.changes > 30
    assert names(peace, "sites") == [name_of(batch) for batch in (16, 17, 18)]
    assert name_of(0, 15) in names(peace, "answers")
    for step in range(steady.changes):
        path = tmp_path / "killed"
        shutil.copytree(whole.path, path)
        store = Store.open(str(path))
        with pytest.raises(PowerCutError):
            tidy(on(store, Faulty(step)), keep)
        assert_between(everything(store), before, after)
        tidy(store, keep)
        assert everything(store) == after
        assert all_names(store) == all_names(peace)
        shutil.rmtree(path)


def assert_between(tables, before, after):
    """Rows may be gone that were old, no other; none is there twice."""
    for table, rows in tables.items():
        assert [row for row in before[table] if row in rows] == rows, table
        assert all(row in rows for row in after[table]), table


def test_readers_see_the_same_rows_before_every_step(tmp_path, small):
    store = filled(tmp_path, 40)
    before = everything(store)
    reader = Store.open(store.path)
    looks = []

    def look():
        looks.append(None)
        assert {table: reader.read(table).to_pylist() for table in ("answers", "late", "runs")} == {
            table: before[table] for table in ("answers", "late", "runs")
        }

    tidy(on(store, Faulty(seen=look)))
    assert len(looks) > 100


def test_readers_that_were_overtaken_look_again(tmp_path, small):
    """Everything is put together between the moment in which a reader lists the files and that in which it opens them."""
    store = filled(tmp_path, 40)
    expected = store.read("answers")

    class Overtaken(fs.LocalFileSystem):
        passes = 0

        def open_input_stream(self, path, *args, **kwargs):
            if "answers" in path and not Overtaken.passes:
                Overtaken.passes += 1
                tidy(store)
            return super().open_input_stream(path, *args, **kwargs)

    assert on(store, Overtaken()).read("answers") == expected
    assert Overtaken.passes == 1


def test_a_listing_that_was_overtaken_is_not_believed(tmp_path, small):
    """A folder that changes while it is listed may show only some of the old files, and not the new one."""
    store = filled(tmp_path, 40)
    expected = store.read("runs")

    class Torn(fs.LocalFileSystem):
        torn = False

        def get_file_info(self, selector):
            infos = super().get_file_info(selector)
            if isinstance(selector, fs.FileSelector) and not Torn.torn:
                Torn.torn = True
                tidy(store)
                return infos[len(infos) // 2 :]
            return infos

    assert on(store, Torn()).read("runs") == expected
    assert Torn.torn


def test_two_at_a_time_do_no_harm(tmp_path, small):
    """Somebody runs ``lately store tidy`` while the pipeline does its own upkeep: each step of one meets all of the other."""
    changes = Faulty()
    tidy(on(filled(tmp_path / "first", 26), changes))
    for step in range(0, changes.changes, 7):
        store = filled(tmp_path / str(step), 26)
        before = {table: rows for table, rows in everything(store).items() if table != "sketches"}
        steps = iter(range(1_000))

        def other(store=store, step=step, steps=steps):
            if next(steps) == step:
                tidy(store)

        tidy(on(store, Faulty(seen=other)))
        assert {table: rows for table, rows in everything(store).items() if table != "sketches"} == before


# -- what is old -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time_type", ["integer", "timestamp"], ids=["integers", "timestamps"])
def test_what_is_older_than_kept_goes_from_all_tables(tmp_path, time_type):
    store = filled(tmp_path, 150, time_type)
    keep, limit = duration(1_005, time_type), time_at(1_490 - 1_005, time_type)
    before = everything(store)
    young = next(row["batch"] for row in before["runs"] if row["time"] >= limit)
    assert young == 49
    assert tidy(store, keep).expired > 100
    for table, rows in everything(store).items():
        column = "version" if table == "sketches" else "batch"
        assert rows == [row for row in before[table] if row[column] >= young], table
    assert names(store, "runs")[0] == name_of(0, 63)  # which has no row of the first batches any more
    assert tidy(store, keep) == Tidied()


def test_files_of_many_batches_are_cut_where_they_become_old(tmp_path, small):
    store = filled(tmp_path, 40)
    tidy(store)
    assert name_of(0, 15) in names(store, "runs")
    for keep in (370, 300, 250):
        before = everything(store)
        tidy(store, keep)
        after = everything(store)
        assert [row["time"] for row in after["runs"]] == list(range(390 - keep, 400, 10))
        assert after["alerts"] == [row for row in before["alerts"] if row["time"] >= 390 - keep]
    assert name_of(0, 15) in names(store, "runs")
    tidy(store, 230)
    assert name_of(0, 15) not in names(store, "runs")


def test_where_files_cannot_be_replaced_they_go_as_a_whole(tmp_path, small):
    class Hadoop(Store):
        replaces = False

    tidy(filled(tmp_path, 40))
    store = Hadoop(str(tmp_path), INTEGERS)
    before = everything(store)
    tidy(store, keep=300)
    assert everything(store)["runs"] == before["runs"]
    tidy(store, keep=230)
    assert everything(store)["runs"] == before["runs"][16:]


def test_a_stream_that_was_silent_for_long_keeps_its_newest_sketches(tmp_path):
    store = filled(tmp_path, 8)
    add_batch(store, 8, 10_000_000)
    tidy(store, keep=60)
    assert store.read("runs")["batch"].to_pylist() == [8]
    assert store.read("answers")["batch"].unique().to_pylist() == [8]
    assert [(row["version"], row["site"]) for row in store.read("sketches").to_pylist()] == [(5, "00000"), (5, "00001")]
    for batch in (9, 10):
        add_batch(store, batch, 20_000_000)
    tidy(store, keep=60)
    assert store.read("sketches")["version"].unique().to_pylist() == [10]


def test_sketches_that_are_still_being_written_replace_none(tmp_path):
    """The newest version that is whole stays, also if the next one has begun."""
    store = filled(tmp_path, 8)
    store.put("sketches", 8, [{"version": 8, "site": "00000", "blob": b"x"}], "00000")
    add_batch(store, 7, 10_000_000)
    tidy(store, keep=60)
    assert store.read("sketches")["version"].to_pylist() == [5, 5, 8]


def test_without_a_word_the_last_hundred_versions_of_sketches_stay(tmp_path):
    store = filled(tmp_path, 130, sketches_every=1)
    rows = store.read("answers")
    tidy(store)
    assert store.read("sketches")["version"].unique().to_pylist() == list(range(30, 130))
    assert store.read("answers") == rows
    assert VERSIONS == 100


@pytest.mark.parametrize("keep", [None, 50, 2_000])
def test_only_the_newest_snapshots_of_the_sites_stay(tmp_path, keep):
    store = filled(tmp_path, 100, sites=4)
    snapshot = [row for row in store.read("sites").to_pylist() if row["batch"] == 99]
    assert len(snapshot) == 4
    done = tidy(store, keep)
    assert SNAPSHOTS == 3
    assert names(store, "sites") == [name_of(batch) for batch in (97, 98, 99)]
    assert done.expired >= 97
    assert store.read("sites").to_pylist()[-4:] == snapshot
    assert tidy(store, keep) == Tidied()


def test_the_newest_snapshot_stays_however_old_its_batch_is(tmp_path):
    store = filled(tmp_path, 8, sites=2)
    add_batch(store, 8, 10_000_000)  # a batch that wrote none
    tidy(store, keep=60)
    assert names(store, "runs") == [name_of(8)]
    assert names(store, "sites") == [name_of(batch) for batch in (5, 6, 7)]


def test_a_snapshot_of_a_batch_that_has_not_finished_replaces_none(tmp_path):
    store = filled(tmp_path, 8, sites=2)
    store.put("sites", 8, [site_row(8, "site-0000", 80)])
    tidy(store)
    assert names(store, "sites") == [name_of(batch) for batch in (5, 6, 7, 8)]
    store.clear(8)  # the batch is run again
    assert names(store, "sites") == [name_of(batch) for batch in (5, 6, 7)]


def test_batches_without_a_time_go_with_those_after_them(tmp_path):
    store = new_store(tmp_path, "integer")
    for batch, time in enumerate([None, None, 10, 20, 30]):
        put_batch(store, batch, time)
    tidy(store, keep=100)
    assert store.read("runs")["batch"].to_pylist() == [0, 1, 2, 3, 4]
    tidy(store, keep=5)
    assert store.read("runs")["batch"].to_pylist() == [4]
    empty = Store(str(tmp_path / "empty"), INTEGERS)
    assert tidy(empty, keep=5) == Tidied()
    put_batch(empty, 0, None)
    assert tidy(empty, keep=5) == Tidied()


def test_times_at_the_ends_of_time(tmp_path):
    store = new_store(tmp_path / "i", "integer")
    for batch, time in enumerate([-(2**62), -(2**62) + 5]):
        put_batch(store, batch, time)
    assert tidy(store, keep=2**63) == Tidied()
    assert tidy(store, keep=4).expired == 1
    dates = new_store(tmp_path / "d")
    put_batch(dates, 0, datetime(1, 1, 2, tzinfo=UTC))
    assert tidy(dates, keep="9w") == Tidied()
    assert tidy(dates, keep=f"{10**18}w") == Tidied()


def test_lengths_of_the_wrong_kind_are_told(tmp_path):
    with pytest.raises(ParameterError, match="'7d', but the times of this store are whole numbers; give one"):
        tidy(filled(tmp_path / "i", 2), keep="7d")
    with pytest.raises(ParameterError, match="7 is not a duration; write it like '10m'"):
        tidy(filled(tmp_path / "t", 2, "timestamp"), keep=7)


def test_a_damaged_table_of_runs_does_not_stop_what_is_old_from_going(tmp_path):
    store = filled(tmp_path, 20)
    (tmp_path / "runs" / name_of(3)).write_bytes(b"")
    done = tidy(store, keep=100)
    assert done.unreadable == (f"runs/{name_of(3)}",)
    assert store.read("runs")["batch"].to_pylist() == list(range(9, 20))


# -- when --------------------------------------------------------------------------------------------------------------


def test_it_is_due_whenever_a_block_is_full_or_time_has_passed():
    due = [batch for batch in range(1_000) if is_due(batch, batch, batch, None)]
    assert due == list(range(BLOCK + ALONE - 1, 1_000, BLOCK))
    assert all(blocks([_file(0), _file(1)], batch - ALONE) for batch in due)
    passed = [now for now in range(1, 1_000) if is_due(3, now - 1, now, 1_600)]
    assert passed == list(range(100, 1_000, 100))
    assert is_due(0, None, 5, 1_600)
    assert not is_due(0, None, None, 1_600)
    assert is_due(3, 7, 8, 1)


def _file(first, last=None, size=1):
    return File(first, first if last is None else last, name_of(first, last), "", size)


# -- against a list ----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.integers(0, 3)), min_size=1, max_size=60),
    st.one_of(st.none(), st.integers(20, 200)),
    st.randoms(use_true_random=False),
)
def test_any_stream_against_a_list(tmp_path_factory, batches, keep, dice):
    """Batches of any size at any distance, upkeep after some of them, at times killed: a list with a filter says the same."""
    path = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(upkeep, name, value)
        compare(Store(str(path), INTEGERS), batches, keep, dice)
    shutil.rmtree(path)


def compare(store, batches, keep, dice):
    naive, now = [], 0
    for batch, (step, looked_after, rows) in enumerate(batches):
        now += step
        store.clear(batch)
        items = [str(i) for i in range(rows)]
        put_batch(store, batch, now, answers=[{"item": item} for item in items])
        naive += [(now, batch, item) for item in items]
        if looked_after:
            if dice.random() < 0.3:
                try:
                    tidy(on(store, Faulty(dice.randrange(20))), keep, batch)
                except PowerCutError:
                    assert set(_answers(store)) >= {row for row in naive if keep is None or row[0] >= now - keep}
                    assert len(set(_answers(store))) == len(_answers(store))
            tidy(store, keep, batch)
            if keep is not None:
                naive = [row for row in naive if row[0] >= now - keep]
        assert _answers(store) == naive


def _answers(store):
    return [(row["time"], row["batch"], row["item"]) for row in store.read("answers").to_pylist()]


@given(st.sets(st.integers(0, 600)), st.integers(0, 700), st.randoms(use_true_random=False))
def test_blocks_lie_within_each_other_and_end_in_time(batches, newest, dice):
    """Passes at any moments: no two files ever overlap in part, and none reaches beyond what is done for good."""
    files = [_file(batch) for batch in sorted(batches)]
    for end in sorted(dice.randrange(newest + 1) for _ in range(4)):
        for first, last, group in list(blocks(files, end)):
            assert last <= end
            assert (last + 1 - first, first % (last + 1 - first)) in {(8, 0), (64, 0), (4096, 0)}
            assert len(group) > 1
            files = [one for one in files if one not in group] + [_file(first, last, len(group))]
            files.sort()
        assert effective_files(files) == files
        covered = [batch for one in files for batch in range(one.first, one.last + 1) if batch in batches]
        assert covered == sorted(batches)


def test_what_outranks_what():
    files = [_file(0, 63), _file(0), _file(7), _file(0, 7), _file(64), _file(64, 127), _file(128), _file(0, 4095), _file(5000)]
    dice = random.Random(1)
    for _ in range(20):
        dice.shuffle(files)
        assert [one.name for one in effective_files(files)] == [name_of(0, 4095), name_of(5000)]
        rest = [one for one in files if one.last < 4095]
        assert [one.name for one in effective_files(rest)] == [name_of(0, 63), name_of(64, 127), name_of(128)]
    parts = [File(3, 3, name_of(3, part=part), "", 1) for part in ("0001", "0000")]
    assert [one.name for one in effective_files(parts)] == [name_of(3, part="0000"), name_of(3, part="0001")]
