"""Sites and coordinators as state machines: who says what when, what is ignored, and what is refused without a trace."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from carrier import Carrier

import lately as lt
from lately.monitor import Count, Ecm, FastAms, Frequent, InnerProduct, KeyRange, Monitor, RangeSum, SelfJoin, decode
from lately.monitor import messages as m
from lately.monitor.coordinator_state import Activity
from lately.monitor.site import State

AMS = FastAms(eps=0.2, delta=0.3, seed=20_120_615)
ECM = Ecm(window=100, eps=0.3, delta=0.3, seed=20_120_615)
SCHEMES = ("functional", "geometric", "push", "ship", "oracle")


def state_of(party):
    """All that a site or coordinator knows, to be compared before and after; Hypothesis's and NumPy's objects included."""

    def plain(value):
        if isinstance(value, np.ndarray):
            return value.dtype.str, value.shape, value.tolist()
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        if isinstance(value, set | frozenset):
            return sorted(map(repr, value))
        if isinstance(value, list | tuple):
            return [plain(one) for one in value]
        if isinstance(value, Monitor) or value is None or isinstance(value, str | int | float):
            return repr(value)
        if isinstance(value, m.Message):
            return value.to_bytes()
        names = [n for cls in type(value).__mro__ for n in getattr(cls, "__slots__", ())] + list(getattr(value, "__dict__", ()))
        return type(value).__name__, {name: plain(getattr(value, name)) for name in names if hasattr(value, name)}

    return plain(party)


def started(scheme="functional", sites=3, queries=None, sketch=AMS, flush="lazy", keys=1000, **more):
    """Sites that have counted so much that a few events change little, and are watched."""
    queries = {"skew": SelfJoin(theta=0.5)} if queries is None else queries
    carrier = Carrier(Monitor(sketch, queries, scheme=scheme, flush=flush, **more), range(sites))
    for number in range(sites):
        for stream in carrier.monitor.streams:
            carrier.update(number, np.arange(keys) % 10, None if carrier.monitor.window is None else 1, stream=stream)
            carrier.settle()
    carrier.log.clear()
    return carrier


def kinds(carrier):
    return [type(message).__name__ for message in carrier.log]


# -- states ----------------------------------------------------------------------------------------------------------------


def test_from_joining_to_left():
    carrier = Carrier(Monitor(AMS, SelfJoin(theta=0.5)), [4, 5])
    first, second, coordinator = carrier.sites[4], carrier.sites[5], carrier.coordinator
    assert (first.state, coordinator.activity) == (State.JOINING, Activity.STARTING)
    carrier.update(4, ["x"])
    assert kinds(carrier) == ["JoinRequest", "SketchUpdate"]
    carrier.settle()
    assert (first.state, coordinator.activity) == (State.JOINING, Activity.STARTING)
    assert (coordinator.sites, coordinator.epoch) == ([4], 0)
    carrier.update(5, ["x"])
    carrier.settle()
    assert (first.state, second.state, coordinator.activity) == (State.WATCHING, State.WATCHING, Activity.IDLE)
    assert (coordinator.sites, coordinator.epoch) == ([4, 5], 1)
    carrier.leave(4)
    assert first.state == State.LEFT
    carrier.settle()
    assert (coordinator.sites, coordinator.activity, second.state) == ([5], Activity.IDLE, State.WATCHING)
    assert repr(second) == "Site(5, watching, late=0)"
    assert repr(coordinator) == "FunctionalCoordinator(1 sites, idle, epoch=2)"


def test_a_site_that_only_lets_time_pass_joins_too():
    carrier = Carrier(Monitor(ECM, SelfJoin(theta=0.5)), [0, 1])
    carrier.advance(5)
    assert kinds(carrier) == ["JoinRequest", "SketchUpdate"] * 2
    carrier.settle()
    carrier.check_rest()


def test_functional_rounds():
    """idle, polling (a turn), …, polling and gathering, collecting, idle; a site waits once it was asked."""
    carrier, seen, states = started(), [], set()
    for step in range(3_000):
        carrier.update(0 if step % 8 else 1, ["x"])
        while carrier.flying:
            carrier.deliver()
            if not seen or seen[-1] != carrier.coordinator.activity:
                seen.append(carrier.coordinator.activity)
            states |= {site.state for site in carrier.sites.values()}
    text = "".join(one[0] for one in seen)
    assert "gci" in text, "gathered, then collected, then idle"
    assert "ipip" in text, "several turns to a reference"
    assert set(text) == set("ipgc")
    assert states == {State.WATCHING, State.WAITING}
    counts = carrier.coordinator.synchronisations
    assert counts["polling"] > counts["gathering"] >= 1


def test_eager_functional_rounds_do_without_gathering():
    carrier = started(flush="eager")
    for step in range(4_000):
        carrier.update(step % 3, ["x"])
        carrier.settle()
    counts = carrier.coordinator.synchronisations
    assert counts["collecting"] >= 1
    assert counts["gathering"] == 0
    assert "DriftRequest" not in kinds(carrier)


# -- two phases ------------------------------------------------------------------------------------------------------------


def test_a_violation_is_first_balanced():
    """One site's drift is out of its zone, but with another's is not: Reports and Balances, and nobody tells."""
    carrier, seen = started("geometric", sites=8), []
    for _ in range(2_000):
        carrier.update(2, ["x"])
        carrier.settle()
        if "SketchUpdate" in kinds(carrier):
            break
        seen = kinds(carrier)
    assert seen[0] == "DriftReport"
    assert seen.count("Balance") >= 2
    first = seen[: seen.index("Balance")]
    assert first == ["DriftReport", "DriftRequest", "DriftReport"], "one other site is asked first"
    requests = [len(part) for part in "".join("a" if k == "DriftRequest" else " " for k in seen if k != "Balance").split()]
    assert max(requests) <= 4
    assert carrier.coordinator.epoch > 1, "in the end it was told"
    carrier.check_rest()


def test_balancing_asks_one_then_two_then_four():
    carrier = started("geometric", sites=8)
    requests = []
    for _ in range(60):
        for number in range(8):
            carrier.update(number, ["x"] * 5)
            carrier.settle()
        if "SketchUpdate" in kinds(carrier):
            break
    log = kinds(carrier)[: kinds(carrier).index("UpdateRequest")]
    run = 0
    for kind in [*log, "end"]:
        if kind == "DriftRequest":
            run += 1
        elif run:
            requests.append(run)
            run = 0
    assert requests[-3:] == [1, 2, 4]


@pytest.mark.parametrize("flush", ["lazy", "eager"])
def test_slack_adds_up_to_nothing(flush):
    """Whatever balancing gives to some sites it takes from others, at sites and coordinator alike."""
    queries = {"skew": SelfJoin(theta=0.5), "range": RangeSum(keys=[1, 2], theta=0.4)}
    carrier, rng, balanced = started("geometric", 5, queries, flush=flush), np.random.default_rng(3), 0
    for _ in range(600):
        carrier.update(int(rng.choice(5, p=[0.6, 0.1, 0.1, 0.1, 0.1])), ["x"])
        carrier.settle()
        coordinator = carrier.coordinator
        for query, centre in enumerate(coordinator._centres):
            slacks = [site._guards[query].slack for site in carrier.sites.values()]
            norms = [site._guards[query].reported for site in carrier.sites.values()]
            for number, slack in enumerate(slacks):
                np.testing.assert_allclose(slack, coordinator._slacks[query][number], rtol=1e-6, atol=1e-6)
                assert site_centre(carrier, number, query) == pytest.approx(centre)
            scale = 1 + np.abs(norms).max()
            np.testing.assert_allclose(sum(slacks) / scale, np.zeros_like(slacks[0]), atol=1e-5)
            balanced += any(slack.any() for slack in slacks)
    assert balanced
    assert "Balance" in kinds(carrier)


def site_centre(carrier, number, query):
    return carrier.sites[number]._guards[query].centre


@pytest.mark.parametrize("scheme", ["functional", "geometric", "oracle"])
def test_lazy_asks_fewer_sites_to_tell(scheme):
    """Everything happens at one site of six: lazily only that one tells."""
    sites = {}
    for flush in ("lazy", "eager"):
        carrier = started(scheme, 6, flush=flush)
        while carrier.coordinator.synchronisations["collecting"] < 3:
            carrier.update(1, ["x"] * 10)
            carrier.settle()
            carrier.check_rest()
        sites[flush] = [message.site for message in carrier.log if isinstance(message, m.SketchUpdate)]
    assert set(sites["lazy"]) == {1}
    assert set(sites["eager"]) == set(range(6))


def test_few_keys_are_told_verbatim():
    wide = FastAms(eps=0.1, delta=0.01, seed=20_120_615)
    site = Monitor(wide, SelfJoin(theta=0.5)).site(0)
    update = site.update(["a", "b", "a"])[1]
    (hashes, counts), size = update.changes[0], site.drifts[0].layout.size
    assert sorted(zip(hashes.tolist(), counts.tolist(), strict=True)) == sorted(
        zip(lt.core.keys.hash_keys(["a", "b"]).tolist(), [2, 1], strict=True)
    )
    many = Monitor(wide, SelfJoin(theta=0.5)).site(0).update(np.arange(10 * size))[1]
    assert many.changes[0].size == size
    assert update.nbytes < 40 < many.nbytes
    sketched = m.SketchUpdate(0, 2, 0, (site.drifts[0].layout.sketch(hashes, counts),))
    assert update.nbytes < sketched.nbytes


def test_keys_that_cancel_are_not_told():
    site = Monitor(FastAms(eps=0.1, delta=0.01, seed=20_120_615), SelfJoin(theta=0.5)).site(0)
    update = site.update(["a", "b", "a"], counts=[3, 1, -3])[1]
    assert update.changes[0][1].tolist() == [1]


def test_one_reference_serves_all_queries():
    queries = {"skew": SelfJoin(theta=0.5), "range": RangeSum(keys=[1], theta=0.5), "alarm": SelfJoin(above=1e9, theta=0.5)}
    carrier = started(queries=queries)
    while carrier.coordinator.epoch < 3:
        carrier.update(0, ["x"] * 10)
        carrier.settle()
    references = [message for message in carrier.log if isinstance(message, m.Reference)]
    assert len(references) == 6, "one for each of three sites, twice"
    assert all(len(reference.limits) == 3 for reference in references)
    assert [limits.sides for limits in references[0].limits] == [3, 3, 1]


# -- sites that come and go ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("sketch", [AMS, FastAms(eps=0.2, delta=0.3, window=100, seed=20_120_615)])
def test_late_joiners_and_leavers(scheme, sketch):
    carrier, time = started(scheme, sketch=sketch, keys=20), None if sketch.window is None else 1
    carrier.join(9)
    carrier.update(9, ["y"] * 30, time)
    carrier.settle()
    carrier.check_rest()
    assert carrier.coordinator.sites == [0, 1, 2, 9]
    for number in (0, 9):
        carrier.leave(number)
        carrier.settle()
        carrier.check_rest()
    assert carrier.coordinator.sites == [1, 2]
    for _ in range(20):
        carrier.update(1, ["z"], time)
        carrier.settle()
        carrier.check_rest()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_leave_and_others_begin(scheme):
    carrier = started(scheme)
    for number in range(3):
        carrier.leave(number)
        carrier.settle()
    assert carrier.coordinator.activity == Activity.STARTING
    assert math.isnan(carrier.coordinator["skew"].value)
    carrier.join(7)
    carrier.update(7, ["x"] * 5)
    carrier.settle()
    carrier.check_rest()
    assert carrier.coordinator["skew"].value == pytest.approx(25)


def test_a_site_may_leave_before_it_is_watched():
    """It has joined, so the coordinator must hear of it; else everyone would wait for it for ever."""
    carrier = Carrier(Monitor(AMS, SelfJoin(theta=0.5)), [0, 1])
    carrier.update(0, ["x"] * 100)
    carrier.settle()
    carrier.leave(0)
    carrier.update(1, ["x"] * 3)
    carrier.settle()
    carrier.check_rest()
    assert carrier.coordinator.sites == [1]
    assert carrier.coordinator[""].value == pytest.approx(9)


def test_a_site_that_never_spoke_leaves_without_a_word():
    assert Monitor(AMS, SelfJoin(theta=0.5)).site(0).leave() == []


def test_what_comes_to_a_site_that_left_is_ignored():
    carrier = started()
    site = carrier.sites[1]
    site.leave()
    assert site.receive(m.UpdateRequest(1, 2, 1)) == []
    assert site.ignored == 1
    with pytest.raises(lt.InputError, match=r"site 1 has left; make a new one with Monitor\.site"):
        site.update(["x"])
    with pytest.raises(lt.InputError, match="site 1 has left"):
        site.leave()


def test_echoes_of_a_site_that_left_do_not_bring_it_back():
    carrier = Carrier(Monitor(AMS, SelfJoin(theta=0.5)), [0, 1], twice=1.0)
    for number in range(2):
        carrier.update(number, ["x"])
        carrier.settle()
    carrier.leave(0)
    carrier.settle()
    before = state_of(carrier.coordinator._announcer.sums), carrier.coordinator.sites, carrier.coordinator.epoch
    while carrier.echoes:
        carrier.deliver(echo=True)
    assert (state_of(carrier.coordinator._announcer.sums), carrier.coordinator.sites, carrier.coordinator.epoch) == before
    carrier.check_rest()


# -- what is over and done -------------------------------------------------------------------------------------------------


def test_a_site_ignores_other_epochs():
    carrier = started("geometric")
    site = carrier.sites[0]
    for message in (
        m.UpdateRequest(0, 2, 0),
        m.DriftRequest(0, 3, 7, 0, 0),
        m.Balance(0, 4, 0, 0, 1, np.ones(site._guards[0].reported.size), True),
    ):
        before = state_of(site._guards), state_of(site.drifts)
        assert site.receive(message) == []
        assert (state_of(site._guards), state_of(site.drifts)) == before
    assert (site.ignored, site.state) == (3, State.WATCHING)


def test_a_coordinator_ignores_other_epochs_and_turns():
    carrier = started()
    coordinator, watched = carrier.coordinator, ("_quanta", "_announcer", "activity", "epoch", "_pending")
    before = [state_of(getattr(coordinator, name)) for name in watched]
    for message in (
        m.Increment(0, 3, 0, 0, 0, 1000),  # of an older epoch
        m.Increment(0, 4, 1, 0, 5, 1000),  # of another turn
        m.Increment(0, 5, 1, 8, 0, 1000),  # about a query that is not
        m.SafeFunctionReport(0, 6, 1, 0, 0, np.array([0.5])),  # nobody asked
    ):
        assert coordinator.receive(message) == []
    assert coordinator.ignored == 4
    assert [state_of(getattr(coordinator, name)) for name in watched] == before


@pytest.mark.parametrize("scheme", SCHEMES)
def test_duplicates_change_nothing(scheme):
    """Every message twice, at once and again after all others: as if each came once."""
    runs = []
    for twice in (0.0, 1.0):
        carrier = started(scheme)
        carrier.twice = twice
        rng = np.random.default_rng(4)
        for step in range(300):
            carrier.update(step % 3, rng.integers(0, 20, 4))
            while carrier.flying:
                carrier.deliver()
                while carrier.echoes and step % 2:
                    carrier.deliver(echo=True)
            carrier.settle()
        while carrier.echoes:
            carrier.deliver(echo=True)
        runs.append([message.to_bytes() for message in carrier.log])
        repeated = sum(peer.inbox.repeated for peer in carrier.coordinator._members.states.values())
        assert (repeated > 0) == (twice > 0 and any(message.site in carrier.sites for message in carrier.log))
    assert runs[0] == runs[1]


# -- what is refused -------------------------------------------------------------------------------------------------------


def refused(party, message, error, match):
    """It raises, and leaves no trace."""
    before = state_of(party)
    with pytest.raises(error, match=match):
        party.receive(message)
    assert state_of(party) == before


def test_a_message_for_another_site():
    refused(started().sites[1], m.UpdateRequest(2, 2, 1), lt.InputError, "a message for site 2 came to site 1; carry it there")


def test_a_message_of_a_site_that_has_not_joined():
    match = "site 8.*carry its JoinRequest first"
    refused(started().coordinator, m.Increment(8, 1, 0, 0, 0, 1), lt.InputError, match)


@pytest.mark.parametrize(
    "message",
    [
        m.JoinRequest(1, 2, 5, 6),
        m.SketchUpdate(1, 2, 1, ()),
        m.Increment(1, 2, 1, 0, 0, 1),
        m.LeaveNotice(1, 2),
        m.CellsMessage(1, 2, 0, np.ones(1, int)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_only_coordinators_understand(message):
    refused(
        started().sites[1], message, lt.InputError, f"{type(message).__name__}.* came to site 1; carry it to the coordinator"
    )


@pytest.mark.parametrize(
    "message",
    [
        m.UpdateRequest(1, 3, 1),
        m.Reference(1, 3, 1, ()),
        m.Events(1, 3, 0, np.zeros(0, np.uint64), np.zeros(0, int), np.zeros(0, int)),
        m.KeyCount(1, 3, 5, 2),
        m.CellsMessage(1, 3, 0, np.ones(1, int)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_a_coordinator_does_not_understand(message):
    match = f"a {type(message).__name__} (for site 1 came to the coordinator; carry it there|came to a coordinator of scheme=)"
    refused(started().coordinator, message, lt.InputError, match)


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("functional", m.Balance(1, 2, 1, 0, 1, np.zeros(3), True)),
        ("geometric", m.Quantum(1, 2, 1, 0, 1, np.ones(1))),
        ("geometric", m.SafeFunctionRequest(1, 2, 1, 0, 0)),
        ("push", m.SafeFunctionRequest(1, 2, 1, 0, 0)),
    ],
)
def test_what_belongs_to_another_scheme(scheme, message):
    match = f"a {type(message).__name__} for another monitor than that of site 1; build all from one Monitor"
    refused(started(scheme).sites[1], message, lt.InputError, match)


@pytest.mark.parametrize(
    "other",
    [
        Monitor(AMS, {"skew": SelfJoin(theta=0.6)}),
        Monitor(AMS, {"skewed": SelfJoin(theta=0.5)}),
        Monitor(AMS, {"skew": SelfJoin(theta=0.5)}, scheme="geometric"),
        Monitor(AMS, {"skew": SelfJoin(theta=0.5)}, flush="eager"),
        Monitor(AMS, {"skew": SelfJoin(theta=0.5, stream="a")}, streams=("a", "b")),
        Monitor(FastAms(eps=0.2, delta=0.3, seed=4), {"skew": SelfJoin(theta=0.5)}),
        Monitor(FastAms(eps=0.2, delta=0.3, window=10, seed=20_120_615), {"skew": SelfJoin(theta=0.5)}),
    ],
    ids=repr,
)
def test_a_site_built_for_another_monitor(other):
    joined = other.site(9).update(["x"], 1 if other.window else None, stream=other.streams[0])[0]
    coordinator = started().coordinator
    refused(coordinator, joined, lt.MergeError, r"site 9 was built for another monitor.*build both from one Monitor\(…\)")
    assert coordinator.sites == [0, 1, 2]


def test_range_sums_of_other_keys_are_other_monitors():
    """The keys of a RangeSum are not in its repr, and yet sites must agree on them."""
    first, second = (Monitor(AMS, RangeSum(keys=keys, theta=0.5)) for keys in (range(3), range(4)))
    assert first.fingerprint != second.fingerprint
    weighted = Monitor(AMS, RangeSum(keys=range(3), weights=[1, 2, 3], theta=0.5))
    assert first.fingerprint != weighted.fingerprint


def test_numbers_of_another_size():
    coordinator = started(queries={"skew": SelfJoin(theta=0.5)}).coordinator
    size = coordinator.monitor.layouts[0].size
    for changes in ((), (np.ones(size + 1, np.int64),), (np.ones(size, np.int64),) * 2):
        refused(
            coordinator,
            m.SketchUpdate(1, 3, 1, changes),
            lt.MergeError,
            "site 1 sent an update of other streams than this coordinator has",
        )
    report = m.DriftReport(1, 3, 1, 0, 0, np.ones(2), 0)
    refused(coordinator, report, lt.MergeError, "site 1 reported 2 numbers; build it like this coordinator")
    safe_function = m.SafeFunctionReport(1, 3, 1, 0, 0, np.ones(0))
    refused(coordinator, safe_function, (lt.MergeError, lt.InputError), "site 1")


def test_limits_of_another_size():
    for scheme, message in (
        ("functional", m.Reference(1, 2, 2, ())),
        ("functional", m.DriftRequest(1, 2, 1, 3, 0)),
        ("geometric", m.Balance(1, 2, 1, 0, 1, np.ones(50), True)),
        ("functional", m.Quantum(1, 2, 1, 0, 1, np.ones(0))),
    ):
        refused(started(scheme).sites[1], message, (lt.InputError, lt.MergeError), "site|build")


def test_a_query_that_is_not():
    with pytest.raises(lt.InputError, match="no query 'screw'; the monitor has 'skew'"):
        started().coordinator["screw"]


# -- events that are refused ----------------------------------------------------------------------------------------------

BAD = {
    "empty": (AMS, {"keys": []}, "an empty column of keys; skip the call"),
    "nulls": (AMS, {"keys": ["a", None]}, "None|null"),
    "counts of others": (AMS, {"keys": ["a", "b"], "counts": [1, 2, 3]}, "3 counts for 2 keys"),
    "broken counts": (AMS, {"keys": ["a"], "counts": [1.5]}, r"counts has the value 1\.5"),
    "huge counts": (AMS, {"keys": ["a", "b"], "counts": [2**61, 2**61]}, r"more than 2\*\*62"),
    "times": (AMS, {"keys": ["a"], "times": 5}, "times for a monitor without a window; leave them out"),
    "stream": (AMS, {"keys": ["a"], "stream": "b"}, "no stream 'b'; the monitor has ''"),
    "negative counts": (ECM, {"keys": ["a"], "times": 5, "counts": [-1]}, "counts has the value -1"),
    "times of others": (ECM, {"keys": ["a", "b"], "times": [1, 2, 3]}, "2 keys but 3 times"),
    "one time in a list": (ECM, {"keys": ["a", "b"], "times": [1]}, "2 keys but 1 times"),
    "null times": (ECM, {"keys": ["a", "b"], "times": [1, None]}, "times"),
    "far times": (ECM, {"keys": ["a"], "times": 2**62 + 1}, r"more than 2\*\*62"),
    "dates": (ECM, {"keys": ["a"], "times": "2026-01-01"}, "times are dates but the window is in integers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_events_leave_no_trace(case):
    sketch, events, match = BAD[case]
    carrier = started(sketch=sketch, keys=20)
    site = carrier.sites[0]
    before = state_of(site)
    with pytest.raises(lt.LatelyError if hasattr(lt, "LatelyError") else Exception, match=match):
        site.update(**events)
    assert state_of(site) == before
    carrier.check_rest()


def test_no_time_to_a_window():
    carrier = started(sketch=ECM, keys=20)
    before = state_of(carrier.sites[0])
    with pytest.raises(lt.InputError, match="time"):
        carrier.sites[0].update(["a"])
    assert state_of(carrier.sites[0]) == before


def test_key_ranges_need_integers():
    queries = {"skew": SelfJoin(theta=0.5), "range": KeyRange(start=0, stop=5, theta=0.5)}
    site = started(sketch=ECM, keys=20, queries=queries).sites[0]
    before = state_of(site)
    with pytest.raises(lt.InputError, match="the monitor has a KeyRange, so all keys must be integers"):
        site.update(["a", "b"], 2)
    assert state_of(site) == before


def test_several_streams_must_be_named():
    site = Monitor(AMS, InnerProduct(of=("a", "b"), theta=0.5), streams=("a", "b")).site(0)
    with pytest.raises(lt.InputError, match="the monitor has the streams a, b; say which with stream="):
        site.update(["x"])
    assert len(site.update(["x"], stream="b")) == 2


def test_time_means_nothing_without_a_window():
    with pytest.raises(lt.ParameterError, match=r"the monitor has no window.*leave advance\(\) out"):
        started().sites[0].advance(5)


def test_late_events_are_counted_as_late():
    carrier = started(sketch=ECM, keys=20)
    site = carrier.sites[0]
    site.advance(50)
    numbers = site.drifts[0].numbers.copy()
    assert site.update(["x", "x", "y"], [10, 49, 3], [4, 1, 1]) == []
    assert site.late == 6
    assert (site.drifts[0].numbers == numbers).all()
    site.update(["x", "x"], [10, 50])
    assert site.late == 7
    assert site.drifts[0].numbers.sum() == numbers.sum() + site.drifts[0].layout.rows


def test_events_of_a_batch_are_put_in_order():
    first, second = (Monitor(ECM, SelfJoin(theta=0.5)).site(0) for _ in range(2))
    first.update(["a", "b", "c"], [300, 10, 200])
    second.update(["b", "c", "a"], [10, 200, 300])
    assert (first.drifts[0].numbers == second.drifts[0].numbers).all()
    assert first.late == 0


# -- parameters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: Monitor(SelfJoin(theta=0.5), SelfJoin(theta=0.5)),
            r"a SelfJoin is not the sketch of a monitor; give monitor\.Ecm",
        ),
        (
            lambda: Monitor(AMS, SelfJoin(theta=0.5), scheme="magic"),
            "scheme='magic'; give one of functional, geometric",
        ),
        (lambda: Monitor(AMS, SelfJoin(theta=0.5), flush="never"), "flush='never'; give one of lazy, eager"),
        (lambda: Monitor(AMS, {}), "no queries; give at least one"),
        (lambda: Monitor(AMS, {"a": 5}), "a int is not a query"),
        (lambda: Monitor(AMS, SelfJoin(theta=0.5), streams=("a", "a")), "name every stream, each once"),
        (lambda: Monitor(AMS, SelfJoin(theta=0.5), streams=()), "name every stream, each once"),
        (lambda: Monitor(AMS, SelfJoin(theta=0.1)), "theta=0.1 with eps=0.2.*give theta above 0.2"),
        (lambda: Monitor(AMS, Count(key=1, theta=0.5)), "use a RangeSum"),
        (lambda: Monitor(ECM, RangeSum(keys=[1], theta=0.5)), "a RangeSum needs Fast-AMS"),
        (lambda: Monitor(ECM, SelfJoin(theta=0.5), scheme="push"), "scheme='push' tracks values over Fast-AMS sketches only"),
        (
            lambda: Monitor(ECM, KeyRange(start=0, stop=5, theta=0.5), scheme="ship"),
            "a KeyRange cannot select; give another scheme",
        ),
        (lambda: Monitor(AMS, SelfJoin(theta=0.5)).site(-1), r"site=-1 is not an integer from 0 to 2\*\*48 - 1"),
        (lambda: Monitor(AMS, SelfJoin(theta=0.5)).site(True), "site=True"),
        (
            lambda: Monitor(AMS, SelfJoin(theta=0.5)).coordinator([]),
            r"sites=\[\] are not distinct sites; give the first sites, each once",
        ),
        (
            lambda: Monitor(AMS, SelfJoin(theta=0.5)).coordinator([1, 1]),
            r"sites=\[1, 1\] are not distinct sites.*each once",
        ),
    ],
)
def test_bad_monitors_are_refused(make, match):
    with pytest.raises(lt.ParameterError, match=match):
        make()


def test_sites_travel():
    """A site can be stored and go on elsewhere: Spark and checkpoints need it."""
    carrier = started()
    site = carrier.sites[0]
    other = pickle.loads(pickle.dumps(site))
    third = copy.deepcopy(site)
    sent = [[message.to_bytes() for message in one.update(["x"] * 5_000)] for one in (site, other, third)]
    assert sent[0] == sent[1] == sent[2] != []


# -- alarms ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["functional", "geometric", "oracle", "ship"])
def test_alarms_flip_within_tolerance(scheme):
    """Up over the threshold and down again: the alarm follows, and is wrong only within theta of the threshold."""
    bar, theta = 60, 0.1
    monitor = Monitor(ECM, {"often": Count(key="x", above=bar, theta=theta)}, scheme=scheme)
    carrier, now, seen = Carrier(monitor, range(3)), 100, []
    for number in range(3):
        carrier.update(number, ["y"], now)
    carrier.settle()
    for step in range(700):
        now += 1
        if step % 350 < 150:
            carrier.update(step % 3, ["x"], now)
        carrier.advance(now)
        carrier.settle()
        carrier.check_rest()
        alarm, truth = carrier.coordinator["often"].alarm, monitor.truth(carrier.joined)["often"]
        if truth > (1 + theta) * bar + 1e-6:
            assert alarm
        if truth < (1 - theta) * bar - 1e-6:
            assert not alarm
        seen.append(alarm)
    assert sum(a != b for a, b in itertools.pairwise(seen)) == 4
    assert len(carrier.log) < 700 or scheme == "ship"


def test_messages_are_bytes():
    """Whatever passes in these tests passes as bytes; see that it is not changed by that."""
    carrier = started("geometric")
    for step in range(500):
        carrier.update(0 if step % 5 else 1, ["x"])
        carrier.settle()
    assert {"DriftReport", "Balance", "DriftRequest", "UpdateRequest", "SketchUpdate", "Reference"} <= set(kinds(carrier))
    assert all(decode(message.to_bytes()).to_bytes() == message.to_bytes() for message in carrier.log)


def test_frequent_and_queries_share_one_monitor():
    monitor = Monitor(ECM, {"often": Frequent(tau=5, theta=0.1), "skew": SelfJoin(theta=0.5)})
    assert monitor.names == ("skew",)
    assert list(monitor.coordinator([0]).announcements()) == ["skew", "often"]
