"""Owns what the command line does not show of a job: what `redact` hides, and what is encrypted."""

from __future__ import annotations

import json

from msgspec.structs import replace

from windlass.app import Windlass
from windlass.cli import facts
from windlass.core.job import Attempt, ErrorGroup, ErrorInfo, Job
from windlass.core.redaction import Redaction


def redaction_of(app: Windlass) -> Redaction:
    """Return what the settings of an app hide."""
    return Redaction(app.settings.redact)


def discreet(job: Job, redaction: Redaction) -> Job:
    """Return a job as it may be seen: a copy for people and scripts, never for the store."""
    progress = job.progress
    if progress is not None:
        progress = replace(progress, message=redaction.text(progress.message))
    return replace(
        job,
        payload=_value(job.payload, redaction),
        result=None if job.result is None else _value(job.result, redaction),
        headers=redaction.value(job.headers),
        reason=None if job.reason is None else redaction.text(job.reason),
        error=_error(job.error, redaction),
        history=tuple(_attempt(each, redaction) for each in job.history),
        progress=progress,
        steps=tuple(_step(each, redaction) for each in job.steps),
    )


def discreet_group(group: ErrorGroup, redaction: Redaction) -> ErrorGroup:
    """Return an error of which jobs died as it may be seen."""
    return replace(group, error=_error(group.error, redaction))


def _value(encoded: bytes, redaction: Redaction) -> bytes:
    return json.dumps(redaction.value(facts.value_of(encoded))).encode()


def _attempt(attempt: Attempt, redaction: Redaction) -> Attempt:
    return replace(attempt, error=_error(attempt.error, redaction))


def _step(entry: str, redaction: Redaction) -> str:
    """Return an entry of the log as it may be seen: its result, and the texts of errors."""
    told = facts.value_of(entry.encode())
    if not isinstance(told, dict):
        return entry
    shown = {name: redaction.value(told[name]) for name in ("error", "reason") if name in told}
    if "result" in told:
        # A step that is called `token` tells what its result is.
        shown["result"] = redaction.field(told.get("name"), told["result"])
    return json.dumps(told | shown)


def _error(error: ErrorInfo | None, redaction: Redaction) -> ErrorInfo | None:
    if error is None:
        return None
    return replace(
        error,
        message=redaction.text(error.message),
        traceback=redaction.text(error.traceback),
    )
