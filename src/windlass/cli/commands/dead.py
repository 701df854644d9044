"""Owns `windlass dead`: list and show dead jobs, give them a new life, or delete them for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.app.masking import redaction_of
from windlass.cli import options
from windlass.cli.actions import bulk_moves
from windlass.cli.actions.bulk_moves import BulkMove, Choice
from windlass.cli.actions.edit_payload import redrive_edited
from windlass.cli.commands import jobs
from windlass.cli.output import console as show
from windlass.cli.output.job_details import job_report
from windlass.cli.output.tables import Column, Listing
from windlass.core import documents as facts
from windlass.core.deploys import is_new_since
from windlass.core.errors import ConfigError
from windlass.core.failures.fingerprint import place
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import ErrorGroups
from windlass.core.jobs.states import State
from windlass.core.payloads.masked_job import masked_groups

dead = options.Commands("List, redrive and purge dead jobs.")
_MAX_GROUPS = 10_000


@dead.command("list", epilog=options.example("windlass dead list --kind send_email --json"))
def list_dead(
    *,
    conditions: options.Conditions,
    limit: options.Limit = 50,
    after: options.After = None,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """List dead jobs, the newest first, and why each is dead."""
    where = conditions.where(states=[State.DEAD])
    page, now = jobs.find(target, where, limit=limit, after=after)
    if as_json:
        show.document(facts.page_facts(page))
        return
    listing = Listing(
        Column("id"),
        Column("kind"),
        Column("queue", rank=2),
        Column("attempts", rank=3, number=True),
        Column("died", rank=1),
        Column("reason", rank=4),
        Column("error", stretch=True),
    )
    for job, short in zip(page.jobs, show.ids(page.jobs), strict=True):
        listing.add(
            show.cell(short),
            show.cell(job.kind),
            show.cell(job.queue),
            show.count(job.attempt),
            show.cell(show.ago(job.finished_at, now), "dim"),
            show.cell(job.reason),
            show.cell(job.error, "red"),
        )
    if page.jobs:
        listing.print(show.stdout())
    jobs.note_rest(page)


@dead.command(
    epilog=options.example(
        "windlass dead groups --kind send_email", "windlass dead groups --since-deploy v1.2.3"
    )
)
def groups(
    *,
    kind: options.OfKind = None,
    since_deploy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only errors that are new since this deploy."),
    ] = None,
    limit: options.Limit = 50,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """List the errors that jobs died of: how many jobs each, and since when."""

    async def work(chosen: Windlass) -> tuple[ErrorGroups, datetime]:
        mark = None if since_deploy is None else await chosen.control.adeploy(since_deploy)
        # All of them: those that are new may be few jobs, and come last.
        most = limit if mark is None else max(limit, _MAX_GROUPS)
        found = await chosen.control.aerror_groups(kind=kind, limit=most)
        new = tuple(each for each in found if is_new_since(each.first_seen, mark))[:limit]
        seen = masked_groups(replace(found, groups=new), redaction_of(chosen))
        return seen, (await chosen.store.sweep()).now

    found, now = target.visit(work)
    if as_json:
        show.document(facts.groups_facts(found))
        return
    if not found and (since_deploy is not None or found.searched_to is None):
        show.note("no dead jobs" if since_deploy is None else f"no new error since {since_deploy}")
        return
    listing = Listing(
        Column("group"),
        Column("jobs", number=True),
        Column("kind"),
        Column("first", rank=2),
        Column("last", rank=1),
        Column("where", rank=3),
        Column("error", stretch=True),
    )
    for group in found:
        listing.add(
            show.cell(group.fingerprint or "-"),
            show.count(group.count, "red", capped=found.searched_to is not None),
            show.cell(group.kind),
            show.cell(show.ago(group.first_seen, now), "dim"),
            show.cell(show.ago(group.last_seen, now), "dim"),
            show.cell("" if group.error is None else place(group.error), "dim"),
            show.cell(group.error or group.reason, "red"),
        )
    if found:
        listing.print(show.stdout())
    if found.searched_to is not None:
        show.note(f"jobs that died {show.ago(found.searched_to, now)} or before are not counted")


@dead.command(
    "show", epilog=options.example("windlass dead show 0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69")
)
def show_dead(
    job_id: options.DeadId, *, target: options.Target, as_json: options.AsJson = False
) -> None:
    """Show a dead job: its payload, and every attempt with its error."""
    job, now = jobs.look(target, job_id)
    if job.state is not State.DEAD:
        raise ConfigError(
            f"job {job.id} is {job.state}, not dead; try: windlass jobs show {job.id}"
        )
    if as_json:
        show.document(facts.job_facts(job))
    else:
        show.stdout().print(job_report(job, now))


@dead.command(epilog=options.example("windlass dead redrive --kind send_email --limit 100"))
def redrive(
    job_ids: options.DeadIds = None,
    *,
    given: options.Bulk,
    edit: Annotated[
        bool, typer.Option("--edit", help="Edit the payload of one job in $EDITOR first.")
    ] = False,
    payload: Annotated[
        str | None, typer.Option(metavar="JSON", help="Redrive one job with this payload.")
    ] = None,
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Give dead jobs a new life: pending, their failures forgotten, their history kept."""
    choice = bulk_moves.choose(Verb.REDRIVE, given, job_ids, within=State.DEAD)
    if edit or payload is not None:
        _redrive_edited(target, choice, payload, edit=edit, dry_run=given.dry_run, as_json=as_json)
        return
    bulk_moves.run(target, choice, given, as_json=as_json)


@dead.command(epilog=options.example("windlass dead purge --queue mail --dry-run"))
def purge(
    job_ids: options.DeadIds = None,
    *,
    given: options.ConfirmedBulk,
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Delete dead jobs. This cannot be undone."""
    choice = bulk_moves.choose(Verb.PURGE, given, job_ids, within=State.DEAD)
    bulk_moves.run(target, choice, given, as_json=as_json)


def _redrive_edited(
    target: options.Target,
    choice: Choice,
    payload: str | None,
    *,
    edit: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    if len(choice.ids) != 1 or (edit and payload is not None):
        raise typer.BadParameter("--edit and --payload change one job; give its id")
    if edit and not bulk_moves.can_ask():
        raise typer.BadParameter("--edit needs a terminal; give the payload with --payload JSON")
    (given,) = choice.ids
    job_id = target.visit(lambda chosen: chosen.jobs.ajob_id(given))
    done = redrive_edited(target, job_id, payload, dry_run=dry_run)
    if not done:
        show.note("the payload was not changed; nothing was redriven")
        raise typer.Exit(1)
    one = BulkMove(matched=1, done=int(not dry_run), dry_run=dry_run)
    bulk_moves.report(one, choice, as_json=as_json)
