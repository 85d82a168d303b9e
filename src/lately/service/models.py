"""What may be asked and what is answered, for checking questions and for the OpenAPI document.

Questions are checked by these models. Answers are built by hand, which is faster, and a test compares them with the models.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from lately.sketches.quantiles import DEFAULT_QUANTILES

Name = Annotated[str, Field(max_length=256)]
Key = Annotated[str, Field(max_length=4096)]
Time = Annotated[str | int | None, Field(description="ISO 8601 in UTC, or an integer where the stream's times are integers")]
Number = Annotated[int | float | None, Field(description="null: unknown, or infinite")]
Length = Annotated[StrictStr, Field(max_length=64)] | StrictInt
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Limit = Annotated[int, Field(ge=1, le=10_000, description="the most rows, the newest of them")]

_LAST = "the last so long, such as 10m (an integer where the stream's times are integers)"
_END = "an age such as 2h, or an ISO time (an integer age where the stream's times are integers)"


# -- questions ---------------------------------------------------------------------------------------------------------


class Ranged(BaseModel):
    """A range of time, and some sites."""

    model_config = ConfigDict(extra="forbid")

    last: Annotated[str | None, Field(max_length=64, description=_LAST)] = None
    since: Annotated[str | None, Field(alias="from", max_length=64, description=_END)] = None
    to: Annotated[str | None, Field(max_length=64, description=f"{_END}; now, if it is left out")] = None
    site: Annotated[list[Name], Field(max_length=100, description="once for each site; none: all sites")] = []


class Asked(Ranged):
    """Which sketch, too."""

    of: Annotated[str | None, Field(max_length=1024, description="the query or sketch that is asked")] = None


class CountAsked(Asked):
    key: Annotated[Key, Field(description="text, or the digits of an integer")]


class TopAsked(Asked):
    k: Annotated[int, Field(ge=1, le=1000, description="how many keys")] = 10
    each: Annotated[bool, Field(description="for each site by itself")] = False


class QuantilesAsked(Asked):
    q: Annotated[list[Share], Field(min_length=1, max_length=100, description="shares of the rows")] = [*DEFAULT_QUANTILES]


class RangeAsked(Asked):
    lo: Annotated[int | float, Field(allow_inf_nan=False, description="the least key or value")]
    hi: Annotated[int | float, Field(allow_inf_nan=False, description="the greatest key or value")]


class ProductAsked(Ranged):
    left: Annotated[str, Field(min_length=1, max_length=1024, description="a query or sketch")]
    right: Annotated[str | None, Field(max_length=1024, description="another; of a join, its right side if left out")] = None


class CountsAsked(BaseModel):
    """Many keys over one range."""

    model_config = ConfigDict(extra="forbid", strict=True)

    keys: Annotated[list[Annotated[StrictStr, Field(max_length=4096)] | StrictInt], Field(min_length=1, max_length=10_000)]
    last: Annotated[Length | None, Field(description=_LAST)] = None
    since: Annotated[Length | None, Field(alias="from", description=_END)] = None
    to: Annotated[Length | None, Field(description=_END)] = None
    sites: Annotated[list[Name] | None, Field(max_length=1000, description="none: all sites")] = None
    of: Annotated[str | None, Field(max_length=1024, description="the query or sketch that is asked")] = None


class AnswersAsked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: Name | None = None


class HistoryAsked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: Name
    item: Key | None = None
    site: Name | None = None
    limit: Limit = 500


class AlertsAsked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Limit = 100


class RunsAsked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Limit = 500


class RefusedAsked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Limit = 100
    site: Annotated[Name | None, Field(description="only rows of this site")] = None
    reason: Annotated[str | None, Field(max_length=1024, description="only rows whose reason begins with this text")] = None


class SitesAsked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1000, description="the most rows")] = 100
    offset: Annotated[int, Field(ge=0, le=10**9, description="rows to skip, to go on after an earlier answer")] = 0
    state: Annotated[Literal["silent", "ahead", "behind", "ok"] | None, Field(description="only sites in this state")] = None


class TotalsAsked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100, description="the most rows; the sites with the most rows are given")] = 100


class StreamAsked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: Annotated[str | None, Field(max_length=512, description="for browsers, which cannot send headers here")] = None


class Nothing(BaseModel):
    """No parameters: one that is misspelt is told rather than ignored."""

    model_config = ConfigDict(extra="forbid")


# -- answers -----------------------------------------------------------------------------------------------------------


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(Answer):
    code: str
    message: str
    remedy: str | None


class Failed(Answer):
    error: Problem


class Estimate(Answer):
    """The truth lies between low and high with probability confidence or more."""

    value: Number
    low: Number
    high: Number
    confidence: float


class Health(Answer):
    status: str
    batch: int | None
    now: Time
    age_seconds: float | None


class About(BaseModel):
    """The pipeline as about.json has it, and what can be asked now."""

    model_config = ConfigDict(extra="allow")

    format: int
    name: str
    moment: str
    queries: list[dict[str, Any]]
    monitors: list[dict[str, Any]]
    batch: int | None
    now: Time
    sites: Annotated[list[str], Field(description="the first 1,000 by name; `site_count` says how many there are")]
    site_count: int
    asof: Time
    asks: list[str]


class Span(Answer):
    last: str | int | None
    since: Annotated[str | int | None, Field(alias="from")]
    to: str | int | None


class Found(Answer):
    estimate: Estimate
    asof: Time


class Counted(Answer):
    key: str | int
    estimate: Estimate
    asof: Time
    range: Span


class KeyRow(Answer):
    key: str | int
    estimate: Estimate


class KeyRows(Answer):
    rows: list[KeyRow]
    asof: Time


class SiteKeyRows(Answer):
    sites: dict[str, list[KeyRow]]
    asof: Time


class QuantileRow(Answer):
    q: float
    estimate: Estimate


class QuantileRows(Answer):
    rows: list[QuantileRow]
    asof: Time


class AnswerRow(Answer):
    query: str
    site: str | None
    item: str | None
    value: Number
    low: Number
    high: Number
    confidence: Number


class AnswerRows(Answer):
    batch: int | None
    time: Time
    rows: list[AnswerRow]


class HistoryRow(Answer):
    time: Time
    batch: int
    site: str | None
    item: str | None
    value: Number
    low: Number
    high: Number
    confidence: Number


class HistoryRows(Answer):
    query: str
    item: str | None
    site: str | None
    rows: list[HistoryRow]


class AlertRow(Answer):
    time: Time
    batch: int
    monitor: str
    item: str | None
    raised: Annotated[bool, Field(description="whether `state` is firing")]
    state: Annotated[Literal["firing", "resolved"], Field(description="what the alert became with this row")]
    value: Number
    low: Number
    high: Number
    confidence: Number


class AlertRows(Answer):
    rows: list[AlertRow]


class RunRow(Answer):
    batch: int
    time: Time
    began: Time
    seconds: Number
    rows: int | None
    counted: int | None
    late: int | None
    rejected: int | None
    sites: int | None
    state_bytes: int | None
    shipped_bytes: int | None
    monitor_bytes: int | None
    everything_bytes: int | None


class RunRows(Answer):
    rows: list[RunRow]


class RefusedRow(Answer):
    batch: int
    site: str | None
    time: Time
    reason: str | None
    row: str | None


class ReasonRow(Answer):
    reason: str
    rows: int


class RefusedRows(Answer):
    reasons: Annotated[list[ReasonRow], Field(description="how many rows have which reason, the most frequent first")]
    complete: Annotated[bool, Field(description="false: only the newest million rows were counted by reason")]
    rows: list[RefusedRow]


class SiteRow(Answer):
    site: str
    time: Annotated[Time, Field(description="time of the newest counted row")]
    behind: Annotated[Number, Field(description="seconds, or the stream's integers, before `newest`; negative: ahead of it")]
    state: Literal["silent", "ahead", "behind", "ok"] | None
    seen: Annotated[Time, Field(description="when the batch began in which the site last had a counted row")]
    counted: int | None
    late: int | None
    rejected: int | None
    ahead: Annotated[int | None, Field(description="of the rejected rows, those whose time was too far ahead")]
    ahead_seen: Time


class SiteRows(Answer):
    batch: int | None
    newest: Annotated[Time, Field(description="time of the newest row of all sites that are not ahead")]
    tolerance: Annotated[Number, Field(description="how far behind a site may be before it is silent")]
    lag: Annotated[Number, Field(description="the largest `behind`")]
    sites: Annotated[int, Field(description="how many sites there are")]
    silent: int
    ahead: int
    behind: int
    rows: list[SiteRow]


class TotalRow(Answer):
    site: str
    total: Estimate | None
    bytes: int


class TotalRows(Answer):
    sites: Annotated[int, Field(description="how many sites there are")]
    rows: list[TotalRow]
    asof: Time
