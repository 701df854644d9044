"""Owns copies of jobs whose messages people can read, never for the store."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from windlass.core.jobs.job import Job
from windlass.core.payloads.protobuf.forms import MARK, Messages

_MARK = f'"{MARK}"'


def with_decoded_messages(job: Job, payload: Messages, result: Messages) -> Job:
    """Return a job with the messages decoded that are stored as bytes, if their class is known."""
    own = Messages({**payload.classes, **result.classes})
    if not own.classes:
        return job
    return replace(
        job,
        payload=_decoded(_text(job.payload), own).encode(),
        result=None if job.result is None else _decoded(_text(job.result), own).encode(),
        steps=tuple(_decoded(entry, own) for entry in job.steps),
    )


def _text(stored: bytes) -> str:
    return stored.decode(errors="replace")


def _decoded(text: str, messages: Messages) -> str:
    if _MARK not in text:
        return text
    try:
        value: Any = json.loads(text)
        return json.dumps(messages.decoded(value))
    except (ValueError, RecursionError):
        return text
