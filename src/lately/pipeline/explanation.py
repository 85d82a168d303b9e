"""What a pipeline will keep, promise and cost, before it runs: plain data, for people and for JSON; Spark is not started.

Sizes are not formulas: the sketches are built and fed a made-up stream, and measured.
"""

from typing import Any

import numpy as np

from lately.config import Config, Counts, Exact, Join, MonitorTable, Quantiles, Query, Ranges, Top
from lately.core.durations import Window
from lately.core.errors import ParameterError
from lately.core.plan import merged_error, split
from lately.pipeline.plan import MonitorSpec, PipelinePlan, SketchSpec, StateSpec, WindowsSpec
from lately.store import tables

#: Rows of the made-up stream; above that each counts more than once.
_ROWS = 1_000_000
_KEYS = 100_000

_OF = {
    "counts": "the rows in the range",
    "top": "the rows in the range",
    "quantiles": "the rows in the range",
    "ranges": "the rows in the range of time",
    "self-join": "the square of the rows in the range",
    "join": "left rows times right rows in the range",
}
_CLASSES = {"ecm": "EcmSketch", "topk": "TopK", "quantiles": "Quantiles", "dyadic": "Dyadic"}


def explain(config: Config, arrivals: int = 1_000_000) -> dict[str, Any]:
    """Everything that there is to know of a pipeline beforehand; ``arrivals`` is how many rows of a site a window holds.

    >>> from lately.config import of
    >>> said = explain(of({
    ...     "source": {"format": "parquet", "path": "events", "mode": "batch"},
    ...     "columns": {"time": "ts", "key": "url"},
    ...     "window": {"length": "1h"},
    ...     "queries": [{"name": "hot", "kind": "top"}, {"name": "few", "kind": "top", "k": 3, "last": "10m"}],
    ...     "store": {"path": "answers"},
    ... }), arrivals=1000)
    >>> [(sketch["class"], sketch["queries"]) for sketch in said["kept"]], said["queries"][1]["error"]
    ([('TopK', ['hot', 'few'])], 'within 1% of the rows in the range, 99% sure')
    """
    if arrivals < 1:
        raise ParameterError(f"{arrivals} arrivals in a window; give at least 1")
    plan = PipelinePlan.of(config)
    kept = [_thing(plan, thing, arrivals) for thing in plan.specs]
    whole = {name: sum(one[name] for one in kept) for name in ("empty_bytes", "bytes", "stored_bytes")}
    return {
        "name": config.name,
        "source": _source(config),
        "window": _window(config, plan.window),
        "crossing": _crossing(plan),
        "arrivals": arrivals,
        "kept": kept,
        "site": whole,
        "measured": f"built here and fed {arrivals:,} arrivals, spread evenly over the window, of up to {_KEYS:,} keys, some "
        "of them frequent (Zipf); a site with other keys may take more or less",
        "queries": [_query(config, plan.window, query) for query in config.queries],
        "monitors": [_monitor(config, watch) for watch in config.monitors],
        "goes": _goes(config),
    }


# -- where rows come from, and what of them crosses --------------------------------------------------------------------


def _source(config: Config) -> dict[str, Any]:
    source = config.source
    how = {
        "batch": "reads all there is, answers once and ends",
        "available-now": "reads what is new since the last run and ends",
        "continuous": f"looks for new rows every {config.run.trigger}, until it is stopped",
    }
    return {
        "format": source.format, "path": source.path, "mode": source.mode, "options": dict(source.options),
        "trigger": config.run.trigger if source.mode == "continuous" else None, "says": how[source.mode],
    }  # fmt: skip


def _window(config: Config, window: Window) -> dict[str, Any]:
    table = config.window
    late = window.text(window.length(table.lateness)) if table.lateness else None
    future = None if table.future is None else str(table.future)
    newest = "newest row of its site" if config.columns.site else "newest row"
    says = f"a row may be {late or 'no'} older than the {newest}" if late else f"a row older than the {newest} is late"
    return {
        "length": window.text(window.ticks), "tick": window.text(1), "lateness": late, "future": future,
        "says": f"{says}, from batch to batch; what is late goes into the table late"
        + (f", what is more than {future} in the future into rejected" if future else ""),
    }  # fmt: skip


def _crossing(plan: PipelinePlan) -> list[dict[str, str]]:
    """The columns that go from Java to Python for every row."""
    columns = plan.config.columns
    crossing = [("site", "text", columns.site or "one site: empty"), ("time", "8 bytes", columns.time)]
    if plan.needs_keys:
        crossing.append(("key", "as it is", f"{columns.key}, which answers show or read as a number"))
    else:
        crossing.append(("key", "8 bytes", f"{columns.key}, hashed in Java unless it is an integer"))
    if plan.value_queries:
        crossing.append(("value", "8 bytes", str(columns.value)))
    if columns.count is not None:
        crossing.append(("count", "8 bytes", columns.count))
    if plan.filters:
        crossing.append(("where", "8 bytes", f"a bit for each of: {'; '.join(plan.filters)}"))
    crossing += [(f"x{i}", "8 bytes or text", text) for i, text in enumerate(plan.exact_columns)]
    crossing.append(("reason, row", "null, or text", "why a row is rejected, and the row if it is, or if it may be late"))
    return [{"column": name, "type": kind, "from": text} for name, kind, text in crossing]


# -- what is kept ------------------------------------------------------------------------------------------------------


def _thing(plan: PipelinePlan, thing: StateSpec, arrivals: int) -> dict[str, Any]:
    asked = [ask.query.name for ask in plan.bindings if thing.name in ask.spec_names]
    bits = [bit for _, bit in thing.streams] if isinstance(thing, MonitorSpec) else [thing.filter_bit]
    where = " / ".join(plan.filters[bit] for bit in bits if bit is not None) or None
    said: dict[str, Any] = {"name": thing.name, "where": where, "queries": asked}
    if isinstance(thing, SketchSpec):
        given = dict(thing.recipe.options)
        options = {name: given[name] for name in _SHOWN[thing.recipe.kind]}
        said |= {"class": _CLASSES[thing.recipe.kind], "options": options, "error_once_merged": _merged(thing)}
    elif isinstance(thing, WindowsSpec):
        said |= {"class": "Windows", "options": {}, "error_once_merged": 0.0}
    else:
        said |= {"class": "Monitor", "options": {}, "error_once_merged": None, "queries": [thing.settings.name]}
    return said | _measured(plan, thing, arrivals)


_SHOWN = {
    "ecm": ("eps", "delta", "query"),
    "topk": ("eps", "delta"),
    "quantiles": ("eps", "delta", "lo", "hi", "resolution"),
    "dyadic": ("eps", "delta", "universe"),
}


def _merged(thing: SketchSpec) -> float:
    """What eps becomes when the stored sketches of sites are merged in one step; of a TopK and of trees about."""
    options = dict(thing.recipe.options)
    eps = float(options["eps"])
    if thing.recipe.kind != "ecm":
        return round(eps * (1 + 1.2 / 8), 6) if thing.recipe.kind == "topk" else round(eps * (0.45 * (2 + 2.4) + 0.2), 6)
    eps_cm, eps_sw = split(eps, options["query"])
    counters = 1 + merged_error(eps_sw, 1)
    part = counters if options["query"] == "point" else counters**2
    return round(max(part - 1, eps_cm * part), 6)


def _measured(plan: PipelinePlan, thing: StateSpec, arrivals: int) -> dict[str, int]:
    """Bytes of an empty one, and in memory and stored after so many arrivals."""
    rng = np.random.default_rng(1)
    rows, window = min(arrivals, _ROWS), plan.window
    keys = rng.zipf(1.2, rows) % _KEYS
    span = window.ticks * window.unit // 10**9 if window.kind == "time" else window.ticks * window.unit
    times = (np.arange(rows) * (span / rows)).astype(np.int64)
    counts = None if rows == arrivals else np.diff(np.arange(rows + 1) * arrivals // rows)
    if isinstance(thing, MonitorSpec):
        site = thing.monitor.site(1, birth=1)
        empty = len(site.to_bytes())
        for stream, _ in thing.streams:
            site.update(keys, times, counts, stream)
        return {"empty_bytes": empty, "bytes": len(site.to_bytes()), "stored_bytes": len(site.to_bytes())}
    made: Any = thing.empty()
    empty = made.nbytes
    if isinstance(thing, WindowsSpec):  # every row is kept: so many times as large as what was fed
        read = {text for query in thing.queries for text in (query.of, query.per) if text is not None}
        made.update(dict.fromkeys(read, keys) or {"time": times}, times)
        scale = arrivals / rows
        full, stored = int(made.nbytes * scale), int(len(made.to_bytes()) * scale)
    else:
        made.update(_keys_for(thing, keys), times, counts)
        full, stored = made.nbytes, len(made.to_bytes())
    return {"empty_bytes": empty, "bytes": full, "stored_bytes": stored}


def _keys_for(thing: SketchSpec, keys: Any) -> Any:
    options = dict(thing.recipe.options)
    if thing.recipe.kind == "quantiles":
        return options["lo"] + keys / _KEYS * (options["hi"] - options["lo"])
    return keys % options["universe"] if thing.recipe.kind == "dyadic" else keys


# -- what is promised --------------------------------------------------------------------------------------------------


def _query(config: Config, window: Window, query: Query) -> dict[str, Any]:
    last = window.text(window.ticks if query.last is None else window.length(query.last))
    said: dict[str, Any] = {"name": query.name, "kind": query.kind, "asks": _asks(query), "last": last, "by": query.by}
    said["where"] = f"{query.left} / {query.right}" if isinstance(query, Join) else query.where
    if isinstance(query, Exact):
        return said | {"eps": 0.0, "of": None, "confidence": 1.0, "error": "exact", "all_sites": _all_sites(query)}
    found = config.sketch_of(query)
    assert found is not None
    eps, sure = found[1]["eps"], 1 - found[1]["delta"]
    of = _OF[query.kind]
    off = "the rank is within" if isinstance(query, Quantiles) else "within"
    error = f"{off} {eps * 100:.6g}% of {of}"
    return said | {
        "eps": eps, "of": of, "confidence": round(sure, 12), "error": f"{error}, {sure * 100:.6g}% sure",
        "all_sites": _all_sites(query),
    }  # fmt: skip


def _all_sites(query: Query) -> str:
    if query.by == "site":
        return "one answer for each site, about its own rows"
    if isinstance(query, Exact):
        return "sites send partial results, which add up exactly"
    return "sites send what they counted in the range, which adds up: the same error as one site's, none for merging"


def _asks(query: Query) -> str:
    if isinstance(query, Counts):
        return f"how often {query.keys[0]!r} came" if len(query.keys) == 1 else f"how often {len(query.keys):,} keys came"
    if isinstance(query, Top):
        return f"the {query.k:,} most frequent keys"
    if isinstance(query, Quantiles):
        return f"quantiles {', '.join(f'{q:g}' for q in query.q)}"
    if isinstance(query, Ranges):
        many = f"{len(query.ranges):,} ranges" if len(query.ranges) > 1 else "a range"
        return f"how many keys lie in {many}"
    if isinstance(query, Exact):
        what = query.aggregate + (f" {query.q:g}" if query.q is not None else "") + (f" of {query.of}" if query.of else "")
        line = f"above {query.above:g}" if query.above is not None else f"below {query.below or 0:g}"
        return what if query.per is None else f"which {query.per} have a {what} {line}"
    return "pairs of rows with the same key" if isinstance(query, Join) else "the sum of the squares of all counts"


def _monitor(config: Config, watch: MonitorTable) -> dict[str, Any]:
    window = config.window.window
    last = window.text(window.ticks if watch.last is None else window.length(watch.last))
    what = f"count of {watch.key!r}" if watch.kind == "count" else watch.kind
    where = f"{watch.left} / {watch.right}" if watch.kind == "join" else watch.where
    if watch.kind == "frequent":
        line, tolerance = watch.tau, f"keys within {watch.theta:.3g} of {watch.tau:,.10g} may be listed or not"
    elif (line := watch.above if watch.below is None else watch.below) is not None:
        side = "above" if watch.below is None else "below"
        tolerance = f"fires {side} {line:,.10g}; values within {watch.theta:.3g} of {line:,.10g} may be on either side"
    else:
        line, tolerance = None, f"the value is followed, within {watch.theta:.3g} of itself"
    return {
        "name": watch.name, "watches": what, "line": line, "theta": watch.theta, "last": last, "scheme": watch.scheme,
        "eps": watch.finesse, "confidence": round(1 - watch.delta, 12), "where": where,
        "says": f"{tolerance}; and the sketches' own eps of {watch.finesse:.3g}, {(1 - watch.delta) * 100:.6g}% sure",
    }  # fmt: skip


# -- where it goes -----------------------------------------------------------------------------------------------------


def _goes(config: Config) -> dict[str, Any]:
    kept, batch = config.store.sketches, config.source.mode == "batch"
    often = {"never": "not stored", "always": "stored after every batch"}.get(str(kept), f"stored every {kept}")
    return {
        "answers": config.store.path,
        "tables": [name for name in tables() if name != "sketches" or kept != "never"],
        "sketches": often,
        "keep": config.store.keep,
        "state": None if batch else config.run.checkpoint,
        "says": "no state is kept: running it again starts over"
        if batch
        else "a run that was interrupted goes on from there, and counts every row once",
        "master": config.run.master,
    }
