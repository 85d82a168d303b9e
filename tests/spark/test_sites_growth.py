"""What many sites cost grows with their number, and no faster: counted in instructions of Python and in bytes."""

import numpy as np
import pyarrow as pa
import pytest
from growth import allocated, instructions
from pipelines import content

from lately.pipeline.site_assignment import SiteAssignment, site_number
from lately.pipeline.site_record import SiteRecord
from lately.pipeline.state_versions import StateVersion, StateVersions, with_places
from lately.spark.bundles import bundle
from lately.spark.micro_batch import pack_site_states
from lately.spark.partial_answers import combine_answers, partial_answers
from lately.spark.pipeline import Pipeline
from lately.spark.sites import site_of

SITES = (1250, 2500, 5000)
#: Where every site has sketches to be built and asked.
FEWER = (40, 80, 160)
#: More than in proportion is allowed by this factor: dictionaries and lists grow in steps.
SLACK = 1.3


def names_of(count):
    return [f"site {number:05d}" for number in range(count)]


def assert_proportional(measure, sizes=SITES):
    """``measure`` returns the work for so many sites."""
    measure(sizes[0])  # what is only done once
    least, *rest = (measure(size) for size in sizes)
    for size, work in zip(sizes[1:], rest, strict=True):
        assert work <= SLACK * size / sizes[0] * least, (least, rest)


def version_of(count, batch=0):
    places = {site: {"topk": ("000000000000-a.part", 100 * i, 100)} for i, site in enumerate(names_of(count))}
    records = {site: SiteRecord(counted=3, seen=10**15, gap=2.0) for site in places}
    parts = {"000000000000-a.part": 100 * count}
    return StateVersion(batch, "stream", {}, 7, dict.fromkeys(places, 7), places, sites=records, parts=parts)


@pytest.mark.parametrize("of", [instructions, allocated])
def test_bundles(of):
    def work(count):
        sites = names_of(count)
        rows = pa.record_batch({"site": pa.array(sites * 2), "time": pa.array(np.arange(2 * count))})
        return of(lambda: list(bundle(SiteAssignment(sites, 8))([rows])))

    assert_proportional(work)


@pytest.mark.parametrize("of", [instructions, allocated])
def test_versions(of, tmp_path):
    def work(count):
        versions = StateVersions(str(tmp_path / f"{of.__name__}-{count}"))
        versions.clear()
        versions.prepare()
        version = version_of(count)

        def cycle():
            versions.write(version)
            pack_site_states(versions.read(0), SiteAssignment(version.places, 8), 8)
            versions.tidy()

        return of(cycle)

    assert_proportional(work)


def test_a_batch_of_few_sites_copies_nothing_of_the_others():
    before = version_of(5000).places
    changed = {"site 00007": {"topk": ("000000000001-b.part", 0, 9)}, "new": {"topk": ("000000000001-b.part", 9, 9)}}
    after = with_places(before, changed, {"topk"})
    assert {site for site in after if after[site] is not before.get(site)} == set(changed)
    assert {site: dict(after[site]) for site in changed} == changed
    # A query that is gone takes its places with it.
    assert with_places(before, changed, {"other"}) == {site: {} for site in (*before, "new")}


def test_old_versions_are_not_read_again_to_tidy(tmp_path):
    versions = StateVersions(str(tmp_path))
    versions.prepare()
    small, large = [], []
    for batch in range(6):
        versions.write(version_of(100, batch))
        small.append(instructions(versions.tidy))
    for batch in range(6, 12):
        versions.write(version_of(5000, batch))
        large.append(instructions(versions.tidy))
    assert max(large) < 2 * max(small)
    assert versions.batches() == [9, 10, 11]
    # A run that has not seen them reads them: the parts that they need stay.
    (tmp_path / "parts" / "000000000000-a.part").write_bytes(b"needed")
    (tmp_path / "parts" / "000000000003-b.part").write_bytes(b"not needed")
    StateVersions(str(tmp_path)).tidy()
    assert [file.name for file in (tmp_path / "parts").iterdir()] == ["000000000000-a.part"]


QUERIES = [
    {"name": "top", "kind": "top", "k": 5},
    {"name": "values", "kind": "quantiles", "lo": 0, "hi": 100, "resolution": 0.5},
    {"name": "n", "kind": "exact", "aggregate": "count", "by": "site"},
]


@pytest.mark.parametrize("of", [instructions, allocated])
def test_answers(of):
    plan = Pipeline.of(content("source", "folder", columns={"value": "ms"}, queries=QUERIES, window={"length": 1000})).plan

    def work(count):
        random = np.random.default_rng(1)
        sites = {}
        for site in names_of(count):
            sites[site] = {spec.name: spec.empty() for spec in plan.specs}
            for spec in plan.specs:
                if spec.name == "exact":
                    sites[site][spec.name].update({"time": np.arange(5)}, np.arange(5))
                else:
                    sites[site][spec.name].update(random.integers(0, 50, 5), np.arange(5))
        return of(lambda: combine_answers(plan, [partial_answers(plan, 10, sites.items())]))

    assert_proportional(work, FEWER)


@pytest.mark.parametrize("kind", [{"kind": "count", "key": 0}, {"kind": "self-join"}, {"kind": "frequent", "tau": 300}])
def test_monitors_that_all_sites_join_at_once(kind):
    config = content("source", "folder", monitors=[{"name": "m", "theta": 0.2, "eps": 0.2, **kind}], window={"length": 1000})
    (spec,) = Pipeline.of(config).plan.monitors

    def work(count):
        sites = [site_of(spec, name) for name in names_of(count)]
        messages = [message for site in sites for message in site.update([0, 1, 1], [1, 2, 3])]
        coordinator = spec.monitor.coordinator([site_number(name) for name in names_of(count)])
        return instructions(lambda: coordinator.receive_all(messages)) + instructions(coordinator.to_bytes)

    assert_proportional(work, (60, 120, 240))


def test_many_messages_at_once_say_what_they_say_one_by_one():
    config = content("source", "folder", monitors=[{"name": "m", "kind": "self-join", "theta": 0.2}], window={"length": 1000})
    (spec,) = Pipeline.of(config).plan.monitors
    sites = {site_number(name): site_of(spec, name) for name in names_of(40)}
    together, apart = (spec.monitor.coordinator(list(sites)) for _ in range(2))
    random = np.random.default_rng(2)
    for step in range(6):
        messages = [
            message
            for site in sites.values()
            for message in site.update(random.integers(0, 9, 20), np.arange(step * 100, step * 100 + 20))
        ]
        while messages:
            replies = together.receive_all(messages)
            assert [r.to_bytes() for r in replies] == [r.to_bytes() for one in messages for r in apart.receive(one)]
            assert together.to_bytes() == apart.to_bytes()
            messages = [answer for reply in replies for answer in sites[reply.site].receive(reply)]
    assert together["m"].value > 0
    # While some are awaited, too.
    together, apart = (spec.monitor.coordinator(list(sites)) for _ in range(2))
    joins = [message for name in names_of(39) for message in site_of(spec, name).update([1, 2], [5, 6])]
    assert together.receive_all(joins) == [reply for one in joins for reply in apart.receive(one)] == []
    assert together["m"] == apart["m"]
    assert len(together["m"].awaited) == 1
