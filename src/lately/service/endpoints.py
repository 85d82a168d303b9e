"""The endpoint of each path: it asks its question and builds the response. Checks and errors are handled elsewhere."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, Request
from fastapi.responses import FileResponse, Response, StreamingResponse

from lately.core.errors import QueryError
from lately.core.times import iso_time
from lately.core.words import with_state
from lately.service import models, plain
from lately.service.http_errors import HttpError
from lately.service.metrics import age_of
from lately.service.plain import Json
from lately.service.store_queries import QueryScope, StoreQueries
from lately.store.questions import Questions
from lately.store.site_report import site_report
from lately.store.view import View

#: The dashboard's files.
STATIC = Path(__file__).parent / "static"
#: The maximum number of rows in one response.
MAX_ROWS = 10_000
#: The maximum number of site names in /api/about, and of reasons in /api/late and /api/rejected.
MAX_SITES, MAX_REASONS = 1_000, 100
_ANSWER = ("query", "site", "item", "value", "low", "high", "confidence")
_HISTORY = ("time", "batch", "site", "item", "value", "low", "high", "confidence")


def _store(request: Request) -> StoreQueries:
    store: StoreQueries = request.app.state.store
    return store


# -- sketches ----------------------------------------------------------------------------------------------------------


async def count(request: Request, params: models.CountParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    estimate, asof = await store.ask("count", scope, lambda q: q.count(params.key, **scope.options()))
    return Json({"key": params.key, "estimate": plain.estimate(estimate), "asof": iso_time(asof), "range": scope.range()})


async def counts(request: Request, body: Annotated[models.CountsBody, Body()]) -> Json:
    store = _store(request)
    scope = store.scope(body)
    # A few keys take as long as one; thousands take longer.
    kind = "counts", len(body.keys) // 100

    def rows(questions: Questions) -> list[dict[str, Any]]:
        counts = questions.counts(body.keys, **scope.options())
        return [{"key": key, "estimate": plain.estimate(row.count)} for key, row in zip(body.keys, counts, strict=True)]

    return _rows(await store.ask(kind, scope, rows))


async def top(request: Request, params: models.TopParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    if not params.by_site:
        return _rows(await store.ask("top", scope, lambda q: _top(q, params.k, scope)))
    sites = store.view.sites() if scope.sites is None else list(scope.sites)
    if len(sites) * params.k > MAX_ROWS:
        message = f"{params.k} keys of {len(sites)} sites are more than {MAX_ROWS:,} rows"
        raise HttpError(400, "bad_value", message, "ask for fewer")

    def by_site(questions: Questions) -> dict[str, Any]:
        return {site: _top(questions, params.k, replace(scope, sites=(site,))) for site in sites}

    rows_by_site, asof = await store.ask("top by site", scope, by_site)
    return Json({"sites": rows_by_site, "asof": iso_time(asof)})


def _top(questions: Questions, k: int, scope: QueryScope) -> list[dict[str, Any]]:
    rows = questions.top(k, **scope.options())
    return [{"key": plain.key(row.key), "estimate": plain.estimate(row.count)} for row in rows]


async def quantiles(request: Request, params: models.QuantilesParams) -> Json:
    store = _store(request)
    scope = store.scope(params)

    def rows(questions: Questions) -> list[dict[str, Any]]:
        quantiles = questions.quantiles(params.q, **scope.options())
        return [{"q": plain.number(row.q), "estimate": plain.estimate(row.value)} for row in quantiles]

    return _rows(await store.ask("quantiles", scope, rows))


async def key_range(request: Request, params: models.KeyRangeParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    return _estimate(await store.ask("range", scope, lambda q: q.count_range(params.lo, params.hi, **scope.options())))


async def self_join(request: Request, params: models.SketchParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    return _estimate(await store.ask("self-join", scope, lambda q: q.self_join(**scope.options())))


async def inner_product(request: Request, params: models.InnerProductParams) -> Json:
    store = _store(request)
    scope, left, right = store.scope(params), params.left, params.right
    kind = "inner-product", left, right
    return _estimate(await store.ask(kind, scope, lambda q: q.inner_product(left, right, **scope.options())))


async def total(request: Request, params: models.SketchParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    return _estimate(await store.ask("total", scope, lambda q: q.total(**scope.options())))


def _estimate(answer: tuple[Any, Any]) -> Json:
    return Json({"estimate": plain.estimate(answer[0]), "asof": iso_time(answer[1])})


def _rows(answer: tuple[list[dict[str, Any]], Any]) -> Json:
    return Json({"rows": answer[0], "asof": iso_time(answer[1])})


# -- tables ------------------------------------------------------------------------------------------------------------


async def answers(request: Request, params: models.AnswersParams) -> Json:
    def read(view: View) -> dict[str, Any]:
        rows = view.answers(params.query)[:MAX_ROWS]
        return {"batch": view.batch, "time": iso_time(view.now), "rows": [plain.row(row, _ANSWER) for row in rows]}

    return Json(await _store(request).read(("answers", params.query), read))


async def history(request: Request, params: models.HistoryParams) -> Json:
    def read(view: View) -> list[dict[str, Any]]:
        rows = view.history(params.query, item=params.item, site=params.site, limit=params.limit)
        return [plain.row(row, _HISTORY) for row in rows]

    rows = await _store(request).read(("history", params.query, params.item, params.site, params.limit), read)
    return Json({"query": params.query, "item": params.item, "site": params.site, "rows": rows})


async def alerts(request: Request, params: models.AlertsParams) -> Json:
    rows = await _store(request).read(("alerts", params.limit), lambda view: view.alerts(limit=params.limit))
    return Json({"rows": [plain.row(with_state(row)) for row in rows]})


async def runs(request: Request, params: models.RunsParams) -> Json:
    rows = await _store(request).read(("runs", params.limit), lambda view: view.runs(limit=params.limit))
    return Json({"rows": [plain.row(row) for row in rows]})


async def late(request: Request, params: models.UncountedParams) -> Json:
    return await _uncounted(request, "late", params)


async def rejected(request: Request, params: models.UncountedParams) -> Json:
    return await _uncounted(request, "rejected", params)


async def _uncounted(request: Request, table: str, params: models.UncountedParams) -> Json:
    def read(view: View) -> dict[str, Any]:
        read_rows = view.late if table == "late" else view.rejected
        rows = read_rows(limit=params.limit, site=params.site, reason=params.reason)
        counts, complete = view.reasons(table, site=params.site)
        reasons = [{"reason": reason, "rows": count} for reason, count in list(counts.items())[:MAX_REASONS]]
        return {"reasons": reasons, "complete": complete, "rows": [plain.row(row) for row in reversed(rows)]}

    return Json(await _store(request).read((table, params.limit, params.site, params.reason), read))


# -- about the store ---------------------------------------------------------------------------------------------------


async def health(request: Request, params: models.NoParams) -> Json:
    error = request.app.state.broadcaster.store_error
    if error is not None:
        raise error
    newest, batch, now = await _store(request).read("health", lambda view: (view.runs(limit=1), view.batch, view.now))
    age = age_of(newest[-1], datetime.now(UTC)) if newest else None
    return Json({"status": "ok", "batch": batch, "now": iso_time(now), "age_seconds": age})


async def about(request: Request, params: models.NoParams) -> Json:
    store = _store(request)

    def read(view: View) -> dict[str, Any]:
        version, sites = view.version(), view.sites()
        return view.about | {
            "batch": view.batch,
            "now": iso_time(view.now),
            "sites": sites[:MAX_SITES],
            "site_count": len(sites),
            "asof": None if version is None else iso_time(version.time),
            "questions": store.answerable(),
        }

    return Json(await store.read("about", read))


async def sites(request: Request, params: models.SitesParams) -> Json:
    def read(view: View) -> dict[str, Any]:
        page = site_report(view).document(params.limit, params.offset, params.state)
        return page | {"newest": iso_time(page["newest"]), "rows": [plain.row(row) for row in page["rows"]]}

    return Json(await _store(request).read(("sites", params.limit, params.offset, params.state), read))


async def site_totals(request: Request, params: models.SiteTotalsParams) -> Json:
    store = _store(request)

    def totals(questions: Questions) -> dict[str, Any]:
        sizes = store.view.sketch_bytes()
        names = store.view.sites()
        if len(names) > params.limit:
            counted = {row["site"]: row["counted"] or 0 for row in store.view.site_snapshot()}
            names.sort(key=lambda site: -counted.get(site, 0))
        rows = [
            {"site": site, "total": _total(questions, site) if site in sizes else None, "bytes": sizes.get(site, 0)}
            for site in names[: params.limit]
        ]
        return {"sites": len(names), "rows": rows}

    document, asof = await store.ask(("site-totals", params.limit), QueryScope(), totals)
    return Json(document | {"asof": iso_time(asof)})


def _total(questions: Questions, site: str) -> dict[str, Any] | None:
    try:
        return plain.estimate(questions.total(sites=[site]))
    except QueryError:  # every sketch has a filter
        return None


async def stream(request: Request, params: models.StreamParams) -> Response:
    header = request.headers.get("last-event-id", "")
    last = int(header) if header.isascii() and header.isdigit() and len(header) < 19 else None
    frames = request.app.state.broadcaster.connect(last)
    return StreamingResponse(frames, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def metrics(request: Request, params: models.NoParams) -> Response:
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=1.0.0; charset=utf-8")


async def page() -> Response:
    return FileResponse(STATIC / "index.html", media_type="text/html")
