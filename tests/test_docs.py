"""What the documentation shows is what happens, and no public name is missing from it."""

import doctest
import re
from pathlib import Path

import lately as lt

ROOT = Path(__file__).parent.parent


def test_the_guide_runs():
    failures, tried = doctest.testfile(str(ROOT / "docs" / "guide.md"), module_relative=False)
    assert tried > 15
    assert failures == 0


def test_every_public_name_is_in_the_docs():
    text = "\n".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    missing = [name for name in lt.__all__ if not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_every_link_in_the_docs_leads_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_picture_of_the_house_matches_the_folders():
    picture = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "src" / "lately").iterdir():
        if path.name not in ("__pycache__", "py.typed"):
            assert path.name in picture, path.name
