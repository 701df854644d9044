"""Owns the login with the token, and the logout."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from windlass.web.access.origins import client_address
from windlass.web.access.sessions import COOKIE, SESSION_SECONDS, Sessions
from windlass.web.forms import form_of
from windlass.web.site import render, see_other, site_of


async def login(request: Request) -> Response:
    """Ask for the token, or take it and set the cookie."""
    sessions = _sessions(request)
    back = _own_path(request.query_params.get("next", "/"))
    if request.method != "POST":
        return render(request, "login.html", {"problem": "", "next": back})
    # Read before the throttle is asked: guesses whose bodies arrive together all count.
    token = (await form_of(request)).get("token", "").strip()
    address = client_address(request)
    if sessions.is_throttled(address):
        problem = "too many wrong tokens; wait a minute, then try again"
        return render(request, "login.html", {"problem": problem, "next": back}, status=429)
    cookie = sessions.log_in(token, address)
    if cookie is None:
        problem = "this is not the token; it is the value of WINDLASS_WEB_TOKEN on the server"
        return render(request, "login.html", {"problem": problem, "next": back}, status=403)
    response = see_other(request, back)
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=SESSION_SECONDS,
        path=request.scope.get("root_path", "") or "/",
        httponly=True,
        samesite="lax",
        secure=_is_tls(request),
    )
    return response


async def logout(request: Request) -> Response:
    """Forget the cookie."""
    response = see_other(request, "/login")
    response.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/")
    return response


def _sessions(request: Request) -> Sessions:
    site = site_of(request)
    if site.sessions is None or site.access is not None:
        raise HTTPException(404, "there is no login here; set WINDLASS_WEB_TOKEN to have one")
    return site.sessions


def _is_tls(request: Request) -> bool:
    """Return whether the browser uses TLS: a proxy may end it, but the browser names its origin."""
    origin = request.headers.get("origin", "")
    return request.url.scheme == "https" or origin.startswith("https://")


def _own_path(path: str) -> str:
    """Return a path of this page, whatever a link says: another site may have made it."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and "\\" not in path
    return path if is_own else "/"
