"""The session that is there is taken; a new one is local, quiet and says what is wrong."""

import subprocess
import sys

import pytest
from patience import PATIENCE

from lately.core.errors import LatelyError
from lately.spark.session import session, settings


def test_a_session_that_is_there_is_taken(spark):
    assert session() is spark
    assert session("local[7]", app="other") is spark


def test_what_a_session_is_told(spark):
    context = spark.sparkContext
    assert (context.master, context.appName) == ("local[2]", "lately")
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert context.uiWebUrl is None


def test_settings_of_users_come_before_ours(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    values = settings("local[3]", "mine", spark_ui_enabled=True, **{"spark.driver.extraJavaOptions": "-Dmine=1"})
    assert values["spark.ui.enabled"] == "true"
    assert values["spark.sql.shuffle.partitions"] == "3"
    assert values["spark.driver.extraJavaOptions"].startswith("-Dlog4j2.configurationFile=file:")
    assert values["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")
    far = settings("spark://far:7077", "mine")
    assert not {"spark.sql.shuffle.partitions", "spark.driver.host", "spark.driver.memory"} & far.keys()


def test_without_pyspark_the_error_says_what_to_install():
    code = "import sys; sys.modules['pyspark'] = None\nfrom lately.spark.session import session"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "ImportError: lately.spark needs Spark" in done.stderr
    assert "pip install 'lately[spark]'" in done.stderr


def test_a_java_that_does_not_start_is_told_without_a_stack_of_py4j(tmp_path):
    code = (
        "from lately.spark.session import session\n"
        "from lately import LatelyError\n"
        "try:\n    session('local[1]', spark_driver_memory='900000g')\n"
        "except LatelyError as error:\n    print(error, error.__cause__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "did not start Spark" in done.stdout, done.stderr
    assert done.stdout.rstrip().endswith("None")


def test_a_bad_setting_is_refused_by_name():
    with pytest.raises(LatelyError, match="drivr_memory"):
        settings("local", "mine", drivr_memory="1g")
