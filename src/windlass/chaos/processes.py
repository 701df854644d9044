"""Owns the processes under chaos: supervisors with their workers, producers, and who is below whom.

Every process is started from the main thread: Linux kills what is left of them when that ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import windlass
from windlass.chaos.ledger import VARIABLE
from windlass.chaos.terms import Order
from windlass.settings import describe_settings

_FOREIGN = {name for setting in describe_settings() for name in setting.other_names}
_EXEC = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL.
os.execv(sys.argv[1], sys.argv[1:])
"""
_DIE_WITH_PARENT = [sys.executable, "-I", "-S", "-c", _EXEC] if sys.platform == "linux" else []
_WORKER = ("-m", "windlass", "worker", "windlass.chaos.workload:app", "--log-format", "json")
_PRODUCER = ("-m", "windlass.chaos.producer")


def spawn(
    command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, so that Ctrl-C reaches only this process."""
    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603 - our own commands, and no shell.
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            **options,
        )


def spawn_mortal(
    command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that Linux kills when this process ends, however that happens."""
    return spawn([*_DIE_WITH_PARENT, *command], log=log, env=env, cwd=log.parent)


class Fleet:
    """A supervisor with its workers, which can be started again."""

    def __init__(
        self,
        number: int,
        directory: Path,
        env: Mapping[str, str],
        lease: float,
        *,
        is_spared: bool = False,
    ) -> None:
        self.number = number
        self.is_spared = is_spared
        self._log = directory / f"fleet-{number}.log"
        self._env = env
        self._flags = [
            *("--processes", "2", "--concurrency", "8", "--threads", "4"),
            *("--isolated-processes", "1", "--lease", f"{lease}s", "--poll-interval", "200ms"),
            *("--shutdown-timeout", "5s", "--metrics-port", "0", "--log-level", "info"),
            *("--wait-for-store", "60s", "--name", f"fleet-{number}"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the supervisor."""
        command = [sys.executable, *_WORKER, *self._flags]
        self._process = spawn_mortal(command, log=self._log, env=self._env)

    @property
    def pid(self) -> int:
        """The process id of the supervisor; 0: it has not been started."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the supervisor has not ended."""
        return self._process is not None and self._process.poll() is None

    def workers(self) -> list[int]:
        """Return the process ids of its workers."""
        return [pid for pid in children_of(self.pid) if is_python(pid)] if self.is_running else []

    def terminate(self) -> None:
        """Let it drain and end."""
        if self._process is not None and self.is_running:
            self._process.terminate()

    def kill(self) -> None:
        """Kill it with everything below it, stopped or not, and wait for its end."""
        if self._process is not None:
            signal_all([*descendants(self.pid), self.pid], signal.SIGKILL)
            self._process.wait()


class ProducerProcess:
    """A producer with its order, which another can take the place of."""

    def __init__(self, order: Order, directory: Path, env: Mapping[str, str]) -> None:
        self._order = order
        self._log = directory / f"producer-{order.number}.log"
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, passed: float = 0.0) -> None:
        """Start one, for what is left of the order after some seconds have passed."""
        order = self._order.rest(passed)
        self._order = replace(self._order, life=order.life + 1)
        text = msgspec.json.encode(order).decode()
        command = [sys.executable, *_PRODUCER, text]
        self._process = spawn_mortal(command, log=self._log, env=self._env)

    @property
    def number(self) -> int:
        """Which of the producers it is."""
        return self._order.number

    @property
    def pid(self) -> int:
        """The process id; 0: it has not been started."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def end(self, seconds: float) -> bool:
        """Let it end between two calls; return whether it did so in time."""
        if self._process is None:
            return True
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def environment(url: str, ledger: Path, **settings: str) -> dict[str, str]:
    """Return the environment of processes under chaos, without the user's own settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("WINDLASS_") and name not in _FOREIGN
    }
    package = str(Path(windlass.__file__).parents[1])
    path = os.pathsep.join(filter(None, (package, kept.get("PYTHONPATH"))))
    own = {f"WINDLASS_{name.upper()}": value for name, value in settings.items()}
    return {**kept, "PYTHONPATH": path, "WINDLASS_URL": url, VARIABLE: str(ledger), **own}


# -- who is below whom -------------------------------------------------------------------------


def children_of(pid: int) -> list[int]:
    """Return the processes right below one."""
    return [child for child, parent in _parents().items() if parent == pid]


def descendants(pid: int) -> list[int]:
    """Return all processes below one."""
    parents, found = _parents(), [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def is_python(pid: int) -> bool:
    """Return whether a process runs Python; where that cannot be seen, it is assumed."""
    try:
        return b"python" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc/self").exists()


def is_alive(pid: int) -> bool:
    """Return whether a process of this user exists."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those processes that have not ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _parents() -> dict[int, int]:
    """Return the parent of every process that lives."""
    found: dict[int, int] = {}
    if Path("/proc/self/stat").exists():
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, parent, *_ = path.read_text().rpartition(")")[2].split()
                if state != "Z":
                    found[int(path.parent.name)] = int(parent)
        return found
    listing = subprocess.run(
        ["/bin/ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in listing.stdout.splitlines())
    return {int(pid): int(parent) for pid, parent in rows}
