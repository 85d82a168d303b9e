"""The parameters of requests and the bodies of responses: what requests are checked by, and the source of the OpenAPI document.

Responses are built without these models, which is faster; a test compares every response with its model.
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
Limit = Annotated[int, Field(ge=1, le=10_000, description="the maximum number of rows; the newest are returned")]

_LAST = "only the most recent period, such as 10m (an integer where the stream's times are integers); default: the whole window"
_START = "the start of the range: an age such as 2h, or an ISO time (an integer age where the stream's times are integers)"
_END = "the end of the range, written like the start; default: now"
_OF = "the query or sketch to ask; default: the one over all rows that can answer, with the smallest eps"


# -- requests ----------------------------------------------------------------------------------------------------------


class RangeParams(BaseModel):
    """A range of time, and sites."""

    model_config = ConfigDict(extra="forbid")

    last: Annotated[str | None, Field(max_length=64, description=_LAST)] = None
    start: Annotated[str | None, Field(alias="from", max_length=64, description=_START)] = None
    end: Annotated[str | None, Field(alias="to", max_length=64, description=_END)] = None
    site: Annotated[list[Name], Field(max_length=100, description="a site; repeat it for several; default: all sites")] = []


class SketchParams(RangeParams):
    """A range of time, sites, and a sketch."""

    of: Annotated[str | None, Field(max_length=1024, description=_OF)] = None


class CountParams(SketchParams):
    key: Annotated[Key, Field(description="text, or the digits of an integer")]


class TopParams(SketchParams):
    k: Annotated[int, Field(ge=1, le=1000, description="the number of keys")] = 10
    by_site: Annotated[bool, Field(description="true: the most frequent keys of each site separately")] = False


class QuantilesParams(SketchParams):
    q: Annotated[
        list[Share], Field(min_length=1, max_length=100, description="a share of the rows, from 0 to 1; repeat it for several")
    ] = [*DEFAULT_QUANTILES]


class KeyRangeParams(SketchParams):
    lo: Annotated[int | float, Field(allow_inf_nan=False, description="the smallest key or value, included")]
    hi: Annotated[int | float, Field(allow_inf_nan=False, description="the largest key or value, included")]


class InnerProductParams(RangeParams):
    left: Annotated[str, Field(min_length=1, max_length=1024, description="a query or sketch")]
    right: Annotated[
        str | None, Field(max_length=1024, description="another query or sketch; default: if left is a join, its right side")
    ] = None


class CountsBody(BaseModel):
    """Many keys over one range."""

    model_config = ConfigDict(extra="forbid", strict=True)

    keys: Annotated[list[Annotated[StrictStr, Field(max_length=4096)] | StrictInt], Field(min_length=1, max_length=10_000)]
    last: Annotated[Length | None, Field(description=_LAST)] = None
    start: Annotated[Length | None, Field(alias="from", description=_START)] = None
    end: Annotated[Length | None, Field(alias="to", description=_END)] = None
    sites: Annotated[list[Name] | None, Field(max_length=1000, description="default: all sites")] = None
    of: Annotated[str | None, Field(max_length=1024, description=_OF)] = None


class AnswersParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: Annotated[Name | None, Field(description="only the answers of this query")] = None


class HistoryParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: Annotated[Name, Field(description="the query")]
    item: Annotated[Key | None, Field(description="only answers for this item, such as a key or a share")] = None
    site: Annotated[Name | None, Field(description="only answers for this site")] = None
    limit: Limit = 500


class AlertsParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Limit = 100


class RunsParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Limit = 500


class UncountedParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Limit = 100
    site: Annotated[Name | None, Field(description="only rows of this site")] = None
    reason: Annotated[str | None, Field(max_length=1024, description="only rows whose reason begins with this text")] = None


class SitesParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1000, description="the maximum number of rows")] = 100
    offset: Annotated[int, Field(ge=0, le=10**9, description="the number of rows to skip, to continue an earlier answer")] = 0
    state: Annotated[Literal["silent", "ahead", "behind", "ok"] | None, Field(description="only sites in this state")] = None


class SiteTotalsParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[
        int, Field(ge=1, le=100, description="the maximum number of sites; those with the most rows are returned")
    ] = 100


class StreamParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: Annotated[
        str | None, Field(max_length=512, description="the token, for browsers, whose EventSource cannot send headers")
    ] = None


class NoParams(BaseModel):
    """No parameters: any parameter is an error, so that a misspelt path or parameter is reported and not ignored."""

    model_config = ConfigDict(extra="forbid")


# -- answers -----------------------------------------------------------------------------------------------------------


class ResponseModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorDetails(ResponseModel):
    code: str
    message: str
    remedy: str | None


class ErrorBody(ResponseModel):
    error: ErrorDetails


class Estimate(ResponseModel):
    """The true value is between low and high with at least this confidence."""

    value: Number
    low: Number
    high: Number
    confidence: float


class Health(ResponseModel):
    status: str
    batch: int | None
    now: Time
    age_seconds: float | None


class About(BaseModel):
    """The pipeline as about.json describes it, and what can be asked now."""

    model_config = ConfigDict(extra="allow")

    format: int
    name: str
    time_type: str
    queries: list[dict[str, Any]]
    monitors: list[dict[str, Any]]
    batch: int | None
    now: Time
    sites: Annotated[list[str], Field(description="the first 1,000 by name")]
    site_count: Annotated[int, Field(description="the number of all sites")]
    asof: Time
    questions: Annotated[list[str], Field(description="the questions that the stored sketches can answer")]


class RequestedRange(ResponseModel):
    last: str | int | None
    start: Annotated[str | int | None, Field(alias="from")]
    end: Annotated[str | int | None, Field(alias="to")]


class EstimateAnswer(ResponseModel):
    estimate: Estimate
    asof: Time


class CountAnswer(ResponseModel):
    key: str | int
    estimate: Estimate
    asof: Time
    range: RequestedRange


class KeyRow(ResponseModel):
    key: str | int
    estimate: Estimate


class KeyRows(ResponseModel):
    rows: list[KeyRow]
    asof: Time


class SiteKeyRows(ResponseModel):
    sites: dict[str, list[KeyRow]]
    asof: Time


class QuantileRow(ResponseModel):
    q: float
    estimate: Estimate


class QuantileRows(ResponseModel):
    rows: list[QuantileRow]
    asof: Time


class AnswerRow(ResponseModel):
    time: Time
    batch: int
    query: str
    site: str | None
    item: str | None
    value: Number
    low: Number
    high: Number
    confidence: Number


class AnswerRows(ResponseModel):
    batch: int | None
    time: Time
    rows: list[AnswerRow]


class HistoryRows(ResponseModel):
    query: str
    item: str | None
    site: str | None
    rows: list[AnswerRow]


class AlertRow(ResponseModel):
    time: Time
    batch: int
    monitor: str
    item: str | None
    state: Annotated[Literal["firing", "resolved"], Field(description="what the alert became with this row")]
    value: Number
    low: Number
    high: Number
    confidence: Number


class AlertRows(ResponseModel):
    rows: list[AlertRow]


class RunRow(ResponseModel):
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


class RunRows(ResponseModel):
    rows: list[RunRow]


class UncountedRow(ResponseModel):
    batch: int
    site: str | None
    time: Time
    reason: str | None
    row: str | None


class ReasonRow(ResponseModel):
    reason: str
    rows: int


class UncountedRows(ResponseModel):
    reasons: Annotated[list[ReasonRow], Field(description="the number of rows with each reason, the most frequent first")]
    complete: Annotated[bool, Field(description="false: only the newest million rows were counted by reason")]
    rows: list[UncountedRow]


class SiteRow(ResponseModel):
    site: str
    time: Annotated[Time, Field(description="time of the newest counted row")]
    behind: Annotated[Number, Field(description="seconds, or the stream's integers, before `newest`; negative: ahead of it")]
    state: Literal["silent", "ahead", "behind", "ok"] | None
    seen: Annotated[Time, Field(description="when the batch began in which the site last had a counted row")]
    counted: int | None
    late: int | None
    rejected: int | None
    ahead: Annotated[int | None, Field(description="the rejected rows whose time was too far ahead")]
    ahead_seen: Time


class SiteRows(ResponseModel):
    batch: int | None
    newest: Annotated[Time, Field(description="time of the newest row of all sites that are not ahead")]
    tolerance: Annotated[Number, Field(description="how far behind a site may be before it counts as silent")]
    lag: Annotated[Number, Field(description="the largest `behind`")]
    sites: Annotated[int, Field(description="the number of all sites")]
    silent: int
    ahead: int
    behind: int
    rows: list[SiteRow]


class SiteTotalRow(ResponseModel):
    site: str
    total: Estimate | None
    bytes: int


class SiteTotalRows(ResponseModel):
    sites: Annotated[int, Field(description="the number of all sites")]
    rows: list[SiteTotalRow]
    asof: Time
