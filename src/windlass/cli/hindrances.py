"""Owns why a job that waits is not started: pauses, breakers and limits, and how to mend that."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime

from windlass.app import Windlass
from windlass.cli import show
from windlass.core.breaker_record import BreakerState, BreakerStatus
from windlass.core.job import Finding, Job
from windlass.core.limits import Limit, Measure
from windlass.core.pauses import resuming
from windlass.core.states import WAITING, State


async def hindrances(app: Windlass, job: Job, now: datetime) -> list[Finding]:
    """Return what keeps a job that waits from being started, and how to mend it.

    Of limits only those of the app's own kinds are known, and of a scheduled job none matters yet.
    """
    if job.state not in WAITING:
        return []
    found = [
        Finding(problem=f"{what} {name} is paused", remedy=resuming(what, name))
        for what, name in (await app.control.paused()).holding(job.lane)
    ]
    found += of_breakers(await app.control.breakers(), job.kind, now)
    if job.state is State.PENDING:
        found += [_used_up(*each, job) for each in await app.control.used_up(job.lane)]
    return found


def of_breakers(
    breakers: Sequence[BreakerStatus], kind: str | None, now: datetime
) -> Iterator[Finding]:
    """Return the breakers that keep jobs of a kind, or of any, from starting, and for how long."""
    for each in breakers:
        if each.state is not BreakerState.CLOSED and (kind is None or kind in each.kinds):
            yield Finding(
                problem=f"breaker {each.name} is {each.state.value}{_until(each, now)}: {each.why}",
                remedy=f"windlass breakers {'auto' if each.forced else 'show'} "
                f"{shlex.quote(each.name)}",
            )


def _until(breaker: BreakerStatus, now: datetime) -> str:
    if breaker.state is BreakerState.HALF_OPEN:
        return ", so a few jobs are tried"
    if breaker.until is None:
        return " until somebody lets it close"
    if breaker.until <= now:
        return ", and is about to be tried with a few jobs"
    return f" until {show.moment(breaker.until, now)}"


def _used_up(limit: Limit, measure: Measure, job: Job) -> Finding:
    of = f" for key {job.key}" if limit.keyed else ""
    if measure is Measure.RATE:
        told = f"no more start before the time, by its rate of {limit.rate}"
    else:
        told = f"workers have all that may run at a time, {limit.concurrency} of them"
    return Finding(
        problem=f"limit {limit.name} is used up{of}: {told}",
        remedy=f"windlass limits set {shlex.quote(limit.name)} --{measure.value} ...",
    )
