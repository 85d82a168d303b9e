"""The answers after a batch: sites extract what queries ask for, the driver adds it up.

For questions over all sites no sketch travels, only what each task's sites counted in the ranges that are asked for, added up
(see ``lately.sketches.extracts``). Ranges end at the newest row of all sites, also at a site that has been silent for a while.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lately.config import Counts, Exact, Quantiles, Ranges, Top
from lately.core.answers import Answers
from lately.core.codec import from_trusted_bytes
from lately.core.durations import Window
from lately.core.errors import RangeError
from lately.core.times import instant_of
from lately.ingest.windowed import merge
from lately.pipeline.plan import PipelinePlan, QueryBinding, SketchSpec, WindowsSpec
from lately.pipeline.state_versions import StateVersions, unpacked
from lately.sketches.extracts import Extract, ExtractSum, extract, view_of
from lately.spark.sites import each_site

Row = dict[str, Any]

#: Partial results of exact queries that wait to be combined.
_PARTIALS = 2**12


@dataclass(frozen=True)
class Moment:
    """The state to be asked, and the moment at which ranges end."""

    state: str
    now: int


def share_job(
    plan: PipelinePlan, moment: Moment, chunks: Sequence[bytes]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What every task runs: the answers of its sites, and their share of what is asked of all.

    A chunk holds the places of a task's sites, packed.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                report = json.dumps(_share(plan, moment, chunks[number])).encode()
                yield pa.record_batch([pa.array([report], pa.binary())], names=["report"])

    return run


def _share(plan: PipelinePlan, moment: Moment, packed: bytes) -> dict[str, Any]:
    wanted = [thing for thing in plan.specs if any(thing.name in ask.spec_names for ask in plan.bindings)]
    return share(plan, moment.now, each_site(StateVersions(moment.state), wanted, unpacked(packed)))


def share(plan: PipelinePlan, now: int, sites: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """What these sites, each with its sketches by name, have to say at a moment; nothing of theirs is changed."""
    extracts: dict[tuple[str, Any], ExtractSum] = defaultdict(ExtractSum)
    partials: dict[str, list[Any]] = defaultdict(list)
    rows: list[Row] = []
    asks = [(thing, [ask for ask in plan.bindings if thing.name in ask.spec_names]) for thing in plan.specs]
    for site, sketches in sites:
        for thing, mine in asks:
            if isinstance(thing, WindowsSpec):
                seen = _at(sketches[thing.name], now, plan.window)
                rows += [row for ask in mine if ask.query.by == "site" for row in _exact_rows(ask, seen, site)]
                if whole := [ask.query.name for ask in mine if ask.query.by == "all"]:
                    partials[thing.name].append(seen.partials(whole))
                    if len(partials[thing.name]) >= _PARTIALS:
                        partials[thing.name] = [merge(partials[thing.name])]
                continue
            for last in dict.fromkeys(ask.query.last for ask in mine if ask.query.by == "all"):
                extracts[thing.name, last].add(extract(sketches[thing.name], last, now))
        rows += _site_rows(plan, now, site, sketches)
    return {
        "rows": rows,
        "extracts": [[name, last, as_text(known.result().to_bytes())] for (name, last), known in extracts.items()],
        "partials": [[name, as_text(merge(told).to_bytes())] for name, told in partials.items()],
    }


def _site_rows(plan: PipelinePlan, now: int, site: str, sketches: dict[str, Any]) -> list[Row]:
    """The answers about one site alone."""
    rows = []
    for ask in plan.bindings:
        if ask.query.by == "site" and not isinstance(ask.query, Exact):
            asked = [sketches[name] for name in ask.spec_names]
            rows += answer_rows(ask, [view_of(sketch, extract(sketch, ask.query.last, now)) for sketch in asked], site)
    return rows


def _at(windows: Any, now: int, window: Window) -> Any:
    """Exact windows as they are at a moment."""
    if windows._now == now:
        return windows
    twin = windows.copy()
    twin.advance(instant_of(now, window))
    return twin


# -- on the driver -------------------------------------------------------------------------------------------------------


def answers_of(plan: PipelinePlan, shares: Iterable[dict[str, Any]]) -> tuple[list[Row], int]:
    """The answers from what tasks have told, and how many bytes travelled for those over all sites."""
    sums: dict[tuple[str, Any], ExtractSum] = defaultdict(ExtractSum)
    told_partials: dict[str, list[Any]] = defaultdict(list)
    rows: list[Row] = []
    shipped = 0
    for told in shares:
        rows += told["rows"]
        for name, last, text in told["extracts"]:
            data = base64.b64decode(text)
            shipped += len(data)
            sums[name, last].add(Extract.from_bytes(data))
        for name, text in told["partials"]:
            data = base64.b64decode(text)
            shipped += len(data)
            told_partials[name].append(from_trusted_bytes(data))
    extracts = {asked: known.result() for asked, known in sums.items()}
    partials = {name: merge(told) for name, told in told_partials.items()}
    kept = {thing.name: thing for thing in plan.specs}
    for ask in plan.bindings:
        if ask.query.by == "site":
            continue
        if isinstance(ask.query, Exact):
            if ask.spec_names[0] in partials:
                rows += _exact_rows(ask, partials[ask.spec_names[0]], None)
        elif all((name, ask.query.last) in extracts for name in ask.spec_names):
            asked = [(kept[name], extracts[name, ask.query.last]) for name in ask.spec_names]
            rows += answer_rows(
                ask, [view_of(thing.empty(), known) for thing, known in asked if isinstance(thing, SketchSpec)], None
            )
    order = {ask.query.name: place for place, ask in enumerate(plan.bindings)}
    rows.sort(key=lambda row: (order[row["query"]], row["site"] or ""))  # tasks end in any order
    return rows, shipped


def answer_rows(ask: QueryBinding, known: Sequence[Any], site: str | None) -> list[Row]:
    """A query's answers as rows of the table ``answers``."""
    query = ask.query
    pairs: list[tuple[Any, Any]]
    if isinstance(query, Counts):
        pairs = list(zip(query.keys, known[0].counts(query.keys), strict=True))
    elif isinstance(query, Top):
        pairs = [(row.key, row.count) for row in known[0].top(query.k)]
    elif isinstance(query, Quantiles):
        try:
            pairs = [(f"{row.q:g}", row.value) for row in known[0].quantile(query.q)]
        except RangeError:  # nothing in the range
            return []
    elif isinstance(query, Ranges):
        pairs = [(f"{lo}..{hi}", known[0].count_range(lo, hi)) for lo, hi in query.ranges]
    else:
        pairs = [(None, known[0].inner_product(known[-1]))]
    return [
        _row(query.name, site, item, (float(found.value), float(found.low), float(found.high)), float(found.confidence))
        for item, found in pairs
    ]


def _exact_rows(ask: QueryBinding, windows: Any, site: str | None) -> list[Row]:
    answer = windows[ask.query.name]
    if isinstance(answer.value, Answers):
        return [_row(ask.query.name, site, row.key, (float(row.value),) * 3, 1.0) for row in answer.value]
    assert isinstance(ask.query, Exact)
    nothing = 0.0 if ask.query.aggregate == "count" else None  # where rows count several times each, it is a sum
    value = nothing if answer.value is None else float(answer.value)
    return [_row(ask.query.name, site, None, (value,) * 3, 1.0)]


def _row(query: str, site: str | None, item: Any, numbers: tuple[Any, Any, Any], confidence: float) -> Row:
    value, low, high = numbers
    name = item.decode(errors="replace") if isinstance(item, bytes) else None if item is None else str(item)
    return {"query": query, "site": site, "item": name, "value": value, "low": low, "high": high, "confidence": confidence}


def as_text(data: bytes) -> str:
    """Bytes as JSON can hold them."""
    return base64.b64encode(data).decode()
