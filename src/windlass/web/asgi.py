"""Owns the page as an ASGI application: its routes, and the layers around them."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route

from windlass.app.app import Windlass
from windlass.web.access.gate import Gate
from windlass.web.access.roles import AccessFunction
from windlass.web.access.security_headers import SecurityHeaders
from windlass.web.access.sessions import Sessions
from windlass.web.api.routes import API_ROUTES
from windlass.web.live.events import events
from windlass.web.live.job_stream import stream
from windlass.web.pages import action, audit, bulk, flows, job, jobs, lists, login, named, now
from windlass.web.problems import HANDLERS
from windlass.web.site import STATIC, Site, release_hash, static_url

_IMMUTABLE = "public, max-age=31536000, immutable"
_COMPRESSION = 5
"""The level of gzip: most of what it saves, for a few milliseconds of a long page."""
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def make_asgi(
    app: Windlass,
    *,
    access: AccessFunction | None = None,
    origins: Sequence[str] = (),
    name: str | None = None,
    read_only: bool = False,
) -> Starlette:
    """Return the page of an app, to be mounted anywhere: see `app.web`."""
    settings = app.settings
    site = Site(
        app=app,
        access=access,
        sessions=Sessions(settings.web_token) if settings.web_token else None,
        origins=tuple(origins) or settings.web_origins,
        name=settings.web_name if name is None else name,
        read_only=read_only,
    )
    made = Starlette(
        routes=[*PAGE_ROUTES, *API_ROUTES],
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(Gate, site=site),
            Middleware(GZipMiddleware, compresslevel=_COMPRESSION),
        ],
        exception_handlers=dict(HANDLERS),
    )
    made.state.site = site
    return made


async def _static(request: Request) -> Response:
    path = STATIC / request.path_params["name"]
    media_type = _TYPES.get(path.suffix)
    if media_type is None or not path.is_file():
        raise HTTPException(404, "there is no such file")
    is_current = request.path_params["release"] == release_hash()
    cache = _IMMUTABLE if is_current else "no-store"
    return FileResponse(path, media_type=media_type, headers={"Cache-Control": cache})


async def _favicon(request: Request) -> Response:
    return RedirectResponse(static_url(request, "favicon.svg"), status_code=308)


PAGE_ROUTES = [
    Route("/", now.now),
    Route("/jobs", jobs.jobs),
    Route("/jobs/{id}", job.job),
    Route("/jobs/{id}/stream", stream),
    Route("/errors", lists.errors),
    Route("/kinds", lists.kinds),
    Route("/kinds/{name:path}", named.kind),
    Route("/queues", lists.queues),
    Route("/queues/{name:path}", named.queue),
    Route("/workers", lists.workers),
    Route("/workers/{name:path}", named.worker),
    Route("/flows", flows.flows),
    Route("/flows/{id}", flows.flow),
    Route("/schedules", lists.schedules),
    Route("/limits", lists.limits),
    Route("/store", lists.store),
    Route("/audit", audit.audit),
    Route("/bulk", bulk.bulks),
    Route("/bulk/{id}", bulk.bulk),
    Route("/actions/{action}", action.confirm, methods=["GET"]),
    Route("/actions/{action}", action.act, methods=["POST"]),
    Route("/login", login.login, methods=["GET", "POST"]),
    Route("/logout", login.logout, methods=["POST"]),
    Route("/events", events),
    Route("/static/{release}/{name}", _static),
    Route("/favicon.ico", _favicon),
]
