"""Owns the watch over source files, so that a worker in development runs what was just saved."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from windlass.observe.logs import get_logger
from windlass.runtime.service import Service

log = get_logger("windlass.supervisor")
_LOOK = 0.25
_NEXT = 1.0
"""Seconds after which a look that failed is tried again."""
_SUFFIXES = (".py", ".toml", ".env")
_SKIPPED = ("__pycache__", "node_modules", "site-packages")


class Watch:
    """Knows the source files below a directory, and which of them have changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = dict(self._look())

    def changed(self) -> list[str]:
        """Return the files that were written, made or removed since the last look."""
        seen = dict(self._look())
        before, self._seen = self._seen, seen
        names = before.keys() | seen.keys()
        return sorted(name for name in names if before.get(name) != seen.get(name))

    def _look(self) -> Iterator[tuple[str, int]]:
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
    """Has the workers replaced when a source file has changed."""

    name = "reloader"

    def __init__(self, watch: Watch, roll: Callable[[], None]) -> None:
        super().__init__()
        self._watch = watch
        self._roll = roll

    async def tick(self) -> float:
        try:
            changed = await asyncio.to_thread(self._watch.changed)
        except Exception:
            log.exception("files.not_watched", next_in=_NEXT)
            return _NEXT
        if changed:
            log.info("files.changed", files=changed[:5], more=max(len(changed) - 5, 0))
            self._roll()
        return _LOOK
