"""One Spark session for all tests of Spark; it takes seconds to start, so nothing may stop it."""

import shutil
import tempfile
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    """Keep the tests of Spark in one process, where several share the work: a session is dear."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark():
    """A local session with two cores and two shuffle partitions, started as users start theirs."""
    from lately.spark.session import session

    folder = tempfile.mkdtemp(prefix="lately-spark-")
    flags = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}"
    yield session(
        "local[2]",
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": flags,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.local.dir": folder,
        },
    )
    shutil.rmtree(folder, ignore_errors=True)
