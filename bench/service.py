"""How many questions a second does the service answer over HTTP, on one core, and what does it cost while nobody asks?"""

import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote

import numpy as np

import lately as lt
from bench.report import Options, Report, Table, Verdict
from lately.store import Store

SITES, KEYS, CONNECTIONS = 16, 2000, 8
GUARANTEE = {"eps": 0.01, "delta": 0.01}
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SKETCHES = {"topk": partial(lt.TopK, k=1), "ecm": lt.EcmSketch}
COLUMNS = {
    "what": "",
    "answers": ",d",
    "a second": ",.0f",
    "p50 ms": ".2f",
    "p99 ms": ".2f",
    "CPU µs each": ".0f",
    "of a constant": ".2f",
}

# A server in a process of its own, on one core. The baseline has the same stack and knows its one answer.
ONE_CORE = """
import os, sys
core = int(sys.argv[2])
if core >= 0:
    os.sched_setaffinity(0, [core])
def ready(port):
    print(port, flush=True)
"""
SERVICE = (
    ONE_CORE
    + """
from lately.service import serve
serve(sys.argv[1], "127.0.0.1", 0, ready=ready)
"""
)
CONSTANT = (
    ONE_CORE
    + """
import uvicorn
from fastapi import FastAPI, Response
from lately.service.server import open_socket
app = FastAPI()
@app.get("/api/count")
async def constant(key: str):
    return Response(b'{"key":"/","estimate":{"value":1,"low":1,"high":1,"confidence":0.99}}', media_type="application/json")
socket = open_socket("127.0.0.1", 0)
ready(socket.getsockname()[1])
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, ws="none")).run([socket])
"""
)


def run(options: Options) -> Report:
    report = Report("How many questions a second over HTTP, on one core?")
    rows, seconds = options.size(200_000, 5_000), 1.0 if options.quick else 5.0
    table = Table(f"{CONNECTIONS} connections on loopback, {SITES} sites of {rows:,} rows each", COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        options.tell("a store of 16 sites")
        make_store(folder, rows)
        questions_by_name = questions()
        with server(CONSTANT, folder) as (port, process):
            options.tell("a constant")
            constant = measured(port, process.pid, seconds, questions_by_name["one range, all sites"])
        add(table, "a constant, same stack", constant, constant)
        with server(SERVICE, folder) as (port, process):
            for what, paths in questions_by_name.items():
                options.tell(what)
                load_result = measured(port, process.pid, seconds, paths)
                add(table, what, load_result, constant)
                report.verdicts += [
                    Verdict.at_least(f"answers a second: {what}", load_result["rate"], 2000),
                    Verdict.below(f"p99 in ms: {what}", 1000 * load_result["p99"], 20),
                    Verdict.at_most(f"answers that were errors: {what}", load_result["failed"], 0),
                ]
            options.tell("idle")
            idle = idle_share(port, process.pid, 1.0 if options.quick else 6.0)
    report.tables.append(table)
    report.verdicts.append(Verdict.below("% of a core while one page listens and nobody asks", 100 * idle, 5))
    report.notes += [
        "Point questions, /api/count, of 2,000 keys. Server and load generator are processes of their own, each on one core "
        "where the system lets us choose; the generator asks again as soon as it has an answer.",
        "A constant: FastAPI and uvicorn as the service uses them, with an answer that is written down.",
    ]
    return report


def make_store(folder: str, rows: int) -> None:
    """What a pipeline would leave: two sketches for each of the sites."""
    store = Store(folder)
    store.prepare()
    infos = {name: {"kind": name, "where": None, "query": "point" if name == "ecm" else None, **GUARANTEE} for name in SKETCHES}
    window = {"length": "1h", "tick": "1s", "lateness": None}
    query = {"name": "hot", "kind": "top", "last": "10m", "by": "all", "where": None, "k": 10, "sketches": ["topk"]}
    about = {"name": "bench", "time_type": "timestamp", "keys": "text", "queries": [query], "monitors": [], "sketches": infos}
    store.describe(about | {"lately": lt.__version__, "window": window, "guarantee": GUARANTEE})
    draw = np.random.default_rng(8)
    names = np.array([f"GET /{number}" for number in range(KEYS)])
    for site in range(SITES):
        keys = names[np.minimum(draw.zipf(1.2, rows), KEYS) - 1].tolist()
        times = np.sort(draw.integers(0, 3600, rows)) + int((NOW - timedelta(hours=1)).timestamp())
        rows_of_site = []
        for name, kind in SKETCHES.items():
            sketch = kind(window="1h", **GUARANTEE)
            sketch.update(keys, times)
            rows_of_site.append({"sketch": name, "kind": name, "blob": sketch.to_bytes()})
        place = {"version": 0, "time": NOW, "site": f"site-{site:02d}"}
        store.put("sketches", 0, [place | row for row in rows_of_site], part=f"{site:02d}")
    counts = dict.fromkeys(("rows", "counted", "late", "rejected", "state_bytes", "shipped_bytes"), 0)
    store.put("runs", 0, [{"batch": 0, "time": NOW, "began": NOW, "seconds": 1.0, "sites": SITES, **counts}])


def questions() -> dict[str, list[str]]:
    """Paths to be asked for, by what they have in common."""
    draw = random.Random(8)
    keys = [quote(f"GET /{draw.randrange(KEYS)}") for _ in range(KEYS)]
    ranges = [f"last={last}" for last in ("1m", "5m", "10m", "30m", "1h")] + ["from=50m&to=10m", "from=30m&to=5m"]
    sites = [f"&site=site-{site:02d}" for site in range(SITES)] + ["", "&site=site-01&site=site-02&site=site-03"]
    return {
        "one range, all sites": [f"/api/count?key={key}&last=10m" for key in keys],
        "many ranges, many sets of sites": [f"/api/count?key={key}&{draw.choice(ranges)}{draw.choice(sites)}" for key in keys],
    }


def add(table: Table, what: str, result: dict[str, float], constant: dict[str, float]) -> None:
    ratio = result["rate"] / constant["rate"]
    table.add(what, result["answers"], result["rate"], 1000 * result["p50"], 1000 * result["p99"], 1e6 * result["cpu"], ratio)


@contextmanager
def server(code: str, folder: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server that answers by the time this is entered."""
    command = [sys.executable, "-c", code, folder, str(_core(0))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment())
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        if not line:
            raise lt.LatelyError(f"the server did not start: {process.stderr.read().strip().splitlines()[-1]}")
        yield int(line), process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def measured(port: int, pid: int, seconds: float, paths: list[str]) -> dict[str, float]:
    """The same with the seconds of CPU that each answer took; a first, short round warms up."""
    load(port, 0.5, paths)
    before = cpu_seconds(pid)
    result = load(port, seconds, paths)
    return result | {"cpu": (cpu_seconds(pid) - before) / result["answers"]}


def load(port: int, seconds: float, paths: list[str]) -> dict[str, float]:
    """What the load generator measured."""
    command = [sys.executable, "-m", "bench.service_load", str(port), str(CONNECTIONS), str(seconds), str(_core(1))]
    done = subprocess.run(
        command, input=json.dumps(paths), capture_output=True, text=True, check=False, timeout=seconds + 60, env=_environment()
    )
    if done.returncode:
        raise lt.LatelyError(f"the load generator failed: {done.stderr.strip().splitlines()[-1]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def idle_share(port: int, pid: int, seconds: float) -> float:
    """How much of a core a server takes while one listener waits for news."""
    listener = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    listener.request("GET", "/api/stream")
    listener.getresponse().readline()
    before = cpu_seconds(pid)
    time.sleep(seconds)
    used = cpu_seconds(pid) - before
    listener.close()
    return used / seconds


def cpu_seconds(pid: int) -> float:
    """The seconds of CPU that a process has used."""
    import psutil

    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _core(number: int) -> int:
    """The core that a process is to keep to; -1 where nothing can be chosen."""
    if not hasattr(os, "sched_getaffinity"):
        return -1
    cores = sorted(os.sched_getaffinity(0))
    return cores[number] if len(cores) > 1 else -1


def _environment() -> dict[str, str]:
    """Fresh processes find the same lately, and this folder."""
    places = [str(Path(lt.__file__).parents[1]), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
