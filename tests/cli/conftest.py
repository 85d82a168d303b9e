"""Stores that the tests of the command share; nobody writes to them."""

import pytest
from cli_cases import serving
from cli_stores import make_flows, make_shop


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    return make_shop(tmp_path_factory.mktemp("shop") / "store")


@pytest.fixture(scope="session")
def flows(tmp_path_factory):
    return make_flows(tmp_path_factory.mktemp("flows") / "store")


@pytest.fixture(scope="session")
def service(shop):
    """The address of a service of the shop, in a process of its own."""
    with serving(shop) as (url, _):
        yield url


@pytest.fixture(scope="session")
def flow_service(flows):
    with serving(flows) as (url, _):
        yield url
