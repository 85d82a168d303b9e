"""``lately store``: what a store holds, whether it is sound, and how it is kept small."""

import shutil
from dataclasses import replace
from datetime import timedelta

import pytest
from cli_cases import assert_refused, assert_wrong_usage, cells_of, data_of, run
from cli_stores import SITES, START
from store_builder import RUN, new_store, put_batch

from lately.store import tables

pytestmark = pytest.mark.usefixtures("wide_and_plain")


@pytest.fixture
def copy(shop, tmp_path):
    return shutil.copytree(shop, tmp_path / "copy")


# -- show --------------------------------------------------------------------------------------------------------------


def test_show_tells_what_there_is(shop):
    info = data_of(run("store", "show", shop, "--json"))
    assert (info["store"], info["batch"], info["now"], info["sites"]) == (shop, 2, "2026-01-01T00:29:59Z", list(SITES))
    assert info["versions"] == {"count": 1, "newest": "2026-01-01T00:29:59Z"}
    assert list(info["tables"]) == list(tables())
    assert info["tables"]["late"] == {"files": 0, "bytes": 0, "first": None, "last": None}
    assert {name: info["tables"]["alerts"][name] for name in ("files", "first", "last")} == {"files": 2, "first": 1, "last": 2}
    assert info["about"]["name"] == "shop"
    result = run("store", "show", shop)
    assert (result.exit_code, result.stderr) == (0, "")
    rows = {row[0]: row[1:] for row in reversed(cells_of(result.stdout))}  # the facts are above the table of tables
    assert rows["newest batch"] == ["2, up to 2026-01-01 00:29:59"]
    assert rows["sites"] == ["3: lima, oslo, paris"]
    assert rows["queries"] == ["hot, latency, both"]
    assert rows["alerts"][0::2] == ["2", "1"]


def test_show_of_a_store_without_much(flows, tmp_path):
    assert ["sites", "1: –"] in cells_of(run("store", "show", flows).stdout)
    store = new_store(tmp_path / "new", name="[red]new")
    result = run("store", "show", store.path)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("[red]new: ")
    assert ["newest batch", "none has finished"] in cells_of(result.stdout)


# -- check -------------------------------------------------------------------------------------------------------------


def test_a_sound_store_is_told_to_be_so(shop):
    result = run("store", "check", shop)
    assert (result.exit_code, result.stderr) == (0, "")
    assert cells_of(result.stdout)[-1] == ["sketches", "3", "15", "15"]
    assert result.stdout.endswith("Everything is as it was written.\n")
    info = data_of(run("store", "check", shop, "--json"))
    assert (info["sound"], info["findings"]) == (True, [])
    assert info["tables"]["sketches"] == {"files": 3, "rows": 15, "blobs": 15}


def test_damage_is_found_and_told_with_exit_code_1(copy):
    (file,) = [file for file in (copy / "answers").iterdir() if file.name.startswith("000000000001")]
    file.write_bytes(file.read_bytes()[:-9])
    result = run("store", "check", copy)
    assert (result.exit_code, result.stderr) == (1, "")
    assert f"wrong: answers/{file.name}: cannot be read" in result.stdout
    assert "as it was written" not in result.stdout
    result = run("store", "check", copy, "--json")
    assert result.exit_code == 1
    assert '"sound": false' in result.stdout
    assert file.name in result.stdout


# -- tidy --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def long(tmp_path):
    """A store of a hundred batches, a minute each."""
    store = new_store(tmp_path / "long", name="long")
    for batch in range(100):
        put_batch(store, batch, START + timedelta(minutes=batch), run=RUN)
    return store


def test_small_files_become_one(long):
    before = long.read("runs")
    result = run("store", "tidy", long.path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "64 small files became 1; 0 old ones are gone.\n"
    assert long.read("runs") == before
    assert data_of(run("store", "tidy", long.path, "--json")) == {
        "store": long.path, "merged": 0, "into": 0, "expired": 0, "unreadable": [],
    }  # fmt: skip
    assert run("store", "check", long.path).exit_code == 0


def test_old_batches_go_when_told_so(long):
    assert data_of(run("store", "tidy", long.path, "--keep", "50m", "--json"))["expired"] == 49
    assert long.read("runs")["batch"].to_pylist() == list(range(49, 100))
    long.describe(replace(long.about(), keep="20m"))  # as its pipeline file says from now on
    assert data_of(run("store", "tidy", long.path, "--json"))["expired"] > 0
    assert long.read("runs")["batch"].to_pylist() == list(range(79, 100))
    assert_refused(run("store", "tidy", long.path, "--keep", "soon"), "soon")
    assert_refused(run("store", "tidy", long.path, "--keep", "7"), "7")


def test_integers_are_kept_by_integers(flows, tmp_path):
    copy = shutil.copytree(flows, tmp_path / "flows")
    assert data_of(run("store", "tidy", copy, "--keep", "100", "--json"))["expired"] == 0
    assert_refused(run("store", "tidy", copy, "--keep", "7d"), "7d")


def test_what_cannot_be_read_is_left_alone(long):
    damaged = f"{long.path}/runs/000000000005.parquet"
    with open(damaged, "wb") as file:
        file.write(b"PAR1 and then the lights went out")
    result = run("store", "tidy", long.path)
    assert result.exit_code == 0, result.output
    assert "runs/000000000005.parquet cannot be read and was left alone" in result.stdout


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["show", "check", "tidy"])
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_what_is_no_store_is_refused_in_one_line(command, options, tmp_path):
    assert_refused(run("store", command, tmp_path / "nowhere", *options), "nowhere", "[store] path")
    assert_refused(run("store", command, tmp_path, *options), tmp_path, "about.json")
    (tmp_path / "about.json").write_text('{"format": 99, "time_type": "timestamp"}')
    assert_refused(run("store", command, tmp_path, *options), "format 99", "upgrade")
    assert_wrong_usage(run("store", command), "STORE")
