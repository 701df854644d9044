"""Owns the answer to "why is this job not running?": reasons in words, each with its remedy.

`explain(job, scene)` is pure: all data was gathered before, in a `Scene`, so that commands and
pages say the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, field

from windlass.core.failures.crash_suspects import ALONE, is_suspect
from windlass.core.jobs.job import EVENT, FLOW, Job, Saga
from windlass.core.jobs.states import State
from windlass.core.policies.breaker_record import BreakerState, BreakerStatus
from windlass.core.policies.limit import Measure
from windlass.core.policies.limit_usage import Hold
from windlass.core.policies.pauses import Pauses, resuming
from windlass.core.restored import is_parked
from windlass.core.stats.depths import Standing
from windlass.core.values.durations import brief
from windlass.core.values.text import listed
from windlass.core.why.busy import crowding
from windlass.core.why.ended import finished, running
from windlass.core.why.order import held_back_until, in_order
from windlass.core.why.reason import START, Cause, Reason, at
from windlass.core.workers import WorkerRecord

AHEAD_COUNTED = 10_000
"""How many jobs before one are counted; more than that is many."""
_MINUTE = timedelta(minutes=1)
_SHORTEST = timedelta(milliseconds=100)
"""The shortest span for a rate."""
_SNOOZED = "snoozed"
_NEVER = timedelta(days=365 * 50)
"""A longer wait has no end in sight."""


class Scene(Struct, frozen=True, kw_only=True):
    """Everything that affects one job, at one moment by the store's clock."""

    now: datetime
    workers: Sequence[WorkerRecord] = ()
    held: Mapping[str, Sequence[Job]] = field(default_factory=dict)
    """The jobs of the workers that were inspected."""
    paused: Pauses = field(default_factory=Pauses)
    kind: str | None = None
    """The present name of the job's kind, if the job has an older one."""
    breakers: Sequence[BreakerStatus] = ()
    """The breakers of the job's kind."""
    holds: Sequence[Hold] = ()
    standing: Standing = field(default_factory=Standing)
    head: Job | None = None
    """The first pending job of its lane, where none may overtake it."""
    before: Sequence[Job] = ()
    """Of a flow's job: the jobs it waits for that could run, or that made the flow dead."""


def explain(job: Job, scene: Scene) -> tuple[Reason, ...]:
    """Return why a job does not run, or what became of it, the most important reason first."""
    if job.state is State.RUNNING:
        return (*running(job, scene.workers, scene.now), *_marks(job, scene.now))
    if job.state is State.SCHEDULED:
        return (_scheduled(job, scene), *_barred(job, scene), *_marks(job, scene.now))
    if job.state is not State.PENDING:
        return (finished(job, scene.now, scene.before),)
    reasons = [*_barred(job, scene)]
    # Its place matters also where nothing of its kind can start.
    reasons += _turns(job, scene) if reasons else _crowded(job, scene)
    if not reasons:
        message = "next in line; waiting for a worker to pick it up"
        reasons = [Reason(cause=Cause.NEXT, message=message, remedy="windlass workers")]
    known = {each.cause for each in reasons}
    return (*reasons, *(each for each in _marks(job, scene.now) if each.cause not in known))


# -- no due time yet ---------------------------------------------------------------------------


def _scheduled(job: Job, scene: Scene) -> Reason:
    now = scene.now
    if job.waiting_for is not None:
        return _parked(job, job.waiting_for, scene)
    when, retry = at(job.due_at, now), f"windlass jobs retry {job.id}"
    outcome = job.history[-1].outcome if job.history else ""
    if job.reason == _SNOOZED and outcome != _SNOOZED:
        # Without an attempt it never began: see `Snoozed`.
        message = f"no child process was free or could start; next try {when}"
        remedy = f"{START} --isolated-processes N"
        return Reason(cause=Cause.SNOOZED, message=message, remedy=remedy, until=job.due_at)
    if job.error is not None and outcome not in (_SNOOZED, "released"):
        message = f"attempt {job.attempt} failed; retry at {when}: {job.error}"
        facts = {"attempt": job.attempt, "failures": job.failures, "error": str(job.error)}
        return Reason(
            cause=Cause.RETRYING, message=message, remedy=retry, until=job.due_at, facts=facts
        )
    if outcome == _SNOOZED:
        message = f"snoozed by its handler until {when}"
        return Reason(cause=Cause.SNOOZED, message=message, remedy=retry, until=job.due_at)
    message = f"scheduled; due {when}"
    if job.due_at <= now:
        message = f"due since {when}; waiting for a worker to pick it up"
    return Reason(cause=Cause.NOT_DUE, message=message, remedy=retry, until=job.due_at)


def _parked(job: Job, waiting_for: str, scene: Scene) -> Reason:
    now = scene.now
    if waiting_for.startswith(EVENT):
        name = waiting_for.removeprefix(EVENT)
        is_timed = job.due_at - now < _NEVER
        limit = f", at most until {at(job.due_at, now)}" if is_timed else ""
        return Reason(
            cause=Cause.EVENT,
            message=f"waiting for the event {name!r}{limit}",
            remedy=f"windlass events send {shlex.quote(name)}",
            until=job.due_at if is_timed else None,
            facts={"event": name},
        )
    if waiting_for.startswith(FLOW) and job.flow is not None:
        flow, first = str(job.flow), next(iter(scene.before), None)
        message = f"waiting for other jobs of its flow {flow}"
        remedy = f"windlass flows show {flow}"
        if first is not None:
            names = listed(f"{each.id} ({each.kind}, {each.state})" for each in scene.before)
            message, remedy = f"{message}: {names}", f"windlass why {first.id}"
        facts = {"flow": flow, "before": [str(each.id) for each in scene.before]}
        return Reason(cause=Cause.FLOW, message=message, remedy=remedy, facts=facts)
    if waiting_for == ALONE:
        message = (
            "its process died, so it must run alone, and no child process was free; it will be "
            "tried soon"
        )
        return Reason(
            cause=Cause.SNOOZED, message=message, remedy=f"{START} --isolated-processes N"
        )
    if is_parked(job):
        return Reason(
            cause=Cause.PARKED,
            message="parked since the store was restored from a backup, until a person releases it",
            remedy=f"windlass restored release {job.id}, or windlass jobs cancel {job.id}",
            facts={"waiting_for": waiting_for},
        )
    message = f"parked until {waiting_for!r} is signalled"
    remedy = f"windlass jobs cancel {job.id}"
    facts = {"waiting_for": waiting_for}
    return Reason(cause=Cause.PARKED, message=message, remedy=remedy, facts=facts)


# -- blocked, however many slots are free ------------------------------------------------------


def _barred(job: Job, scene: Scene) -> Iterator[Reason]:
    held = dict.fromkeys(scene.paused.holding(job.lane))
    if scene.kind is not None:
        # A kind is paused under every name that it has, or had.
        held |= dict.fromkeys(scene.paused.holding(job.lane._replace(kind=scene.kind)))
    for what, name in held:
        yield Reason(
            cause=Cause.PAUSED,
            message=f"{what} {name} is paused",
            remedy=resuming(what, name),
            facts={what: name},
        )
    for breaker in scene.breakers:
        if breaker.state is BreakerState.OPEN:
            yield from of_breaker(breaker, scene.now)
    if (unserved := _unserved(job, scene)) is not None:
        yield unserved


def of_breaker(breaker: BreakerStatus, now: datetime) -> Iterator[Reason]:
    """Yield how a breaker keeps its jobs from starting; nothing if it is closed."""
    name, until = breaker.name, breaker.until
    lever = "auto" if breaker.forced else "probe"
    if breaker.state is BreakerState.OPEN:
        message = f"breaker {name} is pinned open by hand"
        if until is not None and until <= now:
            message = f"breaker {name} is open, and about to probe with a few jobs"
        elif until is not None:
            message = f"breaker {name} is open until {at(until, now)}"
        why = f": {breaker.why}" if breaker.why and not breaker.forced else ""
    elif breaker.state is BreakerState.HALF_OPEN:
        message, why = f"breaker {name} is half-open, so only a few probe jobs run", ""
        lever = "show"
    else:
        return
    yield Reason(
        cause=Cause.BREAKER,
        message=f"{message}{why}",
        remedy=f"windlass breakers {lever} {shlex.quote(name)}",
        since=breaker.opened_at,
        until=until,
        facts={"breaker": name} | ({"is_pinned": True} if breaker.forced else {}),
    )


def _unserved(job: Job, scene: Scene) -> Reason | None:
    alive = [each for each in scene.workers if each.alive]
    in_queue = [each for each in alive if _takes_from(each, job.queue)]
    serving = [each for each in alive if each.info.serves(job.lane)]
    kind, queue = shlex.quote(job.kind), shlex.quote(job.queue)
    if not alive:
        return Reason(cause=Cause.NO_WORKER, message="no worker is alive", remedy=START)
    if not in_queue:
        message = (
            f"no live worker serves queue {job.queue} ({listed(each.info.id for each in alive)})"
        )
        remedy = f"{START} --queues {queue}"
        return Reason(cause=Cause.UNSERVED, message=message, remedy=remedy)
    if not serving:
        names = listed(each.info.id for each in in_queue)
        message = (
            f"no live worker that serves queue {job.queue} has a handler for kind {kind} ({names})"
        )
        remedy = f"import its handler in the worker: {START} --imports MODULE"
        return Reason(cause=Cause.UNKNOWN_KIND, message=message, remedy=remedy)
    if all(each.pulse.state == "draining" for each in serving):
        names = listed(each.info.id for each in serving)
        message = f"all workers that could run it are draining ({names})"
        return Reason(cause=Cause.DRAINING, message=message, remedy=START)
    return None


def _takes_from(worker: WorkerRecord, queue: str) -> bool:
    info = worker.info
    return (not info.queues or queue in info.queues) and queue not in info.excluded


# -- no capacity -------------------------------------------------------------------------------


def _crowded(job: Job, scene: Scene) -> Iterator[Reason]:
    turns, gated = [*_turns(job, scene)], [*_gated(scene)]
    reasons = [*turns, *gated, *crowding(job, scene.workers, scene.held)]
    yield from reasons
    # An ordered job waits for the one before it, whatever the rate of its queue.
    if scene.standing.ahead and not turns:
        yield _behind(job, scene.standing, next(iter(reasons), None), gated)


def _turns(job: Job, scene: Scene) -> Iterator[Reason]:
    head = scene.head
    # After its worker has gone nobody holds the key, and its first job is still held back.
    is_held_back = head is not None and held_back_until(head, scene.now) is not None
    for hold in scene.holds:
        if _is_turn(hold) and (hold.binds or is_held_back):
            turn = in_order(job, hold, scene.head, scene.now)
            if turn is not None:
                yield turn


def _is_turn(hold: Hold) -> bool:
    return hold.ordered and hold.measure is Measure.CONCURRENCY


def _gated(scene: Scene) -> Iterator[Reason]:
    for hold in scene.holds:
        if hold.binds and not _is_turn(hold):
            yield _limited(hold, scene.now)
    for breaker in scene.breakers:
        if breaker.state is BreakerState.HALF_OPEN:
            yield from of_breaker(breaker, scene.now)


def _limited(hold: Hold, now: datetime) -> Reason:
    of_key = f" for key {hold.key}" if hold.key else ""
    size = f" ({hold.text})" if hold.text else ""
    parts = [f"limit {hold.limit}{size} is used up{of_key}"]
    if hold.holders:
        names = (f"{worker} ({count})" for worker, count in hold.holders.items())
        parts.append(f"held by {listed(names)}")
    if hold.jobs:
        parts.append(f"for {listed(str(each.id) for each in hold.jobs)}")
    if hold.next_at is not None:
        parts.append(f"the next is free {at(hold.next_at, now)}")
    return Reason(
        cause=Cause.LIMITED,
        message=", ".join(parts),
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


def _behind(job: Job, standing: Standing, scarce: Reason | None, gated: Sequence[Reason]) -> Reason:
    """Say how many jobs go before it; `scarce` is what all of them wait for.

    A job that a limit or a breaker holds back does not move at the rate of its queue.
    """
    waited = max(standing.span, _SHORTEST)
    ahead, per_second = standing.ahead, standing.ended / waited.total_seconds()
    is_long = waited >= _MINUTE
    many = f"{ahead:,} or more" if ahead >= AHEAD_COUNTED else f"{ahead:,}"
    message = f"behind {many} {'job' if ahead == 1 else 'jobs'} of queue {job.queue}"
    rate: float | None = per_second
    wait = None
    if gated:
        gate = "limit" if gated[0].cause is Cause.LIMITED else "breaker"
        message += f"; when it runs depends on the {gate}"
        rate = None
    elif per_second:
        wait = timedelta(seconds=ahead / per_second)
        lately = "in the last minute" if is_long else f"in the last {brief(waited)}"
        message += f"; at {per_second:.3g}/s, as {lately}, that takes about {brief(wait)}"
    else:
        message += f"; none has ended {'in the last minute' if is_long else 'since it was due'}"
    facts = {
        "ahead": ahead,
        "rate": rate,
        "wait": None if wait is None else wait.total_seconds(),
    }
    remedy = f"more workers: {START}" if scarce is None else scarce.remedy
    return Reason(cause=Cause.BEHIND, message=message, remedy=remedy, facts=facts)


# -- further facts -----------------------------------------------------------------------------


def _marks(job: Job, now: datetime) -> Iterator[Reason]:
    if job.saga is Saga.UNDOING:
        message = "it failed for good, and its steps are being undone"
        yield Reason(cause=Cause.UNDOING, message=message, remedy=f"windlass jobs show {job.id}")
    if job.state is State.PENDING and job.failures and job.error is not None:
        message = f"it failed before, in attempt {job.attempt}: {job.error}"
        facts = {"attempt": job.attempt, "failures": job.failures, "error": str(job.error)}
        show = f"windlass jobs show {job.id}"
        # An ordered job keeps its place until it is retried, and is pending meanwhile.
        until = held_back_until(job, now)
        if until is not None:
            when = at(until, now)
            message = f"attempt {job.attempt} failed, and it is retried at {when}: {job.error}"
        yield Reason(cause=Cause.RETRYING, message=message, remedy=show, until=until, facts=facts)
    if is_suspect(job) and job.state is not State.RUNNING:
        message = "its process died while it ran, so it runs alone in a child process"
        yield Reason(cause=Cause.SUSPECT, message=message, remedy=f"windlass jobs show {job.id}")
    if job.expires_at is not None and job.state is not State.RUNNING:
        message = f"it will be cancelled if it has not started by {at(job.expires_at, now)}"
        yield Reason(cause=Cause.EXPIRES, message=message, until=job.expires_at)
