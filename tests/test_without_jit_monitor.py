"""As test_without_jit.py, for monitors: a file of its own, so that another worker can run it."""

import pytest
from test_without_jit import run_without_jit


@pytest.mark.slow
def test_monitors_hold_with_the_jit_disabled():
    run_without_jit("monitor", ("test_message_counts", "test_simulation", "test_frequent", "test_distcm", "test_stored"))
