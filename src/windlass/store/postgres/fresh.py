"""Owns the knowledge which ids were never sent to the store, so that it need not be searched.

An enqueue of unknown fate may be repeated even after its job has ended, so the store looks for
the id in every room, which takes several times as long as the insert. An id that was made a moment
ago, and has not been sent from here since, cannot be anywhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from windlass.core.job import NewJob

_MOMENT = 10_000
"""Milliseconds for which an id counts as just made."""
_AHEAD = 1_000
"""Milliseconds by which an id may be ahead of a clock that was set back since it was made."""
_REMEMBERED = (_MOMENT + _AHEAD) / 1000
"""Seconds after which ids begin to be forgotten, by a clock that nobody sets."""


class Sent:
    """The ids that this process has sent within the last moments. Older ones count as known."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lately: set[int] = set()
        self._before: set[int] = set()
        self._turned = time.monotonic()
        # What was made before may have been sent by a parent process.
        self._since = time.time_ns() // 1_000_000

    def take(self, jobs: Sequence[NewJob]) -> bool:
        """Say whether all these jobs are fresh, and remember that they have been sent."""
        with self._lock:
            return self._take(jobs)

    def _take(self, jobs: Sequence[NewJob]) -> bool:
        if time.monotonic() - self._turned > _REMEMBERED:
            self._before, self._lately, self._turned = self._lately, set(), time.monotonic()
        now = time.time_ns() // 1_000_000
        ids = {job.id.int for job in jobs}
        fresh = (
            len(ids) == len(jobs)
            and self._lately.isdisjoint(ids)
            and self._before.isdisjoint(ids)
            and max(now - _MOMENT, self._since) <= min(ids, default=0) >> 80
            # Made ahead of the clock, it would be fresh for longer than it is remembered.
            and max(ids, default=0) >> 80 <= now + _AHEAD
        )
        self._lately |= ids
        return fresh
