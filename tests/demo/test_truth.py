"""Exact answers are what one gets by counting, and broken bounds are noticed."""

import math
from collections import Counter

import pytest

from lately.config import of
from lately.demo.pipeline_file import pipeline_file
from lately.demo.scenario import Scenario
from lately.demo.traffic import EVENTS, PATHS, SITES, rows_of_second
from lately.demo.truth import Truth, allowed_misses, checked
from lately.store.tables import Answer

SCENARIO, NOW = Scenario.of(30), 12


@pytest.fixture(scope="module")
def truth():
    content = pipeline_file("nowhere")
    for query in content["queries"]:
        query["last"] = "5s"
    return Truth(of(content), seed=1, scenario=SCENARIO)


@pytest.fixture(scope="module")
def rows():
    """What had come by NOW and was from the last five seconds, in plain Python."""
    found = []
    for number in range(NOW + 1):
        one = rows_of_second(number, 1, SCENARIO)
        columns = (one.tick.tolist(), one.site.tolist(), one.path.tolist(), one.event.tolist(), one.ms.tolist())
        found += [row for row in zip(*columns, strict=True) if row[0] > NOW - 5]
    return found


def ask(truth, query, item=None, site=None):
    return truth.exact(Answer(None, 0, query, site, item), NOW)


def test_counts(truth, rows):
    seen = Counter(PATHS[path] for _, _, path, _, _ in rows)
    assert ask(truth, "funnel", "/login") == seen["/login"]
    assert ask(truth, "hot pages", "/") == seen["/"]
    assert ask(truth, "requests") == len(rows)
    here = [row for row in rows if SITES[row[1]] == "lima"]
    assert ask(truth, "requests by site", site="lima") == len(here)
    assert ask(truth, "hot pages by site", "/", "lima") == sum(PATHS[path] == "/" for _, _, path, _, _ in here)


def test_numbers(truth, rows):
    times = sorted(ms for *_, ms in rows)
    assert ask(truth, "latency", "0.9") == times[math.ceil(0.9 * len(times)) - 1]


def test_joins(truth, rows):
    seen = Counter(path for _, _, path, _, _ in rows)
    assert ask(truth, "skew") == sum(count * count for count in seen.values())
    views, buys = (Counter(path for _, _, path, event, _ in rows if EVENTS[event] == one) for one in ("view", "buy"))
    assert ask(truth, "seen and bought") == sum(count * buys[path] for path, count in views.items())


def test_answers_are_held_against_it_and_monitors_are_not(truth):
    exact = ask(truth, "requests")
    answers = [Answer(None, 0, "requests", low=exact - off, high=exact - off) for off in (0, 1)] + [
        Answer(None, 0, "login flood", low=0.0, high=1.0)
    ]
    assert [row.within_bounds for row in checked(truth, answers, NOW)] == [True, False]


@pytest.mark.parametrize(("confidence", "number", "most"), [(0.99, 0, 0), (0.99, 1, 1), (0.99, 10_000, 130), (1.0, 500, 0)])
def test_how_many_bounds_may_break(confidence, number, most):
    assert allowed_misses([confidence] * number) == most
