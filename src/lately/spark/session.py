"""Returns the active Spark session, or starts a local one with little log output."""

import atexit
import os
import sys
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from lately.core.errors import LatelyError, ParameterError
from lately.spark.java import cached_file, ensure_java

#: The log4j2 configuration until a log level can be set; Spark's own default prints a banner.
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
# The gateway prints that it sets a level, unless its own equals that of the root.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
# The exception that a query raises reports its failed tasks already.
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.shutdown.name = org.apache.spark.util.ShutdownHookManager
logger.shutdown.level = off
"""
#: This optimizer rule of Spark merges subplans over the same rows. It fails if they have different Python aggregates without
#: GROUP BY ("UnevaluableAggregateFunc.aggBufferAttributes should not be called"): in subqueries, since 4.2 also in a UNION.
#: These are its names in Spark 4.3, 4.2 and 4.1; each version ignores the other names.
_FAILS_ON_PYTHON = (
    "org.apache.spark.sql.execution.planmerging.MergeSubplans",
    "org.apache.spark.sql.catalyst.optimizer.MergeSubplans",
    "org.apache.spark.sql.catalyst.optimizer.MergeScalarSubqueries",
)


def session(master: str | None = None, app: str = "lately", **config: Any) -> SparkSession:
    """Return the active Spark session, or start one: on all cores of this machine, with little log output.

    An active session is returned as it is: the parameters apply only to a new one. A new session runs on the Java that
    ``lately.spark.java.find_java`` finds.

    Parameters
    ----------
    master
        Spark's master URL, such as "local[4]". By default that of the environment variable MASTER, or else "local[*]".
    app
        The name of the application; by default "lately".
    config
        Settings of Spark, with underscores for dots: ``session("local[4]", spark_driver_memory="4g")``, or with Spark's own
        names: ``session(**{"spark.driver.memory": "4g"})``.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if SparkContext._active_spark_context is not None or _runs_inside_spark():
        return SparkSession.builder.appName(app).getOrCreate()
    config_map = settings(master or os.environ.get("MASTER") or "local[*]", app, **config)
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if config_map["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        started = SparkSession.builder.config(map={**config_map}).getOrCreate()
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise java_start_error("its own message is printed above") from None
    started.sparkContext.setLogLevel("ERROR")
    # These would log every error of a query as 100 lines of JSON; the exception reports it already.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel("CRITICAL")
    atexit.register(started.stop)  # otherwise idle workers print that the JVM has gone
    return started


class JavaStartError(LatelyError):
    """Java ended before Spark had started."""


def java_start_error(output: str) -> JavaStartError:
    """Return the error for a Java that did not start Spark.

    Parameters
    ----------
    output
        What it printed, or where that can be read.
    """
    return JavaStartError(
        f"the Java in {os.environ['JAVA_HOME']} did not start Spark; {output}",
        remedy="set spark.driver.memory to less than this machine has, or JAVA_HOME to another Java 17 or later",
    )


def settings(master: str, app: str, **config: Any) -> dict[str, str]:
    """Return the settings of a new session: the defaults of lately, overridden by those of the user.

    Parameters
    ----------
    master
        Spark's master URL.
    app
        The name of the application.
    config
        Settings of Spark, with underscores for dots or with Spark's own names.

    >>> settings("local[2]", "shop", spark_ui_enabled=True)["spark.ui.enabled"]
    'true'
    """
    defaults = {
        "spark.master": master,
        "spark.app.name": app,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.optimizer.excludedRules": ",".join(_FAILS_ON_PYTHON),
    }
    if master.startswith("local"):
        defaults |= {
            "spark.driver.memory": f"{_megabytes()}m",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(cores(master)),
        }
    for name in config:
        if not name.startswith(("spark.", "spark_")):
            raise ParameterError(
                f"{name}={config[name]!r} is not a setting of Spark", remedy="write it like spark_driver_memory='4g'"
            )
    overrides = {name if "." in name else name.replace("_", "."): _setting_text(value) for name, value in config.items()}
    options = f"-Dlog4j2.configurationFile={cached_file('log4j2.properties', _LOGGING).as_uri()}"
    java_options = f"{options} {overrides.get('spark.driver.extraJavaOptions', '')}".strip()
    return defaults | overrides | {"spark.driver.extraJavaOptions": java_options}


def cores(master: str) -> int:
    """Return how many tasks a local master runs at a time.

    Parameters
    ----------
    master
        A master URL: "local", "local[4]", "local[4, 2]" or "local[*]".

    >>> cores("local"), cores("local[4]"), cores("local[3, 2]")
    (1, 4, 3)
    """
    if "[" not in master:
        return 1
    number = master.partition("[")[2].rstrip("]").partition(",")[0].strip()
    return int(number) if number.isdigit() else os.cpu_count() or 1


def _runs_inside_spark() -> bool:
    """Return whether spark-submit, Databricks or Spark Connect provides the session, and with it Java and the settings."""
    return any(name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION", "SPARK_REMOTE"))


def _megabytes() -> int:
    """Return a quarter of the machine's memory in MiB, at least 1 GiB and at most 8 GiB."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (AttributeError, OSError, ValueError):
        return 2048
    return min(max(total // 4, 1024), 8192)


def _setting_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
