"""Owns the clean-up after a run that ran out of something: memory, files, room."""

from __future__ import annotations

import asyncio
import gc

from windlass.observe.logs import get_logger

log = get_logger("windlass.worker")
_PAUSE = 10.0
_LETTING_GO = 0.1
"""Seconds in which a run that has ended lets go of what it holds, in whatever thread it was."""


class Cleaner:
    """Frees what runs have left behind in cycles: memory, and the files and sockets it holds.

    All jobs that run out of something at the same time share one clean-up, since nothing else goes
    on meanwhile.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Have it done soon."""
        if self._timer is None:
            soon = max(self._loop.time() + _LETTING_GO, self._not_before)
            self._timer = self._loop.call_at(soon, self._clean)

    def stop(self) -> None:
        """Do nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _clean(self) -> None:
        self._timer = None
        began = self._loop.time()
        found = gc.collect()
        ended = self._loop.time()
        self._not_before = ended + _PAUSE
        log.warning("resources.cleaned", objects=found, duration=round(ended - began, 6))
