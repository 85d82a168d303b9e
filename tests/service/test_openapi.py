"""Schemathesis over the OpenAPI document: no request causes an internal error, and responses match the document."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, checks

from lately.service.app import ROUTES

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
#: For each path: this many requests that fit the document, and this many that do not.
EXAMPLES = 15
# The stream has no end, so it is left to test_broadcast.py.
PATHS = {route.path: route.method for route in ROUTES if route.path != "/api/stream"}
PLAIN = ("/api/health", "/api/about", "/metrics")
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]


@pytest.fixture(scope="session")
def texts(shop):
    return schemathesis.openapi.from_url(str(shop.base_url.join("/api/openapi.json")))


@pytest.fixture(scope="session")
def integers(ports):
    return schemathesis.openapi.from_url(str(ports.base_url.join("/api/openapi.json")))


def try_out(operation, mode):
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def requests(case):
        case.call_and_validate(checks=CHECKS)

    requests()


@pytest.mark.parametrize("path", [path for path in PATHS if path not in PLAIN])
@pytest.mark.parametrize("mode", MODES)
def test_a_store_with_texts_for_keys(texts, path, mode):
    try_out(texts[path][PATHS[path]], mode)


@pytest.mark.parametrize("path", PLAIN)
def test_paths_without_parameters(texts, path):
    try_out(texts[path][PATHS[path]], GenerationMode.POSITIVE)


@pytest.mark.parametrize("path", ["/api/count", "/api/counts", "/api/range", "/api/total"])
@pytest.mark.parametrize("mode", MODES)
def test_a_store_with_integers_for_keys(integers, path, mode):
    try_out(integers[path][PATHS[path]], mode)
