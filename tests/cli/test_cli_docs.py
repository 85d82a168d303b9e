"""docs/cli.md is what docs/make_cli.py writes, and leaves no command and no option out."""

import runpy
from pathlib import Path

import pytest
from cli_cases import run, without_colours
from typer.main import get_command

from lately import cli

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cli.md").read_text()

pytestmark = pytest.mark.usefixtures("wide_and_plain")


def commands(command, name="lately"):
    """All commands by the words that one types."""
    inner = getattr(command, "commands", {})
    yield from [] if inner else [(name, command)]
    for word, subcommand in inner.items():
        yield from commands(subcommand, f"{name} {word}")


COMMANDS = dict(commands(get_command(cli.app)))


def section(name):
    (text,) = [part for part in PAGE.split("\n## ") if part.partition("\n")[0] == name]
    return text


def test_the_page_is_up_to_date():
    assert runpy.run_path(str(DOCS / "make_cli.py"))["page"]() == PAGE, "run python docs/make_cli.py"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name):
    text = section(name)
    shown = without_colours(run(*name.split()[1:], "--help").stdout)
    for param in COMMANDS[name].params:
        for option in (*param.opts, *param.secondary_opts):
            if option.startswith("-"):
                assert f"`{option}" in text
                assert option in shown
        assert param.help, f"{name}: {param.name} says nothing of itself"


def test_everything_that_prints_data_gives_it_as_json():
    without = {name for name, command in COMMANDS.items() if not any("--json" in one.opts for one in command.params)}
    assert without == {"lately serve"}
