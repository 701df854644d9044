"""Owns shell completion from the store: ids, kinds and queues, by one quick look.

A shell waits for this with every Tab. So a look is bounded in rows and in time, errors complete
nothing and print nothing, and no store is ever created.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from windlass.core.jobs.ids import SHORTEST, read_id
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State
from windlass.core.search.suggest import suggest
from windlass.core.workflows.flow_graph import FLOW_KIND

if TYPE_CHECKING:
    from windlass.app import Windlass

T = TypeVar("T")
_TIMEOUT_SECONDS = 2.0
_MAX_RECENT_JOBS = 200
"""How many of the newest jobs are considered."""


def job_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the newest ids with this prefix, each with the kind and state of its job."""
    return _ids(ctx, incomplete)


def dead_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the same for dead jobs."""
    return _ids(ctx, incomplete, states=(State.DEAD,))


def flow_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the same for flows."""
    return _ids(ctx, incomplete, kind=FLOW_KIND)


def kinds(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the kinds of waiting and recent jobs, and those that a worker serves."""

    async def work(app: Windlass) -> set[str]:
        store = app.store
        heads = (await store.sweep()).heads
        recent = (await store.find(JobFilter(), limit=_MAX_RECENT_JOBS, brief=True)).jobs
        served = [worker.info.kinds for worker in await store.workers()]
        named = {head.lane.kind for head in heads} | {job.kind for job in recent}
        return named.union(app.registry, *served)

    return _fitting(((name, "") for name in sorted(_look(ctx, work) or ())), incomplete)


def queues(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the queues of waiting and recent jobs, and those that a worker names."""

    async def work(app: Windlass) -> set[str]:
        store = app.store
        heads = (await store.sweep()).heads
        recent = (await store.find(JobFilter(), limit=_MAX_RECENT_JOBS, brief=True)).jobs
        served = [worker.info.queues for worker in await store.workers()]
        return ({head.lane.queue for head in heads} | {job.queue for job in recent}).union(*served)

    return _fitting(((name, "") for name in sorted(_look(ctx, work) or ())), incomplete)


def searches(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return how a search may go on, with the kinds, queues, workers and tags of recent jobs."""

    async def work(app: Windlass) -> dict[str, set[str]]:
        recent = (await app.store.find(JobFilter(), limit=_MAX_RECENT_JOBS)).jobs
        return {
            "kind": {job.kind for job in recent}.union(app.registry),
            "queue": {job.queue for job in recent},
            "worker": {worker.info.id for worker in await app.store.workers()},
            "tag": {tag for job in recent for tag in job.tags},
            "key": {job.key for job in recent if job.key},
        }

    known = {name: sorted(values) for name, values in (_look(ctx, work) or {}).items()}
    found = suggest(incomplete, len(incomplete), known)
    return [(incomplete[: each.start] + each.text, each.help) for each in found]


def _ids(
    ctx: typer.Context, incomplete: str, *, kind: str | None = None, states: tuple[State, ...] = ()
) -> list[tuple[str, str]]:
    async def work(app: Windlass) -> list[Job]:
        first = last = None
        if len(incomplete.replace("-", "")) >= SHORTEST:
            first, last = read_id(incomplete)
        which = JobFilter(kind=kind, states=states, first=first, last=last)
        return list((await app.store.find(which, limit=_MAX_RECENT_JOBS, brief=True)).jobs)

    found = _look(ctx, work) or ()
    return _fitting(((str(job.id), f"{job.kind}, {job.state}") for job in found), incomplete)


def _fitting(named: Iterable[tuple[str, str]], incomplete: str) -> list[tuple[str, str]]:
    begun = incomplete.lower()
    return [(name, help_) for name, help_ in named if name.lower().startswith(begun)]


def _look(ctx: typer.Context, work: Callable[[Windlass], Coroutine[Any, Any, T]]) -> T | None:
    # The shell would take output of an imported app for completions.
    silent = io.StringIO()
    try:
        with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
            from windlass.cli import app_target as target

            return target.visit(
                ctx.params.get("app"),
                ctx.params.get("url"),
                lambda app: asyncio.wait_for(work(app), _TIMEOUT_SECONDS),
            )
    except (Exception, SystemExit):  # noqa: BLE001 - a completion has no place for an error.
        return None
