"""The tables of a store and their columns."""

import pyarrow as pa

STAMP = pa.timestamp("us", "UTC")
#: What about.json calls the types that a stream's own time may have.
MOMENTS = {"timestamp": STAMP, "integer": pa.int64()}


def tables(moment: pa.DataType = STAMP) -> dict[str, pa.Schema]:
    """The tables and their columns; ``moment`` is the type of the stream's own time.

    >>> list(tables())
    ['answers', 'alerts', 'late', 'rejected', 'runs', 'sites', 'sketches']
    """
    answers = {"time": moment, "batch": pa.int64(), "query": pa.string(), "site": pa.string(), "item": pa.string()}
    numbers = {name: pa.float64() for name in ("value", "low", "high", "confidence")}
    lost = {"batch": pa.int64(), "site": pa.string(), "time": moment, "reason": pa.string(), "row": pa.string()}
    counts = (
        "rows",
        "counted",
        "late",
        "rejected",
        "sites",
        "state_bytes",
        "shipped_bytes",
        "monitor_bytes",
        "everything_bytes",
    )
    return {
        "answers": pa.schema(answers | numbers),
        "alerts": pa.schema(
            {"time": moment, "batch": pa.int64(), "monitor": pa.string(), "item": pa.string(), "raised": pa.bool_()} | numbers
        ),
        "late": pa.schema(lost),
        "rejected": pa.schema(lost),
        "runs": pa.schema(
            {"batch": pa.int64(), "time": moment, "began": STAMP, "seconds": pa.float64()}
            | {name: pa.int64() for name in counts}
        ),
        # A snapshot of all sites after the batch: readers need that of the newest batch only.
        "sites": pa.schema(
            {"batch": pa.int64(), "site": pa.string(), "time": moment, "seen": STAMP}
            | {name: pa.int64() for name in ("counted", "late", "rejected", "ahead")}
            | {"ahead_seen": STAMP}
        ),
        "sketches": pa.schema(
            {
                "version": pa.int64(),
                "time": moment,
                "site": pa.string(),
                "sketch": pa.string(),
                "kind": pa.string(),
                "blob": pa.binary(),
            }
        ),
    }


def numbered(table: str) -> str:
    """The column that has the number of the batch."""
    return "version" if table == "sketches" else "batch"
