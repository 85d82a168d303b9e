"""``lately run --check`` where Spark cannot be imported: all that does not need Spark is checked."""

import json
import os
import subprocess
import sys

import pytest
from patience import PATIENCE

#: The command, in a process where the import of Spark, and of what comes with it, fails.
WITHOUT_SPARK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ImportError(f"No module named {name!r}")
        return None

sys.meta_path.insert(0, Missing())
from lately.cli import main
main()
"""
FILE = """
name = "shop"

[source]
format = "parquet"
path = "events"
columns = "ts timestamp, url string"

[columns]
time = "ts"
key = "url"

[window]
length = "1h"

[[queries]]
name = "hot"
kind = "top"

[[monitors]]
name = "skew"
kind = "self-join"
above = 1000

[store]
path = "store"

[run]
checkpoint = "state"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "shop.toml"
    path.write_text(FILE)
    return path


def lately(*arguments):
    command = [sys.executable, "-c", WITHOUT_SPARK, *map(str, arguments)]
    wide = os.environ | {"COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=wide)


def test_a_file_without_mistakes_is_explained(file):
    done = lately("run", file, "--check", "--arrivals", 1000)
    assert done.returncode == 0, done.stderr
    assert "shop: no mistakes found" in done.stdout
    assert "TopK(eps=0.01, delta=0.01)" in done.stdout
    (note,) = done.stderr.splitlines()
    assert note.startswith(f"lately: {file}: Spark is not installed, so SQL, columns and the source were not analysed")
    assert note.endswith("run pip install 'lately[spark]'")


def test_json_says_that_sql_was_not_checked(file):
    done = lately("run", file, "--check", "--json", "--arrivals", 1000)
    assert done.returncode == 0, done.stderr
    explanation = json.loads(done.stdout)
    assert (explanation["name"], explanation["sql_checked"]) == ("shop", False)
    assert [state["class"] for state in explanation["state"]] == ["TopK", "Monitor"]


def test_a_mistake_in_the_file_is_reported(file):
    file.write_text(FILE.replace('length = "1h"', 'lenth = "1h"'))
    done = lately("run", file, "--check")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{file}:14: " in done.stderr
    assert "lenth" in done.stderr


def test_a_run_needs_spark(file):
    done = lately("run", file)
    assert (done.returncode, done.stdout) == (1, "")
    assert "run pip install 'lately[spark]'" in done.stderr
