"""As test_without_jit.py, for the sketches: a file of its own, so that another worker can run it."""

import pytest
from test_without_jit import LONG, run_without_jit

#: Files whose streams are long throughout; what they test runs without a compiler in the laws.
STREAMS = (
    "test_tally",
    "test_dyadic",
    "test_candidates",
    "test_quantiles",
    "test_topk",
    "test_extracts",
    "guesses",
    "takes_little",
)


@pytest.mark.slow
def test_sketches_hold_with_the_jit_disabled():
    run_without_jit("sketches", (*LONG, "within_the_plan", "long_range", *STREAMS))
