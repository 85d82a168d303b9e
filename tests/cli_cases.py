"""How the tests of the command run it, and what they expect of what it prints."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from patience import PATIENCE
from typer.testing import CliRunner

from lately import cli


def run(*args):
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


def run_apart(*args, **environment):
    """In a process of its own, as users do."""
    command = [sys.executable, "-m", "lately", *(str(arg) for arg in args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE, env=os.environ | environment)


def data_of(result):
    """The one JSON document that a command printed; NaN and Infinity are not JSON."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def cells_of(text):
    """The rows of a printed table, as lists of texts."""
    return [[cell.strip() for cell in line.strip().strip("│").split("│")] for line in text.splitlines() if "│" in line]


def without_colours(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def assert_refused(result, *names):
    """Exit code 1, nothing on stdout, and one line on stderr that names the value."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert_one_line(result.stderr, *names)


def assert_one_line(stderr, *names):
    assert re.fullmatch(r"lately: .+\n", stderr), stderr
    for name in names:
        assert str(name) in stderr


def assert_wrong_usage(result, *names):
    """Exit code 2, nothing on stdout, and what is wrong on stderr."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for name in names:
        assert name in without_colours(result.stderr)


@contextmanager
def serving(store, *options, **environment):
    """``lately serve`` in a process of its own: its address, and the process; Ctrl-C ends it."""
    command = [sys.executable, "-W", "error", "-m", "lately", "serve", str(store), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)
    try:
        line = process.stderr.readline()
        match = re.fullmatch(r"lately: serving .+ at (http://\S+)/; Ctrl-C stops it\n", line)
        assert match, line + process.stderr.read()
        yield match[1], process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE)
        assert (process.returncode, rest) == (130, "")
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
