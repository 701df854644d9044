"""Owns masked copies of jobs, for people and scripts, never for the store."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from windlass.core.jobs.job import ErrorInfo, Job
from windlass.core.jobs.queries import ErrorGroup, ErrorGroups, briefly
from windlass.core.payloads.redaction import Redaction


def masked(job: Job, redaction: Redaction) -> Job:
    """Return a job with everything masked that a user, a handler or an error wrote."""
    # Most jobs that fail again fail alike, and a traceback takes milliseconds to mask.
    unlike = {attempt.error for attempt in job.history}
    errors = {each: _error(each, redaction) for each in unlike}
    return replace(
        masked_texts(job, redaction),
        payload=_value(job.payload, redaction),
        result=None if job.result is None else _value(job.result, redaction),
        headers=redaction.value(job.headers),
        history=tuple(replace(attempt, error=errors[attempt.error]) for attempt in job.history),
        steps=tuple(_step(entry, redaction) for entry in job.steps),
    )


def masked_summary(job: Job, redaction: Redaction) -> Job:
    """Return the fields of a job that a listing shows, masked."""
    error = None if job.error is None else replace(job.error, traceback="")
    return masked_texts(replace(briefly(job), error=error), redaction)


def masked_texts(job: Job, redaction: Redaction) -> Job:
    """Return a job with its reason, last error and progress masked, and its data as it is."""
    progress = job.progress
    if progress is not None:
        progress = replace(progress, message=redaction.text(progress.message))
    return replace(
        job,
        reason=None if job.reason is None else redaction.text(job.reason),
        error=_error(job.error, redaction),
        progress=progress,
    )


def masked_group(group: ErrorGroup, redaction: Redaction) -> ErrorGroup:
    """Return an error that jobs died of, masked."""
    return replace(group, error=_error(group.error, redaction))


def masked_groups(groups: ErrorGroups, redaction: Redaction) -> ErrorGroups:
    """Return the errors that jobs died of, masked."""
    masked_ones = tuple(masked_group(group, redaction) for group in groups)
    return ErrorGroups(groups=masked_ones, searched_to=groups.searched_to)


def value_of(encoded: bytes) -> Any:
    """Decode a stored value; one of another writer that is no JSON is returned as text."""
    try:
        return json.loads(encoded, parse_constant=str)
    except (ValueError, RecursionError):
        return encoded.decode(errors="replace")


def _value(encoded: bytes, redaction: Redaction) -> bytes:
    return json.dumps(redaction.value(value_of(encoded))).encode()


def _step(entry: str, redaction: Redaction) -> str:
    fields = value_of(entry.encode())
    if not isinstance(fields, dict):
        return entry
    shown = {name: redaction.value(fields[name]) for name in ("error", "reason") if name in fields}
    if "result" in fields:
        # The result of a step called `token` is masked by that name.
        shown["result"] = redaction.field(fields.get("name"), fields["result"])
    return json.dumps(fields | shown)


def _error(error: ErrorInfo | None, redaction: Redaction) -> ErrorInfo | None:
    if error is None:
        return None
    return replace(
        error,
        message=redaction.text(error.message),
        traceback=error.traceback and redaction.text(error.traceback),
    )
