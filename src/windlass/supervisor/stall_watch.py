"""Owns the watch over workers whose loop is blocked, or that do not end in time."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from windlass.observability.logs import get_logger
from windlass.process.grace_periods import SUPERVISOR_GRACE
from windlass.process.service import Service
from windlass.supervisor.worker_process import WorkerProcess

if TYPE_CHECKING:
    from windlass.supervisor.supervisor import Supervisor

log = get_logger("windlass.supervisor")
_POLL_SECONDS = 0.25
_STUCK_SECONDS = 1.0
"""Seconds that a loop may exceed its limit before its process is killed."""


class StallWatch(Service):
    """Kills workers whose loop is blocked for longer than any handler may block it."""

    name = "stall_watch"

    def __init__(self, supervisor: Supervisor) -> None:
        super().__init__()
        self._supervisor = supervisor

    async def tick(self) -> float:
        self._supervisor.memory.look(time.monotonic())
        for process in list(self._supervisor.workers.values()):
            await self._check(process)
        self._supervisor.follow_load()
        return _POLL_SECONDS

    async def _check(self, process: WorkerProcess) -> None:
        if process.code is not None:
            return
        self._kill_if_overdue(process)
        if process.is_stopped or not process.ready.is_set():
            return
        if not process.worker or process.leaving:
            return  # The worker is ending, and its heartbeat has stopped.
        if process.is_mute and not process.stalled:
            # A worker logs a blocked loop itself; a silent one lacks the interpreter's lock.
            log.warning(
                "loop.stalled",
                pid=process.pid,
                worker_id=process.worker,
                lag=round(process.lag, 3),
                stack=await process.stack(),
            )
        process.stalled = process.is_mute
        if process.patience is not None and process.lag > process.patience:
            self._kill_if_stuck(process)
        else:
            process.stuck_since = math.inf

    def _kill_if_stuck(self, process: WorkerProcess) -> None:
        now = time.monotonic()
        process.stuck_since = min(process.stuck_since, now)
        if now - process.stuck_since > _STUCK_SECONDS:
            log.critical(
                "process.stuck", pid=process.pid, worker_id=process.worker, lag=process.lag
            )
            process.kill()

    def _kill_if_overdue(self, process: WorkerProcess) -> None:
        settings = process.settings
        if process.leaving and settings is not None:
            patience = settings.shutdown_timeout + SUPERVISOR_GRACE
            if time.monotonic() - process.leaving_since > patience.total_seconds():
                log.critical("process.stuck", pid=process.pid, why="it does not stop; killing it")
                process.leaving_since = math.inf
                process.kill()
