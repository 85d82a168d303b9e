"""Made-up web traffic: which requests eight sites had in a second, as a pure function of the seed and the second.

Sites wake and sleep one after another, tastes drift from minute to minute, some rows come seconds late, and the story's crowd
and attack come on top. Nothing here reads a clock: seconds count from the start of the stream.
"""

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lately.demo.story import Story

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SITES = ("denver", "lima", "lagos", "paris", "nairobi", "mumbai", "tokyo", "sydney")
EVENTS = ("view", "buy", "login")
#: Rows a second at all sites together, before the crowd and the attack.
RATE = 10_000
_SHARES = np.array([0.16, 0.09, 0.08, 0.19, 0.07, 0.14, 0.18, 0.09])
#: Pages that all sites have, and the share of their requests; the rest goes to items.
_PAGES = {
    "/": 0.06, "/search": 0.05, "/cart": 0.03, "/account": 0.02, "/login": 0.012, "/checkout": 0.012, "/help": 0.01,
    "/thanks": 0.006,
}  # fmt: skip
ITEMS = 5_000
LOGIN, CROWDED = "/login", "/tickets/cup-final"
#: The text of each path.
PATHS = (*_PAGES, CROWDED, *(f"/item/{number}" for number in range(1, ITEMS + 1)))
_FIRST_ITEM = len(_PAGES) + 1
_LOGIN, _CROWDED = PATHS.index(LOGIN), PATHS.index(CROWDED)

#: A day of the sites takes four minutes, and tastes are others after one.
_DAY, _TASTE = 240, 60
#: What the crowd and the attack add to the traffic of a site, as shares of it.
_CROWD, _ATTACK = 0.45, 0.2
#: Rows that come late, and by how many seconds at the most.
_DELAYED, MOST_DELAY = 0.03, 3


@dataclass(frozen=True)
class Rows:
    """Rows as numbers: microseconds since the start of the stream, and places in SITES, PATHS and EVENTS."""

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

    def where(self, wanted: Any) -> "Rows":
        """The rows of a mask or a slice."""
        return Rows(*(getattr(self, field.name)[wanted] for field in fields(self)))

    def table(self, start: int) -> pa.Table:
        """The rows as a site would write them; ``start`` is when the stream began, in seconds since 1970."""
        return pa.table(
            {
                "ts": pa.array(self.at + start * 1_000_000, pa.timestamp("us", "UTC")),
                "site": pa.array(SITES).take(pa.array(self.site)),
                "path": pa.array(PATHS).take(pa.array(self.path)),
                "event": pa.array(EVENTS).take(pa.array(self.event)),
                "ms": self.ms,
            }
        )


def together(parts: list[Rows]) -> Rows:
    """Rows one after another."""
    return Rows(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Rows)))


def second(number: int, seed: int, story: Story) -> Rows:
    """The rows that arrive in a second of the stream, the first of which is 0.

    >>> rows = second(0, seed=1, story=Story())
    >>> 9_000 < len(rows) < 11_000, rows.table(start=1_780_000_000).column_names
    (True, ['ts', 'site', 'path', 'event', 'ms'])
    """
    rng = np.random.default_rng([seed, number])
    crowd, attacked = story.crowd_at(number), story.attack_at(number)
    usual = rng.poisson(RATE * _SHARES * _awake(number))
    crowded = rng.poisson(RATE * _SHARES * _CROWD * crowd)
    attacks = rng.poisson(RATE * _SHARES * _ATTACK * attacked)
    sites = np.arange(len(SITES))
    site = np.concatenate([np.repeat(sites, extra) for extra in (usual, crowded, attacks)])
    strange = np.full(int(crowded.sum() + attacks.sum()), _CROWDED)
    strange[int(crowded.sum()) :] = _LOGIN
    path = np.concatenate([_usual_paths(rng, np.repeat(sites, usual), number, seed), strange])
    event = np.where(path == _LOGIN, 2, (path >= _CROWDED) & (rng.random(path.size) < 0.04))
    slow = 1 + 0.8 * crowd + 0.5 * attacked
    ms = np.round((35 + 6.0 * site) * slow * rng.lognormal(0, 0.6, site.size), 1)
    delayed = rng.random(site.size) < _DELAYED
    delay = np.where(delayed, np.minimum(rng.integers(1, MOST_DELAY + 1, site.size), number), 0)
    at = (number - delay) * 1_000_000 + rng.integers(0, 1_000_000, site.size)
    order = np.argsort(at + delay * 1_000_000, kind="stable")  # as they arrive
    return Rows(at, site, path, event, ms).where(order)


def _awake(number: int) -> Floats:
    """How busy each site is: its day begins where that of the site before it is an eighth over."""
    phase = number / _DAY - np.arange(len(SITES)) / len(SITES)
    return 1 + 0.4 * np.sin(2 * np.pi * phase)


def _usual_paths(rng: np.random.Generator, site: Ints, number: int, seed: int) -> Ints:
    """Pages, and items by tastes that are on their way from those of this minute to those of the next."""
    size = site.size
    path = np.searchsorted(np.cumsum(list(_PAGES.values())), rng.random(size)).astype(np.int64)
    item = path == len(_PAGES)
    rank = np.searchsorted(_ranks(), rng.random(size))
    minute, late = divmod(number, _TASTE)
    later = rng.random(size) < late / _TASTE
    tastes = np.concatenate([_tastes(minute, seed), _tastes(minute + 1, seed)])
    return np.where(item, _FIRST_ITEM + tastes[site + len(SITES) * later, rank], path)


@lru_cache(maxsize=1)
def _ranks() -> Floats:
    """Zipf's law, flat at the top: up to which number a random one means the item of each rank."""
    weights = (8.0 + np.arange(ITEMS)) ** -1.1
    ends: Floats = np.cumsum(weights) / weights.sum()
    return ends


@lru_cache(maxsize=4)
def _tastes(minute: int, seed: int) -> Ints:
    """The item of each rank at each site: the first twenty are everybody's, the others the site's own."""
    rng = np.random.default_rng([seed, 2**32 + minute])
    order = rng.permutation(ITEMS)
    return np.stack([np.concatenate([order[:20], rng.permutation(order[20:])]) for _ in SITES])
