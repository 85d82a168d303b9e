"""The answers after a batch: tasks compute partial answers of their sites, the driver adds them up.

For queries over all sites no sketch is sent to the driver. A task sends what its sites counted in the ranges of the queries,
added up (``lately.sketches.extracts``), and partial results of exact queries. Ranges end at the newest row of all sites, also
for a site that has been silent.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from lately.config import Counts, Exact, Quantiles, Ranges, SelfJoin, Top
from lately.core.answers import Answers
from lately.core.codec import from_trusted_bytes
from lately.core.durations import Window
from lately.core.errors import RangeError
from lately.core.times import instant_of
from lately.ingest.merging import merge
from lately.pipeline.plan import PipelinePlan, QueryBinding, SketchSpec, StateSpec, WindowsSpec
from lately.pipeline.state_versions import StateVersions
from lately.pipeline.task_payload import unpacked
from lately.sketches.extracts import Extract, ExtractSum, extract, view_of
from lately.spark.sites import each_site

#: A row of the table ``answers``, without batch and time.
Row = dict[str, Any]
#: What sites keep, by site and spec name.
Sites = Iterable[tuple[str, dict[str, Any]]]

#: How many partial results of an exact query are gathered before they are merged into one.
_MERGED_AT_ONCE = 2**12


def partial_answers_job(
    plan: PipelinePlan, state: str, now: int, chunks: Sequence[bytes]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that reads sites from the state and computes their partial answers, for ``mapInArrow``.

    Its input is numbers of chunks.

    Parameters
    ----------
    plan
        The pipeline.
    state
        The directory of the state.
    now
        The tick at which ranges end.
    chunks
        The places of the sites of each chunk, packed.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                specs = [spec for spec in plan.specs if _bindings_of(plan, spec)]
                sites = each_site(StateVersions(state), specs, unpacked(chunks[number]))
                report = json.dumps(partial_answers(plan, now, sites)).encode()
                yield pa.record_batch([pa.array([report], pa.binary())], names=["report"])

    return run


def partial_answers(plan: PipelinePlan, now: int, sites: Sites) -> dict[str, Any]:
    """Return what ``combine_answers`` needs of these sites, as JSON can hold it. Nothing that they keep is changed.

    The result has ``rows`` (answers about single sites), ``extracts`` and ``partials`` (what answers queries over all sites).

    Parameters
    ----------
    plan
        The pipeline.
    now
        The tick at which ranges end.
    sites
        Names of sites, each with what it keeps by the name of the spec.
    """
    extracts: dict[tuple[str, Any], ExtractSum] = defaultdict(ExtractSum)
    partials: dict[str, list[Any]] = defaultdict(list)
    rows: list[Row] = []
    bindings_of = [(spec, _bindings_of(plan, spec)) for spec in plan.specs]
    for site, contents in sites:
        for spec, bindings in bindings_of:
            if isinstance(spec, WindowsSpec):
                windows = _advanced(contents[spec.name], now, plan.window)
                for binding in bindings:
                    rows += _exact_rows(binding, windows, site) if binding.query.by == "site" else []
                if names := [binding.query.name for binding in bindings if binding.query.by == "all"]:
                    partials[spec.name].append(windows.partials(names))
                    if len(partials[spec.name]) >= _MERGED_AT_ONCE:
                        partials[spec.name] = [merge(partials[spec.name])]
                continue
            for last in dict.fromkeys(binding.query.last for binding in bindings if binding.query.by == "all"):
                extracts[spec.name, last].add(extract(contents[spec.name], last, now))
        rows += _site_rows(plan, now, site, contents)
    return {
        "rows": rows,
        "extracts": [[name, last, as_text(total.result().to_bytes())] for (name, last), total in extracts.items()],
        "partials": [[name, as_text(merge(parts).to_bytes())] for name, parts in partials.items()],
    }


def _bindings_of(plan: PipelinePlan, spec: StateSpec) -> list[QueryBinding]:
    return [binding for binding in plan.bindings if spec.name in binding.spec_names]


def _site_rows(plan: PipelinePlan, now: int, site: str, contents: dict[str, Any]) -> list[Row]:
    """Return the answers of sketches about one site alone."""
    rows = []
    for binding in plan.bindings:
        if binding.query.by == "site" and not isinstance(binding.query, Exact):
            sketches = [contents[name] for name in binding.spec_names]
            views = [view_of(sketch, extract(sketch, binding.query.last, now)) for sketch in sketches]
            rows += answer_rows(binding, views, site)
    return rows


def _advanced(windows: Any, now: int, window: Window) -> Any:
    """Return exact windows advanced to a tick; a copy, unless they are there already."""
    if windows._now == now:
        return windows
    advanced = windows.copy()
    advanced.advance(instant_of(now, window))
    return advanced


# -- on the driver -------------------------------------------------------------------------------------------------------


def combine_answers(plan: PipelinePlan, parts: Iterable[dict[str, Any]]) -> tuple[list[Row], int]:
    """Return the rows of the table ``answers``, and how many bytes tasks sent for queries over all sites.

    Parameters
    ----------
    plan
        The pipeline.
    parts
        The partial answers of all tasks, in any order.
    """
    sums: dict[tuple[str, Any], ExtractSum] = defaultdict(ExtractSum)
    partials_of: dict[str, list[Any]] = defaultdict(list)
    rows: list[Row] = []
    shipped = 0
    for part in parts:
        rows += part["rows"]
        for name, last, text in part["extracts"]:
            data = base64.b64decode(text)
            shipped += len(data)
            sums[name, last].add(Extract.from_bytes(data))
        for name, text in part["partials"]:
            data = base64.b64decode(text)
            shipped += len(data)
            partials_of[name].append(from_trusted_bytes(data))
    extracts = {key: total.result() for key, total in sums.items()}
    windows = {name: merge(partials) for name, partials in partials_of.items()}
    for binding in plan.bindings:
        rows += _rows_of_all(plan, binding, extracts, windows) if binding.query.by == "all" else []
    order = {binding.query.name: number for number, binding in enumerate(plan.bindings)}
    rows.sort(key=lambda row: (order[row["query"]], row["site"] or ""))  # tasks end in any order
    return rows, shipped


def _rows_of_all(
    plan: PipelinePlan, binding: QueryBinding, extracts: dict[tuple[str, Any], Extract], windows: dict[str, Any]
) -> list[Row]:
    """Return the answers of a query over all sites; none if no site has what it needs."""
    query, names = binding.query, binding.spec_names
    if isinstance(query, Exact):
        return _exact_rows(binding, windows[names[0]], None) if names[0] in windows else []
    if not all((name, query.last) in extracts for name in names):
        return []
    sketches = {spec.name: spec.empty() for spec in plan.specs if isinstance(spec, SketchSpec) and spec.name in names}
    return answer_rows(binding, [view_of(sketches[name], extracts[name, query.last]) for name in names], None)


def answer_rows(binding: QueryBinding, views: Sequence[Any], site: str | None) -> list[Row]:
    """Return the answers of a query to a sketch as rows of the table ``answers``.

    Parameters
    ----------
    binding
        The query.
    views
        What answers for the range of the query: one for each spec of the query.
    site
        The site that the answers are about; None for all sites.
    """
    query = binding.query
    pairs: list[tuple[Any, Any]]
    if isinstance(query, Counts):
        pairs = list(zip(query.keys, views[0].counts(query.keys), strict=True))
    elif isinstance(query, Top):
        pairs = [(row.key, row.count) for row in views[0].top(query.k)]
    elif isinstance(query, Quantiles):
        try:
            pairs = [(f"{row.q:g}", row.value) for row in views[0].quantile(query.q)]
        except RangeError:  # no arrivals in the range
            return []
    elif isinstance(query, Ranges):
        pairs = [(f"{lo}..{hi}", views[0].count_range(lo, hi)) for lo, hi in query.ranges]
    elif isinstance(query, SelfJoin):
        pairs = [(None, views[0].self_join())]
    else:
        pairs = [(None, views[0].inner_product(views[-1]))]
    return [
        _row(
            query.name,
            site,
            item,
            (float(estimate.value), float(estimate.low), float(estimate.high)),
            float(estimate.confidence),
        )
        for item, estimate in pairs
    ]


def _exact_rows(binding: QueryBinding, windows: Any, site: str | None) -> list[Row]:
    answer = windows[binding.query.name]
    if isinstance(answer.value, Answers):
        return [_row(binding.query.name, site, row.key, (float(row.value),) * 3, 1.0) for row in answer.value]
    assert isinstance(binding.query, Exact)
    # If rows have counts, "count" is a sum of them, which is NULL over no rows; the answer is 0 all the same.
    of_no_rows = 0.0 if binding.query.aggregate == "count" else None
    value = of_no_rows if answer.value is None else float(answer.value)
    return [_row(binding.query.name, site, None, (value,) * 3, 1.0)]


def _row(query: str, site: str | None, item: Any, numbers: tuple[Any, Any, Any], confidence: float) -> Row:
    value, low, high = numbers
    name = item.decode(errors="replace") if isinstance(item, bytes) else None if item is None else str(item)
    return {"query": query, "site": site, "item": name, "value": value, "low": low, "high": high, "confidence": confidence}


def as_text(data: bytes) -> str:
    """Encode bytes in base64, so that JSON can hold them.

    Parameters
    ----------
    data
        Any bytes.
    """
    return base64.b64encode(data).decode()
