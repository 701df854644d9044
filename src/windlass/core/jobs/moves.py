"""Owns the moves of jobs outside a lease, such as cancel, retry and redrive."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from windlass.core.jobs.job import EVENT, Job, Saga
from windlass.core.jobs.states import FINISHED, State
from windlass.core.workflows.step_log import Failed, Lived, Steps, read

T = TypeVar("T")


class Verb(StrEnum):
    """The verbs for jobs that no lease protects."""

    CANCEL = "cancel"
    RETRY = "retry"
    REDRIVE = "redrive"
    PARK = "park"
    UNPARK = "unpark"
    PURGE = "purge"
    RESEAL = "reseal"
    TAKE = "take"


FROM = MappingProxyType(
    {
        Verb.CANCEL: frozenset({State.SCHEDULED, State.PENDING, State.RUNNING}),
        Verb.RETRY: frozenset({State.SCHEDULED}),
        Verb.REDRIVE: frozenset({State.DEAD}),
        Verb.PARK: frozenset({State.SCHEDULED, State.PENDING}),
        Verb.UNPARK: frozenset({State.SCHEDULED}),
        Verb.PURGE: FINISHED,
        Verb.RESEAL: frozenset({State.SCHEDULED, State.PENDING, State.DEAD}),
        Verb.TAKE: frozenset({State.PENDING}),
    }
)
"""The states in which each verb has an effect; a store refuses it in all others."""

REASONS = MappingProxyType(
    {
        Verb.CANCEL: "cancelled by an operator",
        Verb.RETRY: "retried by an operator",
        Verb.REDRIVE: "redriven by an operator",
        Verb.PURGE: "",
    }
)
"""What a job's reason says after an operator's move without one."""


class Move(Struct, frozen=True, kw_only=True):
    """A verb on a job.

    *Cancel* ends a waiting job, and asks a running one to end; one that has something to undo is
    asked too, and started for that, and one that is being undone continues. *Retry* makes a
    scheduled job due now. *Redrive* gives a dead job a new life, with its failures and crashes
    forgotten and its history kept, and with another `payload` if one is given and its steps do not
    bind it to the present one. *Park* makes a waiting job wait for `waiting_for`, whatever its due
    time; *unpark* ends that, and a job that waited for an event may start at once. *Purge* deletes
    a job that has ended. *Reseal* writes the same payload in another way, unless it is no longer
    the one `before`. *Take* starts this very job under the lease of `worker`, wherever it is in its
    lane; with a retry or redrive before it in the same change, no other worker starts it between.
    """

    verb: Verb
    id: UUID
    reason: str = ""
    waiting_for: str = ""
    payload: bytes | None = None
    before: bytes | None = None
    worker: str = ""
    token: int = 0


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
        case Verb.TAKE:
            return claimed(job, move.worker, move.token, now)
        case _:
            return None


def claimed(job: Job, worker: str, token: int, now: datetime) -> Job:
    """Return a pending job as it is when a worker holds it."""
    return replace(
        job,
        state=State.RUNNING,
        attempt=job.attempt + 1,
        worker=worker,
        token=token,
        started_at=now,
        progress=None,
    )


def is_bound(job: Job) -> bool:
    """Return whether the steps that are done and not undone used the present payload.

    With another payload, steps for one order would count as done, or be undone, for another. A step
    that has only ever failed is run again anyway.
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
    """Return a parked job after its wait: one that waited for an event is due then."""
    due_at = min(job.due_at, now) if is_timed(job.waiting_for) else job.due_at
    state = State.PENDING if due_at <= now else State.SCHEDULED
    return replace(job, state=state, due_at=due_at, waiting_for=None)


def is_timed(waiting_for: str | None) -> bool:
    """Return whether a job waits until its due time at the longest."""
    return waiting_for is None or waiting_for.startswith(EVENT)
