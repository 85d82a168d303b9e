"""Whatever is damaged in a store is found, and a sound one is sound."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_stores import add_batch, filled

import lately as lt
from lately.core.errors import InputError
from lately.store import Store, tables
from lately.store.check import Counted, Finding, check
from lately.store.files import name_of
from lately.store.upkeep import tidy


def sketches():
    for made in (
        lt.EcmSketch(window=1000, eps=0.1, delta=0.1),
        lt.TopK(k=3, window=1000, eps=0.1, delta=0.1),
        lt.Quantiles(window=1000, eps=0.1, delta=0.1, lo=0, hi=100, resolution=1),
        lt.Dyadic(window=1000, eps=0.1, delta=0.1, universe=64),
    ):
        made.update(np.arange(50) % 10, np.arange(50))
        yield made


@pytest.fixture
def store(tmp_path):
    """A store with real sketches, of so many batches that some are in one file."""
    made = filled(tmp_path / "store", 90, sketches_every=None, sites=5)
    blobs = [sketch.to_bytes() for sketch in sketches()]
    for version in (80, 85):
        for part, site in enumerate(("lima", "oslo")):
            rows = [
                {"version": version, "time": 10 * version, "site": site, "sketch": f"s{i}", "kind": "any", "blob": blob}
                for i, blob in enumerate(blobs)
            ]
            made.put("sketches", version, rows, f"{part:05d}")
    tidy(made)
    return made


def test_a_sound_store(store):
    report = check(store.path)
    assert report.findings == []
    assert report.tables["sketches"] == Counted(files=4, rows=16, blobs=16)
    assert report.tables["runs"] == Counted(files=27, rows=90)
    assert report.tables["sites"] == Counted(files=3, rows=15)
    assert report.tables["answers"].rows == 270
    assert report.tables["rejected"] == Counted()
    assert list(report.tables) == list(tables())


def test_every_truncated_file_is_found(store):
    dice = random.Random(1)
    for table in ("answers", "late", "alerts", "runs", "sites", "sketches"):
        file = dice.choice(store.all_files(table))
        content = store.bytes_of(file)
        for size in (0, 3, 4, 11, 12, len(content) // 2, len(content) - 8, len(content) - 1):
            overwrite(file, content[:size])
            report = check(store.path)
            assert [finding.file for finding in report.findings if "/" in finding.file] == [f"{table}/{file.name}"], size
            assert report.findings[0].wrong.startswith("cannot be read: ")
            assert report.tables[table].files == len(store.all_files(table))
        overwrite(file, content)
    assert check(store.path).findings == []


def test_every_flipped_bit_is_found(tmp_path):
    """Anywhere but in the twelve bytes of the checksum itself, where a flip changes nothing that anybody reads."""
    store = Store(str(tmp_path))
    store.describe({"time_type": "timestamp"})
    store.put("answers", 3, [{"batch": 3, "query": "hot", "item": f"/{i}", "value": i / 3} for i in range(9)])
    (file,) = store.files("answers")
    content, rows = store.bytes_of(file), store.read("answers")
    dice = random.Random(2)
    for at_byte in sorted(dice.sample(range(len(content)), 400)):
        damaged = bytearray(content)
        damaged[at_byte] ^= 1 << dice.randrange(8)
        overwrite(file, damaged)
        if not check(store.path).findings:
            assert store.read("answers") == rows
            assert content.index(b"LATELY01") <= at_byte < content.index(b"LATELY01") + 8
        else:
            with pytest.raises(lt.FormatError, match=r"000000000003.parquet of the store .* is damaged: .*lately store check"):
                store.read("answers")


def test_every_blob_that_is_refused_is_found(store):
    dice = random.Random(3)
    blobs = [sketch.to_bytes() for sketch in sketches()]
    for blob in blobs:
        for wrong in (blob[:-1], blob + b"\0", b"", None, flipped(blob, dice.randrange(len(blob)))):
            store.put("sketches", 85, [{"version": 85, "site": "lima", "sketch": "s", "kind": "any", "blob": wrong}], "00000")
            (finding,) = check(store.path).findings
            assert finding.file == f"sketches/{name_of(85, part='00000')}"
            assert finding.wrong.startswith("the sketch 's' of the site 'lima' cannot be read: ")
    store.put("sketches", 85, [{"version": 85, "site": "lima", "blob": blob} for blob in (b"1", b"2", *blobs)], "00000")
    assert len(check(store.path).findings) == 2


def test_holes_among_the_batches_are_found(store):
    by_batch = {one.first: one for one in store.files("runs")}
    for batch in (70, 80, 81, 82):
        store.remove(by_batch[batch])
    assert check(store.path).findings == [
        Finding("runs", "batch 70 is missing"),
        Finding("runs", "batches 80 to 82 are missing"),
    ]
    store.remove(by_batch[0])  # the oldest may have been old
    assert len(check(store.path).findings) == 2
    store.put("runs", 71, [{"batch": 71}], "twice")
    assert Finding("runs", "batch 71 is there twice") in check(store.path).findings


def test_what_is_old_is_not_missing(store):
    tidy(store, keep=500)
    assert store.read("runs")["batch"].to_pylist()[0] == 39
    assert check(store.path).findings == []


def test_what_an_interrupted_upkeep_left_is_no_mistake(tmp_path):
    store = filled(tmp_path, 90, sketches_every=None)
    store.put_range("runs", 0, 63, store.read("runs").slice(0, 64))
    report = check(store.path)
    assert (report.findings, report.tables["runs"]) == ([], Counted(files=91, rows=154))


def test_rows_in_the_wrong_file_or_of_the_wrong_kind_are_found(store):
    store.put("answers", 77, [{"batch": 76}])
    store.put("alerts", 77, pa.table({"batch": pa.array([77], pa.int32())}))
    pq.write_table(store.schema("late").empty_table(), f"{store.path}/late/{name_of(77)}")
    first, second, third = check(store.path).findings
    assert first == Finding(f"answers/{name_of(77)}", "has rows of batch 76 to 76, which its name does not say")
    assert second.wrong.startswith("has the columns batch int32; the table has time int64, batch int64, ")
    assert third == Finding(f"late/{name_of(77)}", "has 0 rows; its footer says 0")


def test_files_without_a_checksum_are_read_as_well(store):
    """Those of earlier versions; their damage is found as far as Parquet finds it."""
    path = f"{store.path}/answers/{name_of(77)}"
    pq.write_table(pa.Table.from_pylist([{"batch": 77, "value": 1.0}], store.schema("answers")), path)
    assert check(store.path).findings == []
    assert 77 in store.read("answers")["batch"].to_pylist()
    with open(path, "rb") as file:
        whole = file.read()
    with open(path, "wb") as file:
        file.write(whole[:-30] + whole[-20:])
    (finding,) = check(store.path).findings
    assert finding.file == f"answers/{name_of(77)}"


def test_others_and_hidden_files_are_left_out(store):
    for name in ("notes.parquet", f".{name_of(3)}.0123abcd", "_SUCCESS"):
        with open(f"{store.path}/answers/{name}", "wb") as file:
            file.write(b"PAR1 and nothing")
    assert check(store.path).findings == []


def test_what_is_no_store_is_told(tmp_path):
    with pytest.raises(InputError, match="there is no store"):
        check(str(tmp_path / "nowhere"))


def test_a_store_that_goes_on_while_it_is_checked(tmp_path, monkeypatch):
    """Files that are put together or become old in between are not missing."""
    store = filled(tmp_path, 90, sketches_every=None)
    read = Store.bytes_of
    calls = iter(range(10_000))

    def meanwhile(self, file):
        if next(calls) == 10:
            tidy(Store.open(store.path))
            add_batch(store, 90, 900, None)
        return read(self, file)

    monkeypatch.setattr(Store, "bytes_of", meanwhile)
    assert check(store.path).findings == []


def overwrite(table_file, content):
    with open(table_file.path, "wb") as file:
        file.write(content)


def flipped(blob, at_byte):
    damaged = bytearray(blob)
    damaged[at_byte] ^= 16
    return bytes(damaged)
