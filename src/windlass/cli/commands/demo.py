"""Owns the command `windlass demo`; the demo itself is in `windlass.demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from windlass.app import Windlass
from windlass.cli.output import console as show
from windlass.core.errors import ConfigError

if TYPE_CHECKING:
    from windlass.demo.run import ServePage

EXAMPLES = ("windlass demo --jobs 5000", "windlass demo --web")


def demo(
    jobs: Annotated[int, typer.Option(min=20, max=100_000, help="Number of jobs to run.")] = 1000,
    *,
    web: Annotated[
        bool, typer.Option("--web", help="Serve the web page of its jobs, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the web page.")] = 8080,
) -> None:
    """Watch a thousand jobs run.

    Most are fast, some slow, some fail and are retried, one snoozes, one goes dead. Uses an
    embedded queue in a temporary directory, and one worker process. Leaves nothing behind.
    """
    # Imported here: no other command needs the demo's app.
    from windlass.demo.run import run_demo

    raise typer.Exit(run_demo(jobs, show.stdout(), _page(port) if web else None))


def _page(port: int) -> ServePage:
    try:
        # Imported here, because it is an extra.
        from windlass.web.server import address_of, listen, serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"windlass demo --web needs Starlette, Jinja2 and uvicorn ({error}): pip install "
            "'windlass[web]'"
        ) from error
    listening = listen("127.0.0.1", port, has_login=False)

    async def serve_page(app: Windlass) -> None:
        show.say(f"its web page: {address_of(listening)}  (Ctrl-C ends it)")
        await serve(app.web(name="demo"), listening)

    return serve_page
