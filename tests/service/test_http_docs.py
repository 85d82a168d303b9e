"""docs/service.md documents every path, every parameter and every error code."""

import re
from pathlib import Path

from lately.service import request_models
from lately.service.app import ROUTES
from lately.service.query_parameters import openapi_parameters
from lately.service.security import MAX_BODY, MAX_QUERY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text()


def test_every_path_is_there_with_its_parameters():
    for route in ROUTES:
        assert f"`{route.method} {route.path}`" in PAGE
        for parameter in () if route.params is None else openapi_parameters(route.params):
            assert re.search(rf"`{parameter['name']}(=|`)|\?{parameter['name']}=", PAGE), parameter["name"]
    named = set(re.findall(r"`(?:GET|POST) (/[^`?]*)`", PAGE))
    assert named == {route.path for route in ROUTES} | {"/", "/api/openapi.json"}


def test_every_code_is_there():
    source = "".join(path.read_text() for path in (ROOT / "src/lately/service").glob("*.py"))
    known = set(re.findall(r'HttpError\(\s*\d+,\s*"(\w+)"', source)) | set(
        re.findall(r'"((?:bad|no|unknown|wrong)_\w+)"', source)
    )
    known -= {"internal", "no_store"}
    shown = set(re.findall(r"`(\w+)`", PAGE.split("## Errors")[1].split("| --- | --- | --- |")[1].split("\n## ")[0]))
    assert known <= shown
    assert shown - known <= {"unknown_site", "unknown_query", "unknown_sketch"}  # named by what the store lacks


def test_the_dashboard_and_its_files_are_served(shop):
    response = shop.get("/")
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    links = re.findall(r"""(?:src|href)=["']([^"'#]+)["']""", response.text)
    assert links
    for link in links:
        assert not re.match(r"\w+:|//", link), "from elsewhere"
        assert shop.get(shop.base_url.join(link)).status_code == 200, link


def test_limits_are_the_real_ones():
    assert (MAX_BODY, MAX_QUERY) == (2**20, 2**15)
    assert "1 MiB; 32 KiB" in PAGE
    assert request_models.CountsBody.model_json_schema()["properties"]["keys"]["maxItems"] == 10_000
