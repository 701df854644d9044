"""Owns what happens to jobs and records as a whole: `Changes`, decided under the records' lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar
from uuid import UUID

from msgspec.structs import replace

from windlass.core.job import EVENT, Job, Json, NewJob, News, Saga
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.core.steps import Failed, Lived, Steps, read

T = TypeVar("T")


class Verb(StrEnum):
    """What may be done to a job that nobody's token protects."""

    CANCEL = "cancel"
    RETRY = "retry"
    REDRIVE = "redrive"
    PARK = "park"
    UNPARK = "unpark"
    PURGE = "purge"
    RESEAL = "reseal"


FROM = MappingProxyType(
    {
        Verb.CANCEL: frozenset({State.SCHEDULED, State.PENDING, State.RUNNING}),
        Verb.RETRY: frozenset({State.SCHEDULED}),
        Verb.REDRIVE: frozenset({State.DEAD}),
        Verb.PARK: frozenset({State.SCHEDULED, State.PENDING}),
        Verb.UNPARK: frozenset({State.SCHEDULED}),
        Verb.PURGE: frozenset({State.DEAD}),
        Verb.RESEAL: frozenset({State.SCHEDULED, State.PENDING, State.DEAD}),
    }
)
"""The states in which each verb does anything; a store refuses it in all others."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """A verb on a job.

    *Cancel* ends a waiting job, and asks a running one to end; one that has something to undo is
    asked too, and started for that, and one that is being undone goes on. *Retry* makes a scheduled
    job due now. *Redrive* gives a dead job a new life, with its failures and crashes forgotten and
    its history kept, and with another `payload` if one is given and its steps do not bind it to the
    one that it has. *Park* makes a waiting job wait
    for `waiting_for`, whatever its due time; *unpark* ends that, and whoever waited for an event
    may start at once. *Purge* deletes a dead job. *Reseal* writes the same payload in another way,
    unless it is not what it was `before`.
    """

    verb: Verb
    id: UUID
    reason: str = ""
    waiting_for: str = ""
    payload: bytes | None = None
    before: bytes | None = None


def moved(job: Job, move: Move, now: datetime) -> Job | None:
    """Return the job after a verb, or None where its state, or what it waits for, forbids it."""
    if job.state not in FROM[move.verb]:
        return None
    match move.verb:
        case Verb.CANCEL:
            return _cancelled(job, move.reason, now)
        case Verb.RETRY if job.waiting_for is None:
            return replace(job, state=State.PENDING, due_at=now, reason=move.reason)
        case Verb.REDRIVE if move.payload in (None, job.payload) or not is_bound(job):
            return replace(
                job,
                state=State.PENDING,
                payload=job.payload if move.payload is None else move.payload,
                due_at=now,
                expires_at=None,
                finished_at=None,
                started_at=None,
                worker=None,
                failures=0,
                crashes=0,
                cancel_requested=False,
                reason=move.reason,
                steps=Steps(job.steps).next_life() if job.saga is Saga.OVER else job.steps,
                saga=None if job.saga is Saga.OVER else job.saga,
            )
        case Verb.PARK:
            return replace(job, state=State.SCHEDULED, waiting_for=move.waiting_for)
        case Verb.UNPARK if job.waiting_for == move.waiting_for:
            return unparked(job, now)
        case Verb.PURGE:
            return job
        case Verb.RESEAL if move.before in (None, job.payload):
            return replace(job, payload=move.payload or job.payload)
        case _:
            return None


def is_bound(job: Job) -> bool:
    """Say whether what a job has done and not undone was done with the payload that it has now.

    With another one, what was done for one order would be taken for done, or undone, for another.
    A step that has only ever failed is done again anyway.
    """
    if job.saga is not None:
        return job.saga is not Saga.OVER
    return not all(map(_binds_nothing, job.steps))


def _binds_nothing(entry: str) -> bool:
    try:
        return isinstance(read(entry), Failed | Lived)
    except ValueError:
        return False


def _cancelled(job: Job, reason: str, now: datetime) -> Job | None:
    if job.saga is Saga.UNDOING:
        return None
    if job.state is State.RUNNING:
        return replace(job, cancel_requested=True, reason=reason)
    if job.saga is Saga.READY:
        return replace(
            job,
            state=State.PENDING,
            due_at=now,
            waiting_for=None,
            cancel_requested=True,
            reason=reason,
        )
    return replace(job, state=State.CANCELLED, finished_at=now, reason=reason)


def unparked(job: Job, now: datetime) -> Job:
    """Return a parked job after what it waited for: one that waited for an event is due then."""
    due_at = min(job.due_at, now) if is_timed(job.waiting_for) else job.due_at
    state = State.PENDING if due_at <= now else State.SCHEDULED
    return replace(job, state=state, due_at=due_at, waiting_for=None)


def is_timed(waiting_for: str | None) -> bool:
    """Say whether a job waits until its due time at the longest, whatever it waits for."""
    return waiting_for is None or waiting_for.startswith(EVENT)


@dataclass(frozen=True, kw_only=True)
class Changes(Generic[T]):
    """Changes that happen together or not at all, and the `answer` for whoever asked for them.

    A settle whose fence does not match undoes everything; a move that the job's state refuses does
    nothing and is reported. A record set to None is deleted. An alarm is set for a record that
    exists then, or taken away by None; one that is not named here stays as it is. `unpark` names
    what jobs wait for that shall wait no longer, however many they are.
    """

    answer: T
    records: Mapping[str, Json | None] = field(default_factory=lambda: MappingProxyType({}))
    enqueue: Sequence[NewJob] = ()
    settle: Sequence[Transition] = ()
    moves: Sequence[Move] = ()
    alarms: Mapping[str, datetime | None] = field(default_factory=lambda: MappingProxyType({}))
    unpark: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Applied(Generic[T]):
    """What came of changes. `moved` holds, for each move in order, the job after it or None."""

    answer: T
    moved: tuple[Job | None, ...] = ()


Decide = Callable[[Mapping[str, Json], datetime], Changes[T]]
"""A pure reducer: the named records that exist, and the store's time, to what shall happen.

It may be called more than once, so it has no effects of its own.
"""
Hear = Callable[[Mapping[str, Json], Sequence[News], datetime], Changes[T]]
"""The same for whoever hears news: it is handed those of the named topics, oldest first."""
