"""The ASGI app: its routes as data, its middleware, and its OpenAPI document."""

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
from lately.service import http_errors, responses
from lately.service import request_models as requests
from lately.service.broadcast import Broadcaster
from lately.service.executor import TimedExecutor
from lately.service.json_response import JsonResponse
from lately.service.metrics import Metrics
from lately.service.query_parameters import openapi_parameters, parse_query
from lately.service.response_models import response_model
from lately.service.security import SecurityMiddleware, checked_token
from lately.service.store_queries import StoreQueries
from lately.store import documents
from lately.store.site_report import SitePage
from lately.store.view import View


@dataclass(frozen=True)
class Route:
    """One path of the service.

    Parameters
    ----------
    path
        The path.
    endpoint
        The function that answers it.
    params
        The model of its query parameters; None if FastAPI reads the request, as it does for a body.
    response
        The dataclass of its response, or a union of several; None if the response is not JSON.
    summary
        What it answers, for the OpenAPI document.
    errors
        The status codes of its errors, besides 400 and 503, which every path may have.
    method
        The HTTP method.
    """

    path: str
    endpoint: Callable[..., Any]
    params: type[BaseModel] | None
    response: Any
    summary: str
    errors: tuple[int, ...] = ()
    method: str = "GET"


_SKETCH_ERRORS = (404, 409)
_TOP = documents.KeysDocument | documents.SiteKeysDocument
#: Routes are searched in this order, so the path with the most requests is the first.
ROUTES = (
    Route("/api/count", ends.count, requests.CountParams, responses.CountDocument, "How often a key occurred", _SKETCH_ERRORS),
    Route(
        "/api/health",
        ends.health,
        requests.NoParams,
        responses.HealthDocument,
        "Whether the store can be read, and the age of its answers",
    ),
    Route(
        "/api/about",
        ends.about,
        requests.NoParams,
        responses.AboutDocument,
        "The pipeline, its queries and sites, and the available questions",
    ),
    Route(
        "/api/counts",
        ends.counts,
        None,
        documents.KeysDocument,
        "How often each of many keys occurred",
        (*_SKETCH_ERRORS, 413),
        "POST",
    ),
    Route("/api/top", ends.top, requests.TopParams, _TOP, "The most frequent keys", _SKETCH_ERRORS),
    Route(
        "/api/quantiles",
        ends.quantiles,
        requests.QuantilesParams,
        documents.QuantilesDocument,
        "Quantiles of the values",
        _SKETCH_ERRORS,
    ),
    Route(
        "/api/range",
        ends.key_range,
        requests.KeyRangeParams,
        documents.EstimateDocument,
        "The number of rows with a key or value from lo to hi",
        _SKETCH_ERRORS,
    ),
    Route(
        "/api/self-join",
        ends.self_join,
        requests.SketchParams,
        documents.EstimateDocument,
        "The sum of the squared counts of all keys",
        _SKETCH_ERRORS,
    ),
    Route(
        "/api/inner-product",
        ends.inner_product,
        requests.InnerProductParams,
        documents.EstimateDocument,
        "The number of pairs of rows with equal keys",
        _SKETCH_ERRORS,
    ),
    Route(
        "/api/total", ends.total, requests.SketchParams, documents.EstimateDocument, "The total number of rows", _SKETCH_ERRORS
    ),
    Route(
        "/api/answers",
        ends.answers,
        requests.AnswersParams,
        documents.AnswersDocument,
        "The newest answers of the queries",
        (404,),
    ),
    Route(
        "/api/history",
        ends.history,
        requests.HistoryParams,
        documents.HistoryDocument,
        "A query's answers over time, oldest first",
        (404,),
    ),
    Route(
        "/api/alerts",
        ends.alerts,
        requests.AlertsParams,
        documents.AlertsDocument,
        "Alerts that fired or were resolved, newest last",
    ),
    Route("/api/runs", ends.runs, requests.RunsParams, documents.RunsDocument, "The batches, newest last"),
    Route(
        "/api/late",
        ends.late,
        requests.UncountedParams,
        documents.UncountedDocument,
        "Rows that arrived too late, newest first",
    ),
    Route("/api/rejected", ends.rejected, requests.UncountedParams, documents.UncountedDocument, "Invalid rows, newest first"),
    Route("/api/sites", ends.sites, requests.SitesParams, SitePage, "The states of the sites, the longest silent first"),
    Route(
        "/api/site-totals",
        ends.site_totals,
        requests.SiteTotalsParams,
        responses.SiteTotalsDocument,
        "Rows in the window and bytes, by site",
    ),
    Route("/api/stream", ends.stream, requests.StreamParams, None, "New batches and alerts as server-sent events"),
    Route("/metrics", ends.metrics, requests.NoParams, None, "Metrics for Prometheus"),
)
#: Responses that are not JSON, and a header.
_STREAM = {"description": "Server-sent events: batch, alert", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
_METRICS = {"description": "The text format of Prometheus", "content": {"text/plain": {"schema": {"type": "string"}}}}
_NOT_JSON: dict[str, dict[int | str, Any]] = {"/api/stream": {200: _STREAM}, "/metrics": {200: _METRICS}}
_LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "schema": {"type": "string"},
    "description": "the last batch that the client received",
}
_PATHS = (*(route.path for route in ROUTES), "/api/openapi.json", "/")


def create_app(store: str, *, token: str | None = None, loopback: bool = True) -> FastAPI:
    """The service over a store as an ASGI app, for a server of your own; ``lately.service.serve`` starts a server for it.

    Parameters
    ----------
    store
        The path of the store.
    token
        The token that every request must carry, 8 to 512 printable ASCII characters; None for none.
    loopback
        Whether only this machine can reach the service. Requests must then name it in their Host header, and a token is
        optional; otherwise it is required.
    """
    token = checked_token(token, loopback)
    view, executor, metrics = View(store), TimedExecutor(), Metrics(_PATHS)
    broadcaster = Broadcaster(view, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(broadcaster.watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            broadcaster.close()
            executor.close()

    app = FastAPI(
        title="lately",
        version=lately.__version__,
        description="Answers with error bounds about the most recent part of a stream, from the store of a pipeline.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # FastAPI's page loads scripts from another host
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.store, app.state.broadcaster, app.state.metrics = StoreQueries(view, executor), broadcaster, metrics
    for route in ROUTES:
        _add(app, route, {**_NOT_JSON.get(route.path, {}), **_error_responses(route.errors, token)})
    app.add_api_route("/", ends.page, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=ends.STATIC, check_dir=False))
    http_errors.install(app)
    app.add_middleware(SecurityMiddleware, token=token, loopback=loopback, metrics=metrics)
    _set_openapi(app, token is not None)
    return app


def _add(app: FastAPI, route: Route, responses: dict[int | str, Any]) -> None:
    extra = None
    endpoint = route.endpoint
    if route.params is not None:
        endpoint = _with_params(endpoint, route.params)
        parameters = openapi_parameters(route.params) + ([_LAST_EVENT_ID] if route.path == "/api/stream" else [])
        extra = {"parameters": parameters} if parameters else None
    app.router.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        response_model=None if route.response is None else response_model(route.response),
        response_class=Response if route.response is None else JsonResponse,
        responses=responses,
        summary=route.summary,
        operation_id=route.path.removeprefix("/api").strip("/").replace("-", "_"),
        openapi_extra=extra,
        route_class_override=None if route.params is None else _DirectRoute,
    )


class _DirectRoute(APIRoute):
    """A route whose endpoint takes the request itself, which spares FastAPI's analysis of every request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.endpoint


def _with_params(endpoint: Callable[..., Any], params: type[BaseModel]) -> Callable[[Request], Any]:
    """An endpoint of a request and its parameters as an endpoint of the request alone."""

    async def answer(request: Request) -> Response:
        response: Response = await endpoint(request, parse_query(params, request.scope["query_string"]))
        return response

    return answer


def _error_responses(more: tuple[int, ...], token: str | None) -> dict[int | str, Any]:
    codes = {400, 503, *more} | ({401} if token is not None else set())
    return {code: {"model": response_model(responses.ErrorDocument), "description": _ERRORS[code]} for code in sorted(codes)}


_ERRORS = {
    400: "Invalid value",
    401: "The token is missing or wrong",
    404: "Unknown query, sketch or site",
    409: "No sketches are stored yet, or none that can answer the question",
    413: "The body is too large",
    503: "The answer takes too long, or the store cannot be read",
}


def _set_openapi(app: FastAPI, has_token: bool) -> None:
    """Correct FastAPI's OpenAPI document: an invalid value is 400 here and not 422, and there may be a token."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            for path in document["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(name, None)
            if has_token:
                document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                document["security"] = [{"token": []}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
