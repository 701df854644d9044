"""Owns the making of job ids: UUIDv7, and in order within a process even in one millisecond."""

from __future__ import annotations

import os
import secrets
import threading
import time
from uuid import UUID

from windlass.core.job import job_id

_RANDOM_BITS = 74


class Ids:
    """Makes ids that sort in the order in which they were made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._millisecond = 0
        self._random = 0
        os.register_at_fork(after_in_child=self._reset)

    def next(self) -> UUID:
        """Return a new id."""
        now = time.time_ns() // 1_000_000
        with self._lock:
            if now > self._millisecond:
                self._millisecond = now
                self._random = secrets.randbits(_RANDOM_BITS - 1)
            else:
                # The same millisecond, or a clock that went back: stay behind the last one.
                self._random += 1 + secrets.randbits(32)
            return job_id(self._millisecond, self._random)

    def _reset(self) -> None:
        """Forget the parent's sequence, which it goes on with itself."""
        self._lock = threading.Lock()
        self._millisecond = 0
