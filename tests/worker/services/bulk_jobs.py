"""Owns the jobs that tests move in bulk, and how a worker carries an operation on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from tests.support.app_on_store import Bed, Clock
from windlass import PermanentError, State, Windlass
from windlass.core.jobs.bulk import BulkOperation, BulkState, name_of
from windlass.worker.services.bulk_operations import BulkOperations


def on_an_app(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[Bed], None]:
    """Give a test an app on each store; one that is made in a loop could not migrate its store."""
    return lambda bed: asyncio.run(test(bed.app()))


def on_a_clock(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[Bed], None]:
    """Give a test an app on a store whose clock the test moves."""

    def run(bed: Bed) -> None:
        clock = Clock()
        asyncio.run(test(bed.app(store=bed.store(clock=clock)), clock))

    return run


def with_jobs(app: Windlass) -> None:
    @app.job(queue="mail", max_retries=0)
    async def send_email(to: str, fails: bool = True) -> str:
        if fails:
            raise PermanentError("no such address")
        return to


async def waiting(app: Windlass, number: int, **options: Any) -> list[UUID]:
    if "send_email" not in app.registry:
        with_jobs(app)
    producer = app.producer("send_email").using(**options)
    drafts = [producer.draft({"to": str(n)}) for n in range(number)]
    return [handle.id for handle in await app.aenqueue_many(drafts)]


async def states(app: Windlass, ids: list[UUID]) -> Counter[State]:
    jobs = await app.store.get_many(ids)
    return Counter(jobs[job_id].state for job_id in ids if job_id in jobs)


async def carry_on(app: Windlass, operation: BulkOperation, steps: int = 1_000) -> BulkOperation:
    """Do steps as one worker does."""
    service = BulkOperations(app.store)
    await service.forget([name_of(operation.id)])
    while steps and service.is_busy:
        await service.tick()
        steps -= 1
    return await app.control.abulk(operation.id)


def all_are(app: Windlass, ids: list[UUID], state: State) -> Callable[[], Any]:
    async def check() -> bool:
        return await states(app, ids) == {state: len(ids)}

    return check


def has(app: Windlass, operation: BulkOperation, state: BulkState) -> Callable[[], Any]:
    async def check() -> bool:
        return (await app.control.abulk(operation.id)).state is state

    return check
