"""Owns the knowledge which ids were never sent to the store, so that it need not be searched.

An enqueue of unknown fate may be repeated even after its job has ended, so the store looks for
the id in every room, which takes several times as long as the insert. An id that was made a moment
ago, and has not been sent from here since, cannot be anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from windlass.core.job import NewJob

_MOMENT = 10_000
"""Milliseconds for which an id counts as just made."""


class Sent:
    """The ids that this process has sent within the last moments. Older ones count as known."""

    def __init__(self) -> None:
        self._lately: set[int] = set()
        self._before: set[int] = set()
        self._turned = 0

    def take(self, jobs: Sequence[NewJob]) -> bool:
        """Say whether all these jobs are fresh, and remember that they have been sent."""
        now = time.time_ns() // 1_000_000
        if abs(now - self._turned) > _MOMENT:
            self._before, self._lately, self._turned = self._lately, set(), now
        ids = {job.id.int for job in jobs}
        fresh = (
            len(ids) == len(jobs)
            and self._lately.isdisjoint(ids)
            and self._before.isdisjoint(ids)
            and abs(now - (min(ids, default=0) >> 80)) <= _MOMENT
            and abs(now - (max(ids, default=0) >> 80)) <= _MOMENT
        )
        self._lately |= ids
        return fresh
