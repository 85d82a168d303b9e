"""What a library pulls in is part of what it costs: optional libraries stay unimported until their objects appear."""

import subprocess
import sys

import pytest

OPTIONAL = {"pandas", "polars", "pyarrow", "matplotlib", "typer", "rich", "pyspark", "fastapi", "pydantic", "scipy"}

UPDATES = {
    "nothing": "",
    "integers of NumPy": "sketch.update(np.arange(3), np.arange(3)); sketch.count(1)",
    "a list of integers": "sketch.update([1, 2, 3], [10, 20, 30]); sketch.counts([1, 2])",
    "one key at a time": "sketch.update('a', 10); sketch.update(('a', 1), 20); sketch.count('a')",
    "dates": "lt.WindowCounter(window='1h', eps=0.1).add(['2026-01-01T00:00:00', '2026-01-01T00:10:00'])",
    "bytes": "lt.from_bytes(lt.merge([sketch, sketch]).to_bytes())",
}


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_optional_libraries_stay_unimported(update):
    code = f"""
import sys
import numpy as np
import lately as lt
sketch = lt.EcmSketch(window=100, eps=0.2, delta=0.2)
{update}
print(*{OPTIONAL!r}.intersection(sys.modules))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", ["Pipeline", "spark"])
def test_without_spark_the_error_says_what_to_install(name):
    code = f"""
import sys
sys.modules["pyspark"] = None
import lately as lt
try:
    lt.{name}
except lt.LatelyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"lately.{name} needs Spark" in done.stdout
    assert "pip install 'lately[spark]'" in done.stdout


def test_what_needs_spark_comes_when_it_is_asked_for():
    pytest.importorskip("pyspark")
    code = """
import sys
import lately as lt
assert "pyspark" not in sys.modules
print(lt.Pipeline.__module__, lt.spark.__name__, lt.Pipeline is lt.spark.Pipeline)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["lately.spark.pipeline", "lately.spark", "True"], done.stderr
