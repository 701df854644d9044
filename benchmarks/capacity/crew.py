"""Owns a `windlass worker` as an operator starts it: a supervisor with its worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from benchmarks.capacity import proc
from benchmarks.program import ProgramFailed

_APP = "benchmarks.capacity.jobs:app"
_GRACE = 30.0
_SHOWN = 1500


class Crew:
    """A supervisor, its worker processes, and their children."""

    def __init__(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self._process = process
        self._log = log

    @property
    def supervisor(self) -> int:
        """The process that was started."""
        return self._process.pid

    @property
    def workers(self) -> list[int]:
        """The worker processes."""
        return proc.children(self.supervisor)

    @property
    def children(self) -> list[int]:
        """The child processes for isolated handlers."""
        return proc.family(self.supervisor)[1 + len(self.workers) :]

    def cpu(self) -> float:
        """CPU time that all of them have used."""
        return proc.cpu_seconds(proc.family(self.supervisor))

    def check(self) -> None:
        """Look whether it is alive.

        Raises:
            ProgramFailed: It ended by itself.
        """
        if self._process.poll() is not None:
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").strip()[-_SHOWN:]
            raise ProgramFailed(f"the worker ended with {self._process.returncode}: {said}")

    def end(self) -> None:
        """Have it drain, and wait for that."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(_GRACE)

    def kill(self) -> None:
        """End all of them at once, as a lost host does."""
        for pid in proc.family(self.supervisor):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill_workers(self) -> None:
        """End the worker processes at once, but not their supervisor."""
        for pid in self.workers:
            os.kill(pid, signal.SIGKILL)


@contextmanager
def crew(url: str, *, quiet: bool = True, **flags: object) -> Iterator[Crew]:
    """Run `windlass worker` with these flags, for as long as this lasts.

    `quiet` has it serve no metrics and log warnings only. Otherwise it does as it does by default:
    metrics are served, and every job writes its lines, into a file.
    """
    settings = {f"WINDLASS_{name.upper()}": str(value) for name, value in flags.items()}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    hush = {"WINDLASS_METRICS_PORT": "0", "WINDLASS_LOG_LEVEL": "warning"} if quiet else {}
    command = [sys.executable, "-m", "windlass", "worker", _APP]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env={**kept, "WINDLASS_URL": url, **hush, **settings},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        it = Crew(process, log)
        try:
            yield it
            if process.poll() is None:
                it.end()
        finally:
            if process.poll() is None:
                it.kill()
