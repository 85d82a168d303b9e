"""Paths as Spark writes them, and files that appear whole or not at all."""

import errno
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from lately.core import paths
from lately.core.errors import InputError
from lately.core.paths import filesystem_of, remove_all, write_new, write_whole

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


def test_a_space_in_a_path_of_a_disk_is_one(tmp_path):
    found, plain = filesystem_of(f"file://{tmp_path}/a state")
    assert (found, plain) == (LOCAL, f"{tmp_path}/a state")


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


def test_a_write_that_is_refused_at_the_last_moment_leaves_what_was_there(tmp_path):
    path = tmp_path / "state.json"
    path.write_bytes(b"old")

    def refuse():
        assert len(os.listdir(tmp_path)) == 2  # all is written, under another name
        raise InputError("not now")

    for write in (write_whole, write_new):
        with pytest.raises(InputError, match="not now"):
            write(LOCAL, str(path), b"new", refuse)
        assert os.listdir(tmp_path) == ["state.json"]
        assert path.read_bytes() == b"old"


# -- only if there is none ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["links", "no links"])
def links(request, monkeypatch):
    """With and without hard links, which some filesystems do not have."""
    if request.param == "no links":

        def refused(*_):
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

        monkeypatch.setattr(os, "link", refused)


def test_a_file_that_is_there_is_not_written_again(tmp_path, links):
    path = tmp_path / "state.json"
    write_new(LOCAL, str(path), b"first")
    with pytest.raises(FileExistsError, match=r"state\.json"):
        write_new(LOCAL, str(path), b"second")
    assert os.listdir(tmp_path) == ["state.json"]
    assert path.read_bytes() == b"first"


def test_a_file_that_appears_at_the_last_moment_is_not_replaced(tmp_path, links):
    path = tmp_path / "state.json"
    with pytest.raises(FileExistsError):
        write_new(LOCAL, str(path), b"second", lambda: path.write_bytes(b"first"))
    assert os.listdir(tmp_path) == ["state.json"]
    assert path.read_bytes() == b"first"


def test_a_link_whose_reply_was_lost_is_ours(tmp_path, monkeypatch):
    """NFS asks again then, and hears that the name is taken."""
    link = os.link

    def twice(*args):
        link(*args)
        link(*args)

    monkeypatch.setattr(os, "link", twice)
    write_new(LOCAL, f"{tmp_path}/state.json", b"first")
    assert os.listdir(tmp_path) == ["state.json"]
    with pytest.raises(FileExistsError):
        write_new(LOCAL, f"{tmp_path}/state.json", b"second")


def test_of_many_writers_one_succeeds(tmp_path):
    for number in range(100):
        path, won, barrier = tmp_path / str(number), [], threading.Barrier(5)

        def write(name, path=path, won=won, barrier=barrier):
            barrier.wait()
            with suppress(FileExistsError):
                write_new(LOCAL, str(path), name)
                won.append(name)

        threads = [threading.Thread(target=write, args=(b"%d" % name,)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [path.read_bytes()]


def test_other_filesystems_are_asked_first(tmp_path):
    found, plain = filesystem_of(f"memory://{tmp_path.name}/state.json")
    write_new(found, plain, b"first")
    with pytest.raises(FileExistsError):
        write_new(found, plain, b"second")
    with found.open_input_stream(plain) as source:
        assert source.read() == b"first"


# -- what may be deleted -----------------------------------------------------------------------------------------------


def folder_of(path):
    return {one.name: one.read_bytes() for one in path.iterdir()}


@pytest.mark.parametrize("asked", [1, 2])
def test_files_that_must_not_be_deleted_stay(tmp_path, links, asked):
    for name in "abc":
        (tmp_path / name).write_text(name)
    left = iter(range(asked - 1))

    def refuse():
        if next(left, None) is None:
            raise InputError("these are not yours")

    with pytest.raises(InputError, match="these are not yours"):
        remove_all(LOCAL, [f"{tmp_path}/{name}" for name in "abx"], refuse)
    assert folder_of(tmp_path) == {"a": b"a", "b": b"b", "c": b"c"}


def test_who_sleeps_between_looking_and_deleting_deletes_nothing_of_others(tmp_path, links):
    """At both moments others come, write files with the same names, and say so to the guard from then on."""
    for moment in (1, 2):
        (tmp_path / "a").write_text("left over")
        (tmp_path / "b").write_text("left over")
        asked = 0

        def guard(moment=moment):
            nonlocal asked
            asked += 1
            if asked > moment:
                raise InputError("overtaken")
            if asked == moment:  # it is allowed, and then sleeps
                (tmp_path / "a").write_text("theirs")

        if moment == 1:
            with pytest.raises(InputError, match="overtaken"):
                remove_all(LOCAL, [f"{tmp_path}/a", f"{tmp_path}/b"], guard)
            assert folder_of(tmp_path) == {"a": b"theirs", "b": b"left over"}
        else:
            remove_all(LOCAL, [f"{tmp_path}/a", f"{tmp_path}/b"], guard)
            assert folder_of(tmp_path) == {"a": b"theirs"}


@pytest.mark.parametrize("guard", [None, lambda: None])
def test_files_are_deleted_and_those_that_are_gone_are_no_error(tmp_path, guard):
    for name in "abc":
        (tmp_path / name).write_text(name)
    remove_all(LOCAL, [f"{tmp_path}/{name}" for name in "abx"], guard)
    assert folder_of(tmp_path) == {"c": b"c"}
