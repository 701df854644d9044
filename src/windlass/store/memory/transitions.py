"""Owns how a job of the memory store looks after it is enqueued and settled."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from windlass.core.jobs.job import HISTORY_KEPT, Job, NewJob, Saga
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import WAITING, State, may_move
from windlass.core.values.durations import resolve


def enqueued(new: NewJob, now: datetime) -> Job:
    due_at = now if new.due is None else max(resolve(new.due, now), now)
    return Job(
        id=new.id,
        kind=new.kind,
        queue=new.queue,
        priority=new.priority,
        key=new.key,
        state=State.SCHEDULED if due_at > now or new.waiting_for else State.PENDING,
        payload=new.payload,
        due_at=due_at,
        created_at=now,
        expires_at=None if new.expires is None else resolve(new.expires, now),
        max_retries=new.max_retries,
        timeout=new.timeout,
        unique_key=None if new.unique is None else new.unique.key,
        headers=new.headers,
        waiting_for=new.waiting_for,
    )


def settled(job: Job, move: Transition, now: datetime) -> Job | None:
    """Return a running job after a transition; None if its state does not allow that one."""
    if not may_move(job.state, move.state):
        return None
    state, reason, due = move.state, move.reason, move.due
    saga = move.saga or job.saga
    cancelled = job.cancel_requested and saga is not Saga.UNDOING
    if cancelled and state in (*WAITING, State.CANCELLED):
        reason = job.reason
        # A job with steps to undo is started once more, to undo them.
        undo = saga is Saga.READY and state is not State.CANCELLED
        state, due = (State.PENDING, None) if undo else (State.CANCELLED, due)
    history = job.history if move.attempt is None else (*job.history, move.attempt)
    waits = state in WAITING
    return replace(
        job,
        state=state,
        due_at=job.due_at if due is None else max(resolve(due, now), now),
        waiting_for=move.waiting_for if state is State.SCHEDULED else None,
        cancel_requested=cancelled,
        failures=job.failures + move.failures,
        crashes=job.crashes + move.crashes,
        worker=None if waits else job.worker,
        token=None,
        started_at=None if waits else job.started_at,
        finished_at=None if waits else now,
        result=move.result,
        error=None if state is State.COMPLETED else move.error or job.error,
        reason=reason,
        history=history[-HISTORY_KEPT:],
        steps=(*job.steps, *move.steps),
        saga=saga,
    )
