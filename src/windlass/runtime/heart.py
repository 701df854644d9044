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
NEWS = 2.0
"""Seconds after which others can know what has changed in a worker."""
_STALL = 1.0
_LOOK = 0.25


def has_news(told: Pulse, pulse: Pulse) -> bool:
    """Say whether a pulse differs from what was told, apart from what never stays the same.

    An idle worker has nothing to tell, so that it writes no more than its lease wants.
    """
    return _lasting(told) != _lasting(pulse)


def _lasting(pulse: Pulse) -> Pulse:
    none = timedelta(0)
    return replace(
        pulse, busy=0.0, cpu=0.0, loop_lag=none, clock_ahead=none, memory=None, pool=None
    )


class Heart:
    """Renews a worker's lease at intervals, and tells the loop when the lease is lost.

    What is new it tells earlier, but not at once: see `NEWS`.

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
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        self._renew = renew
        self._interval = interval.total_seconds()
        self._patience = None if patience is None else patience.total_seconds()
        self._worker_id = worker_id
        self._pulse = pulse
        self._lost = lost
        self._looked = looked
        self._stopping = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ticked = time.monotonic()
        self._ticker: asyncio.TimerHandle | None = None
        self._stalled = False
        self.late = 0.0
        """By how many seconds the loop was late in all; it shows short stalls that come often."""
        self._told = Pulse()
        self._thread = threading.Thread(target=self._run, name="windlass-heart", daemon=True)

    @property
    def lag(self) -> float:
        """For how many seconds the loop has stood still."""
        return max(time.monotonic() - self._ticked - _LOOK, 0.0)

    def start(self) -> None:
        """Begin to beat."""
        self._ticked = time.monotonic()
        self._tick()
        self._thread.start()

    async def stop(self) -> None:
        """Beat no more."""
        self._stopping.set()
        if self._ticker is not None:
            self._ticker.cancel()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, self._interval)

    def _tick(self) -> None:
        """Leave a trace, from the loop, that the loop moves."""
        self.late += self.lag
        self._ticked = time.monotonic()
        self._ticker = self._loop.call_later(_LOOK, self._tick)

    def _run(self) -> None:
        due = look = time.monotonic()
        given_up = False
        while not self._stopping.wait(min(_LOOK, self._interval)):
            lag = self._watch_loop()
            self._look()
            if self._patience is not None and lag > self._patience:
                if not given_up:
                    log.critical("heart.stopped", lag=round(lag, 1), why="the event loop is stuck")
                given_up = True
                continue  # Should the loop move again, the next beat learns what became of us.
            given_up = False
            now = time.monotonic()
            if now >= look:
                good_for = self._beat(lag, is_due=now >= due)
                due = due if good_for is None else time.monotonic() + good_for
                look = min(due, time.monotonic() + NEWS)

    def _beat(self, lag: float, *, is_due: bool) -> float | None:
        """Renew the lease, and return how long that is good for; None if there was no need yet."""
        worker = self._worker_id()
        if not worker:
            return _LOOK  # The worker is between two leases, so there is nothing to renew.
        try:
            pulse = replace(self._pulse(), loop_lag=timedelta(seconds=round(lag, 3)))
            if not is_due and not has_news(self._told, pulse):
                return None
            self._told = pulse
            alive = self._renew(worker, pulse, timedelta(seconds=self._interval))
        except WindlassError as error:
            log.warning("heartbeat.failed", worker_id=worker, error=str(error))
            return min(1.0, self._interval)
        except Exception:
            log.exception("heartbeat.failed", worker_id=worker)
            return min(1.0, self._interval)
        if not alive:
            log.error("lease.lost", worker_id=worker)
            self._told = Pulse()  # Whoever has the next lease has told nothing yet.
            self._tell_loop(worker)
        return self._interval

    def _look(self) -> None:
        """Let others have a look in this thread; whatever is wrong with that, the heart beats."""
        try:
            self._looked()
        except Exception as error:  # noqa: BLE001
            log.warning("figures.not_shown", error=f"{type(error).__qualname__}: {error}")

    def _tell_loop(self, worker: str) -> None:
        def lost() -> None:
            if self._worker_id() == worker:
                self._lost()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lost)

    def _watch_loop(self) -> float:
        lag = self.lag
        if lag > _STALL and not self._stalled:
            frame = sys._current_frames().get(self._loop_thread)
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            log.warning("loop.stalled", lag=round(lag, 3), stack=stack)
        elif lag <= _STALL and self._stalled:
            log.info("loop.moves_again")
        self._stalled = lag > _STALL
        return lag
