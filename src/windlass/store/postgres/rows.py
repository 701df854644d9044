"""Owns the translation from rows of PostgreSQL to jobs, workers and news.

Times come as microseconds since 2000 and JSON as bytes, as the protocol has them, since claims read
them directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windlass.core.jobs.job import (
    Attempt,
    ErrorInfo,
    Job,
    Lane,
    Saga,
)
from windlass.core.jobs.queries import ErrorGroup
from windlass.core.jobs.states import State
from windlass.core.jobs.streams import StoredGroup, StreamPage
from windlass.core.records import News
from windlass.core.workers import WorkerRecord
from windlass.store.json_columns import (
    ERROR,
    HEADERS,
    HISTORY,
    INFO,
    PROGRESS,
    PULSE,
    SAGAS,
    STATES,
    instants_since,
)
from windlass.store.postgres.connections.connection import Row

T = TypeVar("T")
_RUNNING = State.RUNNING
"""A module-level name, since a lookup on an enum is slow."""
_EPOCH_SHIFT = 946_684_800_000_000
"""Microseconds from 1970 to 2000, the epoch of PostgreSQL."""
instant = instants_since(datetime(2000, 1, 1, tzinfo=UTC))
"""Decodes an instant; values beyond the calendar become its first or last instant."""
_SHARED = (
    "id, kind, queue, priority, key, state, {payload}, due_at, created_at, expires_at, started_at, "
    "{finished_at}, attempt, failures, crashes, max_retries, "
    "extract(epoch FROM timeout)::float8 AS timeout, unique_key, {headers}, "
    "waiting_for, worker, token, cancel_requested, progress, {result}, error, reason, {history}, "
    "{steps}, saga"
)
_WHOLE = {each: each for each in ("payload", "headers", "result", "history", "steps")}
_BRIEF = {
    "payload": "'{}'::json AS payload",
    "headers": "NULL::json AS headers",
    "result": "NULL::json AS result",
    "history": "NULL::json AS history",
    "steps": "NULL::text[] AS steps",
}
_UNFINISHED = {"finished_at": "NULL::timestamptz AS finished_at", "result": "NULL::json AS result"}
LIVE = _SHARED.format(**(_WHOLE | _UNFINISHED))
"""The columns of a live job, in the order of `job_of`."""
ENDED = _SHARED.format(**_WHOLE, finished_at="finished_at")
"""The same columns of a dead or finished job."""
FITS = """id BETWEEN %(first)s AND %(last)s
       AND (%(ending)s::text IS NULL
            OR right(replace(id::text, '-', ''), length(%(ending)s)) = %(ending)s)
       AND (%(states)s::text[] IS NULL OR state = ANY (%(states)s))
       AND (%(kind)s::text IS NULL OR kind = %(kind)s)
       AND (%(queue)s::text IS NULL OR queue = %(queue)s)
       AND (%(key)s::text IS NULL OR key = %(key)s)
       AND (%(worker)s::text IS NULL OR worker = %(worker)s)
       AND (%(fingerprint)s::text IS NULL
            OR coalesce(error ->> 'fingerprint', '') = %(fingerprint)s)
       AND (%(error)s::text IS NULL
            OR strpos((error ->> 'type') || ': ' || (error ->> 'message'), %(error)s) > 0)
       AND (%(older_than)s::interval IS NULL
            OR created_at < {schema}.clock() - %(older_than)s::interval)
       AND (%(newer_than)s::interval IS NULL
            OR created_at >= {schema}.clock() - %(newer_than)s::interval)
       AND (%(created_since)s::timestamptz IS NULL OR created_at >= %(created_since)s)
       AND (%(created_before)s::timestamptz IS NULL OR created_at < %(created_before)s)
       {terms}"""
"""The condition of a filter, on any table of jobs; {terms} stands for those of a search."""
_BRIEF_LIVE = _SHARED.format(**(_BRIEF | _UNFINISHED))
_BRIEF_ENDED = _SHARED.format(**_BRIEF, finished_at="finished_at")


def briefly(statement: str) -> str:
    """Return a statement that fetches jobs without fields that may be large and stored
    out of line.
    """
    return statement.replace(LIVE, _BRIEF_LIVE).replace(ENDED, _BRIEF_ENDED)


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
    """Decode a value; return the default if another program has written something else."""
    try:
        return decoder.decode(value)
    except (ValueError, RecursionError):
        return default


def _seconds(value: float) -> timedelta:
    """Return a span; values beyond a timedelta become its largest value."""
    try:
        return timedelta(seconds=value)
    except OverflowError:
        return timedelta.max if value > 0 else timedelta(0)


class _Rest(Struct):
    """Fields that only some claimed jobs have."""

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


def claimed_jobs(rows: Sequence[Row], lane: Lane, worker: str, token: int) -> list[Job | None]:
    """Return the jobs that `claim` found in one lane; None for each row that Windlass cannot have
    written.
    """
    # Local names, one loop and no time decoded twice, since this is done for every job.
    queue, kind, priority, key = lane
    jobs: list[Job | None] = []
    last_due, due = 0, instant(0)
    last_started, started = 0, instant(0)
    for (
        _asked, id_, payload, due_at, created_at, started_at, attempt, failures, crashes, rest, _seq
    ) in rows:  # fmt: skip
        if due_at != last_due:
            last_due, due = due_at, instant(due_at)
        if started_at != last_started:
            last_started, started = started_at, instant(started_at)
        job = Job(
            id=id_,
            kind=kind,
            queue=queue,
            priority=priority,
            key=key,
            state=_RUNNING,
            payload=payload,
            due_at=due,
            created_at=due if created_at == due_at else instant(created_at),
            started_at=started,
            attempt=attempt,
            failures=failures,
            crashes=crashes,
            worker=worker,
            token=token,
        )
        jobs.append(job if rest is None else _with_rest_or_none(job, rest))
    return jobs


def _with_rest_or_none(job: Job, rest: bytes) -> Job | None:
    try:
        return _with_rest(job, _rest.decode(rest))
    except (ValueError, OverflowError, RecursionError):
        return None


def _with_rest(job: Job, rest: _Rest) -> Job:
    expires_at = rest.expires_at
    return replace(
        job,
        expires_at=None if expires_at is None else instant(round(expires_at * 1e6) - _EPOCH_SHIFT),
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


def news_of(row: Row) -> News:
    """Return the piece of news in a row of `take_news`."""
    topic, id_, body, at = row
    return News(topic=topic, id=id_, body=body, at=instant(at))


def stream_page(rows: Sequence[Row]) -> StreamPage:
    """Return what `stream_read` has found: at least one row, which says whether the job is live."""
    groups = [StoredGroup.of(*row[1:]) for row in rows if row[1] is not None]
    return StreamPage(groups, bool(rows[0][0]))
