"""The command as a whole: its help, its exit codes."""

import re
import subprocess
import sys

import pytest
from cli_cases import assert_one_line, assert_wrong_usage, run, run_apart, without_colours
from patience import PATIENCE
from typer.main import get_command

import lately as lt
from lately import cli

COMMANDS = {"demo", "run", "serve", "plan", "inspect", "bench", "query", "store"}

pytestmark = pytest.mark.usefixtures("wide_and_plain")


def test_version():
    assert run("--version").stdout == f"lately {lt.__version__}\n"


def test_help_names_every_command():
    result = run("--help")
    assert result.exit_code == 0
    assert set(get_command(cli.app).commands) == COMMANDS
    for command in COMMANDS:
        assert re.search(rf"^\W*{command}\s+\w", without_colours(result.stdout), re.MULTILINE), command


def test_help_of_bench_names_every_benchmark():
    shown = without_colours(run("bench", "--help").stdout)
    assert [name.value for name in cli.Benchmark if name.value not in shown] == []


def test_an_unknown_command_is_wrong_usage():
    assert_wrong_usage(run("forecast"), "forecast")


def test_no_command_shows_the_help():
    result = run()
    assert result.exit_code == 2
    assert all(command in result.output for command in COMMANDS)


def test_processes_of_their_own_exit_alike(tmp_path):
    fine = run_apart("--version")
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, f"lately {lt.__version__}\n", "")
    refused = run_apart("inspect", tmp_path / "nowhere.ltly")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert_one_line(refused.stderr, tmp_path / "nowhere.ltly")
    wrong = run_apart("forecast")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "forecast" in wrong.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete_it(shell):
    script = run_apart(_LATELY_COMPLETE=f"source_{shell}")
    assert script.returncode == 0, script.stderr
    assert f"_LATELY_COMPLETE=complete_{shell}" in script.stdout


@pytest.mark.parametrize(
    ("typed", "completions"),
    [
        ("lately qu", ["query"]),
        ("lately query qu", ["quantiles"]),
        ("lately store ", ["check", "show", "tidy"]),
        ("lately query top --la", ["--last"]),
    ],
)
def test_commands_and_options_are_completed(typed, completions):
    place = str(len(typed.split()) - (not typed.endswith(" ")))
    done = run_apart(_LATELY_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=place)
    assert sorted(done.stdout.split()) == completions, done.stderr


@pytest.mark.parametrize("args", [["--version"], ["plan", "--json"], ["query", "top", "--store", "nowhere"], ["forecast"]])
def test_the_module_runs_as_the_command_does(args):
    command = [sys.executable, "-c", "from lately.cli import main; main()", *args]
    expected = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    done = run_apart(*args)
    assert (done.returncode, done.stdout, done.stderr) == (expected.returncode, expected.stdout, expected.stderr)


FREE = {"pyspark", "fastapi", "starlette", "uvicorn", "pandas", "polars"}


@pytest.mark.parametrize(
    "command", ["--help", "plan", "inspect {file}", "query --help", "store --help", "serve --help", "run --help"]
)
def test_what_is_not_needed_is_not_imported(command, tmp_path):
    """Helping and planning are quick; only Typer may read options with pydantic, and does for some of them."""
    file = tmp_path / "counter.ltly"
    file.write_bytes(lt.WindowCounter(window=10, eps=0.1).to_bytes())
    code = f"""
import sys
from lately.cli import main
sys.argv[1:] = {command.format(file=file).split()!r}
try:
    main()
finally:
    print(*{FREE!r}.intersection(sys.modules), "lately.config" in sys.modules, file=sys.stderr)
"""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "False\n")
