"""Owns the web page behind the login of a Django project: who may open it, and where it is served.

`application = with_page(get_asgi_application(), "/jobs")`
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIHandler
from django.db import close_old_connections
from django.http import HttpRequest
from django.shortcuts import resolve_url
from django.utils.http import urlencode
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Match, Mount, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from windlass.contrib.django.project_apps import windlass_app
from windlass.web import Access, Role
from windlass.web.access.roles import AccessFunction
from windlass.web.problems import is_api
from windlass.web.site import url

_SAFE = ("GET", "HEAD")


@dataclass(frozen=True, kw_only=True)
class SessionAccess:
    """An `access=` for `app.web()` that goes by the session of the project's own login.

    Staff may look, and permissions decide who may act; superusers have all of them. People who are
    not logged in are sent to the login. Scripts without a session, and people who may not look, are
    refused.

    Example:
        `windlass_app().web(access=SessionAccess(payloads="shop.view_order"))`
    """

    view: str | None = None
    """The permission to look at the page; None: staff may."""
    operate: str = "windlass.operate_jobs"
    """The permission of operators."""
    administer: str = "windlass.administer_jobs"
    """The permission of admins."""
    payloads: str | None = None
    """The permission to see payloads and results; None: all who may look, by default all staff."""
    login_url: str | None = None
    """Where people log in: an address, or the name of a view; None: settings.LOGIN_URL."""

    async def __call__(self, request: Request) -> Access | RedirectResponse | None:
        """Return the access of a request, a redirect to the login, or None to refuse it."""
        key = request.cookies.get(settings.SESSION_COOKIE_NAME)
        is_known, found = await sync_to_async(self._look_up, thread_sensitive=True)(key)
        if is_known or is_api(request):
            return found
        return self._to_login(request)

    def access_of(self, user: Any) -> Access | None:
        """Return the access of a user, for a login without Django's sessions."""
        roles = {Role.ADMIN: self.administer, Role.OPERATOR: self.operate}
        role = next((role for role, name in roles.items() if user.has_perm(name)), None)
        if role is None and not self._may_look(user):
            return None
        return Access(
            who=user.get_username(),
            role=role or Role.VIEWER,
            payloads=self.payloads is None or user.has_perm(self.payloads),
        )

    def _may_look(self, user: Any) -> bool:
        if self.view is None:
            return bool(getattr(user, "is_staff", False))
        return bool(user.has_perm(self.view))

    def _look_up(self, key: str | None) -> tuple[bool, Access | None]:
        """Return whether a session has a user, and what that one may do."""
        close_old_connections()
        try:
            user = _user_of(key)
            is_known = bool(user.is_authenticated and user.is_active)
            return is_known, self.access_of(user) if is_known else None
        finally:
            close_old_connections()

    def _to_login(self, request: Request) -> RedirectResponse:
        back = url(request, "/")
        if request.method in _SAFE:
            # With one slash: two would be an address on another host.
            back = "/" + str(request.url.replace(scheme="", netloc="")).lstrip("/")
        login = resolve_url(self.login_url or settings.LOGIN_URL)
        joint = "&" if "?" in login else "?"
        return RedirectResponse(f"{login}{joint}{urlencode({'next': back})}", status_code=303)


def with_page(
    application: ASGIApp,
    path: str = "/jobs",
    *,
    alias: str = "default",
    access: AccessFunction | None = None,
    name: str | None = None,
    read_only: bool = False,
) -> ASGIApp:
    """Return an ASGI application with the page below a path, and everything else as before.

    Requests below the path go to the page alone: no class of MIDDLEWARE sees them.
    `alias` names the backend in TASKS. `access` is `SessionAccess()` unless another is given;
    `name` and `read_only` are those of `app.web()`.

    Raises:
        ImproperlyConfigured: TASKS has no Windlass backend of that alias.
    """
    page = windlass_app(alias).web(
        access=SessionAccess() if access is None else access, name=name, read_only=read_only
    )
    mount = Mount(path, page)

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" and isinstance(application, ASGIHandler):
            await Router().lifespan(scope, receive, send)  # Django has none, and refuses it.
            return
        if scope["type"] == "http":
            match, found = mount.matches(scope)
            if match is Match.FULL:
                await mount.handle({**scope, **found}, receive, send)
                return
            slashed = {**scope, "path": f"{scope['path']}/"}
            if mount.matches(slashed)[0] is Match.FULL:
                await RedirectResponse(str(URL(scope=slashed)))(scope, receive, send)
                return
        await application(scope, receive, send)

    return dispatch


def _user_of(key: str | None) -> Any:
    """Return the user of a session, who may be anonymous; the session is not changed."""
    session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    # Where SECRET_KEY was rotated, Django gives the session another key, and where the password was
    # changed it deletes the session: each with a new cookie, which only an answer of Django has.
    session.cycle_key = session.flush = lambda: None
    request = HttpRequest()
    request.session = session
    return get_user(request)
