"""Owns how jobs are written to Redis and read from there: msgpack, with times in microseconds.

The formats are described in `lua/library/formats.lua`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from windlass.core.jobs.ids import uuid_of
from windlass.core.jobs.job import IDEMPOTENCY_KEY, Attempt, Job, Lane, NewJob, Saga
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.values.durations import When
from windlass.core.values.names import NAME_LIMIT
from windlass.core.workers import WorkerRecord
from windlass.store.json_columns import ERROR, INFO, PROGRESS, PULSE, SAGAS, as_json, instants_since

Row = tuple[bytes, bytes, Any, bytes, int | None, int | None, int, int, Any, Any]
"""Id, lane, payload, headers, max_retries, timeout, created, arrival, head, result."""
Lists = Sequence[tuple[bytes, list[bytes], list[bytes]]]
"""Steps and history of jobs that have any, by id."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
STATES = (None, *State)
NUMBERS = {state: number for number, state in enumerate(State, 1)}
NOTHING = b"\xc0"
encode = msgspec.msgpack.Encoder().encode
instant = instants_since(EPOCH)
_no_headers = encode(encode({}))
_no_options = _no_headers + NOTHING + NOTHING
_rows = msgspec.msgpack.Decoder(list[Row]).decode
_row = msgspec.msgpack.Decoder(Row).decode
_headers = msgspec.msgpack.Decoder(dict[str, str]).decode
_attempt = msgspec.json.Decoder(Attempt).decode
_number = int.from_bytes


def micros(moment: datetime) -> int:
    """Return an instant in the format of the store."""
    return (moment - EPOCH) // MICROSECOND


# -- to Redis --------------------------------------------------------------------------------------


@lru_cache(10_000)
def lane_bytes(lane: tuple[str, str, int, str]) -> bytes:
    """Return the name of a lane."""
    kind, key = lane[1].encode(), lane[3].encode()
    return b"%b%d:%b%d:%b" % (queue_bytes(lane[0]), len(kind), kind, lane[2], key)


def queue_bytes(queue: str) -> bytes:
    """Return how the names of all lanes of a queue begin, and of no others."""
    name = queue.encode()
    return b"%d:%b" % (len(name), name)


def body(job: NewJob, payload: bytes) -> tuple[bytes, bytes]:
    """Return the lane of a new job, and what its producer made, with the item of its payload."""
    lane, item = _lane_and_item((job.queue, job.kind, job.priority, job.key))
    return lane, item + payload + options_item(job)


def options_item(job: NewJob) -> bytes:
    """Return the headers, `max_retries` and timeout of a new job, as items one after the other."""
    if not job.headers and job.max_retries is None and job.timeout is None:
        return _no_options
    headers = encode(encode(job.headers)) if job.headers else _no_headers
    timeout = None if job.timeout is None else job.timeout // MICROSECOND
    return headers + encode(job.max_retries) + encode(timeout)


@lru_cache(10_000)
def _lane_and_item(lane: tuple[str, str, int, str]) -> tuple[bytes, bytes]:
    name = lane_bytes(lane)
    return name, encode(name)


def is_plain(job: NewJob) -> bool:
    """Return whether a job can be added without reading other jobs."""
    return (
        job.due is None
        and job.unique is None
        and job.waiting_for is None
        and job.expires is None
        and (not job.headers or IDEMPOTENCY_KEY not in job.headers)
    )


def options(job: NewJob) -> list[Any]:
    """Return the other fields of a new job; False stands for None, which a Lua list cannot hold."""
    unique, done_key = job.unique, job.headers.get(IDEMPOTENCY_KEY, "")
    until: object = unique.until if unique else False
    return [
        *_when(job.due),
        *_when(job.expires),
        unique.key if unique else False,
        until // MICROSECOND if isinstance(until, timedelta) else until,
        unique.on_duplicate if unique else "keep",
        done_key if 0 < len(done_key) <= NAME_LIMIT else "",
        _or_false(job.waiting_for),
    ]


def is_plain_success(move: Transition) -> bool:
    """Return whether a transition does nothing but complete a job."""
    return (
        move.state is State.COMPLETED
        and move.due is None
        and not move.failures
        and not move.crashes
        and move.error is None
        and move.reason is None
        and move.attempt is None
        and move.waiting_for is None
        and not move.steps
        and move.saga is None
    )


def transition(move: Transition) -> list[Any]:
    """Return the next state of a job, without its result."""
    return [
        NUMBERS[move.state],
        *_when(move.due),
        move.failures,
        move.crashes,
        _or_false(move.reason),
        _or_false(move.waiting_for),
        "" if move.saga is None else move.saga.value,
        False if move.error is None else as_json(move.error),
        "" if move.error is None else move.error.fingerprint,
        False if move.attempt is None else as_json(move.attempt),
        *move.steps,
    ]


def _when(moment: When | None) -> tuple[str, int]:
    if moment is None:
        return "", 0
    if isinstance(moment, timedelta):
        return "r", moment // MICROSECOND
    return "a", micros(moment)


def _or_false(value: str | None) -> str | bool:
    return False if value is None else value


# -- from Redis ------------------------------------------------------------------------------------


@lru_cache(10_000)
def lane_of(name: bytes) -> Lane:
    """Return the lane with a name."""
    queue, rest = _prefixed(name)
    kind, rest = _prefixed(rest)
    priority, _, key = rest.partition(b":")
    return Lane(queue.decode(), kind.decode(), int(priority), key.decode())


def _prefixed(text: bytes) -> tuple[bytes, bytes]:
    length, _, rest = text.partition(b":")
    return rest[: int(length)], rest[int(length) :]


def read_rows(count: int, packed: bytes) -> list[Row]:
    """Return the rows of a script's reply."""
    return _rows(b"\xdd" + struct.pack(">I", count) + packed) if count else []


def read_row(packed: bytes) -> Row:
    """Return one row."""
    row: Row = _row(packed)
    return row


def references(rows: Iterable[Row]) -> list[str]:
    """Return the references of values that are in keys of their own."""
    return [value for row in rows for value in (row[2], row[9]) if type(value) is str]


def first_run(
    row: Row, values: Mapping[str, bytes], worker: str, token: int, started: datetime
) -> Job:
    """Return a plain job that was claimed for the first time: its head is known."""
    queue, kind, priority, key = lane_of(row[1])
    created = instant(row[6])
    return Job(
        id=uuid_of(_number(row[0])),
        kind=kind,
        queue=queue,
        priority=priority,
        key=key,
        state=State.RUNNING,
        payload=_value(row[2], values) or b"null",
        due_at=created,
        created_at=created,
        started_at=started,
        attempt=1,
        max_retries=row[4],
        timeout=None if row[5] is None else row[5] * MICROSECOND,
        headers=_headers(row[3]) if len(row[3]) > 1 else {},
        worker=worker,
        token=token,
    )


def job_of(
    row: Row, values: Mapping[str, bytes], lists: tuple[list[bytes], list[bytes]] | None
) -> Job:
    """Return the job of a row, with its steps and its history."""
    head: list[Any] = row[8]
    queue, kind, priority, key = lane_of(row[1])
    steps, history = lists or ((), ())
    return Job(
        id=uuid_of(_number(row[0])),
        kind=kind,
        queue=queue,
        priority=priority,
        key=key,
        state=STATES[head[0]] or State.DEAD,
        payload=_value(row[2], values) or b"null",
        due_at=instant(head[1]),
        created_at=instant(row[6]),
        expires_at=_instant(head[14]),
        started_at=_instant(head[8]),
        finished_at=_instant(head[9]),
        attempt=head[2],
        failures=head[3],
        crashes=head[4],
        max_retries=row[4],
        timeout=None if row[5] is None else row[5] * MICROSECOND,
        unique_key=_or_none(head[12]),
        headers=_headers(row[3]) if len(row[3]) > 1 else {},
        waiting_for=_or_none(head[10]),
        worker=head[6] or None,
        token=int(head[7]) if head[7] else None,
        cancel_requested=head[5] == 1,
        progress=PROGRESS.decode(head[16]) if head[16] else None,
        result=_value(row[9], values),
        error=ERROR.decode(head[15]) if head[15] else None,
        reason=_or_none(head[11]),
        history=tuple(map(_attempt, history)),
        steps=tuple(step.decode() for step in steps),
        saga=_saga(head[17]),
    )


def worker_of(fields: Sequence[bytes], now: int) -> WorkerRecord:
    """Return a worker from info, pulse, started, seen, until, ended and lease."""
    started, seen, until, lease = (int(fields[i]) for i in (2, 3, 4, 6))
    ended = fields[5] == b"1"
    return WorkerRecord(
        info=INFO.decode(fields[0]),
        pulse=PULSE.decode(fields[1]),
        started_at=instant(started),
        last_seen=instant(seen),
        lease_until=instant(until),
        alive=not ended and until > now and seen <= now + lease,
        ended=ended,
    )


def _value(value: Any, values: Mapping[str, bytes]) -> bytes | None:
    """Return a value that is in its row, or in a key of its own."""
    return values.get(value) if type(value) is str else value


def _instant(value: int) -> datetime | None:
    return instant(value) if value else None


def _or_none(value: Any) -> Any:
    return None if value is False else value


def _saga(value: str) -> Saga | None:
    return SAGAS[value] if value else None
