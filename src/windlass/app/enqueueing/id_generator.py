"""Owns the making of job ids: UUIDv7, and in order within a process even in one millisecond.

Programs show ids to web clients, who must not be able to compute others from them. So all bits are
the operating system's. Those of many ids are read ahead: a system call for each would cost more
than the rest of an id.
"""

from __future__ import annotations

import os
import secrets
import struct
import threading
import time
from collections.abc import Iterator
from uuid import UUID

from windlass.core.jobs.ids import Origin, flow_id, job_id

_START = (1 << 73) - 1
_FLOW_BITS = 54
_AHEAD = struct.Struct("=1024I")
"""How the steps that are read ahead are cut: into numbers of 32 bits."""
_JOBS_OF_AN_ORIGIN = 1_000
"""After how many jobs another origin begins, so that one job does not keep all the others' ids."""


class IdGenerator:
    """Makes ids that sort in the order in which they were made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._millisecond = 0
        self._tail = 0
        self._made = 0
        self._origin = Origin(os.getpid())
        self._steps: Iterator[int] = iter(())
        os.register_at_fork(after_in_child=self._begin)

    def next(self) -> UUID:
        """Return a new id."""
        now = time.time_ns() // 1_000_000
        with self._lock:
            if now > self._millisecond:
                self._millisecond = now
                step = self._step
                tail = self._tail = (step() << 64 | step() << 32 | step()) & _START
            else:
                # The same millisecond, or a clock that went back: continue after the last id.
                tail = self._tail = self._tail + 1 + self._step()
                now = self._millisecond
        return job_id(now, tail)

    def next_flow(self) -> UUID:
        """Return a new id of a flow, from which the ids of its jobs follow."""
        return flow_id(time.time_ns() // 1_000_000, secrets.randbits(_FLOW_BITS))

    def _step(self) -> int:
        """Return a random number that was never used before; called with the lock held."""
        try:
            return next(self._steps)
        except StopIteration:
            read: tuple[int, ...] = _AHEAD.unpack(os.urandom(_AHEAD.size))
            self._steps = iter(read)
            return next(self._steps)

    def origin(self) -> Origin:
        """Return the origin of a job that is made now."""
        self._made += 1
        if self._made % _JOBS_OF_AN_ORIGIN == 0:
            self._origin = Origin(os.getpid())
        return self._origin

    def _begin(self) -> None:
        # A forked child begins a sequence of its own: its parent continues the old one.
        self._lock = threading.Lock()
        self._made = 0
        self._origin = Origin(os.getpid())
        self._millisecond = 0
        self._steps = iter(())
