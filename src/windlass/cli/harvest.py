"""Owns moves of many dead jobs: which are meant is found first, then they go in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from windlass.app import Windlass
from windlass.cli import show, target
from windlass.cli.facts import Facts
from windlass.core.changes import Verb
from windlass.core.errors import UnknownJob
from windlass.core.job import Job, JobFilter
from windlass.core.limits import Rate
from windlass.core.states import State

CHUNK = 500


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which dead jobs are meant: those with these ids, or those that fit."""

    ids: tuple[UUID, ...] = ()
    which: JobFilter
    limit: int | None = None
    rate: Rate | None = None
    """How many are moved in how long; None: as fast as it goes."""


@dataclass(frozen=True, kw_only=True)
class Harvest:
    """What came of it."""

    matched: int
    done: int = 0
    refused: Sequence[Facts] = ()
    dry_run: bool = False
    declined: bool = False


def reap(
    app: str | None,
    url: str | None,
    verb: Verb,
    choice: Choice,
    *,
    dry_run: bool,
    confirm: Callable[[int], bool] = lambda _: True,
) -> Harvest:
    """Move the chosen jobs; what was counted and confirmed is what is moved, and nothing else."""

    async def work(chosen: Windlass) -> Harvest:
        ids, refused = await _gather(chosen, choice)
        if dry_run or not ids:
            return Harvest(matched=len(ids), refused=refused, dry_run=dry_run)
        if not confirm(len(ids)):
            return Harvest(matched=len(ids), refused=refused, declined=True)
        done = await _move(chosen, verb, ids, choice.rate)
        return Harvest(matched=len(ids), done=done, refused=refused)

    return target.visit(app, url, work)


async def _gather(app: Windlass, choice: Choice) -> tuple[list[UUID], list[Facts]]:
    """Find the ids of the dead jobs that are meant, and what is wrong with the others."""
    if not choice.ids:
        return await search(app, choice), []
    found: list[UUID] = []
    refused: list[Facts] = []
    for job_id in choice.ids:
        job = await app.store.get(job_id)
        if job is not None and job.state is State.DEAD:
            found.append(job_id)
        else:
            refused.append({"id": str(job_id), "error": _why_not(job_id, job)})
    return found, refused


async def search(app: Windlass, choice: Choice) -> list[UUID]:
    """Find the ids of all dead jobs that fit, the newest first."""
    found: list[UUID] = []
    after: UUID | None = None
    while choice.limit is None or len(found) < choice.limit:
        room = CHUNK if choice.limit is None else min(CHUNK, choice.limit - len(found))
        page = await app.store.find(choice.which, limit=room, after=after)
        found += [job.id for job in page.jobs]
        after = page.after
        if after is None:
            break
    return found


async def _move(app: Windlass, verb: Verb, ids: Sequence[UUID], rate: Rate | None) -> int:
    move = app.control.redrive if verb is Verb.REDRIVE else app.control.purge
    done = 0
    size, pause = (CHUNK, 0.0) if rate is None else _pace(rate)
    oldest_first = list(reversed(ids))
    with _progress(len(ids), slow=rate is not None) as advance:
        for start in range(0, len(ids), size):
            if start:
                await asyncio.sleep(pause)
            chunk = oldest_first[start : start + size]
            done += len(await move(chunk))
            advance(len(chunk))
    return done


def _pace(rate: Rate) -> tuple[int, float]:
    """Return how many go at once, and how long to wait before the next: ten steps a second."""
    each = rate.period / rate.starts
    size = min(max(int(0.1 / each), 1), CHUNK)
    return size, size * each


@contextmanager
def _progress(total: int, *, slow: bool) -> Iterator[Callable[[int], None]]:
    """Show how far it is, where somebody looks and it takes its time."""
    console = show.stderr()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("jobs", style="dim"))
    hidden = not console.is_terminal or (total <= CHUNK and not slow)
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


def _why_not(job_id: UUID, job: Job | None) -> str:
    if job is None:
        return str(UnknownJob(job_id))
    return f"job {job_id} is {job.state}, not dead"
