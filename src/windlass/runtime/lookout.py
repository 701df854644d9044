"""Owns the look at a supervisor's wards: whose loop stands still, and who does not end in time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection

from windlass.observe.logs import get_logger
from windlass.runtime.graces import SUPERVISOR_GRACE
from windlass.runtime.postmortem import OutOfMemory
from windlass.runtime.service import Service
from windlass.runtime.ward import Ward

log = get_logger("windlass.supervisor")
_LOOK = 0.25
_SURELY = 1.0


class Lookout(Service):
    """Notices whose loop stands still, and ends who does for longer than any handler may."""

    name = "lookout"

    def __init__(
        self,
        wards: Callable[[], Collection[Ward]],
        *,
        looked: Callable[[], None],
        memory: OutOfMemory,
    ) -> None:
        super().__init__()
        self._wards = wards
        self._looked = looked
        self._memory = memory

    async def tick(self) -> float:
        self._memory.look(time.monotonic())
        for ward in list(self._wards()):
            await self._look_at(ward)
        self._looked()
        return _LOOK

    async def _look_at(self, ward: Ward) -> None:
        if ward.code is not None:
            return
        self._mind_who_leaves(ward)
        if ward.is_stopped or not ward.ready.is_set():
            return
        if not ward.worker or ward.leaving:
            return  # It is on its way out, and its heart has stopped.
        if ward.is_mute and not ward.stalled:
            # What merely blocks its loop it notices itself; this holds the interpreter's lock.
            log.warning(
                "loop.stalled",
                pid=ward.pid,
                worker_id=ward.worker,
                lag=round(ward.lag, 3),
                stack=await ward.stack(),
            )
        ward.stalled = ward.is_mute
        if ward.patience is not None and ward.lag > ward.patience:
            self._lose_patience(ward)
        else:
            ward.stuck_since = math.inf

    def _lose_patience(self, ward: Ward) -> None:
        """Kill a worker whose loop stands still, unless it has only done so until just now."""
        now = time.monotonic()
        ward.stuck_since = min(ward.stuck_since, now)
        if now - ward.stuck_since > _SURELY:
            log.critical("process.stuck", pid=ward.pid, worker_id=ward.worker, lag=ward.lag)
            ward.kill()

    def _mind_who_leaves(self, ward: Ward) -> None:
        """Kill a worker that was to end long ago, whatever keeps it."""
        settings = ward.settings
        if ward.leaving and settings is not None:
            patience = settings.shutdown_timeout + SUPERVISOR_GRACE
            if time.monotonic() - ward.leaving_since > patience.total_seconds():
                log.critical("process.stuck", pid=ward.pid, why="it does not end; killing it")
                ward.leaving_since = math.inf
                ward.kill()
