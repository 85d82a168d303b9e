"""Simulations: the books are right, the same seed gives the same run, and schemes cost what they should beside each other."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lately as lt
from lately.monitor import Count, Ecm, FastAms, Frequent, InnerProduct, Monitor, RangeSum, SelfJoin, simulate
from lately.monitor import simulation as module
from lately.monitor.messages import Message
from lately.monitor.simulation import ACKNOWLEDGEMENT

AMS = FastAms(eps=0.1, delta=0.3, seed=20_120_615)
ECM = Ecm(window=200, eps=0.2, delta=0.3, seed=20_120_615)
SCHEMES = ("functional", "geometric", "push", "ship", "oracle")


def zipf(size=3_000, sites=4, seed=1, keys=500):
    """Requests as web servers see them: few keys come often, and each site has its share."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(sites, 5.0))
    return {
        "key": rng.zipf(1.4, size) % keys,
        "site": rng.choice(sites, size, p=shares),
        "time": np.cumsum(rng.integers(0, 2, size)),
    }


def without_time(events):
    return {name: column for name, column in events.items() if name != "time"}


def run(scheme="functional", sketch=AMS, theta=0.3, flush="lazy", events=None, **settings):
    events = zipf() if events is None else events
    events = events if sketch.window is not None else without_time(events)
    return simulate(events, Monitor(sketch, {"skew": SelfJoin(theta=theta)}, scheme=scheme, flush=flush), **settings)


# -- books -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_byte_is_in_the_books(scheme, monkeypatch):
    sizes, counts = Counter(), Counter()
    plain = Message.to_bytes

    class Watching(module._Carrier):
        def send(self, messages, up, now):
            for message in messages:
                sizes[type(message).__name__] += len(plain(message))
                counts[type(message).__name__] += 1
            super().send(messages, up, now)

    monkeypatch.setattr(module, "_Carrier", Watching)
    books = run(scheme, step=10)
    assert books.bytes == sizes
    assert books.messages == counts
    assert books.total == sum(sizes.values()) > 0
    assert books.data == sizes["SketchUpdate"] + sizes["Events"]
    assert books.events == 3_000
    assert sizes["JoinRequest"] == sum(m.nbytes for m in (lt.monitor.messages.JoinRequest(n, 1, 0, 0) for n in range(4)))


def test_losses_are_paid_for():
    """A lost message counts each time it is sent, and each message brings an acknowledgement."""
    sure, unsure = run("ship", step=10), run("ship", step=10, loss=0.3)
    assert unsure.total > sure.total + ACKNOWLEDGEMENT * sum(sure.messages.values())
    assert unsure.messages["JoinRequest"] >= sure.messages["JoinRequest"] == 4
    assert unsure.messages["Events"] == pytest.approx(sure.messages["Events"] / 0.7, rel=0.1)
    assert unsure.broken == []


def test_the_same_seed_is_the_same_run():
    runs = [run(step=5, delay=3, loss=0.2, seed=seed) for seed in (4, 4, 5)]
    first, again, other = ((one.bytes, one.messages, one.synchronisations, one.history) for one in runs)
    assert first == again
    assert first != other


def test_history_and_errors():
    books = run(step=10, look=7)
    assert [event for event, *_ in books.history] == [*range(10, 3_000, 70), 3_000, 3_000]
    errors = books.errors("skew")
    assert errors.shape == (len(books.history),)
    assert 0 < errors.max() < 0.3
    event, name, announcement, truth, flying = books.history[-1]
    assert (event, name, flying) == (3_000, "skew", 0)
    assert announcement.tolerates(truth)
    assert books.errors("nothing").size == 0


def test_a_broken_promise_is_noticed(monkeypatch):
    """Sites that never look: the simulation says where it went wrong."""
    monkeypatch.setattr("lately.monitor.site.Site._check_guards", lambda self: None)
    broken = run(step=1, events=zipf(300)).broken
    assert broken
    event, name, announcement, truth, flying = broken[0]
    assert not announcement.tolerates(truth)
    assert (name, flying) == ("skew", 0)
    assert 0 < event <= 300


# -- the promise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["functional", "geometric", "ship", "oracle"])
@pytest.mark.parametrize(
    "sketch", [AMS, ECM, FastAms(eps=0.1, delta=0.3, window=200, seed=20_120_615)], ids=["stream", "ecm", "window"]
)
@settings(max_examples=5)
@given(
    seed=st.integers(0, 2**32),
    step=st.sampled_from([1, 7, 50]),
    delay=st.sampled_from([0, 1, 5]),
    loss=st.sampled_from([0.0, 0.4]),
    sites=st.integers(1, 6),
)
def test_delay_and_loss_keep_the_promise(scheme, sketch, seed, step, delay, loss, sites):
    books = run(scheme, sketch, events=zipf(400, sites, seed), step=step, delay=delay, loss=loss, seed=seed)
    assert books.broken == []
    assert books.history[-1][3] in books.history[-1][2]


def test_streams_counts_and_several_queries():
    rng = np.random.default_rng(2)
    events = {
        "key": rng.integers(0, 20, 2_000),
        "site": rng.integers(0, 3, 2_000),
        "count": rng.integers(-2, 5, 2_000),
        "stream": rng.choice(["a", "b"], 2_000),
    }
    queries = {
        "join": InnerProduct(of=("a", "b"), theta=0.4),
        "skew": SelfJoin(stream="b", theta=0.4),
        "range": RangeSum(keys=range(5), stream="a", theta=0.4),
    }
    for scheme in ("functional", "geometric", "ship"):
        books = simulate(events, Monitor(AMS, queries, streams=("a", "b"), scheme=scheme), step=10)
        assert books.broken == []
        tables = {name: np.zeros(20) for name in ("a", "b")}
        for name in tables:
            in_stream = events["stream"] == name
            np.add.at(tables[name], events["key"][in_stream], events["count"][in_stream])
        last = {name: truth for _, name, _, truth, _ in books.history[-3:]}
        norms = {name: np.linalg.norm(table) for name, table in tables.items()}
        assert last["join"] == pytest.approx(tables["a"] @ tables["b"], abs=0.2 * norms["a"] * norms["b"])
        assert last["skew"] == pytest.approx(norms["b"] ** 2, rel=0.2)
        assert last["range"] == pytest.approx(tables["a"][:5].sum(), abs=0.2 * norms["a"] * np.sqrt(5))


def test_frequent_keys_are_simulated_too():
    queries = {"often": Frequent(tau=20, theta=0.2), "one": Count(key=1, theta=0.3)}
    books = simulate(zipf(1_500), Monitor(ECM, queries), step=5, delay=2, loss=0.1)
    assert books.broken == []
    assert books.messages["KeyCount"] > 0
    assert 1 in books.history[-1][2].counts or 1 in books.history[-2][2].counts


# -- schemes beside each other ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stable():
    """A long stable stream at four sites, by every scheme."""
    events = zipf(40_000)
    return {
        (scheme, flush): run(scheme, theta=0.25, flush=flush, events=events, step=20, look=10)
        for scheme in SCHEMES
        for flush in (("lazy", "eager") if scheme in ("functional", "geometric", "oracle") else ("lazy",))
    }


def test_all_keep_their_promise(stable):
    assert {key: books.broken for key, books in stable.items() if books.broken} == {}


def test_nobody_sends_less_data_than_the_oracle(stable):
    least = stable["oracle", "lazy"].data
    for scheme in ("functional", "geometric"):
        for flush in ("lazy", "eager"):
            assert least <= stable[scheme, flush].data


def test_lazy_sends_less_data_than_eager(stable):
    for scheme in ("functional", "geometric", "oracle"):
        assert stable[scheme, "lazy"].data <= stable[scheme, "eager"].data


def test_all_send_far_less_than_everything(stable):
    everything = stable["ship", "lazy"].total
    assert everything > 40_000 * 8
    for (scheme, flush), books in stable.items():
        if scheme != "ship":
            assert books.total < everything / 4, (scheme, flush, books.total)


def test_synchronisations_are_counted(stable):
    assert set(stable["functional", "lazy"].synchronisations) == {"polling", "gathering", "collecting"}
    assert set(stable["geometric", "lazy"].synchronisations) == {"balancing", "collecting"}
    assert set(stable["functional", "eager"].synchronisations) == {"polling", "collecting"}
    assert set(stable["ship", "lazy"].synchronisations) == set()


@pytest.mark.parametrize("sites", [1, 2, 4, 8])
@pytest.mark.parametrize("seed", [1, 2])
def test_pushing_keeps_its_probable_promise(sites, seed):
    books = run("push", theta=0.25, events=zipf(10_000, sites, seed), step=1, look=5)
    assert books.broken == []
    assert set(books.bytes) == {"JoinRequest", "SketchUpdate", "Reference"}, "sites are never asked"


# -- what is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "match"),
    [
        ({"key": [1]}, r"events have the columns \['key'\]; give key and site"),
        ({"key": [1], "site": [0], "who": [3]}, "give key and site, and optionally time, count and stream"),
        ({"key": [1, 2], "site": [0]}, "give every event a value in each"),
        ({"key": [], "site": []}, "at least one event"),
        ({"key": [1], "site": [0.5]}, r"site has the value 0\.5"),
        ({"key": [1], "site": [0], "time": [3]}, "times for a monitor without a window"),
        ({"key": [1, None], "site": [0, 0]}, "None|null"),
    ],
)
def test_bad_events_are_refused(events, match):
    with pytest.raises(lt.InputError, match=match):
        simulate(events, Monitor(AMS, SelfJoin(theta=0.3)))


def test_negative_sites_are_refused():
    with pytest.raises((lt.InputError, lt.ParameterError), match="site=-1"):
        simulate({"key": [1], "site": [-1]}, Monitor(AMS, SelfJoin(theta=0.3)))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"step": 0}, "step=0 is not an integer of at least 1"),
        ({"step": 1.0}, r"step=1\.0"),
        ({"delay": -1}, "delay=-1 is not an integer of at least 0"),
        ({"look": True}, "look=True"),
        ({"loss": 1.0}, r"loss=1\.0 is out of range; give the share of messages that is lost"),
        ({"loss": float("nan")}, "loss=nan"),
    ],
)
def test_bad_settings_are_refused(options, match):
    with pytest.raises(lt.ParameterError, match=match):
        run(**options)


def test_keys_of_any_kind():
    for keys in (["a", "b", "a"], [("a", 1), ("b", 2), ("a", 1)], range(3), [2**63 - 1, -5, 0]):
        books = simulate({"key": keys, "site": [0, 1, 0]}, Monitor(AMS, SelfJoin(theta=0.3)))
        assert books.broken == []
        assert books.history[-1][3] == pytest.approx(5 if len(set(keys)) == 2 else 3)
