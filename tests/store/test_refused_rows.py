"""Late and rejected rows as readers ask for them: the newest, of a site, of a reason, and how many have which reason."""

import random
from collections import Counter

import pytest
from small_stores import filled
from store_builder import new_store, put_batch

from lately.store.tables import UncountedRow
from lately.store.upkeep import tidy
from lately.store.view import View

REASONS = ("no time", "no key", "count is negative: -{}", "time cannot be read: {}")


@pytest.fixture
def store_and_rows(tmp_path):
    """A store with rejected rows in most batches, some of which are in one file, and these rows as a list."""
    dice = random.Random(7)
    store = new_store(tmp_path, "integer")
    rows = []
    for batch in range(100):
        rejected = [
            UncountedRow(
                batch,
                site=dice.choice(["lima", "oslo", None]),
                time=dice.choice([None, batch]),
                reason=dice.choice(REASONS).format(number),
                row=f'{{"n":{number}}}',
            )
            for number in range(dice.randrange(6))
        ]
        put_batch(store, batch, batch, rejected=rejected)
        rows += rejected
    tidy(store)
    assert len(store.files("rejected")) < 50
    return store, rows


def test_the_newest_of_a_site_and_of_a_reason(store_and_rows):
    store, rows = store_and_rows
    view = View(store.path)
    for site in (None, "lima", "nowhere"):
        for reason in (None, "no time", "count is negative", "count is negative: -3", "no"):
            matching = [row for row in rows if site in (None, row.site) and (reason is None or row.reason.startswith(reason))]
            for limit in (1, 10, 1_000):
                assert view.rejected(limit, site=site, reason=reason) == matching[-limit:]
    assert view.late(10) == []


def test_reasons_are_counted_without_the_values_of_rows(store_and_rows):
    store, rows = store_and_rows
    view = View(store.path)
    kinds = Counter(row.reason.split(": ")[0] for row in rows)
    assert view.reasons("rejected") == (dict(kinds), True)
    assert list(view.reasons("rejected")[0].values()) == sorted(kinds.values(), reverse=True)
    at_lima = Counter(row.reason.split(": ")[0] for row in rows if row.site == "lima")
    assert view.reasons("rejected", site="lima") == (dict(at_lima), True)
    assert view.reasons("late") == ({}, True)


def test_counting_ends_at_a_bound_and_says_so(store_and_rows):
    store, rows = store_and_rows
    reasons, complete = View(store.path).reasons("rejected", max_rows=20)
    assert not complete
    assert 20 <= sum(reasons.values()) < len(rows)
    newest = [row for row in rows if row.batch >= 99 - 16]
    assert sum(reasons.values()) <= len(newest)


def test_late_rows_in_files_of_several_tasks(tmp_path):
    view = View(filled(tmp_path, 30).path)
    assert view.reasons("late") == ({"late": 16}, True)
    assert [row.batch for row in view.late(3, site="0001")] == [21, 25, 29]
