"""Owns the states of a job and the moves between them; every store refuses all others."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """Where a job is in its life."""

    SCHEDULED = "scheduled"
    """Waits for a time, a retry, an event or other jobs."""
    PENDING = "pending"
    """Is due, and waits for a worker with a free slot."""
    RUNNING = "running"
    """Is held by a worker, under a lease."""
    COMPLETED = "completed"
    """Has ended well, and has its result; deleted after `retention`."""
    DEAD = "dead"
    """Has failed for good, and waits for a person: a dead letter."""
    CANCELLED = "cancelled"
    """Has ended because it was cancelled, or had expired; deleted after `retention`."""


LIVE = frozenset({State.SCHEDULED, State.PENDING, State.RUNNING})
WAITING = frozenset({State.SCHEDULED, State.PENDING})
FINISHED = frozenset(State) - LIVE

LEGAL = MappingProxyType(
    {
        State.SCHEDULED: frozenset({State.PENDING, State.CANCELLED}),
        State.PENDING: frozenset({State.RUNNING, State.SCHEDULED, State.CANCELLED}),
        State.RUNNING: frozenset(State) - {State.RUNNING},
        State.DEAD: frozenset({State.PENDING}),
        State.COMPLETED: frozenset[State](),
        State.CANCELLED: frozenset[State](),
    }
)


def may_move(before: State, after: State) -> bool:
    return after in LEGAL[before]
