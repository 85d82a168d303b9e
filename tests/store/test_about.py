"""What a store says of itself, and what happens to those who cannot understand it."""

import json

import pyarrow as pa
import pytest
from small_stores import filled

from lately.core.errors import InputError
from lately.core.json_encoding import to_json
from lately.store import Store
from lately.store.about import About
from lately.store.check import check
from lately.store.tables import STAMP


def test_what_is_said_can_be_read_and_said_anew(tmp_path):
    store = Store(str(tmp_path))
    assert store.about() is None
    store.describe({"time_type": "integer", "name": "shop", "queries": [{"name": "größe", "last": None}]})
    store.describe({"time_type": "timestamp", "name": "shop"})
    assert store.about() == About("timestamp", "shop")
    assert json.loads((tmp_path / "about.json").read_text()) == to_json(store.about())
    assert [path.name for path in tmp_path.iterdir()] == ["about.json"]


@pytest.mark.parametrize(("time_type", "kind"), [("integer", pa.int64()), ("timestamp", STAMP)])
def test_opening_knows_the_type_of_times(tmp_path, time_type, kind):
    Store(str(tmp_path)).describe({"time_type": time_type})
    assert Store.open(str(tmp_path)).schema("runs").field("time").type == kind


def test_a_newer_format_is_neither_read_nor_written(tmp_path):
    store = filled(tmp_path, 1)
    newer = to_json(store.about()) | {"format": 2, "time_type": "something new"}
    (tmp_path / "about.json").write_text(json.dumps(newer))
    tries = {
        "open": lambda: Store.open(store.path),
        "about": store.about,
        "describe": lambda: store.describe({"time_type": "integer"}),
        "prepare": store.prepare,
        "check": lambda: check(store.path),
    }
    for name, attempt in tries.items():
        with pytest.raises(InputError, match=r"has format 2, and this version of lately knows .* up to 1; upgrade lately"):
            attempt()
        assert json.loads((tmp_path / "about.json").read_text()) == newer, name


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"format": 1}', b'{"format": "1", "time_type": "integer"}', b'{"format": 1, "time_type": 3}'],
)
def test_a_damaged_description_is_told_and_written_anew(tmp_path, content):
    store = filled(tmp_path, 2)
    (tmp_path / "about.json").write_bytes(content)
    with pytest.raises(InputError, match=r"about.json of the store .* is damaged .*; run its pipeline, which rewrites it"):
        Store.open(store.path)
    store.prepare()
    store.describe({"time_type": "integer"})
    assert Store.open(store.path).read("runs").num_rows == 2


def test_a_store_that_is_not_there(tmp_path):
    (tmp_path / "file").write_text("no store")
    for name in ("nowhere", "file"):
        with pytest.raises(InputError, match=r"there is no store at '.*'; give the \[store\] path of a pipeline that has run"):
            Store.open(str(tmp_path / name))


def test_a_store_of_an_earlier_version_says_how_to_open_it(tmp_path):
    store = filled(tmp_path, 2)
    (tmp_path / "about.json").unlink()
    with pytest.raises(InputError, match=r"has no about.json, .* run its pipeline once more"):
        Store.open(store.path)
    assert store.read("runs").num_rows == 2
