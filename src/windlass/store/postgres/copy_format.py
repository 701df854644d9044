"""Owns the binary format of COPY, by which many new jobs are inserted."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache

from windlass.core.jobs.job import NewJob
from windlass.store.json_columns import as_json

COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)


COPY_TRAILER = b"\xff\xff"


_ID = struct.pack("!hi", 9, 16)


_PARKED_ID = struct.pack("!hi", 11, 16)


_LENGTH = struct.Struct("!i").pack


_NULL = _LENGTH(-1)


_SCHEDULED = _LENGTH(len("scheduled")) + b"scheduled"


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
