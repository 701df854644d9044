"""Owns a small disk that can be full: a tmpfs, where this process may mount one."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_BYTES = 192 * 1024 * 1024
_BYTES_PER_JOB = 8 * 1024
_CHUNK = bytes(1024 * 1024)


class SmallDisk:
    """A directory on a file system of its own, if that can be had."""

    def __init__(self, directory: Path, jobs: int = 0) -> None:
        self.directory = directory
        self._bytes = _BYTES + jobs * _BYTES_PER_JOB
        self._ballast = directory / "ballast"
        self.is_mounted = False

    def mount(self) -> bool:
        """Mount the file system; return whether that was possible."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if sys.platform == "linux" and os.geteuid() == 0:
            command = [
                "mount",
                "-t",
                "tmpfs",
                "-o",
                f"size={self._bytes}",
                "tmpfs",
                str(self.directory),
            ]
            self.is_mounted = _succeeds(command)
        return self.is_mounted

    def unmount(self) -> None:
        """Unmount it, with everything on it."""
        if self.is_mounted:
            self.is_mounted = not _succeeds(["umount", "-l", str(self.directory)])

    def fill(self) -> None:
        """Write until nothing more fits."""
        with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(_CHUNK)

    def empty(self) -> None:
        """Make room again."""
        self._ballast.unlink(missing_ok=True)


def _succeeds(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
    except OSError:
        return False
    return done.returncode == 0
