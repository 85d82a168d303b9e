"""A Spark session with as little ceremony as possible: the one that is there, or a quiet local one."""

import atexit
import os
import sys
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from lately.core.errors import LatelyError, ParameterError
from lately.spark.java import ensure_java, kept

#: What is said before a log level can be set; Spark's own default begins with a banner.
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
# Shells say that they set a level, unless theirs is that of the root.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
# A failed task is told by the exception that the query raises.
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.shutdown.name = org.apache.spark.util.ShutdownHookManager
logger.shutdown.level = off
"""
#: This rule of Spark's merges subplans over the same rows, and fails over Python's aggregates without GROUP BY that differ
#: ("UnevaluableAggregateFunc.aggBufferAttributes should not be called"): in subqueries, since 4.2 also in a UNION. Its name by
#: version: 4.3, 4.2, 4.1. A version ignores the names that it does not have.
_FAILS_ON_PYTHON = (
    "org.apache.spark.sql.execution.planmerging.MergeSubplans",
    "org.apache.spark.sql.catalyst.optimizer.MergeSubplans",
    "org.apache.spark.sql.catalyst.optimizer.MergeScalarSubqueries",
)


def session(master: str | None = None, app: str = "lately", **config: Any) -> SparkSession:
    """The Spark session that is there, or a new one: local on all cores, quiet, on whatever Java can be found.

    Settings are Spark's, with underscores for dots: ``session("local[4]", spark_driver_memory="4g")``, or
    ``session(**{"spark.driver.memory": "4g"})``. A session that is there already is returned as it is.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if SparkContext._active_spark_context is not None or _runs_inside_spark():
        return SparkSession.builder.appName(app).getOrCreate()
    chosen = settings(master or os.environ.get("MASTER") or "local[*]", app, **config)
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if chosen["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        made = SparkSession.builder.config(map={**chosen}).getOrCreate()
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise LatelyError(
            f"the Java in {os.environ['JAVA_HOME']} did not start Spark; what it said is above. "
            "Give spark.driver.memory less than this machine has, or set JAVA_HOME to another Java 17 or later"
        ) from None
    made.sparkContext.setLogLevel("ERROR")
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # the exception says it, without 100 lines of JSON
        PySparkLogger.getLogger(name).setLevel("CRITICAL")
    atexit.register(made.stop)  # or idle workers complain that Java has gone
    return made


def settings(master: str, app: str, **config: Any) -> dict[str, str]:
    """What a new session is told: our defaults, and above them what the user says.

    >>> settings("local[2]", "mine", spark_ui_enabled=True)["spark.ui.enabled"]
    'true'
    """
    chosen = {
        "spark.master": master,
        "spark.app.name": app,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.optimizer.excludedRules": ",".join(_FAILS_ON_PYTHON),
    }
    if master.startswith("local"):
        chosen |= {
            "spark.driver.memory": f"{_megabytes()}m",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(cores(master)),
        }
    for name in config:
        if not name.startswith(("spark.", "spark_")):
            raise ParameterError(f"{name}={config[name]!r} is no setting of Spark; write it like spark_driver_memory='4g'")
    given = {name if "." in name else name.replace("_", "."): _said(value) for name, value in config.items()}
    options = f"-Dlog4j2.configurationFile={kept('log4j2.properties', _LOGGING).as_uri()}"
    chosen |= given
    chosen["spark.driver.extraJavaOptions"] = f"{options} {given.get('spark.driver.extraJavaOptions', '')}".strip()
    return chosen


def cores(master: str) -> int:
    """How many tasks a local master runs at a time.

    >>> cores("local"), cores("local[4]"), cores("local[3, 2]")
    (1, 4, 3)
    """
    if "[" not in master:
        return 1
    number = master.partition("[")[2].rstrip("]").partition(",")[0].strip()
    return int(number) if number.isdigit() else os.cpu_count() or 1


def _runs_inside_spark() -> bool:
    """Whether spark-submit, Databricks or a Spark Connect server has the session, and with it Java and the settings."""
    return any(name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION", "SPARK_REMOTE"))


def _megabytes() -> int:
    """A quarter of the machine's memory, from one to eight gigabytes."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (AttributeError, OSError, ValueError):
        return 2048
    return min(max(total // 4, 1024), 8192)


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
