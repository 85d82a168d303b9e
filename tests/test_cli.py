"""The command says what the library says, and refuses in one line what the library refuses."""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import exact_cases
import numpy as np
import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

import lately as lt
from lately import cli, demo
from lately.core.codec import families
from lately.sketches.wcm import wcm_plan

COUNTERS = ("wave", "exphist", "randwave", "exact")
COMMANDS = ("plan", "inspect", "run", "bench", "demo")


pytestmark = pytest.mark.usefixtures("wide_and_plain")


def run(*args):
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


def run_apart(*args):
    """In a process of its own, as users do."""
    command = [sys.executable, "-m", "lately.cli", *(str(arg) for arg in args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def data_of(result):
    """The one JSON document that a command printed; NaN and Infinity are not JSON."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def cells_of(text):
    """The rows of a printed table, as lists of texts."""
    return [[cell.strip() for cell in line.strip().strip("│").split("│")] for line in text.splitlines() if "│" in line]


def without_colours(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def assert_refused(result, *names):
    """Exit code 1, nothing on stdout, and one line on stderr that names the value."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert_one_line(result.stderr, *names)


def assert_one_line(stderr, *names):
    assert re.fullmatch(r"lately: .+\n", stderr), stderr
    for name in names:
        assert str(name) in stderr


def assert_wrong_usage(result, *names):
    """Exit code 2, nothing on stdout, and what is wrong on stderr."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for name in names:
        assert name in without_colours(result.stderr)


# -- the command itself ------------------------------------------------------------------------------------------------


def test_version():
    assert run("--version").stdout == f"lately {lt.__version__}\n"


def test_help_names_every_command():
    result = run("--help")
    assert result.exit_code == 0
    assert tuple(get_command(cli.app).commands) == COMMANDS
    for command in COMMANDS:
        assert re.search(rf"^\W*{command}\s+\w", without_colours(result.stdout), re.MULTILINE), command


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_names_every_option(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    shown = without_colours(result.stdout)
    options = [name for param in get_command(cli.app).commands[command].params for name in param.opts if name.startswith("--")]
    assert "--json" in options
    assert [name for name in options if name not in shown] == []


def test_help_of_bench_names_every_benchmark():
    shown = without_colours(run("bench", "--help").stdout)
    assert [name.value for name in cli.Benchmark if name.value not in shown] == []


def test_an_unknown_command_is_wrong_usage():
    assert_wrong_usage(run("forecast"), "forecast")


def test_no_command_shows_the_help():
    result = run()
    assert result.exit_code == 2
    assert all(command in result.output for command in COMMANDS)


def test_processes_of_their_own_exit_alike(tmp_path):
    fine = run_apart("--version")
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, f"lately {lt.__version__}\n", "")
    refused = run_apart("inspect", tmp_path / "nowhere.ltly")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert_one_line(refused.stderr, tmp_path / "nowhere.ltly")
    wrong = run_apart("forecast")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "forecast" in wrong.stderr


# -- plan --------------------------------------------------------------------------------------------------------------


def plans(eps, delta, window, **options):
    return [asdict(lt.plan(eps, delta, window, counter=counter, **options)) for counter in COUNTERS]


def test_plan_shows_every_counter():
    result = run("plan", "--eps", 0.05, "--delta", 0.1)
    assert result.exit_code == 0
    rows = cells_of(result.stdout)
    assert [row[0] for row in rows] == [*COUNTERS, *(row["sketch"] for row in wcm_plan(0.05, 0.1, 10**6))]
    for row, p in zip(rows, plans(0.05, 0.1, "1h"), strict=False):
        assert row[1:5] == [f"{p['width']:,}", str(p["depth"]), f"{p['eps_cm']:.4g}", f"{p['eps_sw']:.4g}"]
        number, unit = row[5].split()
        scale = 1024 ** ("B", "KiB", "MiB", "GiB").index(unit)
        assert float(number.replace(",", "")) * scale == pytest.approx(p["bytes"], abs=0.051 * scale)


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("1h", "1h"),
        ("1h 30m", "90m"),
        ("1000000", 1_000_000),
        ("1_000_000", 1_000_000),
        ("arrivals:500", lt.arrivals(500)),
        ("arrivals:1_000", lt.arrivals(1_000)),
    ],
)
def test_plan_as_json_equals_the_library(written, window):
    wanted = plans(0.01, 0.01, window)
    assert data_of(run("plan", "--window", written, "--json")) == wanted + wcm_plan(0.01, 0.01, wanted[0]["arrivals"])


def test_a_window_of_arrivals_holds_as_many_as_it_says():
    assert {p["arrivals"] for p in data_of(run("plan", "--window", "arrivals:500", "--json"))} == {500}


def test_plan_hands_every_option_on():
    args = ["--eps=0.1", "--delta=0.2", "--window=1d", "--tick=1m", "--query=inner", "--merge-height=3", "--arrivals=5000"]
    expected = plans(0.1, 0.2, "1d", tick="1m", query="inner", merge_height=3, arrivals=5000)
    assert data_of(run("plan", *args, "--json")) == expected + wcm_plan(0.1, 0.2, 5000)
    assert data_of(run("plan", "--window", "600", "--tick", "60", "--json"))[:4] == plans(0.01, 0.01, 600, tick=60)


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("eps", "2", "eps=2.0"),
        ("eps", "0", "eps=0.0"),
        ("eps", "-0.1", "eps=-0.1"),
        ("eps", "nan", "eps=nan"),
        ("eps", "inf", "eps=inf"),
        ("delta", "1", "delta=1.0"),
        ("window", "soon", "'soon'"),
        ("window", "", "empty duration"),
        ("window", "0", "window=0"),
        ("window", "-5", "window=-5"),
        ("window", "1__0", "'1__0'"),
        ("window", "²", "'²'"),
        ("window", "10 parsecs", "'10 parsecs'"),
        ("window", "months:5", "'months:5'"),
        ("window", "arrivals:", "'arrivals:'"),
        ("window", "arrivals:many", "'arrivals:many'"),
        ("window", "arrivals:0", "arrivals(0)"),
        ("window", "100000w", "'100000w'"),
        ("tick", "2h", "'2h'"),
        ("tick", "60", "tick=60"),
        ("tick", "arrivals:many", "'arrivals:many'"),
        ("merge-height", "999", "merge_height=999"),
        ("merge-height", "-1", "merge_height=-1"),
        ("arrivals", "0", "arrivals=0"),
    ],
)
def test_plan_refuses_in_one_line(option, value, named):
    assert_refused(run("plan", f"--{option}={value}"), named)
    assert_refused(run("plan", f"--{option}={value}", "--json"), named)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--query", "median"], "median"),
        (["--eps", "small"], "--eps"),
        (["--merge-height", "1.5"], "--merge-height"),
        (["--epsilon", "0.1"], "--epsilon"),
        (["--eps"], "--eps"),
        (["surplus"], "surplus"),
    ],
)
def test_plan_knows_wrong_usage(args, named):
    assert_wrong_usage(run("plan", *args), named)


# -- inspect -----------------------------------------------------------------------------------------------------------


def sketch(**options):
    return lt.EcmSketch(**{"window": "1h", "eps": 0.1, "delta": 0.1} | options)


def filled(thing, size=3000, start=1_780_000_000):
    rng = np.random.default_rng(3)
    times = start + np.sort(rng.integers(0, 5000, size))
    if isinstance(thing, lt.WindowCounter):
        thing.add(times)
    else:
        thing.update(rng.integers(0, 50, size), times)
    return thing


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


THINGS = {
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
    "an extracted Count-Min": lambda: filled(sketch()).extract(last="10m"),
}


@pytest.fixture(params=THINGS.values(), ids=THINGS)
def thing(request):
    return request.param()


def stored(thing, folder):
    path = folder / "thing.ltly"
    path.write_bytes(thing.to_bytes())
    return path


def test_every_storable_class_is_inspected_here():
    assert {type(make()) for make in THINGS.values()} == set(families().values())


def test_inspect_as_json_tells_the_facts(thing, tmp_path):
    facts = data_of(run("inspect", stored(thing, tmp_path), "--json"))
    blob = thing.to_bytes()
    assert facts["class"] == type(thing).__name__
    assert (facts["format version"], facts["family"]) == (blob[4], blob[5])
    assert facts["bytes on disk"] == len(blob)
    if isinstance(thing, lt.Windows | lt.Partials):
        said = thing.answers()
        assert facts["now"] == thing.now
        assert list(facts["queries"]) == list(said)
        for name, answer in said.items():
            shown = f"{len(answer.value)} keys" if isinstance(answer.value, lt.Answers) else answer.value
            assert facts["queries"][name] == {
                "value": shown, "rows": answer.rows, "missing": answer.missing, "covered": answer.covered,
            }  # fmt: skip
        return
    assert facts["bytes in memory"] == lt.from_bytes(blob).nbytes
    if isinstance(thing, lt.AmsSketch | lt.FastAmsSketch):
        names = ("eps", "delta", "width", "depth", "seed", "total", "weight")
        assert [facts[name] for name in names] == [getattr(thing, name) for name in names]
        return
    if isinstance(thing, lt.CountMin):
        assert [facts[name] for name in ("delta", "width", "depth", "seed", "error")] == [
            thing.delta, thing.width, thing.depth, thing.seed, thing.error,
        ]  # fmt: skip
        assert facts["arrivals"] == thing.total
        return
    assert (facts["window"], facts["eps"], facts["late"]) == (repr(thing.window), thing.eps, thing.late)
    total = thing.count() if isinstance(thing, lt.WindowCounter) else thing.total()
    assert facts["arrivals in window"] == {"value": total.value, "low": total.low, "high": total.high}
    if isinstance(thing, lt.EcmSketch | lt.WindowedAmsSketch):
        assert [facts[name] for name in ("delta", "counter", "width", "depth", "merges")] == [
            thing.delta, thing.counter, thing.width, thing.depth, thing.merges,
        ]  # fmt: skip
    if isinstance(thing, lt.TopK):
        assert [facts[name] for name in ("delta", "k", "width", "depth", "merges")] == [
            thing.delta, thing.k, thing.width, thing.depth, thing.merges,
        ]  # fmt: skip
    if isinstance(thing, lt.Dyadic):
        assert (facts["delta"], facts["universe"], facts["merges"]) == (thing.delta, thing.universe, thing.merges)
    if isinstance(thing, lt.Quantiles):
        assert [facts[name] for name in ("lo", "hi", "resolution")] == [thing.lo, thing.hi, thing.resolution]
    assert facts["now"] == (str(thing.now) if isinstance(thing.now, datetime) else thing.now)


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
    for outside in ("clip", "refuse"):
        made = lt.Quantiles(window="1h", eps=0.1, lo=-1, hi=1, resolution=0.01, outside=outside)
        facts = data_of(run("inspect", stored(made, tmp_path), "--json"))
        assert [facts[name] for name in ("lo", "hi", "resolution", "outside", "levels")] == [-1, 1, 0.01, outside, 2]
    facts = data_of(run("inspect", stored(with_late_arrivals(), tmp_path), "--json"))
    assert (facts["late"], facts["held back"], facts["arrivals in window"]["value"]) == (1, 3, 3)


def test_inspect_prints_the_same_facts(thing, tmp_path):
    path = stored(thing, tmp_path)
    result = run("inspect", path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == str(path)
    facts = data_of(run("inspect", path, "--json"))
    rows = dict(cells_of(result.stdout))
    queries = facts.get("queries", {})
    listed = [[f"query {query}" for query in queries] if name == "queries" else [name] for name in facts]
    assert list(rows) == [name for names in listed for name in names]
    for query, said in queries.items():
        assert rows[f"query {query}"] == f"{said['value']}  ({said['rows']:,} rows)"
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


# -- demo --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tour():
    """What the tour says in a process of its own."""
    done = run_apart("demo", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def without_rates(result):
    return {name: value for name, value in result.items() if name != "events_per_second"}


def test_the_tour_is_the_same_every_time(tour):
    assert without_rates(data_of(run("demo", "--json"))) == without_rates(tour)
    assert tour["events_per_second"] > 0


def test_the_tour_keeps_its_promises(tour):
    assert set(tour["answers"]) == {"10m", "1h"}
    for answers in tour["answers"].values():
        assert answers["asked"] > 1000
        assert 0.95 * answers["asked"] <= answers["within"] <= answers["asked"]
        assert 0 < answers["average_error"] < 0.02
    join = tour["self_join"]
    assert join["low"] <= join["exact"] <= join["high"]


def test_the_tour_adds_up(tour):
    assert [site["site"] for site in tour["sites"]] == list(demo.SITES)
    assert sum(site["events"] for site in tour["sites"]) == tour["events"] == 2_000_000
    assert {site["merges"] for site in tour["sites"]} == {0}
    assert tour["merged"]["merges"] == 1
    assert all(0 < part["stored"] < part["bytes"] < tour["raw_bytes"] for part in [*tour["sites"], tour["merged"]])
    assert 0 < tour["raw_events"] < tour["events"]


def test_the_tour_finds_the_crowd(tour):
    lines = tour["hottest"]
    assert (lines[0]["path"], lines[0]["last"]) == (demo.CROWD, "10m")
    recent, hour = ([line for line in lines if line["last"] == last] for last in ("10m", "1h"))
    assert recent + hour == lines
    assert [line["path"] for line in recent] == [line["path"] for line in hour]
    assert [line["value"] for line in recent] == sorted((line["value"] for line in recent), reverse=True)
    for line in lines:
        assert line["low"] <= line["value"] <= line["high"]
        assert line["within"] == (line["low"] <= line["exact"] <= line["high"])
    for short, long in zip(recent, hour, strict=True):
        assert short["exact"] <= long["exact"]


def test_the_tour_shows_people_the_same_numbers(tour):
    result = run("demo")
    assert result.exit_code == 0
    for line in tour["hottest"]:
        numbers = [f"{line[name]:,}" for name in ("exact", "value", "low", "high")]
        assert [line["path"], line["last"], *numbers, "yes" if line["within"] else "no"] in [
            row.split() for row in result.stdout.splitlines()
        ]
    asked, within = (sum(answers[name] for answers in tour["answers"].values()) for name in ("asked", "within"))
    assert f"answered {asked:,} questions" in result.stdout
    assert f"{within:,} answers" in result.stdout
    # What it proposes to run next is there to be run.
    proposed = [line.split() for line in result.stdout.splitlines() if line.startswith("  lately ")]
    assert len(proposed) == 2
    for _, command, *rest in proposed:
        args = rest[: next((i for i, word in enumerate(rest) if word in ("what", "how")), len(rest))]
        get_command(cli.app).commands[command].make_context(command, args)


def test_the_table_in_the_readme_is_what_the_tour_says(tour):
    text = (Path(__file__).parent.parent / "README.md").read_text()
    shown = [line.split() for line in text.splitlines() if re.match(r"  /\S* +(10m|1h) ", line)]
    assert len(shown) >= 3
    told = [
        [line["path"], line["last"], *(f"{line[name]:,}" for name in ("exact", "value", "low", "high")), "yes"]
        for line in tour["hottest"]
    ]
    assert [row for row in shown if row not in told] == []


def test_on_a_terminal_the_tour_can_be_watched(monkeypatch):
    screen = Console(width=120, force_terminal=True, color_system=None)
    monkeypatch.setattr(cli, "_out", screen)
    monkeypatch.setattr(demo, "STEP", 1800)
    small = demo.traffic(20_000)
    monkeypatch.setattr(demo, "traffic", lambda: small)
    result = run("demo", "--no-pace")
    assert result.exit_code == 0, result.output
    for clock in ("09:30", "10:00", "12:00"):
        assert clock in result.stdout
    assert "the last 10 minutes at all sites" in result.stdout
    assert "M events/s" in result.stdout
    assert "What you saw" in result.stdout
