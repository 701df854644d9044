"""Owns the translation between facts and SQLite's rows: times as microseconds, JSON as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from windlass.core.durations import resolve
from windlass.core.job import (
    HISTORY_KEPT,
    Attempt,
    ErrorInfo,
    Job,
    NewJob,
    Progress,
    Pulse,
    WorkerInfo,
    WorkerRecord,
    uuid_of,
)
from windlass.core.settle import Transition
from windlass.core.states import WAITING, State

Row = Sequence[Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STATES = {state.value: state for state in State}
_history = msgspec.json.Decoder(tuple[Attempt, ...])
_headers = msgspec.json.Decoder(dict[str, str])
_error = msgspec.json.Decoder(ErrorInfo)
_progress = msgspec.json.Decoder(Progress)
_info = msgspec.json.Decoder(WorkerInfo)
_pulse = msgspec.json.Decoder(Pulse)


def micros(moment: datetime) -> int:
    """Return an instant as SQLite keeps it."""
    return (moment - _EPOCH) // _MICROSECOND


@lru_cache(1024)  # Jobs that were enqueued, or claimed, together share their times.
def instant(value: int) -> datetime:
    """Return an instant from what SQLite keeps; beyond the calendar there is only its end."""
    try:
        return _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return _LATEST if value > 0 else _EARLIEST


def as_json(value: Any) -> str:
    """Return a fact, or a record, as JSON text."""
    return msgspec.json.encode(value).decode()


def job_of(row: Row) -> Job:
    """Return the job in a row of `SELECT * FROM jobs`."""
    (
        _seq, id_, kind, queue, priority, key, state, payload, due_at, created_at, expires_at,
        started_at, finished_at, attempt, failures, crashes, max_retries, timeout, unique_key,
        headers, waiting_for, worker, token, cancel_requested, progress, result, error, reason,
        history,
    ) = row  # fmt: skip
    return Job(
        id=_uuid(id_),
        kind=kind,
        queue=queue,
        priority=priority,
        key=key,
        state=_STATES[state],
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
        headers={} if headers is None else _headers.decode(headers),
        waiting_for=waiting_for,
        worker=worker,
        token=token,
        cancel_requested=bool(cancel_requested),
        progress=None if progress is None else _progress.decode(progress),
        result=None if result is None else result.encode(),
        error=None if error is None else _error.decode(error),
        reason=reason,
        history=() if history == "[]" else _history.decode(history),
    )


def _uuid(text: str) -> UUID:
    """Read an id that is written as we write it; by any other way its job could not be found."""
    made = uuid_of(int(text.replace("-", ""), 16))
    if str(made) != text:
        raise ValueError(f"not an id: {text!r}")
    return made


def is_plain(new: NewJob) -> bool:
    """Say whether a job has none of the options that `insert_plain_jobs` leaves out."""
    return (
        new.unique is None
        and new.timeout is None
        and new.expires is None
        and new.max_retries is None
        and not new.headers
    )


def plain_row(new: NewJob, now: datetime, created_at: int) -> Row:
    """Return the values of `insert_plain_jobs` for one; `created_at` is `now` in microseconds."""
    due_at = created_at
    if new.due is not None:
        due_at = max(micros(resolve(new.due, now)), created_at)
    return (
        str(new.id),
        new.kind,
        new.queue,
        new.priority,
        new.key,
        "scheduled" if due_at > created_at else "pending",
        new.payload.decode(),
        due_at,
        created_at,
    )


def new_row(new: NewJob, now: datetime, created_at: int) -> Row:
    """Return the values of `insert_jobs` for one of them."""
    return (
        *plain_row(new, now, created_at),
        None if new.expires is None else micros(resolve(new.expires, now)),
        new.max_retries,
        None if new.timeout is None else new.timeout // _MICROSECOND,
        None if new.unique is None else new.unique.key,
        as_json(new.headers) if new.headers else None,
    )


def settle_values(move: Transition, now: datetime) -> dict[str, Any]:
    """Return the values of `settle_job`."""
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
    }


def amend_values(job: Job) -> dict[str, Any]:
    """Return the values of `amend_job`."""
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
        "pulse": as_json(Pulse()),
        "lease": worker.lease // _MICROSECOND,
        "now": micros(now),
    }


def worker_of(row: Row) -> WorkerRecord:
    """Return the worker in a row of `list_workers`."""
    info, pulse, started_at, last_seen, lease_until, alive = row
    return WorkerRecord(
        info=_info.decode(info),
        pulse=_pulse.decode(pulse),
        started_at=instant(started_at),
        last_seen=instant(last_seen),
        lease_until=instant(lease_until),
        alive=bool(alive),
    )
