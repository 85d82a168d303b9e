"""Synthetic web traffic: the requests of eight sites in one second, as a pure function of the seed and the second.

The sites' daily cycles are shifted against each other, the popularity of items drifts from minute to minute, some rows arrive
seconds late, and the scenario's rush and attack are added. Nothing here reads a clock: seconds count from the stream's start.
"""

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lately.demo.scenario import Scenario

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SITES = ("denver", "lima", "lagos", "paris", "nairobi", "mumbai", "tokyo", "sydney")
EVENTS = ("view", "buy", "login")
#: Rows per second at all sites together, without the rush and the attack.
RATE = 10_000
#: The share of each site.
_SHARES = np.array([0.16, 0.09, 0.08, 0.19, 0.07, 0.14, 0.18, 0.09])
#: The pages of every site with their shares of the requests; the rest are requests for items.
_PAGES = {
    "/": 0.06, "/search": 0.05, "/cart": 0.03, "/account": 0.02, "/login": 0.012, "/checkout": 0.012, "/help": 0.01,
    "/thanks": 0.006,
}  # fmt: skip
ITEMS = 5_000
LOGIN, RUSH_PAGE = "/login", "/tickets/cup-final"
#: The text of each path.
PATHS = (*_PAGES, RUSH_PAGE, *(f"/item/{number}" for number in range(1, ITEMS + 1)))
_FIRST_ITEM = len(_PAGES) + 1
_LOGIN, _RUSH_PAGE = PATHS.index(LOGIN), PATHS.index(RUSH_PAGE)

#: Seconds of a daily cycle, and seconds after which the popularity of items has changed completely.
_DAY, _POPULARITY = 240, 60
#: What the rush and the attack add to the traffic of a site, as shares of it.
_RUSH, _ATTACK = 0.45, 0.2
#: The share of rows that arrive late, and their longest delay in seconds.
_DELAYED, MAX_DELAY = 0.03, 3


@dataclass(frozen=True)
class Rows:
    """Rows as columns of numbers.

    Parameters
    ----------
    at
        Microseconds since the start of the stream.
    site, path, event
        Indices into SITES, PATHS and EVENTS.
    ms
        Milliseconds that the request took.
    """

    at: Ints
    site: Ints
    path: Ints
    event: Ints
    ms: Floats

    def __len__(self) -> int:
        return int(self.at.size)

    @property
    def tick(self) -> Ints:
        """The second of each row."""
        return self.at // 1_000_000

    def where(self, selection: Any) -> "Rows":
        """The rows that a mask, a slice or an array of indices selects."""
        return Rows(*(getattr(self, field.name)[selection] for field in fields(self)))

    def table(self, start: int) -> pa.Table:
        """The rows as an Arrow table, as sites write them; ``start`` is the start of the stream in seconds since 1970."""
        return pa.table(
            {
                "ts": pa.array(self.at + start * 1_000_000, pa.timestamp("us", "UTC")),
                "site": pa.array(SITES).take(pa.array(self.site)),
                "path": pa.array(PATHS).take(pa.array(self.path)),
                "event": pa.array(EVENTS).take(pa.array(self.event)),
                "ms": self.ms,
            }
        )


def concat(parts: list[Rows]) -> Rows:
    """All rows of the parts, in their order."""
    return Rows(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Rows)))


def rows_of_second(number: int, seed: int, scenario: Scenario) -> Rows:
    """The rows that arrive in one second of the stream, in the order of their arrival.

    Parameters
    ----------
    number
        The second, from 0.
    seed
        Another seed makes other traffic.
    scenario
        When the rush and the attack happen.

    >>> rows = rows_of_second(0, seed=1, scenario=Scenario())
    >>> 9_000 < len(rows) < 11_000, rows.table(start=1_780_000_000).column_names
    (True, ['ts', 'site', 'path', 'event', 'ms'])
    """
    rng = np.random.default_rng([seed, number])
    rush, attack = scenario.rush_at(number), scenario.attack_at(number)
    normal = rng.poisson(RATE * _SHARES * _activity(number))
    rushing = rng.poisson(RATE * _SHARES * _RUSH * rush)
    attacking = rng.poisson(RATE * _SHARES * _ATTACK * attack)
    sites = np.arange(len(SITES))
    site = np.concatenate([np.repeat(sites, counts) for counts in (normal, rushing, attacking)])
    added = np.full(int(rushing.sum() + attacking.sum()), _RUSH_PAGE)
    added[int(rushing.sum()) :] = _LOGIN
    path = np.concatenate([_normal_paths(rng, np.repeat(sites, normal), number, seed), added])
    event = np.where(path == _LOGIN, 2, (path >= _RUSH_PAGE) & (rng.random(path.size) < 0.04))
    slow = 1 + 0.8 * rush + 0.5 * attack
    ms = np.round((35 + 6.0 * site) * slow * rng.lognormal(0, 0.6, site.size), 1)
    delayed = rng.random(site.size) < _DELAYED
    delay = np.where(delayed, np.minimum(rng.integers(1, MAX_DELAY + 1, site.size), number), 0)
    at = (number - delay) * 1_000_000 + rng.integers(0, 1_000_000, site.size)
    order = np.argsort(at + delay * 1_000_000, kind="stable")  # as they arrive
    return Rows(at, site, path, event, ms).where(order)


def _activity(number: int) -> Floats:
    """How busy each site is; its daily cycle is an eighth behind that of the previous site."""
    phase = number / _DAY - np.arange(len(SITES)) / len(SITES)
    return 1 + 0.4 * np.sin(2 * np.pi * phase)


def _normal_paths(rng: np.random.Generator, site: Ints, number: int, seed: int) -> Ints:
    """Pages, and items whose popularity moves from that of this minute to that of the next."""
    size = site.size
    path = np.searchsorted(np.cumsum(list(_PAGES.values())), rng.random(size)).astype(np.int64)
    item = path == len(_PAGES)
    rank = np.searchsorted(_ranks(), rng.random(size))
    minute, elapsed = divmod(number, _POPULARITY)
    is_next = rng.random(size) < elapsed / _POPULARITY
    items = np.concatenate([_items_by_rank(minute, seed), _items_by_rank(minute + 1, seed)])
    return np.where(item, _FIRST_ITEM + items[site + len(SITES) * is_next, rank], path)


@lru_cache(maxsize=1)
def _ranks() -> Floats:
    """The cumulative distribution of the ranks: Zipf's law, flattened at the top."""
    weights = (8.0 + np.arange(ITEMS)) ** -1.1
    ends: Floats = np.cumsum(weights) / weights.sum()
    return ends


@lru_cache(maxsize=4)
def _items_by_rank(minute: int, seed: int) -> Ints:
    """The item of each rank at each site: the first twenty are the same at all sites, the others differ."""
    rng = np.random.default_rng([seed, 2**32 + minute])
    order = rng.permutation(ITEMS)
    return np.stack([np.concatenate([order[:20], rng.permutation(order[20:])]) for _ in SITES])
