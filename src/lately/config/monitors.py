"""Monitors: [[monitors]] in a pipeline file."""

from typing import Literal

from pydantic import Field, model_validator

from lately.config.queries import check_join_has_no_where
from lately.config.values import Fraction, Key, Length, Name, Table, Text
from lately.core.errors import ParameterError


class MonitorTable(Table):
    """A monitor: an alert fires when a value over all sites passes a threshold, while sites send almost nothing.

    Parameters
    ----------
    name
        The name of the monitor in alerts.
    kind
        The value: "self-join", "join", the "count" of a key, or the "frequent" keys.
    key
        The key, for a "count".
    left, right
        The filters of the two streams, for a "join", in SQL.
    above, below
        The threshold. Without either, the value is tracked to within ``theta``.
    tau
        The count from which a key is frequent, for "frequent" keys.
    theta
        The tolerance, relative to the threshold. By default 0.1.
    last
        The most recent period that it is about, e.g. "10m"; None for the whole window.
    eps
        The error of its sketches; None for the default of its kind.
    delta
        The probability that the error is larger. By default 0.1.
    where
        A filter in SQL; None for all rows.
    scheme
        How sites decide when to report: "functional", the default, or "geometric".
    """

    name: Name = Field(examples=["skew"])
    kind: Literal["self-join", "join", "count", "frequent"] = Field(examples=["self-join"])
    key: Key | None = None
    left: Text | None = None
    right: Text | None = None
    above: float | None = None
    below: float | None = None
    tau: float | None = None
    theta: Fraction = 0.1
    last: Length | None = None
    eps: Fraction | None = None
    delta: Fraction = 0.1
    where: Text | None = None
    scheme: Literal["functional", "geometric"] = "functional"

    @property
    def sketch_eps(self) -> float:
        """The eps of its sketch. Frequent keys need a smaller one: what collides with a key must be small relative to tau."""
        return self.eps or (0.01 if self.kind == "frequent" else 0.1)

    @model_validator(mode="after")
    def _check(self) -> "MonitorTable":
        if self.tau is None and self.kind == "frequent":
            raise ParameterError("frequent keys need the count from which a key is frequent", remedy="add tau = 1000")
        if self.tau is not None and self.kind != "frequent":
            raise ParameterError('only kind = "frequent" has tau', remedy="give above or below")
        if self.key is None and self.kind == "count":
            raise ParameterError("a count needs a key", remedy='add key = "/cart"')
        if self.key is not None and self.kind != "count":
            raise ParameterError('only kind = "count" has a key', remedy="leave key out")
        self._check_streams()
        if self.kind == "frequent" and (self.above is not None or self.below is not None):
            raise ParameterError("frequent keys have tau instead of above and below", remedy="leave above and below out")
        if self.above is not None and self.below is not None:
            raise ParameterError("a monitor has one threshold", remedy="give above or below, or make two monitors")
        return self

    def _check_streams(self) -> None:
        if self.kind == "join" and (self.left is None or self.right is None):
            raise ParameterError("a join needs two filters", remedy="give left and right, two expressions in SQL")
        if self.kind != "join" and (self.left is not None or self.right is not None):
            raise ParameterError('only kind = "join" has left and right', remedy="give where")
        if self.kind == "join":
            check_join_has_no_where(self.where)
