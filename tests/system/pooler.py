"""Owns the life of a pooler's process: what it stands in front of is for its subclasses to say."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from random import sample
from typing import Any, ClassVar, Self, TextIO
from urllib.parse import urlsplit

import psycopg
from psycopg.rows import dict_row

from tests.support.postgres.server import GUARDIAN, PORTS, held, is_free, plain_environ
from tests.support.postgres.wheel import ServerFailed, identity, unprivileged

PATIENCE = 30.0
"""Seconds after which a pooler that is not ready will not be."""


class Pooler(ABC):
    """A program between clients and servers.

    As a context manager it starts, and afterwards is gone with its directory. It never outlives
    the process that made it.
    """

    NAME: ClassVar[str]
    CONSOLE: ClassVar[str]
    """The database that is there as soon as the pooler is ready."""
    STOP: ClassVar[signal.Signals]
    """The signal that ends it at once, whoever is connected."""

    def __init__(self) -> None:
        self.port = 0
        self._nobody = unprivileged()
        self._directory = Path(tempfile.mkdtemp(prefix=f"windlass-{self.NAME.lower()}-"))
        self._directory.chmod(0o755)
        self._log = self._directory / "log"
        self._hold: TextIO | None = None
        self._guardian: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _files(self, port: int) -> dict[str, str]:
        """Return the text of each of its files of settings."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command that runs it in the foreground."""

    def start(self) -> None:
        """Start the pooler, at the port that it had before, and wait until it answers.

        Raises:
            ServerFailed: it cannot be started.
        """
        if self._hold is None:
            self._hold = held(self._directory / "holders")
        for port in [self.port] if self.port else sample(PORTS, 20):
            if is_free(port) and self._serves(port):
                self.port = port
                return
        raise ServerFailed(f"no free port for {self.NAME}: {self.log}")

    def stop(self) -> None:
        """Stop the pooler at once, whoever is connected."""
        if self._guardian is not None and self._guardian.poll() is None:
            self._guardian.send_signal(self.STOP)
            self._guardian.wait(PATIENCE)

    def close(self) -> None:
        """Stop the pooler, and remove its directory."""
        self.stop()
        if self._hold is not None:
            self._hold.close()
            self._hold = None
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def log(self) -> str:
        """What the pooler has logged since it was made."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def through(self, url: str) -> str:
        """Return a URL of the server as one that goes through the pooler."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at}127.0.0.1:{self.port}").geturl()

    def show(self, what: str) -> list[dict[str, Any]]:
        """Ask the pooler about itself."""
        with self._console(self.port) as console:
            return console.execute(f"SHOW {what}".encode()).fetchall()

    def _console(self, port: int) -> psycopg.Connection[dict[str, Any]]:
        url = f"postgresql://postgres@127.0.0.1:{port}/{self.CONSOLE}"
        return psycopg.connect(url, autocommit=True, connect_timeout=5, row_factory=dict_row)

    # -- how -----------------------------------------------------------------------------------

    def _serves(self, port: int) -> bool:
        """Start the pooler at a port, and say whether it could have it."""
        self._configure(port)
        told = len(self.log)
        guardian = self._spawn()
        give_up = time.monotonic() + PATIENCE
        while not self._is_ready(port):
            if guardian.poll() is not None:
                story = self.log[told:]
                if "in use" in story and not self.port:
                    return False
                raise ServerFailed(f"{self.NAME} ended while it started: {story}")
            if time.monotonic() > give_up:
                story = self.log[told:]
                raise ServerFailed(f"{self.NAME} is not ready within {PATIENCE} s: {story}")
            time.sleep(0.01)
        return True

    def _configure(self, port: int) -> None:
        for name, text in self._files(port).items():
            (self._directory / name).write_text(text)
        if self._nobody is not None:
            for file in (self._directory, *self._directory.iterdir()):
                os.chown(file, self._nobody.pw_uid, self._nobody.pw_gid)

    def _spawn(self) -> subprocess.Popen[str]:
        order = {
            "command": self._command(),
            "cwd": str(self._directory),
            "identity": identity(self._nobody),
            "log": str(self._log),
            "holders": str(self._directory / "holders"),
            "remove": [str(self._directory)],
        }
        self._guardian = subprocess.Popen(
            [sys.executable, "-P", str(GUARDIAN), json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=plain_environ(),
            start_new_session=True,
        )
        assert self._guardian.stdout is not None
        with self._guardian.stdout as stream:
            stream.readline()
        return self._guardian

    def _is_ready(self, port: int) -> bool:
        try:
            with self._console(port):
                return True
        except psycopg.OperationalError:
            return False
