"""Owns the web page as a mounted handler of Litestar, behind the login of the program."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from litestar import asgi
from litestar.connection import ASGIConnection
from litestar.handlers import ASGIRouteHandler
from litestar.types import Guard, Receive, Scope, Send

from windlass.app import Windlass

if TYPE_CHECKING:
    from windlass.contrib.litestar.plugin import AccessFunction


def page_handler(
    app: Windlass,
    path: str,
    access: AccessFunction | None,
    guards: Sequence[Guard],
    name: str | None,
) -> ASGIRouteHandler:
    """Return the handler of the page under a path.

    Raises: ConfigError: the extra of the page is not installed.
    """
    path = "/" + path.strip("/")

    async def found(request: Any) -> Any:
        """Return the access of a request, which is Starlette's, by that of Litestar."""
        if access is None:
            return None
        answer = access(ASGIConnection(scope=request.scope, receive=request.receive))
        return await answer if inspect.isawaitable(answer) else answer

    page = app.web(access=None if access is None else found, name=name)

    # Its forms have a protection of their own against requests from elsewhere.
    @asgi(path, is_mount=True, copy_scope=True, guards=guards, opt={"exclude_from_csrf": True})
    async def windlass_page(scope: Scope, receive: Receive, send: Send) -> None:
        # As a mount of Starlette has it: links of the page begin with the root path.
        root = scope.get("root_path", "").rstrip("/") + path
        below = (
            scope["path"].rstrip("/") or "/"
        )  # Litestar ends every path of a mount with a slash.
        await page({**scope, "root_path": root, "path": root + below}, receive, send)

    return windlass_page
