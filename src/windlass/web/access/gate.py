"""Owns the gate before every page: who asks, and whether the page itself sent it."""

from __future__ import annotations

from dataclasses import replace

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windlass.observability.logs import get_logger
from windlass.web.access.origins import client_address, is_local, is_own_origin
from windlass.web.access.roles import Access, Role, access_by
from windlass.web.access.sessions import COOKIE, FAILURE_SECONDS
from windlass.web.problems import is_api, on_http_error, problem
from windlass.web.site import ACCESS, Site, path_of, url

log = get_logger("windlass.web")
_SAFE = ("GET", "HEAD", "OPTIONS")
_OPEN = ("/static/", "/login", "/favicon.ico")
_NOT_LOCAL = (
    "without a token or access=, this page answers only requests from this machine to localhost, "
    "and not through a proxy; set WINDLASS_WEB_TOKEN, or pass access= to app.web()"
)
_BROKEN = "the page met an error that it does not know; its log has the traceback: web.broken"
_NOT_ALLOWED = "your login does not allow this page; ask its operator"
_NO_TOKEN = "this needs the token; send it as Authorization: Bearer TOKEN"  # noqa: S105
_WRONG_TOKEN = "this is not the token; send that of WINDLASS_WEB_TOKEN"  # noqa: S105
_THROTTLED = "too many wrong tokens came from this address; wait a minute, then try again"
_FOREIGN = (
    "this request does not come from this page, so nothing was changed; behind a proxy that "
    "changes the Host header, name the page's origin: WINDLASS_WEB_ORIGINS=https://jobs.example.org"
)


class Gate:
    """Lets in who has access, and refuses changes that another site sent."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, has_begun = Request(scope, receive), False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await (await self._refusal(request) or self._app)(scope, receive, noted)
        except Exception as error:
            if has_begun:
                raise
            await (await self._broken(request, error))(scope, receive, send)

    async def _broken(self, request: Request, error: Exception) -> Response:
        """Answer an error of the program's own login, or an unexpected one."""
        if isinstance(error, HTTPException):
            return await on_http_error(request, error)
        log.error("web.broken", path=request.url.path, exc_info=error)
        return problem(request, 500, _BROKEN)

    async def _refusal(self, request: Request) -> Response | None:
        path = path_of(request)
        if request.method not in _SAFE and not self._is_own(request):
            return problem(request, 403, _FOREIGN)
        if path.startswith(_OPEN):
            return None
        if self._is_throttled(request):
            wait = {"Retry-After": str(FAILURE_SECONDS)}
            return problem(request, 429, _THROTTLED, headers=wait)
        access = await self._access(request)
        if isinstance(access, Response):
            return access
        if access is None:
            return self._refused(request, path)
        if self._site.read_only:
            access = replace(access, role=Role.VIEWER)
        request.scope[ACCESS] = access
        return None

    def _is_own(self, request: Request) -> bool:
        # Browsers name the origin of every change, so a bearer without one is a script's.
        if "origin" not in request.headers:
            return self._bearer(request) is not None
        return is_own_origin(request, self._site.origins)

    async def _access(self, request: Request) -> Access | Response | None:
        site = self._site
        if site.access is not None:
            return await access_by(site.access, request)
        if site.sessions is None:
            return Access(who="local", role=Role.ADMIN) if is_local(request) else None
        bearer = self._bearer(request)
        if bearer is not None:
            is_known = site.sessions.knows(bearer, client_address(request))
            return Access(who="token", role=Role.ADMIN) if is_known else None
        if site.sessions.is_valid(request.cookies.get(COOKIE, "")):
            return Access(who="token", role=Role.ADMIN)
        return None

    def _is_throttled(self, request: Request) -> bool:
        site = self._site
        if site.access is not None or site.sessions is None or self._bearer(request) is None:
            return False
        return site.sessions.is_throttled(client_address(request))

    def _bearer(self, request: Request) -> str | None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" and token.strip() else None

    def _refused(self, request: Request, path: str) -> Response:
        if self._site.access is not None:
            return problem(request, 403, _NOT_ALLOWED)
        if self._site.sessions is None:
            return problem(request, 403, _NOT_LOCAL)
        if is_api(request):
            said = _NO_TOKEN if self._bearer(request) is None else _WRONG_TOKEN
            return problem(request, 401, said, headers={"WWW-Authenticate": "Bearer"})
        query = f"?{request.url.query}" if request.url.query else ""
        back = path + query if request.method in _SAFE and path + query != "/" else None
        return RedirectResponse(url(request, "/login", next=back), status_code=303)
