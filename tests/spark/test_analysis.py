"""What Spark finds wrong with a pipeline before it runs: every mistake with its line, its value and what to do."""

import re
import shutil

import pytest
from pipelines import START, add_file, answers_to, events, table, write_files

from lately.config import load, parse
from lately.core.errors import InputError, LatelyError, ParameterError
from lately.spark.analysis import analyse
from lately.spark.connectors import CONNECTORS, missing_connector
from lately.spark.pipeline import Pipeline

PIPELINE = """\
[source]
format = "parquet"
path = "{folder}/source"
mode = "{mode}"
columns = "ts timestamp, key bigint, site string, event string, ms double, n bigint"

[columns]
time = "ts"
key = "key"
site = "site"
value = "ms"
count = "n"

[window]
length = "10m"

[[queries]]
name = "hot"
kind = "top"
where = "ms > 5"

[[queries]]
name = "pairs"
kind = "join"
left = "event = 'view'"
right = "event = 'buy'"

[[queries]]
name = "busy"
kind = "exact"
aggregate = "max"
of = "n"
per = "site"
above = 3

[store]
path = "{folder}/store"

[run]
checkpoint = "{folder}/state"
"""
MODES = ["batch", "available-now"]
#: Words that only those who wrote the code know.
INSIDE = re.compile(r"_lately_|py4j|pydantic|\bo\d+\.|\tat |SQLSTATE|Exception|#\d|'Project|LEGACY")


@pytest.fixture
def folder(tmp_path):
    write_files(events(200), tmp_path / "source", 2)
    return tmp_path


def written(folder, mode, **changes):
    """The file with some values changed: ``columns__time`` or ``queries_0__where``; returns it with the line of each."""
    text, lines = PIPELINE.format(folder=folder, mode=mode).splitlines(), {}
    for name, value in changes.items():
        table_name, _, key = name.partition("__")
        header, _, number = table_name.partition("_")
        starts = [at for at, line in enumerate(text) if line.strip("[]") == header]
        at = starts[int(number or 0)]
        while not text[at].startswith(f"{key} = "):
            at += 1
        text[at] = "" if value is None else f'{key} = "{value}"'
        lines[name] = at + 1
    path = folder / "shop.toml"
    path.write_text("\n".join(text) + "\n")
    return path, lines


def mistakes(spark, path):
    with pytest.raises(LatelyError) as caught:
        analyse(load(path), spark)
    assert caught.value.__cause__ is not None or isinstance(caught.value, ParameterError)
    assert not INSIDE.search(str(caught.value)), caught.value
    return str(caught.value).splitlines()


EVERYWHERE = ["columns__time", "columns__key", "columns__site", "columns__value", "columns__count", "queries_0__where",
              "queries_1__left", "queries_1__right", "queries_2__of", "queries_2__per"]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_a_pipeline_without_mistakes_passes(spark, folder, mode):
    analyse(load(written(folder, mode)[0]), spark)
    assert sorted(one.name for one in folder.iterdir()) == ["shop.toml", "source"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("sitte", 'the source has no column "sitte"; did you mean site? Its columns are ts, key, site, event, ms, n'),
        ("zzzzz", 'the source has no column "zzzzz"; its columns are ts, key, site, event, ms, n'),
        ("upper(site", "Syntax error at or near end of input: missing ')' (character 11); correct the SQL"),
        ("uper(site)", 'Spark has no function "uper"; did you mean upper?'),
        ("cast(site as strng)", 'Unsupported data type "STRNG" (character 14); did you mean string?'),
        ("ts > 3", 'Cannot resolve "(ts > 3)" due to data type mismatch: the left and right operands of the binary operator '
         'have incompatible types ("TIMESTAMP" and "INT"); correct the SQL'),
        ("*", "it names all columns; name one of them, or an expression of one row"),
        ("sum(n)", "it needs more than one row, or returns several for one; give an expression of a single row, "
         "without sum(…), explode(…), over (…)"),
        ("explode(array(1))", "it needs more than one row, or returns several for one; give an expression of a single row, "
         "without sum(…), explode(…), over (…)"),
    ],
)  # fmt: skip
def test_an_expression_that_spark_refuses_is_told_wherever_it_stands(spark, folder, mode, sql, message):
    path, lines = written(folder, mode, **dict.fromkeys(EVERYWHERE, sql))
    owners = ["", "", "", "", "", *(f' of the query "{name}"' for name in ("hot", "pairs", "pairs", "busy", "busy"))]
    expected = []
    for name, owner in zip(EVERYWHERE, owners, strict=True):
        place = re.sub(r"_(\d)__", r"[\1].", name).replace("__", ".")
        expected.append(f'{path}:{lines[name]}: {place} = "{sql}"{owner}: {message}')
    assert mistakes(spark, path) == expected
    with pytest.raises(ParameterError) as caught:  # a run says the same, and starts nothing
        Pipeline.from_file(path).run(spark)
    assert str(caught.value).splitlines() == expected
    assert not (folder / "state" / "spark").exists()


@pytest.mark.parametrize("mode", MODES)
def test_types_that_do_not_fit(spark, folder, mode):
    wrong = {
        "columns__time": "n > 1",
        "columns__key": "ms",
        "columns__count": "ms",
        "queries_0__where": "n",
        "queries_2__of": "site",
    }
    path, lines = written(folder, mode, **wrong)
    messages = mistakes(spark, path)
    assert [line.partition(": ")[0] for line in messages] == [f"{path}:{line}" for line in sorted(lines.values())]
    assert [re.search("it is of type ([a-z]+); ", line)[1] for line in messages] == [
        "boolean",
        "double",
        "double",
        "bigint",
        "string",
    ]
    path, _ = written(folder, mode, columns__value="site")  # no query reads it
    analyse(load(path), spark)


@pytest.mark.parametrize("mode", MODES)
def test_what_can_be_checked_without_the_source_is(spark, folder, mode):
    path, lines = written(folder, mode, source__path=f"{folder}/nowhere", columns__key="keey", queries_0__where="ms >")
    messages = mistakes(spark, path)
    assert [line.partition(": ")[0] for line in messages] == [f"{path}:{line}" for line in sorted(lines.values())]
    assert "there is nothing at this path" in messages[0]
    assert "did you mean key?" in messages[1]
    assert "Syntax error" in messages[2]
    path, lines = written(folder, mode, source__columns="ts timestmp", columns__key="keey", queries_0__where="ms >")
    messages = mistakes(spark, path)  # nobody knows the columns, but SQL is SQL
    assert [line.partition(": ")[0] for line in messages] == [
        f"{path}:{lines[key]}" for key in ("source__columns", "queries_0__where")
    ]
    assert 'Unsupported data type "TIMESTMP" (character 4); did you mean timestamp?' in messages[0]


def one_mistake(spark, path):
    (mistake,) = mistakes(spark, path)
    with pytest.raises(InputError) as caught:
        Pipeline.from_file(path).run(spark)
    assert str(caught.value) == mistake
    return mistake


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("format", [*CONNECTORS, "parqet", "com.example.Nothing"])
def test_a_format_that_spark_does_not_have(spark, folder, mode, format):
    path, lines = written(folder, mode, source__format=format)
    place = f'{path}:{lines["source__format"]}: source.format = "{format}": cannot read the source: '
    assert one_mistake(spark, path) == place + "; ".join(missing_connector(format, spark.version))


def test_which_jars_are_missing_for_each_version_of_spark():
    for version in ("4.1.3", "4.1.0"):
        assert '"spark.jars.packages" = "io.delta:delta-spark_4.1_2.13:4.4.0"' in missing_connector("delta", version)[1]
        assert '"spark.sql.extensions" = "io.delta.sql.DeltaSparkSessionExtension"' in missing_connector("delta", version)[1]
        assert "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0" in missing_connector("iceberg", version)[1]
        assert "org.apache.spark:spark-avro_2.13:4.1.1" in missing_connector("avro", version)[1]
    kafka = missing_connector("kafka", "4.1.3")[1]
    jars = "spark-sql-kafka-0-10_2.13-4.1.3.jar,spark-token-provider-kafka-0-10_2.13-4.0.0.jar,kafka-clients-3.9.1.jar"
    assert f'"spark.jars" = "{jars},commons-pool2-2.12.1.jar"' in kafka
    assert "spark-sql-kafka-0-10_2.13:4.2.0" in missing_connector("kafka", "4.2.0")[1]
    assert "io.delta:delta-spark_4.2_2.13:4.4.0" in missing_connector("delta", "4.2.1")[1]
    for format, version in [*((format, "4.3.0") for format in CONNECTORS), ("iceberg", "4.2.0")]:
        assert missing_connector(format, version)[1].endswith("pip install 'pyspark[sql]==4.1.3'")
    assert missing_connector("parqet", "4.3.0")[1].endswith("did you mean parquet?")
    assert missing_connector("kafak", "4.3.0")[1].endswith("did you mean kafka?")


def test_jars_that_are_not_there_are_named_with_the_connector(spark, folder):
    path, _ = written(folder, "batch", source__format="delta")
    path.write_text(path.read_text() + f'[run.spark]\n"spark.jars" = "{folder}/a.jar,{path}"\n')
    assert mistakes(spark, path)[0].endswith(f"; of spark.jars {folder}/a.jar is missing")


def test_formats_that_only_stream_and_those_that_never_do(spark, folder):
    path, _ = written(folder, "batch", source__format="rate", source__columns=None, source__path=None)
    assert 'Spark reads rate as a stream only; give mode = "available-now"' in mistakes(spark, path)[0]
    path, _ = written(folder, "available-now", source__format="jdbc", source__columns=None, source__path=None)
    assert 'Spark does not read jdbc as a stream; give mode = "batch"' in mistakes(spark, path)[0]
    path, lines = written(folder, "available-now", source__format="rate", source__path=None)
    assert f"{path}:{lines['source__format'] + 3}: source.columns = " in mistakes(spark, path)[0]
    assert "rate has its own columns; leave columns out" in mistakes(spark, path)[0]


@pytest.mark.parametrize("mode", MODES)
def test_a_filesystem_that_spark_does_not_have(spark, folder, mode):
    path, lines = written(folder, mode, source__path="s3a://bucket/events")
    mistake = one_mistake(spark, path)
    assert mistake.startswith(
        f'{path}:{lines["source__path"]}: source.path = "s3a://bucket/events": cannot read the source: Spark '
    )
    assert '"spark.jars.packages" = "org.apache.hadoop:hadoop-aws:3.' in mistake


def test_an_empty_directory(spark, folder):
    (folder / "empty").mkdir()
    path, lines = written(folder, "batch", source__path=f"{folder}/empty", source__columns=None)
    mistake = one_mistake(spark, path)
    assert mistake.startswith(f"{path}:{lines['source__path']}: ")
    assert "there are no parquet files here to take the columns from; add files, or columns = " in mistake
    for mode in MODES:  # with columns it is a source without rows
        path, _ = written(folder, mode, source__path=f"{folder}/empty", columns__count="1", queries_2__of="ms")
        analyse(load(path), spark)
        assert Pipeline.from_file(path).run(spark) == (mode == "batch")
        shutil.rmtree(folder / "store")


def test_a_pipeline_that_is_from_no_file_is_told_the_same_without_lines(spark, folder):
    path, _ = written(folder, "batch", columns__key="keey")
    config = parse(path.read_text(), "mine")
    with pytest.raises(
        ParameterError, match=r'^mine:9: columns\.key = "keey": the source has no column "keey"; did you mean key\?'
    ):
        analyse(config, spark)


# -- what Spark knows of the file of a row -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_metadata_of_files_can_be_read(spark, tmp_path, mode):
    rows = events(400)
    write_files(rows, tmp_path / "source", 2)
    bad = rows.slice(0, 1).set_column(0, "ts", [[None]])
    add_file(bad.cast(rows.schema), tmp_path / "source", 2)
    text = PIPELINE.format(folder=tmp_path, mode=mode).replace('site = "site"', 'site = "_metadata.file_name"')
    text = text.replace('where = "ms > 5"', 'where = "_metadata.file_path like \'%0000.parquet\'"\nby = "site"')
    text = text.replace('count = "n"\n', "").replace('kind = "top"', 'kind = "counts"\nkeys = [0, 1]')
    (tmp_path / "shop.toml").write_text(text)
    pipeline_file = load(tmp_path / "shop.toml")
    analyse(pipeline_file, spark)
    Pipeline(pipeline_file).run(spark)
    config = {"store": {"path": str(tmp_path / "store")}, "window": {"length": "10m"}}
    newest = max(rows["ts"].to_pylist())
    first = [row for row in rows.slice(0, 200).to_pylist() if (newest - row["ts"]).total_seconds() < 600]
    for key in (0, 1):
        low, _, high = answers_to(config, "hot").get(("0000.parquet", str(key)), (0, 0, 0))
        assert low <= sum(row["key"] == key for row in first) <= high
    (rejected,) = table(config, "rejected")
    assert (rejected["reason"], rejected["site"]) == ("no time", "0002.parquet")
    assert sum(row["counted"] for row in table(config, "runs")) == 400
    assert START.year == newest.year


def test_metadata_of_a_source_that_has_none(spark, folder):
    path, _ = written(folder, "available-now", source__format="rate", source__columns=None, source__path=None)
    text = re.sub(r"(?s)\[columns\].*?\n\n", '[columns]\ntime = "timestamp"\nkey = "_metadata.file_name"\n\n', path.read_text())
    text = re.sub(r'(?s)\[\[queries\]\]\nname = "pairs".*?(?=\[store\])', "", text).replace('where = "ms > 5"', "")
    path.write_text(text)
    (mistake,) = mistakes(spark, path)
    assert mistake.endswith("this source has no _metadata, which only files have; use one of its columns: timestamp, value")
