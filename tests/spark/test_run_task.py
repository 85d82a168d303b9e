"""A batch on the executors: the order of rows is the same however they come."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipelines import SITES, content, events, in_order, last_answers, run, table, write_files

from lately.pipeline.task_report import all_reasons
from lately.spark.block import Block
from lately.spark.pipeline import Pipeline
from lately.spark.run_task import OTHER_REASONS, Task, TaskInput

QUERIES = [
    {"name": "v", "kind": "quantiles", "lo": 0, "hi": 9, "resolution": 1},
    {"name": "sum", "kind": "exact", "aggregate": "sum", "of": "n", "where": "key > 1"},
]


def columns(rows, length=1000):
    """Rows of time, key, value, where and n, as tasks have them."""
    config = content("source", "folder", columns={"value": "ms", "count": "n"}, queries=QUERIES, window={"length": length})
    plan = Pipeline.of(config).plan
    names = ["time", "key", "value", "where", "count", "x0"]
    kinds = [pa.int64(), pa.int64(), pa.float64(), pa.int64(), pa.int64(), pa.int64()]
    arrays = {name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(zip(names, kinds, strict=True))}
    return Block(arrays, plan, hashed=True)


SMALL = st.integers(0, 2)
ROW = st.tuples(
    st.sampled_from([0, 1, 2, 10**6, 2**62, -(2**62)]), SMALL, SMALL.map(float), SMALL, SMALL, st.none() | st.integers(0, 2**53)
)


@given(st.lists(ROW, min_size=1, max_size=40), st.randoms())
def test_rows_come_by_time_and_in_the_same_order_however_they_were_shuffled(rows, random):
    mixed = rows.copy()
    random.shuffle(mixed)
    orders = [columns(some).in_order(np.arange(len(some))) for some in (rows, mixed)]
    first, second = ([some[i] for i in order] for some, order in zip((rows, mixed), orders, strict=True))
    assert first == second
    assert [row[0] for row in first] == sorted(row[0] for row in rows)


def test_rows_that_share_all_but_the_last_bits_of_what_is_sorted_by_are_still_told_apart():
    """Times that leave no room for anything else in the word."""
    far = [(-(2**62), 0, 0.0, 0, 0, 0)] + [(2**62 - 1, key, 0.0, 0, 0, 0) for key in range(20)]
    forth, back = columns(far), columns(far[::-1])
    order = [far[i] for i in forth.in_order(np.arange(21))]
    assert order == [far[::-1][i] for i in back.in_order(np.arange(21))]
    assert order[0] == far[0]


@pytest.mark.parametrize("mode", ["batch", "available-now"])
def test_sites_may_be_integers(spark, tmp_path, mode):
    """They are called as text calls them, in answers and in the table of late rows."""
    rows = events(3000)
    numbers = pa.array([SITES.index(name) - 1 for name in rows["site"].to_pylist()], pa.int32())
    rows_by_type = {"text": rows, "number": rows.set_column(rows.schema.get_field_index("site"), "site", numbers)}
    configs = {}
    for name, some in rows_by_type.items():
        source = write_files(pa.concat_tables([some, some.slice(0, 5)]), tmp_path / name / "source", 3)
        queries = [{"name": "top", "kind": "top", "by": "site"}, {"name": "all", "kind": "self-join"}]
        configs[name] = content(source, tmp_path / name, mode, queries=queries)
        configs[name]["source"]["columns"] = f"ts timestamp, key bigint, site {'int' if name == 'number' else 'string'}"
        run(spark, configs[name])
    renamed = {name: str(number - 1) for number, name in enumerate(SITES)}

    def answers_of(name):
        answers = [row | {"site": renamed.get(row["site"], row["site"])} for row in last_answers(configs[name])]
        return in_order(answers)

    assert answers_of("text") == answers_of("number")
    assert {row["site"] for row in answers_of("number")} == {"-1", "0", "1", None}
    late_sites = [row["site"] for row in table(configs["number"], "late")]
    assert sorted(late_sites) == sorted([renamed[row["site"]] for row in table(configs["text"], "late")])
    assert len(late_sites) == (0 if mode == "batch" else 5)


def test_a_task_tells_only_so_many_reasons_apart(tmp_path):
    task = Task(
        Pipeline.of(content("source", tmp_path, queries=QUERIES, columns={"value": "ms"})).plan, some_input(tmp_path), 0
    )
    for number in range(500):
        task.count_reason(f"row {number} is wrong", 2)
    task.count_reason("row 3 is wrong", 5)
    reasons = all_reasons([task.report])
    assert (len(reasons), sum(reasons.values())) == (101, 1005)
    assert (reasons["row 3 is wrong"], reasons[OTHER_REASONS]) == (7, 800)


def some_input(folder):
    return TaskInput(
        0, f"{folder}/state", f"{folder}/store", (), None, pa.timestamp("us", "UTC"), pa.schema([]), hashed=True, bundles=True
    )
