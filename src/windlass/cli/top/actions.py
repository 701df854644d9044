"""Owns the actions of `top`: the question before each, its effect on the store, its result."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from windlass.app import Windlass
from windlass.app.control.bulk import move_in_chunks
from windlass.app.jobs.searching import search
from windlass.app.snapshot import Snapshot
from windlass.cli.output.console import plural
from windlass.cli.top.content.cells import printable
from windlass.cli.top.content.panels import Row
from windlass.core.alarms import waiting
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State
from windlass.core.metrics.exposition import NAMES, OTHER
from windlass.core.stats.stats import ErrorFigures, KindFigures, QueueFigures
from windlass.core.values import figures

_NO_ROW = "no row is selected"
_NOT_PAUSABLE = "p pauses a queue or a kind: select one first, with 1 or 2"
_SEVERAL_QUEUES = "this row sums up several queues; pause one with: windlass queues pause QUEUE"
_NO_ERROR = "r redrives the dead jobs of an error: select one first, with 3"
_NONE_DEAD = "no dead job has this error; failed jobs are retried automatically"
_NOT_RETRYABLE = "r retries a scheduled job or redrives a dead one; this job is neither"


@dataclass(frozen=True, kw_only=True)
class Action:
    """A change of the store, and the question that has to be answered with yes before it."""

    verb: Literal["pause", "resume", "redrive", "retry"]
    subject: Literal["queue", "kind", "error", "job"]
    name: str
    kind: str = ""
    """The kind of an error."""
    question: str = ""


# -- the action that a key asks for, or why there is none ------------------------------------------


def pause_or_resume(row: Row | None, snapshot: Snapshot | None) -> Action | str:
    """Return the action that pauses a queue or kind, or resumes it, or why there is none."""
    if row is None or snapshot is None:
        return _NO_ROW
    if not isinstance(row.figures, QueueFigures | KindFigures):
        return _NOT_PAUSABLE
    is_queue = isinstance(row.figures, QueueFigures)
    names = snapshot.stats.queues if is_queue else snapshot.stats.kinds
    if row.key == OTHER and len(names) > NAMES:
        return _SEVERAL_QUEUES
    paused = snapshot.pauses.queues if is_queue else snapshot.pauses.kinds
    verb: Literal["pause", "resume"] = "resume" if row.key in paused else "pause"
    subject: Literal["queue", "kind"] = "queue" if is_queue else "kind"
    held = ""
    if isinstance(row.figures, QueueFigures):
        held = f", {figures.count(waiting(row.figures))} waiting"
    rest = "; running jobs finish" if verb == "pause" else ""
    question = f"{verb} {subject} {printable(row.key)}{held}{rest}?"
    return Action(verb=verb, subject=subject, name=row.key, question=question)


def redrive_group(row: Row | None) -> Action | str:
    """Return the action that redrives the dead jobs of an error, or why there is none."""
    if row is None:
        return _NO_ROW
    error = row.figures
    if not isinstance(error, ErrorFigures):
        return _NO_ERROR
    if not error.dead:
        return _NONE_DEAD
    jobs = plural(error.dead, "dead job")
    question = f"redrive {jobs} of {printable(error.kind)}, {printable(error.error)}?"
    return Action(
        verb="redrive", subject="error", name=error.group, kind=error.kind, question=question
    )


def retry_job(job: Job | None) -> Action | str:
    """Return the action that runs a job now or once more, or why there is none."""
    if job is None or job.state not in (State.SCHEDULED, State.DEAD):
        return _NOT_RETRYABLE
    verb: Literal["retry", "redrive"] = "retry" if job.state is State.SCHEDULED else "redrive"
    question = f"{verb} job {job.id} of {printable(job.kind)}?"
    return Action(verb=verb, subject="job", name=str(job.id), question=question)


# -- its effect ------------------------------------------------------------------------------------


async def perform(
    app: Windlass, action: Action, report: Callable[[str], None], is_leaving: Callable[[], bool]
) -> str:
    """Perform an action and return its result; `report` is called with its progress.

    An action of several steps begins no further one once `is_leaving` returns True.

    Raises:
        WindlassError: the action failed, or a part of it.
        ValueError: the name is not a valid one.
    """
    if action.subject == "job":
        job = UUID(action.name)
        if action.verb == "retry":
            await app.control.aretry(job)
            return f"job {job} is due now"
        return f"job {job} " + ("redriven" if await app.control.aredrive([job]) else "is not dead")
    if action.verb == "redrive":
        return await _redrive(app, action, report, is_leaving)
    subject = {action.subject: action.name}
    if action.verb == "pause":
        changed = await app.control.apause(**subject)
        result = "is paused" if changed else "was already paused"
    else:
        changed = await app.control.aresume(**subject)
        result = "resumed" if changed else "was not paused"
    return f"{action.subject} {action.name} {result}"


async def _redrive(
    app: Windlass, action: Action, report: Callable[[str], None], is_leaving: Callable[[], bool]
) -> str:
    dead = JobFilter(states=(State.DEAD,), kind=action.kind, fingerprint=action.name)
    ids = await search(app.store, dead)
    seen = done = 0
    report(f"redriving: 0 of {plural(len(ids), 'job')}")
    async with aclosing(move_in_chunks(app.control, Verb.REDRIVE, ids, which=dead)) as moving:
        async for looked_at, moved in moving:
            seen, done = seen + looked_at, done + moved
            report(f"redriving: {seen:,} of {plural(len(ids), 'job')}")
            if is_leaving() and seen < len(ids):
                rest = shlex.join(("--group", action.name, "--kind", action.kind))
                return (
                    f"{done:,} of {len(ids):,} redriven; for the others: windlass dead redrive "
                    f"{rest}"
                )
    return f"{plural(done, 'dead job')} redriven" if ids else "none of them is dead anymore"
