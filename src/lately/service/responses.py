"""The responses that only the service has; all others are the documents of ``lately.store.documents``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lately.core.estimate import Estimate
from lately.store.about import About
from lately.store.tables import Time


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """Why a request failed.

    Parameters
    ----------
    code
        The kind of error, for programs.
    message
        What is wrong.
    remedy
        What to do about it; None if the message says it all.
    """

    code: str
    message: str
    remedy: str | None


@dataclass(frozen=True, slots=True)
class ErrorDocument:
    """The response to a request that failed."""

    error: ErrorDetails


@dataclass(frozen=True, slots=True)
class CountDocument:
    """How often a key occurred.

    Parameters
    ----------
    key
        The key, as the request has it.
    estimate
        The count.
    asof
        The instant of the stream at which the range ends, unless it ends earlier.
    range
        The range as the request has it: ``last``, ``from`` and ``to``.
    """

    key: str | int
    estimate: Estimate
    asof: Time | None
    range: Mapping[str, str | int | None]


@dataclass(frozen=True, slots=True)
class HealthDocument:
    """The state of the store.

    Parameters
    ----------
    status
        "ok"; a store that cannot be read is an error.
    batch
        The newest finished batch; None before the first.
    now
        The newest instant of the stream after that batch.
    age_seconds
        Seconds since that batch finished.
    """

    status: Literal["ok"]
    batch: int | None
    now: Time | None
    age_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class AboutDocument(About):
    """The pipeline as about.json describes it, and what can be asked now.

    Parameters
    ----------
    batch
        The newest finished batch; None before the first.
    now
        The newest instant of the stream after that batch.
    sites
        The names of the sites, at most the first 1,000.
    site_count
        The number of all sites.
    asof
        The instant of the stream at which the newest sketches were stored; None if there are no sketches.
    questions
        The questions that the stored sketches can answer.
    """

    batch: int | None
    now: Time | None
    sites: list[str]
    site_count: int
    asof: Time | None
    questions: list[str]


@dataclass(frozen=True, slots=True)
class SiteTotal:
    """The size of a site.

    Parameters
    ----------
    site
        The name of the site.
    total
        Its rows in the window; None if no stored sketch counts all of them.
    bytes
        The bytes of its stored sketches.
    """

    site: str
    total: Estimate | None
    bytes: int


@dataclass(frozen=True, slots=True)
class SiteTotalsDocument:
    """The sites with the most rows.

    Parameters
    ----------
    sites
        The number of all sites.
    rows
        The sites with the most rows.
    asof
        The instant of the stream at which the window ends.
    """

    sites: int
    rows: list[SiteTotal]
    asof: Time | None
