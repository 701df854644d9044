"""Owns the demo's worker process: a real one, without the user's own settings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import windlass
from windlass.settings import describe_settings

_DRAIN_SECONDS = 20
_FOREIGN = {name for setting in describe_settings() for name in setting.other_names}


@contextmanager
def worker_process(directory: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker in a process of its own; drain it at the end, and wait for it."""
    command = [sys.executable, "-m", "windlass", "worker", "windlass.demo:app"]
    flags = ["--concurrency", "20", "--threads", "4", "--name", "demo"]
    with log_path(directory).open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own command, and no shell.
            command + flags,
            cwd=directory,
            env=_environment(url),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            _end(process)


def log_path(directory: Path) -> Path:
    return directory / "worker.log"


def last_lines(directory: Path, count: int = 10) -> str:
    return "\n".join(log_path(directory).read_text(errors="replace").splitlines()[-count:])


def _environment(url: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("WINDLASS_") and name not in _FOREIGN
    }
    package = str(Path(windlass.__file__).parents[1])
    path = os.pathsep.join(filter(None, (package, kept.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, "WINDLASS_URL": url}


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_DRAIN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
