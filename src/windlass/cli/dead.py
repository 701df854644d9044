"""Owns `windlass dead`: list and show dead jobs, give them a new life, or delete them for ever."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from windlass.app import Windlass
from windlass.cli import facts, jobs, options, show, target
from windlass.cli.discretion import discreet_group, redaction_of
from windlass.cli.harvest import Choice, Harvest, reap
from windlass.cli.listing import Column, Listing
from windlass.cli.mend import redrive_mended
from windlass.cli.portrait import portrait
from windlass.core.changes import Verb
from windlass.core.errors import ConfigError
from windlass.core.fingerprint import place
from windlass.core.job import ErrorGroup, JobFilter
from windlass.core.limits import Rate, read_rate
from windlass.core.states import State

dead = typer.Typer(no_args_is_help=True, help="Look at dead jobs, redrive them or purge them.")

Ids = Annotated[
    list[UUID] | None, typer.Argument(metavar="ID", show_default=False, help="Which jobs.")
]
All = Annotated[bool, typer.Option("--all", help="All dead jobs.")]
AtMost = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many, the newest first.")
]
Group = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", help="Only jobs that died of this; see dead groups."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")]


@dead.command("list", epilog=options.example("windlass dead list --kind send_email --json"))
def list_dead(
    *,
    kind: options.OfKind = None,
    queue: options.OfQueue = None,
    group: Group = None,
    limit: options.Limit = 50,
    after: options.After = None,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List dead jobs, the newest first, and why each is dead."""
    which = JobFilter(states=(State.DEAD,), kind=kind, queue=queue, fingerprint=group)
    page, now = jobs.find(app, url, which, limit=limit, after=after)
    if as_json:
        show.document(jobs.page_facts(page))
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
    for job in page.jobs:
        listing.add(
            show.cell(job.id),
            show.cell(job.kind),
            show.cell(job.queue),
            show.count(job.attempt),
            show.cell(show.ago(job.finished_at, now), "dim"),
            show.cell(job.reason),
            show.cell(job.error, "red"),
        )
    if page.jobs:
        listing.print(show.stdout())
    jobs.tell_rest(page)


@dead.command(epilog=options.example("windlass dead groups --kind send_email"))
def groups(
    *,
    kind: options.OfKind = None,
    limit: options.Limit = 50,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List the errors of which jobs are dead: how many died of each, and since when."""

    async def work(chosen: Windlass) -> tuple[list[ErrorGroup], datetime]:
        found = await chosen.control.error_groups(kind=kind, limit=limit)
        redaction = redaction_of(chosen)
        seen = [discreet_group(group, redaction) for group in found]
        return seen, (await chosen.store.sweep()).now

    found, now = target.visit(app, url, work)
    if as_json:
        show.document({"groups": [facts.group_facts(group) for group in found]})
        return
    if not found:
        show.note("no job is dead")
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
            show.count(group.count, "red"),
            show.cell(group.kind),
            show.cell(show.ago(group.first_seen, now), "dim"),
            show.cell(show.ago(group.last_seen, now), "dim"),
            show.cell("" if group.error is None else place(group.error), "dim"),
            show.cell(group.error or group.reason, "red"),
        )
    listing.print(show.stdout())


@dead.command(
    "show", epilog=options.example("windlass dead show 0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69")
)
def show_dead(
    job_id: options.Id,
    *,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Show all about a dead job: its payload, and every attempt with its error."""
    job, now = jobs.look(app, url, job_id)
    if job.state is not State.DEAD:
        raise ConfigError(
            f"job {job_id} is {job.state}, not dead; try: windlass jobs show {job_id}"
        )
    if as_json:
        show.document(facts.job_facts(job))
    else:
        show.stdout().print(portrait(job, now))


@dead.command(epilog=options.example("windlass dead redrive --kind send_email --limit 100"))
def redrive(
    job_ids: Ids = None,
    *,
    kind: options.OfKind = None,
    queue: options.OfQueue = None,
    group: Group = None,
    everything: All = False,
    limit: AtMost = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="No faster than this, as in 10/s.")
    ] = None,
    edit: Annotated[
        bool, typer.Option("--edit", help="Mend the payload of one job in $EDITOR first.")
    ] = False,
    payload: Annotated[
        str | None, typer.Option(metavar="JSON", help="Give one job this payload.")
    ] = None,
    dry_run: DryRun = False,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Give dead jobs a new life: pending, their failures forgotten, their history kept."""
    with options.usage():
        pace = None if rate is None else read_rate(rate)
    choice = _choice(job_ids, kind, queue, group, limit, pace, everything=everything)
    if edit or payload is not None:
        _mend(app, url, choice, payload, edit=edit, dry_run=dry_run, as_json=as_json)
        return
    _tell(reap(app, url, Verb.REDRIVE, choice, dry_run=dry_run), "redriven", as_json=as_json)


@dead.command(epilog=options.example("windlass dead purge --queue mail --dry-run"))
def purge(
    job_ids: Ids = None,
    *,
    kind: options.OfKind = None,
    queue: options.OfQueue = None,
    group: Group = None,
    everything: All = False,
    limit: AtMost = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    app: options.App = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete dead jobs for ever."""
    choice = _choice(job_ids, kind, queue, group, limit, everything=everything)
    if not (yes or dry_run or _can_ask()):
        raise typer.BadParameter("purging is for ever, and there is nobody to ask: add --yes")

    def confirm(number: int) -> bool:
        return yes or typer.confirm(f"Delete {show.plural(number, 'dead job')} for ever?", err=True)

    harvest = reap(app, url, Verb.PURGE, choice, dry_run=dry_run, confirm=confirm)
    _tell(harvest, "purged", as_json=as_json)


def _choice(
    job_ids: list[UUID] | None,
    kind: str | None,
    queue: str | None,
    group: str | None,
    limit: int | None,
    rate: Rate | None = None,
    *,
    everything: bool,
) -> Choice:
    """Make sure that it is said which jobs are meant, and in one way only."""
    filtered = kind is not None or queue is not None or group is not None
    if sum((bool(job_ids), filtered, everything)) != 1:
        raise typer.BadParameter(
            "say which dead jobs: their ids, or --kind, --queue and --group, or --all; and only "
            "one of these"
        )
    if job_ids and limit is not None:
        raise typer.BadParameter("--limit goes with --kind, --queue or --all, not with ids")
    if group == "-":
        group = ""  # As the listing shows those that are dead without an error.
    which = JobFilter(states=(State.DEAD,), kind=kind, queue=queue, fingerprint=group)
    return Choice(ids=tuple(dict.fromkeys(job_ids or ())), which=which, limit=limit, rate=rate)


def _mend(
    app: str | None,
    url: str | None,
    choice: Choice,
    payload: str | None,
    *,
    edit: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    if len(choice.ids) != 1 or (edit and payload is not None):
        raise typer.BadParameter("--edit, or --payload, mends one job: give its id")
    if edit and not _can_ask():
        raise typer.BadParameter("there is nobody to edit it: give the payload, as --payload JSON")
    done = redrive_mended(app, url, choice.ids[0], payload, dry_run=dry_run)
    if not done:
        show.note("the payload is as it was; nothing was redriven")
        raise typer.Exit(1)
    _tell(Harvest(matched=1, done=int(not dry_run), dry_run=dry_run), "redriven", as_json=as_json)


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _tell(harvest: Harvest, done: str, *, as_json: bool) -> None:
    if as_json:
        show.document(
            {
                "matched": harvest.matched,
                done: harvest.done,
                "dry_run": harvest.dry_run,
                "refused": harvest.refused,
            }
        )
    elif harvest.dry_run:
        show.say(f"{show.plural(harvest.matched, 'dead job')} would be {done}")
    elif harvest.declined:
        show.note(f"nothing was {done}")
    else:
        show.say(f"{show.plural(harvest.done, 'dead job')} {done}")
    for each in harvest.refused:
        show.error(each["error"])
    if harvest.refused or harvest.declined:
        raise typer.Exit(1)


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.add_typer(dead, name="dead")
