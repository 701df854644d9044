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
from windlass.core.holds import Hold
from windlass.core.job import EVENT, FLOW, Job, Saga, Standing, WorkerRecord
from windlass.core.pauses import Pauses, resuming
from windlass.core.reasons import Cause, Reason, at, span
from windlass.core.states import State
from windlass.core.suspicion import is_suspect

START = "windlass worker MODULE:ATTR"
AHEAD_COUNTED = 10_000
"""How many jobs before one are counted; more than that is many."""
_NAMED = 5
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
    breakers: Sequence[BreakerStatus] = ()
    """Those that the job's kind goes by."""
    holds: Sequence[Hold] = ()
    standing: Standing = field(default_factory=Standing)


def explain(job: Job, scene: Scene) -> tuple[Reason, ...]:
    """Return why a job does not run, or what became of it, the most telling reason first."""
    if job.state is State.RUNNING:
        return tuple(_running(job, scene))
    if job.state is State.SCHEDULED:
        return (_scheduled(job, scene.now), *_barred(job, scene), *_marks(job, scene.now))
    if job.state is not State.PENDING:
        return (_finished(job, scene.now),)
    barred = [*_barred(job, scene)]
    reasons = [*barred, *(() if barred else _crowded(job, scene)), *_marks(job, scene.now)]
    if all(each.cause in (Cause.SUSPECT, Cause.UNDOING, Cause.EXPIRES) for each in reasons):
        told = "it is next: a worker takes it as soon as it looks"
        reasons.insert(0, Reason(cause=Cause.NEXT, told=told, remedy="windlass workers"))
    return tuple(reasons)


# -- what has no due time yet ------------------------------------------------------------------


def _scheduled(job: Job, now: datetime) -> Reason:
    if job.waiting_for is not None:
        return _parked(job, job.waiting_for, now)
    when, retry = at(job.due_at, now), f"windlass jobs retry {job.id}"
    outcome = job.history[-1].outcome if job.history else ""
    if job.error is not None and outcome not in ("snoozed", "released"):
        told = f"attempt {job.attempt} failed, and it is retried at {when}: {job.error}"
        facts = {"attempt": job.attempt, "failures": job.failures, "error": str(job.error)}
        return Reason(cause=Cause.RETRYING, told=told, remedy=retry, until=job.due_at, facts=facts)
    if outcome == "snoozed":
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
    if waiting_for.startswith(FLOW):
        flow = waiting_for.removeprefix(FLOW)
        told = f"other jobs of its flow {flow} come before it"
        remedy = f"windlass flows show {flow}"
        return Reason(cause=Cause.FLOW, told=told, remedy=remedy, facts={"flow": flow})
    told = f"it is parked until somebody frees {waiting_for!r}"
    remedy = f"windlass jobs cancel {job.id}"
    facts = {"waiting_for": waiting_for}
    return Reason(cause=Cause.PARKED, told=told, remedy=remedy, facts=facts)


# -- what keeps it from starting, however much room there is -----------------------------------


def _barred(job: Job, scene: Scene) -> Iterator[Reason]:
    for what, name in scene.paused.holding(job.lane):
        yield Reason(
            cause=Cause.PAUSED,
            told=f"{what} {name} is paused",
            remedy=resuming(what, name),
            facts={what: name},
        )
    for breaker in scene.breakers:
        if breaker.state is BreakerState.OPEN:
            yield _broken(breaker, scene.now)
    if (unserved := _unserved(job, scene)) is not None:
        yield unserved


def _broken(breaker: BreakerStatus, now: datetime) -> Reason:
    until = f" until {at(breaker.until, now)}" if breaker.until else ", kept so by hand"
    why = f": {breaker.why}" if breaker.why else ""
    lever = "auto" if breaker.forced else "close"
    return Reason(
        cause=Cause.BREAKER,
        told=f"breaker {breaker.name} is open{until}{why}",
        remedy=f"windlass breakers {lever} {shlex.quote(breaker.name)}",
        since=breaker.opened_at,
        until=breaker.until,
        facts={"breaker": breaker.name},
    )


def _unserved(job: Job, scene: Scene) -> Reason | None:
    alive = [each for each in scene.workers if each.alive]
    in_queue = [each for each in alive if _takes_from(each, job.queue)]
    serving = [each for each in alive if each.info.serves(job.lane)]
    kind, queue = shlex.quote(job.kind), shlex.quote(job.queue)
    if not alive:
        return Reason(cause=Cause.NO_WORKER, told="no worker is alive", remedy=START)
    if not in_queue:
        told = f"no live worker serves queue {job.queue} ({_some(each.info.id for each in alive)})"
        remedy = f"{START} --queues {queue}"
        return Reason(cause=Cause.UNSERVED, told=told, remedy=remedy)
    if not serving:
        names = _some(each.info.id for each in in_queue)
        told = f"no live worker that serves queue {job.queue} knows kind {kind} ({names})"
        remedy = f"let the worker import its handler: {START} --imports MODULE"
        return Reason(cause=Cause.UNKNOWN_KIND, told=told, remedy=remedy)
    if all(each.pulse.state == "draining" for each in serving):
        names = _some(each.info.id for each in serving)
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
            told = f"breaker {breaker.name} is half-open, so that only a few jobs are tried"
            remedy = f"windlass breakers close {shlex.quote(breaker.name)}"
            facts = {"breaker": breaker.name}
            yield Reason(cause=Cause.BREAKER, told=told, remedy=remedy, facts=facts)
    if (busy := _busy(job, scene)) is not None:
        yield busy
    if scene.standing.ahead:
        yield _behind(job, scene.standing)


def _limited(hold: Hold, now: datetime) -> Reason:
    of_key = f" for key {hold.key}" if hold.key else ""
    size = f" ({hold.told})" if hold.told else ""
    parts = [f"limit {hold.limit}{size} lets no more start{of_key}"]
    if hold.holders:
        names = (f"{worker} ({count})" for worker, count in hold.holders.items())
        parts.append(f"held by {_some(names)}")
    if hold.jobs:
        parts.append(f"for {_some(str(each.id) for each in hold.jobs)}")
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


def _busy(job: Job, scene: Scene) -> Reason | None:
    serving = [each for each in scene.workers if each.alive and each.info.serves(job.lane)]
    full = [each for each in serving if _is_full(each, job.queue, scene.held)]
    if len(full) < len(serving):
        return None
    slots = sum(_slots(each) for each in full)
    names = _some(each.info.id for each in full)
    told = f"all {slots} slots of the workers that would run it are in use ({names})"
    if any(job.queue in each.info.queue_slots for each in full):
        told = f"all slots that workers have for queue {job.queue} are in use ({names})"
    facts = {"workers": [each.info.id for each in full], "slots": slots}
    remedy = f"more workers, or more slots: {START} --slots N"
    return Reason(cause=Cause.BUSY, told=told, remedy=remedy, facts=facts)


def _is_full(worker: WorkerRecord, queue: str, held: Mapping[str, Sequence[Job]]) -> bool:
    jobs = held.get(worker.info.id)
    if jobs is None:
        return worker.pulse.running >= _slots(worker)
    share = worker.info.queue_slots.get(queue)
    if share is not None and sum(job.queue == queue for job in jobs) >= share:
        return True
    return len(jobs) >= _slots(worker) or (worker.pulse.busy >= 1 and bool(jobs))


def _slots(worker: WorkerRecord) -> int:
    return worker.pulse.slots or worker.info.least_slots or worker.info.slots


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


# -- what runs, and what has ended -------------------------------------------------------------


def _running(job: Job, scene: Scene) -> Iterator[Reason]:
    holder = next((each for each in scene.workers if each.info.id == job.worker), None)
    cancel = f"windlass jobs cancel {job.id}"
    since = "" if job.started_at is None else f" since {at(job.started_at, scene.now)}"
    told = f"worker {job.worker} runs it{since} (attempt {job.attempt})"
    if job.progress is not None:
        told += f"; it is at {job.progress.fraction:.0%} {job.progress.message}".rstrip()
    facts = {"worker": job.worker, "attempt": job.attempt}
    if holder is None or not holder.alive:
        yield _lost(job, holder, scene)
    else:
        told += f"; its lease lasts until {at(holder.lease_until, scene.now)}"
    if job.cancel_requested:
        told_so = "it was asked to end, and ends when its handler does"
        yield Reason(cause=Cause.CANCELLING, told=told_so)
    yield Reason(cause=Cause.RUNNING, told=told, remedy=cancel, since=job.started_at, facts=facts)
    yield from _marks(job, scene.now)


def _lost(job: Job, holder: WorkerRecord | None, scene: Scene) -> Reason:
    ended = "is not known any more"
    if holder is not None:
        ended = f"has lost its lease ({at(min(holder.lease_until, scene.now), scene.now)})"
    told = f"worker {job.worker}, which holds it, {ended}"
    if any(each.alive for each in scene.workers):
        return Reason(cause=Cause.LOST, told=f"{told}; another one rescues it soon")
    return Reason(cause=Cause.LOST, told=f"{told}, and none is alive to rescue it", remedy=START)


def _finished(job: Job, now: datetime) -> Reason:
    ended = "" if job.finished_at is None else f" {at(job.finished_at, now)}"
    reason = f": {job.reason}" if job.reason else ""
    by = f" by {job.worker}" if job.worker else ""
    if job.state is State.COMPLETED:
        took = ""
        if job.finished_at and job.started_at:
            took = f" after {span(job.finished_at - job.started_at)}"
        told = f"it was completed{by}{took}{ended}"
        show = f"windlass jobs show {job.id}"
        return Reason(cause=Cause.COMPLETED, told=told, remedy=show, since=job.finished_at)
    if job.state is State.CANCELLED:
        told = f"it was cancelled{ended}{reason}"
        again = "nothing brings it back; enqueue a new one"
        return Reason(cause=Cause.CANCELLED, told=told, remedy=again, since=job.finished_at)
    error = f"; {job.error}" if job.error else ""
    told = f"it is dead since{ended}, after attempt {job.attempt}{reason}{error}"
    facts = {"attempt": job.attempt, "error": None if job.error is None else str(job.error)}
    redrive = f"windlass jobs retry {job.id}"
    return Reason(cause=Cause.DEAD, told=told, remedy=redrive, since=job.finished_at, facts=facts)


# -- what is worth knowing besides -------------------------------------------------------------


def _marks(job: Job, now: datetime) -> Iterator[Reason]:
    if job.saga is Saga.UNDOING:
        told = "it failed for good, and what its steps did is being undone"
        yield Reason(cause=Cause.UNDOING, told=told, remedy=f"windlass jobs show {job.id}")
    if is_suspect(job) and job.state is not State.RUNNING:
        told = "its process died while it ran, so it runs alone, in a child process"
        yield Reason(cause=Cause.SUSPECT, told=told, remedy=f"windlass jobs show {job.id}")
    if job.expires_at is not None and job.state is not State.RUNNING:
        told = f"it is cancelled if it has not started before {at(job.expires_at, now)}"
        yield Reason(cause=Cause.EXPIRES, told=told, until=job.expires_at)


def _some(names: Iterator[str] | Sequence[str]) -> str:
    listed = list(names)
    rest = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + rest
