"""What each path answers. An endpoint asks, and shapes what it hears; everything else is done before and behind it."""

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
from lately.service.asking import Asking, Scope
from lately.service.failures import RefusalError
from lately.service.metrics import age_of
from lately.service.plain import Json
from lately.store.questions import Questions
from lately.store.site_report import site_report
from lately.store.view import View

#: The dashboard's files.
STATIC = Path(__file__).parent / "static"
#: The most rows of one answer.
MOST_ROWS = 10_000
#: The most names of sites in an answer about the pipeline, and the most reasons in one about late or rejected rows.
MOST_SITES, MOST_REASONS = 1_000, 100
_ANSWER = ("query", "site", "item", "value", "low", "high", "confidence")
_HISTORY = ("time", "batch", "site", "item", "value", "low", "high", "confidence")


def _asking(request: Request) -> Asking:
    found: Asking = request.app.state.asking
    return found


# -- sketches ----------------------------------------------------------------------------------------------------------


async def count(request: Request, asked: models.CountAsked) -> Json:
    asking = _asking(request)
    scope = asking.scope(asked)
    found, asof = await asking.ask("count", scope, lambda q: q.count(asked.key, **scope.options()))
    return Json({"key": asked.key, "estimate": plain.estimate(found), "asof": iso_time(asof), "range": scope.span()})


async def counts(request: Request, asked: Annotated[models.CountsAsked, Body()]) -> Json:
    asking = _asking(request)
    scope = asking.scope(asked)
    # A handful is as short as one; thousands are not.
    what = "counts", len(asked.keys) // 100

    def rows(questions: Questions) -> list[dict[str, Any]]:
        found = questions.counts(asked.keys, **scope.options())
        return [{"key": key, "estimate": plain.estimate(row.count)} for key, row in zip(asked.keys, found, strict=True)]

    return _rows(await asking.ask(what, scope, rows))


async def top(request: Request, asked: models.TopAsked) -> Json:
    asking = _asking(request)
    scope = asking.scope(asked)
    if not asked.each:
        return _rows(await asking.ask("top", scope, lambda q: _top(q, asked.k, scope)))
    sites = asking.view.sites() if scope.sites is None else list(scope.sites)
    if len(sites) * asked.k > MOST_ROWS:
        raise RefusalError(
            400, "bad_value", f"{asked.k} keys of {len(sites)} sites are more than {MOST_ROWS:,}", "ask for fewer"
        )

    def each(questions: Questions) -> dict[str, Any]:
        return {site: _top(questions, asked.k, replace(scope, sites=(site,))) for site in sites}

    found, asof = await asking.ask("each", scope, each)
    return Json({"sites": found, "asof": iso_time(asof)})


def _top(questions: Questions, k: int, scope: Scope) -> list[dict[str, Any]]:
    found = questions.top(k, **scope.options())
    return [{"key": plain.key(row.key), "estimate": plain.estimate(row.count)} for row in found]


async def quantiles(request: Request, asked: models.QuantilesAsked) -> Json:
    asking = _asking(request)
    scope = asking.scope(asked)

    def rows(questions: Questions) -> list[dict[str, Any]]:
        found = questions.quantiles(asked.q, **scope.options())
        return [{"q": plain.number(row.q), "estimate": plain.estimate(row.value)} for row in found]

    return _rows(await asking.ask("quantiles", scope, rows))


async def range_(request: Request, asked: models.RangeAsked) -> Json:
    asking = _asking(request)
    scope = asking.scope(asked)
    return _found(await asking.ask("range", scope, lambda q: q.count_range(asked.lo, asked.hi, **scope.options())))


async def self_join(request: Request, asked: models.Asked) -> Json:
    asking = _asking(request)
    scope = asking.scope(asked)
    return _found(await asking.ask("self-join", scope, lambda q: q.self_join(**scope.options())))


async def inner_product(request: Request, asked: models.ProductAsked) -> Json:
    asking = _asking(request)
    scope, left, right = asking.scope(asked), asked.left, asked.right
    what = "inner-product", left, right
    return _found(await asking.ask(what, scope, lambda q: q.inner_product(left, right, **scope.options())))


async def total(request: Request, asked: models.Asked) -> Json:
    asking = _asking(request)
    scope = asking.scope(asked)
    return _found(await asking.ask("total", scope, lambda q: q.total(**scope.options())))


def _found(answer: tuple[Any, Any]) -> Json:
    return Json({"estimate": plain.estimate(answer[0]), "asof": iso_time(answer[1])})


def _rows(answer: tuple[list[dict[str, Any]], Any]) -> Json:
    return Json({"rows": answer[0], "asof": iso_time(answer[1])})


# -- tables ------------------------------------------------------------------------------------------------------------


async def answers(request: Request, asked: models.AnswersAsked) -> Json:
    def read(view: View) -> dict[str, Any]:
        rows = view.answers(asked.query)[:MOST_ROWS]
        return {"batch": view.batch, "time": iso_time(view.now), "rows": [plain.row(row, _ANSWER) for row in rows]}

    return Json(await _asking(request).read(("answers", asked.query), read))


async def history(request: Request, asked: models.HistoryAsked) -> Json:
    def read(view: View) -> list[dict[str, Any]]:
        found = view.history(asked.query, item=asked.item, site=asked.site, limit=asked.limit)
        return [plain.row(row, _HISTORY) for row in found]

    rows = await _asking(request).read(("history", asked.query, asked.item, asked.site, asked.limit), read)
    return Json({"query": asked.query, "item": asked.item, "site": asked.site, "rows": rows})


async def alerts(request: Request, asked: models.AlertsAsked) -> Json:
    found = await _asking(request).read(("alerts", asked.limit), lambda view: view.alerts(limit=asked.limit))
    return Json({"rows": [plain.row(with_state(row)) for row in found]})


async def runs(request: Request, asked: models.RunsAsked) -> Json:
    found = await _asking(request).read(("runs", asked.limit), lambda view: view.runs(limit=asked.limit))
    return Json({"rows": [plain.row(row) for row in found]})


async def late(request: Request, asked: models.RefusedAsked) -> Json:
    return await _refused(request, "late", asked)


async def rejected(request: Request, asked: models.RefusedAsked) -> Json:
    return await _refused(request, "rejected", asked)


async def _refused(request: Request, table: str, asked: models.RefusedAsked) -> Json:
    def read(view: View) -> dict[str, Any]:
        find = view.late if table == "late" else view.rejected
        found = find(limit=asked.limit, site=asked.site, reason=asked.reason)
        reasons, complete = view.reasons(table, site=asked.site)
        counted = [{"reason": reason, "rows": rows} for reason, rows in list(reasons.items())[:MOST_REASONS]]
        return {"reasons": counted, "complete": complete, "rows": [plain.row(row) for row in reversed(found)]}

    return Json(await _asking(request).read((table, asked.limit, asked.site, asked.reason), read))


# -- about the store ---------------------------------------------------------------------------------------------------


async def health(request: Request, asked: models.Nothing) -> Json:
    trouble = request.app.state.live.trouble
    if trouble is not None:
        raise trouble
    found = await _asking(request).read("health", lambda view: (view.runs(limit=1), view.batch, view.now))
    newest, batch, now = found
    age = age_of(newest[-1], datetime.now(UTC)) if newest else None
    return Json({"status": "ok", "batch": batch, "now": iso_time(now), "age_seconds": age})


async def about(request: Request, asked: models.Nothing) -> Json:
    asking = _asking(request)

    def read(view: View) -> dict[str, Any]:
        version, sites = view.version(), view.sites()
        return view.about | {
            "batch": view.batch,
            "now": iso_time(view.now),
            "sites": sites[:MOST_SITES],
            "site_count": len(sites),
            "asof": None if version is None else iso_time(version.time),
            "asks": asking.asks(),
        }

    return Json(await asking.read("about", read))


async def sites(request: Request, asked: models.SitesAsked) -> Json:
    def read(view: View) -> dict[str, Any]:
        page = site_report(view).document(asked.limit, asked.offset, asked.state)
        return page | {"newest": iso_time(page["newest"]), "rows": [plain.row(row) for row in page["rows"]]}

    return Json(await _asking(request).read(("sites", asked.limit, asked.offset, asked.state), read))


async def site_totals(request: Request, asked: models.TotalsAsked) -> Json:
    asking = _asking(request)

    def totals(questions: Questions) -> dict[str, Any]:
        stored = asking.view.sketch_bytes()
        names = asking.view.sites()
        if len(names) > asked.limit:
            counted = {row["site"]: row["counted"] or 0 for row in asking.view.site_snapshot()}
            names.sort(key=lambda site: -counted.get(site, 0))
        rows = [
            {"site": site, "total": _total(questions, site) if site in stored else None, "bytes": stored.get(site, 0)}
            for site in names[: asked.limit]
        ]
        return {"sites": len(names), "rows": rows}

    found, asof = await asking.ask(("site-totals", asked.limit), Scope(), totals)
    return Json(found | {"asof": iso_time(asof)})


def _total(questions: Questions, site: str) -> dict[str, Any] | None:
    try:
        return plain.estimate(questions.total(sites=[site]))
    except QueryError:  # every sketch has a filter
        return None


async def stream(request: Request, asked: models.StreamAsked) -> Response:
    last = request.headers.get("last-event-id", "")
    known = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None
    frames = request.app.state.live.listen(known)
    return StreamingResponse(frames, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def metrics(request: Request, asked: models.Nothing) -> Response:
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=1.0.0; charset=utf-8")


async def page() -> Response:
    return FileResponse(STATIC / "index.html", media_type="text/html")
