"""Owns bulk operations: a verb for all jobs that meet conditions, carried on step by step.

An operation is a record. Each step moves some jobs and notes how far it came, in one change, so
any worker can carry on where another stopped, and no job is moved twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windlass.core.changes import Changes, MoveCount
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import REASONS, Move, Verb
from windlass.core.jobs.queries import JobFilter, described
from windlass.core.policies.limit import read_rate
from windlass.core.records import Json

RECORD = "bulk:"
VERBS = (Verb.CANCEL, Verb.RETRY, Verb.REDRIVE, Verb.PURGE)
HOLD = timedelta(seconds=10)
"""How long a worker may take for a step before another one carries on."""
KEPT = timedelta(days=30)
"""How long an operation is kept after its end."""
STEP = 200
"""Number of jobs that a step moves at most."""
COUNTED = 10_000
"""Number of jobs that are counted when an operation is started."""
_SLACK = timedelta(minutes=1)
_MILLISECOND = timedelta(milliseconds=1)


class BulkState(StrEnum):
    """Where a bulk operation is in its life."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    COMPLETED = "completed"


ENDED = frozenset({BulkState.STOPPED, BulkState.COMPLETED})


class BulkOperation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A verb for all jobs that meet conditions, and how far it came.

    It moves the jobs that were enqueued before it was started, if they meet the conditions when it
    comes to them, the oldest first.
    """

    id: UUID
    verb: Verb
    which: JobFilter
    limit: int | None = None
    """Number of jobs after which it ends; None: all."""
    rate: str | None = None
    """How fast jobs are moved at most, like `10/s`; None: without limit."""
    by: str
    via: str
    reason: str = ""
    state: BulkState = BulkState.RUNNING
    started_at: datetime
    ended_at: datetime | None = None
    matched: int
    """Number of jobs that met the conditions at the start."""
    is_capped: bool = False
    """Whether there may have been more: only some are counted."""
    seen: int = 0
    """Number of jobs that it came to."""
    moved: int = 0
    error: str = ""
    """Why it was paused without an operator."""
    cursor: UUID | None = None
    """The last job that it came to."""
    due_at: datetime | None = None
    """When its next step is due."""
    held_until: datetime | None = None
    """Until when a worker has it in hand."""
    entry: str | None = None
    """The name of its entry in the audit log."""

    @property
    def refused(self) -> int:
        """The number of jobs that changed before they could be moved."""
        return self.seen - self.moved

    @property
    def is_ended(self) -> bool:
        """Whether it has ended, by itself or by an operator."""
        return self.state in ENDED

    @property
    def fraction(self) -> float | None:
        """Which part is done, from 0 to 1; None if that is unknown."""
        if self.state is BulkState.COMPLETED:
            return 1.0
        return None if self.is_capped or not self.matched else min(self.seen / self.matched, 1.0)

    @property
    def alarm(self) -> datetime | None:
        """When a worker has to look at it: to carry on, or to delete it."""
        if self.is_ended:
            return None if self.ended_at is None else self.ended_at + KEPT
        if self.state is BulkState.PAUSED:
            return None
        return self.held_until or self.due_at


def name_of(operation: UUID) -> str:
    """Return the name of the record of an operation."""
    return f"{RECORD}{operation}"


# -- as JSON ---------------------------------------------------------------------------------------


def record_of(operation: BulkOperation) -> Json:
    """Write an operation. Conditions that are not given are left out: older releases know fewer."""
    record: Json = msgspec.json.decode(msgspec.json.encode(operation))
    empty: Json = msgspec.json.decode(msgspec.json.encode(JobFilter()))
    return record | {
        "which": {name: value for name, value in record["which"].items() if value != empty[name]}
    }


def read_operation(record: Json | None) -> BulkOperation | None:
    """Read an operation; None if there is none, or a later release wrote what is unknown here.

    A condition that is unknown here must not be ignored: more jobs would be moved than meant.
    """
    if record is None:
        return None
    try:
        operation = msgspec.convert(record, BulkOperation)
        is_whole = record_of(operation)["which"] == record["which"]
    except (msgspec.ValidationError, KeyError):
        return None
    return operation if is_whole and operation.verb in VERBS else None


# -- its steps -------------------------------------------------------------------------------------


class Step(Struct, frozen=True):
    """What a worker found for one step: the jobs to move, and where it ends."""

    after: UUID | None
    """The cursor at its beginning."""
    jobs: Sequence[UUID]
    seen: int
    """Number of jobs that met the conditions; not all of them may be moved."""
    cursor: UUID | None
    """The last job that was looked at."""
    is_last: bool


def take(known: Json | None, now: datetime) -> BulkOperation | None:
    """Return an operation that a worker may take in hand now; None if there is nothing to do."""
    operation = read_operation(known)
    if operation is None or operation.state is not BulkState.RUNNING:
        return None
    waits = [at for at in (operation.due_at, operation.held_until) if at is not None and at > now]
    return None if waits else replace(operation, held_until=now + HOLD)


def is_over(known: Json | None, now: datetime) -> bool:
    """Return whether an operation has ended so long ago that it is deleted."""
    operation = read_operation(known)
    return (
        operation is not None
        and operation.is_ended
        and operation.alarm is not None
        and operation.alarm <= now
    )


def size_of(operation: BulkOperation) -> int:
    """Return how many jobs the next step may move."""
    size = STEP
    if operation.rate is not None:
        rate = read_rate(operation.rate)
        size = min(max(rate.starts // rate.period, 1), STEP)
    return size if operation.limit is None else min(size, operation.limit - operation.seen)


def filter_at(operation: BulkOperation, now: datetime) -> JobFilter:
    """Return the filter for a step: ages count from the start, and later jobs are left out.

    It may let pass a few jobs too many, since time goes on until it is used; see `is_meant`.
    """
    which, passed = operation.which, now - operation.started_at
    older = -_MILLISECOND if which.older_than is None else which.older_than
    newer = None if which.newer_than is None else which.newer_than + passed + _SLACK
    return replace(which, older_than=older + passed, newer_than=newer)


def is_meant(operation: BulkOperation, job: Job) -> bool:
    """Return whether a job has the age that the operation asks for."""
    which, age = operation.which, operation.started_at - job.created_at
    is_old = age >= timedelta(0) if which.older_than is None else age > which.older_than
    return is_old and (which.newer_than is None or age <= which.newer_than)


def advance(
    name: str, step: Step, known: Mapping[str, Json], now: datetime, *, is_leaving: bool
) -> Changes[BulkOperation | None]:
    """Move the jobs of a step, and note how far the operation came.

    The answer is the operation, and None if another worker was faster, or an operator paused it.
    With `is_leaving`, it is left to another worker.
    """
    operation = read_operation(known.get(name))
    if (
        operation is None
        or operation.state is not BulkState.RUNNING
        or operation.cursor != step.after
    ):
        return Changes(answer=None)
    after = _stepped(operation, step, now, is_leaving=is_leaving)
    counts = {name: MoveCount(record=record_of(after), field="moved", always=True)}
    if after.entry is not None and after.entry in known:
        counts[after.entry] = MoveCount(record=known[after.entry])
    reason = operation.reason or REASONS[operation.verb]
    return Changes(
        answer=after,
        moves=[Move(verb=operation.verb, id=job, reason=reason) for job in step.jobs],
        move_counts=counts,
        alarms={name: after.alarm},
    )


def _stepped(
    operation: BulkOperation, step: Step, now: datetime, *, is_leaving: bool
) -> BulkOperation:
    seen = operation.seen + step.seen
    moved = replace(operation, seen=seen, cursor=step.cursor or operation.cursor)
    if step.is_last or (operation.limit is not None and seen >= operation.limit):
        return _ended(moved, BulkState.COMPLETED, now)
    due = now
    if operation.rate is not None:
        rate = read_rate(operation.rate)
        # From when the step was due: a worker that looks late does not slow it down.
        begun = max(operation.due_at or now, now - timedelta(seconds=1))
        due = begun + timedelta(seconds=len(step.jobs) * rate.period / rate.starts)
    held = None if is_leaving or due > now else now + HOLD
    return replace(moved, due_at=due, held_until=held)


def released(operation: BulkOperation, _now: datetime) -> BulkOperation:
    """Return an operation that a worker has no longer in hand."""
    return replace(operation, held_until=None)


# -- what operators do with it ---------------------------------------------------------------------


def paused(operation: BulkOperation, _now: datetime, error: str = "") -> BulkOperation:
    """Return an operation that is paused; one that has ended stays as it is."""
    if operation.state is not BulkState.RUNNING:
        return operation
    return replace(operation, state=BulkState.PAUSED, held_until=None, due_at=None, error=error)


def resumed(operation: BulkOperation, now: datetime) -> BulkOperation:
    """Return an operation that is carried on; one that has ended stays as it is."""
    if operation.state is not BulkState.PAUSED:
        return operation
    return replace(operation, state=BulkState.RUNNING, due_at=now, error="")


def stopped(operation: BulkOperation, now: datetime) -> BulkOperation:
    """Return an operation that was ended; jobs that it has moved stay as they are."""
    return operation if operation.is_ended else _ended(operation, BulkState.STOPPED, now)


def _ended(operation: BulkOperation, state: BulkState, now: datetime) -> BulkOperation:
    return replace(operation, state=state, ended_at=now, held_until=None, due_at=None)


# -- for people and scripts ------------------------------------------------------------------------


def fields_of(operation: BulkOperation) -> dict[str, Any]:
    """Return an operation for log lines."""
    return {
        "bulk_id": str(operation.id),
        "verb": operation.verb.value,
        "seen": operation.seen,
        "by": operation.by,
    }


def bulk_facts(operation: BulkOperation) -> dict[str, Any]:
    """Return an operation for scripts."""
    ended = operation.ended_at
    return {
        "id": str(operation.id),
        "verb": operation.verb.value,
        "state": operation.state.value,
        "conditions": described(operation.which),
        "matched": operation.matched,
        "matched_is_capped": operation.is_capped,
        "seen": operation.seen,
        "moved": operation.moved,
        "refused": operation.refused,
        "fraction": operation.fraction,
        "rate": operation.rate,
        "limit": operation.limit,
        "by": operation.by,
        "via": operation.via,
        "reason": operation.reason,
        "error": operation.error or None,
        "started_at": operation.started_at.isoformat(),
        "ended_at": None if ended is None else ended.isoformat(),
    }
