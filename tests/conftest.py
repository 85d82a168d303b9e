"""Settings of all tests: which of them run, how many examples they draw, and from which seeds.

    make test         all tests without a marker
    make soak-short   LATELY_LONG=1: those marked ``long``, about a minute each; CI runs them too
    make soak         LATELY_SOAK=1: those marked ``long`` or ``slow``, and property tests with many examples

Examples are drawn from fixed seeds, so that a test passes or fails alike everywhere, and so is what the library itself would
draw from the operating system. ``make fuzz`` (LATELY_FUZZ=1) draws new ones, and runs the property tests only.
"""

import gc
import os
import random
import secrets
import shutil
import tempfile
from pathlib import Path

import pytest
import quick_spark
from hypothesis import HealthCheck, settings

from lately.counters import randwave

SOAK, LONG, FUZZ = (os.environ.get(name, "") not in ("", "0") for name in ("LATELY_SOAK", "LATELY_LONG", "LATELY_FUZZ"))

EXAMPLES = int(os.environ.get("LATELY_EXAMPLES", "30"))
settings.register_profile(
    "quick",
    deadline=None,  # the first example may compile a kernel
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    database=None,  # what failed here before is not what fails elsewhere
)
settings.register_profile("soak", parent=settings.get_profile("quick"), max_examples=2_000)
settings.register_profile("fuzz", parent=settings.get_profile("quick"), derandomize=False, print_blob=True)
settings.load_profile("fuzz" if FUZZ else "soak" if SOAK else "quick")

TESTS = Path(__file__).parent
#: The files that take a worker longest, the longest first: ``make test`` hands files to workers in this order, as one that
#: begins last is what the other workers wait for. While Spark starts in one worker, the second file compiles most kernels.
SLOW = (
    "spark/test_overtaken.py",
    "core/test_bad_bytes.py",
    "test_without_jit_monitor.py",
    "test_without_jit.py",
    "spark/test_cli_run.py",
    "demo/test_headless.py",
    "spark/test_kill.py",
    "spark/test_cluster.py",
    "spark/test_bench_spark.py",
    "test_bench.py",
    "service/test_page.py",
    "spark/test_examples.py",
    "monitor/test_message_counts.py",
    "spark/test_many_sites.py",
    "spark/test_frames.py",
    "spark/test_store_upkeep.py",
    "spark/test_pipeline.py",
    "spark/test_rounds.py",
    "spark/test_failures.py",
    "spark/test_rows.py",
    "spark/test_functions.py",
    "test_without_jit_exact.py",
    "test_without_jit_sketches.py",
    "laws/test_laws.py",
)

#: In place of the operating system's: salts of randomized waves, seeds of monitors and pipelines that nobody gave. Without it a
#: promise that holds with a probability of 1 - delta would fail a test now and then.
DRAWS = random.Random()
if not FUZZ:
    secrets.randbits = DRAWS.getrandbits
    randwave._drawn_salt = lambda: DRAWS.getrandbits(64)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test draws the same, whichever tests ran before it."""
    DRAWS.seed(item.nodeid)


@pytest.hookimpl(trylast=True)  # Hypothesis marks its tests first
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow files first; deselect soak tests, and in a fuzz all tests that draw no examples."""
    left_out = [
        item
        for item in items
        if (not SOAK and item.get_closest_marker("slow"))
        or (not (SOAK or LONG) and item.get_closest_marker("long"))
        or (FUZZ and not item.get_closest_marker("hypothesis"))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    places = {TESTS / name: place for place, name in enumerate(SLOW)}
    items.sort(key=lambda item: places.get(item.path, len(SLOW)))


def pytest_configure(config: pytest.Config) -> None:
    """Set the defaults of all Spark sessions. A file that was renamed must not lose its place."""
    if lost := [name for name in SLOW if not (TESTS / name).exists()]:
        raise pytest.UsageError(f"SLOW in tests/conftest.py names {', '.join(lost)}, not found; give the new name or remove it")
    folder = Path(tempfile.mkdtemp(prefix="lately-spark-defaults-"))
    quick_spark.write_defaults(folder)
    os.environ["SPARK_CONF_DIR"] = str(folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Collections need not visit what collected tests and imported modules are: of thousands of tests they take 0.2 s each."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def wide_and_plain(monkeypatch):
    """Tables as they look where there is room, whatever terminal the tests run in."""
    from rich.console import Console

    from lately.cli import console

    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"NO_COLOR": "1", "COLUMNS": "200", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(console, "out", Console(width=200, color_system=None, force_terminal=False))
