"""Owns real PostgreSQL servers for tests and benchmarks, from the binaries of a wheel."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import sample
from types import MappingProxyType
from typing import Literal, Self, TextIO

from tests.support.postgres.cluster import Cluster
from tests.support.postgres.wheel import (
    WHEEL,
    ServerFailed,
    identity,
    installations,
    newest,
    reachable,
    unprivileged,
    versions,
)

__all__ = ["FAST", "Mode", "Server", "ServerFailed", "held", "is_free", "newest", "versions"]

Mode = Literal["smart", "fast", "immediate"]

FAST: Mapping[str, str | int] = MappingProxyType(
    {
        "fsync": "off",
        "full_page_writes": "off",
        "shared_buffers": "32MB",
        "max_connections": 200,
        "max_prepared_transactions": 10,
        # Tests that pin a plan would depend on when it last came by.
        "autovacuum": "off",
    }
)
"""Settings of a server whose data nobody will miss; without them, durability is the default."""
SUPERUSER = "postgres"
PORTS = range(20_000, 32_000)
"""Below every system's ephemeral ports, so that no client takes ours during a restart."""
PATIENCE = 60.0
"""Seconds after which a server that is not ready will not be, also after a long recovery."""
SIGNALS: Mapping[Mode, signal.Signals] = MappingProxyType(
    {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
)
GUARDIAN = Path(__file__).with_name("guardian.py")


class Server(Cluster):
    """A PostgreSQL server of our own, in a directory of its own, that never outlives its holders.

    As a context manager it starts, and afterwards is gone with its directory. Without settings it
    is as durable as PostgreSQL is by default. A directory that is given is made if need be, is
    used again if it holds a server's data, and stays; as root, put it where others may go.
    """

    def __init__(
        self,
        *,
        version: int | None = None,
        directory: Path | None = None,
        settings: Mapping[str, str | int] | None = None,
        holders: Path | None = None,
        remove: Sequence[Path] = (),
    ) -> None:
        self.version = newest() if version is None else version
        self.directory = made(directory)
        self.port = 0
        self.pid = 0
        self._settings = dict(settings or {})
        self._nobody = unprivileged()
        self._data = self.directory / "data"
        self._sockets = self.directory / "sockets"
        self._log = self.directory / "log"
        self._remove = [*remove, *([] if directory else [self.directory])]
        self._holders = holders or self.directory / "holders"
        self._hold: TextIO | None = None
        self._guardian: subprocess.Popen[str] | None = None
        self._crashed = False
        super().__init__("")

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server, and wait until it answers.

        Raises:
            ServerFailed: It cannot be started.
        """
        if self.is_running:
            return
        if self._hold is None:
            self._hold = held(self._holders)
        binaries = self._binaries()
        self._own(self._data, self._sockets)
        if not (self._data / "PG_VERSION").exists():
            self._initdb(binaries)
        for port in [self.port] if self.port else sample(PORTS, 20):
            if is_free(port) and self._serves(binaries, port):
                break
        else:
            raise ServerFailed(f"no free port: {self.log[-3_000:]}")
        self._crashed = False
        self._maintenance = f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/postgres"

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server, and wait until it has ended."""
        self._signal(SIGNALS[mode])

    def restart(self, mode: Mode = "immediate") -> None:
        """Stop the server and start it at the same port; an immediate stop has it recover."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Kill every process of the server at once, as a power cut does."""
        self._crashed = True
        self._signal(signal.SIGUSR1)

    def close(self) -> None:
        """Stop the server, and remove its directory unless it was given."""
        try:
            if self._crashed:
                # Only a start in the same directory frees the shared memory of a killed server.
                with suppress(ServerFailed):
                    self.start()
            self.stop("immediate" if self.directory in self._remove else "fast")
        finally:
            self.leave()
            for path in self._remove:
                shutil.rmtree(path, ignore_errors=True)

    def leave(self) -> None:
        """Hold the server no longer; it ends when nobody else does either."""
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- facts ---------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Say whether the server has been started and has not ended."""
        return self._guardian is not None and self._guardian.poll() is None

    @property
    def log(self) -> str:
        """What the server has logged since it was made."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def socket_url(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        """Return the URL of a database by way of the unix socket."""
        return f"postgresql://{user}@/{database}?host={self._sockets}&port={self.port}"

    # -- how -----------------------------------------------------------------------------------

    def _binaries(self) -> Path:
        home = installations().get(self.version)
        if home is None:
            found = f"it has {versions()}" if versions() else "is it installed?"
            raise ServerFailed(f"no PostgreSQL {self.version} in the wheel {WHEEL}: {found}")
        return reachable(home, self.directory, self._nobody) / "bin"

    def _own(self, *directories: Path) -> None:
        for directory in directories:
            if not directory.exists():
                directory.mkdir()
                if self._nobody is not None:
                    os.chown(directory, self._nobody.pw_uid, self._nobody.pw_gid)

    def _initdb(self, binaries: Path) -> None:
        command: list[str | Path] = [binaries / "initdb", "--pgdata", self._data]
        # Not synced: what a test server promises is to survive its own death, not the machine's.
        command += ["--username", SUPERUSER, "--auth=trust", "--no-sync", "--no-instructions"]
        # Without a locale everything is the same everywhere, down to the words of the errors.
        command += ["--no-locale", "--encoding=UTF8"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._data,
            env=plain_environ(),
            **identity(self._nobody),
        )
        if done.returncode:
            raise ServerFailed(f"initdb in {self._data}: {done.stdout}")

    def _serves(self, binaries: Path, port: int) -> bool:
        """Start the server at a port, and say whether it could have it."""
        told = len(self.log)
        self._spawn(binaries, port)
        give_up = time.monotonic() + PATIENCE
        while not self._is_ready():
            if not self.is_running:
                story = self.log[told:]
                if "could not bind" in story and not self.port:
                    return False
                raise ServerFailed(f"PostgreSQL ended while it started: {story}")
            if time.monotonic() > give_up:
                self._signal(signal.SIGQUIT)
                raise ServerFailed(f"not ready within {PATIENCE} s: {self.log[told:]}")
            time.sleep(0.01)
        self.port = port
        return True

    def _spawn(self, binaries: Path, port: int) -> None:
        where = ["-h", "127.0.0.1", "-p", str(port), "-k", str(self._sockets)]
        order = {
            "command": [str(binaries / "postgres"), "-D", str(self._data), *where],
            "cwd": str(self._data),
            "identity": identity(self._nobody),
            "log": str(self._log),
            "holders": str(self._holders),
            "remove": [str(path) for path in self._remove],
        }
        self._guardian = subprocess.Popen(
            [sys.executable, "-P", str(GUARDIAN), json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=plain_environ(),
            # Else Ctrl-C in the terminal would stop the server before the tests that use it.
            start_new_session=True,
        )
        assert self._guardian.stdout is not None
        with self._guardian.stdout as stream:
            self.pid = int(stream.readline() or 0)
        if not self.pid:
            raise ServerFailed(f"the guardian ended with {self._guardian.wait()}")

    def _is_ready(self) -> bool:
        # A killed server leaves its file behind, and it says ready; but not with the new pid.
        try:
            lines = (self._data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        return lines[0] == str(self.pid) and len(lines) > 7 and lines[7].strip() == "ready"

    def _signal(self, number: signal.Signals) -> None:
        if self._guardian is None or self._guardian.poll() is not None:
            return
        self._guardian.send_signal(number)
        try:
            self._guardian.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"still running {PATIENCE} s after {number.name}") from None


def plain_environ() -> dict[str, str]:
    """Return the environment without what would tell PostgreSQL's programs about other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def made(directory: Path | None) -> Path:
    """Make a server's directory, with a short name: a socket's path has a hundred bytes."""
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix="windlass-pg-"))
    elif directory.exists():
        return directory.resolve()
    else:
        directory.mkdir(parents=True)
    directory.chmod(0o755)
    return directory.resolve()


def held(holders: Path) -> TextIO:
    """Hold a server as long as the file that is returned is open."""
    file = holders.open("a+")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def is_free(port: int) -> bool:
    """Say whether nobody listens at a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
