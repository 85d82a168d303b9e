"""The source of a pipeline as a DataFrame, or the mistake in the pipeline file if Spark cannot read it."""

import difflib
import re
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lately.config import Config, Mistake, Source
from lately.core.errors import InputError
from lately.spark import connectors
from lately.spark.expressions import expressions
from lately.spark.failures import SPARKS, reason
from lately.toml_lines import TomlPath

#: The column with the file that a row comes from; only sources of files have it, and only before a batch begins.
METADATA = "_metadata"
_TYPES = ("string", "bigint", "int", "smallint", "tinyint", "double", "float", "boolean", "binary", "date", "timestamp")
#: The version of Hadoop in each version of Spark; the jars of filesystems must have the same.
_HADOOP = {"4.1": "3.4.2"}
_NEWER_HADOOP = "3.5.0"
#: Text formats, whose lines may not fit the columns; users can choose a mode that drops such lines, or fails.
_TEXT_FORMATS = ("json", "csv", "xml")


class SourceError(InputError):
    """Spark cannot read the source.

    Parameters
    ----------
    mistake
        The mistake in the file, with its line.
    """

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(mistake.message, remedy=mistake.remedy)
        self.mistake = mistake

    def __reduce__(self) -> tuple[type["SourceError"], tuple[Mistake]]:
        return type(self), (self.mistake,)


def read_source(reader: Any, config: Config) -> DataFrame:
    """Return the source of a pipeline as a DataFrame; no row is read. Raises SourceError if Spark cannot read it.

    Parameters
    ----------
    reader
        ``spark.read`` for a batch, ``spark.readStream`` for a stream.
    config
        The pipeline. If an expression of it reads ``_metadata``, that becomes a column: a micro-batch would have lost it.
    """
    source = config.source
    try:
        reader = reader.format(source.format).options(**source.options)
        if source.columns is not None:
            reader = reader.schema(source.columns)
        rows: DataFrame = reader.load() if source.path is None else reader.load(source.path)
        if (schema := _with_corrupt_column(rows.schema, source)) is not None:
            rows = reader.schema(schema).load(source.path)
    except SPARKS as error:
        raise SourceError(source_mistake(error, config)) from error
    if METADATA not in rows.columns and any(
        re.search(rf"\b{METADATA}\b", expression.text) for expression in expressions(config)
    ):
        try:
            return rows.select("*", F.col(METADATA))
        except AnalysisException:  # the analysis reports the expression that reads it
            return rows
    return rows


def corrupt_column(source: Source) -> str:
    """The column into which Spark's readers write a line that they cannot parse."""
    named = [value for name, value in source.options.items() if name.lower() == "columnnameofcorruptrecord"]
    return str(named[0]) if named else "_corrupt_record"


def _with_corrupt_column(schema: T.StructType, source: Source) -> T.StructType | None:
    """The columns of a source of text files with one more, for lines that cannot be parsed; None if it is not needed.

    Without that column Spark returns such a line as a row of NULLs, and its content is lost.
    """
    modes = [str(value).upper() for name, value in source.options.items() if name.lower() == "mode"]
    name = corrupt_column(source)
    if source.format.lower() not in _TEXT_FORMATS or name in schema.names or modes not in ([], ["PERMISSIVE"]):
        return None
    return T.StructType([*schema.fields, T.StructField(name, T.StringType())])


def source_mistake(error: BaseException, config: Config) -> Mistake:
    """Find the key of [source] that an error of Spark is about.

    Parameters
    ----------
    error
        What Spark raised.
    config
        The pipeline.
    """
    path, message, remedy = _diagnosis(error, config)
    value = getattr(config.source, str(path[1])) if len(path) > 1 else None
    return config.origin.mistake(path, value, f"cannot read the source: {message}", remedy)


def _diagnosis(error: BaseException, config: Config) -> tuple[TomlPath, str, str | None]:
    """The path to what is wrong, the reason, and the remedy."""
    source, says, spark = config.source, reason(error), _version()
    if isinstance(error, ParseException):
        return ("source", "columns"), *sql_diagnosis(error, 'write columns as in SQL: "ts timestamp, url string"')
    if "does not support user-specified schema" in says:
        return ("source", "columns"), f"{source.format} has its own columns", "leave columns out"
    if re.search("Failed to find (the )?data source", says):
        return ("source", "format"), *_missing_connector(config, spark)
    if "is not a valid Spark SQL Data Source" in says or "does not support batch" in says:
        return ("source", "format"), f"Spark reads {source.format} as a stream only", 'give mode = "available-now"'
    if re.search("does not support streamed reading|does not support (micro-batch|streaming)", says):
        return ("source", "format"), f"Spark does not read {source.format} as a stream", 'give mode = "batch"'
    if source.path is not None:
        if "Path does not exist" in says:
            return ("source", "path"), "there is nothing at this path", "give a path that exists on the machines of Spark"
        if "Unable to infer schema" in says:
            message = f"there are no {source.format} files here to take the columns from"
            return ("source", "path"), message, 'add files, or columns = "ts timestamp, url string" to [source]'
        if "Permission denied" in says or "AccessControlException" in says:
            return ("source", "path"), says, "give a path that the user of this process may read"
        if scheme := re.search(r'No FileSystem for scheme "?(\w+)|hadoop\.fs\.(s3a)\.', says):
            return ("source", "path"), *_no_filesystem(scheme[1] or scheme[2], spark)
    return ("source",), says, None


def sql_diagnosis(error: BaseException, remedy: str) -> tuple[str, str]:
    """What is wrong with a piece of SQL, with the character in it, and what to do.

    Parameters
    ----------
    error
        What Spark raised.
    remedy
        What to do if nothing more specific is known.
    """
    says = reason(error)
    at = re.search(r"\(line (\d+), pos (\d+)\)|\(line (\d+), position (\d+)\)", str(error))
    if at is not None:
        line, character = (int(at[1]), int(at[2]) + 1) if at[1] else (int(at[3]), int(at[4]))
        says += f" (character {character})" if line == 1 else f" (line {line}, character {character} of it)"
    if unknown := re.match(r'Unsupported data type "([A-Z_]+)"', says):
        near = difflib.get_close_matches(unknown[1].lower(), _TYPES, 1)
        types = f"use one of {', '.join(_TYPES)}, decimal(20,3), array<…>, struct<…>"
        remedy = f"did you mean {near[0]}?" if near else types
    return says, remedy


def _no_filesystem(scheme: str, spark: str) -> tuple[str, str]:
    if scheme not in ("s3", "s3a", "s3n"):
        return f"Spark has no filesystem for {scheme}://", "add its jars to [run.spark] spark.jars, or correct the path"
    prefix = "" if scheme == "s3a" else "write s3a://… and "
    hadoop = _HADOOP.get(".".join(spark.split(".")[:2]), _NEWER_HADOOP)
    return (
        f"Spark {spark} has no filesystem for {scheme}://",
        f'{prefix}add to [run.spark]: "spark.jars.packages" = "org.apache.hadoop:hadoop-aws:{hadoop}"',
    )


def _missing_connector(config: Config, spark: str) -> tuple[str, str]:
    message, remedy = connectors.missing_connector(config.source.format, spark)
    return message, remedy + _absent_jars(config)


def _absent_jars(config: Config) -> str:
    jars = [jar.strip() for jar in str(config.run.spark.get("spark.jars", "")).split(",") if jar.strip()]
    missing = [jar for jar in jars if "://" not in jar and "*" not in jar and not Path(jar.removeprefix("file:")).exists()]
    return f"; of spark.jars {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""


def _version() -> str:
    active = SparkSession.getActiveSession()
    return str(active.version) if active is not None else pyspark.__version__
