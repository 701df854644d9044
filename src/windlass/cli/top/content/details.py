"""Owns the sheets of rows and jobs: figures at length, and the jobs behind them."""

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
from windlass.app.masking import redaction_of, shown_job
from windlass.cli.output import console as show
from windlass.cli.output.job_details import job_report
from windlass.cli.top.content.cells import fitted, printable
from windlass.cli.top.content.kind_sheet import kind_sheet
from windlass.cli.top.content.panels import Figures, Row
from windlass.cli.top.content.sheets import listed, pairs, title
from windlass.core.claims.lanes import Head
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter, Page
from windlass.core.jobs.states import State
from windlass.core.payloads.masked_job import masked_summary
from windlass.core.stats.queue_stats import serves_queue
from windlass.core.stats.stats import ErrorFigures, KindFigures, QueueFigures, WorkerFigures
from windlass.core.values import figures
from windlass.core.workers import WorkerRecord

_MAX_LINES = 20
_MAX_NAMED = 5
"""Number of heads whose job is searched: a store may have to walk past all older jobs."""
_MAX_OLDER_JOBS = 100
"""Number of jobs made before a head was due among which the head is searched."""
_MAX_RANDOM = (1 << 74) - 1
_COLUMNS = {
    "arrival_rate": "in/s",
    "service_rate": "out/s",
    "seconds_to_empty": "empty in",
    "slots_needed": "needs",
}
_MAX_WORKERS = 20
"""Number of workers that are asked for their running jobs."""
_TRIED_AGAIN = (State.SCHEDULED, State.PENDING, State.RUNNING)
_FIND_SECONDS = 3.0
"""Seconds for a search of jobs: a store may have to walk past all others."""


@dataclass(frozen=True, kw_only=True)
class Details:
    """The text of a sheet, and the jobs that can be opened, in the order of their lines."""

    body: RenderableType
    jobs: tuple[UUID, ...] = ()


async def details(app: Windlass, row: Row) -> Details:
    """Read the sheet of a row.

    Raises:
        WindlassError: the store does not answer.
    """
    figures_: Figures = row.figures
    if isinstance(figures_, QueueFigures):
        return await _queue(app, figures_)
    if isinstance(figures_, ErrorFigures):
        return await _error(app, figures_)
    if isinstance(figures_, KindFigures):
        return Details(body=Group(*kind_sheet(figures_)))
    return await _worker(app, figures_)


async def job_details(app: Windlass, job: UUID) -> tuple[Job, RenderableType]:
    """Read a job: its whole story, and why it does not run.

    Raises:
        WindlassError: the store does not answer, or there is no such job.
    """
    why = await app.control.awhy(job)
    seen = shown_job(app, why.job)
    return seen, job_report(seen, why.now, why.reasons)


# -- a queue ---------------------------------------------------------------------------------------


async def _queue(app: Windlass, queue: QueueFigures) -> Details:
    sweep = await app.store.sweep()
    heads = sorted(
        (each for each in sweep.heads if each.lane.queue == queue.name),
        key=lambda each: each.position,
    )
    oldest = [
        (head, await _oldest(app, head) if number < _MAX_NAMED else None)
        for number, head in enumerate(heads[:_MAX_LINES])
    ]
    workers = [each for each in await app.store.workers() if each.alive]
    serving = [each for each in workers if serves_queue(each, queue.name)]
    running = [job for job in await _running(app, serving) if job.queue == queue.name]
    values = {
        "jobs": ", ".join(
            f"{figures.count(count, capped=state in queue.capped)} {state}"
            for state, count in queue.jobs.items()
            if count
        )
        or "none",
        "served by": f"{show.plural(queue.workers, 'worker')} with room for {queue.slots} at once",
        "needs": ""
        if queue.slots_needed is None
        else f"{figures.rate(queue.slots_needed)} slots to keep up with arrivals",
        **{_COLUMNS.get(name, name): why for name, why in queue.unknown.items()},
        "paused": "yes; no job of it starts" if queue.paused else "",
    }
    shown = running[:_MAX_LINES]
    ended = [
        *await _first_jobs(app, queue, State.SCHEDULED),
        *await _first_jobs(app, queue, State.DEAD),
    ]
    lines = [
        title("queue", queue.name),
        pairs(values),
        Text(),
        Text("oldest of each kind, priority and key", "bold"),
        *listed(_head_line(head, job, sweep.now, workers) for head, job in oldest),
        Text(),
        Text("running" + _of_some(serving), "bold"),
        *listed(_job_line(job, sweep.now) for job in shown),
    ]
    if ended:
        lines += [Text(), Text("scheduled and dead, newest first", "bold")]
        lines += [_later_line(job, sweep.now) for job in ended]
    jobs = (*(job for _, job in oldest if job is not None), *shown, *ended)
    return Details(body=Group(*lines), jobs=tuple(job.id for job in jobs))


async def _first_jobs(app: Windlass, queue: QueueFigures, state: State) -> Sequence[Job]:
    if not queue.jobs.get(state.value, 0):
        return ()
    which = JobFilter(states=(state,), queue=queue.name)
    page = await _find(app, which, limit=_MAX_NAMED)
    return [masked_summary(job, redaction_of(app)) for job in page.jobs] if page is not None else ()


def _later_line(job: Job, now: datetime) -> Text:
    dead = job.state is State.DEAD
    when = "dead" if dead else f"in {figures.span(max((job.due_at - now).total_seconds(), 0.0))}"
    return Text.assemble(
        (f"  {when:>9}  ", "red" if dead else ""),
        fitted(Text(printable(job.kind)), 17),
        (f"  {job.id}", "dim"),
        f"  {printable(str(job.error))}" if job.error is not None else "",
    )


async def _oldest(app: Windlass, head: Head) -> Job | None:
    """Return the job at the head of a lane; None if that is not certain.

    The job was made before it was due, but so were others: a retry is due long after.
    """
    lane = head.lane
    which = JobFilter(states=(State.PENDING,), kind=lane.kind, queue=lane.queue)
    page = await _find(app, which, limit=_MAX_OLDER_JOBS, after=_id_at(head.position))
    if page is None or page.after is not None:
        return None
    first = [job for job in page.jobs if job.lane == lane and job.due_at == head.position]
    return min(first, key=lambda job: job.id, default=None)


def _id_at(moment: datetime) -> UUID:
    return job_id(int(moment.timestamp() * 1000) + 1, _MAX_RANDOM)


def _head_line(head: Head, job: Job | None, now: datetime, workers: Sequence[WorkerRecord]) -> Text:
    lane = head.lane
    is_served = any(each.info.serves(lane) for each in workers)
    rest = [
        f"priority {lane.priority}" if lane.priority else "",
        f"key {printable(lane.key)}" if lane.key else "",
    ]
    return Text.assemble(
        f"  {figures.span((now - head.position).total_seconds()):>6}  ",
        fitted(Text(printable(lane.kind)), 20),
        ("  " + str(job.id) if job is not None else "", "dim"),
        "".join(f"  {each}" for each in rest if each),
        ("" if is_served else "  no worker handles it", "red"),
    )


# -- a worker --------------------------------------------------------------------------------------


async def _worker(app: Windlass, worker: WorkerFigures) -> Details:
    held = await app.store.held(worker.id)
    now = (await app.store.sweep()).now
    redaction = redaction_of(app)
    running = sorted(
        (masked_summary(job, redaction) for job in held), key=lambda job: job.started_at or now
    )
    values = {
        "process": f"{worker.pid} on {worker.host}",
        "state": f"{worker.state}, seen {show.ago(worker.last_seen, now)}",
        "slots": f"{worker.busy} of {worker.slots} in use",
        "threads": _in_use(worker.in_threads, worker.threads),
        "isolated processes": _in_use(worker.in_isolated_processes, worker.isolated_processes),
        "processed": f"{worker.processed:,} jobs",
        "cpu": f"{worker.cpu:.2f} CPUs",
        "memory": figures.size(worker.memory),
        "connections": ""
        if worker.pool is None
        else f"{worker.pool.in_use} of {worker.pool.limit} in use",
        "queues": ", ".join(worker.queues) or "all",
    }
    shown = running[:_MAX_LINES]
    lines = [
        title("worker", worker.id),
        pairs(values),
        Text(),
        Text("running, longest first", "bold"),
        *listed(_job_line(job, now) for job in shown),
    ]
    return Details(body=Group(*lines), jobs=tuple(job.id for job in shown))


def _in_use(used: int, size: int | None) -> str:
    return "" if size is None else f"{used} of {size} in use"


async def _running(app: Windlass, workers: Sequence[WorkerRecord]) -> list[Job]:
    redaction = redaction_of(app)
    busiest = sorted(workers, key=lambda worker: -worker.pulse.running)[:_MAX_WORKERS]
    held = [await app.store.held(worker.info.id) for worker in busiest]
    return [masked_summary(job, redaction) for jobs in held for job in jobs]


def _of_some(workers: Sequence[WorkerRecord]) -> str:
    return f", on {_MAX_WORKERS} of {len(workers)} workers" if len(workers) > _MAX_WORKERS else ""


def _job_line(job: Job, now: datetime) -> Text:
    since = (now - (job.started_at or now)).total_seconds()
    progress = ""
    if job.progress is not None:
        progress = f"  {job.progress.fraction:.0%} {printable(job.progress.message)}"
    attempt = f"  attempt {job.attempt}" if job.attempt > 1 else ""
    return Text.assemble(
        f"  {figures.span(since):>6}  ",
        fitted(Text(printable(job.kind)), 20),
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
                "dead jobs": f"{error.dead:,}{'+' if error.capped else ''}"
                + (": r redrives them" if error.dead else ""),
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
                *head,
                Text("no job with this error was found; later attempts may have succeeded", "dim"),
            )
        )
    if job.error is not None and job.error.traceback:
        head += [Text("traceback", "bold"), show.block(job.error.traceback), Text()]
    body = Group(*head, Text("an example", "bold"), job_report(job, now))
    return Details(body=body, jobs=(job.id,))


async def _example(app: Windlass, error: ErrorFigures) -> Job | None:
    """Return a job whose last error was this one, a dead one first; none that has recovered."""
    for states in ((State.DEAD,),) * bool(error.dead) + (_TRIED_AGAIN,):
        which = JobFilter(states=states, kind=error.kind, fingerprint=error.group)
        page = await _find(app, which, limit=1)
        if page is not None and page.jobs:
            return shown_job(app, page.jobs[0])
    return None


async def _find(
    app: Windlass, which: JobFilter, *, limit: int, after: UUID | None = None
) -> Page | None:
    """Return a page of jobs; None if the search takes too long."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(
            app.store.find(which, limit=limit, after=after), _FIND_SECONDS
        )
    return None
