"""Owns what a store under chaos is: its URLs, the faults that it can have, and how it ends."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from windlass.chaos.plan import FaultKind
from windlass.chaos.proxy import Proxy
from windlass.core.errors import ConfigError

_PORTS = range(20_000, 32_000)


class Ground:
    """A store of chaos's own, or a user's; `prepare` begins and `close` ends its use."""

    name = ""
    has_transactions = False
    settings: Mapping[str, str] = {}
    """Settings that apps and workers need besides the URL."""

    def __init__(self) -> None:
        self.url = ""
        self.proxy: Proxy | None = None
        self.impossible: dict[FaultKind, str] = {}
        """The faults that cannot be thrown here, and why."""

    @property
    def workers_url(self) -> str:
        """The URL for workers and producers: by a network that can be broken, if there is one."""
        return self.url if self.proxy is None else through(self.url, self.proxy.port)

    @property
    def faults(self) -> list[FaultKind]:
        """The faults that can be thrown here."""
        return [kind for kind in FaultKind if kind not in self.impossible]

    async def prepare(self) -> None:
        """Start what is needed.

        Raises: ConfigError: a user's store is not empty.
        """

    async def close(self) -> None:
        """End what was started, and remove what was made."""

    async def create_effects(self) -> None:
        """Create the table for effects in transactions, where there are any."""

    async def effects(self) -> dict[str, list[int]] | None:
        """Return, by job, the attempts that had an effect; None: the store has no transactions."""
        return None

    async def terminate_backends(self) -> None:
        """Terminate every session of workers and producers."""
        raise NotImplementedError

    async def restart(self, pause: float) -> None:
        """Kill the server, and start it again after a pause."""
        raise NotImplementedError

    async def fail_over(self, pause: float) -> None:
        """Promote the replica, and kill the primary after a pause in which it still serves."""
        raise NotImplementedError

    async def step_clock(self, seconds: float) -> None:
        """Set the store's clock forward, or back if negative, and leave it there."""
        raise NotImplementedError

    async def fill_disk(self, seconds: float) -> None:
        """Let the disk be full for a while."""
        raise NotImplementedError

    def _without(self, reason: str, *kinds: FaultKind) -> None:
        for kind in kinds:
            self.impossible[kind] = reason

    async def _start_proxy(self, default_port: int) -> None:
        parts = urlsplit(self.url)
        self.proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or default_port)
        await self.proxy.start()


def through(url: str, port: int) -> str:
    """Return a URL as one that goes through a proxy of this machine."""
    parts = urlsplit(url)
    login, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{login}{at}127.0.0.1:{port}").geturl()


def is_plain_host(url: str) -> bool:
    """Return whether a URL names one host that a proxy can stand in front of."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # Several hosts, each with a port.
        return False
    host = parts.hostname or ""
    return bool(host) and "," not in parts.netloc and "%2F" not in host.upper()


def refuse_full(what: str, remedy: str) -> ConfigError:
    """Return the error for a store that is not empty."""
    return ConfigError(f"the store of windlass chaos must be empty, but {what}; {remedy}")


def free_port() -> int:
    """Return a port at which no process listens, below those that the system gives to clients."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ConfigError("no port between 20,000 and 32,000 is free on 127.0.0.1; end some servers")
