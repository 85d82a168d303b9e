"""Write docs/cli.md from what the commands say of themselves: python docs/make_cli.py (a test tells when that is due)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from lately.cli import app

HERE = Path(__file__).parent
INTRO = """# The command

Written by `docs/make_cli.py` from what `lately --help` says; do not edit it here.

Everything that prints data takes `--json` and then prints one JSON document. An error is one line that says what is wrong and
what to do.

| exit code | when |
| --- | --- |
| 0 | all is well |
| 1 | refused: a value, a file, a store or a service is not what it should be |
| 2 | wrong usage: an option or argument that there is not |
| 3 | `lately bench` missed what it promises |
| 130 | stopped with Ctrl-C (143: with SIGTERM); a pipeline keeps its state |

| variable | what it means |
| --- | --- |
| `LATELY_STORE` | the store that `lately query` asks, unless `--store` or `--url` says another |
| `LATELY_TOKEN` | the token that a service asks for: `lately serve` demands it of others, `lately query` sends it |

`lately --install-completion` makes the shell complete commands and options; `lately --show-completion` only shows what it would
add.

```console
$ lately query top --last 10m
$ lately query count "GET /cart" --last 1h --site paris
$ lately query quantiles 0.5 0.99 --from 2h --to 1h
$ lately query history "hot pages" --item /cart
$ lately query top --url http://127.0.0.1:8765 --json
```
"""


def page() -> str:
    """The whole page."""
    return INTRO + "".join(f"\n{part}" for part in _parts(get_command(app), "lately"))


def _parts(command: Any, name: str) -> Iterator[str]:
    subcommands = getattr(command, "commands", {})
    if not subcommands:
        yield f"## {name}\n\n" + "\n\n".join([*_words(command.help), f"`{_usage(command, name)}`", *_tables(command)]) + "\n"
    elif name != "lately":
        yield f"## {name}\n\n" + "\n\n".join(_words(command.help)) + "\n"
    for word, one in subcommands.items():
        yield from _parts(one, f"{name} {word}")


def _words(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("\n\n")]


def _usage(command: Any, name: str) -> str:
    arguments = [_metavar(one) if one.required else f"[{_metavar(one)}]" for one in _of_kind(command, "argument")]
    return " ".join([name, *arguments, "[options]"])


def _metavar(argument: Any) -> str:
    return (argument.metavar or argument.name.upper()) + (" …" if argument.nargs == -1 else "")


def _tables(command: Any) -> Iterator[str]:
    arguments = [(f"`{_metavar(one)}`", one) for one in _of_kind(command, "argument")]
    options = [(_option(one), one) for one in _of_kind(command, "option") if one.name != "help"]
    for head, rows in (("argument", arguments), ("option", options)):
        if rows:
            lines = [f"| {head} | what it means | default |", "| --- | --- | --- |"]
            yield "\n".join([*lines, *(f"| {name} | {_cell(one.help)} | {_default(one)} |" for name, one in rows)])


def _of_kind(command: Any, kind: str) -> list[Any]:
    return [one for one in command.params if one.param_type_name == kind]


def _option(option: Any) -> str:
    value = f" {option.metavar}" if option.metavar else ""
    return ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))


def _default(param: Any) -> str:
    if param.required:
        return "needed"
    default = getattr(param.default, "value", param.default)
    if default is None or default is False or callable(default):
        return ""
    if default is True:
        return f"`{param.opts[0]}`"
    return f"`{default}`"


def _cell(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|")


if __name__ == "__main__":
    (HERE / "cli.md").write_text(page())
