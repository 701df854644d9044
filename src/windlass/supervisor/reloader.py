"""Owns the watch over source files, so that a worker in development runs the code just saved."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.observability.logs import get_logger
from windlass.process.service import Service

if TYPE_CHECKING:
    from windlass.supervisor.supervisor import Supervisor

log = get_logger("windlass.supervisor")
_POLL_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_SUFFIXES = (".py", ".toml", ".env")
_SKIPPED = ("__pycache__", "node_modules", "site-packages")


class FileWatch:
    """Tracks the source files below a directory, and which of them have changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._times = dict(self._modified())

    def changed(self) -> list[str]:
        """Return the files that were written, made or removed since the last look."""
        before, self._times = self._times, dict(self._modified())
        changed = before.items() ^ self._times.items()
        return sorted({name for name, _ in changed})

    def _modified(self) -> Iterator[tuple[str, int]]:
        for directory, below, files in os.walk(self._root):
            below[:] = [name for name in below if name[0] != "." and name not in _SKIPPED]
            for name in files:
                if name.endswith(_SUFFIXES):
                    path = os.path.join(directory, name)  # noqa: PTH118 - for thousands of files.
                    try:
                        yield path, os.stat(path).st_mtime_ns  # noqa: PTH116
                    except OSError:
                        continue


class Reloader(Service):
    """Replaces the workers when a source file has changed."""

    name = "reloader"

    def __init__(self, watch: FileWatch, supervisor: Supervisor) -> None:
        super().__init__()
        self._watch = watch
        self._supervisor = supervisor

    async def tick(self) -> float:
        try:
            changed = await asyncio.to_thread(self._watch.changed)
        except Exception:
            log.exception("files.not_watched", next_in=_RETRY_SECONDS)
            return _RETRY_SECONDS
        if changed:
            log.info("files.changed", files=changed[:5], more=max(len(changed) - 5, 0))
            self._supervisor.roll()
        return _POLL_SECONDS
