"""Owns `windlass worker --drain PID`, which ends a worker process of this machine and waits for it.

Made for the preStop hook of a container and for deploy scripts, so it can be repeated: a process
that is gone counts as ended.
"""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import typer

from windlass.cli.output import console
from windlass.core.values.durations import human
from windlass.process import CHANNEL_VARIABLE
from windlass.process.grace_periods import DRAIN_GRACE
from windlass.settings import load_settings

_PROC = Path("/proc")
_POLL_SECONDS = 0.05
_STATE, _PARENT, _STARTED = 0, 1, 19
"""Indexes of these fields in /proc/PID/stat, after the program's name."""
_DEAD = ("Z", "X")


def drain(pid: int, shutdown_timeout: str | None) -> None:
    """Send SIGTERM to a worker, and return once its process has ended.

    Raises: Exit: with 1, and a line that says why: the process is no worker, belongs to another
    user, or did not end.
    """
    flags = {"shutdown_timeout": shutdown_timeout}
    settings = load_settings(flags, environ=os.environ, directory=Path.cwd()).settings
    patience = settings.shutdown_timeout + DRAIN_GRACE
    born = _birth(pid)
    if born is None:
        console.note(f"process {pid} has already ended")
        return
    if not _is_worker(pid):
        raise _refusal(f"process {pid} is not a `windlass worker`; no signal was sent")
    if (supervisor := _supervisor_of(pid)) is not None:
        console.note(
            f"process {pid} is a worker of supervisor {supervisor}, which would replace it; to "
            f"drain them all: windlass worker --drain {supervisor}"
        )
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        console.note(f"process {pid} has already ended")
        return
    except PermissionError:
        raise _refusal(f"process {pid} belongs to another user; run this as that user") from None
    deadline = time.monotonic() + patience.total_seconds()
    while _birth(pid) == born:
        if time.monotonic() > deadline:
            raise _refusal(
                f"process {pid} is still running {human(patience)} after SIGTERM; if its shutdown "
                "timeout is longer, give the same one here with --shutdown-timeout"
            )
        time.sleep(_POLL_SECONDS)
    console.note(f"process {pid} has ended")


def _refusal(why: str) -> typer.Exit:
    console.error(why)
    return typer.Exit(1)


def _birth(pid: int) -> str | None:
    """Return when a process began, by the kernel's account, or None if it has ended.

    A process that has ended stays listed until its parent reaps it; another process may reuse its
    number afterwards. Without /proc neither can be seen, and every process has the same birth.
    """
    fields = _stat(pid)
    if fields is None:
        return None if (_PROC / "self").exists() else _listed(pid)
    return None if fields[_STATE] in _DEAD else fields[_STARTED]


def _stat(pid: int) -> list[str] | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()


def _listed(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""


def _supervisor_of(pid: int) -> int | None:
    """Return the supervisor that started a worker and would replace it, if the system shows that.

    By the environment of the process: an init is a parent, too, and replaces nothing.
    """
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    fields = _stat(pid)
    if fields is None or not any(
        each.startswith(f"{CHANNEL_VARIABLE}=".encode()) for each in environ
    ):
        return None
    parent = int(fields[_PARENT])
    return parent if _is_worker(parent) else None


def _is_worker(pid: int) -> bool:
    """Return whether a process was called as `windlass worker`, or wraps one as an init does.

    Without /proc this is unknown, and the caller is trusted.
    """
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return not (_PROC / "self").exists()
    called = [each for each in words if not each.startswith("-")]
    pairs = pairwise(called)
    is_served = any(_is_windlass(word) and behind == "worker" for word, behind in pairs)
    return is_served and not any(word.partition("=")[0] == "--drain" for word in words)


def _is_windlass(word: str) -> bool:
    return word.removesuffix("/__main__.py").rpartition("/")[2] == "windlass"
