"""The rows of a batch that are ahead, put into the table ``rejected`` as they were.

Tasks find them after rows have crossed as numbers and hashes. There are few, and mostly none, so the source is read once more
for them instead of carrying the text of every row along.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lately.pipeline.task_report import TaskReport
from lately.spark.ahead import AHEAD
from lately.spark.rows import Judge
from lately.spark.side_tables import SideTable
from lately.store import Store


def write_ahead(rows: DataFrame, judge: Judge, grown: Sequence[TaskReport], store: Store, batch: int) -> None:
    """Write the rows that tasks have refused.

    Args:
        rows: the batch, as the source gives it.
        judge: what rows are made ready with.
        grown: what tasks report; ``ahead`` says from which time on a site's rows are refused.
        store: where the table is.
        batch: its number.
    """
    limits = [(site, limit) for one in grown for site, limit in one.ahead.items()]
    if not limits:
        return
    spark = rows.sparkSession
    refused = spark.createDataFrame(limits, "refused_site string, refused_from bigint")
    texts = judge.texts(rows)
    is_refused = (texts["site"] == refused["refused_site"]) & (texts["time"] >= refused["refused_from"])
    found = texts.join(F.broadcast(refused), is_refused).select(*texts.columns)
    found.mapInArrow(_write(store, batch), "written bigint").collect()


def _write(store: Store, batch: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    path, moment, guard = store.path, store.schema("rejected").field("time").type, store.guard

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        table, written = SideTable(Store(path, moment, guard), "rejected", batch, f"ahead-{task:05d}"), 0
        for rows in batches:
            time = rows.column("time").cast(moment)
            reasons = [AHEAD] * rows.num_rows
            table.add({"site": rows.column("site"), "time": time, "reason": reasons, "row": rows.column("row")})
            written += rows.num_rows
        table.flush()
        yield pa.record_batch([pa.array([written], pa.int64())], names=["written"])

    return run
