"""Owns the heartbeat: a thread of its own, so that no handler that blocks the loop can stop it.

It keeps an eye on the loop, too: one that stands still is logged with the stack that blocks it. C
code that holds the interpreter's lock stops this thread as well; then the supervisor goes on.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from windlass.core.errors import WindlassError
from windlass.core.job import Pulse
from windlass.observe.logs import get_logger
from windlass.runtime.leash import Renew

log = get_logger("windlass.heart")
_STALL = 1.0
_LOOK = 0.25


class Heart:
    """Renews a worker's lease at intervals, and tells the loop when the lease is lost.

    A loop that has not moved for longer than `patience` is beyond hope: the heart stops, so that
    others may rescue its jobs.
    """

    def __init__(
        self,
        renew: Renew,
        *,
        interval: timedelta,
        patience: timedelta | None,
        worker_id: Callable[[], str],
        pulse: Callable[[], Pulse],
        lost: Callable[[], None],
    ) -> None:
        self._renew = renew
        self._interval = interval.total_seconds()
        self._patience = None if patience is None else patience.total_seconds()
        self._worker_id = worker_id
        self._pulse = pulse
        self._lost = lost
        self._stopping = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ticked = time.monotonic()
        self._ticker: asyncio.TimerHandle | None = None
        self._stalled = False
        self._thread = threading.Thread(target=self._run, name="windlass-heart", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._tick()
        self._thread.start()

    async def stop(self) -> None:
        """Beat no more."""
        self._stopping.set()
        if self._ticker is not None:
            self._ticker.cancel()
        await asyncio.to_thread(self._thread.join, self._interval)

    def _tick(self) -> None:
        """Leave a trace, from the loop, that the loop moves."""
        self._ticked = time.monotonic()
        self._ticker = self._loop.call_later(_LOOK, self._tick)

    def _run(self) -> None:
        due = time.monotonic() + self._interval
        given_up = False
        while not self._stopping.wait(min(_LOOK, self._interval)):
            lag = self._watch_loop()
            if self._patience is not None and lag > self._patience:
                if not given_up:
                    log.critical("heart.stopped", lag=round(lag, 1), why="the event loop is stuck")
                given_up = True
                continue  # Should the loop move again, the next beat learns what became of us.
            given_up = False
            if time.monotonic() >= due:
                due = time.monotonic() + self._beat(lag)

    def _beat(self, lag: float) -> float:
        """Renew the lease once, and return how long that is good for."""
        worker = self._worker_id()
        if not worker:
            return _LOOK  # The worker is between two leases, so there is nothing to renew.
        try:
            pulse = replace(self._pulse(), loop_lag=timedelta(seconds=round(lag, 3)))
            alive = self._renew(worker, pulse, timedelta(seconds=self._interval))
        except WindlassError as error:
            log.warning("heartbeat.failed", worker_id=worker, error=str(error))
            return min(1.0, self._interval)
        except Exception:
            log.exception("heartbeat.failed", worker_id=worker)
            return min(1.0, self._interval)
        if not alive:
            log.error("lease.lost", worker_id=worker)
            self._tell_loop(worker)
        return self._interval

    def _tell_loop(self, worker: str) -> None:
        def lost() -> None:
            if self._worker_id() == worker:
                self._lost()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lost)

    def _watch_loop(self) -> float:
        lag = max(time.monotonic() - self._ticked - _LOOK, 0.0)
        if lag > _STALL and not self._stalled:
            frame = sys._current_frames().get(self._loop_thread)
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            log.warning("loop.stalled", lag=round(lag, 3), stack=stack)
        elif lag <= _STALL and self._stalled:
            log.info("loop.moves_again")
        self._stalled = lag > _STALL
        return lag
