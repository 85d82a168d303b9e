"""Settings of all tests. Soak tests (``make soak``, LATELY_SOAK=1) run only when asked for.

Examples are drawn from fixed seeds, so that a test passes or fails alike everywhere. ``make fuzz`` (LATELY_FUZZ=1) draws new
ones, and runs the property tests only.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

SOAK, FUZZ = (os.environ.get(name, "") not in ("", "0") for name in ("LATELY_SOAK", "LATELY_FUZZ"))

EXAMPLES = int(os.environ.get("LATELY_EXAMPLES", "60"))
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


@pytest.hookimpl(trylast=True)  # Hypothesis marks its tests first
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests, and of a fuzz all that draw no examples, without calling them skipped."""
    left_out = [
        item
        for item in items
        if (not SOAK and item.get_closest_marker("slow")) or (FUZZ and not item.get_closest_marker("hypothesis"))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture
def wide_and_plain(monkeypatch):
    """Tables as they look where there is room, whatever terminal the tests run in."""
    from rich.console import Console

    from lately.cli import shown

    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"NO_COLOR": "1", "COLUMNS": "200", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(shown, "out", Console(width=200, color_system=None, force_terminal=False))
