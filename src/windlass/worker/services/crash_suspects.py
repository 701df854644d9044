"""Owns the release of postponed crash suspects: parked where they were, and freed to be tried."""

from __future__ import annotations

import time
from datetime import timedelta

from windlass.core.changes import Changes
from windlass.core.failures.crash_suspects import ALONE
from windlass.process.service import Service
from windlass.store import Store
from windlass.worker.engine.engine import Engine

_RELEASE_SECONDS = 0.5
_POLL_SECONDS = 0.1
"""Seconds between two checks for a free child process while suspects are postponed."""


class CrashSuspects(Service):
    """Releases suspects that wait for a child process when this worker has one.

    From time to time it does so anyway, for suspects that a vanished worker has postponed.
    """

    name = "crash_suspects"

    def __init__(self, store: Store, engine: Engine, *, interval: timedelta) -> None:
        super().__init__()
        self._store = store
        self._engine = engine
        self._interval = interval.total_seconds()
        self._next = 0.0

    async def tick(self) -> float:
        engine = self._engine
        if (engine.has_put_off and engine.has_free_child) or time.monotonic() >= self._next:
            self._next = 0.0  # If this fails, the next tick asks the store again.
            engine.has_put_off = False
            await self._store.apply((), lambda _records, _now: _RELEASE)
            self._next = time.monotonic() + self._interval
        return _POLL_SECONDS if engine.has_put_off else _RELEASE_SECONDS


_RELEASE: Changes[None] = Changes(answer=None, unpark=(ALONE,))
