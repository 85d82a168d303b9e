"""Files of every format version that was ever released are read, and answer as they did when they were written."""

import functools
import json
from pathlib import Path

import make_golden
import pytest

import lately as lt
from lately.core import codec

HERE = Path(__file__).parent
CURRENT = f"v{codec.VERSION}"
FILES = sorted(HERE.glob("v*/*.ltly"))


@functools.cache
def expected(version):
    return json.loads((HERE / version / "answers.json").read_text())


@functools.cache
def written_now():
    return {name: thing.to_bytes() for name, thing in make_golden.things()}


def plain(said):
    """As JSON gives it back."""
    return json.loads(json.dumps(said))


def close(found, wanted):
    """Equal, but for the last digits of floats, which may differ between machines."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(close(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(close, found, wanted))
    return found == (pytest.approx(wanted, rel=1e-9) if isinstance(wanted, float) else wanted)


def no_wider(found, wanted):
    """The same values, in bounds that are those of the file's time or lie within them: searches may become sharper."""
    rows = [(now, then) for new, old in zip(found, wanted, strict=True) for now, then in zip(new, old, strict=True)]
    return all(close(now[0], then[0]) and then[1] <= now[1] <= now[0] <= now[2] <= then[2] for now, then in rows)


def test_every_version_has_its_files():
    assert {file.parent.name for file in FILES} == {f"v{version}" for version in range(1, codec.VERSION + 1)}
    for version in {file.parent.name for file in FILES}:
        assert {file.stem for file in FILES if file.parent.name == version} == set(expected(version))


def test_every_class_that_can_be_stored_has_files():
    assert {file.read_bytes()[5] for file in FILES if file.parent.name == CURRENT} == set(codec.families())


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_golden_file_is_read_and_answers_as_it_did(file):
    thing = lt.from_bytes(file.read_bytes())
    version = file.parent.name
    found, wanted = plain(make_golden.answers(thing, int(version[1:]))), expected(version)[file.stem]
    if isinstance(wanted, dict) and "quantiles" in wanted:
        assert no_wider(found["quantiles"], wanted["quantiles"])
        found = found | {"quantiles": wanted["quantiles"]}
    assert close(found, wanted)


@pytest.mark.parametrize("file", [f for f in FILES if f.parent.name == CURRENT], ids=lambda file: file.stem)
def test_the_current_version_is_written_as_ever(file):
    blob = file.read_bytes()
    assert lt.from_bytes(blob).to_bytes() == blob
    assert written_now()[file.stem] == blob


def test_the_files_stay_small():
    assert sum(file.stat().st_size for file in HERE.glob("v*/*")) < 480_000 * codec.VERSION
