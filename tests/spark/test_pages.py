"""The pages on Spark show what happens."""

import doctest
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_section_on_frames_and_files_runs(spark, tmp_path):
    (section,) = re.findall(r"(?ms)^## DataFrames and files$(.*?)(?=^## |\Z)", (DOCS / "spark.md").read_text())
    test = doctest.DocTestParser().get_doctest(section, {"spark": spark, "folder": str(tmp_path)}, "docs/spark.md", None, 0)
    assert len(test.examples) > 7
    report = []
    assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)
