"""Owns the heartbeat: a thread of its own, so that a handler that blocks the loop cannot stop it.

The thread also watches the event loop: a blocked loop is logged with the stack that blocks it. C
code that holds the interpreter's lock stops this thread as well; then the supervisor renews the
lease.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from datetime import timedelta

from msgspec.structs import replace

from windlass.core.errors import WindlassError
from windlass.observability.logs import get_logger
from windlass.process.grace_periods import BEAT_SECONDS
from windlass.process.outage import Outage, is_away
from windlass.process.supervisor_channel import Renew
from windlass.worker.lease import Lease
from windlass.worker.state import WorkerState
from windlass.worker.status import WorkerStatus

log = get_logger("windlass.heartbeat")
_THREAD_NAME = "heart"
_STALL_SECONDS = 1.0
_POLL_SECONDS = 0.25


class Heartbeat:
    """Renews a worker's lease at intervals, and notifies the loop when the lease is lost.

    The heartbeat is more frequent than the lease requires, so that others see the worker's current
    state: see `BEAT_SECONDS`.

    If the loop has been blocked for longer than `patience`, the heartbeat stops, so that other
    workers rescue the jobs.
    """

    def __init__(
        self,
        renew: Renew,
        *,
        interval: timedelta,
        patience: timedelta | None,
        state: WorkerState,
        status: WorkerStatus,
        lease: Lease,
        outage: Outage | None = None,
    ) -> None:
        self._renew = renew
        self._interval = interval.total_seconds()
        self._patience = None if patience is None else patience.total_seconds()
        self._state = state
        self._status = status
        self._lease = lease
        self._outage = outage or Outage()
        self._stopping = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ticked = time.monotonic()
        self._ticker: asyncio.TimerHandle | None = None
        self._stalled = False
        self.late = 0.0
        """Total seconds by which the loop was late; it reveals short stalls that come often."""
        self._thread = threading.Thread(target=self._run, name="windlass-heart", daemon=True)

    @property
    def lag(self) -> float:
        """Seconds for which the loop has been blocked."""
        return max(time.monotonic() - self._ticked - _POLL_SECONDS, 0.0)

    def start(self) -> None:
        self._ticked = time.monotonic()
        self._tick()
        self._thread.start()

    async def stop(self) -> None:
        self._stopping.set()
        if self._ticker is not None:
            self._ticker.cancel()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, self._interval)

    def _tick(self) -> None:
        """Record, from the loop, that the loop moves."""
        self.late += self.lag
        self._ticked = time.monotonic()
        self._ticker = self._loop.call_later(_POLL_SECONDS, self._tick)

    def _run(self) -> None:
        due = time.monotonic()
        given_up = False
        while not self._stopping.wait(min(_POLL_SECONDS, self._interval)):
            lag = self._watch_loop()
            self._look()
            if self._patience is not None and lag > self._patience:
                if not given_up:
                    log.critical("heart.stopped", lag=round(lag, 1), why="the event loop is stuck")
                given_up = True
                # If the loop moves again, the next heartbeat finds out whether the lease was lost.
                continue
            given_up = False
            if time.monotonic() >= due:
                due = time.monotonic() + self._beat(lag)

    def _beat(self, lag: float) -> float:
        """Renew the lease, and return the seconds until the next renewal."""
        worker = self._state.id
        if not worker:
            return _POLL_SECONDS  # The worker is between two leases, so there is nothing to renew.
        try:
            pulse = replace(self._status.pulse(), loop_lag=timedelta(seconds=round(lag, 3)))
            alive = self._renew(worker, pulse, timedelta(seconds=self._interval))
        except WindlassError as error:
            away = is_away(error)
            tell = log.debug if away else log.warning
            tell("heartbeat.failed", worker_id=worker, error=str(error))
            if away:
                self._outage.failed(_THREAD_NAME, error)
            return min(1.0, self._interval)
        except Exception:
            log.exception("heartbeat.failed", worker_id=worker)
            return min(1.0, self._interval)
        self._outage.answered(_THREAD_NAME)
        if not alive:
            log.error("lease.lost", worker_id=worker)
            self._tell_loop(worker)
        return min(self._interval, BEAT_SECONDS)

    def _look(self) -> None:
        """Run the observers in this thread; an error in one does not stop the heartbeat."""
        try:
            self._status.show()
        except Exception as error:  # noqa: BLE001
            log.warning("figures.not_shown", error=f"{type(error).__qualname__}: {error}")

    def _tell_loop(self, worker: str) -> None:
        def lost() -> None:
            if self._state.id == worker:
                self._lease.lose()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lost)

    def _watch_loop(self) -> float:
        lag = self.lag
        if lag > _STALL_SECONDS and not self._stalled:
            frame = sys._current_frames().get(self._loop_thread)
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            log.warning("loop.stalled", lag=round(lag, 3), stack=stack)
        elif lag <= _STALL_SECONDS and self._stalled:
            log.info("loop.moves_again")
        self._stalled = lag > _STALL_SECONDS
        return lag
