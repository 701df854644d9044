"""Owns the process that a PostgreSQL server runs under, so that no server outlives its tests.

Whoever needs the server holds a shared lock on a file. The kernel lets go of it however they end,
SIGKILL included; once nobody holds it, the guardian ends the server and removes what it was told.
It stays root where the server may not be, because it need not be able to read anything else.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import psutil  # type: ignore[import-untyped]

LOOK = 0.5
"""Seconds between two looks at who still holds the server."""
PATIENCE = 10.0
"""Seconds that a server has to obey before it is told more firmly."""


class Guardian:
    """A server's parent, which passes signals on; SIGUSR1 kills the server as a power cut does."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._server: subprocess.Popen[bytes] | None = None

    def watch(self) -> int:
        """Run the server until it ends or nobody holds it, and return its exit code."""
        alarm = alarmed()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
            signal.signal(number, self._obey)
        with Path(self._order["holders"]).open("r+") as holders:
            self._server = server = self._start()
            self._tell(server.pid)
            while server.poll() is None:
                if nobody_holds(holders):
                    end(server)
                elif select.select([alarm], [], [], LOOK)[0]:
                    os.read(alarm, 512)
            # Still under the lock: who comes now waits until nothing of this server is left.
            if nobody_holds(holders):
                self._clean()
        return server.returncode

    def _start(self) -> subprocess.Popen[bytes]:
        with Path(self._order["log"]).open("ab") as log:
            return subprocess.Popen(
                self._order["command"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._order["cwd"],
                **self._order["identity"],
            )

    def _tell(self, pid: int) -> None:
        print(pid, flush=True)
        os.close(sys.stdout.fileno())

    def _obey(self, number: int, frame: object) -> None:
        if self._server is None or self._server.returncode is not None:
            return
        if number == signal.SIGUSR1:
            kill(self._server.pid)
        else:
            os.kill(self._server.pid, number)

    def _clean(self) -> None:
        for path in map(Path, self._order["remove"]):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def alarmed() -> int:
    """Return a pipe in which every signal is heard, the end of a child included."""
    # Not Popen.wait with a timeout: it looks eighty times a second, and benchmarks would feel it.
    hears, tells = os.pipe()
    os.set_blocking(tells, False)
    signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return hears


def nobody_holds(holders: TextIO) -> bool:
    """Say whether nobody needs the server any more, and if so let nobody begin to."""
    try:
        fcntl.flock(holders, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def ends(server: subprocess.Popen[bytes], within: float) -> bool:
    """Wait for the end of a server, and say whether it came."""
    try:
        server.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


def end(server: subprocess.Popen[bytes]) -> None:
    """End a server fast, else immediately, else by force."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        os.kill(server.pid, number)
        if ends(server, PATIENCE):
            return
    kill(server.pid)
    server.wait()


def kill(postmaster: int) -> None:
    """Kill a server with all its processes, and wait until they have let go of its memory."""
    # Stopped first: it would answer the death of a child by forking, and we would miss the new one.
    os.kill(postmaster, signal.SIGSTOP)
    processes = psutil.Process(postmaster).children(recursive=True)
    for process in processes:
        process.kill()
    os.kill(postmaster, signal.SIGKILL)
    give_up = time.monotonic() + PATIENCE
    while any(map(is_alive, processes)) and time.monotonic() < give_up:
        time.sleep(0.005)


def is_alive(process: psutil.Process) -> bool:
    """Say whether a process runs; a zombie holds no memory, and not every init buries it."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    sys.exit(abs(Guardian(json.loads(sys.argv[1])).watch()))
