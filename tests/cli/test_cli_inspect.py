"""``lately inspect`` tells what is in every class that can be stored, and refuses damaged files in one line."""

import json
import re
from datetime import datetime

import exact_cases
import numpy as np
import pytest
from cli_cases import assert_refused, assert_wrong_usage, cells_of, data_of, run, run_apart

import lately as lt
from lately.core.codec import families

pytestmark = pytest.mark.usefixtures("wide_and_plain")


def sketch(**options):
    return lt.EcmSketch(**{"window": "1h", "eps": 0.1, "delta": 0.1} | options)


def filled(summary, size=3000, start=1_780_000_000):
    rng = np.random.default_rng(3)
    times = start + np.sort(rng.integers(0, 5000, size))
    if isinstance(summary, lt.WindowCounter):
        summary.add(times)
    else:
        summary.update(rng.integers(0, 50, size), times)
    return summary


def with_late_arrivals():
    patient = sketch(lateness="30s", seed=5)
    patient.update(["a", "b"], [100, 80])
    patient.update(["c", "d"], [75, 60])
    return patient


def without_times():
    counter = lt.WindowCounter(window=lt.arrivals(10), eps=0.2)
    counter.add(counts=[2, 3])
    return counter


def registered(windows):
    exact_cases.feed(windows, np.arange(30), np.arange(30))
    return windows


def plain(seed=9):
    table = lt.CountMin(eps=0.1, delta=0.05, seed=seed)
    table.update(["a", "b", "a"])
    return table


def turned(sketch):
    sketch.update(["a", "b", "a"], counts=[5, 2, -7])
    return sketch


SUMMARIES = {
    "a sketch of waves": lambda: filled(sketch(query="inner", merge_height=2)),
    "a sketch of histograms": lambda: filled(sketch(counter="exphist", window=1000, tick=10)),
    "a sketch of randomized waves": lambda: filled(sketch(counter="randwave", eps=0.5, delta=0.5, salt=1), 300),
    "an exact sketch": lambda: filled(sketch(counter="exact", tick="1ms")),
    "a merged sketch": lambda: lt.merge([filled(sketch()), filled(sketch(), 500)]),
    "a sketch that holds back": with_late_arrivals,
    "an empty sketch": sketch,
    "a counter": lambda: filled(lt.WindowCounter(window="10m", eps=0.05)),
    "a counter of arrivals": without_times,
    "an empty counter": lambda: lt.WindowCounter(window=100, eps=0.2),
    "the top keys": lambda: filled(lt.TopK(phi=0.1, window="1h", eps=0.05, delta=0.1)),
    "the top keys, merged": lambda: lt.merge([filled(lt.TopK(k=3, window=9000, eps=0.1, delta=0.1)) for _ in range(2)]),
    "no top keys": lambda: lt.TopK(k=3, window=lt.arrivals(50), eps=0.1, delta=0.1),
    "a tree": lambda: filled(lt.Dyadic(universe=2**32, window="1h", eps=0.1, delta=0.1, seed=6)),
    "quantiles": lambda: filled(lt.Quantiles(window="1h", eps=0.1, lo=0, hi=50, resolution=0.5)),
    "no quantiles": lambda: lt.Quantiles(window=100, eps=0.1, lo=-9, hi=9, resolution=1, outside="clip"),
    "a perfect Count-Min": lambda: filled(lt.PerfectCountMin(window="1h", eps=0.1, delta=0.1)),
    "a simple Count-Min": lambda: filled(lt.SimpleCountMin(window="1h", eps=0.1, delta=0.1)),
    "a proportional Count-Min": lambda: filled(lt.ProportionalCountMin(window="1h", eps=0.1, delta=0.1)),
    "a splitting Count-Min": lambda: filled(lt.SplitterCountMin(window="1h", eps=0.1, delta=0.1, tau=0.1, mu=2)),
    "an AMS sketch": lambda: turned(lt.AmsSketch(eps=0.5, delta=0.2, seed=8)),
    "a Fast-AMS sketch": lambda: turned(lt.FastAmsSketch(eps=0.2, delta=0.01)),
    "a windowed AMS sketch": lambda: filled(lt.WindowedAmsSketch(window="1h", eps=0.5, delta=0.3, counter="exphist")),
    "windows": lambda: registered(exact_cases.filters()),
    "windows without arrivals": exact_cases.windows,
    "partial results": lambda: registered(exact_cases.filters()).partials(),
    "a Count-Min": plain,
    "an extracted Count-Min": lambda: filled(sketch(counter="wave")).extract(last="10m"),
}


@pytest.fixture(params=SUMMARIES.values(), ids=SUMMARIES)
def summary(request):
    return request.param()


def stored(summary, folder):
    path = folder / "thing.ltly"
    path.write_bytes(summary.to_bytes())
    return path


def test_every_storable_class_is_inspected_here():
    assert {type(make()) for make in SUMMARIES.values()} == set(families().values())


def test_inspect_as_json_tells_the_facts(summary, tmp_path):
    facts = data_of(run("inspect", stored(summary, tmp_path), "--json"))
    blob = summary.to_bytes()
    assert facts["class"] == type(summary).__name__
    assert (facts["format version"], facts["family"]) == (blob[4], blob[5])
    assert facts["bytes on disk"] == len(blob)
    if isinstance(summary, lt.Windows | lt.Partials):
        answers = summary.answers()
        assert facts["now"] == summary.now
        assert list(facts["queries"]) == list(answers)
        for name, answer in answers.items():
            shown = f"{len(answer.value)} keys" if isinstance(answer.value, lt.Answers) else answer.value
            assert facts["queries"][name] == {
                "value": shown, "rows": answer.rows, "missing": answer.missing, "covered": answer.covered,
            }  # fmt: skip
        return
    assert facts["bytes in memory"] == lt.from_bytes(blob).nbytes
    if isinstance(summary, lt.AmsSketch | lt.FastAmsSketch):
        names = ("eps", "delta", "width", "depth", "seed", "weight")
        assert [facts[name] for name in names] == [getattr(summary, name) for name in names]
        assert facts["total"] == summary.total()
        return
    if isinstance(summary, lt.CountMin):
        assert [facts[name] for name in ("delta", "width", "depth", "seed", "error")] == [
            summary.delta, summary.width, summary.depth, summary.seed, summary.error,
        ]  # fmt: skip
        assert facts["arrivals"] == summary.total()
        return
    assert (facts["window"], facts["eps"], facts["late"]) == (repr(summary.window), summary.eps, summary.late)
    total = summary.count() if isinstance(summary, lt.WindowCounter) else summary.total()
    assert facts["arrivals in window"] == {"value": total.value, "low": total.low, "high": total.high}
    if isinstance(summary, lt.EcmSketch | lt.WindowedAmsSketch):
        assert [facts[name] for name in ("delta", "counter", "width", "depth", "merges")] == [
            summary.delta, summary.counter, summary.width, summary.depth, summary.merges,
        ]  # fmt: skip
    if isinstance(summary, lt.TopK):
        assert [facts[name] for name in ("delta", "k", "width", "depth", "merges")] == [
            summary.delta, summary.k, summary.width, summary.depth, summary.merges,
        ]  # fmt: skip
    if isinstance(summary, lt.Dyadic):
        assert (facts["delta"], facts["universe"], facts["merges"]) == (summary.delta, summary.universe, summary.merges)
    if isinstance(summary, lt.Quantiles):
        assert [facts[name] for name in ("lo", "hi", "resolution")] == [summary.lo, summary.hi, summary.resolution]
    assert facts["now"] == (f"{summary.now:%Y-%m-%dT%H:%M:%S}Z" if isinstance(summary.now, datetime) else summary.now)


def test_inspect_tells_what_a_sketch_was_built_with(tmp_path):
    made = filled(sketch(query="inner", merge_height=2, seed=77))
    facts = data_of(run("inspect", stored(made, tmp_path), "--json"))
    assert (facts["query"], facts["merge height planned"], facts["merges"], facts["seed"]) == ("inner", 2, 0, 77)
    made = lt.TopK(phi=0.2, window="1h", eps=0.1, delta=0.1, merge_height=3, seed=77)
    facts = data_of(run("inspect", stored(made, tmp_path), "--json"))
    assert [facts[name] for name in ("k", "phi", "seed", "merge height planned")] == [5, 0.2, 77, 3]
    made = lt.Dyadic(universe=2**32, window="1h", eps=0.1, delta=0.1, seed=77)
    facts = data_of(run("inspect", stored(made, tmp_path), "--json"))
    assert [facts[name] for name in ("universe", "levels", "seed")] == [2**32, 8, 77]
    for outside in ("clip", "reject"):
        made = lt.Quantiles(window="1h", eps=0.1, lo=-1, hi=1, resolution=0.01, outside=outside)
        facts = data_of(run("inspect", stored(made, tmp_path), "--json"))
        assert [facts[name] for name in ("lo", "hi", "resolution", "outside", "levels")] == [-1, 1, 0.01, outside, 2]
    facts = data_of(run("inspect", stored(with_late_arrivals(), tmp_path), "--json"))
    assert (facts["late"], facts["held back"], facts["arrivals in window"]["value"]) == (1, 3, 3)


def test_inspect_prints_the_same_facts(summary, tmp_path):
    path = stored(summary, tmp_path)
    result = run("inspect", path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == str(path)
    facts = data_of(run("inspect", path, "--json"))
    rows = dict(cells_of(result.stdout))
    queries = facts.get("queries", {})
    listed = [[f"query {query}" for query in queries] if name == "queries" else [name] for name in facts]
    assert list(rows) == [name for names in listed for name in names]
    for query, answer in queries.items():
        assert rows[f"query {query}"] == f"{answer['value']}  ({answer['rows']:,} rows)"
    for name, value in facts.items():
        if name == "queries":
            continue
        if isinstance(value, dict):
            numbers = [int(number) for number in re.findall(r"\d+", rows[name].replace(",", ""))]
            assert numbers == [value["value"], value["low"], value["high"]]
        elif isinstance(value, int):
            assert int(rows[name].split()[0].replace(",", "")) == value
        else:
            assert rows[name] == str(value)


def test_a_file_may_be_called_anything(tmp_path):
    path = tmp_path / "[bold]week[" / "]last[red].ltly"
    path.parent.mkdir()
    path.write_bytes(plain().to_bytes())
    assert run("inspect", path).stdout.splitlines()[0] == str(path)


def test_inspect_in_a_process_of_its_own(tmp_path):
    done = run_apart("inspect", stored(plain(), tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arrivals"] == 3


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_inspect_refuses_what_is_no_file(options, tmp_path):
    assert_refused(run("inspect", tmp_path / "nowhere", *options), tmp_path / "nowhere", "No such file")
    assert_refused(run("inspect", tmp_path, *options), tmp_path)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda blob: b"", "0 bytes"),
        (lambda blob: blob[:7], "7 bytes"),
        (lambda blob: blob[:-1], "cut or padded"),
        (lambda blob: blob[: len(blob) // 2], "cut or padded"),
        (lambda blob: blob + b"\0", "cut or padded"),
        (lambda blob: b"PAR1" + blob[4:], "PAR1"),
        (lambda blob: b"hello, world\n" * 9, "hell"),
        (lambda blob: bytes(1000), "no sketch"),
        (lambda blob: blob[:4] + b"\xff" + blob[5:], "version 255"),
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "checksum"),
    ],
    ids=["empty", "header cut", "one byte less", "half", "one byte more", "magic", "text", "zeros", "version", "bit flipped"],
)
def test_inspect_refuses_damaged_and_foreign_bytes(damage, named, tmp_path):
    path = tmp_path / "bad.ltly"
    path.write_bytes(damage(filled(sketch()).to_bytes()))
    assert_refused(run("inspect", path), named)
    assert_refused(run("inspect", path, "--json"), named)


def test_inspect_needs_a_file():
    assert_wrong_usage(run("inspect"), "FILE")
