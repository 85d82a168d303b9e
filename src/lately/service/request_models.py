"""The parameters and bodies of requests: they check every request, and the OpenAPI document is derived from them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from lately.sketches.quantiles import DEFAULT_QUANTILES

Name = Annotated[str, Field(max_length=256)]
Key = Annotated[str, Field(max_length=4096)]
Length = Annotated[StrictStr, Field(max_length=64)] | StrictInt
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Limit = Annotated[int, Field(ge=1, le=10_000, description="the maximum number of rows; the newest are returned")]

_LAST = "only the most recent period, such as 10m (an integer where the stream's times are integers); default: the whole window"
_START = "the start of the range: an age such as 2h, or an ISO time (an integer age where the stream's times are integers)"
_END = "the end of the range, written like the start; default: now"
_OF = "the query or sketch to ask; default: the one over all rows that can answer, with the smallest eps"


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
