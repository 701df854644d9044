"""Owns `windlass web`: serves the web page of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.app.registration.importing import load_imports
from windlass.cli import app_target, options
from windlass.cli.output import console as show
from windlass.core.errors import ConfigError

App = Annotated[
    str | None,
    typer.Argument(metavar="MODULE:ATTR", show_default=False, help="The app whose jobs are shown."),
]
EXAMPLES = ("windlass web shop.jobs:app", "windlass web --url sqlite:///windlass.db --read-only")


def web(
    app: App = None,
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on.")] = 8080,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
    name: Annotated[
        str | None,
        typer.Option(help="A badge on every page, like production. [env: WINDLASS_WEB_NAME]"),
    ] = None,
    app_option: Annotated[str | None, typer.Option("--app", hidden=True)] = None,
    url: options.Url = None,
    space: options.InSpace = None,
) -> None:
    """Serve the web page: what is wrong, every job, and the remedies.

    Without a token only this host can open it. With WINDLASS_WEB_TOKEN it asks for that, and may
    listen on other addresses: --host 0.0.0.0.
    """
    try:
        # Imported here, because it is an extra, and other commands start without it.
        from windlass.web.server import address_of, listen, serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"windlass web needs Starlette, Jinja2 and uvicorn ({error}): pip install "
            "'windlass[web]'"
        ) from error

    async def work(chosen: Windlass) -> None:
        load_imports(chosen.settings.imports)
        has_token = bool(chosen.settings.web_token)
        listening = listen(host, port, has_login=has_token)
        log_in = "; log in with the token" if has_token else ""
        where = address_of(listening)
        show.note(f"{where} shows {chosen.store.location}{log_in}; Ctrl-C ends it")
        await serve(chosen.web(name=name, read_only=read_only), listening)

    app_target.visit(app_option or app, url, work, space=space)
