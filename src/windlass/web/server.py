"""Owns the server of `windlass web`: where it listens, and that it ends while pages are open."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from windlass.core.errors import ConfigError
from windlass.web.access.origins import is_loopback
from windlass.web.site import Site

_END_SECONDS = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """Ends at a signal, with its streams first: the server waits for open responses."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site
        self._loop = asyncio.get_running_loop()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # A signal is not raised again at the end: the store has to be closed after that.
        known = {each: signal.signal(each, self.handle_exit) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in known.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._site.watcher.close)


def listen(host: str, port: int, *, has_login: bool) -> socket.socket:
    """Listen on an address; one that other hosts can reach requires a login.

    Raises:
        ConfigError: other hosts can reach it and there is no login, or the address is in use.
    """
    refuse_open_page(host, has_login=has_login)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another with "
            "--port"
        ) from error


def refuse_open_page(host: str, *, has_login: bool) -> None:
    """Reject an address that other hosts can reach if there is no login.

    Raises:
        ConfigError: other hosts can reach it, and there is no login.
    """
    if not has_login and not is_loopback(f"[{host}]" if ":" in host else host):
        raise ConfigError(
            f"--host must be a loopback address without a token, got {host!r}; set "
            "WINDLASS_WEB_TOKEN to at least 16 characters, then other hosts may reach the page"
        )


def address_of(listening: socket.socket) -> str:
    """Return the address that a browser on this host opens."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"


async def serve(page: Starlette, listening: socket.socket) -> None:
    """Serve the page until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        page,
        log_config=None,
        access_log=False,
        server_header=False,
        # Addresses that a proxy reports are not believed: they decide who is on this host.
        proxy_headers=False,
        timeout_graceful_shutdown=_END_SECONDS,
        lifespan="off",
    )
    await _Server(config, page.state.site).serve([listening])
