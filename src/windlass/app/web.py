"""Owns `app.web`: it makes the web page of an app, which is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windlass.core.errors import ConfigError

if TYPE_CHECKING:
    from windlass.app.app import Windlass


class WebPage:
    """`app.web(...)` returns the web page as an ASGI application."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    def __call__(
        self,
        *,
        access: Any = None,
        origins: Sequence[str] = (),
        name: str | None = None,
        read_only: bool = False,
    ) -> Any:
        """Return the page, to be mounted under any prefix: `Mount("/jobs", app.web(access=f))`.

        `access` is a function, plain or async, that returns a `windlass.web.Access` for a request
        by the program's own login, or None to refuse it. Without it the page asks for the token of
        WINDLASS_WEB_TOKEN; without that, too, it serves only requests from this host. `origins` are
        those under which a proxy serves the page, if it changes the Host header. `name` is shown as
        a badge on every page, like "production". `read_only` refuses every change.

        Raises:
            ConfigError: the extra is not installed.
        """
        try:
            # Imported here, because it is an extra.
            from windlass.web.asgi import make_asgi
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"the web page needs Starlette and Jinja2 ({error}): pip install 'windlass[web]'"
            ) from error
        return make_asgi(self._app, access=access, origins=origins, name=name, read_only=read_only)
