"""Owns how jobs and transitions are written: as parameters of statements, and as rows of COPY."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from windlass.core.jobs.job import Checkpoint, NewJob, UniqueKey
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.jobs.streams import ChunkGroup
from windlass.core.records import News
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.json_columns import as_json

_COMPLETED = State.COMPLETED
"""A module-level name, since a lookup on an enum is slow."""
COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER = b"\xff\xff"
_ID = struct.pack("!hi", 9, 16)
_PARKED_ID = struct.pack("!hi", 11, 16)
_LENGTH = struct.Struct("!i").pack
_NULL = _LENGTH(-1)
_TOKEN = struct.Struct("!q").pack
_ARRAY = struct.Struct("!iiIii").pack
"""Packs what an array begins with: dimensions, whether NULLs may occur, type, size, first index."""
_UUID, _BIGINT, _JSON = 2950, 20, 114
"""The numbers of types, the same on every server."""
_SCHEDULED = _LENGTH(len("scheduled")) + b"scheduled"


def enqueue_document(jobs: Sequence[NewJob], *, fresh: bool | None = None) -> str:
    """Return jobs as the one argument of `enqueue_many`, which any connection can send.

    None: the ids may be known, but no request with them was sent as fresh.
    """
    return msgspec.json.encode([_document(job, fresh=fresh) for job in jobs]).decode()


def _document(new: NewJob, *, fresh: bool | None) -> dict[str, Any]:
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
    """Format a span for PostgreSQL, to the microsecond; a day is 24 hours here."""
    return f"{span // timedelta(microseconds=1)} microseconds"


def add_values(new: NewJob) -> list[bytes | None]:
    """Return the values of `add` as text."""
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


def is_plain_success(move: Transition) -> bool:
    """Return whether `complete` can record this transition."""
    return (
        move.state is _COMPLETED
        and move.attempt is None
        and move.reason is None
        and not move.failures
        and not move.crashes
        and not move.steps
        and move.saga is None
    )


def complete_values(moves: Sequence[Transition]) -> tuple[bytes, bytes, bytes | None]:
    """Return the values of `complete` as arrays in the server's own format, the quickest of all."""
    ids = [move.id.int.to_bytes(16) for move in moves]
    tokens = [_TOKEN(move.token) for move in moves]
    results = None
    if any(move.result is not None for move in moves):
        results = _array(_JSON, [_element(move.result) for move in moves])
    return _fixed_width_array(_UUID, ids), _fixed_width_array(_BIGINT, tokens), results


def single_values(move: Transition) -> tuple[str, str, str | None]:
    """Return the values of `complete` for one job as text, however a program adapts lists."""
    results = None if move.result is None else text_array([move.result.decode()])
    return array_of([move.id]), f"{{{move.token}}}", results


def _fixed_width_array(type_: int, elements: Sequence[bytes]) -> bytes:
    """Return an array of elements that are all of the same length."""
    length = _LENGTH(len(elements[0]))
    return _ARRAY(1, 0, type_, len(elements), 1) + length + length.join(elements)


def _array(type_: int, elements: Sequence[bytes]) -> bytes:
    """Return an array of elements that have their lengths before them."""
    return _ARRAY(1, 1, type_, len(elements), 1) + b"".join(elements)


def _element(value: bytes | None) -> bytes:
    return _NULL if value is None else _LENGTH(len(value)) + value


def array_of(ids: Sequence[UUID]) -> str:
    return "{" + ",".join([each.hex for each in ids]) + "}"


def text_array(texts: Sequence[str]) -> str:
    return "{" + ",".join([f'"{_escaped(text)}"' for text in texts]) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


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
    """Return the one value of `checkpoint`: for each job, all entries for its log."""
    merged: dict[tuple[UUID, int], Checkpoint] = {}
    for each in added:
        before = merged.get((each.id, each.token))
        if before is not None:
            each = replace(each, steps=before.steps + each.steps, saga=each.saga or before.saga)
        merged[each.id, each.token] = each
    return as_json(list(merged.values()))


def news_document(news: Sequence[News]) -> str:
    """Return the one value of `send_news`, which any connection can send."""
    return as_json(
        [{"topic": each.topic, "id": each.id, "body": msgspec.Raw(each.body)} for each in news]
    )


def stream_document(groups: Sequence[ChunkGroup]) -> str:
    """Return the one value of `stream_append`."""
    return as_json(
        [
            {
                "id": group.id,
                "token": group.token,
                "attempt": group.attempt,
                "offset": group.offset,
                "resumed": group.resumed,
                "steps": group.steps,
                "number": len(group.chunks),
                "size": group.size,
                "chunks": msgspec.Raw(group.data),
            }
            for group in groups
        ]
    )


def can_be_copied(new: NewJob) -> bool:
    """Return whether a job can be copied: it has no unique key and no due time."""
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
    """Return jobs that are parked from the start as rows of `copy_parked`."""
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
    retries, timeout = _NULL, _NULL
    if new.max_retries is not None:
        retries = _LENGTH(4) + struct.pack("!i", new.max_retries)
    if new.timeout is not None:
        timeout = _LENGTH(16) + struct.pack("!qii", new.timeout // timedelta(microseconds=1), 0, 0)
    return retries + timeout + (_text_field(as_json(new.headers)) if new.headers else _NULL)


def _text_field(text: str) -> bytes:
    value = text.encode()
    return _LENGTH(len(value)) + value


_NO_OPTIONS = _NULL * 3


def register_values(worker: WorkerInfo) -> dict[str, object]:
    """Return the values of `register`."""
    return {
        "id": worker.id,
        "info": as_json(worker),
        "pulse": as_json(WorkerPulse()),
        "lease": worker.lease,
    }
