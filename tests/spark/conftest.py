"""One Spark session for all tests of a process; it takes seconds to start, so nothing may stop it."""

import shutil
import tempfile

import pytest


@pytest.fixture(scope="session")
def spark():
    """A local session with two cores and two shuffle partitions, on the defaults of quick_spark.py."""
    from lately.spark.session import session

    folder = tempfile.mkdtemp(prefix="lately-spark-")
    yield session(
        "local[2]",
        **{
            "spark.sql.shuffle.partitions": 2,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.local.dir": folder,
        },
    )
    shutil.rmtree(folder, ignore_errors=True)
