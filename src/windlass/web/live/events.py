"""Owns the stream of Server-Sent Events that keeps pages up to date."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from windlass.web.live.watcher import TooManyStreams
from windlass.web.problems import problem
from windlass.web.site import site_of


async def events(request: Request) -> Response:
    """Stream what changes, until the page is left or the server ends."""
    try:
        stream = site_of(request).watcher.subscribe()
    except TooManyStreams:
        return problem(request, 503, "too many pages are open; this one polls")
    return StreamingResponse(
        stream,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
