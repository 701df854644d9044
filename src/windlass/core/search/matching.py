"""Owns whether a job matches a filter: the rule that every store obeys, each in its own way."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.core.jobs.ids import FLOW_LIMIT, flow_of, read_id, uuid_of
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.search.documents import text_at
from windlass.core.search.terms import RETRYING, Field, Term, Value

if TYPE_CHECKING:
    from windlass.core.jobs.queries import JobFilter

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_FINGERPRINT = re.compile(r"[0-9a-f]{4,}")
_ID_DIGITS = re.compile(r"[0-9a-f]{8,32}")


def matches(which: JobFilter, job: Job, now: datetime) -> bool:
    """Return whether a job matches a filter, whatever its id; `now` is the store's time."""
    age = now - job.created_at
    error = "" if job.error is None else f"{job.error.type}: {job.error.message}"
    fingerprint = "" if job.error is None else job.error.fingerprint
    return (
        (not which.states or job.state in which.states)
        and which.kind in (None, job.kind)
        and which.queue in (None, job.queue)
        and which.worker in (None, job.worker)
        and which.fingerprint in (None, fingerprint)
        and which.key in (None, job.key)
        and (which.ending is None or job.id.hex.endswith(which.ending))
        and (which.error is None or (job.error is not None and which.error in error))
        and (which.older_than is None or age > which.older_than)
        and (which.newer_than is None or age <= which.newer_than)
        and (which.created_since is None or job.created_at >= which.created_since)
        and (which.created_before is None or job.created_at < which.created_before)
        and all(meets(term, job) for term in which.terms)
    )


def meets(term: Term, job: Job) -> bool:
    """Return whether a job meets a term."""
    rule = _RULES[term.field]
    return any(rule(term, value, job) for value in term.values) != term.negated


def lower(text: str) -> str:
    """Return text whose letters A to Z are small: the same in every store and locale."""
    return text.translate(_LOWER)


def fingerprint_digits(value: Value) -> str | None:
    """Return the digits with which a fingerprint may begin, if a value can mean one."""
    digits = lower(value.text)
    return digits if _FINGERPRINT.fullmatch(digits) else None


def id_digits(value: Value) -> str | None:
    """Return the digits with which an id may begin or end, if a value can mean one."""
    digits = lower(value.text).replace("-", "")
    return digits if _ID_DIGITS.fullmatch(digits) else None


def ids_of(term: Term, value: Value) -> tuple[UUID, UUID]:
    """Return the least and the greatest id that a value of a term about ids or flows means."""
    if value.is_any:
        return uuid_of(0), uuid_of((1 << 128) - 1)
    first, last = read_id(value.text)
    flow = flow_of(first) if term.field is Field.FLOW and first == last else None
    return (first, last) if flow is None else (flow, uuid_of(flow.int | FLOW_LIMIT - 1))


def _has_id(term: Term, value: Value, job: Job) -> bool:
    first, last = ids_of(term, value)
    return first <= job.id <= last and (term.field is Field.ID or job.flow is not None)


def _has_state(_: Term, value: Value, job: Job) -> bool:
    if value.text == RETRYING:
        return job.state is State.SCHEDULED and job.failures > 0
    return job.state.value == value.text


def _has_worker(_: Term, value: Value, job: Job) -> bool:
    # An id is the worker's name and some digits; its name, unless given, the host and the pid.
    worker = job.worker
    return worker is not None and (
        _fits(worker, value) or (not value.is_prefix and worker.startswith(f"{value.text}:"))
    )


def _has_error(_: Term, value: Value, job: Job) -> bool:
    if job.error is None:
        return False
    text = lower(f"{job.error.type}: {job.error.message}")
    digits = fingerprint_digits(value)
    is_group = digits is not None and job.error.fingerprint.startswith(digits)
    return is_group or lower(value.text) in text


def _has_text(term: Term, value: Value, job: Job) -> bool:
    digits = id_digits(value)
    is_id = digits is not None and (job.id.hex.startswith(digits) or job.id.hex.endswith(digits))
    in_reason = job.reason is not None and lower(value.text) in lower(job.reason)
    return is_id or in_reason or _has_error(term, value, job)


def _has_one_of(texts: Callable[[Term, Job], Sequence[str | None]]) -> _Rule:
    def rule(term: Term, value: Value, job: Job) -> bool:
        return any(text is not None and _fits(text, value) for text in texts(term, job))

    return rule


def _fits(text: str, value: Value) -> bool:
    return text.startswith(value.text) if value.is_prefix else text == value.text


_Rule = Callable[[Term, Value, Job], bool]
_RULES: dict[Field, _Rule] = {
    Field.ID: _has_id,
    Field.FLOW: _has_id,
    Field.STATE: _has_state,
    Field.WORKER: _has_worker,
    Field.ERROR: _has_error,
    Field.TEXT: _has_text,
    Field.KIND: _has_one_of(lambda _, job: (job.kind,)),
    Field.QUEUE: _has_one_of(lambda _, job: (job.queue,)),
    Field.KEY: _has_one_of(lambda _, job: (job.key or None,)),
    Field.TAG: _has_one_of(lambda _, job: job.tags),
    Field.HEADER: _has_one_of(lambda term, job: (job.headers.get(term.path[0]),)),
    Field.PAYLOAD: _has_one_of(lambda term, job: (text_at(job.payload, term.path),)),
}
