"""Owns the counts that a store keeps of its queues, its disk and its connections."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from windlass.core.jobs.states import State


class QueueCount(Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in a state, and the due time of the oldest that still waits."""

    queue: str
    state: State
    count: int
    oldest: datetime | None = None
    capped: bool = False
    """Whether there are more, which were not counted."""


MAX_COUNTED = 10_000
"""How many jobs of each state are counted."""


class Standing(Struct, frozen=True, kw_only=True):
    """How many jobs of its queue are before a job, and how many ended there in the last `span`.

    The span begins when the job was due and the first of them had begun, and is at most a minute:
    before that there may have been no jobs, or no workers.
    """

    ahead: int = 0
    ended: int = 0
    span: timedelta = timedelta(minutes=1)
    head: UUID | None = None
    """The first pending job of its lane, which may be itself."""


class Depth(Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in a state; `capped`: there are more, which were not counted."""

    queue: str
    state: State
    count: int
    capped: bool = False


class Disk(Struct, frozen=True, kw_only=True):
    """The space where a store keeps its jobs, in bytes."""

    free: int
    size: int


class Depths(Struct, frozen=True, kw_only=True):
    """How many unfinished jobs there are, as far as they were counted."""

    counts: tuple[Depth, ...]
    cut: tuple[State, ...] = ()
    """The states of which not all were counted: a queue may have jobs in them that are missing
    here."""
    snapshot_age: float | None = None
    """Age in seconds of the oldest snapshot of the database; None: there is none."""


class Connections(Struct, frozen=True, kw_only=True):
    """The connections of a store's pool: open ones, used ones, and the maximum."""

    open: int
    in_use: int
    limit: int
