"""Settings of all tests. Soak tests (``make soak``, LATELY_SOAK=1) run only when asked for."""

import os

import pytest
from hypothesis import HealthCheck, settings

SOAK = os.environ.get("LATELY_SOAK", "") not in ("", "0")

# No deadline: the first example may compile a kernel.
EXAMPLES = int(os.environ.get("LATELY_EXAMPLES", "60"))
settings.register_profile("quick", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", parent=settings.get_profile("quick"), max_examples=2_000)
settings.load_profile("soak" if SOAK else "quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the slow tests out, without calling them skipped."""
    if SOAK:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


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
