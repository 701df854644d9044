"""Owns the app under chaos: a kind of job for each promise, whose runs the ledger records.

A worker loads it like any other: `windlass worker windlass.chaos.workload:app`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

from windlass.app import Windlass
from windlass.chaos.ledger import Ledger
from windlass.chaos.terms import CONCURRENCY, EFFECTS, RATE, SCHEMA, STEPS, Receipt
from windlass.core.errors import PermanentError
from windlass.core.jobs.retry import Retry
from windlass.handlers.any_context import AnyContext
from windlass.handlers.context import Context, current_context
from windlass.handlers.steps import current_step
from windlass.handlers.sync_context import SyncContext

_INSERT = f"INSERT INTO {SCHEMA}.{EFFECTS} (job, attempt) VALUES (%s, %s)"  # noqa: S608
_OFTEN = Retry(max_retries=100, initial="50ms", max_delay="400ms")
"""Faults fail handlers too, by their connections; no job runs out of retries for that."""

app = Windlass()
ledger = Ledger.of_environment()


@contextmanager
def recorded(ctx: AnyContext, name: str) -> Iterator[Receipt]:
    """Record a run: its beginning, and whether it came to its end, failed, or was cut off."""
    job, receipt = str(ctx.job_id), Receipt(ctx.attempt, secrets.token_hex(8))

    def note(what: str) -> None:
        ledger.write(what, job=job, attempt=receipt.attempt, name=name, mark=receipt.mark)

    note("begin")
    try:
        yield receipt
    except asyncio.CancelledError:
        note("cut")
        raise
    except BaseException:
        note("failed")
        raise
    note("end")


# -- jobs that only have to end ----------------------------------------------------------------


@app.job(name="plain", retry=_OFTEN)
async def plain(ctx: Context, seconds: float = 0.0) -> Receipt:
    """Complete."""
    with recorded(ctx, "plain") as receipt:
        await asyncio.sleep(seconds)
    return receipt


@app.job(name="threaded", retry=_OFTEN)
def threaded(ctx: SyncContext, seconds: float = 0.0) -> Receipt:
    """Complete, in a thread."""
    with recorded(ctx, "threaded") as receipt:
        time.sleep(seconds)
    return receipt


@app.job(name="isolated", retry=_OFTEN, isolate=True)
def isolated(ctx: SyncContext, seconds: float = 0.0) -> Receipt:
    """Complete, in a child process."""
    with recorded(ctx, "isolated") as receipt:
        time.sleep(seconds)
    return receipt


@app.job(name="flaky", retry=_OFTEN)
async def flaky(ctx: Context) -> Receipt:
    """Fail the first time."""
    with recorded(ctx, "flaky") as receipt:
        if ctx.attempt == 1:
            raise ConnectionError("not the first time")
    return receipt


@app.job(name="transfer", retry=_OFTEN)
async def transfer(ctx: Context, seconds: float = 0.0) -> None:
    """Have an effect in the database of the jobs."""
    with recorded(ctx, "transfer"):
        async with ctx.transaction() as connection:
            await connection.execute(_INSERT, [str(ctx.job_id), ctx.attempt])
            await asyncio.sleep(seconds)


# -- jobs that have to wait for each other -----------------------------------------------------


@app.job(name="unique", retry=_OFTEN, unique="key")
async def unique(ctx: Context, key: str, seconds: float = 0.0) -> Receipt:  # noqa: ARG001
    """Be the only one of a key that is not finished."""
    with recorded(ctx, "unique") as receipt:
        await asyncio.sleep(seconds)
    return receipt


@app.job(name="limited", retry=_OFTEN, concurrency=CONCURRENCY)
async def limited(ctx: Context, seconds: float = 0.0) -> Receipt:
    """Run beside few others."""
    with recorded(ctx, "limited") as receipt:
        await asyncio.sleep(seconds)
    return receipt


@app.job(name="paced", retry=_OFTEN, rate=f"{RATE}/s")
async def paced(ctx: Context) -> Receipt:
    """Begin not too soon after others."""
    with recorded(ctx, "paced") as receipt:
        await asyncio.sleep(0)
    return receipt


@app.job(name="ordered", retry=_OFTEN, key="account", ordered=True)
async def ordered(ctx: Context, account: str, fails: bool = False) -> Receipt:
    """Come after those of the same account that were enqueued before."""
    with recorded(ctx, "ordered") as receipt:
        await asyncio.sleep(0.01)
        if fails and ctx.attempt == 1:
            raise ConnectionError(f"not the first time of {account}")
    return receipt


@app.job(name="member", retry=_OFTEN)
async def member(ctx: Context, seconds: float = 0.0) -> Receipt:
    """Be one of a flow."""
    with recorded(ctx, "member") as receipt:
        await asyncio.sleep(seconds)
    return receipt


@app.job(name="tick", retry=_OFTEN)
async def tick(ctx: Context) -> Receipt:
    """Be enqueued by a schedule."""
    with recorded(ctx, "tick") as receipt:
        await asyncio.sleep(0)
    return receipt


# -- jobs of steps -----------------------------------------------------------------------------


def _note_step(what: str) -> None:
    ctx, step = current_context(), current_step()
    ledger.write(what, job=str(ctx.job_id), attempt=ctx.attempt, name=step.name)


async def _do(seconds: float) -> int:
    _note_step("step")
    await asyncio.sleep(seconds)
    _note_step("step-end")
    return os.getpid()


async def _undo(seconds: float) -> None:
    _note_step("undo")
    await asyncio.sleep(seconds / 2)
    _note_step("undo-end")


@app.job(name="staged", retry=_OFTEN)
async def staged(ctx: Context, seconds: float = 0.0) -> Receipt:
    """Do each step once that was recorded."""
    with recorded(ctx, "staged") as receipt:
        for name in STEPS:
            await ctx.step(name, _do, seconds)
    return receipt


@app.job(name="saga", retry=_OFTEN)
async def saga(ctx: Context, seconds: float = 0.0) -> Receipt:
    """Fail for good after the last step, so that all are undone."""
    with recorded(ctx, "saga"):
        for name in STEPS:
            await ctx.step(name, _do, seconds, undo=_undo, undo_retry=_OFTEN)
        raise PermanentError("sagas of chaos are undone")
