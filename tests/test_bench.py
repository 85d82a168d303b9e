"""Every benchmark runs, on any stream that it is given, and says what it found as one JSON document. How fast is not asked."""

import importlib
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from patience import PATIENCE
from typer.testing import CliRunner

import lately as lt
from lately import __version__, cli

ROOT = Path(__file__).parent.parent
NAMES = (
    "speed",
    "single",
    "memory",
    "bytes",
    "error",
    "joins",
    "merge",
    "questions",
    "wcm",
    "windows",
    "monitors",
    "spark",
    "sites",
    "service",
    "start",
)
HERE = [name for name in NAMES if name not in ("spark", "sites")]  # tests/spark/test_bench_spark.py has a session for these


@pytest.fixture(autouse=True)
def _as_from_the_root(monkeypatch, wide_and_plain):
    """``lately bench`` puts the checkout on the path; afterwards it is gone again."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])


def run(*args):
    return CliRunner().invoke(cli.app, ["bench", *(str(arg) for arg in args)])


def run_apart(*args):
    command = [sys.executable, "-m", "lately", "bench", *(str(arg) for arg in args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=PATIENCE)


def reports_of(text):
    """The reports in the one JSON document that was printed; NaN and Infinity are not JSON."""
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert list(document) == ["lately", "machine", "reports"]
    assert document["lately"] == __version__
    assert {"python", "numpy", "numba", "system", "cores"} == set(document["machine"])
    return document["reports"]


def assert_complete(report):
    assert report["title"]
    assert report["tables"]
    assert all(table["title"] and table["rows"] for table in report["tables"])
    assert report["notes"]
    assert all(note.strip() for note in report["notes"])
    assert report["verdicts"]
    assert all(set(verdict) == {"claim", "measured", "wanted", "ok"} for verdict in report["verdicts"])
    assert report["ok"] == all(verdict["ok"] for verdict in report["verdicts"])


# -- all of them -------------------------------------------------------------------------------------------------------


def test_these_are_all_benchmarks():
    assert [name.value for name in cli.Benchmark] == [*NAMES, "all"]
    helpers = {"__init__", "bytes_curve", "checks", "data", "registered", "report", "substreams", "timing"}
    helpers |= {"service_load", "spark_jobs", "spark_rows", "spark_stream", "spark_ticks"}
    assert {path.stem for path in (ROOT / "bench").glob("*.py")} == {*NAMES, *helpers}


#: The benchmarks that compile loops of their own in every run, which takes a minute.
COMPILING = ("monitors", "windows")
BENCHMARKS = [pytest.param(name, marks=pytest.mark.long) if name in COMPILING else name for name in HERE]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_runs(name):
    done = run_apart(name, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    reports = reports_of(done.stdout)
    assert list(reports) == [name]
    assert_complete(reports[name])


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "start"])
def test_the_fewest_rows_that_may_be_asked_for_are_enough(name):
    result = run(name, "--quick", "--json", "--rows", 1000)
    assert result.exit_code == 0, result.output
    assert_complete(reports_of(result.stdout)[name])


def test_fewer_rows_are_wrong_usage():
    result = run("memory", "--rows", 999)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "rows" in result.stderr


def test_an_unknown_benchmark_is_wrong_usage():
    result = run("luck")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "luck" in result.stderr


# -- streams of one's own ----------------------------------------------------------------------------------------------


def write(path, ts, key, **more):
    pq.write_table(pa.table({"ts": ts, "key": key, **more}), path)
    return path


@pytest.fixture
def stream(tmp_path):
    rng = np.random.default_rng(2)
    ts = 1_780_000_000 + np.sort(rng.integers(0, 3600, 20_000))
    return write(tmp_path / "[my] stream.parquet", ts, [f"/page/{page}" for page in rng.zipf(1.3, 20_000)])


def test_memory_of_a_file(stream):
    result = run("memory", "--quick", "--json", "--data", stream)
    assert result.exit_code == 0, result.output
    report = reports_of(result.stdout)["memory"]
    assert_complete(report)
    assert f"20,000 rows of {stream.name}" in report["tables"][0]["title"]
    rows = report["tables"][0]["rows"]
    assert [(row["tick"], row["what"]) for row in rows] == [
        (tick, what) for tick in ("row", "ts") for what in ("wave", "exphist", "randwave", "exact", "dict + deque, exact")
    ]
    assert {row["in window"] for row in rows} == {20_000}
    assert all(row["live bytes"] > 0 for row in rows)


def test_errors_on_a_file(stream):
    result = run("error", "--quick", "--json", "--data", stream)
    assert result.exit_code == 0, result.output
    report = reports_of(result.stdout)["error"]
    assert_complete(report)
    rows = report["tables"][0]["rows"]
    assert {(row["query"], row["counter"], row["tick"]) for row in rows} == {
        *((query, counter, tick) for query in ("point", "inner") for counter in ("wave", "exphist") for tick in ("row", "ts")),
        ("point", "randwave", "row"),
    }
    for row in rows:
        assert 0 <= row["average"] <= row["maximum"]
        if row["counter"] != "randwave":  # theirs are drawn anew each time
            assert row["average"] <= row["eps"]
            assert row["beyond eps"] <= 0.15
    assert all(verdict["ok"] for verdict in report["verdicts"] if "randwave" not in verdict["claim"])


def test_joins_on_a_file(stream):
    result = run("joins", "--quick", "--json", "--data", stream)
    assert result.exit_code == 0, result.output
    report = reports_of(result.stdout)["joins"]
    assert_complete(report)
    rows = report["tables"][0]["rows"]
    assert [row["what"] for row in rows] == ["EcmSketch(query='inner')"] * 3 + ["signed cells on shared waves"] * 3
    assert rows[3]["bytes"] <= rows[0]["bytes"]
    assert max(row["largest"] for row in rows[3:]) < max(row["largest"] for row in rows[:3])
    assert all(verdict["ok"] for verdict in report["verdicts"])


def test_what_people_see_names_the_file(stream):
    result = run("memory", "--quick", "--rows", 2000, "--data", stream)
    assert result.exit_code == 0, result.output
    assert f"2,000 rows of {stream.name}" in " ".join(result.stdout.split())
    assert "what was promised" in result.stdout


@pytest.mark.parametrize(
    ("ts", "key"),
    [
        (pa.array(np.arange(2000), pa.timestamp("ms", "UTC")), pa.array(np.arange(2000) % 7)),
        (np.full(2000, 5), pa.array(["a", "b"] * 1000).dictionary_encode()),
        (np.arange(2000, dtype=np.uint32), pa.array([b"a"] * 2000)),
        (np.arange(1), ["alone"]),
    ],
    ids=["timestamps and integers", "one second, dictionary", "unsigned and bytes", "one row"],
)
@pytest.mark.parametrize("name", ["memory", "bytes", "error", "questions"])
def test_files_of_every_kind(name, ts, key, tmp_path):
    result = run(name, "--quick", "--json", "--data", write(tmp_path / "s.parquet", ts, key))
    assert result.exit_code == 0, result.output
    assert reports_of(result.stdout)[name]["tables"]


def test_the_plot_is_drawn(stream, tmp_path):
    result = run("error", "--quick", "--json", "--rows", 2000, "--data", stream, "--plot", tmp_path / "plots" / "here")
    assert result.exit_code == 0, result.output
    picture = tmp_path / "plots" / "here" / "error.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"Plot: {picture}" in reports_of(result.stdout)["error"]["notes"]


def broken(path):
    """A file whose footer is fine and whose pages are not."""
    write(path, np.arange(20_000), [f"key {i % 999}" for i in range(20_000)])
    blob = bytearray(path.read_bytes())
    blob[40:4000] = bytes(3960)
    path.write_bytes(blob)


BAD = {
    "missing": (lambda path: None, "no such file"),
    "folder": (lambda path: path.mkdir(), "no such file"),
    "empty": (lambda path: path.touch(), "not a Parquet file"),
    "text": (lambda path: path.write_text("ts,key\n1,a\n"), "not a Parquet file"),
    "a footer of nothing": (lambda path: path.write_bytes(b"PAR1" + bytes(100) + b"PAR1"), "not a Parquet file"),
    "broken": (broken, "cannot be read"),
    "no rows": (lambda path: write(path, pa.array([], pa.int64()), pa.array([], pa.string())), "no rows"),
    "other columns": (lambda path: pq.write_table(pa.table({"time": [1], "key": ["a"]}), path), "no column ts"),
    "null times": (lambda path: write(path, pa.array([1, None]), ["a", "b"]), "nulls"),
    "null keys": (lambda path: write(path, [1, 2], ["a", None]), "nulls"),
    "backwards": (lambda path: write(path, [2, 1], ["a", "b"]), "backwards"),
    "times as text": (lambda path: write(path, ["1", "2"], ["a", "b"]), "type string"),
    "lists as keys": (lambda path: write(path, [1, 2], [["a"], ["b"]]), "type list"),
}


@pytest.mark.parametrize(("make", "named"), BAD.values(), ids=BAD)
def test_a_bad_file_ends_in_one_line(make, named, tmp_path):
    path = tmp_path / "bad.parquet"
    make(path)
    result = run("memory", "--quick", "--json", "--data", path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("lately: ")
    assert result.stderr.count("\n") == 1
    assert path.name in result.stderr
    assert named in result.stderr


def test_a_bad_file_ends_in_one_line_in_a_process_of_its_own(tmp_path):
    path = tmp_path / "bad.parquet"
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    done = run_apart("error", "--quick", "--data", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert [line.startswith(f"lately: {path}") for line in done.stderr.splitlines()] == [True]


def test_too_short_a_stream_for_merging_is_refused(tmp_path):
    path = write(tmp_path / "short.parquet", np.arange(999), ["a"] * 999)
    result = run("merge", "--quick", "--json", "--data", path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("lately: short.parquet has 999 rows")
    assert result.stderr.count("\n") == 1


def test_merging_a_stream_on_which_nothing_is_ever_off(tmp_path):
    path = write(tmp_path / "same.parquet", np.arange(1000), ["a"] * 1000)
    result = run("merge", "--quick", "--json", "--data", path)
    assert result.exit_code == 0, result.output
    assert_complete(reports_of(result.stdout)["merge"])


# -- bytes -------------------------------------------------------------------------------------------------------------


def equal_bytes(*args):
    result = run("bytes", "--quick", "--json", *args)
    assert result.exit_code == 0, result.output
    report = reports_of(result.stdout)["bytes"]
    assert_complete(report)
    return report


def exact_counts(path, last):
    return Counter(pq.read_table(path)["key"].to_pylist()[-last:])


def test_equal_bytes_on_a_file(stream, tmp_path):
    report = equal_bytes("--data", stream, "--plot", tmp_path / "plots")
    assert (tmp_path / "plots" / "bytes.png").read_bytes().startswith(b"\x89PNG")
    *budgets, coverage, others = report["tables"]
    assert [table["title"].split(":")[0] for table in budgets] == ["50,000 bytes", "200,000 bytes"]
    for nbytes, table in zip((50_000, 200_000), budgets, strict=True):
        assert "last 8,000 arrivals of [my] stream.parquet" in table["title"]
        names = [(row["what"], row["delta"]) for row in table["rows"]]
        assert names[:4] == [
            ("EcmSketch", 0.1), ("EcmSketch", 0.01), ("EcmSketch, counter='wave'", 0.1), ("EcmSketch, counter='wave'", 0.01),
        ]  # fmt: skip
        assert not any("Sliding" in name for name, _ in names)  # those were measured on another stream
        *sketches, zero = table["rows"]
        counts, tenth = exact_counts(stream, 8000), exact_counts(stream, 800)
        assert zero["mean error"] == pytest.approx(8000 / len(counts))
        assert zero["tenth: mean error"] == pytest.approx(800 / len(tenth))
        assert (zero["top 100"], zero["≥ 100"]) == (1, 1)
        for row in sketches:
            assert row["bytes"] <= nbytes
            assert row["M updates/s"] > 0 < row["M queries/s"]
            assert (row["tenth: width"] is None) == row["what"].endswith("CountMin")
        assert sketches[0]["mean error"] < sketches[2]["mean error"] / 5
    assert [(row["bytes"], row["delta"]) for row in coverage["rows"]] == [
        (50_000, 0.1), (50_000, 0.01), (200_000, 0.1), (200_000, 0.01),
    ]  # fmt: skip
    assert all(row["mean"] <= row["most"] <= 1 for row in coverage["rows"])
    assert {row["question"] for row in others["rows"]} == {"self-join", "rank", "total"}
    assert all(row["bytes"] <= row["budget"] for row in others["rows"])


def test_rivals_are_shown_for_the_stream_on_which_they_were_measured(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    path = write(tmp_path / "twitter_cache52.parquet", np.arange(3000), rng.zipf(1.3, 3000))
    assert not any("Sl-Count" in row["what"] for row in equal_bytes("--data", path)["tables"][0]["rows"])
    bench = importlib.import_module("bench.bytes")
    monkeypatch.setattr(bench, "WINDOW", 1000)
    report = equal_bytes("--data", path)
    rivals = [next(row for row in table["rows"] if "Sl-Count" in row["what"]) for table in report["tables"][:2]]
    assert [row["mean error"] for row in rivals] == [50, 14]
    assert any("mean absolute error" in verdict["claim"] for verdict in report["verdicts"])
    assert any("not run here" in note for note in report["notes"])


def test_errors_against_brute_force(stream):
    bench, data = importlib.import_module("bench.bytes"), importlib.import_module("bench.data").from_parquet(stream, 20_000)
    setting = bench.Setting(data)
    keys = pq.read_table(stream)["key"].to_pylist()
    sketch = lt.EcmSketch(window=8000, eps=0.02, delta=0.1)
    sketch.update(keys, np.arange(20_000))
    for span, last in ((setting.whole, 8000), (setting.tenth, 800)):
        off, relative, frequent, outside, widths = [], {}, [], 0, []
        counts = exact_counts(stream, last)
        assert set(span.keys.to_pylist()) == set(counts)
        for key, answer in zip(span.keys.to_pylist(), sketch.counts(span.keys, last=last), strict=True):
            count = counts[key]
            off.append(abs(answer.value - count))
            relative[key] = off[-1] / count
            frequent += [relative[key]] if count >= 100 else []
            outside += count not in answer
            widths.append(answer.high - answer.low)
        scores = span.scores(sketch)
        assert scores.mean_error == pytest.approx(sum(off) / len(off))
        assert scores.hundred == pytest.approx(sum(frequent) / len(frequent))
        assert (scores.outside, scores.width) == (pytest.approx(outside / len(counts)), np.median(widths))
        hundredth = sorted(counts.values())[-100]
        surely, perhaps = (
            [relative[key] for key in counts if test(counts[key])] for test in (hundredth.__lt__, hundredth.__eq__)
        )
        left = 100 - len(surely)  # of those that occurred equally often, any may be among the hundred
        least, most = (sum(surely) + sum(part) for part in (sorted(perhaps)[:left], sorted(perhaps)[-left:]))
        assert least / 100 - 1e-9 <= scores.top <= most / 100 + 1e-9
    assert sum(off) > 0
    exact = setting.fill(lt.EcmSketch(window=8000, eps=1e-5, delta=0.1, counter="exact"))
    assert setting.whole.scores(exact)[:3] == (0, 0, 0)
    assert setting.tenth.scores(exact)[:3] == (0, 0, 0)


def test_the_eps_that_bytes_buy():
    curve = importlib.import_module("bench.bytes_curve")

    def make(eps):
        return lt.CountMin(eps=eps, delta=0.3)

    eps, sketch = curve.fit(make, lambda sketch: sketch, 10_000, 0.9)
    assert sketch.nbytes <= 10_000 < make(eps * 0.95).nbytes
    assert sketch.nbytes == make(eps).nbytes
    assert curve.fit(make, lambda sketch: sketch, 10, 0.9) is None


# -- questions ---------------------------------------------------------------------------------------------------------


def questions(*args):
    """The tables and the verdicts of a quick look; timings aside, all that was promised must have been kept."""
    result = run("questions", "--quick", "--json", *args)
    assert result.exit_code == 0, result.output
    report = reports_of(result.stdout)["questions"]
    assert_complete(report)
    kept = {verdict["claim"]: verdict["ok"] for verdict in report["verdicts"]}
    answers = [claim for claim in kept if re.search("recall|precision|rank error|bounds", claim)]
    assert len(answers) == 4
    assert [claim for claim in answers if not kept[claim]] == []
    return [table["rows"] for table in report["tables"]], report


def assert_answers_are_right(lists, ranks):
    assert [row["what"] for row in lists] == ["heavy_hitters()", "top(100)"]
    for row in lists:
        assert (row["recall"], row["precision"], row["outside their bounds"]) == (1, 1, 0)
        assert row["must be"] <= row["listed"] <= row["may be"]
    assert [row["q"] for row in ranks] == [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999]
    for row in ranks:
        assert 0 <= row["rank error"] < 0.01
        assert row["low"] is None or row["low"] <= row["exact"]
        assert row["high"] is None or row["exact"] <= row["high"]


def test_questions_to_a_synthetic_stream():
    (updates, lists, costs, ranks, numbers), report = questions()
    assert [(row["what"], row["eps"], row["rows"]) for row in updates] == [
        ("TopK, text keys", 0.01, 200_000),
        ("TopK, integer keys", 0.01, 200_000),
        ("Dyadic over 2**32", 0.05, 200_000),
        ("Dyadic over 2**32", 0.01, 200_000),
    ]
    assert_answers_are_right(lists, ranks)
    assert lists[0]["must be"] > 50
    assert lists[1]["of the exact top 100"] > 90
    assert [row["what"] for row in costs][:2] == ["TopK.top(100)", "TopK.heavy_hitters()"]
    assert all(row["live bytes"] > 0 for row in costs)
    assert [row["what"].split()[0] for row in numbers] == ["Quantiles", "datasketches", "NumPy,"]
    assert "synthetic delays" in report["tables"][3]["title"]


def test_questions_to_a_file(tmp_path):
    rng = np.random.default_rng(4)
    ts, keys = np.sort(rng.integers(0, 30 * 86_400, 20_000)), [f"/page/{page}" for page in rng.zipf(1.3, 20_000)]
    values = pa.array(np.rint(rng.normal(0, 50, 20_000)), mask=rng.random(20_000) < 0.1)
    path = write(tmp_path / "s.parquet", ts, keys, value=values)
    (_, lists, _, ranks, _), report = questions("--data", path)
    assert_answers_are_right(lists, ranks)
    known = 20_000 - values.null_count
    assert f"of {known:,} rows of s.parquet" in report["tables"][3]["title"]
    week = np.sort(values.to_numpy(zero_copy_only=False)[ts > ts[-1] - 7 * 86_400])
    week = week[~np.isnan(week)]
    assert [row["exact"] for row in ranks] == np.quantile(week, [row["q"] for row in ranks], method="inverted_cdf").tolist()


@pytest.mark.parametrize(
    "values",
    [
        np.full(2000, 7.0),
        np.full(2000, 0.1),
        np.arange(2000) % 2 * 1e12,
        np.linspace(-1e-9, 1e-9, 2000),
        np.array([np.nan, np.inf, -np.inf, 5.5] * 500),
    ],
    ids=["one whole number", "one fraction", "far apart", "close together", "hardly any number"],
)
def test_numbers_of_every_kind(values, tmp_path):
    path = write(tmp_path / "s.parquet", np.arange(2000), np.arange(2000) % 9, value=values)
    (*_, ranks, _), report = questions("--data", path)
    assert all(row["rank error"] < 0.01 for row in ranks)
    assert f"{np.isfinite(values).sum():,} rows of s.parquet" in report["tables"][3]["title"]


@pytest.mark.parametrize("values", [["a"] * 2000, pa.nulls(2000), pa.nulls(2000, pa.float64())], ids=["text", "null", "nulls"])
def test_without_numbers_the_delays_are_synthetic(values, tmp_path):
    path = write(tmp_path / "s.parquet", np.arange(2000), np.arange(2000) % 9, value=values)
    _, report = questions("--rows", 1000, "--data", path)
    assert "1,000 rows of s.parquet" in report["tables"][0]["title"]
    assert "1,000 rows of synthetic delays" in report["tables"][3]["title"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process")
def test_memory_is_measured_in_processes_of_their_own():
    result = run("questions", "--json", "--rows", 1000)
    assert result.exit_code in (0, 3), result.output  # how fast is not asked
    costs = reports_of(result.stdout)["questions"]["tables"][2]["rows"]
    assert [row["what"] for row in costs if row["peak RSS"] is not None] == ["TopK.top(100)", "polars, exact"]
    assert all(row["peak RSS"] >= 0 for row in costs if row["peak RSS"] is not None)


def test_questions_without_what_they_are_compared_with(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setitem(sys.modules, "datasketches", None)
    (_, lists, costs, ranks, numbers), _ = questions("--rows", 1000)
    assert_answers_are_right(lists, ranks)
    assert [row["what"] for row in (*costs, *numbers) if "not installed" in row["what"]] == [
        "polars, exact: not installed",
        "datasketches KLL (no window): not installed",
    ]


# -- promises ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def found(monkeypatch):
    """Benchmarks that take no time and find what the test says; the names of those that ran."""
    ran = []
    report = importlib.import_module("bench.report")

    def pretend(measured):
        for name in NAMES:

            def find(options, name=name):
                ran.append(name)
                table = report.Table("a table", {"what": "", "how many": ","}, [("thing", 1234), ("nothing", None)])
                verdict = report.Verdict.at_most(f"a claim of {name}", measured.get(name, 0), 1)
                return report.Report(f"About {name}", [table], ["a note"], [verdict])

            monkeypatch.setattr(importlib.import_module(f"bench.{name}"), "run", find)
        return ran

    return pretend


def test_all_runs_one_after_the_other(found):
    ran = found({})
    result = run("all", "--json")
    assert result.exit_code == 0, result.output
    reports = reports_of(result.stdout)
    assert list(reports) == ran == list(NAMES)
    for name, report in reports.items():
        assert_complete(report)
        assert report["title"] == f"About {name}"
        assert report["tables"][0]["rows"] == [{"what": "thing", "how many": 1234}, {"what": "nothing", "how many": None}]


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_a_missed_promise_is_exit_code_3_unless_quick(options, found):
    found({"merge": 2})
    assert run("all", *options).exit_code == 3
    assert run("merge", *options).exit_code == 3
    assert run("memory", *options).exit_code == 0
    assert run("merge", "--quick", *options).exit_code == 0


def test_what_people_see_is_what_was_found(found):
    found({"merge": 2})
    text = run("all").stdout
    for name in NAMES:
        assert f"About {name}" in text
        (line,) = (line for line in text.splitlines() if f"a claim of {name}" in line)
        assert line.split()[-1] == ("MISSED" if name == "merge" else "kept")
    assert "1,234" in text
    assert "a note" in text


@pytest.mark.parametrize(
    ("kind", "measured", "limit", "ok"),
    [
        ("at_least", 3, 3, True),
        ("at_least", 2.9, 3, False),
        ("at_most", 3, 3, True),
        ("at_most", 3.1, 3, False),
        ("below", 2.9, 3, True),
        ("below", 3, 3, False),
        ("at_most", float("nan"), 3, False),
    ],
)
def test_verdicts(kind, measured, limit, ok):
    verdict = getattr(importlib.import_module("bench.report").Verdict, kind)("a claim", measured, limit)
    assert verdict.ok is ok
    assert verdict.wanted.endswith(" 3")


def test_contestants_take_turns_and_the_best_turn_counts(monkeypatch):
    timing = importlib.import_module("bench.timing")
    ran, now = [], [0]
    seconds = {"a": iter([1, 5, 4]), "b": iter([1, 7, 8])}  # the first turn only warms up

    def contestant(name):
        def run():
            ran.append(name)
            now[0] += next(seconds[name])

        def prepare():
            now[0] += 100  # is not measured
            return run

        return prepare

    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    assert timing.race(2, {name: contestant(name) for name in seconds}) == {"a": 4, "b": 7}
    assert ran == ["a", "b"] * 3


def test_what_spark_would_need_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    result = run("spark", "--quick", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "pip install 'lately[spark]'" in result.stderr
    assert result.stderr.count("\n") == 1
