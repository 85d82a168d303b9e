"""Paths as Spark writes them, and files that appear whole or not at all."""

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from lately.core import paths
from lately.core.errors import InputError
from lately.core.paths import filesystem_of, write_whole

LOCAL = fs.LocalFileSystem()


# -- where a path leads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/data/events", "/data/events"),
        ("file:///data/events", "/data/events"),
        ("file:/data/events", "/data/events"),
        ("/data/12:30 events", "/data/12:30 events"),
        ("/data/site=paris/a b", "/data/site=paris/a b"),
        ("dbfs:/mnt/events", "/dbfs/mnt/events"),
        ("dbfs:///mnt/events", "/dbfs/mnt/events"),
    ],
)
def test_local_paths_in_all_spellings(path, plain):
    assert filesystem_of(path) == (LOCAL, plain)


def test_relative_paths_begin_where_the_program_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert filesystem_of("events/a")[1] == f"{tmp_path}/events/a"
    assert filesystem_of("~/events")[1] == "/home/ada/events"
    assert filesystem_of("s3a")[1] == f"{tmp_path}/s3a"


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("s3a://bucket/events", "s3://bucket/events"),
        ("s3n://bucket/events", "s3://bucket/events"),
        ("s3://bucket/events", "s3://bucket/events"),
        ("gs://bucket/s3a://odd", "gs://bucket/s3a://odd"),
        ("hdfs://name:8020/events", "hdfs://name:8020/events"),
    ],
)
def test_spark_calls_filesystems_by_other_names(monkeypatch, path, asked):
    """Asked of a stand-in: the true one would look buckets up in the network."""
    heard = []

    def from_uri(uri):
        heard.append(uri)
        return LOCAL, "bucket/events"

    monkeypatch.setattr(paths, "fs", SimpleNamespace(FileSystem=SimpleNamespace(from_uri=from_uri)))
    assert filesystem_of(path) == (LOCAL, "bucket/events")
    assert heard == [asked]


@pytest.fixture
def fsspec():
    return pytest.importorskip("fsspec", reason="pip install fsspec")


def test_what_pyarrow_does_not_know_fsspec_may(fsspec):
    found, plain = filesystem_of("memory://paths/one.bin")
    write_whole(found, plain, b"here")
    assert fsspec.filesystem("memory").cat("/paths/one.bin") == b"here"


def test_filesystems_that_users_bring(fsspec, tmp_path):
    (tmp_path / "one").write_bytes(b"here")
    for given in (LOCAL, fsspec.filesystem("file")):
        for path in (f"{tmp_path}/one", f"file://{tmp_path}/one"):
            found, plain = filesystem_of(path, given)
            assert isinstance(found, fs.FileSystem)
            assert found.open_input_stream(plain).read() == b"here"


def test_unknown_filesystems_are_told(fsspec, monkeypatch):
    with pytest.raises(InputError, match=r"cannot open 'ftpx://a/b': .*ftpx"):
        filesystem_of("ftpx://a/b")

    def lacking(path):
        raise ImportError("Install anyfs")

    monkeypatch.setattr(fsspec.core, "url_to_fs", lacking)
    with pytest.raises(InputError, match="cannot open 'any://a/b': Install anyfs; install fsspec and its package"):
        filesystem_of("any://a/b")


def test_without_fsspec_it_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError, match=r"cannot open 'any://a/b': .*; install fsspec and its package for this filesystem"):
        filesystem_of("any://a/b")


# -- whole or not at all -----------------------------------------------------------------------------------------------


def test_a_file_is_there_and_nothing_else(tmp_path):
    for content in (b"one", b"", b"another"):
        write_whole(LOCAL, f"{tmp_path}/state.json", content)
        assert (tmp_path / "state.json").read_bytes() == content
        assert os.listdir(tmp_path) == ["state.json"]


def test_a_failing_write_leaves_what_was_there(tmp_path):
    with pytest.raises(TypeError):
        write_whole(LOCAL, f"{tmp_path}/state.json", object())
    assert os.listdir(tmp_path) == []
    write_whole(LOCAL, f"{tmp_path}/state.json", b"old")
    with pytest.raises(TypeError):
        write_whole(LOCAL, f"{tmp_path}/state.json", object())
    assert os.listdir(tmp_path) == ["state.json"]
    assert (tmp_path / "state.json").read_bytes() == b"old"


def test_a_failing_rename_leaves_nothing(tmp_path):
    (tmp_path / "state.json").mkdir()
    (tmp_path / "state.json" / "inside").touch()
    with pytest.raises(OSError, match=r"state\.json"):
        write_whole(LOCAL, f"{tmp_path}/state.json", b"new")
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(OSError, match="missing"):
        write_whole(LOCAL, f"{tmp_path}/missing/state.json", b"new")
    assert os.listdir(tmp_path) == []


def test_readers_never_see_a_part(tmp_path):
    contents = [bytes([i]) * 2**20 for i in range(4)]
    path = Path(f"{tmp_path}/state.json")
    write_whole(LOCAL, str(path), contents[0])
    seen, done = set(), threading.Event()

    def read():
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(60):
        write_whole(LOCAL, str(path), contents[i % 4])
    done.set()
    reader.join()
    assert seen <= set(contents)
