"""Owns the translation between jobs and SQLite's rows: times as microseconds, JSON as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from windlass.core.jobs.job import HISTORY_KEPT, Checkpoint, Job, NewJob
from windlass.core.jobs.queries import ErrorGroup
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import WAITING, State
from windlass.core.values.durations import resolve
from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord
from windlass.store.json_columns import (
    ERROR,
    HEADERS,
    HISTORY,
    INFO,
    PROGRESS,
    PULSE,
    SAGAS,
    STATES,
    as_json,
    instants_since,
)

Row = Sequence[Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
instant = instants_since(_EPOCH)
"""Decodes an instant; values beyond the calendar become its first or last instant."""
_MICROSECOND = timedelta(microseconds=1)
STEPS = msgspec.json.Decoder(list[msgspec.Raw])
_ID_LENGTH = 36
_encode = msgspec.json.Encoder().encode


def micros(moment: datetime) -> int:
    """Return an instant as SQLite keeps it."""
    return (moment - _EPOCH) // _MICROSECOND


def job_of(row: Row) -> Job:
    """Return the job in a row of `SELECT * FROM jobs`."""
    (
        _seq, id_, kind, queue, priority, key, state, payload, due_at, created_at, expires_at,
        started_at, finished_at, attempt, failures, crashes, max_retries, timeout, unique_key,
        headers, waiting_for, worker, token, cancel_requested, progress, result, error, reason,
        history, steps, saga,
    ) = row  # fmt: skip
    return Job(
        id=_uuid(id_),
        kind=kind,
        queue=queue,
        priority=priority,
        key=key,
        state=STATES[state],
        payload=payload.encode(),
        due_at=instant(due_at),
        created_at=instant(created_at),
        expires_at=None if expires_at is None else instant(expires_at),
        started_at=None if started_at is None else instant(started_at),
        finished_at=None if finished_at is None else instant(finished_at),
        attempt=attempt,
        failures=failures,
        crashes=crashes,
        max_retries=max_retries,
        timeout=None if timeout is None else timedelta(microseconds=timeout),
        unique_key=unique_key,
        headers={} if headers is None else HEADERS.decode(headers),
        waiting_for=waiting_for,
        worker=worker,
        token=token,
        cancel_requested=bool(cancel_requested),
        progress=None if progress is None else PROGRESS.decode(progress),
        result=None if result is None else result.encode(),
        error=None if error is None else ERROR.decode(error),
        reason=reason,
        history=() if history == "[]" else HISTORY.decode(history),
        steps=() if steps == "[]" else tuple(bytes(step).decode() for step in STEPS.decode(steps)),
        saga=None if saga is None else SAGAS.get(saga),
    )


def _uuid(text: str) -> UUID:
    """Decode an id; written in any other form, its job could not be found by id."""
    if len(text) != _ID_LENGTH or text != text.lower():
        raise ValueError(f"not an id: {text!r}")
    return msgspec.convert(text, UUID)  # A quarter of the time of Python's own ways.


def is_plain(new: NewJob) -> bool:
    """Return whether a job has none of the options that `insert_plain_jobs` leaves out."""
    return (
        new.unique is None
        and new.timeout is None
        and new.expires is None
        and new.max_retries is None
        and new.waiting_for is None
        and not new.headers
    )


def plain_row(new: NewJob, now: datetime, created_at: int) -> Row:
    """Return the values of `insert_plain_jobs`; `created_at` is `now` in microseconds."""
    due_at = created_at
    if new.due is not None:
        due_at = max(micros(resolve(new.due, now)), created_at)
    return (
        _encode(new.id)[1:-1].decode(),  # A third of the time of `str`.
        new.kind,
        new.queue,
        new.priority,
        new.key,
        "scheduled" if due_at > created_at or new.waiting_for else "pending",
        new.payload.decode(),
        due_at,
        created_at,
    )


def new_row(new: NewJob, now: datetime, created_at: int) -> Row:
    """Return the values of `insert_jobs`."""
    return (
        *plain_row(new, now, created_at),
        None if new.expires is None else micros(resolve(new.expires, now)),
        new.max_retries,
        None if new.timeout is None else new.timeout // _MICROSECOND,
        None if new.unique is None else new.unique.key,
        as_json(new.headers) if new.headers else None,
        new.waiting_for,
    )


def steps_json(steps: Sequence[str]) -> str:
    """Return entries of a step log as one JSON array."""
    return f"[{','.join(steps)}]"


def checkpoint_values(added: Checkpoint) -> dict[str, Any]:
    return {
        "id": str(added.id),
        "token": added.token,
        "steps": steps_json(added.steps),
        "saga": None if added.saga is None else added.saga.value,
    }


def settle_values(move: Transition, now: datetime) -> dict[str, Any]:
    return {
        "id": str(move.id),
        "token": move.token,
        "state": move.state.value,
        "waits": move.state in WAITING,
        "due_at": None if move.due is None else micros(max(resolve(move.due, now), now)),
        "failures": move.failures,
        "crashes": move.crashes,
        "result": None if move.result is None else move.result.decode(),
        "error": None if move.error is None else as_json(move.error),
        "reason": move.reason,
        "attempt": None if move.attempt is None else as_json(move.attempt),
        "waiting_for": move.waiting_for if move.state is State.SCHEDULED else None,
        "steps": steps_json(move.steps),
        "saga": None if move.saga is None else move.saga.value,
        "history_kept": HISTORY_KEPT,
        "now": micros(now),
    }


def move_values(job: Job) -> dict[str, Any]:
    """Return the values of `write_move`."""
    return {
        "id": str(job.id),
        "state": job.state.value,
        "due_at": micros(job.due_at),
        "expires_at": None if job.expires_at is None else micros(job.expires_at),
        "started_at": None if job.started_at is None else micros(job.started_at),
        "finished_at": None if job.finished_at is None else micros(job.finished_at),
        "failures": job.failures,
        "crashes": job.crashes,
        "worker": job.worker,
        "waiting_for": job.waiting_for,
        "cancel_requested": job.cancel_requested,
        "reason": job.reason,
        "payload": job.payload.decode(),
        "steps": steps_json(job.steps),
        "saga": None if job.saga is None else job.saga.value,
    }


def group_of(row: Row) -> ErrorGroup:
    """Return the group in a row of `error_groups`."""
    fingerprint, kind, count, first_seen, last_seen, newest, error, reason = row
    return ErrorGroup(
        fingerprint=fingerprint,
        kind=kind,
        count=count,
        first_seen=instant(first_seen),
        last_seen=instant(last_seen),
        newest=_uuid(newest),
        error=None if error is None else ERROR.decode(error),
        reason=reason,
    )


def amend_values(job: Job) -> dict[str, Any]:
    return {
        "id": str(job.id),
        "payload": job.payload.decode(),
        "key": job.key,
        "headers": as_json(job.headers) if job.headers else None,
        "due_at": micros(job.due_at),
        "state": job.state.value,
    }


def worker_values(worker: WorkerInfo, now: datetime) -> dict[str, Any]:
    """Return the values of `register_worker`."""
    return {
        "id": worker.id,
        "info": as_json(worker),
        "pulse": as_json(WorkerPulse()),
        "lease": worker.lease // _MICROSECOND,
        "now": micros(now),
    }


def worker_of(row: Row) -> WorkerRecord:
    """Return the worker in a row of `list_workers`."""
    info, pulse, started_at, last_seen, lease_until, alive, ended = row
    return WorkerRecord(
        info=INFO.decode(info),
        pulse=PULSE.decode(pulse),
        started_at=instant(started_at),
        last_seen=instant(last_seen),
        lease_until=instant(lease_until),
        alive=bool(alive),
        ended=bool(ended),
    )
