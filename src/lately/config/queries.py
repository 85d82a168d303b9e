"""The kinds of queries: [[queries]] in a pipeline file."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from lately.config.mistakes import TableError, TableMistake
from lately.config.values import Fraction, Key, Length, Name, Range, Table, Text
from lately.core.errors import ParameterError
from lately.sketches.quantiles import DEFAULT_QUANTILES


def check_join_has_no_where(where: str | None) -> None:
    """Raise ParameterError if a join has a filter besides those of its two streams."""
    if where is not None:
        raise ParameterError("the filters of a join are left and right", remedy="leave where out")


#: The eps of self-joins and joins that give none of their own, unless that of [guarantee] is larger. Theirs is a share of the
#: norms, not of all rows, and takes 1/eps² bytes.
JOIN_EPS = 0.1


class QueryBase(Table):
    """What all queries have.

    Parameters
    ----------
    name
        The name of the query in the tables of the store.
    last
        The most recent period that it is about, e.g. "10m"; None for the whole window.
    eps, delta
        Its own guarantee; None for the one of [guarantee], of joins and self-joins with an eps of at least 0.1.
    where
        A filter in SQL; None for all rows.
    by
        "all", the default, for one answer over all sites, or "site" for one answer per site.
    """

    name: Name = Field(examples=["hot"])
    last: Length | None = None
    eps: Fraction | None = None
    delta: Fraction | None = None
    where: Text | None = None
    by: Literal["all", "site"] = "all"


class Counts(QueryBase):
    """How often each of the given keys occurred.

    Parameters
    ----------
    keys
        The keys, either all text or all whole numbers.
    """

    kind: Literal["counts"]
    keys: Annotated[list[Key], Field(min_length=1, max_length=100_000, examples=[["/cart", "/pay"]])]

    @field_validator("keys")
    @classmethod
    def _check_keys(cls, keys: list[str | int]) -> list[str | int]:
        if len({type(key) for key in keys}) > 1:
            raise ParameterError("text and numbers are mixed, but a column has one type", remedy="put all in quotes, or none")
        return keys


class Top(QueryBase):
    """The most frequent keys.

    Parameters
    ----------
    k
        How many of them. By default 10.
    """

    kind: Literal["top"]
    k: Annotated[int, Field(ge=1, le=100_000)] = 10


class Quantiles(QueryBase):
    """Quantiles of the column ``value``.

    Parameters
    ----------
    q
        The shares, from 0 to 1. By default those of ``lately.Quantiles``.
    lo, hi
        The range of values.
    resolution
        Values closer together than this are not told apart.
    outside
        What happens to rows with values outside of the range: "reject", the default, or "clip" to the nearer end.
    """

    kind: Literal["quantiles"]
    q: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1, max_length=1_000)] = Field(
        default_factory=lambda: [*DEFAULT_QUANTILES]
    )
    lo: float = Field(examples=[0])
    hi: float = Field(examples=[60])
    resolution: Annotated[float, Field(gt=0, examples=[0.01])]
    outside: Literal["reject", "clip"] = "reject"


class Ranges(QueryBase):
    """How many rows have keys within given ranges of integers.

    Parameters
    ----------
    universe
        Keys are integers from 0 to universe - 1.
    ranges
        The ranges, each as its first and last key.
    """

    kind: Literal["ranges"]
    universe: Annotated[int, Field(ge=2, examples=[65536])]
    ranges: Annotated[list[Range], Field(min_length=1, max_length=100_000, examples=[[[0, 1023], [1024, 65535]]])]

    @model_validator(mode="after")
    def _check_ranges(self) -> "Ranges":
        outside = [index for index, (first, last) in enumerate(self.ranges) if first < 0 or last >= self.universe]
        if outside:
            message, remedy = f"keys must be from 0 to {self.universe - 1}", "correct the range or the universe"
            raise TableError([TableMistake(("ranges", index), message, remedy) for index in outside])
        return self


class SelfJoin(QueryBase):
    """The sum of the squares of all keys' counts, which measures how skewed the stream is."""

    kind: Literal["self-join"]


class Join(QueryBase):
    """How many pairs of rows with the same key two streams have.

    Parameters
    ----------
    left, right
        The filters of the two streams, in SQL.
    """

    kind: Literal["join"]
    left: Text = Field(examples=["event = 'view'"])
    right: Text = Field(examples=["event = 'buy'"])

    @model_validator(mode="after")
    def _check_where(self) -> "Join":
        check_join_has_no_where(self.where)
        return self


class Exact(QueryBase):
    """An exact aggregate over the window, or the groups for which it passes a threshold.

    Parameters
    ----------
    aggregate
        The name of the aggregate.
    of
        The column that is aggregated; None for "count".
    q
        The share of a "quantile", from 0 to 1.
    per
        The column to group by; needs ``above`` or ``below``. None for one aggregate of all rows.
    above, below
        The threshold that a group must pass.
    """

    kind: Literal["exact"]
    aggregate: Literal["count", "sum", "avg", "min", "max", "variance", "stddev", "quantile"] = Field(examples=["sum"])
    of: Text | None = None
    q: Annotated[float, Field(ge=0, le=1)] | None = None
    per: Text | None = None
    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _check(self) -> "Exact":
        if self.of is None and self.aggregate != "count":
            raise ParameterError(f"{self.aggregate} needs a column", remedy='add of = "price"')
        if self.of is not None and self.aggregate == "count":
            raise ParameterError("count has no column", remedy="leave of out")
        if self.q is None and self.aggregate == "quantile":
            raise ParameterError("a quantile needs a share", remedy="add q = 0.99")
        if self.q is not None and self.aggregate != "quantile":
            raise ParameterError("only a quantile has a share", remedy="leave q out")
        self._check_groups()
        if self.eps is not None or self.delta is not None:
            raise ParameterError("an exact answer has no error", remedy="leave eps and delta out")
        return self

    def _check_groups(self) -> None:
        thresholds = (self.above is not None) + (self.below is not None)
        if thresholds > 1 or (thresholds == 1) != (self.per is not None):
            raise ParameterError("groups need a column and one threshold", remedy='give per = "column" and above or below')
        if self.per is not None and self.aggregate not in ("count", "sum", "min", "max"):
            raise ParameterError(
                f"groups are supported for count, sum, min and max, not for {self.aggregate}", remedy="leave per out"
            )


Query = Annotated[Counts | Top | Quantiles | Ranges | SelfJoin | Join | Exact, Field(discriminator="kind")]
