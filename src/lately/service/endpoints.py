"""The endpoint of each path: it asks its question and builds the response. Checks and errors are handled elsewhere."""

from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from fastapi import Body, Request
from fastapi.responses import FileResponse, Response, StreamingResponse

from lately.core.errors import QueryError
from lately.core.estimate import Estimate
from lately.service import request_models as requests
from lately.service import responses
from lately.service.http_errors import HttpError
from lately.service.json_response import JsonResponse
from lately.service.metrics import age_of
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


async def count(request: Request, params: requests.CountParams) -> JsonResponse:
    store = _store(request)
    scope = store.scope(params)
    estimate, asof = await store.ask("count", scope, lambda q: (q.count(params.key, **scope.options()), q.asof))
    return JsonResponse(responses.CountDocument(params.key, estimate, asof, range_of(scope)))


async def counts(request: Request, body: Annotated[requests.CountsBody, Body()]) -> JsonResponse:
    store = _store(request)
    scope = store.scope(body)
    # A few keys take as long as one; thousands take longer.
    kind = "counts", len(body.keys) // 100
    return JsonResponse(await store.ask(kind, scope, lambda q: documents.counts(q, body.keys, scope)))


async def top(request: Request, params: requests.TopParams) -> JsonResponse:
    store = _store(request)
    scope = store.scope(params)
    if not params.by_site:
        return JsonResponse(await store.ask("top", scope, lambda q: documents.top(q, params.k, scope)))
    sites = store.view.sites() if scope.sites is None else list(scope.sites)
    if len(sites) * params.k > MAX_ROWS:
        message = f"{params.k} keys of {len(sites)} sites are more than {MAX_ROWS:,} rows"
        raise HttpError(400, "bad_value", message, "ask for fewer")
    return JsonResponse(await store.ask("top by site", scope, lambda q: documents.top_by_site(q, params.k, scope, sites)))


async def quantiles(request: Request, params: requests.QuantilesParams) -> JsonResponse:
    store = _store(request)
    scope = store.scope(params)
    return JsonResponse(await store.ask("quantiles", scope, lambda q: documents.quantiles(q, params.q, scope)))


async def key_range(request: Request, params: requests.KeyRangeParams) -> JsonResponse:
    store = _store(request)
    scope = store.scope(params)
    return JsonResponse(await store.ask("range", scope, lambda q: documents.count_range(q, params.lo, params.hi, scope)))


async def self_join(request: Request, params: requests.SketchParams) -> JsonResponse:
    store = _store(request)
    scope = store.scope(params)
    return JsonResponse(await store.ask("self-join", scope, lambda q: documents.self_join(q, scope)))


async def inner_product(request: Request, params: requests.InnerProductParams) -> JsonResponse:
    store = _store(request)
    scope, left, right = store.scope(params), params.left, params.right
    kind = "inner-product", left, right
    return JsonResponse(await store.ask(kind, scope, lambda q: documents.inner_product(q, left, right, scope)))


async def total(request: Request, params: requests.SketchParams) -> JsonResponse:
    store = _store(request)
    scope = store.scope(params)
    return JsonResponse(await store.ask("total", scope, lambda q: documents.total(q, scope)))


# -- tables ------------------------------------------------------------------------------------------------------------


async def answers(request: Request, params: requests.AnswersParams) -> JsonResponse:
    kind = "answers", params.query
    return JsonResponse(await _store(request).read(kind, lambda view: documents.answers(view, params.query, MAX_ROWS)))


async def history(request: Request, params: requests.HistoryParams) -> JsonResponse:
    options = params.query, params.item, params.site, params.limit
    return JsonResponse(await _store(request).read(("history", *options), lambda view: documents.history(view, *options)))


async def alerts(request: Request, params: requests.AlertsParams) -> JsonResponse:
    return JsonResponse(await _store(request).read(("alerts", params.limit), lambda view: documents.alerts(view, params.limit)))


async def runs(request: Request, params: requests.RunsParams) -> JsonResponse:
    return JsonResponse(await _store(request).read(("runs", params.limit), lambda view: documents.runs(view, params.limit)))


async def late(request: Request, params: requests.UncountedParams) -> JsonResponse:
    return await _uncounted(request, "late", params)


async def rejected(request: Request, params: requests.UncountedParams) -> JsonResponse:
    return await _uncounted(request, "rejected", params)


async def _uncounted(request: Request, table: str, params: requests.UncountedParams) -> JsonResponse:
    options = table, params.limit, params.site, params.reason
    return JsonResponse(await _store(request).read(options, lambda view: documents.uncounted(view, *options)))


# -- about the store ---------------------------------------------------------------------------------------------------


async def health(request: Request, params: requests.NoParams) -> JsonResponse:
    error = request.app.state.broadcaster.store_error
    if error is not None:
        raise error
    newest, batch, now = await _store(request).read("health", lambda view: (view.runs(limit=1), view.batch, view.now))
    age = age_of(newest[-1], datetime.now(UTC)) if newest else None
    return JsonResponse(responses.HealthDocument("ok", batch, now, age))


async def about(request: Request, params: requests.NoParams) -> JsonResponse:
    store = _store(request)

    def read(view: View) -> responses.AboutDocument:
        version, sites = view.version(), view.sites()
        return responses.AboutDocument(
            **{field.name: getattr(view.about, field.name) for field in fields(view.about)},
            batch=view.batch,
            now=view.now,
            sites=sites[:MAX_SITES],
            site_count=len(sites),
            asof=None if version is None else version.time,
            questions=store.answerable(),
        )

    return JsonResponse(await store.read("about", read))


async def sites(request: Request, params: requests.SitesParams) -> JsonResponse:
    options = params.limit, params.offset, params.state
    return JsonResponse(await _store(request).read(("sites", *options), lambda view: documents.sites(view, *options)))


async def site_totals(request: Request, params: requests.SiteTotalsParams) -> JsonResponse:
    store = _store(request)

    def totals(questions: Questions) -> responses.SiteTotalsDocument:
        sizes = store.view.sketch_bytes()
        names = store.view.sites()
        if len(names) > params.limit:
            counted = {row.site: row.counted or 0 for row in store.view.site_rows()}
            names.sort(key=lambda site: -counted.get(site, 0))
        rows = [
            responses.SiteTotal(site, _total(questions, site) if site in sizes else None, sizes.get(site, 0))
            for site in names[: params.limit]
        ]
        return responses.SiteTotalsDocument(len(names), rows, questions.asof)

    return JsonResponse(await store.ask(("site-totals", params.limit), Scope(), totals))


def _total(questions: Questions, site: str) -> Estimate | None:
    try:
        return questions.total(sites=[site])
    except QueryError:  # every sketch has a filter
        return None


async def stream(request: Request, params: requests.StreamParams) -> Response:
    header = request.headers.get("last-event-id", "")
    last = int(header) if header.isascii() and header.isdigit() and len(header) < 19 else None
    frames = request.app.state.broadcaster.connect(last)
    return StreamingResponse(frames, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def metrics(request: Request, params: requests.NoParams) -> Response:
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=1.0.0; charset=utf-8")


async def page() -> Response:
    return FileResponse(STATIC / "index.html", media_type="text/html")
