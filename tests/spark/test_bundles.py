"""Bundles: the rows of a task's sites travel together, and nothing is lost on the way, however many sites there are."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lately.pipeline.site_assignment import SiteAssignment
from lately.spark.bundles import BUNDLES, bundle, unbundle
from lately.spark.partials import concatenate

SCHEMA = pa.schema({"site": pa.string(), "time": pa.int64(), "value": pa.float64(), "bad": pa.string()})
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["lima", "oslo", "", None]),
        st.integers(0, 9) | st.none(),
        st.just(0.5) | st.none(),
        st.text() | st.none(),
    ),
    max_size=30,
)


def batch(rows, schema=SCHEMA):
    columns = list(zip(*rows, strict=True)) or [[]] * len(schema)
    return pa.record_batch([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)


def packed(batches, assignment=None):
    return list(bundle(assignment or SiteAssignment([], 2))(batches))


@given(st.lists(ROWS, max_size=3))
def test_every_row_comes_out_as_it_went_in(parts):
    sent = [batch(rows) for rows in parts]
    batches = list(unbundle(packed(sent), SCHEMA))
    assert all(part.schema.names == SCHEMA.names for part in batches)
    if batches:
        concatenate([part.column("site") for part in batches])
    rows = [tuple(row.values()) for part in batches for row in part.to_pylist()]
    assert Counter(rows) == Counter(tuple(row.values()) for part in sent for row in part.to_pylist())


@given(ROWS.filter(len))
def test_rows_of_a_site_keep_their_order_and_go_to_one_task(rows):
    assignment = SiteAssignment(["oslo"], 3)
    (made,) = packed([batch(rows)], assignment)
    tasks = made.column("task").to_pylist()
    assert len(set(tasks)) == len(tasks)
    for task, part in zip(tasks, unbundle([made], SCHEMA), strict=True):
        received = [tuple(row.values()) for row in part.to_pylist()]
        assert {assignment.task_of(row[0]) for row in received} == {task}
        for site in {row[0] for row in received}:
            assert [row for row in received if row[0] == site] == [row for row in rows if row[0] == site]


def test_what_is_nowhere_does_not_travel():
    with_nulls = packed([batch([("lima", 1, None, None)] * 1000)])[0].column("rows")[0]
    without = packed([batch([("lima", 1, 0.5, "x")] * 1000)])[0].column("rows")[0]
    assert len(without.as_py()) - len(with_nulls.as_py()) > 1000 * (8 + 1)


def test_integers_are_names_too():
    schema = pa.schema({"site": pa.int64(), "time": pa.int64()})
    (made,) = packed([batch([(7, 1), (-3, 2), (7, 3), (None, 4)], schema)])
    rows = [tuple(row.values()) for part in unbundle([made], schema) for row in part.to_pylist()]
    assert Counter(rows) == Counter([("7", 1), ("7", 3), ("-3", 2), (None, 4)])


@pytest.mark.parametrize("count", [100, 300, 70_000])
def test_any_number_of_sites_fits_a_task(count):
    rows = [(f"site {number}", number, None, None) for number in range(count)] + [(None, -1, None, None)]
    sent = [batch(rows), batch(rows[::-1])]
    made = [one for part in sent for one in packed([part], SiteAssignment([], 1))]
    batches = list(unbundle(made, SCHEMA))
    sites = concatenate([part.column("site") for part in batches])
    assert Counter(sites.to_pylist()) == Counter(row[0] for row in rows + rows)
    assert all(part.num_rows == len(rows) for part in batches)


def test_bytes_grow_with_sites_and_rows_and_not_with_both():
    def size(sites, rows, tasks=8):
        content = [(f"site {number % sites:06d}", number, None, None) for number in range(rows)]
        return sum(len(blob.as_py()) for blob in packed([batch(content)], SiteAssignment([], tasks))[0].column("rows"))

    few, many, most = size(1, 8000), size(4000, 8000), size(8000, 16_000)
    assert many - few < 4000 * 32  # a name and where it ends
    assert most < 2.1 * many


@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_known_sites_are_assigned_evenly_and_every_site_has_one_task(tasks):
    known = [f"site {number}" for number in range(50)]
    assignment, again = SiteAssignment(known, tasks), SiteAssignment(reversed(known), tasks)
    shares = Counter(assignment.task_of(site) for site in known)
    assert max(shares.values()) - min(shares.values()) <= 1
    for site in [*known, "new", "newer", "", None]:
        assert assignment.task_of(site) == again.task_of(site) in range(tasks)


def test_the_columns_that_spark_is_told_are_those_that_come(spark):
    made = packed([batch([("lima", 1, None, None)])])[0]
    frame = spark.createDataFrame([], BUNDLES)
    assert frame.columns == made.schema.names
