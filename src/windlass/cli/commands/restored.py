"""Owns `windlass restored`: parking, listing, releasing and cancelling the jobs of a restored
store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from windlass.app import Windlass
from windlass.app.restored import parked_facts
from windlass.cli import options
from windlass.cli.actions.bulk_moves import can_ask
from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing
from windlass.core import documents as facts
from windlass.core.jobs.ids import made_at, read_id
from windlass.core.jobs.job import Job
from windlass.core.restored import PARKED_WAIT, REASON, Parked, is_parked
from windlass.core.values.text import listed

restored = options.Commands("Park, release and cancel jobs of a store restored from a backup.")
_Move = Callable[[Windlass, Sequence[UUID]], Awaitable[Collection[object]]]
Everything = Annotated[bool, typer.Option("--all", help="All jobs that are parked.")]


@restored.command(
    epilog=options.example(
        "windlass restored park --dry-run", "windlass restored park --reason 'backup of 03:00'"
    )
)
def park(
    *,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    target: options.ActingTarget,
    as_json: options.AsJson = False,
) -> None:
    """Park all jobs that are running or waiting in a store that was restored from a backup.

    Call it before workers are started: jobs that were done after the backup would run again. It
    refuses to work while a worker is alive, and can be repeated. Ticks that schedules have missed
    are left out, and bulk operations paused. Jobs that are enqueued afterwards run as usual.
    """
    if not (yes or dry_run or can_ask()):
        raise typer.BadParameter(
            "parking must be confirmed; add --yes (stdin is not a terminal), or use --dry-run to "
            "count the jobs"
        )

    async def work(chosen: Windlass) -> Parked | None:
        if dry_run or not yes:
            counted = await chosen.control.apark_restored(dry_run=True)
            if dry_run:
                return counted
            if not typer.confirm(f"Park {show.plural(counted.jobs, 'job')}?", err=True):
                return None
        return await chosen.control.apark_restored()

    parked = target.visit(work)
    if parked is None:
        show.note("nothing was parked")
        raise typer.Exit(1)
    if as_json:
        show.document(parked_facts(parked))
    else:
        _tell(parked)


def _tell(parked: Parked) -> None:
    would = " would be" if parked.is_dry_run else ""
    jobs = show.plural(parked.jobs, "job")
    show.say(f"{jobs}{would} parked, {parked.running:,} of which ran when the backup was made")
    if parked.following:
        others = show.plural(parked.following, "other")
        show.note(f"{others} of flows cannot start before these")
    if parked.schedules:
        names = listed(parked.schedules)
        show.note(f"ticks that schedules have missed{would or ' are'} left out: {names}")
    if parked.bulk_operations:
        number = show.plural(len(parked.bulk_operations), "bulk operation")
        show.note(f"{number}{would} paused: windlass bulk list")
    if parked.jobs and not parked.is_dry_run:
        show.note("look at them: windlass restored list; then release or cancel them")


@restored.command("list", epilog=options.example("windlass restored list --kind charge --json"))
def list_parked(
    *,
    conditions: options.Conditions,
    limit: options.Limit = 50,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """List the jobs that are parked since a restore, the oldest first."""

    async def work(chosen: Windlass) -> tuple[list[Job], datetime]:
        with options.usage():
            found = await chosen.control.arestored(limit=limit + 1, **conditions.where())
        return found, (await chosen.store.sweep()).now

    found, now = target.visit(work)
    page, has_more = found[:limit], len(found) > limit
    if as_json:
        jobs = [facts.job_summary(job) for job in page]
        show.document({"jobs": jobs, "has_more": has_more})
        return
    if not page:
        show.note("no job is parked since a restore")
        return
    _list(page, now)
    if has_more:
        show.note(f"there are more: --limit {min(2 * limit, 10_000)}")


def _list(jobs: Sequence[Job], now: datetime) -> None:
    listing = Listing(
        Column("id"),
        Column("kind"),
        Column("queue", rank=2),
        Column("attempt", rank=3, number=True),
        Column("created", rank=1),
        Column("state in the backup", stretch=True),
    )
    for job, short in zip(jobs, show.ids(jobs), strict=True):
        listing.add(
            show.cell(short),
            show.cell(job.kind),
            show.cell(job.queue),
            show.count(job.attempt),
            show.cell(show.ago(job.created_at, now), "dim"),
            show.cell(_state_in_backup(job, now)),
        )
    listing.print(show.stdout())


def _state_in_backup(job: Job, now: datetime) -> str:
    if job.reason == REASON:
        return "running"
    if job.waiting_for == PARKED_WAIT:
        return "waiting for an event"
    return f"due {show.ago(job.due_at, now)}"


@restored.command(
    epilog=options.example(
        "windlass restored missing ids.txt",
        "psql -Atc 'SELECT job_id FROM orders' | windlass restored missing -",
    )
)
def missing(
    file: Annotated[
        typer.FileText,
        typer.Argument(metavar="FILE", show_default=False, help="Whole ids, one a line; -: stdin."),
    ],
    *,
    target: options.Target,
    as_json: options.AsJson = False,
) -> None:
    """Print which of these jobs the store does not know, from lists of your own.

    They were lost, purged, or are past their retention. The exit code is 1 if there are any.
    """
    with options.usage():
        ids = [_whole_id(line) for line in file if line.strip()]

    unknown = target.visit(lambda chosen: chosen.jobs.amissing(ids))
    if as_json:
        gone = [{"id": str(each), "made_at": facts.iso(made_at(each))} for each in unknown]
        show.document({"looked_at": len(ids), "missing": gone})
    else:
        for each in unknown:
            show.say(str(each))
        show.note(f"{len(unknown):,} of {show.plural(len(ids), 'job')} missing")
    if unknown:
        raise typer.Exit(1)


def _whole_id(line: str) -> UUID:
    first, last = read_id(line)
    if first != last:
        raise ValueError(f"an id must be whole, got {line.strip()!r}; prefixes cannot be compared")
    return first


def _add_command(word: str, done: str, move: _Move, help_: str) -> None:
    def act(
        job_ids: options.MaybeIds = None,
        *,
        conditions: options.Conditions,
        everything: Everything = False,
        limit: options.AtMost = None,
        dry_run: options.DryRun = False,
        yes: options.Yes = False,
        target: options.ActingTarget,
        as_json: options.AsJson = False,
    ) -> None:
        _check(word, job_ids, conditions, everything=everything, sure=yes or dry_run)

        async def work(chosen: Windlass) -> tuple[int, int | None]:
            jobs = await _chosen(chosen, job_ids, conditions, limit)
            question = f"{word.capitalize()} {show.plural(len(jobs), 'parked job')}?"
            if dry_run or not jobs:
                return len(jobs), 0
            if not (yes or typer.confirm(question, err=True)):
                return len(jobs), None
            return len(jobs), len(await move(chosen, [job.id for job in jobs]))

        matched, moved = target.visit(work)
        _report(done, matched, moved, dry_run=dry_run, as_json=as_json)

    epilog = options.example(
        f"windlass restored {word} --find 'kind:charge payload.order.id:42'",
        f"windlass restored {word} --all --yes",
    )
    restored.command(word, help=help_, epilog=epilog)(act)


def _check(
    word: str,
    job_ids: Sequence[str] | None,
    conditions: options.Conditions,
    *,
    everything: bool,
    sure: bool,
) -> None:
    if sum((bool(job_ids), bool(conditions.where()), everything)) != 1:
        raise typer.BadParameter(
            "select parked jobs by their ids, by options such as --find and --kind, or with "
            "--all, and only one of these"
        )
    if not (sure or can_ask()):
        raise typer.BadParameter(
            f"{word} must be confirmed; add --yes (stdin is not a terminal), or use --dry-run to "
            "count the jobs"
        )


async def _chosen(
    app: Windlass,
    job_ids: Sequence[str] | None,
    conditions: options.Conditions,
    limit: int | None,
) -> list[Job]:
    if job_ids:
        ids = [await app.jobs.ajob_id(text) for text in job_ids]
        return [job for job in (await app.store.get_many(ids)).values() if is_parked(job)]
    with options.usage():
        return await app.control.arestored(limit=limit, **conditions.where())


def _report(done: str, matched: int, moved: int | None, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        show.document({"matched": matched, done: moved or 0, "dry_run": dry_run})
    elif dry_run:
        show.say(f"{show.plural(matched, 'parked job')} would be {done}")
    elif moved is None:
        show.note(f"nothing was {done}")
    else:
        show.say(f"{show.plural(moved, 'parked job')} {done}")
    if moved is None:
        raise typer.Exit(1)


_add_command(
    "release",
    "released",
    lambda app, jobs: app.control.arelease_restored(jobs),
    "Let jobs run that are parked since a restore.",
)
_add_command(
    "cancel",
    "cancelled",
    lambda app, jobs: app.control.acancel_restored(jobs),
    "Cancel jobs that are parked since a restore, such as those that were done after the backup.",
)
