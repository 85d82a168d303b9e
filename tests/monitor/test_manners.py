"""What new users run into in their first hour."""

import math

import numpy as np
import pytest
from carrier import Carrier

import lately as lt
from lately.monitor import Count, Ecm, FastAms, Frequent, InnerProduct, KeyRange, Monitor, SelfJoin, decode, simulate

AMS, ECM = FastAms(eps=0.1, delta=0.3, seed=20_120_615), Ecm(window=60, eps=0.3, delta=0.3, seed=20_120_615)
SKEW = {"skew": SelfJoin(theta=0.3)}


def test_streams_of_a_site_may_run_ahead_of_each_other():
    site = Monitor(ECM, {"join": InnerProduct(of=("a", "b"), theta=0.1)}, streams=("a", "b")).site(0)
    site.update([1] * 50, np.arange(50), stream="a")
    site.update([1] * 50, np.arange(50), stream="b")
    assert site.late == 0
    site.update([1], [10], stream="a")
    assert site.late == 1


@pytest.mark.parametrize("scheme", ["functional", "geometric", "ship"])
def test_all_hear_of_streams_that_run_apart(scheme):
    """What is shipped is counted by the clock of its own stream too."""
    queries = {"join": InnerProduct(of=("a", "b"), theta=0.1), "b": SelfJoin(theta=0.1, stream="b")}
    carrier = Carrier(Monitor(ECM, queries, streams=("a", "b"), scheme=scheme), range(2))
    for start in range(0, 400, 40):
        for stream in ("a", "b"):
            for number in range(2):
                carrier.update(number, [1, 2] * 20, np.arange(start, start + 40), stream=stream)
            carrier.settle()
            carrier.check()
    assert [site.late for site in carrier.sites.values()] == [0, 0]


def test_time_does_not_go_back_before_zero():
    site = Monitor(ECM, SKEW).site(0)
    site.update([1], [0])
    site.advance(-5)
    site.update([1], [-3])
    assert (site.late, site.drifts[0].now) == (1, 0)


def test_a_windowed_sketch_is_as_good_at_sites_as_by_itself():
    """eps pays for the signs and for the counters: the layout is that of the sketch with the same guarantee."""
    layout = FastAms(eps=0.2, delta=0.01, window=60, seed=20_120_615).layout()
    sketch = lt.WindowedAmsSketch(window=60, eps=0.2, delta=0.01, counter="wave")
    assert (layout.rows, layout.width, layout.eps) == (sketch.depth, sketch.width, sketch.error)
    plain, ours = lt.FastAmsSketch(eps=0.2, delta=0.01), FastAms(eps=0.2, delta=0.01, seed=20_120_615).layout()
    assert (ours.rows, ours.width) == (plain.depth, plain.width)


def test_a_site_that_starts_again_under_its_old_number_is_refused():
    monitor = Monitor(AMS, SKEW)
    carrier = Carrier(monitor, range(2))
    for number in range(2):
        carrier.update(number, [1, 2, 3])
    carrier.settle()
    again = monitor.site(0).join()[0]
    for _ in range(2):
        with pytest.raises(lt.InputError, match=r"another site has used the number 0; call remove\(0\)"):
            carrier.coordinator.receive(again)
        if 0 in carrier.coordinator.sites:
            carrier.coordinator.remove(0)
    assert carrier.coordinator.sites == [1]


def test_who_is_awaited_can_be_seen():
    monitor = Monitor(AMS, SKEW)
    coordinator, sites = monitor.coordinator(range(3)), [monitor.site(number) for number in range(3)]
    assert coordinator.awaited == [0, 1, 2]
    assert math.isnan(coordinator["skew"].value)
    for site in sites[:2]:
        for message in site.update([7]):
            coordinator.receive(message)
    assert coordinator.awaited == [2]
    coordinator.remove(2)
    assert (coordinator.awaited, coordinator.sites, coordinator["skew"].value) == ([], [0, 1], 4)


@pytest.mark.parametrize("message", [b"abc", [], None, "x"])
def test_only_messages_are_received(message):
    monitor = Monitor(AMS, SKEW)
    for receiver in (monitor.site(0), monitor.coordinator([0])):
        with pytest.raises(lt.InputError, match=r"expected a message, got a .*; decode\(\) bytes first"):
            receiver.receive(message)


@pytest.mark.parametrize(
    ("data", "says"), [("x", "cannot read a message from a str"), (b"", "not a message"), (b"zoo", "kind 122")]
)
def test_what_is_no_message_is_said_so(data, says):
    with pytest.raises(lt.FormatError, match=says):
        decode(data)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Monitor(AMS, [SelfJoin(theta=0.3)]), "queries are a list; give a dict of their names"),
        (lambda: Monitor(AMS, SKEW).coordinator(3), r"such as range\(3\)"),
        (lambda: Monitor(AMS, SKEW, streams=("a", "b")), "the monitor has the streams 'a', 'b'; say which with stream="),
        (lambda: Monitor(AMS, InnerProduct(of=("a", "b"), theta=0.3)), r"no stream 'a'.*Monitor\(…, streams="),
        (lambda: Monitor(AMS, {"hot": Frequent(tau=9, theta=0.1)}), r"give Ecm\(…\) instead"),
        (lambda: Monitor(ECM, Frequent(tau=9, theta=0.1), scheme="ship"), "cannot monitor frequent keys"),
        (lambda: Monitor(AMS, Count(key=1, theta=0.01)), "needs the windowed counters of Ecm"),
        (lambda: KeyRange(start="a", stop=3, theta=0.1), "a range has integer keys"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_the_remedy(build, says):
    with pytest.raises(lt.ParameterError, match=says):
        build()


def test_a_simulation_says_how_much_it_could_check():
    keys = np.arange(2000) % 7
    events = {"key": keys, "site": keys % 3}
    sure, unsure = (simulate(events, Monitor(AMS, SKEW), step=10, delay=delay) for delay in (0, 3))
    assert sure.settled == 1 > unsure.settled
    assert unsure.errors("skew", settled=False).size > unsure.errors("skew").size
    with pytest.raises(lt.InputError, match="the times are not in order; sort the events"):
        simulate(events | {"time": -keys}, Monitor(ECM, SKEW))
    with pytest.raises(lt.InputError, match=r"give simulate\(\) a dict of columns first, then the monitor"):
        simulate(Monitor(AMS, SKEW), events)


def test_counts_and_weights_are_named():
    """Elsewhere times come second, and would be taken for counts."""
    sketch = lt.FastAmsSketch(eps=0.5, delta=0.3)
    with pytest.raises(TypeError):
        sketch.update(["a"], [5])
    with pytest.raises(TypeError):
        sketch.range_sum(0, 10)
