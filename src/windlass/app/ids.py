"""Owns the making of job ids: UUIDv7, and in order within a process even in one millisecond."""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from uuid import UUID

from windlass.core.job import flow_id, job_id

_START_BITS = 73
_STEP_BITS = 32
_FLOW_BITS = 54


class Ids:
    """Makes ids that sort in the order in which they were made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._millisecond = 0
        self._tail = 0
        self._random = random.Random()  # noqa: S311 - ids are no secrets.
        self._bits = self._random.getrandbits
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def next(self) -> UUID:
        """Return a new id."""
        now = time.time_ns() // 1_000_000
        with self._lock:
            if now > self._millisecond:
                self._millisecond = now
                tail = self._tail = self._bits(_START_BITS)
            else:
                # The same millisecond, or a clock that went back: stay behind the last one.
                tail = self._tail = self._tail + 1 + self._bits(_STEP_BITS)
                now = self._millisecond
        return job_id(now, tail)

    def next_flow(self) -> UUID:
        """Return a new id of a flow, whose jobs have theirs by it."""
        with self._lock:
            return flow_id(time.time_ns() // 1_000_000, self._bits(_FLOW_BITS))

    def _begin(self) -> None:
        """Begin a sequence; in a forked child a new one, since its parent goes on with the old."""
        self._lock = threading.Lock()
        self._millisecond = 0
        # A generator of our own: a program that seeds the common one must not repeat our ids.
        self._random.seed(secrets.randbits(256))
