"""Stored and restored at any moment, sites and coordinators go on as if nothing had been, message for message."""

import functools
import os
import pickle
import random
import struct
import zlib
from collections import Counter

import numpy as np
import pytest
from carrier import Carrier
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import lately as lt
from lately import cli
from lately.monitor import Count, Ecm, FastAms, Frequent, InnerProduct, KeyRange, Monitor, RangeSum, SelfJoin, decode
from lately.monitor import messages as m
from lately.monitor.baselines import OracleCoordinator
from lately.monitor.coordinator_state import Activity
from lately.monitor.drift import DUE, WindowDrift
from lately.monitor.drift_kernels import TURNED_TO
from lately.monitor.inbox import Inbox
from lately.monitor.site import State

few = settings(max_examples=max(int(os.environ.get("LATELY_EXAMPLES", "30")) // 15, 1))

WINDOW, SITES, STREAMS = 40, 3, ("a", "b")
SKETCHES = {
    "ecm": Ecm(window=WINDOW, eps=0.5, delta=0.1, seed=20_120_615),
    "stream": FastAms(eps=0.4, delta=0.02, seed=20_120_615),
    "window": FastAms(eps=0.45, delta=0.02, window=WINDOW, seed=20_120_615),
}
SCHEMES = [(scheme, flush) for scheme in ("functional", "geometric", "oracle") for flush in ("lazy", "eager")]
COMBINATIONS = [
    *((kind, scheme, flush) for kind in SKETCHES for scheme, flush in [*SCHEMES, ("ship", "lazy")]),
    *((kind, "push", flush) for kind in ("stream", "window") for flush in ("lazy", "eager")),
]
in_every_way = pytest.mark.parametrize(("kind", "scheme", "flush"), COMBINATIONS, ids=str)


def watch(kind, scheme="functional", flush="lazy", **more):
    """A monitor of as many queries as go together."""
    skew, join = {"skew": SelfJoin(theta=0.6, stream="a")}, {"join": InnerProduct(of=STREAMS, theta=0.6, floor=3)}
    alarm = {} if scheme == "push" else {"skewed": SelfJoin(above=60, theta=0.85, stream="b")}
    if kind != "ecm":
        queries = skew | alarm | join | {"sum": RangeSum(keys=range(3), theta=0.6, stream="a")}
    else:
        queries = skew | alarm | join | {"key": Count(key=1, theta=0.2, stream="a")}
        if scheme != "ship":
            queries |= {"range": KeyRange(start=0, stop=3, above=9, stream="b")}
        if scheme in ("functional", "geometric"):
            queries |= {"often": Frequent(tau=12, theta=0.2, stream="a")}
    return Monitor(SKETCHES[kind], queries, streams=STREAMS, scheme=scheme, flush=flush, **more)


class Network(Carrier):
    """Sites and a coordinator, some of which are replaced by their restored selves with everything that happens."""

    def __init__(self, monitor, seed, often):
        super().__init__(monitor, range(SITES), twice=0.2, seed=seed)
        self.sites = {number: monitor.site(number, birth=number) for number in range(SITES)}
        self.often, self.moments = often, random.Random(seed)
        self.now = 100
        self.met = Counter()

    def enter(self, number):
        if number not in self.sites and number not in self.gone:
            self.sites[number] = self.monitor.site(number, birth=number)

    def leave(self, number):
        if number in self.sites and len(self.joined) > 1:
            super().leave(number)

    def count(self, number, keys, counts, stream, late=0):
        if number not in self.sites:
            return
        timed = self.monitor.window is not None
        times = self.now - late if timed else None
        self.update(number, keys, times, np.abs(counts) if timed and counts is not None else counts, stream)

    def refuse(self, number):
        """A batch that cannot be taken; a site that ships has joined nevertheless, and will say so with the next."""
        if number in self.sites:
            with pytest.raises(lt.InputError):
                self.sites[number].update([1, 2], self.now if self.monitor.window else None, [1], stream="a")

    def swap(self):
        """Replace some by their restored selves, more of them where a moment is short."""
        often = self.often and max(self.often, 0.5 * (self.coordinator.activity == Activity.STARTING))
        for home, likely in ((self.sites, often), (self.gone, often and 0.3)):
            for number in home:
                if self.moments.random() < likely:
                    home[number] = self.again(home[number])
                    self.met[home[number].state] += 1
                    self.met["site waits for messages"] += home[number]._inbox.waiting > 0
                    self.met["unsent"] += len(home[number]._outbox)
        if self.monitor.scheme == "oracle":  # which looks at the sites themselves
            self.coordinator._visible_sites = [self.sites.get(one.number, one) for one in self.coordinator._visible_sites]
            if self.coordinator.activity == Activity.COLLECTING:
                with pytest.raises(lt.InputError, match="oracle"):
                    self.coordinator.to_bytes()
                return
        if self.moments.random() < often:
            self.coordinator = self.again(self.coordinator)
            self.met[self.coordinator.activity] += 1
            self.met["coordinator waits for messages"] += any(
                p.inbox.waiting for p in self.coordinator._members.states.values()
            )

    def again(self, party):
        blob = party.to_bytes()
        twin = self.monitor.restore(blob)
        assert twin.to_bytes() == blob
        if self.moments.random() < 0.15:
            assert facts(twin) == facts(party)
        return twin

    def play(self, script, share):
        for what, number, key, count, stream in script:
            if what == "pass":
                self.now += count * count
                if self.monitor.window:
                    self.advance(self.now)
            elif what == "late":
                self.count(number, [key, key + 1], [count, 1], stream, late=3)
            elif what in ("enter", "leave", "refuse"):
                getattr(self, what)(number + SITES - 1 if what == "enter" else number)
            else:
                many = what == "many"
                self.count(number, [key] * (max(count, 1) if many else 1), None if many else [count], stream)
            self.swap()
            for _ in range(2):
                self.some(share)
                self.swap()
        self.settle()
        self.swap()
        return self

    def everything(self):
        """All that can be seen from outside, and all that is known inside."""
        everyone = [*self.sites.values(), *self.gone.values()]
        return {
            "messages": [(message.to_site, message.to_bytes()) for message in self.log],
            "announced": repr(self.coordinator.announcements()),
            "synchronisations": self.coordinator.synchronisations,
            "late": [site.late for site in everyone],
            "ignored": [self.coordinator.ignored, *(site.ignored for site in everyone)],
            "repeated": {number: peer.inbox.repeated for number, peer in self.coordinator._members.states.items()},
            "states": [self.coordinator.to_bytes(), *(site.to_bytes() for site in everyone)],
        }


#: What no call finds as another left it, or what is worked out when it is asked for.
PASSING = {"_events", "_batch", "_at", "_from", "_counted", "_earlier", "_column", "_order", "own_norms", "monitor", "layout"}
#: The same objects as others that are compared.
SHARED = {"_monitor", "_drifts", "_drift"}


def facts(value):
    """Every attribute of a thing, so that one that is added and not stored is found here."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: facts(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [facts(one) for one in value]
    if isinstance(value, set):
        return sorted(value)
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    if isinstance(value, m.Message):
        return value.to_bytes()
    slots, cached = names_of(type(value))
    names = slots | set(getattr(value, "__dict__", ())) - cached - PASSING - SHARED
    known = {name: getattr(value, name) for name in sorted(names)}
    if isinstance(value, OracleCoordinator):
        del known["_visible_sites"]  # the sites themselves
    if isinstance(value, WindowDrift):
        since = max(int(value._shape[TURNED_TO]), 1)
        waves, book = value._waves.copy(), value._book.copy()
        waves.first[waves.first < since], waves.rings[waves.rings < since] = 0, 0  # what has left the window
        book[book[:, DUE] == 2**32 - 1, 3] = -1  # what is not on the wheel has no neighbour
        known |= {"_waves": waves, "_book": book}
    if hasattr(value, "verbatim"):
        known["verbatim"] = value.verbatim()
    return type(value).__name__, {name: facts(one) for name, one in known.items()}


@functools.cache
def names_of(kind):
    """The attributes of a class that has slots, and those that are worked out once."""
    slots = {name for cls in kind.__mro__ for name in getattr(cls, "__slots__", ())}
    return slots, {
        name for cls in kind.__mro__ for name, one in vars(cls).items() if isinstance(one, functools.cached_property)
    }


# -- any moment ----------------------------------------------------------------------------------------------------------

steps = st.tuples(
    st.sampled_from(["one", "one", "one", "many", "pass", "pass", "late", "enter", "leave", "refuse"]),
    st.integers(0, SITES),
    st.integers(0, 5),
    st.integers(1, 9) | st.integers(-5, 9).filter(bool),
    st.sampled_from(STREAMS),
)


@in_every_way
@few
@given(
    script=st.lists(steps, max_size=25),
    share=st.sampled_from([0.2, 0.6, 1.0]),
    seed=st.integers(0, 2**32),
    often=st.sampled_from([0.05, 0.2, 0.7]),
)
def test_restored_at_any_moment(kind, scheme, flush, script, share, seed, often):
    """What follows is what would have followed."""
    monitor = watch(kind, scheme, flush)
    disturbed, undisturbed = (Network(monitor, seed, how).play(script, share).everything() for how in (often, 0))
    assert disturbed == undisturbed


def long_script(size, seed=5):
    rng = random.Random(seed)
    some = ["one"] * 8 + ["many"] * 2 + ["pass"] + ["late", "refuse"] * (size > 100)
    script = [("refuse", 0, 0, 1, "a"), *(("one", number, 0, 1, "a") for number in range(SITES))]
    script += [
        (
            rng.choice(some),
            rng.choice([0, 0, 1, 2]),
            min(int(rng.expovariate(0.6)), 9),
            rng.choice([1, 1, 2, 3]),
            rng.choice("aab"),
        )
        for _ in range(size)
    ]
    return [*script, ("leave", 1, 0, 0, "a"), ("enter", 1, 0, 0, "a"), *script[: size // 4]]


@pytest.fixture(scope="module")
def met():
    return {}


@in_every_way
def test_restored_in_a_long_run(kind, scheme, flush, met):
    monitor = watch(kind, scheme, flush)
    networks = [Network(monitor, 3, how).play(long_script(70), 0.5) for how in (0.05, 0)]
    assert networks[0].everything() == networks[1].everything()
    met[kind, scheme, flush] = networks[0].met


def test_the_long_runs_met_every_moment(met):
    """What is tested above is tested in every state, at least once for every scheme that has it."""
    seen = {scheme: sum((of for (_, name, _), of in met.items() if name == scheme), Counter()) for _, scheme, _ in COMBINATIONS}
    for scheme, moments in seen.items():
        waiting = set() if scheme in ("ship", "push") else {State.WAITING}
        assert {State.JOINING, State.WATCHING, State.LEFT, Activity.IDLE, Activity.STARTING} | waiting <= (+moments).keys(), (
            scheme
        )
        assert moments["coordinator waits for messages"] > 0, scheme
    assert seen["functional"].keys() >= {Activity.POLLING, Activity.GATHERING, Activity.COLLECTING}
    assert seen["geometric"].keys() >= {Activity.BALANCING, Activity.COLLECTING}
    assert sum(moments["site waits for messages"] for moments in seen.values()) > 0
    assert seen["ship"]["unsent"] > 0


def test_restored_beyond_what_floats_and_stamps_hold():
    """Squares that are no longer exact, and stamps that must begin anew, go on from the very same bits."""
    monitor = Monitor(Ecm(window=1000, eps=0.3, delta=0.1, seed=20_120_615), SelfJoin(theta=0.3))
    rng = np.random.default_rng(4)
    undisturbed, now, twins = monitor.site(0, birth=1), 0, []
    coordinator = monitor.coordinator([0])
    restored = monitor.site(0, birth=1)
    for step in range(60):
        now += 2**31 if step % 20 == 19 else int(rng.choice([1, 50, 400]))
        batch = rng.integers(0, 50, 20), now + np.sort(rng.integers(0, 30, 20)), rng.integers(1, 10**9, 20)
        now = int(batch[1][-1])
        messages = [site.update(*batch) for site in (undisturbed, restored)]
        while any(messages):
            assert [x.to_bytes() for x in messages[0]] == [x.to_bytes() for x in messages[1]]
            replies = [reply for message in messages[0] for reply in coordinator.receive(message)]
            messages = [[x for reply in replies for x in site.receive(reply)] for site in (undisturbed, restored)]
        assert facts(undisturbed) == facts(restored)
        twins.append(restored)
        restored = monitor.restore(restored.to_bytes())
    assert max(site.drifts[0]._squares.max() for site in twins) > 2**53
    assert len({site.drifts[0]._origin for site in twins}) > 1


@pytest.mark.parametrize("scheme", ["functional", "geometric"])
def test_messages_that_pass_as_objects_are_what_their_bytes_are(scheme):
    """In one process nobody need encode them; those that wait when a site is stored must not change by that."""
    monitor = watch("stream", scheme)
    sites, coordinator, seen = (
        [monitor.site(number, birth=1) for number in range(SITES)],
        monitor.coordinator(range(SITES)),
        set(),
    )
    for step in range(120):
        messages = sites[step % SITES].update(np.arange(step % 7 + 1), stream="ab"[step % 2])
        while messages:
            message = messages.pop(0)
            assert facts(vars_of(decode(message.to_bytes()))) == facts(vars_of(message)), message
            seen.add(type(message))
            messages += (sites[message.site] if message.to_site else coordinator).receive(message)
    assert seen >= {m.SketchUpdate, m.Reference, m.DriftReport} | (
        {m.SafeFunctionReport, m.Quantum} if scheme == "functional" else {m.Balance}
    )


def vars_of(message):
    """What a message holds, as it is."""
    return {name: getattr(message, name) for name in names_of(type(message))[0]}


def test_keys_of_every_kind_are_kept():
    """Keys that are watched for being frequent, at the site and at the coordinator."""
    monitor = Monitor(Ecm(window=100, eps=0.05, delta=0.05, seed=20_120_615), {"hot": Frequent(tau=5, theta=0.1)})
    site, coordinator = monitor.site(0, birth=1), monitor.coordinator([0])
    keys = ["Grüße", "", b"\xff", ("a", 1), (("x", b"y"), -(2**63)), -1, 2**63 - 1]

    def carry(messages):
        while messages:
            message = messages.pop(0)
            messages += (site if message.to_site else coordinator).receive(message)

    carry(site.advance(1))
    for key in keys:
        carry(site.update([key] * 6, 1))
        site, coordinator = monitor.restore(site.to_bytes()), monitor.restore(coordinator.to_bytes())
    assert set(coordinator["hot"].counts) == set(keys)
    carry(site.advance(200))
    assert not coordinator["hot"].counts


# -- births --------------------------------------------------------------------------------------------------------------


def test_a_birth_that_is_given_is_used():
    monitor = watch("ecm")
    first, second = (monitor.site(1, birth=2**64 - 1).join() for _ in range(2))
    assert [x.to_bytes() for x in first] == [x.to_bytes() for x in second]
    assert first[0].birth == 2**64 - 1
    assert monitor.site(1).join()[0].birth != monitor.site(1).join()[0].birth


@pytest.mark.parametrize("birth", [-1, 2**64, 1.0, "1", True])
def test_births_that_are_no_words_are_refused(birth):
    with pytest.raises(lt.ParameterError, match="birth"):
        watch("ecm").site(1, birth=birth)


def test_a_site_joins_as_the_one_that_was_stored():
    """Drawn at random, a birth is drawn once: who joins after being restored is no stranger."""
    site = watch("stream").site(1)
    assert site.monitor.restore(site.to_bytes()).join()[0].birth == site.join()[0].birth


def test_what_was_lost_is_replayed():
    """A crash after messages were carried and before the site was stored: it says the same again, which is known already."""
    monitor = watch("stream")
    coordinator, version = monitor.coordinator([0]), monitor.site(0, birth=7).to_bytes()
    for _ in range(2):
        site = monitor.restore(version)
        messages = site.update(np.arange(50) % 7, stream="a")
        replies = [reply for message in messages for reply in coordinator.receive(decode(message.to_bytes()))]
    assert coordinator.sites == [0]
    assert replies == []
    assert coordinator._members.states[0].inbox.repeated == len(messages)


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def specimens():
    """A site and a coordinator of every kind, in the middle of things."""
    made = []
    for kind, scheme, flush in COMBINATIONS:
        monitor = watch(kind, scheme, flush)
        network = Network(monitor, 3, 0)
        for what, number, key, count, stream in long_script(20):
            if what in ("one", "many"):
                network.count(number, [key], [count], stream)
                network.some(0.6)
        made.append((monitor, network.sites[0].to_bytes()))
        if network.coordinator.activity != Activity.COLLECTING or scheme != "oracle":
            made.append((monitor, network.coordinator.to_bytes()))
    return made


def refused(monitor, data):
    try:
        monitor.restore(data)
    except lt.FormatError:
        return
    raise AssertionError(f"read: {bytes(data).hex()}")


def test_damaged_bytes_are_refused(specimens):
    rng = random.Random(1)
    for monitor, blob in specimens:
        for size in {*range(64), *rng.sample(range(len(blob)), min(100, len(blob)))}:
            refused(monitor, blob[: min(size, len(blob) - 1)])
        for _ in range(100):
            damaged = bytearray(blob)
            damaged[rng.randrange(len(blob))] ^= 1 << rng.randrange(8)
            refused(monitor, damaged)
        refused(monitor, blob + b"\0")


def test_every_truncation_and_every_flipped_byte_is_refused():
    monitor = watch("ecm")
    site, coordinator = monitor.site(3, birth=4), monitor.coordinator([3])
    for message in site.update([1, 2, 1, 7], 5, stream="a"):
        for reply in coordinator.receive(message):
            site.receive(reply)
    for blob in (site.to_bytes(), coordinator.to_bytes()):
        for at in range(len(blob)):
            refused(monitor, blob[:at])
            refused(monitor, blob[:at] + bytes([blob[at] ^ 0xFF]) + blob[at + 1 :])


def sealed(family, payload):
    head = struct.pack("<4sBBHI", b"LTLY", 1, family, 0, len(payload))
    return head + struct.pack("<I", zlib.crc32(head + payload)) + payload


def test_truncated_payloads_under_a_good_checksum_are_refused(specimens):
    rng = random.Random(2)
    for monitor, blob in specimens:
        payload = blob[16:]
        for size in {*range(40), *rng.sample(range(len(payload)), min(30, len(payload)))}:
            refused(monitor, sealed(blob[5], payload[: min(size, len(payload) - 1)]))
        refused(monitor, sealed(blob[5], payload + b"\0"))


def test_forged_payloads_are_refused_or_work(specimens):
    """A checksum stops accidents only: what passes all checks must at least go on, or say what is wrong.

    Fingerprint and seed, the first 16 bytes, say whose state it is: another monitor's is refused as such.
    """
    rng = random.Random(3)
    for monitor, blob in specimens:
        for _ in range(int(os.environ.get("LATELY_FORGERIES", "20"))):
            payload = bytearray(blob[16:])
            for _ in range(rng.choice([1, 1, 2, 5])):
                payload[rng.randrange(16, len(payload))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            try:
                party = monitor.restore(sealed(blob[5], bytes(payload)), limit=2**24)
            except lt.FormatError:
                continue
            with np.errstate(all="ignore"):
                use(party)


def use(party):
    try:
        if hasattr(party, "drifts"):
            timed = party.monitor.window is not None
            party.update([1, 2, 3], 10**6 if timed else None, stream="a")
            if timed:
                party.advance(10**6 + 50)
            party.receive(m.UpdateRequest(party.number, party._inbox._next, party._epoch))
        else:
            party.announcements()
            for number in [*party.sites, 2**48 - 2][-2:]:
                party.remove(number)
        party.to_bytes()
    except (lt.InputError, lt.MergeError):
        pass


def test_other_monitors_are_refused(specimens):
    for (own, blob), (other, _) in zip(specimens, specimens[3:], strict=False):
        with pytest.raises(lt.MergeError, match=r"of another monitor than this one; build the Monitor\(…\) as it was"):
            other.restore(blob)
        assert watch_alike(own).restore(blob).to_bytes() == blob


def watch_alike(monitor):
    """Built anew, as another process would."""
    return pickle.loads(pickle.dumps(monitor))


def test_what_needs_its_monitor_says_so(tmp_path):
    monitor = watch("ecm")
    for party, name in ((monitor.site(1), "site"), (monitor.coordinator([1]), "coordinator")):
        with pytest.raises(lt.FormatError, match=rf"a {name} of a monitor.*Monitor.*restore\(data\)"):
            lt.from_bytes(party.to_bytes())
        file = tmp_path / name
        file.write_bytes(party.to_bytes())
        result = CliRunner().invoke(cli.app, ["inspect", str(file)])
        assert result.exit_code == 1
        assert "restore(data)" in result.output
        assert "Traceback" not in result.output


def test_what_is_no_site_is_refused():
    with pytest.raises(lt.FormatError, match=r"family 1, no site.*lately\.from_bytes"):
        watch("ecm").restore(lt.WindowCounter(window=10, eps=0.1).to_bytes())
    with pytest.raises(lt.FormatError, match="give bytes"):
        watch("ecm").restore("LTLY")


def test_no_more_memory_than_allowed():
    monitor = Monitor(Ecm(window=10**6, eps=0.05, delta=0.05, seed=20_120_615), SelfJoin(theta=0.5))
    site = monitor.site(1)
    site.update(np.arange(100_000) % 100, np.arange(100_000))
    with pytest.raises(lt.FormatError, match="pass limit="):
        monitor.restore(site.to_bytes(), limit=10_000)
    rings = site.drifts[0]._waves.rings.nbytes
    assert monitor.restore(site.to_bytes(), limit=rings).to_bytes() == site.to_bytes()


def test_messages_that_wait_must_be_such_as_could_have_come():
    """They are not looked at again when their turn comes."""
    monitor = watch("stream")
    for message in (m.UpdateRequest(2, 5, 1), m.LeaveNotice(1, 5), m.KeyCountRequest(1, 5, "a")):
        site = monitor.site(1)
        site._inbox._early = {5: message}
        refused(monitor, site.to_bytes())
    inbox, site = Inbox(), monitor.site(1)
    inbox._next, inbox._early = 9, {5: m.UpdateRequest(1, 5, 1)}
    site._inbox = inbox
    refused(monitor, site.to_bytes())


def test_numbers_that_no_site_has_are_refused():
    coordinator = watch("stream").coordinator([0])
    with pytest.raises(lt.InputError, match="number sites from 0"):
        coordinator.receive(m.JoinRequest(2**48, 1, coordinator.monitor.fingerprint, 1))
    assert coordinator.monitor.restore(coordinator.to_bytes()).awaited == [0]


# -- cost ----------------------------------------------------------------------------------------------------------------


def test_a_site_takes_little_more_than_its_counters():
    """Stored, a site is about as large as a sketch of the same counters; they are most of it."""
    monitor = Monitor(Ecm(window=3600, eps=0.1, delta=0.1, seed=20_120_615), SelfJoin(theta=0.2))
    site, out = monitor.site(1), lt.core.codec.Writer()
    rng = np.random.default_rng(1)
    site.update(rng.zipf(1.3, 50_000) % 1000, np.sort(rng.integers(0, 7200, 50_000)))
    site.drifts[0]._waves.write(out, site.drifts[0].now - site.drifts[0]._origin)
    assert len(site.to_bytes()) < 1.1 * len(out.bytes()) + 200
