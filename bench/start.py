"""How long until it runs? Importing, the first update, and whether a second process compiles again."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import lately as lt
from bench.report import Options, Report, Table, Verdict

COLUMNS = {"what": "", "runs": "d", "median s": ".3f", "fastest s": ".3f", "kernels compiled": "d", "cache files written": "d"}

# Runs in a fresh process. Numba counts, per kernel, how often its cache missed: that is how often it compiled.
FIRST_UPDATE = """
import json, sys, time
import lately as lt
start = time.perf_counter()
sketch = lt.EcmSketch(window=1000, eps=0.1, delta=0.15)
sketch.update(["a", "b", "c"], [1, 2, 3])
sketch.count("a", last=10)
lt.from_bytes(lt.merge([sketch, sketch]).to_bytes())
seconds = time.perf_counter() - start
kernels = {
    id(value): value
    for name, module in list(sys.modules.items()) if name.startswith("lately")
    for value in vars(module).values() if hasattr(value, "stats") and hasattr(value.stats, "cache_misses")
}
print(json.dumps({"seconds": seconds, "misses": sum(sum(k.stats.cache_misses.values()) for k in kernels.values())}))
"""


def run(options: Options) -> Report:
    report = Report("How long until it runs?")
    table = Table("fresh processes of this Python", COLUMNS)
    runs = 1 if options.quick else 9
    _imports(report, table, options, runs)
    if options.quick:
        _first_update("first update, kernels cached before", table, options, dict(os.environ), _cache_in_use())
        second = _first_update("first update, next process", table, options, dict(os.environ), _cache_in_use())
    else:
        with tempfile.TemporaryDirectory() as directory:
            environment = {**os.environ, "NUMBA_CACHE_DIR": directory}
            _first_update("first update ever: compiles", table, options, environment, Path(directory))
            second = _first_update("first update, second process", table, options, environment, Path(directory))
    report.verdicts += [
        Verdict.at_most("kernels that a second process compiles", second["misses"], 0),
        Verdict.at_most("cache files that a second process writes", second["written"], 0),
    ]
    report.tables.append(table)
    report.notes += [
        "Imports: wall time of `python -c 'import …'`, taking turns. "
        "First update: build, update, ask, merge and store, after the import.",
    ]
    return report


def _imports(report: Report, table: Table, options: Options, runs: int) -> None:
    times: dict[str, list[float]] = {"pass": [], "import numpy": [], "import lately": []}
    for turn in range(options.quick, runs + 1):
        options.tell(f"imports, turn {turn}")
        for code, seconds in times.items():
            start = perf_counter()
            _python(code, dict(os.environ))
            if turn:  # turn 0 warms the disk cache; a quick look does without
                seconds.append(perf_counter() - start)
    for code, seconds in times.items():
        table.add("python alone" if code == "pass" else code, runs, statistics.median(seconds), min(seconds), None, None)
    extra = statistics.median(times["import lately"]) - statistics.median(times["import numpy"])
    report.verdicts.append(Verdict.below("seconds that import lately takes beyond import numpy", extra, 0.5))


def _first_update(what: str, table: Table, options: Options, environment: dict[str, str], cache: Path) -> dict[str, Any]:
    options.tell(what)
    before = _files(cache)
    answer: dict[str, Any] = json.loads(_python(FIRST_UPDATE, environment))
    answer["written"] = len(_files(cache) - before)
    table.add(what, 1, answer["seconds"], answer["seconds"], answer["misses"], answer["written"])
    return answer


def _files(cache: Path) -> set[tuple[str, int]]:
    return {(str(path), path.stat().st_mtime_ns) for suffix in ("nbi", "nbc") for path in cache.rglob(f"*.{suffix}")}


def _cache_in_use() -> Path:
    return Path(os.environ.get("NUMBA_CACHE_DIR") or Path(lt.__file__).parent)


def _python(code: str, environment: dict[str, str]) -> str:
    """Run a piece of code in a fresh process that finds the same lately as this one."""
    source = str(Path(lt.__file__).parents[1])
    path = os.pathsep.join([source, *filter(None, [environment.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        raise lt.LatelyError(f"a fresh process failed: {reason}")
    return done.stdout
