"""What the benchmark of Spark runs: jobs by name, here or in an application of their own, and what each of them spends."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import lately as lt

SITES = 16
ONE = {"window": "1h", "eps": 0.01, "delta": 0.01}
COLUMNS = {"key": "key", "time": "ts"}


@dataclass(frozen=True)
class Spent:
    """What a job has taken."""

    seconds: float
    #: Bytes written for a shuffle, as Spark has them: compressed.
    shuffle: int
    #: The most that a stage's tasks have reserved in the JVM for sorting, hashing and joining, all tasks together.
    execution: int
    #: The most that the driver, the JVM and all Python workers had in memory together; None where psutil is missing.
    resident: int | None


# -- jobs --------------------------------------------------------------------------------------------------------------------


def noop(df: Any) -> None:
    """Run a query and drop what it gives."""
    df.write.format("noop").mode("overwrite").save()


def identity(spark: Any, path: str) -> None:
    """The columns through Python and back, untouched: what crossing costs."""
    df = spark.read.parquet(path).select("site", "key", "ts")
    noop(df.mapInArrow(lambda batches: batches, df.schema))


def frame(spark: Any, path: str, **options: Any) -> None:
    import lately.spark

    noop(lately.spark.sketch(spark.read.parquet(path), **(COLUMNS | {"by": "site"} | ONE | options)))


def files(spark: Any, path: str, **options: Any) -> None:
    import lately.spark

    noop(lately.spark.sketch_files(path, spark=spark, **(COLUMNS | {"by": "site"} | ONE | options)))


def counted(spark: Any, path: str, **options: Any) -> None:
    """Equal rows counted in the JVM first, then sketched with their counts."""
    import lately.spark

    df = spark.read.parquet(path).groupBy("site", "key", "ts").count()
    noop(lately.spark.sketch(df, count="count", **(COLUMNS | {"by": "site"} | ONE | options)))


def sliding(spark: Any, path: str) -> None:
    """Every key's exact count in every hour that ends at a full minute."""
    noop(exact(spark.read.parquet(path)))


def exact(df: Any) -> Any:
    from pyspark.sql import functions as F

    return df.groupBy(F.window("ts", "1 hour", "1 minute"), "key").count()


JOBS: dict[str, Callable[..., None]] = {job.__name__: job for job in (identity, frame, files, counted, sliding)}


# -- what they spend ---------------------------------------------------------------------------------------------------------


def spent(spark: Any, run: Callable[[], None]) -> Spent:
    """Run something, and tell what it took."""
    first = max(_stages(spark), default=-1)
    with _Peak() as peak:
        start = perf_counter()
        run()
        seconds = perf_counter() - start
    new_stages = [stage for number, stage in _stages(spark).items() if number > first]
    return Spent(seconds, sum(one[0] for one in new_stages), max((one[1] for one in new_stages), default=0), peak.most)


def _stages(spark: Any) -> dict[int, tuple[int, int]]:
    """Bytes shuffled and memory reserved by each stage so far."""
    context = spark._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    nothing = spark.sparkContext._gateway.new_array(spark._jvm.double, 0)
    stage_list = context.statusStore().stageList(None, False, False, nothing, spark._jvm.java.util.ArrayList())
    stages = [stage_list.apply(i) for i in range(stage_list.size())]
    return {one.stageId(): (one.shuffleWriteBytes(), one.peakExecutionMemory()) for one in stages}


class _Peak:
    """The most memory that this process and those below it have at a time, looked at ten times a second."""

    def __init__(self) -> None:
        self.most: int | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_Peak":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            import psutil
        except ImportError:
            return
        me = psutil.Process()
        while True:
            total = 0
            for process in (me, *me.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.Error:  # it has just ended
                    continue
            self.most = max(self.most or 0, total)
            if self._done.wait(0.1):
                return


# -- applications ------------------------------------------------------------------------------------------------------------


class Here:
    """Jobs in the session that is here."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def run(self, job: str, **arguments: Any) -> Spent:
        return spent(self._spark, lambda: JOBS[job](self._spark, **arguments))

    def close(self) -> None:
        pass


class Apart:
    """Jobs in a Spark application of their own, whose memory nothing else has used before."""

    def __init__(self, master: str) -> None:
        top = Path(__file__).resolve().parents[1]
        path = os.pathsep.join([str(Path(lt.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        # What Spark has set in this process is about this process.
        hidden = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.spark_jobs", master], cwd=top, env={**environment, "PYTHONPATH": path}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
        )  # fmt: skip

    def run(self, job: str, **arguments: Any) -> Spent:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([job, arguments]) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._said.seek(0)
            lines = self._said.read().strip().splitlines() or ["it said nothing"]
            raise lt.LatelyError(f"Spark in a process of its own failed at {job!r}: {lines[-1]}")
        return Spent(**json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()


def _serve(master: str) -> None:
    """Run the jobs that are asked for on stdin, one a line."""
    from lately.spark.session import session

    spark = session(master, app="lately bench")
    for line in sys.stdin:
        job, arguments = json.loads(line)
        print(json.dumps(asdict(Here(spark).run(job, **arguments))), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
