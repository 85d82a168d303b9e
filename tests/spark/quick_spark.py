"""Settings with which a Spark that runs for seconds takes a half of the processor time: those of all sessions that tests start.

They are Spark's defaults, in a folder that SPARK_CONF_DIR names, so that processes that tests start have them too. What a
session sets itself comes first. Tests in which the defaults of Spark itself matter run without SPARK_CONF_DIR.
"""

from pathlib import Path

#: The first compiler of Java only, one thread for its garbage, and no verification of Spark's classes.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
DEFAULTS = {
    "spark.driver.defaultJavaOptions": JAVA_OPTIONS,
    # Python workers with a short way to the next task.
    "spark.python.daemon.module": "quick_daemon",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent),
    # Spark's own choice starts the program readlink four times for every file of a checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def write_defaults(folder: Path) -> None:
    """Write the settings as the file of defaults in a folder for SPARK_CONF_DIR."""
    lines = (f"{name} {value}\n" for name, value in DEFAULTS.items())
    (folder / "spark-defaults.conf").write_text("".join(lines))
