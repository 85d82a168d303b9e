"""What a pipeline will keep, guarantee and cost, known before it runs: plain data, for tables and JSON. Spark is not started.

Sizes are measured, not calculated: the sketches are built and fed a synthetic stream.
"""

from typing import Any

import numpy as np

from lately.config import Config, Counts, Exact, Join, MonitorTable, Quantiles, Query, Ranges, Top
from lately.core.columns import Ints
from lately.core.durations import Window
from lately.core.errors import ParameterError
from lately.pipeline.plan import MonitorSpec, PipelinePlan, SketchSpec, StateSpec, WindowsSpec
from lately.sketches.kinds import KINDS, Question
from lately.store import tables

#: Rows of the synthetic stream; for more arrivals each row counts several times.
_ROWS = 1_000_000
_KEYS = 100_000

#: The question to a sketch that stands behind each kind of query.
_QUESTIONS: dict[str, Question] = {
    "counts": "count",
    "top": "top",
    "quantiles": "quantiles",
    "ranges": "range",
    "self-join": "self-join",
    "join": "inner-product",
}


def explain(config: Config, arrivals: int = 1_000_000) -> dict[str, Any]:
    """Describe what a pipeline reads, keeps, guarantees and writes.

    Parameters
    ----------
    config
        The pipeline file.
    arrivals
        How many rows of one site a window holds; sizes are measured for that many. By default a million.

    >>> from lately.config import of
    >>> explanation = explain(of({
    ...     "source": {"format": "parquet", "path": "events", "mode": "batch"},
    ...     "columns": {"time": "ts", "key": "url"},
    ...     "window": {"length": "1h"},
    ...     "queries": [{"name": "hot", "kind": "top"}, {"name": "few", "kind": "top", "k": 3, "last": "10m"}],
    ...     "store": {"path": "answers"},
    ... }), arrivals=1000)
    >>> [(state["class"], state["queries"]) for state in explanation["state"]], explanation["queries"][1]["error"]
    ([('TopK', ['hot', 'few'])], 'within 1% of the rows in the range, 99% sure')
    """
    if arrivals < 1:
        raise ParameterError(f"arrivals={arrivals}", remedy="must be at least 1")
    plan = PipelinePlan.of(config)
    state = [_state(plan, spec, arrivals) for spec in plan.specs]
    return {
        "name": config.name,
        "source": _source(config),
        "window": _window(config, plan.window),
        "row_columns": _row_columns(plan),
        "arrivals": arrivals,
        "state": state,
        "site": {name: sum(part[name] for part in state) for name in ("empty_bytes", "bytes", "stored_bytes")},
        "measured": f"built here and fed {arrivals:,} arrivals, spread evenly over the window, of up to {_KEYS:,} keys, some "
        "of them frequent (Zipf); a site with other keys may take more or less",
        "queries": [_query(config, plan.window, query) for query in config.queries],
        "monitors": [_monitor(config, settings) for settings in config.monitors],
        "output": _output(config),
    }


# -- the input ---------------------------------------------------------------------------------------------------------


def _source(config: Config) -> dict[str, Any]:
    source = config.source
    descriptions = {
        "batch": "reads all rows, answers once and ends",
        "available-now": "reads what is new since the last run and ends",
        "continuous": f"looks for new rows every {config.run.trigger}, until it is stopped",
    }
    return {
        "format": source.format,
        "path": source.path,
        "mode": source.mode,
        "options": dict(source.options),
        "trigger": config.run.trigger if source.mode == "continuous" else None,
        "description": descriptions[source.mode],
    }


def _window(config: Config, window: Window) -> dict[str, Any]:
    table = config.window
    lateness = window.text(window.length(table.lateness)) if table.lateness else None
    future = None if table.future is None else str(table.future)
    newest = "newest row of its site" if config.columns.site else "newest row"
    limit = f"a row may be up to {lateness} older than the {newest}" if lateness else f"a row older than the {newest} is late"
    rejected = f"; rows more than {future} in the future go to the table rejected" if future else ""
    return {
        "length": window.text(window.ticks),
        "tick": window.text(1),
        "lateness": lateness,
        "future": future,
        "description": f"{limit}, across batches; late rows go to the table late{rejected}",
    }


def _row_columns(plan: PipelinePlan) -> list[dict[str, str]]:
    """The columns that are sent from Java to Python for every row."""
    columns = plan.config.columns
    sent = [("site", "text", columns.site or "one site: empty"), ("time", "8 bytes", columns.time)]
    if plan.needs_keys:
        sent.append(("key", "as it is", f"{columns.key}, which answers show or read as a number"))
    else:
        sent.append(("key", "8 bytes", f"{columns.key}, hashed in Java unless it is an integer"))
    if plan.value_queries:
        sent.append(("value", "8 bytes", str(columns.value)))
    if columns.count is not None:
        sent.append(("count", "8 bytes", columns.count))
    if plan.filters:
        sent.append(("where", "8 bytes", f"a bit for each of: {'; '.join(plan.filters)}"))
    sent += [(f"x{i}", "8 bytes or text", text) for i, text in enumerate(plan.exact_columns)]
    sent.append(("reason, row", "null, or text", "why a row is rejected; the row if it is rejected or may be late"))
    return [{"column": name, "type": kind, "from": text} for name, kind, text in sent]


# -- the state of a site -----------------------------------------------------------------------------------------------


def _state(plan: PipelinePlan, spec: StateSpec, arrivals: int) -> dict[str, Any]:
    bits = [bit for _, bit in spec.streams] if isinstance(spec, MonitorSpec) else [spec.filter_bit]
    described: dict[str, Any] = {
        "name": spec.name,
        "where": " / ".join(plan.filters[bit] for bit in bits if bit is not None) or None,
        "queries": [binding.query.name for binding in plan.bindings if spec.name in binding.spec_names],
    }
    if isinstance(spec, SketchSpec):
        kind, options = KINDS[spec.recipe.kind], dict(spec.recipe.options)
        described |= {
            "class": kind.sketch_class.__name__,
            "options": {name: options[name] for name in kind.guarantee},
            "merged_eps": None if kind.merged_eps is None else round(kind.merged_eps(options), 6),
        }
    elif isinstance(spec, WindowsSpec):
        described |= {"class": "Windows", "options": {}, "merged_eps": 0.0}
    else:
        described |= {"class": "Monitor", "options": {}, "merged_eps": None, "queries": [spec.settings.name]}
    return described | _sizes(plan, spec, arrivals)


def _sizes(plan: PipelinePlan, spec: StateSpec, arrivals: int) -> dict[str, int]:
    """Bytes when empty, and in memory and stored after that many arrivals."""
    rng = np.random.default_rng(1)
    rows, window = min(arrivals, _ROWS), plan.window
    keys = rng.zipf(1.2, rows) % _KEYS
    span = window.ticks * window.unit // 10**9 if window.kind == "time" else window.ticks * window.unit
    times = (np.arange(rows) * (span / rows)).astype(np.int64)
    if isinstance(spec, MonitorSpec):
        return _monitor_sizes(spec, keys, times, _repeats(rows, arrivals))
    if isinstance(spec, WindowsSpec):
        return _windows_sizes(spec, keys, times, arrivals)
    sketch = spec.empty()
    empty = sketch.nbytes
    example_keys = KINDS[spec.recipe.kind].example_keys(keys, dict(spec.recipe.options))
    sketch.update(example_keys, times, _repeats(rows, arrivals))
    return {"empty_bytes": empty, "bytes": sketch.nbytes, "stored_bytes": len(sketch.to_bytes())}


def _repeats(rows: int, arrivals: int) -> Ints | None:
    """How often each row counts, so that there are as many arrivals; None if each counts once."""
    return None if rows == arrivals else np.diff(np.arange(rows + 1) * arrivals // rows)


def _monitor_sizes(spec: MonitorSpec, keys: Ints, times: Ints, counts: Ints | None) -> dict[str, int]:
    site = spec.monitor.site(1, birth=1)
    empty = len(site.to_bytes())
    for stream, _ in spec.streams:
        site.update(keys, times, counts, stream)
    size = len(site.to_bytes())
    return {"empty_bytes": empty, "bytes": size, "stored_bytes": size}


def _windows_sizes(spec: WindowsSpec, keys: Ints, times: Ints, arrivals: int) -> dict[str, int]:
    """Exact windows keep every row, so their size is proportional to the number of rows."""
    windows = spec.empty()
    empty = windows.nbytes
    columns = {text for query in spec.queries for text in (query.of, query.per) if text is not None}
    windows.update(dict.fromkeys(columns, keys) or {"time": times}, times)
    scale = arrivals / len(times)
    return {
        "empty_bytes": empty,
        "bytes": int(windows.nbytes * scale),
        "stored_bytes": int(len(windows.to_bytes()) * scale),
    }


# -- guarantees --------------------------------------------------------------------------------------------------------


def _query(config: Config, window: Window, query: Query) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": query.name,
        "kind": query.kind,
        "question": _question(query),
        "last": window.text(window.ticks if query.last is None else window.length(query.last)),
        "by": query.by,
        "where": f"{query.left} / {query.right}" if isinstance(query, Join) else query.where,
        "all_sites": _all_sites(query),
    }
    sketch = config.sketch_of(query)
    if sketch is None:
        return described | {"eps": 0.0, "of": None, "confidence": 1.0, "error": "exact"}
    kind, options = sketch
    eps, confidence = options["eps"], 1 - options["delta"]
    suitability = KINDS[kind].suitability(_QUESTIONS[query.kind], options.get("query"))
    assert suitability is not None
    within = "the rank is within" if isinstance(query, Quantiles) else "within"
    return described | {
        "eps": eps,
        "of": suitability.error_share,
        "confidence": round(confidence, 12),
        "error": f"{within} {eps * 100:.6g}% of {suitability.error_share}, {confidence * 100:.6g}% sure",
    }


def _all_sites(query: Query) -> str:
    if query.by == "site":
        return "one answer for each site, about its own rows"
    if isinstance(query, Exact):
        return "sites send partial results, which add up exactly"
    return "sites send their counts of the range, which add up: the same error as for one site, none for merging"


def _question(query: Query) -> str:
    if isinstance(query, Counts):
        return f"count of {query.keys[0]!r}" if len(query.keys) == 1 else f"counts of {len(query.keys):,} keys"
    if isinstance(query, Top):
        return f"the {query.k:,} most frequent keys"
    if isinstance(query, Quantiles):
        return f"quantiles {', '.join(f'{q:g}' for q in query.q)}"
    if isinstance(query, Ranges):
        ranges = f"{len(query.ranges):,} ranges" if len(query.ranges) > 1 else "a range"
        return f"number of keys in {ranges}"
    if isinstance(query, Exact):
        aggregate = query.aggregate + (f" {query.q:g}" if query.q is not None else "") + (f" of {query.of}" if query.of else "")
        limit = f"above {query.above:g}" if query.above is not None else f"below {query.below or 0:g}"
        return aggregate if query.per is None else f"each {query.per} with a {aggregate} {limit}"
    return "pairs of rows with the same key" if isinstance(query, Join) else "the sum of the squares of all counts"


def _monitor(config: Config, settings: MonitorTable) -> dict[str, Any]:
    window = config.window.window
    theta = settings.theta
    if settings.kind == "frequent":
        threshold = settings.tau
        tolerance = f"keys within {theta:.3g} of {threshold:,.10g} may be listed or not"
    elif (threshold := settings.above if settings.below is None else settings.below) is not None:
        side = "above" if settings.below is None else "below"
        tolerance = f"fires {side} {threshold:,.10g}; values within {theta:.3g} of {threshold:,.10g} may be on either side"
    else:
        tolerance = f"the value is tracked to within {theta:.3g} of itself"
    eps, confidence = settings.sketch_eps, 1 - settings.delta
    return {
        "name": settings.name,
        "value": f"count of {settings.key!r}" if settings.kind == "count" else settings.kind,
        "threshold": threshold,
        "theta": theta,
        "last": window.text(window.ticks if settings.last is None else window.length(settings.last)),
        "scheme": settings.scheme,
        "eps": eps,
        "confidence": round(confidence, 12),
        "where": f"{settings.left} / {settings.right}" if settings.kind == "join" else settings.where,
        "description": f"{tolerance}; plus the sketch's own eps of {eps:.3g}, {confidence * 100:.6g}% sure",
    }


# -- the output --------------------------------------------------------------------------------------------------------


def _output(config: Config) -> dict[str, Any]:
    stored, is_batch = config.store.sketches, config.source.mode == "batch"
    return {
        "store": config.store.path,
        "tables": [name for name in tables() if name != "sketches" or stored != "never"],
        "sketches": {"never": "not stored", "always": "stored after every batch"}.get(str(stored), f"stored every {stored}"),
        "keep": config.store.keep,
        "state": None if is_batch else config.run.checkpoint,
        "description": "no state is kept: each run reads everything again"
        if is_batch
        else "an interrupted run is continued by the next one, and every row counts once",
        "master": config.run.master,
    }
