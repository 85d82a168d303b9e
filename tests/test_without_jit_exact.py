"""As test_without_jit.py, for exact windows: a file of its own, so that another worker can run it."""

import pytest
from test_without_jit import run_without_jit


@pytest.mark.slow
def test_exact_windows_hold_with_the_jit_disabled():
    run_without_jit("exact", ("long_stream", "do_not_leak", "wild_values", "test_user_aggregates", "test_planner", "user_"))
