"""The jars of connectors that Spark does not include, by the version of Spark.

A connector is built for one version of Spark, and most fail on any other.
"""

import difflib
from collections.abc import Mapping
from typing import NamedTuple

#: Formats that Spark reads without further jars.
FILES = ("parquet", "orc", "csv", "json", "xml", "text", "binaryFile")
BUILT_IN = (*FILES, "jdbc", "rate", "rate-micro-batch", "socket", "statestore")
#: The version of Spark that every connector here exists for.
_HAS_ALL = "4.1.3"


class Connector(NamedTuple):
    """The jars of one format.

    Parameters
    ----------
    title
        The name of the format, as people write it.
    jars
        Maven coordinates by version of Spark, such as "4.1".
    settings
        Settings of Spark that the connector needs.
    packages
        Whether ``spark.jars.packages`` can fetch the jars; if not, they must be downloaded for ``spark.jars``.
    """

    title: str
    jars: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, str] = {}
    packages: bool = True


def _kafka(version: str, clients: str) -> tuple[str, ...]:
    """Kafka's jars; the token provider was published with Spark 4.0.0 only, where ``spark.jars.packages`` does not look."""
    return (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        f"org.apache.kafka:kafka-clients:{clients}",
        "org.apache.commons:commons-pool2:2.12.1",
    )


#: Connectors that were tested, by the first two numbers of the version of Spark; not every version of Spark has its own.
CONNECTORS: Mapping[str, Connector] = {
    "kafka": Connector("Kafka", {"4.1": _kafka("4.1.3", "3.9.1"), "4.2": _kafka("4.2.0", "3.9.2")}, packages=False),
    "delta": Connector(
        "Delta Lake",
        {version: (f"io.delta:delta-spark_{version}_2.13:4.4.0",) for version in ("4.1", "4.2")},
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    ),
    "iceberg": Connector("Iceberg", {"4.1": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",)}),
    "avro": Connector("Avro", {"4.1": ("org.apache.spark:spark-avro_2.13:4.1.1",)}),
}


def missing_connector(format: str, spark: str) -> tuple[str, str]:
    """Say why Spark does not find a format, and what to do.

    Parameters
    ----------
    format
        The format as the file names it.
    spark
        The version of Spark that runs, such as "4.1.3".

    >>> missing_connector("parqet", "4.1.3")
    ('Spark 4.1.3 has no format "parqet"', 'did you mean parquet?')
    >>> print(*missing_connector("avro", "4.1.3"), sep="; ")
    Spark 4.1.3 has no connector for Avro; add to [run.spark]: "spark.jars.packages" = "org.apache.spark:spark-avro_2.13:4.1.1"
    """
    connector = CONNECTORS.get(format.lower())
    if connector is None:
        near = difflib.get_close_matches(format.lower(), [*BUILT_IN, *CONNECTORS], 1)
        remedy = (
            f"did you mean {near[0]}?"
            if near
            else f"give one of {', '.join((*FILES, *CONNECTORS))}, or the jars of its connector in [run.spark] spark.jars"
        )
        return f'Spark {spark} has no format "{format}"', remedy
    message = f"Spark {spark} has no connector for {connector.title}"
    jars = connector.jars.get(".".join(spark.split(".")[:2]))
    if jars is None:
        return (
            f"{message}, and none exists for this version yet",
            f"Spark {_HAS_ALL} has all of them: pip install 'pyspark[sql]=={_HAS_ALL}'",
        )
    if connector.packages:
        lines = [f'"spark.jars.packages" = "{",".join(jars)}"']
        lines += [f'"{name}" = "{value}"' for name, value in connector.settings.items()]
        return message, f"add to [run.spark]: {', '.join(lines)}"
    files = ",".join("{1}-{2}.jar".format(*name.split(":")) for name in jars)
    return (
        message,
        f"download {', '.join(jars)} from Maven and add to [run.spark]: "
        f'"spark.jars" = "{files}" with their paths (spark.jars.packages cannot resolve the second one)',
    )
