"""What a store is about: the pipeline, its queries, monitors and sketches, as ``about.json`` has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lately.core.json_encoding import FLATTEN, Json
from lately.store.tables import TimeType

#: The format of stores that this version of lately writes, and the newest that it reads.
FORMAT = 1

#: A length of time such as "10m", or an integer where the times of the stream are integers.
Length: TypeAlias = str | int


@dataclass(frozen=True)
class WindowInfo:
    """The window of the pipeline.

    Parameters
    ----------
    length
        How far back sketches answer.
    tick
        The time resolution; None for the default.
    lateness
        How late a row may be and still be counted; None for not at all.
    """

    length: Length | None = None
    tick: Length | None = None
    lateness: Length | None = None


@dataclass(frozen=True)
class GuaranteeInfo:
    """The guarantee of all queries that have none of their own: an error of ``eps`` with probability ``1 - delta``."""

    eps: float
    delta: float


@dataclass(frozen=True)
class QueryInfo:
    """A query of the pipeline.

    Parameters
    ----------
    name
        The name of the query.
    kind
        "counts", "top", "quantiles", "ranges", "self-join", "join" or "exact".
    last
        The most recent period that it asks about; None for the whole window.
    by
        "all" for one answer over all sites, "site" for one of each site.
    where
        The SQL condition of the rows that it counts; None for all rows.
    sketches
        The names of its sketches; a join has two, the left one first.
    options
        What only queries of this kind have, such as ``k`` or ``keys``.
    """

    name: str
    kind: str = ""
    last: Length | None = None
    by: Literal["all", "site"] = "all"
    where: str | None = None
    sketches: tuple[str, ...] = ()
    options: Mapping[str, Json] = field(default_factory=dict, metadata=FLATTEN)


@dataclass(frozen=True)
class MonitorInfo:
    """A monitor of the pipeline.

    Parameters
    ----------
    name
        The name of the monitor.
    kind
        "self-join", "join", "count" or "frequent".
    last
        The most recent period that it watches; None for the whole window.
    above, below, tau
        The thresholds that it has.
    options
        Its other options as in the pipeline file, such as ``theta`` or ``key``.
    """

    name: str
    kind: str = ""
    last: Length | None = None
    above: float | None = None
    below: float | None = None
    tau: float | None = None
    options: Mapping[str, Json] = field(default_factory=dict, metadata=FLATTEN)


@dataclass(frozen=True)
class SketchInfo:
    """A sketch that every site keeps.

    Parameters
    ----------
    kind
        "ecm", "topk", "dyadic" or "quantiles".
    where
        The SQL condition of the rows that it counts; None for all rows.
    eps, delta
        Its guarantee.
    query
        What an ECM-sketch was sized for, "point" or "inner".
    options
        Its other options, such as ``lo`` or ``universe``.
    """

    kind: str
    where: str | None = None
    eps: float | None = None
    delta: float | None = None
    query: str | None = None
    options: Mapping[str, Json] = field(default_factory=dict, metadata=FLATTEN)


@dataclass(frozen=True)
class About:
    """What a pipeline keeps and answers: the content of ``about.json``.

    Parameters
    ----------
    time_type
        "timestamp" or "integer", the type of the stream's own time.
    name
        The name of the pipeline.
    lately
        The version of lately that wrote it.
    keys
        "text", "integer" or "binary", the type of keys.
    window
        The window of the pipeline.
    guarantee
        The guarantee of queries that have none of their own.
    queries, monitors
        Its queries and monitors, in the order of the pipeline file.
    sketches
        Its stored sketches by name.
    keep
        How long rows of the store are kept; None for ever.
    stored
        When sketches are stored: "always", "never", or a length of time.
    format
        The format of the store.
    """

    time_type: TimeType
    name: str = ""
    lately: str = ""
    keys: Literal["text", "integer", "binary"] | None = None
    window: WindowInfo = WindowInfo()
    guarantee: GuaranteeInfo | None = None
    queries: tuple[QueryInfo, ...] = ()
    monitors: tuple[MonitorInfo, ...] = ()
    sketches: Mapping[str, SketchInfo] = field(default_factory=dict)
    keep: Length | None = None
    stored: Length | None = None
    format: int = FORMAT
