"""The kernels are plain Python underneath: the same proofs pass, on fewer examples, with the compiler off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


#: Tests that count luck over many seeds or need long streams: too slow without a compiler, and no new code runs in them.
LONG = (
    "no_more_often",
    "sampled_alike",
    "unbiased",
    "outlive",
    "as_planned",
    "whatever_the_stream",
    "window_slides",
    "all_kinds",
    "right_on_average",
    "every_size",
)


def run_without_jit(folder, without):
    """Run the tests of a folder with the compiler off, but for those whose names match ``without``."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "LATELY_EXAMPLES": "2"}
    for name in ("LATELY_SOAK", "LATELY_LONG"):
        environment.pop(name, None)
    # NumPy warns where 64-bit arithmetic wraps round, which compiled code does silently and hashing relies on.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::RuntimeWarning",
        str(TESTS / folder),
    ]
    command += ["-k", " and ".join(f"not ({name})" for name in without)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=TESTS.parent, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "[100%]" in done.stdout


@pytest.mark.parametrize(
    ("folder", "without"),
    [
        pytest.param(
            "counters",
            (*LONG, "loses_nothing and randwave", "batches and randwave", "rebasing and randwave", "test_shared"),
            marks=pytest.mark.slow,
        ),
        pytest.param("laws", (*LONG, "randwave", "commutes", "disjoint"), marks=pytest.mark.long),
    ],
)
def test_everything_holds_with_the_jit_disabled(folder, without):
    run_without_jit(folder, without)
