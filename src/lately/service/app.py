"""The app: its routes, as data, and what is put around them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

import lately
from lately.service import endpoints as ends
from lately.service import failures, models
from lately.service.asking import Asking
from lately.service.guard import Guard, checked_token
from lately.service.live import Live
from lately.service.metrics import Metrics
from lately.service.parameters import described, read
from lately.service.plain import Json
from lately.service.work import Work
from lately.store.view import View


@dataclass(frozen=True)
class Route:
    """A path, who answers it, what may be asked, what is answered, and in which ways it may fail besides 400 and 503."""

    path: str
    endpoint: Callable[..., Any]
    asked: type[BaseModel] | None
    answer: Any
    words: str
    fails: tuple[int, ...] = ()
    method: str = "GET"


_ASKED = (404, 409)
#: The first is asked for most, and routes are looked through in their order.
ROUTES = (
    Route("/api/count", ends.count, models.CountAsked, models.Counted, "How often a key came", _ASKED),
    Route("/api/health", ends.health, models.Nothing, models.Health, "Whether there are answers, and how old they are"),
    Route("/api/about", ends.about, models.Nothing, models.About, "The pipeline, its queries and sites, and what can be asked"),
    Route("/api/counts", ends.counts, None, models.KeyRows, "How often each of many keys came", (*_ASKED, 413), "POST"),
    Route("/api/top", ends.top, models.TopAsked, models.KeyRows | models.SiteKeyRows, "The most frequent keys", _ASKED),
    Route("/api/quantiles", ends.quantiles, models.QuantilesAsked, models.QuantileRows, "Quantiles of the values", _ASKED),
    Route("/api/range", ends.range_, models.RangeAsked, models.Found, "How many rows had a key or value from lo to hi", _ASKED),
    Route("/api/self-join", ends.self_join, models.Asked, models.Found, "The sum of the squares of all keys' counts", _ASKED),
    Route("/api/inner-product", ends.inner_product, models.ProductAsked, models.Found, "Pairs of rows with equal keys", _ASKED),
    Route("/api/total", ends.total, models.Asked, models.Found, "How many rows came", _ASKED),
    Route("/api/answers", ends.answers, models.AnswersAsked, models.AnswerRows, "The newest answers of queries", (404,)),
    Route("/api/history", ends.history, models.HistoryAsked, models.HistoryRows, "What a query said, oldest first", (404,)),
    Route("/api/alerts", ends.alerts, models.AlertsAsked, models.AlertRows, "Lines that were passed, newest last"),
    Route("/api/runs", ends.runs, models.RunsAsked, models.RunRows, "The batches, newest last"),
    Route("/api/late", ends.late, models.RefusedAsked, models.RefusedRows, "Rows that came too late, newest first"),
    Route("/api/rejected", ends.rejected, models.RefusedAsked, models.RefusedRows, "Rows that were rejected, newest first"),
    Route("/api/sites", ends.sites, models.SitesAsked, models.SiteRows, "Which sites are silent or ahead, most silent first"),
    Route("/api/site-totals", ends.site_totals, models.TotalsAsked, models.TotalRows, "How many rows sites had in the window"),
    Route("/api/stream", ends.stream, models.StreamAsked, None, "What happens, as it happens"),
    Route("/metrics", ends.metrics, models.Nothing, None, "Numbers for Prometheus"),
)
#: Answers that are not JSON, and a header.
_STREAM = {"description": "Server-sent events: batch, alert", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
_METRICS = {"description": "Prometheus' text", "content": {"text/plain": {"schema": {"type": "string"}}}}
_OTHER: dict[str, dict[int | str, Any]] = {"/api/stream": {200: _STREAM}, "/metrics": {200: _METRICS}}
_LAST_EVENT = {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}, "description": "the last batch heard of"}
_PATHS = (*(route.path for route in ROUTES), "/api/openapi.json", "/")


def create_app(store: str, *, token: str | None = None, loopback: bool = True) -> FastAPI:
    """The service over a store, as an ASGI app; see ``lately.service.serve`` for one that runs.

    ``loopback`` says that only this machine can reach it: then requests must name it in their Host header, and no token
    is needed.
    """
    token = checked_token(token, loopback)
    view, work, metrics = View(store), Work(), Metrics(_PATHS)
    live = Live(view, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(live.watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            live.close()
            work.close()

    app = FastAPI(
        title="lately",
        version=lately.__version__,
        description="What has been happening lately: answers with bounds, from the store of a pipeline.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page comes from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.asking, app.state.live, app.state.metrics = Asking(view, work), live, metrics
    for route in ROUTES:
        _add(app, route, {**_OTHER.get(route.path, {}), **_failures(route.fails, token)})
    app.add_api_route("/", ends.page, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=ends.STATIC, check_dir=False))
    failures.install(app)
    app.add_middleware(Guard, token=token, loopback=loopback, metrics=metrics)
    _document(app, token is not None)
    return app


def _add(app: FastAPI, route: Route, responses: dict[int | str, Any]) -> None:
    extra = None
    endpoint = route.endpoint
    if route.asked is not None:
        endpoint = _reading(endpoint, route.asked)
        told = described(route.asked) + ([_LAST_EVENT] if route.path == "/api/stream" else [])
        extra = {"parameters": told} if told else None
    app.router.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        response_model=route.answer,
        response_class=Response if route.answer is None else Json,
        responses=responses,
        summary=route.words,
        operation_id=route.path.removeprefix("/api").strip("/").replace("-", "_"),
        openapi_extra=extra,
        route_class_override=None if route.asked is None else _Lean,
    )


class _Lean(APIRoute):
    """A route whose endpoint takes the request as it is, so that FastAPI has nothing to work out for each of them."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.endpoint


def _reading(endpoint: Callable[..., Any], asked: type[BaseModel]) -> Callable[[Request], Any]:
    """An endpoint that is given its parameters, as one that reads them."""

    async def answer(request: Request) -> Response:
        found: Response = await endpoint(request, read(asked, request.scope["query_string"]))
        return found

    return answer


def _failures(more: tuple[int, ...], token: str | None) -> dict[int | str, Any]:
    codes = {400, 503, *more} | ({401} if token is not None else set())
    return {code: {"model": models.Failed, "description": _FAILURES[code]} for code in sorted(codes)}


_FAILURES = {
    400: "A value that cannot be",
    401: "No token, or a wrong one",
    404: "No such query, sketch or site",
    409: "Nothing is stored yet, or no sketch that fits",
    413: "Too large",
    503: "It takes too long, or the store cannot be read",
}


def _document(app: FastAPI, guarded: bool) -> None:
    """The OpenAPI document, true to what the app does: a wrong value is 400 here, not 422, and there may be a token."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            for path in made["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                made["components"]["schemas"].pop(name, None)
            if guarded:
                made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                made["security"] = [{"token": []}]
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
