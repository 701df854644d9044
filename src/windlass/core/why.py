"""Owns the answer to "why is this job not running?": reasons in words, each with what changes it.

`explain(job, scene)` is pure: what there is to know was gathered before, in a `Scene`, so that
commands and pages say the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from windlass.core.breaker_record import BreakerState, BreakerStatus
from windlass.core.crowding import crowding
from windlass.core.fates import finished, running
from windlass.core.holds import Hold
from windlass.core.job import EVENT, FLOW, Job, Saga, Standing, WorkerRecord
from windlass.core.pauses import Pauses, resuming
from windlass.core.reasons import START, Cause, Reason, at, some, span
from windlass.core.states import State
from windlass.core.suspicion import is_suspect

AHEAD_COUNTED = 10_000
"""How many jobs before one are counted; more than that is many."""
_SNOOZED = "snoozed"
_NEVER = timedelta(days=365 * 50)
"""Who waits for longer has no time set."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """All that has to do with one job, at one moment by the store's clock."""

    now: datetime
    workers: Sequence[WorkerRecord] = ()
    held: Mapping[str, Sequence[Job]] = field(default_factory=dict)
    """What workers hold, of those that were looked at."""
    paused: Pauses = field(default_factory=Pauses)
    kind: str | None = None
    """What the job's kind is called now, if the job has it under an older name."""
    breakers: Sequence[BreakerStatus] = ()
    """Those that the job's kind goes by."""
    holds: Sequence[Hold] = ()
    standing: Standing = field(default_factory=Standing)


def explain(job: Job, scene: Scene) -> tuple[Reason, ...]:
    """Return why a job does not run, or what became of it, the most telling reason first."""
    if job.state is State.RUNNING:
        return (*running(job, scene.workers, scene.now), *_marks(job, scene.now))
    if job.state is State.SCHEDULED:
        return (_scheduled(job, scene.now), *_barred(job, scene), *_marks(job, scene.now))
    if job.state is not State.PENDING:
        return (finished(job, scene.now),)
    reasons = [*_barred(job, scene)] or [*_crowded(job, scene)]
    if not reasons:
        told = "it is next: a worker takes it as soon as it looks"
        reasons = [Reason(cause=Cause.NEXT, told=told, remedy="windlass workers")]
    return (*reasons, *_marks(job, scene.now))


# -- what has no due time yet ------------------------------------------------------------------


def _scheduled(job: Job, now: datetime) -> Reason:
    if job.waiting_for is not None:
        return _parked(job, job.waiting_for, now)
    when, retry = at(job.due_at, now), f"windlass jobs retry {job.id}"
    outcome = job.history[-1].outcome if job.history else ""
    if job.reason == _SNOOZED and outcome != _SNOOZED:
        # What leaves no attempt behind never began: see `Snoozed`.
        told = f"no child process was free to run it, or none could start; it is tried at {when}"
        remedy = f"{START} --children N"
        return Reason(cause=Cause.SNOOZED, told=told, remedy=remedy, until=job.due_at)
    if job.error is not None and outcome not in (_SNOOZED, "released"):
        told = f"attempt {job.attempt} failed, and it is retried at {when}: {job.error}"
        facts = {"attempt": job.attempt, "failures": job.failures, "error": str(job.error)}
        return Reason(cause=Cause.RETRYING, told=told, remedy=retry, until=job.due_at, facts=facts)
    if outcome == _SNOOZED:
        told = f"its handler put it off until {when}"
        return Reason(cause=Cause.SNOOZED, told=told, remedy=retry, until=job.due_at)
    told = f"it is not due until {when}"
    if job.due_at <= now:
        told = f"it is due since {when}; the next worker that looks takes notice"
    return Reason(cause=Cause.NOT_DUE, told=told, remedy=retry, until=job.due_at)


def _parked(job: Job, waiting_for: str, now: datetime) -> Reason:
    if waiting_for.startswith(EVENT):
        name = waiting_for.removeprefix(EVENT)
        is_timed = job.due_at - now < _NEVER
        limit = f", until {at(job.due_at, now)} at the longest" if is_timed else ""
        return Reason(
            cause=Cause.EVENT,
            told=f"it waits for the event {name!r}{limit}",
            remedy=f"windlass events send {shlex.quote(name)}",
            until=job.due_at if is_timed else None,
            facts={"event": name},
        )
    if waiting_for.startswith(FLOW) and job.flow is not None:
        flow = str(job.flow)
        told = f"other jobs of its flow {flow} come before it"
        remedy = f"windlass flows show {flow}"
        return Reason(cause=Cause.FLOW, told=told, remedy=remedy, facts={"flow": flow})
    told = f"it is parked until somebody frees {waiting_for!r}"
    remedy = f"windlass jobs cancel {job.id}"
    facts = {"waiting_for": waiting_for}
    return Reason(cause=Cause.PARKED, told=told, remedy=remedy, facts=facts)


# -- what keeps it from starting, however much room there is -----------------------------------


def _barred(job: Job, scene: Scene) -> Iterator[Reason]:
    held = dict.fromkeys(scene.paused.holding(job.lane))
    if scene.kind is not None:
        # A kind is paused under every name that it has, or had.
        held |= dict.fromkeys(scene.paused.holding(job.lane._replace(kind=scene.kind)))
    for what, name in held:
        yield Reason(
            cause=Cause.PAUSED,
            told=f"{what} {name} is paused",
            remedy=resuming(what, name),
            facts={what: name},
        )
    for breaker in scene.breakers:
        if breaker.state is BreakerState.OPEN:
            yield from of_breaker(breaker, scene.now)
    if (unserved := _unserved(job, scene)) is not None:
        yield unserved


def of_breaker(breaker: BreakerStatus, now: datetime) -> Iterator[Reason]:
    """Say what keeps the jobs of a breaker from starting; nothing if it is closed."""
    name, lever, until = breaker.name, "auto" if breaker.forced else "close", breaker.until
    if breaker.state is BreakerState.OPEN:
        told = f"breaker {name} is open, kept so by hand"
        if until is not None and until <= now:
            told = f"breaker {name} is open, and is about to be tried with a few jobs"
        elif until is not None:
            told = f"breaker {name} is open until {at(until, now)}"
        why = f": {breaker.why}" if breaker.why else ""
    elif breaker.state is BreakerState.HALF_OPEN:
        told, why = f"breaker {name} is half-open, so that only a few jobs are tried", ""
    else:
        return
    yield Reason(
        cause=Cause.BREAKER,
        told=f"{told}{why}",
        remedy=f"windlass breakers {lever} {shlex.quote(name)}",
        since=breaker.opened_at,
        until=until,
        facts={"breaker": name},
    )


def _unserved(job: Job, scene: Scene) -> Reason | None:
    alive = [each for each in scene.workers if each.alive]
    in_queue = [each for each in alive if _takes_from(each, job.queue)]
    serving = [each for each in alive if each.info.serves(job.lane)]
    kind, queue = shlex.quote(job.kind), shlex.quote(job.queue)
    if not alive:
        return Reason(cause=Cause.NO_WORKER, told="no worker is alive", remedy=START)
    if not in_queue:
        told = f"no live worker serves queue {job.queue} ({some(each.info.id for each in alive)})"
        remedy = f"{START} --queues {queue}"
        return Reason(cause=Cause.UNSERVED, told=told, remedy=remedy)
    if not serving:
        names = some(each.info.id for each in in_queue)
        told = f"no live worker that serves queue {job.queue} knows kind {kind} ({names})"
        remedy = f"let the worker import its handler: {START} --imports MODULE"
        return Reason(cause=Cause.UNKNOWN_KIND, told=told, remedy=remedy)
    if all(each.pulse.state == "draining" for each in serving):
        names = some(each.info.id for each in serving)
        told = f"all workers that would run it are about to end ({names})"
        return Reason(cause=Cause.DRAINING, told=told, remedy=START)
    return None


def _takes_from(worker: WorkerRecord, queue: str) -> bool:
    info = worker.info
    return (not info.queues or queue in info.queues) and queue not in info.excluded


# -- what leaves no room for it ----------------------------------------------------------------


def _crowded(job: Job, scene: Scene) -> Iterator[Reason]:
    for hold in scene.holds:
        if hold.binds:
            yield _limited(hold, scene.now)
    for breaker in scene.breakers:
        if breaker.state is BreakerState.HALF_OPEN:
            yield from of_breaker(breaker, scene.now)
    yield from crowding(job, scene.workers, scene.held)
    if scene.standing.ahead:
        yield _behind(job, scene.standing)


def _limited(hold: Hold, now: datetime) -> Reason:
    of_key = f" for key {hold.key}" if hold.key else ""
    size = f" ({hold.told})" if hold.told else ""
    parts = [f"limit {hold.limit}{size} lets no more start{of_key}"]
    if hold.holders:
        names = (f"{worker} ({count})" for worker, count in hold.holders.items())
        parts.append(f"held by {some(names)}")
    if hold.jobs:
        parts.append(f"for {some(str(each.id) for each in hold.jobs)}")
    if hold.next_at is not None:
        parts.append(f"the next is free {at(hold.next_at, now)}")
    return Reason(
        cause=Cause.LIMITED,
        told=", ".join(parts),
        remedy=f"windlass limits set {shlex.quote(hold.limit)} --{hold.measure.value} "
        f"{'N/s' if hold.measure.value == 'rate' else 'N'}",
        until=hold.next_at,
        facts={
            "limit": hold.limit,
            "measure": hold.measure.value,
            "key": hold.key or None,
            "holders": dict(hold.holders),
            "jobs": [str(each.id) for each in hold.jobs],
        },
    )


def _behind(job: Job, standing: Standing) -> Reason:
    ahead, per_second = standing.ahead, standing.ended / standing.span.total_seconds()
    many = f"{ahead:,} or more" if ahead >= AHEAD_COUNTED else f"{ahead:,}"
    told = f"it is behind {many} {'job' if ahead == 1 else 'jobs'} of queue {job.queue}"
    wait = None
    if per_second:
        wait = timedelta(seconds=ahead / per_second)
        told += f"; at {per_second:.3g}/s, as in the last minute, that takes about {span(wait)}"
    else:
        told += "; none has ended in the last minute"
    facts = {
        "ahead": ahead,
        "rate": per_second,
        "wait": None if wait is None else wait.total_seconds(),
    }
    remedy = f"more workers, or more slots: {START} --slots N"
    return Reason(cause=Cause.BEHIND, told=told, remedy=remedy, facts=facts)


# -- what is worth knowing besides -------------------------------------------------------------


def _marks(job: Job, now: datetime) -> Iterator[Reason]:
    if job.saga is Saga.UNDOING:
        told = "it failed for good, and what its steps did is being undone"
        yield Reason(cause=Cause.UNDOING, told=told, remedy=f"windlass jobs show {job.id}")
    if job.state is State.PENDING and job.failures and job.error is not None:
        told = f"it has failed before, in attempt {job.attempt}: {job.error}"
        facts = {"attempt": job.attempt, "failures": job.failures, "error": str(job.error)}
        show = f"windlass jobs show {job.id}"
        yield Reason(cause=Cause.RETRYING, told=told, remedy=show, facts=facts)
    if is_suspect(job) and job.state is not State.RUNNING:
        told = "its process died while it ran, so it runs alone, in a child process"
        yield Reason(cause=Cause.SUSPECT, told=told, remedy=f"windlass jobs show {job.id}")
    if job.expires_at is not None and job.state is not State.RUNNING:
        told = f"it is cancelled if it has not started before {at(job.expires_at, now)}"
        yield Reason(cause=Cause.EXPIRES, told=told, until=job.expires_at)
