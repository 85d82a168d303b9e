"""What fails while a pipeline runs is one sentence: the deepest cause, the batch, and what has become of the state."""

import os
import re
import resource
from contextlib import contextmanager

import pytest
from pipelines import add_file, answers_to, content, events, in_range, run, table, write_files
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lately.config import parse
from lately.core.errors import InputError, LatelyError
from lately.pipeline.state_versions import StateVersions
from lately.spark import micro_batch as module
from lately.spark.failures import details, in_batch, reason
from lately.spark.pipeline import Pipeline
from lately.spark.runner import with_log

COUNT = [{"name": "n", "kind": "exact", "aggregate": "count"}]
LEAKS = re.compile(r"_lately_|[Pp]y4[Jj]|\bo\d+\.\w|\n|\tat |SQLSTATE|Traceback|StreamingQuery|Job aborted|awaitResult")


def caught(call):
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        call()
    message = reason(raised.value)
    assert not LEAKS.search(message), message
    return message


def fails(error, *args):
    def task(batches):
        for _ in batches:
            raise error(*args)
        yield from ()

    return task


# -- the reason --------------------------------------------------------------------------------------------------------


def test_the_end_of_a_workers_traceback(spark):
    rows = spark.range(4)
    assert caught(lambda: rows.mapInArrow(fails(KeyError, "ts"), "id bigint").collect()) == "KeyError: 'ts'"
    assert caught(lambda: rows.mapInArrow(fails(InputError, "it is gone;\nrestore it"), "id bigint").collect()) == (
        "it is gone; restore it"
    )
    message = caught(
        lambda: rows.mapInArrow(fails(OSError, 28, "No space left on device", "/disk/file"), "id bigint").collect()
    )
    assert message == "/disk/file: No space left on device"
    assert caught(lambda: rows.mapInArrow(fails(MemoryError), "id bigint").collect()) == "MemoryError"


def test_a_worker_that_dies(spark):
    def die(batches):
        os._exit(3)
        yield from batches

    assert caught(lambda: spark.range(4).mapInArrow(die, "id bigint").collect()).startswith(
        "a Python worker of Spark ended unexpectedly; "
    )


def test_files_that_cannot_be_read_are_named(spark, tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"no Parquet at all, really")
    message = caught(lambda: spark.read.schema("id bigint").parquet(str(tmp_path / "broken.parquet")).collect())
    assert message.startswith(f"file:{tmp_path}/broken.parquet is not a Parquet file")
    spark.range(3).write.parquet(str(tmp_path / "numbers"))
    message = caught(lambda: spark.read.schema("id timestamp").parquet(str(tmp_path / "numbers")).collect())
    assert f"{tmp_path}/numbers/part-" in message
    assert "Expected Spark type timestamp, actual Parquet type INT64" in message


def test_errors_of_expressions_and_options(spark, tmp_path):
    rows = spark.range(4)
    assert caught(lambda: rows.select(F.expr("raise_error('boom')")).collect()) == "boom"
    assert caught(lambda: rows.select(F.expr("1 / (id - id)")).collect()) == (
        "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead"
    )
    message = caught(lambda: spark.read.option("header", "maybe").csv(str(tmp_path)))
    assert message == "header flag can be true or false"
    assert caught(lambda: spark.read.format("jdbc").option("url", "jdbc:no:x").option("dbtable", "t").load()) == (
        "No suitable driver"
    )


def test_python_inside_of_java_inside_of_python(spark, tmp_path):
    """A stream tells the error of its batch as text, with the traceback of the driver around that of the worker."""
    source = write_files(events(10), tmp_path / "source", 1)
    (tmp_path / "empty").mkdir()
    rows = spark.readStream.schema("n bigint").parquet(source)
    broken = {
        "worker": (lambda batch, _: batch.mapInArrow(fails(KeyError, "ts"), "n bigint").collect(), "KeyError: 'ts'"),
        "expression": (lambda batch, _: batch.select(F.expr("raise_error('boom')")).collect(), "boom"),
        "java": (
            lambda batch, _: batch.sparkSession.read.option("header", "maybe").csv(str(tmp_path / "empty")),
            "header flag can be true or false",
        ),
    }
    for name, (function, message) in broken.items():
        writer = rows.writeStream.foreachBatch(function).option("checkpointLocation", str(tmp_path / name))
        query = writer.trigger(availableNow=True).start()
        assert caught(query.awaitTermination) == message


def test_a_java_that_has_gone():
    for error in (Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "Connection refused")):
        assert reason(error).startswith("the Java process of Spark has ended; ")


def test_our_own_columns_are_not_named(spark):
    rows = spark.range(3).withColumn("_lately_arrived", F.current_timestamp())
    assert "_lately_" not in caught(lambda: rows.select("_lately_arived"))


# -- a batch that fails ------------------------------------------------------------------------------------------------


@pytest.fixture
def stream(tmp_path):
    """Three files of 400 rows, a batch each."""
    source = write_files(events(1200), tmp_path / "source", 3)
    return content(source, tmp_path, queries=COUNT)


def damaged(tmp_path, number):
    (tmp_path / "source" / f"{number:04d}.parquet").write_bytes(b"no Parquet at all, really")
    os.utime(tmp_path / "source" / f"{number:04d}.parquet", (1_700_000_000 + number,) * 2)


def test_a_batch_that_fails_says_which_and_what_the_state_is(spark, stream, tmp_path):
    rows = events(1200)
    damaged(tmp_path, 1)
    with pytest.raises(LatelyError) as raised:
        run(spark, stream)
    message = str(raised.value)
    assert message.startswith("batch 1 failed: ")
    assert f"{tmp_path}/source/0001.parquet is not a Parquet file" in message
    assert message.endswith("; the state is as batch 0 left it, and the next run processes batch 1 again")
    assert not LEAKS.search(message)
    assert isinstance(raised.value.__cause__, Py4JJavaError | PySparkException)
    assert "org.apache.spark" in details(raised.value)
    add_file(rows.slice(400, 400), tmp_path / "source", 1)
    run(spark, stream)
    assert [row["rows"] for row in table(stream, "runs")] == [400, 400, 400]
    assert answers_to(stream, "n")[None, None][1] == in_range(rows, 600).num_rows


def test_the_first_batch_and_a_run_over_all(spark, stream, tmp_path):
    damaged(tmp_path, 0)
    with pytest.raises(
        LatelyError, match=r"^batch 0 failed: .*; there is no state yet, and the next run processes batch 0 again$"
    ):
        run(spark, stream)
    batch = content(stream["source"]["path"], tmp_path / "batch", mode="batch", queries=COUNT)
    with pytest.raises(LatelyError, match=r"^the run failed: .*0000\.parquet is not .*; no state is kept, so run it again$"):
        run(spark, batch)


def test_an_expression_that_fails_is_told_with_its_line(spark, stream, tmp_path):
    text = """
[source]
format = "rate"

[columns]
time = "timestamp"
key = "value"

[window]
length = "10m"

[[queries]]
name = "odd"
kind = "top"
where = "element_at(array(id), 7) > 3"

[store]
path = "store"

[run]
checkpoint = "state"
"""
    config = parse(text, "shop.toml")
    rows = spark.range(3).select(F.expr(config.queries[0].where))
    with pytest.raises(LatelyError) as raised, in_batch(config, 7, StateVersions(str(tmp_path))):
        rows.collect()
    start = 'shop.toml:15: queries[0].where = "element_at(array(id), 7) > 3" of the query "odd": batch 7 failed: '
    assert str(raised.value).startswith(start)
    assert not LEAKS.search(str(raised.value))


def test_what_listeners_raise_is_not_the_batchs_fault(spark, stream):
    class MineError(Exception):
        pass

    def listen(done):
        raise MineError

    with pytest.raises(MineError):
        Pipeline.of(stream).run(spark, listen)

    def hang_up(done):
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        Pipeline.of(stream).run(spark, hang_up)


def test_a_stream_whose_source_goes_away_between_batches(spark, stream, tmp_path):
    run(spark, stream)
    offsets = tmp_path / "state" / "spark" / "offsets"
    for path in offsets.glob("*"):
        path.write_text("nothing that Spark wrote")
    for path in offsets.glob(".*.crc"):
        path.unlink()
    add_file(events(400, seed=5), tmp_path / "source", 3)
    with pytest.raises(LatelyError) as raised:
        run(spark, stream)
    message = str(raised.value)
    assert message.startswith("the stream stopped: ")
    assert message.endswith("; the state is as batch 2 left it, and the next run continues from there")
    assert not LEAKS.search(message)


def test_an_option_that_the_source_refuses_is_told_with_its_line(spark, stream, tmp_path):
    path = tmp_path / "shop.toml"
    text = f"""
[source]
format = "parquet"
path = "{tmp_path}/source"
columns = "{stream["source"]["columns"]}"
options = {{ maxFilesPerTrigger = "many" }}
[columns]
time = "ts"
key = "key"
[window]
length = "10m"
[[queries]]
name = "n"
kind = "exact"
aggregate = "count"
[store]
path = "{tmp_path}/store"
[run]
checkpoint = "{tmp_path}/state"
"""
    path.write_text(text)
    with pytest.raises(InputError, match=r"shop\.toml:6: source\.options\.maxFilesPerTrigger = \"many\": the stream stopped: "):
        Pipeline.from_file(path).run(spark)


def test_the_log_of_a_run_gets_all_of_it(spark, stream, tmp_path):
    damaged(tmp_path, 0)
    log = tmp_path / "run.log"
    log.write_text("what Java wrote\n")
    with pytest.raises(LatelyError) as raised:
        run(spark, stream)
    message = with_log(raised.value, log)
    assert str(message) == f"{raised.value}; Spark's output is in {log}"
    text = log.read_text()
    assert text.startswith("what Java wrote\n")
    assert "is not a Parquet file" in text
    assert text.count("\tat org.apache.") > 10
    assert with_log(InputError("the store is another one's"), log) is None
    assert not log.exists()


# -- a disk that is full -----------------------------------------------------------------------------------------------

#: Bytes that a file may have on the "disk": enough for a lease, too few for a table or a sketch.
ROOM = 1024


@contextmanager
def little_room():
    """The operating system refuses to write more into a file of this process; unlike a small disk, that needs no rights."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def tasks_with_little_room():
    """The same in each task, while it runs."""
    run_task = module.run_task

    def limited(plan, batch):
        task = run_task(plan, batch)

        def wrapped(batches):  # it must not name functions of this file, which workers cannot import
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
            try:
                yield from task(batches)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)

        return wrapped

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "run_task", limited)
        yield


#: The store is written by the driver, the state by the tasks.
FULL = {"store": little_room, "state": tasks_with_little_room}


@pytest.mark.parametrize("place", FULL)
def test_a_full_disk_is_told_with_its_path_and_nothing_is_lost(spark, tmp_path, place):
    rows = events(1200)
    source = write_files(rows, tmp_path / "source", 3)
    queries = [*COUNT, {"name": "top", "kind": "top", "eps": 0.05}]
    whole = content(source, tmp_path / "whole", queries=queries)
    run(spark, whole)  # first, so that all kernels are compiled and nothing but the pipeline writes files
    config = content(source, tmp_path / "full", queries=queries)
    if place == "store":
        with little_room(), pytest.raises(InputError, match=r"cannot write to the store .*File too large.*; make space there$"):
            run(spark, config)
        Pipeline.of(config).store.prepare()
    with FULL[place](), pytest.raises(LatelyError) as raised:
        run(spark, config)
    error = str(raised.value)
    assert error.startswith(f"batch 0 failed: {tmp_path}/full/{place}/")
    assert ": File too large: make space there, nothing is lost; there is no state yet" in error
    assert not LEAKS.search(error)
    run(spark, config)
    runs = table(config, "runs")
    assert [row["batch"] for row in runs] == list(range(len(runs)))
    assert sum(row["counted"] for row in runs) == 1200
    assert answers_to(config, "n")[None, None][1] == in_range(rows, 600).num_rows
    assert answers_to(config, "top") == answers_to(whole, "top")
