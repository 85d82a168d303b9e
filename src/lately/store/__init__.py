"""The output of a pipeline, for anybody to read: one directory with a folder of Parquet files for each table."""

from lately.store.questions import Questions
from lately.store.store import Store
from lately.store.tables import tables
from lately.store.view import View

__all__ = ["Questions", "Store", "View", "tables"]
