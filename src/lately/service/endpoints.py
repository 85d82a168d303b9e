"""The endpoint of each path: it asks its question and builds the response. Checks and errors are handled elsewhere."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, Request
from fastapi.responses import FileResponse, Response, StreamingResponse

from lately.core.errors import QueryError
from lately.core.estimate import Estimate
from lately.core.json_encoding import to_json
from lately.core.times import iso_time
from lately.service import models
from lately.service.http_errors import HttpError
from lately.service.metrics import age_of
from lately.service.plain import Json
from lately.service.store_queries import StoreQueries, range_of
from lately.store import documents
from lately.store.documents import Scope
from lately.store.questions import Questions
from lately.store.view import View

#: The dashboard's files.
STATIC = Path(__file__).parent / "static"
#: The maximum number of rows in one response.
MAX_ROWS = 10_000
#: The maximum number of site names in /api/about.
MAX_SITES = 1_000


def _store(request: Request) -> StoreQueries:
    store: StoreQueries = request.app.state.store
    return store


# -- sketches ----------------------------------------------------------------------------------------------------------


async def count(request: Request, params: models.CountParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    estimate, asof = await store.ask("count", scope, lambda q: (q.count(params.key, **scope.options()), q.asof))
    return Json({"key": params.key, "estimate": estimate, "asof": asof, "range": range_of(scope)})


async def counts(request: Request, body: Annotated[models.CountsBody, Body()]) -> Json:
    store = _store(request)
    scope = store.scope(body)
    # A few keys take as long as one; thousands take longer.
    kind = "counts", len(body.keys) // 100
    return Json(await store.ask(kind, scope, lambda q: documents.counts(q, body.keys, scope)))


async def top(request: Request, params: models.TopParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    if not params.by_site:
        return Json(await store.ask("top", scope, lambda q: documents.top(q, params.k, scope)))
    sites = store.view.sites() if scope.sites is None else list(scope.sites)
    if len(sites) * params.k > MAX_ROWS:
        message = f"{params.k} keys of {len(sites)} sites are more than {MAX_ROWS:,} rows"
        raise HttpError(400, "bad_value", message, "ask for fewer")
    return Json(await store.ask("top by site", scope, lambda q: documents.top_by_site(q, params.k, scope, sites)))


async def quantiles(request: Request, params: models.QuantilesParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    return Json(await store.ask("quantiles", scope, lambda q: documents.quantiles(q, params.q, scope)))


async def key_range(request: Request, params: models.KeyRangeParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    return Json(await store.ask("range", scope, lambda q: documents.count_range(q, params.lo, params.hi, scope)))


async def self_join(request: Request, params: models.SketchParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    return Json(await store.ask("self-join", scope, lambda q: documents.self_join(q, scope)))


async def inner_product(request: Request, params: models.InnerProductParams) -> Json:
    store = _store(request)
    scope, left, right = store.scope(params), params.left, params.right
    kind = "inner-product", left, right
    return Json(await store.ask(kind, scope, lambda q: documents.inner_product(q, left, right, scope)))


async def total(request: Request, params: models.SketchParams) -> Json:
    store = _store(request)
    scope = store.scope(params)
    return Json(await store.ask("total", scope, lambda q: documents.total(q, scope)))


# -- tables ------------------------------------------------------------------------------------------------------------


async def answers(request: Request, params: models.AnswersParams) -> Json:
    kind = "answers", params.query
    return Json(await _store(request).read(kind, lambda view: documents.answers(view, params.query, MAX_ROWS)))


async def history(request: Request, params: models.HistoryParams) -> Json:
    given = params.query, params.item, params.site, params.limit
    return Json(await _store(request).read(("history", *given), lambda view: documents.history(view, *given)))


async def alerts(request: Request, params: models.AlertsParams) -> Json:
    return Json(await _store(request).read(("alerts", params.limit), lambda view: documents.alerts(view, params.limit)))


async def runs(request: Request, params: models.RunsParams) -> Json:
    return Json(await _store(request).read(("runs", params.limit), lambda view: documents.runs(view, params.limit)))


async def late(request: Request, params: models.UncountedParams) -> Json:
    return await _uncounted(request, "late", params)


async def rejected(request: Request, params: models.UncountedParams) -> Json:
    return await _uncounted(request, "rejected", params)


async def _uncounted(request: Request, table: str, params: models.UncountedParams) -> Json:
    given = table, params.limit, params.site, params.reason
    return Json(await _store(request).read(given, lambda view: documents.uncounted(view, *given)))


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
        content = to_json(view.about)
        assert isinstance(content, dict)
        return content | {
            "batch": view.batch,
            "now": iso_time(view.now),
            "sites": sites[:MAX_SITES],
            "site_count": len(sites),
            "asof": None if version is None else iso_time(version.time),
            "questions": store.answerable(),
        }

    return Json(await store.read("about", read))


async def sites(request: Request, params: models.SitesParams) -> Json:
    given = params.limit, params.offset, params.state
    return Json(await _store(request).read(("sites", *given), lambda view: documents.sites(view, *given)))


async def site_totals(request: Request, params: models.SiteTotalsParams) -> Json:
    store = _store(request)

    def totals(questions: Questions) -> dict[str, Any]:
        sizes = store.view.sketch_bytes()
        names = store.view.sites()
        if len(names) > params.limit:
            counted = {row.site: row.counted or 0 for row in store.view.site_rows()}
            names.sort(key=lambda site: -counted.get(site, 0))
        rows = [
            {"site": site, "total": _total(questions, site) if site in sizes else None, "bytes": sizes.get(site, 0)}
            for site in names[: params.limit]
        ]
        return {"sites": len(names), "rows": rows, "asof": questions.asof}

    return Json(await store.ask(("site-totals", params.limit), Scope(), totals))


def _total(questions: Questions, site: str) -> Estimate | None:
    try:
        return questions.total(sites=[site])
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
