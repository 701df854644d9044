"""Owns the translation between facts and PostgreSQL's values.

Times come as microseconds since 2000, JSON as bytes: that is how they travel, and what is read most
is read without a detour.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windlass.core.job import (
    Attempt,
    Checkpoint,
    ErrorGroup,
    ErrorInfo,
    Job,
    Lane,
    NewJob,
    News,
    Saga,
    UniqueKey,
    WorkerRecord,
)
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.store.columns import (
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
from windlass.store.postgres.wire import Row

T = TypeVar("T")
_SHIFT = 946_684_800_000_000
"""Microseconds from 1970, from which people count, to 2000, from which PostgreSQL does."""
instant = instants_since(datetime(2000, 1, 1, tzinfo=UTC))
"""Returns an instant from how it travels; beyond the calendar there is only its end."""
_SHARED = (
    "id, kind, queue, priority, key, state, payload, due_at, created_at, expires_at, started_at, "
    "{finished_at}, attempt, failures, crashes, max_retries, "
    "extract(epoch FROM timeout)::float8 AS timeout, unique_key, headers, "
    "waiting_for, worker, token, cancel_requested, progress, {result}, error, reason, history, "
    "steps, saga"
)
LIVE = _SHARED.format(finished_at="NULL::timestamptz AS finished_at", result="NULL::json AS result")
"""The columns of a job in the live room, in the order of `job_of`."""
ENDED = _SHARED.format(finished_at="finished_at", result="result")
"""The same of a job in another room."""


def job_of(row: Row) -> Job:
    """Return the job in a row of LIVE or ENDED columns."""
    (
        id_, kind, queue, priority, key, state, payload, due_at, created_at, expires_at, started_at,
        finished_at, attempt, failures, crashes, max_retries, timeout, unique_key, headers,
        waiting_for, worker, token, cancel_requested, progress, result, error, reason, history,
        steps, saga,
    ) = row  # fmt: skip
    return Job(
        id=id_,
        kind=kind,
        queue=queue,
        priority=priority,
        key=key,
        state=STATES[state],
        payload=payload,
        due_at=instant(due_at),
        created_at=instant(created_at),
        expires_at=None if expires_at is None else instant(expires_at),
        started_at=None if started_at is None else instant(started_at),
        finished_at=None if finished_at is None else instant(finished_at),
        attempt=attempt,
        failures=failures,
        crashes=crashes,
        max_retries=max_retries,
        timeout=None if timeout is None else _seconds(timeout),
        unique_key=unique_key,
        headers={} if headers is None else _read(HEADERS, headers, {}),
        waiting_for=waiting_for,
        worker=worker,
        token=token,
        cancel_requested=cancel_requested,
        progress=None if progress is None else _read(PROGRESS, progress, None),
        result=result,
        error=None if error is None else _read(ERROR, error, None),
        reason=reason,
        history=() if history is None else _read(HISTORY, history, ()),
        steps=() if steps is None else tuple(steps),
        saga=None if saga is None else SAGAS.get(saga),
    )


def _read(decoder: msgspec.json.Decoder[T], value: bytes, default: T | None) -> Any:
    """Read what we wrote; if somebody else did, and it is something else, do without it."""
    try:
        return decoder.decode(value)
    except (ValueError, RecursionError):
        return default


def _seconds(value: float) -> timedelta:
    """Return a span; beyond what a timedelta holds there is only its end."""
    try:
        return timedelta(seconds=value)
    except OverflowError:
        return timedelta.max if value > 0 else timedelta(0)


class _Rest(Struct):
    """What few claimed jobs have."""

    expires_at: float | None
    max_retries: int | None
    timeout: float | None
    unique_key: str | None
    headers: dict[str, str] | None
    cancel_requested: bool
    error: ErrorInfo | None
    reason: str | None
    history: tuple[Attempt, ...] | None
    steps: tuple[str, ...] | None = None
    saga: Saga | None = None


_rest = msgspec.json.Decoder(_Rest)


def claimed_job(row: Row, lane: Lane, worker: str, token: int) -> Job | None:
    """Return the job in a row of `claim`, or None if something in it is not what we write."""
    (
        _asked, id_, payload, due_at, created_at, started_at, attempt, failures, crashes, rest, _seq
    ) = row  # fmt: skip
    queue, kind, priority, key = lane
    job = Job(
        id=id_,
        kind=kind,
        queue=queue,
        priority=priority,
        key=key,
        state=State.RUNNING,
        payload=payload,
        due_at=instant(due_at),
        created_at=instant(created_at),
        started_at=instant(started_at),
        attempt=attempt,
        failures=failures,
        crashes=crashes,
        worker=worker,
        token=token,
    )
    if rest is None:
        return job
    try:
        return _with_rest(job, _rest.decode(rest))
    except (ValueError, OverflowError, RecursionError):
        return None


def _with_rest(job: Job, rest: _Rest) -> Job:
    expires_at = rest.expires_at
    return replace(
        job,
        expires_at=None if expires_at is None else instant(round(expires_at * 1e6) - _SHIFT),
        max_retries=rest.max_retries,
        timeout=None if rest.timeout is None else timedelta(seconds=rest.timeout),
        unique_key=rest.unique_key,
        headers=rest.headers or {},
        cancel_requested=rest.cancel_requested,
        error=rest.error,
        reason=rest.reason,
        history=rest.history or (),
        steps=rest.steps or (),
        saga=rest.saga,
    )


def group_of(row: Row) -> ErrorGroup:
    """Return the group in a row of `error_groups`."""
    fingerprint, kind, count, first_seen, last_seen, newest, error, reason = row
    return ErrorGroup(
        fingerprint=fingerprint,
        kind=kind,
        count=count,
        first_seen=instant(first_seen),
        last_seen=instant(last_seen),
        newest=newest,
        error=None if error is None else _read(ERROR, error, None),
        reason=reason,
    )


def worker_of(row: Row) -> WorkerRecord:
    """Return the worker in a row of `list_workers`."""
    info, pulse, started_at, last_seen, lease_until, alive, ended = row
    return WorkerRecord(
        info=INFO.decode(info),
        pulse=PULSE.decode(pulse),
        started_at=instant(started_at),
        last_seen=instant(last_seen),
        lease_until=instant(lease_until),
        alive=alive,
        ended=ended,
    )


# -- enqueue: sans I/O -------------------------------------------------------------------------


def enqueue_document(jobs: Sequence[NewJob], *, fresh: bool = False) -> str:
    """Return jobs as the one argument of `enqueue_many`, which any connection can carry."""
    return msgspec.json.encode([_document(job, fresh=fresh) for job in jobs]).decode()


def _document(new: NewJob, *, fresh: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "fresh": fresh,
        "id": new.id,
        "kind": new.kind,
        "payload": msgspec.Raw(new.payload),
        "queue": new.queue,
    }
    if new.priority:
        document["priority"] = new.priority
    if new.key:
        document["key"] = new.key
    if new.due is not None:
        document |= _when(new.due, "delay", "at")
    if new.expires is not None:
        document |= _when(new.expires, "expires_in", "expires_at")
    if new.max_retries is not None:
        document["max_retries"] = new.max_retries
    if new.timeout is not None:
        document["timeout"] = _span(new.timeout)
    if new.headers:
        document["headers"] = new.headers
    if new.waiting_for is not None:
        document["waiting_for"] = new.waiting_for
    if new.unique is not None:
        document |= _unique(new.unique)
    return document


def _unique(unique: UniqueKey) -> dict[str, Any]:
    until = unique.until
    held = {
        "unique": unique.key,
        "unique_until": _span(until) if isinstance(until, timedelta) else until,
    }
    return held if unique.on_duplicate == "keep" else held | {"on_duplicate": unique.on_duplicate}


def _when(moment: timedelta | datetime, relative: str, absolute: str) -> dict[str, Any]:
    if isinstance(moment, timedelta):
        return {relative: _span(moment)}
    return {absolute: moment.isoformat()}


def _span(span: timedelta) -> str:
    """Write a span as PostgreSQL reads it, to the microsecond; days are 24 hours here."""
    return f"{span // timedelta(microseconds=1)} microseconds"


def add_values(new: NewJob) -> list[bytes | None]:
    """Return the values of `add`, as the text that travels."""
    timeout, retries = new.timeout, new.max_retries
    return [
        new.id.hex.encode(),
        new.kind.encode(),
        new.queue.encode(),
        b"%d" % new.priority,
        new.key.encode(),
        new.payload,
        None if retries is None else b"%d" % retries,
        None if timeout is None else _span(timeout).encode(),
        as_json(new.headers).encode() if new.headers else None,
    ]


# -- enqueue in bulk: PostgreSQL's binary COPY ----------------------------------------------------

COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TAIL = b"\xff\xff"
_ID = struct.pack("!hi", 9, 16)
_PARKED_ID = struct.pack("!hi", 11, 16)
_LENGTH = struct.Struct("!i").pack
_NOTHING = _LENGTH(-1)
_SCHEDULED = _LENGTH(len("scheduled")) + b"scheduled"


def can_be_copied(new: NewJob) -> bool:
    """Say whether a job needs nothing of the server but its place: no key to hold, no time."""
    return new.unique is None and new.due is None and new.expires is None


def copy_rows(jobs: Sequence[NewJob]) -> bytes:
    """Return jobs as rows of `copy_jobs`."""
    parts: list[bytes] = []
    for new in jobs:
        payload = new.payload
        parts += (
            _ID,
            new.id.bytes,
            _lane_fields(new.kind, new.queue, new.priority, new.key),
            _LENGTH(len(payload)),
            payload,
            _NO_OPTIONS
            if new.max_retries is None and new.timeout is None and not new.headers
            else _option_fields(new),
        )
    return b"".join(parts)


def copy_parked_rows(jobs: Sequence[NewJob]) -> bytes:
    """Return jobs that are parked from the beginning as rows of `copy_parked`."""
    parts: list[bytes] = []
    for new in jobs:
        waiting_for = (new.waiting_for or "").encode()
        parts += (
            _PARKED_ID,
            new.id.bytes,
            _lane_fields(new.kind, new.queue, new.priority, new.key),
            _LENGTH(len(new.payload)),
            new.payload,
            _option_fields(new),
            _SCHEDULED,
            _LENGTH(len(waiting_for)),
            waiting_for,
        )
    return b"".join(parts)


@lru_cache(1024)
def _lane_fields(kind: str, queue: str, priority: int, key: str) -> bytes:
    number = _LENGTH(4) + struct.pack("!i", priority)
    return _text_field(kind) + _text_field(queue) + number + _text_field(key)


def _option_fields(new: NewJob) -> bytes:
    retries, timeout = _NOTHING, _NOTHING
    if new.max_retries is not None:
        retries = _LENGTH(4) + struct.pack("!i", new.max_retries)
    if new.timeout is not None:
        timeout = _LENGTH(16) + struct.pack("!qii", new.timeout // timedelta(microseconds=1), 0, 0)
    return retries + timeout + (_text_field(as_json(new.headers)) if new.headers else _NOTHING)


def _text_field(text: str) -> bytes:
    value = text.encode()
    return _LENGTH(len(value)) + value


_NO_OPTIONS = _NOTHING * 3


# -- settle ----------------------------------------------------------------------------------------


def is_plain_success(move: Transition) -> bool:
    """Say whether `complete` can record this."""
    return (
        move.state is State.COMPLETED
        and move.attempt is None
        and move.reason is None
        and not move.failures
        and not move.crashes
        and not move.steps
        and move.saga is None
    )


def complete_values(moves: Sequence[Transition]) -> tuple[str, str, str | None]:
    """Return the values of `complete`, as the text of arrays: that takes a tenth of the time."""
    tokens = ",".join([str(move.token) for move in moves])
    results = None
    if any(move.result is not None for move in moves):
        results = "{" + ",".join([_element(move.result) for move in moves]) + "}"
    return array_of([move.id for move in moves]), "{" + tokens + "}", results


def array_of(ids: Sequence[UUID]) -> str:
    """Return ids as the text of an array."""
    return "{" + ",".join([each.hex for each in ids]) + "}"


def text_array(texts: Sequence[str]) -> str:
    """Return texts as the text of an array."""
    return "{" + ",".join([f'"{_escaped(text)}"' for text in texts]) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _element(result: bytes | None) -> str:
    if result is None:
        return "NULL"
    return f'"{_escaped(result.decode())}"'


def settle_document(moves: Sequence[Transition]) -> str:
    """Return the one value of `settle`."""
    return msgspec.json.encode([_transition(move) for move in moves]).decode()


def _transition(move: Transition) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": move.id,
        "token": move.token,
        "state": move.state.value,
        "failures": move.failures,
        "crashes": move.crashes,
        "result": None if move.result is None else msgspec.Raw(move.result),
        "error": move.error,
        "reason": move.reason,
        "attempt": move.attempt,
    }
    if move.due is not None:
        document |= _when(move.due, "due_in", "due_at")
    if move.waiting_for is not None:
        document["waiting_for"] = move.waiting_for
    if move.steps:
        document["steps"] = move.steps
    if move.saga is not None:
        document["saga"] = move.saga
    return document


def checkpoint_document(added: Sequence[Checkpoint]) -> str:
    """Return the one value of `checkpoint`: for each job, all that is added to its log."""
    merged: dict[tuple[UUID, int], Checkpoint] = {}
    for each in added:
        before = merged.get((each.id, each.token))
        if before is not None:
            each = replace(each, steps=before.steps + each.steps, saga=each.saga or before.saga)
        merged[each.id, each.token] = each
    return as_json(list(merged.values()))


# -- news ------------------------------------------------------------------------------------------


def news_document(news: Sequence[News]) -> str:
    """Return the one value of `send_news`, which any connection can carry."""
    return as_json(
        [{"topic": each.topic, "id": each.id, "body": msgspec.Raw(each.body)} for each in news]
    )


def news_of(row: Row) -> News:
    """Return the piece of news in a row of `take_news`."""
    topic, id_, body, at = row
    return News(topic=topic, id=id_, body=body, at=instant(at))
