"""Versions of a pipeline's state: there when their JSON is, never changed, and without much that nobody needs."""

import json
import os
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lately.config import parse
from lately.core.errors import FormatError, InputError, LeaseError
from lately.pipeline.plan import MonitorSpec, PipelinePlan
from lately.pipeline.state_versions import DEAD, KEEP, StateVersion, StateVersions, with_places
from lately.sketches.hashing import DEFAULT_SEED

PLAIN = StateVersion(batch=0, stream="a-stream", plan={"query": ["hot", 10]})


@pytest.fixture
def versions(tmp_path):
    made = StateVersions(str(tmp_path / "state"))
    made.prepare()
    return made


def parts_of(versions):
    return sorted(os.listdir(f"{versions.path}/parts"))


def written(versions, batch, blobs, earlier=PLAIN, names=None):
    """Write the version after a batch that changed these blobs, {(site, name): bytes}."""
    part, at = versions.write_part(batch, blobs.values())
    changed = {}
    for (site, name), where in zip(blobs, at, strict=True):
        changed.setdefault(site, {})[name] = (part, *where)
    known = names or {"hot", "slow"}
    version = replace(
        earlier,
        batch=batch,
        places=with_places(earlier.places, changed, known),
        parts=earlier.parts | {part: sum(map(len, blobs.values()))},
    )
    version = versions.compacted(version)
    versions.write(version)
    return version


def content(versions, version):
    """What a version says each blob is."""
    found = versions.blobs(version.all_places())
    return {(site, name): found[place] for site, its in version.places.items() for name, place in its.items()}


# -- write and read ----------------------------------------------------------------------------------------------------


def test_a_version_comes_back_as_it_was(versions):
    part, at = versions.write_part(7, [b"lima's", b"", b"paris's", b"the coordinator's"])
    version = StateVersion(
        batch=7,
        stream="a-stream",
        plan={"sketches": {"hot": {"kind": "topk", "eps": 0.1}}, "none": None},
        now=1_767_225_600,
        clocks={"lima": 1_767_225_600, "Grüße": -5},
        places={"lima": {"hot": (part, *at[0]), "slow": (part, *at[1])}, "Grüße": {"hot": (part, *at[2])}},
        coordinators={"alarm": (part, *at[3])},
        firing={"alarm": ["", "/cart"]},
        stored=3,
        totals={"counted": 10, "late": 2},
        parts={part: 30},
    )
    versions.write(version)
    again = StateVersions(versions.path)
    assert again.batches() == [7]
    assert again.read(7) == version
    assert again.blobs(version.all_places()) == {
        (part, 0, 6): b"lima's",
        (part, 6, 0): b"",
        (part, 6, 7): b"paris's",
        (part, 13, 17): b"the coordinator's",
    }
    assert again.blobs([(part, 13, 17), (part, 0, 6)]) == {(part, 13, 17): b"the coordinator's", (part, 0, 6): b"lima's"}
    assert again.blobs([]) == {}
    assert version.live_bytes == 30


def test_batches_are_in_order_of_their_numbers(versions):
    assert versions.batches() == []
    for batch in (2, 9, 10, 10**11):
        versions.write(replace(PLAIN, batch=batch))
    assert versions.batches() == [2, 9, 10, 10**11]
    assert [versions.read(batch).batch for batch in versions.batches()] == [2, 9, 10, 10**11]


def test_a_directory_that_is_not_there_has_no_batches(tmp_path):
    versions = StateVersions(str(tmp_path / "nowhere"))
    assert versions.batches() == []
    versions.tidy()
    versions.clear()
    assert os.listdir(tmp_path) == []


def test_a_version_that_is_there_is_not_written_again(versions):
    first = written(versions, 1, {("lima", "hot"): b"one"})
    before = sorted(os.listdir(versions.path))
    with pytest.raises(
        LeaseError, match=r"another run has continued to batch 1 of the state in .* while this one was at batch 1\."
    ):
        versions.write(replace(first, totals={"counted": 7}))
    assert (versions.batches(), versions.read(1)) == ([1], first)
    assert sorted(os.listdir(versions.path)) == before


def test_a_version_behind_the_newest_is_not_written(versions):
    for batch in (5, 6):
        versions.write(replace(PLAIN, batch=batch))
    with pytest.raises(
        LeaseError, match=r"another run has continued to batch 6 .* while this one was at batch 4\..*restore both"
    ):
        versions.write(replace(PLAIN, batch=4))
    assert versions.batches() == [5, 6]


def test_a_version_that_appears_while_it_is_written_stays(versions):
    """The last look is before the file gets its name, and that name is given once."""
    other = StateVersions(versions.path)
    with pytest.raises(LeaseError, match="another run has continued to batch 3 "):
        versions.write(replace(PLAIN, batch=3), lambda: other.write(replace(PLAIN, batch=3, totals={"counted": 7})))
    assert versions.read(3).totals == {"counted": 7}
    with pytest.raises(LeaseError, match="no more"):
        versions.write(replace(PLAIN, batch=4), refuse)
    assert versions.batches() == [3]
    assert not [name for name in os.listdir(versions.path) if name.startswith(".")]


def refuse():
    raise LeaseError("no more")


def test_of_runs_that_publish_the_same_batch_one_does(versions):
    for batch in range(100):
        wins, barrier = [], threading.Barrier(4)

        def publish(run, batch=batch, wins=wins, barrier=barrier):
            barrier.wait()
            with suppress(LeaseError):
                StateVersions(versions.path).write(replace(PLAIN, batch=batch, totals={"run": run}))
                wins.append(run)

        threads = [threading.Thread(target=publish, args=(run,)) for run in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wins) == 1
        assert versions.read(batch).totals == {"run": wins[0]}


def test_a_run_is_behind_when_a_version_is_there_that_it_has_not_published(versions):
    versions.refuse_behind(0)
    versions.write(replace(PLAIN, batch=2))
    for batch, published in ((2, True), (3, False), (3, True)):
        versions.refuse_behind(batch, published)
    for batch, published in ((2, False), (1, True), (0, False)):
        with pytest.raises(LeaseError, match=f"continued to batch 2 .* at batch {batch}\\."):
            versions.refuse_behind(batch, published)


def test_a_half_written_version_is_not_there(versions):
    """Parts without their JSON, or a JSON under the name that it has while it is written."""
    kept = written(versions, 1, {("lima", "hot"): b"one"})
    lost, _ = versions.write_part(2, [b"two"])
    with open(f"{versions.path}/.000000000002.json.12345678", "w") as file:
        file.write('{"format":1,"batch":2,')
    assert versions.batches() == [1]
    with pytest.raises(InputError):
        versions.read(2)
    assert content(versions, versions.read(1)) == {("lima", "hot"): b"one"}
    again = written(versions, 2, {("lima", "hot"): b"two"}, kept)
    versions.tidy()
    assert lost not in parts_of(versions)
    assert content(versions, again) == {("lima", "hot"): b"two"}


def test_clear_removes_everything(versions):
    written(versions, 1, {("lima", "hot"): b"one"})
    versions.clear()
    assert not os.path.exists(versions.path)
    assert versions.batches() == []


def test_a_path_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match=r"cannot write the state to '.*taken'.*give a writable \[run\] checkpoint"):
        StateVersions(str(tmp_path / "taken")).prepare()


# -- what is not as it was written -------------------------------------------------------------------------------------


def test_a_missing_version_is_told_with_its_remedy(versions):
    with pytest.raises(InputError, match=r"the state after batch 4 is missing from .*restore it, or start over with another"):
        versions.read(4)


WHOLE = {"format": 2, "batch": 4, "stream": "s", "plan": {}, "places": {}, "coordinators": {}}
DAMAGED = {
    "empty": "",
    "cut": json.dumps(WHOLE)[:-5],
    "binary": b"\xff\xfe\x00",
    "a list": "[1, 2]",
    "a number": "7",
    "null": "null",
    "no batch": json.dumps({name: value for name, value in WHOLE.items() if name != "batch"}),
    "no places": json.dumps({name: value for name, value in WHOLE.items() if name != "places"}),
    "places that are none": json.dumps(WHOLE | {"places": [1]}),
    "a place that is none": json.dumps(WHOLE | {"places": {"lima": {"hot": 7}}}),
    "something unknown": json.dumps(WHOLE | {"surprise": 1}),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_damaged_json_is_told_with_its_remedy(versions, text):
    with open(f"{versions.path}/000000000004.json", "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FormatError, match=r"000000000004\.json .*start over"):
        versions.read(4)


def test_firing_alerts_of_an_earlier_state_are_read(versions):
    """It calls them raised."""
    with open(f"{versions.path}/000000000004.json", "w") as file:
        json.dump(WHOLE | {"raised": {"alarm": ["", "/cart"]}}, file)
    assert versions.read(4).firing == {"alarm": ["", "/cart"]}


@pytest.mark.parametrize("number", [0, 1, 3, "2", None])
def test_json_of_another_lately_is_told_with_its_remedy(versions, number):
    with open(f"{versions.path}/000000000004.json", "w") as file:
        json.dump({"written": "by somebody"} | ({} if number is None else WHOLE | {"format": number}), file)
    with pytest.raises(FormatError, match=r"000000000004\.json was written by another version of lately; use that version"):
        versions.read(4)


def test_files_of_others_are_no_versions(versions):
    for name in ("metadata.json", "notes", "12.txt"):
        with open(f"{versions.path}/{name}", "w") as file:
            file.write("{}")
    versions.write(replace(PLAIN, batch=3))
    assert versions.batches() == [3]
    versions.tidy(keep=1)
    assert {"metadata.json", "notes", "12.txt"} <= set(os.listdir(versions.path))


# -- tidying -----------------------------------------------------------------------------------------------------------


def test_tidy_keeps_what_the_newest_versions_need_and_nothing_else(versions):
    version, kept = PLAIN, {}
    for batch in range(8):
        changed = {("lima", "hot"): b"%d" % batch * 50} | ({("rome", "slow"): b"old" * 50} if batch == 0 else {})
        version = written(versions, batch, changed, version)
        kept[batch] = (version, content(versions, version))
    versions.tidy()
    assert versions.batches() == [7 - i for i in reversed(range(KEEP))]
    needed = set()
    for batch in versions.batches():
        assert versions.read(batch) == kept[batch][0]
        assert content(versions, versions.read(batch)) == kept[batch][1]
        needed |= {place[0] for place in kept[batch][0].all_places()}
    assert set(parts_of(versions)) == needed
    before = sorted(os.walk(versions.path))
    versions.tidy()
    assert sorted(os.walk(versions.path)) == before
    versions.tidy(keep=1)
    assert versions.batches() == [7]
    assert content(versions, versions.read(7)) == kept[7][1]


def test_tidy_leaves_the_parts_of_a_batch_that_another_run_is_at(versions):
    version = written(versions, 4, {("lima", "hot"): b"four"})
    lost, _ = versions.write_part(4, [b"of a run that died"])
    begun, _ = versions.write_part(5, [b"five"])
    versions.tidy()
    assert set(parts_of(versions)) == {*version.parts, begun}
    assert lost not in parts_of(versions)


def test_tidy_of_a_run_that_slept_leaves_what_newer_versions_need(versions):
    """It sleeps where it has listed the parts, and where it has read what is needed; another run goes on in the meantime."""
    version = written(versions, 0, {("lima", "hot"): b"0" * 50, ("rome", "hot"): b"r" * 50})
    for moment in ("batches", "read"):
        slow = StateVersions(versions.path)
        method = getattr(slow, moment)

        def after_sleep(*args, method=method, slow=slow, moment=moment):
            nonlocal version
            found = method(*args)
            setattr(slow, moment, method)
            for batch in range(version.batch + 1, version.batch + 3):
                version = written(versions, batch, {("lima", "hot"): b"%d" % batch * 50}, version)
                versions.tidy()
            return found

        setattr(slow, moment, after_sleep)
        with suppress(InputError):  # the version that it was about to read is gone
            slow.tidy()
        for batch in versions.batches():
            content(versions, versions.read(batch))  # all of it is there
        assert versions.batches()[-1] == version.batch


def test_what_no_query_needs_any_more_is_left_out(versions):
    first = written(versions, 1, {("lima", "hot"): b"h" * 10, ("lima", "slow"): b"s" * 90, ("rome", "slow"): b"r" * 9})
    second = written(versions, 2, {("rome", "hot"): b"rome's"}, first, names={"hot"})
    assert content(versions, second) == {("lima", "hot"): b"h" * 10, ("rome", "hot"): b"rome's"}
    assert content(versions, first)[("lima", "slow")] == b"s" * 90


# -- dead bytes --------------------------------------------------------------------------------------------------------


def test_parts_that_are_dense_stay_as_they_are(versions):
    first = written(versions, 1, {("lima", "hot"): b"a" * 100, ("rome", "hot"): b"b" * 900})
    second = written(versions, 2, {("lima", "hot"): b"c" * 100}, first)
    assert second.places["rome"] == first.places["rome"]
    assert set(first.parts) < set(second.parts)


def test_parts_that_are_sparse_are_copied(versions):
    first = written(versions, 1, {("lima", "hot"): b"a" * 200, ("rome", "hot"): b"b" * 800})
    second = written(versions, 2, {("lima", "hot"): b"c" * 200}, first)
    assert not set(first.parts) & set(second.parts)
    assert content(versions, second) == {("lima", "hot"): b"c" * 200, ("rome", "hot"): b"b" * 800}
    assert content(versions, first) == {("lima", "hot"): b"a" * 200, ("rome", "hot"): b"b" * 800}


def test_coordinators_move_with_the_sketches(versions):
    part, at = versions.write_part(1, [b"dead" * 100, b"coordinator", b"sketch"])
    places = {"lima": {"hot": (part, *at[2])}}
    version = replace(PLAIN, batch=1, places=places, coordinators={"alarm": (part, *at[1])}, parts={part: 417})
    compacted = versions.compacted(version)
    assert part not in compacted.parts
    moved = compacted.coordinators["alarm"]
    assert {place[0] for place in compacted.all_places()} == set(compacted.parts)
    assert versions.blobs([moved])[moved] == b"coordinator"
    assert content(versions, compacted) == {("lima", "hot"): b"sketch"}
    assert replace(compacted, places=version.places, coordinators=version.coordinators, parts=version.parts) == version


sizes = st.one_of(st.integers(0, 40), st.integers(500, 2000))
changes = st.dictionaries(st.tuples(st.sampled_from(["lima", "rome", "paris"]), st.sampled_from(["hot", "slow"])), sizes)


@given(batches=st.lists(changes, min_size=1, max_size=8))
def test_any_batches_leave_few_dead_bytes_and_lose_nothing(tmp_path_factory, batches):
    versions = StateVersions(str(tmp_path_factory.mktemp("state")))
    versions.prepare()
    version, model, models = PLAIN, {}, {}
    for batch, changed in enumerate(batches):
        blobs = {place: bytes([batch + 1]) * size for place, size in changed.items()}
        model = {**model, **blobs}
        version = written(versions, batch, blobs, version)
        models[batch] = model
        versions.tidy()
        on_disk = {part: os.path.getsize(f"{versions.path}/parts/{part}") for part in version.parts}
        assert on_disk == version.parts
        assert version.live_bytes == sum(map(len, model.values()))
        assert sum(on_disk.values()) <= version.live_bytes / (1 - DEAD) <= 1.2000001 * version.live_bytes
        for kept in versions.batches():
            assert content(versions, versions.read(kept)) == models[kept]


# -- the seed ------------------------------------------------------------------------------------------------------------


def test_a_state_draws_its_seed_once(versions, tmp_path):
    """Before the first batch, so that a batch that is run again counts alike."""
    seed = versions.seed()
    assert seed == versions.seed() == StateVersions(versions.path).seed()
    other = StateVersions(str(tmp_path / "other"))
    other.prepare()
    assert other.seed() not in (seed, DEFAULT_SEED)
    versions.tidy()
    assert versions.seed() == seed


def test_versions_have_the_seed_and_those_of_before_have_the_default(versions):
    versions.seed()
    versions.write(PLAIN)
    assert versions.seed() == DEFAULT_SEED
    versions.write(replace(PLAIN, batch=1, plan={"seed": 42}))
    assert versions.seed() == 42
    os.remove(f"{versions.path}/seed.json")
    assert versions.seed() == 42


def test_a_damaged_seed_is_told_with_its_remedy(versions):
    versions.seed()
    with open(f"{versions.path}/seed.json", "w") as file:
        file.write("{}")
    with pytest.raises(FormatError, match=r"damaged.*another \[run\] checkpoint"):
        versions.seed()


def test_all_sketches_and_monitors_of_a_pipeline_have_its_seed_and_no_name_tells_it():
    config = parse(EXAMPLE)
    plans = [PipelinePlan.of(config, seed) for seed in (42, 43)]
    for plan, seed in zip(plans, (42, 43), strict=True):
        for thing in plan.specs:
            assert (thing.monitor.seed if isinstance(thing, MonitorSpec) else thing.empty()._shape.seed) == seed
        assert plan.compatibility()["seed"] == seed
    about = plans[0].about("text")
    assert about == plans[1].about("text")
    assert "seed" not in json.dumps(about)
    assert [thing.name for thing in plans[0].specs] == [thing.name for thing in plans[1].specs]
    assert {
        thing.empty()._shape.seed for thing in PipelinePlan.of(parse(EXAMPLE.replace("[run]", "[run]\nseed = 7"))).specs[:1]
    } == {7}
    plan = PipelinePlan.of(config, 42)
    assert plan.check_compatible(plans[1].compatibility()) == []


EXAMPLE = """
[source]
format = "kafka"
mode = "continuous"
[columns]
time = "ts"
key = "url"
value = "ms"
[window]
length = "1h"
[store]
path = "store"
[run]
checkpoint = "state"
[[queries]]
name = "hot"
kind = "top"
k = 10
[[queries]]
name = "skew"
kind = "self-join"
[[queries]]
name = "slow"
kind = "quantiles"
q = [0.5]
lo = 0
hi = 100
resolution = 1
[[monitors]]
name = "rush"
kind = "count"
key = "/"
above = 100
"""
