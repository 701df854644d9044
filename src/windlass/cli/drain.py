"""Owns `windlass worker --drain PID`: has a worker process of this machine end, and waits for it.

For the preStop hook of a container and for scripts that deploy; so it can be repeated, and a
process that is gone is as good as one that has ended.
"""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import typer

from windlass.cli import show
from windlass.core.durations import human
from windlass.runtime.graces import DRAIN_GRACE
from windlass.runtime.leash import VARIABLE
from windlass.settings import load_settings

_PROC = Path("/proc")
_GLANCE = 0.05
_STATE, _PARENT, _STARTED = 0, 1, 19
"""Where /proc/PID/stat has these, after the name of the program; the last is the time of birth."""
_DEAD = ("Z", "X")


def drain(pid: int, shutdown_timeout: str | None) -> None:
    """Send SIGTERM to a worker, and return once its process has ended.

    Raises:
        Exit: with 1, and a line that says why: it is no worker, is not ours, or did not end.
    """
    flags = {"shutdown_timeout": shutdown_timeout}
    settings = load_settings(flags, environ=os.environ, directory=Path.cwd()).settings
    patience = settings.shutdown_timeout + DRAIN_GRACE
    born = _birth(pid)
    if born is None:
        show.note(f"process {pid} is gone already")
        return
    if not _is_worker(pid):
        raise _refusal(f"process {pid} is not a `windlass worker`, and was not told to end")
    if (supervisor := _supervisor_of(pid)) is not None:
        show.note(
            f"process {pid} is a worker of the supervisor {supervisor}, which will replace it; to "
            f"end them all: windlass worker --drain {supervisor}"
        )
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        show.note(f"process {pid} is gone already")
        return
    except PermissionError:
        raise _refusal(f"process {pid} belongs to somebody else: run this as its user") from None
    deadline = time.monotonic() + patience.total_seconds()
    while _birth(pid) == born:
        if time.monotonic() > deadline:
            raise _refusal(
                f"process {pid} was told to end, and still runs after {human(patience)}: if its "
                "shutdown timeout is longer than that, give it here, too: --shutdown-timeout"
            )
        time.sleep(_GLANCE)
    show.note(f"process {pid} has ended")


def _refusal(why: str) -> typer.Exit:
    show.error(why)
    return typer.Exit(1)


def _birth(pid: int) -> str | None:
    """Return when a process began, as the kernel tells it, or None if it has ended.

    One that has ended may still be listed, until its parent takes notice; another may have its
    number by then. Without /proc neither can be seen, and every process was born at once.
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
    """Return who started a worker and will replace it, as far as the system tells that.

    By the environment that the process began with: an init is a parent, too, and replaces nobody.
    """
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    fields = _stat(pid)
    if fields is None or not any(each.startswith(f"{VARIABLE}=".encode()) for each in environ):
        return None
    parent = int(fields[_PARENT])
    return parent if _is_worker(parent) else None


def _is_worker(pid: int) -> bool:
    """Say whether a process was called as `windlass worker`, or wraps one as an init does.

    Where there is no /proc nobody can tell, and the caller is believed.
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
