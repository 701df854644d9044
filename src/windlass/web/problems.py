"""Owns how errors are answered: a page for people, `application/problem+json` for programs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from windlass.core.errors import (
    AmbiguousId,
    ConfigError,
    FlowInvalid,
    InvalidTransition,
    PayloadError,
    StoreUnavailable,
    UnknownJob,
    UnknownKind,
    UnknownSchedule,
    WindlassError,
)
from windlass.core.values.text import inert_lines
from windlass.observability.logs import get_logger
from windlass.web.site import path_of, render

log = get_logger("windlass.web")
Handler = Callable[[Request, Exception], Awaitable[Response]]
PROBLEM_JSON = "application/problem+json"
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (UnknownJob, 404),
    (UnknownSchedule, 404),
    (UnknownKind, 404),
    (AmbiguousId, 409),
    (InvalidTransition, 409),
    (FlowInvalid, 409),
    (PayloadError, 422),
    (StoreUnavailable, 503),
    (ConfigError, 422),
    (ValueError, 422),
    (WindlassError, 500),
)
_REMEDIES = {
    409: "look at the job or the flow again: its state does not allow this",
    422: "correct the value that it names, and send it again",
    503: "try again in a moment; `windlass doctor` says what is wrong with the store",
}
"""Remedies for errors that name none themselves, by status."""


def problem(
    request: Request, status: int, message: str, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer that something cannot be done: what, and the remedy, after the first semicolon."""
    detail, _, remedy = message.partition("; ")
    remedy = remedy or _REMEDIES.get(status, "")
    title = HTTPStatus(status).phrase
    if is_api(request):
        body = {
            "type": "about:blank",
            "title": title,
            "status": status,
            "detail": detail,
            "remedy": remedy or None,
        }
        return Response(
            json.dumps(body), status, headers=dict(headers or {}), media_type=PROBLEM_JSON
        )
    context = {"title": title, "status": status, "detail": detail, "remedy": remedy}
    response = render(request, "problem.html", context, status=status)
    response.headers.update(headers or {})
    return response


def is_api(request: Request) -> bool:
    """Return whether a program asks: a script by the API, or a page for a stream."""
    path = path_of(request)
    is_stream = path == "/events" or (path.startswith("/jobs/") and path.endswith("/stream"))
    return is_stream or path.startswith("/api/")


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer what the router refused: no such page, or a method that it does not have."""
    if not isinstance(error, HTTPException):
        raise error
    message = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND and message == HTTPStatus.NOT_FOUND.phrase:
        message = "there is no such page; it may have been purged, or the address is wrong"
    return problem(request, error.status_code, message, headers=error.headers)


async def on_error(request: Request, error: Exception) -> Response:
    """Answer an error of the app, the store or the input with its own words and remedy."""
    status = next(code for kind, code in _STATUSES if isinstance(error, kind))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.warning("web.failed", path=request.url.path, error=str(error))
    elif not isinstance(error, WindlassError):
        log.info("web.refused", path=request.url.path, error=repr(error))
    return problem(request, status, inert_lines(str(error)))


HANDLERS: dict[type[Exception], Handler] = {
    HTTPException: on_http_error,
    **{kind: on_error for kind, _ in _STATUSES},
}
