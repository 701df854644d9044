"""Owns `windlass jobs`: list, show, retry and cancel them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer
from msgspec.structs import replace

from windlass.app import Windlass
from windlass.cli import facts, options, show, target
from windlass.cli.discretion import discreet, redaction_of
from windlass.cli.listing import Column, Listing
from windlass.cli.portrait import portrait
from windlass.core.errors import UnknownJob, WindlassError
from windlass.core.job import Job, JobFilter, Page
from windlass.core.reasons import Reason
from windlass.core.states import WAITING, State

jobs = typer.Typer(no_args_is_help=True, help="Look at jobs, retry and cancel them.")


@jobs.command(
    "list", epilog=options.example("windlass jobs list --state pending --queue mail --limit 20")
)
def list_jobs(
    *,
    states: Annotated[
        list[State] | None,
        typer.Option("--state", help="Only jobs in this state; may be repeated."),
    ] = None,
    kind: options.OfKind = None,
    queue: options.OfQueue = None,
    worker: Annotated[str | None, typer.Option(help="Only jobs of this worker's id.")] = None,
    limit: options.Limit = 50,
    after: options.After = None,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List jobs, the newest first."""
    which = JobFilter(states=tuple(states or ()), kind=kind, queue=queue, worker=worker)
    page, now = find(app, url, which, limit=limit, after=after)
    if as_json:
        show.document(page_facts(page))
        return
    listing = Listing(
        Column("id"),
        Column("state"),
        Column("kind", rank=1),
        Column("queue", rank=3),
        Column("attempt", rank=4, number=True),
        Column("created", rank=2),
        Column("what", stretch=True),
    )
    for job in page.jobs:
        listing.add(
            show.cell(job.id),
            show.state(job.state),
            show.cell(job.kind),
            show.cell(job.queue),
            show.count(job.attempt),
            show.cell(show.ago(job.created_at, now), "dim"),
            show.cell(_what(job, now), "red" if job.state is State.DEAD else ""),
        )
    if page.jobs:
        listing.print(show.stdout())
    tell_rest(page)


@jobs.command(
    "show", epilog=options.example("windlass jobs show 0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69")
)
def show_job(
    job_id: options.Id,
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Show all about a job: who holds it, its payload, every attempt that did not complete it.

    Of one that waits it says why, as `windlass why` does; --app lets it know the handlers' limits.
    """
    reasons: list[Reason] = []

    async def work(chosen: Windlass) -> tuple[Job, datetime]:
        job, now = await _look(chosen, job_id)
        reasons.extend((await chosen.control.why(job_id)).reasons)
        return job, now

    job, now = target.visit(app, url, work)
    if as_json:
        told = [facts.reason_facts(each) for each in reasons]
        show.document(facts.job_facts(job) | {"reasons": told})
    else:
        show.stdout().print(portrait(job, now, reasons if job.state in WAITING else ()))


@jobs.command(epilog=options.example("windlass jobs retry 0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69"))
def retry(
    job_ids: options.Ids,
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Run scheduled jobs now, and give dead ones a new life."""

    async def move(chosen: Windlass, job_id: UUID) -> Job:
        job = await chosen.store.get(job_id)
        if job is not None and job.state is State.DEAD:
            redriven = await chosen.control.redrive([job_id])
            if redriven:
                return redriven[0]
        return await chosen.control.retry(job_id)

    _each(job_ids, app, url, move, as_json=as_json)


@jobs.command(epilog=options.example("windlass jobs cancel 0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69"))
def cancel(
    job_ids: options.Ids,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept with the job.")] = (
        "cancelled by an operator"
    ),
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Cancel jobs that wait, and ask those that run to end."""

    async def move(chosen: Windlass, job_id: UUID) -> Job:
        return await chosen.control.cancel(job_id, reason=reason)

    _each(job_ids, app, url, move, as_json=as_json)


def look(app: str | None, url: str | None, job_id: UUID) -> tuple[Job, datetime]:
    """Return a job as it may be seen, and the store's time.

    Raises:
        UnknownJob: there is no such job.
    """

    return target.visit(app, url, lambda chosen: _look(chosen, job_id))


async def _look(app: Windlass, job_id: UUID) -> tuple[Job, datetime]:
    job = await app.store.get(job_id)
    if job is None:
        raise UnknownJob(job_id)
    return discreet(job, redaction_of(app)), (await app.store.sweep()).now


def find(
    app: str | None, url: str | None, which: JobFilter, *, limit: int, after: UUID | None
) -> tuple[Page, datetime]:
    """Return jobs as they may be seen, and the store's time."""

    async def work(chosen: Windlass) -> tuple[Page, datetime]:
        page = await chosen.store.find(which, limit=limit, after=after)
        redaction = redaction_of(chosen)
        seen = replace(page, jobs=tuple(discreet(job, redaction) for job in page.jobs))
        return seen, (await chosen.store.sweep()).now

    return target.visit(app, url, work)


def page_facts(page: Page) -> facts.Facts:
    """Tell a page to scripts; `after` continues it."""
    return {
        "jobs": [facts.job_summary(job) for job in page.jobs],
        "after": None if page.after is None else str(page.after),
    }


def tell_rest(page: Page) -> None:
    """Say that there is nothing, or how to see more."""
    if not page.jobs:
        show.note("no jobs")
    elif page.after is not None:
        show.note(f"there are more: --after {page.after}")


def _what(job: Job, now: datetime) -> str:
    """Say what is most worth knowing about a job."""
    if job.state is State.RUNNING:
        told = f"for {show.short(now - (job.started_at or now))} on {job.worker}"
        return f"{job.progress.fraction:.0%} {told}" if job.progress else told
    if job.state is State.SCHEDULED:
        due = f"waits for {job.waiting_for}" if job.waiting_for else show.ago(job.due_at, now)
        return f"{due} · {job.error}" if job.error else due
    if job.state is State.COMPLETED and job.started_at and job.finished_at:
        return f"in {show.short(job.finished_at - job.started_at)}"
    return str(job.error) if job.error and job.state is State.DEAD else job.reason or ""


def _each(
    job_ids: Sequence[UUID],
    app: str | None,
    url: str | None,
    move: Callable[[Windlass, UUID], Awaitable[Job]],
    *,
    as_json: bool,
) -> None:
    """Move jobs one by one; what cannot be moved is told, and keeps no other from being moved."""
    moved: list[Job] = []
    refused: list[facts.Facts] = []

    async def work(chosen: Windlass) -> None:
        for job_id in dict.fromkeys(job_ids):
            try:
                moved.append(discreet(await move(chosen, job_id), redaction_of(chosen)))
            except WindlassError as error:
                refused.append({"id": str(job_id), "error": str(error)})

    target.visit(app, url, work)
    if as_json:
        show.document({"jobs": [facts.job_summary(job) for job in moved], "refused": refused})
    for job in () if as_json else moved:
        asked = " (it was asked to end)" if job.cancel_requested else ""
        show.say(f"{job.id}  {job.state}{asked}")
    for each in refused:
        show.error(each["error"])
    if refused:
        raise typer.Exit(1)


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.add_typer(jobs, name="jobs")
