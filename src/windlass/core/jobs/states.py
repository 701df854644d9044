"""Owns the states of a job and the moves between them; every store refuses all others."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """Where a job is in its life."""

    SCHEDULED = "scheduled"
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"


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
