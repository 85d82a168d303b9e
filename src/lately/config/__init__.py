"""The pipeline file: sources, queries, monitors and the store, as one validated model that is read from TOML.

Sketches and monitors are checked by building them, so a file that passes here can be run.
"""

from lately.config.mistakes import Mistake, MistakeCollector, Origin, error_of
from lately.config.monitors import MonitorTable
from lately.config.pipeline_file import Config
from lately.config.queries import Counts, Exact, Join, Quantiles, Query, QueryBase, Ranges, SelfJoin, Top
from lately.config.reading import load, of, parse
from lately.config.sections import Columns, Guarantee, Run, Source, StoreTable, WindowTable

__all__ = [
    "Columns",
    "Config",
    "Counts",
    "Exact",
    "Guarantee",
    "Join",
    "Mistake",
    "MistakeCollector",
    "MonitorTable",
    "Origin",
    "Quantiles",
    "Query",
    "QueryBase",
    "Ranges",
    "Run",
    "SelfJoin",
    "Source",
    "StoreTable",
    "Top",
    "WindowTable",
    "error_of",
    "load",
    "of",
    "parse",
]
