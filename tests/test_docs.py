"""What the documentation shows is what happens, and no public name is missing from it."""

import doctest
import re
import shlex
import tomllib
from pathlib import Path

from typer.main import get_command

import lately as lt
from lately import cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_in(page, program):
    """The command lines of a program that a page shows: in backticks, or after the $ of a console."""
    text = page.read_text()
    inline = re.findall(rf"(?<!`)`({program}(?: [^`\n]*)?)`(?!`)", text)
    console = re.findall(rf"(?m)^\$ ({program}\b[^#\n]*)", text)
    return [line.split() for line in [*inline, *console]]


def resolved(command, words):
    """The command that these words lead to, through groups of commands, and the words that are left for it."""
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def all_commands(command):
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from all_commands(inner)


def options_of(command):
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts) if name.startswith("-")}


def make_targets():
    return set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))


def test_the_guide_runs():
    failures, tried = doctest.testfile(str(ROOT / "docs" / "guide.md"), module_relative=False)
    assert tried > 15
    assert failures == 0


def test_every_public_name_is_in_the_docs():
    text = "\n".join(path.read_text() for path in PAGES)
    names = [*lt.__all__, *(f"lt.{space}.{name}" for space in ("agg", "counters") for name in getattr(lt, space).__all__)]
    missing = [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)]
    assert missing == []


def test_every_link_in_the_docs_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_picture_of_the_house_matches_the_folders():
    picture = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "src" / "lately").iterdir():
        if path.name not in ("__pycache__", "py.typed"):
            assert path.name in picture, path.name


def test_every_command_in_the_docs_exists():
    known = get_command(cli.app)
    shown = [(page.name, *line) for page in PAGES for line in commands_in(page, "lately")]
    used = {line[2] for line in shown if len(line) > 2 and not line[2].startswith("-")}
    assert used == set(known.commands)
    for page, _, *words in shown:
        command, rest = resolved(known, words)
        given = {word.partition("=")[0] for word in rest if word.startswith("-")}
        assert given <= options_of(command) | {"--help"}, f"{page}: lately {' '.join(words)}"


def test_the_readme_lists_the_commands():
    text = (ROOT / "README.md").read_text()
    (listed,) = re.findall(r"the command `lately` \(([^)]*)\)", text)
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(get_command(cli.app).commands)


def test_every_option_in_the_docs_exists():
    known = set().union(*map(options_of, all_commands(get_command(cli.app))))
    for page in PAGES:
        for name in re.findall(r"`(--[\w-]+)[^`\n]*`", page.read_text()):
            assert name in known, f"{page.name}: {name}"


def test_the_page_on_benchmarks_has_every_benchmark_and_option():
    text = (ROOT / "docs" / "bench.md").read_text()
    assert re.findall(r"(?m)^## (\w+): ", text) == [name.value for name in cli.Benchmark if name.value != "all"]
    bench = get_command(cli.app).commands["bench"]
    assert set(re.findall(r"(?m)^\| `(--\w+)", text)) == options_of(bench) - {"--help"}


def test_the_readme_has_two_commands_and_both_are_there():
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"(?m)^\$ (\S+ \S+)", text) == ["make demo", "make test"]
    assert {"demo", "test"} <= make_targets()


def test_every_make_target_in_the_docs_exists():
    shown = {(page.name, line[1]) for page in PAGES for line in commands_in(page, "make") if len(line) > 1}
    assert {target for _, target in shown} >= {"demo", "test", "lint", "check"}
    assert {(page, target) for page, target in shown if target not in make_targets()} == set()


def test_ci_runs_what_people_run():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, "not executable"
    ran = re.findall(r"(?m)^make ([a-z-]+)", script.read_text())
    assert "test" in ran
    assert set(ran) <= make_targets()


def test_every_supported_spark_has_tests_and_ci_runs_the_newest():
    makefile, project = (ROOT / "Makefile").read_text(), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (listed,) = re.findall(r"(?m)^SPARKS := (.*)$", makefile)
    versions, extras = listed.split(), project["optional-dependencies"]
    (supported,) = (line for line in extras["spark"] if line.startswith("pyspark"))
    assert supported == f"pyspark[sql]>={versions[0]},<{versions[-1].split('.')[0]}.{int(versions[-1].split('.')[1]) + 1}"
    pinned = {name: lines for name, lines in extras.items() if re.fullmatch(r"spark-\d-\d", name)}
    assert list(pinned) == [f"spark-{version.replace('.', '-')}" for version in versions]
    for version, (line,) in zip(versions, pinned.values(), strict=True):
        assert line.startswith(f"pyspark[sql]=={version}.")
    assert f"'.[dev,spark-{versions[0].replace('.', '-')}]'" in makefile  # what `make test` installs
    command = shlex.split(re.search(r"(?m)^make (test-spark .*)$", (ROOT / ".ci" / "run").read_text())[1])
    assert f"SPARK={versions[-1]}" in command
    (chosen,) = (word.removeprefix("SPARK_TESTS=") for word in command if word.startswith("SPARK_TESTS="))
    assert all((ROOT / path.partition("::")[0]).is_file() for path in chosen.split())


def test_the_kafka_example_names_the_jars_of_the_default_spark():
    text = (ROOT / "docs" / "pipeline.md").read_text()
    (example,) = (block for block in re.findall(r"(?s)```toml\n(.*?)```", text) if 'format = "kafka"' in block)
    settings = tomllib.loads(example)
    jars = settings["run"]["spark"]["spark.jars"].split(",")
    found = [re.fullmatch(r"jars/([\w.-]+)-(\d+\.\d+\.\d+)\.jar", jar).groups() for jar in jars]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (spark,) = extras["spark-4-1"]
    assert dict(found)["spark-sql-kafka-0-10_2.13"] == spark.partition("==")[2]
    assert [name for name, _ in found][1:] == ["spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2"]
    fetched = re.findall(r"<artifactId>(spark-.*?)</artifactId>\s*<version>(.*?)</version>", text)
    assert fetched == found[:2]
