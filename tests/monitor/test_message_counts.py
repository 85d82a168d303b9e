"""How many messages of each kind a few fixed streams take: a change that costs messages must be seen, and meant.

``python tests/monitor/test_message_counts.py`` writes the file anew.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from lately.monitor import Count, Ecm, FastAms, Frequent, InnerProduct, KeyRange, Monitor, RangeSum, SelfJoin, simulate

pytestmark = pytest.mark.long

FILE = Path(__file__).parent / "message_counts.json"
ECM, AMS, WINDOW_AMS = (
    Ecm(window=300, eps=0.15, delta=0.15, seed=20_120_615),
    FastAms(eps=0.1, delta=0.01, seed=20_120_615),
    FastAms(eps=0.15, delta=0.05, window=300, seed=20_120_615),
)
STREAMS = ("a", "b")
SEVERAL = {"f2": SelfJoin(theta=0.2), "one": Count(key=1, above=150, theta=0.1), "few": KeyRange(start=1, stop=9, theta=0.1)}
FREQUENT = {"hot": Frequent(tau=60, theta=0.1)}
CASES = {
    f"{name}, {scheme}, {flush}, {sites} sites": (sketch, queries, scheme, flush, sites)
    for name, sketch, queries in (
        ("ecm self-join", ECM, {"f2": SelfJoin(theta=0.15)}),
        ("ecm inner product", ECM, {"join": InnerProduct(of=STREAMS, theta=0.2, floor=500)}),
        ("ecm several", ECM, SEVERAL),
        ("ams self-join", AMS, {"f2": SelfJoin(theta=0.25)}),
        ("ams inner product", AMS, {"join": InnerProduct(of=STREAMS, theta=0.3)}),
        ("ams range", AMS, {"range": RangeSum(keys=range(1, 50), theta=0.3)}),
        ("windowed ams self-join", WINDOW_AMS, {"f2": SelfJoin(theta=0.4)}),
    )
    for scheme, flush in (("functional", "lazy"), ("functional", "eager"), ("geometric", "lazy"), ("geometric", "eager"))
    for sites in (3, 8)
} | {
    f"ecm frequent keys, {sites} sites": (ECM, FREQUENT, "functional", "eager", sites) for sites in (3, 8)
}  # fmt: skip


def counted(sketch, queries, scheme, flush, sites):
    rng = np.random.default_rng(7)
    size = 2000
    events = {"key": rng.zipf(1.3, size) % 1000, "site": rng.integers(0, sites, size)}
    joined = "join" in queries
    if joined:
        events["stream"] = np.array(STREAMS)[rng.integers(0, 2, size)]
    if sketch is not AMS:
        events["time"] = np.sort(rng.integers(0, 1500, size))
    monitor = Monitor(sketch, queries, scheme=scheme, flush=flush, streams=STREAMS if joined else ("",))
    done = simulate(events, monitor, step=10)
    assert not done.broken
    return {"messages": dict(sorted(done.messages.items())), "bytes": done.total}


@pytest.mark.parametrize("case", CASES)
def test_no_more_messages_than_before(case):
    known, now = json.loads(FILE.read_text())[case], counted(*CASES[case])
    assert set(now["messages"]) == set(known["messages"])
    for kind, count in known["messages"].items():  # sums of floats end differently on different processors
        assert abs(now["messages"][kind] - count) <= max(3, 0.03 * count), kind
    assert abs(now["bytes"] - known["bytes"]) <= 0.03 * known["bytes"]


if __name__ == "__main__":
    FILE.write_text(json.dumps({case: counted(*what) for case, what in CASES.items()}, indent=1) + "\n")
