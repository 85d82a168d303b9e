"""lately: what has been happening lately, over streams too fast, too wide or too scattered to keep.

>>> import lately as lt
>>> sketch = lt.EcmSketch(window="1h", eps=0.01, delta=0.01)
>>> sketch.update(["GET /cart", "GET /", "GET /cart"], [0, 60, 120])    # Unix seconds, or any kind of date
>>> sketch.count("GET /cart", last="10m").value
2
"""

import importlib
from typing import Any as _Any

from lately import counters
from lately.core.answers import Answers
from lately.core.codec import from_bytes
from lately.core.durations import arrivals
from lately.core.errors import (
    FormatError,
    InputError,
    LatelyError,
    LeaseError,
    MergeError,
    ParameterError,
    QueryError,
    RangeError,
)
from lately.core.estimate import Estimate, Estimates
from lately.core.keys import hash_keys
from lately.core.sketch_plan import Plan, plan
from lately.exact import agg
from lately.exact.aggregates import Aggregate
from lately.exact.answer import Answer, WindowAnswers
from lately.exact.partials import Partials
from lately.exact.windows import Windows
from lately.ingest.merging import merge
from lately.ingest.window_counter import WindowCounter
from lately.monitor.distcm import DistributedCountMin
from lately.sketches.ams import AmsSketch, FastAmsSketch
from lately.sketches.countmin import CountMin
from lately.sketches.dyadic import Dyadic
from lately.sketches.ecm import EcmSketch
from lately.sketches.quantiles import Quantiles
from lately.sketches.topk import TopK
from lately.sketches.wcm import PerfectCountMin, ProportionalCountMin, SimpleCountMin, SplitterCountMin
from lately.sketches.windowed_ams import WindowedAmsSketch

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "AmsSketch",
    "Answer",
    "Answers",
    "CountMin",
    "DistributedCountMin",
    "Dyadic",
    "EcmSketch",
    "Estimate",
    "Estimates",
    "FastAmsSketch",
    "FormatError",
    "InputError",
    "LatelyError",
    "LeaseError",
    "MergeError",
    "ParameterError",
    "Partials",
    "PerfectCountMin",
    "Plan",
    "ProportionalCountMin",
    "Quantiles",
    "QueryError",
    "RangeError",
    "SimpleCountMin",
    "SplitterCountMin",
    "TopK",
    "WindowAnswers",
    "WindowCounter",
    "WindowedAmsSketch",
    "Windows",
    "agg",
    "arrivals",
    "counters",
    "from_bytes",
    "hash_keys",
    "merge",
    "plan",
]


def __getattr__(name: str) -> _Any:
    """``lately.spark`` and ``lately.Pipeline``, when somebody asks for them: they need Spark, which not everybody has."""
    if name not in ("spark", "Pipeline"):
        raise AttributeError(f"module 'lately' has no attribute {name!r}")
    try:
        spark = importlib.import_module("lately.spark")
    except ImportError as error:
        raise LatelyError(f"lately.{name} needs Spark ({error})", remedy="run pip install 'lately[spark]'") from error
    return spark if name == "spark" else spark.Pipeline
