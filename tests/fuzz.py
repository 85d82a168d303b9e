"""Explore with new seeds: ``make fuzz SECONDS=1200 ARGS="tests/counters tests/exact"``.

``make test`` draws the same examples on every machine. This runs the property tests of some folders (all of them by default)
round after round, each with a new seed and more examples, until the time is up, and prints how to repeat what failed:

    make fuzz SEED=1234567 ARGS="tests/counters/test_families.py::test_name"

Pin what it finds as an ``@example`` of its test.
"""

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?: \S+)*?)(?: - .*)?$", re.MULTILINE)


def run_round(tests: list[str], seed: int, examples: int, seconds: float) -> tuple[int | None, str]:
    """Run the property tests once with a seed; the exit code (None if the time was up first) and what was printed."""
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "load", f"--hypothesis-seed={seed}", *tests]
    environment = os.environ | {"LATELY_FUZZ": "1", "LATELY_EXAMPLES": str(examples), "COLUMNS": "500"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        return None, process.communicate()[0]
    return process.returncode, output


def main() -> int:
    """Rounds until the time is up; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(description="Run the property tests with new seeds until the time is up.")
    parser.add_argument("tests", nargs="*", default=["tests"], help="folders, files or tests, as pytest takes them")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to explore (default: 600)")
    parser.add_argument("--seed", type=int, help="run one round with this seed instead")
    parser.add_argument("--examples", type=int, default=300, help="examples of each test in a round (default: 300)")
    options = parser.parse_args()
    deadline, failed, rounds = time.monotonic() + options.seconds, {}, 0
    while time.monotonic() < deadline:
        seed = secrets.randbelow(10**9) if options.seed is None else options.seed
        code, output = run_round(options.tests, seed, options.examples, max(deadline - time.monotonic(), 1.0))
        rounds += 1
        closing = output.strip().splitlines()[-1] if output.strip() else "nothing printed"
        print(f"round {rounds}, seed {seed}: {'out of time' if code is None else closing}", flush=True)
        if code == 5:
            print("no property test there; name others")
            return 2
        for name in _FAILED.findall(output):
            failed.setdefault(name, seed)
        if code not in (0, None):
            print(output, flush=True)
        if options.seed is not None:
            break
    for name, seed in failed.items():
        print(f'to repeat: make fuzz SEED={seed} ARGS="{name}"')
    print(f"{len(failed)} tests failed in {rounds} rounds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
