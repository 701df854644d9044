"""Owns `windlass jobs`: list, show, run, retry, cancel and purge them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer
from msgspec.structs import replace

from windlass.app import Windlass
from windlass.app.jobs.searching import find_page
from windlass.app.masking import redaction_of, shown_job
from windlass.app.registration.importing import load_imports
from windlass.cli import options
from windlass.cli.actions import bulk_moves, run_here
from windlass.cli.output import console as show
from windlass.cli.output.job_details import job_report
from windlass.cli.output.tables import Column, Listing
from windlass.core import documents as facts
from windlass.core.audit import AuditEntry, entry_facts
from windlass.core.errors import ImportFailed, UnknownJob, WindlassError
from windlass.core.failures.crash_suspects import ALONE
from windlass.core.jobs.ids import made_at
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import Page, Where, filter_of
from windlass.core.jobs.states import WAITING, State
from windlass.core.payloads.masked_job import masked_summary
from windlass.core.restored import PARKED, PARKED_WAIT
from windlass.core.search.scan import Budget
from windlass.core.values.durations import brief
from windlass.core.why.reason import Reason

_PATIENT = Budget(rows=1_000_000, seconds=3.0)
jobs = options.Commands("List, show, run, retry, cancel and purge jobs.")


@jobs.command(
    "list",
    epilog=options.example(
        "windlass jobs list --state pending --queue mail --limit 20",
        "windlass jobs list --find 'kind:send_email state:dead since:2h -queue:bulk'",
    ),
)
def list_jobs(
    *,
    states: options.OfStates = None,
    conditions: options.Conditions,
    worker: Annotated[
        str | None, typer.Option(help="Only jobs held by the worker with this id.")
    ] = None,
    limit: options.Limit = 50,
    after: options.After = None,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """List jobs, the newest first."""
    where = conditions.where(states=states, worker=worker)
    page, now = find(target, where, limit=limit, after=after)
    if as_json:
        show.document(facts.page_facts(page))
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
    for job, short in zip(page.jobs, show.ids(page.jobs), strict=True):
        listing.add(
            show.cell(short),
            show.state(job.state),
            show.cell(job.kind),
            show.cell(job.queue),
            show.count(job.attempt),
            show.cell(show.ago(job.created_at, now), "dim"),
            show.cell(_what(job, now), "red" if job.state is State.DEAD else ""),
        )
    if page.jobs:
        listing.print(show.stdout())
    note_rest(page)


@jobs.command(
    "show", epilog=options.example("windlass jobs show 0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69")
)
def show_job(
    job_id: options.Id, *, target: options.Target, as_json: options.AsJson = False
) -> None:
    """Show a job: its worker, its payload, attempts that did not complete it, operators' actions.

    For a waiting job it says why, as `windlass why` does; --app adds the limits of its handlers.
    """
    reasons: list[Reason] = []
    actions: list[AuditEntry] = []

    async def work(chosen: Windlass) -> tuple[Job, datetime]:
        job, now = await _look(chosen, job_id)
        reasons.extend((await chosen.control.awhy(job.id)).reasons)
        actions.extend((await chosen.control.aaudit(job=job.id, since=job.created_at)).entries)
        return job, now

    job, now = target.visit(work)
    if as_json:
        explained = [facts.reason_facts(each) for each in reasons]
        acted = [entry_facts(each) for each in actions]
        show.document(facts.job_facts(job) | {"reasons": explained, "actions": acted})
    else:
        why = reasons if job.state in WAITING else ()
        show.stdout().print(job_report(job, now, why, actions))


@jobs.command(
    "run",
    epilog=options.example(
        "windlass jobs run 0197f3a2-6c1e-7b60 --here --app shop:app",
        "windlass jobs run 0197f3a2-6c1e-7b60 --here --pdb",
        "windlass jobs run 0197f3a2-6c1e-7b60 --here --settle",
    ),
)
def run_job(
    job_id: options.Id,
    *,
    here: Annotated[bool, typer.Option("--here", help="Run it in this terminal.")] = False,
    pdb: Annotated[
        bool, typer.Option("--pdb", help="Open the debugger where the handler raised.")
    ] = False,
    settle: Annotated[
        bool,
        typer.Option(
            "--settle", help="Take the job out of its queue, and record the run as a worker does."
        ),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Run it even if a worker runs it, or it has not failed."),
    ] = False,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """Run a job in this terminal with its real payload, and record nothing of it.

    Shows its log lines, the whole traceback, its steps, and what a worker would have recorded.
    Side effects are real: the mail is sent. The exit code is 1 if the run failed.
    """
    if not here:
        raise typer.BadParameter(
            "add --here to run the job in this terminal; windlass jobs retry lets a worker run it"
        )
    run_here.run(target, job_id, pdb=pdb, again=yes, settle=settle, as_json=as_json)


@jobs.command(epilog=options.example("windlass jobs retry 0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69"))
def retry(
    job_ids: options.Ids, *, target: options.ActingTarget, as_json: options.AsJson = False
) -> None:
    """Run scheduled jobs now, and give dead ones a new life."""

    async def move(chosen: Windlass, job_id: UUID) -> Job:
        job = await chosen.store.get(job_id)
        if job is not None and job.state is State.DEAD:
            redriven = await chosen.control.aredrive([job_id])
            if redriven:
                return redriven[0]
        return await chosen.control.aretry(job_id)

    _move_each(job_ids, target, move, as_json=as_json)


@jobs.command(
    epilog=options.example(
        "windlass jobs cancel 0197f3a2-6c1e-7b60",
        "windlass jobs cancel --kind send_email --older-than 1h --dry-run",
    )
)
def cancel(
    job_ids: options.MaybeIds = None,
    *,
    states: options.OfStates = None,
    given: options.ConfirmedBulk,
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Cancel waiting jobs, and ask running ones to end; by id, or many at once by conditions.

    Without ids the command asks for confirmation, with the number of jobs.
    """
    choice = bulk_moves.choose(Verb.CANCEL, given, job_ids, states=states)
    if job_ids and not (given.dry_run or given.background):

        async def move(chosen: Windlass, job_id: UUID) -> Job:
            return await chosen.control.acancel(job_id)

        _move_each(choice.ids, target, move, as_json=as_json)
        return
    bulk_moves.run(target, choice, given, as_json=as_json)


@jobs.command(
    epilog=options.example("windlass jobs purge --state completed --kind send_email --dry-run")
)
def purge(
    job_ids: options.MaybeIds = None,
    *,
    states: options.OfStates = None,
    given: options.ConfirmedBulk,
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Delete jobs that have ended: completed, cancelled and dead ones. This cannot be undone.

    Jobs of a flow that is under way are kept.
    """
    choice = bulk_moves.choose(Verb.PURGE, given, job_ids, states=states)
    bulk_moves.run(target, choice, given, as_json=as_json)


def look(target: options.Target, job_id: str) -> tuple[Job, datetime]:
    """Return a job, masked, and the store's time."""

    return target.visit(lambda chosen: _look(chosen, job_id))


async def _look(app: Windlass, given: str) -> tuple[Job, datetime]:
    job_id = await app.jobs.ajob_id(given)
    job = await app.store.get(job_id)
    if job is None:
        raise UnknownJob(job_id)
    if list(app.registry) and job.kind not in app.registry:
        with suppress(ImportFailed):  # It shows less then, and the job is shown all the same.
            load_imports(app.settings.imports)
    return shown_job(app, job), (await app.store.sweep()).now


def find(
    target: options.Target, where: Where, *, limit: int, after: str | None
) -> tuple[Page, datetime]:
    """Return jobs, masked, and the store's time."""
    with options.usage():
        filter_of(where, datetime.now(UTC))

    async def work(chosen: Windlass) -> tuple[Page, datetime]:
        last = None if after is None else await chosen.jobs.ajob_id(after)
        page = await find_page(
            chosen.store, where, limit=limit, after=last, budget=_PATIENT, brief=True
        )
        redaction = redaction_of(chosen)
        seen = replace(page, jobs=tuple(masked_summary(job, redaction) for job in page.jobs))
        return seen, (await chosen.store.sweep()).now

    return target.visit(work)


def note_rest(page: Page) -> None:
    """Note that the list is empty, how far it reaches, or how to see more."""
    if page.searched_to is not None:
        back_to = facts.iso(made_at(page.searched_to))
        found = "so far" if page.jobs else "none so far"
        show.note(f"{found}: searched back to {back_to}; to continue: --after {page.after}")
    elif not page.jobs:
        show.note("no jobs")
    elif page.after is not None:
        show.note(f"there are more: --after {page.after}")


def _waits_for(topic: str) -> str:
    if topic in (PARKED, PARKED_WAIT):
        return "parked after a restore, waits for windlass restored release"
    return "waiting for a child process, to run alone" if topic == ALONE else f"waits for {topic}"


def _what(job: Job, now: datetime) -> str:
    if job.state is State.RUNNING:
        running = f"for {brief(now - (job.started_at or now))} on {job.worker}"
        return f"{job.progress.fraction:.0%} {running}" if job.progress else running
    if job.state is State.SCHEDULED:
        due = _waits_for(job.waiting_for) if job.waiting_for else show.ago(job.due_at, now)
        return f"{due} · {job.error}" if job.error else due
    if job.state is State.COMPLETED and job.started_at and job.finished_at:
        return f"in {brief(job.finished_at - job.started_at)}"
    return str(job.error) if job.error and job.state is State.DEAD else job.reason or ""


def _move_each(
    job_ids: Sequence[str],
    target: options.Target,
    move: Callable[[Windlass, UUID], Awaitable[Job]],
    *,
    as_json: bool,
) -> None:
    moved: list[Job] = []
    refused: list[facts.Facts] = []

    async def work(chosen: Windlass) -> None:
        for given in dict.fromkeys(job_ids):
            try:
                job = await move(chosen, await chosen.jobs.ajob_id(given))
                moved.append(masked_summary(job, redaction_of(chosen)))
            except WindlassError as error:
                refused.append({"id": given, "error": str(error)})

    target.visit(work)
    if as_json:
        show.document({"jobs": [facts.job_summary(job) for job in moved], "refused": refused})
    for job in () if as_json else moved:
        asked = " (cancellation requested)" if job.cancel_requested else ""
        show.say(f"{job.id}  {job.state}{asked}")
    for each in refused:
        show.error(each["error"])
    if refused:
        raise typer.Exit(1)
