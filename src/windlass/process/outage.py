"""Owns what a process knows of an unreachable store: one account for all parts that talk to it.

Every part reports the result of its calls. The log has one line when the store is lost, one a
minute while it is unreachable, and one when it is back; the first answer ends all pauses at once.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

from windlass.core.errors import StoreBusy, StoreUnavailable
from windlass.core.values.durations import human
from windlass.observability.logs import get_logger

log = get_logger("windlass.outage")
REMINDER_SECONDS = 60.0
"""Seconds between two log lines about a store that is still unreachable."""
Role = Literal["worker", "supervisor"]
_EFFECTS: dict[Role, str] = {
    "worker": "no job is claimed; running jobs continue, and their outcomes are kept for it",
    "supervisor": "the leases of its workers cannot be renewed until it is back",
}
_BACK_SECONDS = 2.0
"""Seconds without a failure after which a store that answered counts as back."""


def is_away(error: BaseException) -> bool:
    """Return whether an error means that the store is unreachable, rather than busy."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, StoreBusy)


class Outage:
    """Whether the store of a process is unreachable, since when, and who waits for it.

    Reports come from the event loop; once that is attached, from any thread.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, *, role: Role = "worker") -> None:
        self._now = now
        self._role = role
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self._since: float | None = None
        self._last = 0.0
        self._reminded = 0.0
        self._error = ""
        self._answers = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.rings = 0
        """Number of times that all pauses were ended; a call that spans one may have failed before
        it.
        """

    def attach(self) -> None:
        """Take reports from other threads to this event loop from now on."""
        self._loop = asyncio.get_running_loop()

    @property
    def is_on(self) -> bool:
        """Whether the store is unreachable, as far as is known."""
        return self._since is not None

    @property
    def trouble(self) -> str:
        """The last error of the store, or of the connection to it, while it is unreachable."""
        return self._error if self.is_on else ""

    def failed(self, who: str, error: BaseException) -> None:
        """Record that the store was unreachable for a caller."""
        now = self._now()
        with self._lock:
            self._failing.add(who)
            self._error = str(error)
            self._last = now
            is_new = self._since is None
            is_due = is_new or now - self._reminded >= REMINDER_SECONDS
            since = self._since = now if self._since is None else self._since
            self._reminded = now if is_due else self._reminded
        if is_new:
            log.warning(
                "store.lost",
                error=str(error),
                effect=_EFFECTS[self._role],
                **self._process(),
            )
        elif is_due:
            away_for = _human(now - since)
            log.warning("store.away", error=str(error), away_for=away_for, **self._process())

    def answered(self, who: str) -> None:
        """Record that the store has answered a caller; it counts for those that had
        failed before.
        """
        if who not in self._failing:
            return
        with self._lock:
            self._failing.clear()
            answered_at = self._last = self._now()
        self._in_loop(self._hear_answer, answered_at)

    def rouse(self) -> None:
        """End all pauses, since another process was answered."""
        if self._since is not None:
            self._in_loop(self._ring)

    async def answer(self) -> None:
        """Wait until the store answers any caller."""
        await self._answers.wait()

    def _in_loop(self, act: Callable[..., None], *args: Any) -> None:
        if self._loop is None:
            act(*args)
        else:
            with suppress(RuntimeError):  # The loop is closed: no part waits any more.
                self._loop.call_soon_threadsafe(act, *args)

    def _hear_answer(self, answered_at: float) -> None:
        self._ring()
        asyncio.get_running_loop().call_later(_BACK_SECONDS, self._confirm, answered_at)

    def _ring(self) -> None:
        self.rings += 1
        self._answers.set()
        self._answers = asyncio.Event()

    def _confirm(self, answered_at: float) -> None:
        """Log that the store is back, unless a call has failed since it answered."""
        with self._lock:
            if self._since is None or self._failing or self._last != answered_at:
                return
            away_for, self._since = answered_at - self._since, None
        log.info("store.back", away_for=_human(away_for), **self._process())

    def _process(self) -> dict[str, Any]:
        """Return the name of this process for the log that a supervisor and its workers share."""
        return {"role": self._role, "pid": os.getpid()}


def _human(seconds: float) -> str:
    return human(timedelta(seconds=round(seconds, 1)))
