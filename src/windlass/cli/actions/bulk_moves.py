"""Owns moves of many jobs: they are selected and confirmed first, then moved in chunks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import typer

from windlass.app import Windlass
from windlass.app.control.bulk import move_in_chunks
from windlass.app.control.bulk_operations import BulkVerb, count_some
from windlass.app.jobs.searching import CHUNK, search
from windlass.cli import options
from windlass.cli.output import console as show
from windlass.core.documents import Facts
from windlass.core.errors import AmbiguousId, UnknownJob
from windlass.core.jobs.bulk import BulkOperation, bulk_facts
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import FROM, Verb
from windlass.core.jobs.queries import JobFilter, Where, filter_for
from windlass.core.jobs.states import State
from windlass.core.policies.limit import Rate, read_rate

_DONE = {Verb.CANCEL: "cancelled", Verb.REDRIVE: "redriven", Verb.PURGE: "purged"}
_QUESTIONS = {
    Verb.CANCEL: "Cancel {}?",
    Verb.REDRIVE: "Redrive {}?",
    Verb.PURGE: "Delete {} permanently?",
}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The selected jobs, and the verb: those with these ids, or those that match."""

    verb: Verb
    noun: str = "job"
    ids: tuple[str, ...] = ()
    """Whole, or their beginnings."""
    which: JobFilter
    """The filter; its states also apply to jobs whose ids are given."""
    where: Where
    """The conditions of the filter."""
    limit: int | None = None
    rate: Rate | None = None
    """How many jobs are moved per period; None: no limit."""


@dataclass(frozen=True, kw_only=True)
class BulkMove:
    """The result of a bulk move."""

    matched: int
    done: int = 0
    refused: Sequence[Facts] = ()
    dry_run: bool = False
    declined: bool = False


def choose(
    verb: Verb,
    given: options.Bulk,
    job_ids: Sequence[str] | None,
    *,
    states: list[State] | None = None,
    within: State | None = None,
) -> Choice:
    """Check that jobs are selected, and in one way only.

    `within` is the only state that a command is about, if there is one.

    Raises:
        typer.BadParameter: nothing is selected, or both ways are used.
    """
    where = given.where(states=states)
    has_conditions = any(value not in (None, ()) for value in where.values())
    if sum((bool(job_ids), has_conditions, given.everything)) != 1:
        noun = "jobs" if within is None else f"{within} jobs"
        raise typer.BadParameter(
            f"select {noun} by their ids, by options such as --find and --kind, or with --all, "
            "and only one of these"
        )
    if not where.get("search", "*").strip():
        raise typer.BadParameter("--find must have a term, got none; --all selects every job")
    if job_ids and given.limit is not None:
        raise typer.BadParameter("--limit needs --kind, --queue or --all, not ids")
    possible = [state for state in State if state in FROM[verb]]
    where = {**where, "states": [within] if within else where.get("states") or possible}
    with options.usage():
        which = filter_for(verb, where, datetime.now(UTC))
        pace = None if given.rate is None else read_rate(given.rate)
    return Choice(
        verb=verb,
        noun="job" if within is None else f"{within} job",
        ids=tuple(dict.fromkeys(job_ids or ())),
        which=which,
        where=where,
        limit=given.limit,
        rate=pace,
    )


def can_ask() -> bool:
    return sys.stdin.isatty()


def run(target: options.Target, choice: Choice, given: options.Bulk, *, as_json: bool) -> None:
    """Move the selected jobs, exactly those that were counted and confirmed, and report.

    In the `background`, workers do it: a bulk operation is started.

    Raises:
        typer.BadParameter: it has to be confirmed, and stdin is not a terminal; or workers are to
            do it, and the jobs are selected by their ids.
    """
    background, dry_run, yes = given.background, given.dry_run, given.confirmed
    if background and choice.ids:
        raise typer.BadParameter("--background needs conditions such as --kind, or --all, not ids")
    if not (yes or dry_run or can_ask()):
        raise typer.BadParameter(
            f"{choice.verb} cannot be undone; confirm with --yes (stdin is not a terminal), or "
            "use --dry-run to count the jobs"
        )

    if background and not dry_run:
        _start(target, choice, as_json=as_json, yes=yes)
        return

    async def work(chosen: Windlass) -> BulkMove:
        ids, refused = await _gather(chosen, choice)
        if dry_run or not ids:
            return BulkMove(matched=len(ids), refused=refused, dry_run=dry_run)
        if not (yes or _confirms(choice, show.plural(len(ids), choice.noun))):
            return BulkMove(matched=len(ids), refused=refused, declined=True)
        done = await _move(chosen, choice, ids)
        return BulkMove(matched=len(ids), done=done, refused=refused)

    report(target.visit(work), choice, as_json=as_json)


def _confirms(choice: Choice, jobs: str) -> bool:
    return typer.confirm(_QUESTIONS[choice.verb].format(jobs), err=True)


def _start(target: options.Target, choice: Choice, *, as_json: bool, yes: bool) -> None:
    async def work(chosen: Windlass) -> tuple[BulkOperation | None, bool]:
        if not yes and not await _is_confirmed(chosen, choice):
            return None, True
        started = await chosen.control.astart_bulk(
            cast("BulkVerb", choice.verb.value),
            rate=None if choice.rate is None else str(choice.rate),
            limit=choice.limit,
            **choice.where,
        )
        return started, any(worker.alive for worker in await chosen.store.workers())

    operation, is_served = target.visit(work)
    if operation is None:
        show.note("nothing was started")
        raise typer.Exit(1)
    if as_json:
        show.document(bulk_facts(operation))
    else:
        jobs = counted(operation.matched, choice.noun, is_capped=operation.is_capped)
        show.say(f"bulk operation {operation.id} started: {operation.verb} {jobs}")
        show.note(f"follow it with: windlass bulk show {operation.id}")
    if not is_served:
        show.note("no worker is running; the operation waits for one")


async def _is_confirmed(app: Windlass, choice: Choice) -> bool:
    number, is_capped = await count_some(app.store, choice.which, choice.limit)
    return _confirms(choice, counted(number, choice.noun, is_capped=is_capped))


def counted(number: int, noun: str, *, is_capped: bool) -> str:
    """Write a number of jobs: `412 dead jobs`, `more than 10,000 jobs`."""
    return f"more than {show.plural(number, noun)}" if is_capped else show.plural(number, noun)


def report(move: BulkMove, choice: Choice, *, as_json: bool) -> None:
    """Print the result; the exit code is 1 if anything was refused, or not confirmed."""
    done = _DONE[choice.verb]
    if as_json:
        show.document(
            {
                "matched": move.matched,
                done: move.done,
                "dry_run": move.dry_run,
                "refused": move.refused,
            }
        )
    elif move.dry_run:
        show.say(f"{show.plural(move.matched, choice.noun)} would be {done}")
    elif move.declined:
        show.note(f"nothing was {done}")
    else:
        left = move.matched - move.done
        rest = f"; {show.plural(left, 'other')} changed in the meantime" if left else ""
        show.say(f"{show.plural(move.done, choice.noun)} {done}{rest}")
    for each in move.refused:
        show.error(each["error"])
    if move.refused or move.declined:
        raise typer.Exit(1)


async def _gather(app: Windlass, choice: Choice) -> tuple[list[UUID], list[Facts]]:
    if not choice.ids:
        return await search(app.store, choice.which, choice.limit), []
    found: list[UUID] = []
    refused: list[Facts] = []
    for text in choice.ids:
        try:
            job_id = await app.jobs.ajob_id(text)
        except (UnknownJob, AmbiguousId) as error:
            refused.append({"id": text, "error": str(error)})
            continue
        job = await app.store.get(job_id)
        if job is not None and job.state in choice.which.states:
            found.append(job_id)
        else:
            refused.append({"id": str(job_id), "error": _why_not(job_id, job, choice)})
    return list(dict.fromkeys(found)), refused


async def _move(app: Windlass, choice: Choice, ids: Sequence[UUID]) -> int:
    size, pause = (CHUNK, 0.0) if choice.rate is None else _pace(choice.rate)
    moving = move_in_chunks(
        app.control,
        choice.verb,
        ids,
        which=choice.which,
        size=size,
        by_id=bool(choice.ids),
    )
    seen = done = 0
    with _progress(len(ids), slow=choice.rate is not None) as advance:
        async for looked_at, moved in moving:
            seen += looked_at
            done += moved
            advance(looked_at)
            if pause and seen < len(ids):
                await asyncio.sleep(pause)
    return done


def _pace(rate: Rate) -> tuple[int, float]:
    # At most ten steps a second.
    each = rate.period / rate.starts
    size = min(max(int(0.1 / each), 1), CHUNK)
    return size, size * each


@contextmanager
def _progress(total: int, *, slow: bool) -> Iterator[Callable[[int], None]]:
    # Here, since most commands show no progress, and this import takes as long as a look at jobs.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = show.stderr()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("jobs", style="dim"))
    hidden = not console.is_terminal or (total <= CHUNK and not slow)
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


def _why_not(job_id: UUID, job: Job | None, choice: Choice) -> str:
    if job is None:
        return str(UnknownJob(job_id))
    meant = " or ".join(state for state in State if state in choice.which.states)
    return f"job {job_id} is {job.state}, not {meant}"
