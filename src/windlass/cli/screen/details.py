"""Owns what is seen when somebody looks into a row: the jobs behind it, and figures at length."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from rich.console import Group, RenderableType
from rich.text import Text

from windlass.app import Windlass
from windlass.cli import show
from windlass.cli.discretion import discreet, redaction_of
from windlass.cli.portrait import portrait
from windlass.cli.screen import figures
from windlass.cli.screen.cells import fitted, tame
from windlass.cli.screen.kind_sheet import kind_sheet
from windlass.cli.screen.leaves import listed, pairs, title
from windlass.cli.screen.panels import Figures, Row
from windlass.core.job import Head, Job, JobFilter, Page, WorkerRecord, job_id
from windlass.core.queue_figures import serves_queue
from windlass.core.states import State
from windlass.core.stats import ErrorFigures, KindFigures, QueueFigures, WorkerFigures

_MOST = 20
_NAMED = 5
"""How many heads are looked for: a store may have to walk past all that is older."""
_OLDER = 100
"""Among how many jobs that were made before a head was due it is looked for."""
_RANDOM = (1 << 74) - 1
_WORDS = {
    "arrival_rate": "in/s",
    "service_rate": "out/s",
    "drain_seconds": "drains",
    "slots_needed": "needs",
}
_ASKED = 20
"""How many workers are asked for what they run."""
_TRIED_AGAIN = (State.SCHEDULED, State.PENDING, State.RUNNING)
_PATIENCE = 3.0
"""Seconds for which jobs are looked for: a store may have to walk past all others."""


@dataclass(frozen=True, kw_only=True)
class Details:
    """What is on a sheet, and the jobs there that can be looked at, in the order of their lines."""

    body: RenderableType
    jobs: tuple[UUID, ...] = ()


async def details(app: Windlass, row: Row) -> Details:
    """Look into a row.

    Raises:
        WindlassError: the store does not answer.
    """
    told: Figures = row.figures
    if isinstance(told, QueueFigures):
        return await _queue(app, told)
    if isinstance(told, ErrorFigures):
        return await _error(app, told)
    if isinstance(told, KindFigures):
        return Details(body=Group(*kind_sheet(told)))
    return await _worker(app, told)


async def job_details(app: Windlass, job: UUID) -> tuple[Job, RenderableType]:
    """Look at a job: its whole story, and why it does not run.

    Raises:
        WindlassError: the store does not answer, or there is no such job any more.
    """
    why = await app.control.why(job)
    seen = discreet(why.job, redaction_of(app))
    return seen, portrait(seen, why.now, why.reasons)


# -- a queue ---------------------------------------------------------------------------------------


async def _queue(app: Windlass, queue: QueueFigures) -> Details:
    sweep = await app.store.sweep()
    heads = sorted(
        (each for each in sweep.heads if each.lane.queue == queue.name),
        key=lambda each: each.position,
    )
    oldest = [
        (head, await _oldest(app, head) if number < _NAMED else None)
        for number, head in enumerate(heads[:_MOST])
    ]
    workers = [each for each in await app.store.workers() if each.alive]
    serving = [each for each in workers if serves_queue(each, queue.name)]
    running = [job for job in await _running(app, serving) if job.queue == queue.name]
    told = {
        "jobs": ", ".join(
            f"{figures.count(count, capped=state in queue.capped)} {state}"
            for state, count in queue.jobs.items()
            if count
        )
        or "none",
        "served by": f"{show.plural(queue.workers, 'worker')} with {queue.slots} slots",
        "needs": _needs(queue.slots_needed),
        **{_WORDS.get(name, name): why for name, why in queue.unknown.items()},
        "paused": "yes: workers start nothing of it" if queue.paused else "",
    }
    shown = running[:_MOST]
    ended = [*await _some(app, queue, State.SCHEDULED), *await _some(app, queue, State.DEAD)]
    lines = [
        title("queue", queue.name),
        pairs(told),
        Text(),
        Text("oldest of each kind, priority and key", "bold"),
        *listed(_head_line(head, job, sweep.now, workers) for head, job in oldest),
        Text(),
        Text("running" + _of_some(serving), "bold"),
        *listed(_job_line(job, sweep.now) for job in shown),
    ]
    if ended:
        lines += [Text(), Text("to be run later, and dead: the newest", "bold")]
        lines += [_later_line(job, sweep.now) for job in ended]
    jobs = (*(job for _, job in oldest if job is not None), *shown, *ended)
    return Details(body=Group(*lines), jobs=tuple(job.id for job in jobs))


async def _some(app: Windlass, queue: QueueFigures, state: State) -> Sequence[Job]:
    """Find some jobs in a state, if there are any."""
    if not queue.jobs.get(state.value, 0):
        return ()
    which = JobFilter(states=(state,), queue=queue.name)
    page = await _find(app, which, limit=_NAMED)
    return [discreet(job, redaction_of(app)) for job in page.jobs] if page is not None else ()


def _later_line(job: Job, now: datetime) -> Text:
    dead = job.state is State.DEAD
    when = "dead" if dead else f"in {figures.span(max((job.due_at - now).total_seconds(), 0.0))}"
    return Text.assemble(
        (f"  {when:>9}  ", "red" if dead else ""),
        fitted(Text(tame(job.kind)), 17),
        (f"  {job.id}", "dim"),
        f"  {tame(str(job.error))}" if job.error is not None else "",
    )


async def _oldest(app: Windlass, head: Head) -> Job | None:
    """Return the job at the head of a lane; None if that cannot be told for sure.

    It was made before it was due, but so were others: one that is tried again is due long after.
    """
    lane = head.lane
    which = JobFilter(states=(State.PENDING,), kind=lane.kind, queue=lane.queue)
    page = await _find(app, which, limit=_OLDER, after=_id_at(head.position))
    if page is None or page.after is not None:
        return None
    first = [job for job in page.jobs if job.lane == lane and job.due_at == head.position]
    return min(first, key=lambda job: job.id, default=None)


def _id_at(moment: datetime) -> UUID:
    return job_id(int(moment.timestamp() * 1000) + 1, _RANDOM)


def _head_line(head: Head, job: Job | None, now: datetime, workers: Sequence[WorkerRecord]) -> Text:
    lane = head.lane
    is_served = any(each.info.serves(lane) for each in workers)
    rest = [
        f"priority {lane.priority}" if lane.priority else "",
        f"key {tame(lane.key)}" if lane.key else "",
    ]
    return Text.assemble(
        f"  {figures.span((now - head.position).total_seconds()):>6}  ",
        fitted(Text(tame(lane.kind)), 20),
        ("  " + str(job.id) if job is not None else "", "dim"),
        "".join(f"  {each}" for each in rest if each),
        ("" if is_served else "  no worker runs it", "red"),
    )


# -- a worker --------------------------------------------------------------------------------------


async def _worker(app: Windlass, worker: WorkerFigures) -> Details:
    held = await app.store.held(worker.id)
    now = (await app.store.sweep()).now
    redaction = redaction_of(app)
    running = sorted(
        (discreet(job, redaction) for job in held), key=lambda job: job.started_at or now
    )
    told = {
        "process": f"{worker.pid} on {worker.host}",
        "state": f"{worker.state}, seen {show.ago(worker.last_seen, now)}",
        "slots": f"{worker.busy} of {worker.slots} in use",
        "processed": f"{worker.processed:,} jobs",
        "cpu": f"{worker.cpu:.2f} CPUs",
        "memory": figures.size(worker.memory),
        "connections": ""
        if worker.pool is None
        else f"{worker.pool.in_use} of {worker.pool.limit} in use",
        "queues": ", ".join(worker.queues) or "all",
    }
    shown = running[:_MOST]
    lines = [
        title("worker", worker.id),
        pairs(told),
        Text(),
        Text("running, the longest first", "bold"),
        *listed(_job_line(job, now) for job in shown),
    ]
    return Details(body=Group(*lines), jobs=tuple(job.id for job in shown))


async def _running(app: Windlass, workers: Sequence[WorkerRecord]) -> list[Job]:
    redaction = redaction_of(app)
    held = [await app.store.held(each.info.id) for each in _busiest(workers)]
    return [discreet(job, redaction) for jobs in held for job in jobs]


def _busiest(workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
    return sorted(workers, key=lambda each: -each.pulse.running)[:_ASKED]


def _of_some(workers: Sequence[WorkerRecord]) -> str:
    """Say so if not all workers were asked."""
    return f", on {_ASKED} of {len(workers)} workers" if len(workers) > _ASKED else ""


def _job_line(job: Job, now: datetime) -> Text:
    since = (now - (job.started_at or now)).total_seconds()
    progress = ""
    if job.progress is not None:
        progress = f"  {job.progress.fraction:.0%} {tame(job.progress.message)}"
    attempt = f"  attempt {job.attempt}" if job.attempt > 1 else ""
    return Text.assemble(
        f"  {figures.span(since):>6}  ",
        fitted(Text(tame(job.kind)), 20),
        (f"  {job.id}", "dim"),
        f"{attempt}{progress}",
    )


# -- an error --------------------------------------------------------------------------------------


async def _error(app: Windlass, error: ErrorFigures) -> Details:
    job = await _example(app, error)
    now = (await app.store.sweep()).now
    head: list[RenderableType] = [
        title("error", error.error),
        pairs(
            {
                "kind": error.kind,
                "failed runs": f"{error.count:,} in the last hour",
                "dead jobs": f"{error.dead:,}" + (": r redrives them" if error.dead else ""),
                "first seen": show.moment(error.first_seen, now),
                "last seen": show.moment(error.last_seen, now),
                "group": error.group,
            }
        ),
        Text(),
    ]
    if job is None:
        return Details(
            body=Group(
                *head, Text("no job that failed of this was found: it may have ended well", "dim")
            )
        )
    if job.error is not None and job.error.traceback:
        head += [Text("traceback", "bold"), show.block(job.error.traceback), Text()]
    body = Group(*head, Text("an example", "bold"), portrait(job, now))
    return Details(body=body, jobs=(job.id,))


async def _example(app: Windlass, error: ErrorFigures) -> Job | None:
    """Find a job whose last error was this one, a dead one first; none that has recovered."""
    for states in ((State.DEAD,),) * bool(error.dead) + (_TRIED_AGAIN,):
        which = JobFilter(states=states, kind=error.kind, fingerprint=error.group)
        page = await _find(app, which, limit=1)
        if page is not None and page.jobs:
            return discreet(page.jobs[0], redaction_of(app))
    return None


async def _find(
    app: Windlass, which: JobFilter, *, limit: int, after: UUID | None = None
) -> Page | None:
    """Find jobs; None if that takes too long."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(app.store.find(which, limit=limit, after=after), _PATIENCE)
    return None


def _needs(slots: float | None) -> str:
    return "" if slots is None else f"{figures.rate(slots)} slots to keep up with what comes"
