"""What a store says of itself, and what happens to those who cannot understand it."""

import json

import pyarrow as pa
import pytest
from small_stores import filled

from lately.core.errors import InputError
from lately.store import Store
from lately.store.check import check
from lately.store.tables import STAMP


def test_what_is_said_can_be_read_and_said_anew(tmp_path):
    store = Store(str(tmp_path))
    assert store.about() is None
    store.describe({"moment": "integer", "name": "shop", "queries": [{"name": "größe", "last": None}]})
    store.describe({"moment": "timestamp", "name": "shop"})
    assert store.about() == {"format": 1, "moment": "timestamp", "name": "shop"}
    assert json.loads((tmp_path / "about.json").read_text()) == store.about()
    assert [path.name for path in tmp_path.iterdir()] == ["about.json"]


@pytest.mark.parametrize(("moment", "kind"), [("integer", pa.int64()), ("timestamp", STAMP)])
def test_opening_knows_the_type_of_times(tmp_path, moment, kind):
    Store(str(tmp_path)).describe({"moment": moment})
    assert Store.open(str(tmp_path)).schema("runs").field("time").type == kind


def test_a_newer_format_is_neither_read_nor_written(tmp_path):
    store = filled(tmp_path, 1)
    newer = store.about() | {"format": 2, "moment": "something new"}
    (tmp_path / "about.json").write_text(json.dumps(newer))
    tries = {
        "open": lambda: Store.open(store.path),
        "about": store.about,
        "describe": lambda: store.describe({"moment": "integer"}),
        "prepare": store.prepare,
        "check": lambda: check(store.path),
    }
    for name, attempt in tries.items():
        with pytest.raises(InputError, match=r"has format 2, and this version of lately knows .* up to 1; upgrade lately"):
            attempt()
        assert json.loads((tmp_path / "about.json").read_text()) == newer, name


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"format": 1}', b'{"format": "1", "moment": "integer"}', b'{"format": 1, "moment": 3}'],
)
def test_a_damaged_description_is_told_and_written_anew(tmp_path, content):
    store = filled(tmp_path, 2)
    (tmp_path / "about.json").write_bytes(content)
    with pytest.raises(InputError, match=r"about.json of the store .* is damaged .*; run its pipeline, which writes it anew"):
        Store.open(store.path)
    store.prepare()
    store.describe({"moment": "integer"})
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
