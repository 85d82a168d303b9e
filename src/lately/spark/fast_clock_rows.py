"""Writes the rows of a batch whose clock was fast, those that are ahead, into the table ``rejected``.

Tasks detect these rows when only their numbers and hashes are left. Mostly there are none, and otherwise few, so the source is
read again for them; the alternative would be to pass the text of every row to Python.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lately.pipeline.task_report import TaskReport
from lately.spark.ahead import AHEAD
from lately.spark.rows import RowValidator
from lately.spark.side_tables import SideTable
from lately.store import Store


def write_fast_clock_rows(
    rows: DataFrame, validator: RowValidator, reports: Sequence[TaskReport], store: Store, batch: int
) -> None:
    """Write the rows that tasks rejected as ahead.

    Parameters
    ----------
    rows
        The rows of the batch, as the source returns them.
    validator
        The expressions over these rows.
    reports
        The reports of the tasks; ``ahead`` has the time from which on rows of a site are rejected.
    store
        The store of the pipeline.
    batch
        The number of the batch.
    """
    limits = [(site, limit) for report in reports for site, limit in report.ahead.items()]
    if not limits:
        return
    spark = rows.sparkSession
    sites = spark.createDataFrame(limits, "ahead_site string, ahead_from bigint")
    accepted = validator.accepted_rows(rows)
    is_ahead = (accepted["site"] == sites["ahead_site"]) & (accepted["time"] >= sites["ahead_from"])
    rejected = accepted.join(F.broadcast(sites), is_ahead).select(*accepted.columns)
    rejected.mapInArrow(_write_job(store, batch), "written bigint").collect()


def _write_job(store: Store, batch: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    path, time_type, guard = store.path, store.schema("rejected").field("time").type, store.guard

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        table, written = SideTable(Store(path, time_type, guard), "rejected", batch, f"ahead-{task:05d}"), 0
        for rows in batches:
            time = rows.column("time").cast(time_type)
            reasons = [AHEAD] * rows.num_rows
            table.add({"site": rows.column("site"), "time": time, "reason": reasons, "row": rows.column("row")})
            written += rows.num_rows
        table.flush()
        yield pa.record_batch([pa.array([written], pa.int64())], names=["written"])

    return run
