"""A shop's store, and a client of the service over it."""

import pytest
import stores
from serving import serving


@pytest.fixture(scope="session")
def shop_path(tmp_path_factory):
    """A store that no test writes to."""
    return stores.shop(tmp_path_factory.mktemp("shop") / "store").path


@pytest.fixture(scope="session")
def shop(shop_path):
    with serving(shop_path) as client:
        yield client


@pytest.fixture(scope="session")
def ports(tmp_path_factory):
    with serving(stores.ports(tmp_path_factory.mktemp("ports") / "store").path) as client:
        yield client
