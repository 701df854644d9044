"""Owns the handlers that the torture tests run in worker processes: each misbehaves in one way.

A gate is a file; a handler waits for it, and so runs for exactly as long as its test wants.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.support.ledger import Ledger
from tests.torture.programs.odd_values import RAISED, RETURNED
from tests.torture.programs.patches import patch_as_told
from windlass import AnyContext, Backoff, Breaker, Context, Retry, SyncContext, Windlass

YARD = Path(os.environ["TORTURE_YARD"])
NEVER = Retry.never()
ledger = Ledger(YARD / "ledger")
app = Windlass()
stranger = Windlass()
"""An app that knows none of the kinds but one of its own."""


guarded = Windlass()
"""An app whose jobs go by a breaker."""


patch_as_told()


def is_open(gate: str) -> bool:
    return (YARD / f"gate-{gate}").exists()


if is_open("broken"):
    raise RuntimeError("this release was not tested")


def note(ctx: AnyContext, what: str) -> None:
    ledger.write(what, ctx.job_id, ctx.attempt)


@stranger.job
async def foreign(ctx: Context) -> None:
    note(ctx, "start")
    note(ctx, "end")


@guarded.job(
    breaker=Breaker("gateway", failures=3, cooldown="1s"),
    retry=Retry(max_retries=100, backoff=Backoff(base=timedelta(0))),
)
async def call_gateway(ctx: Context) -> None:
    """Fail while the gateway is down; when it comes up, it keeps callers waiting first."""
    if not is_open("up"):
        raise ConnectionRefusedError("the gateway is down")
    note(ctx, "start")
    while not is_open("swift"):  # noqa: ASYNC110 - gates are files.
        await asyncio.sleep(0.01)
    note(ctx, "end")


# -- handlers that behave ----------------------------------------------------------------------


@app.job
async def quick(ctx: Context, pause: float = 0.0) -> int:
    note(ctx, "start")
    await asyncio.sleep(pause)
    note(ctx, "end")
    return os.getpid()


@app.job
def quick_in_thread(ctx: SyncContext) -> int:
    note(ctx, "start")
    note(ctx, "end")
    return os.getpid()


@app.job
async def wait(ctx: Context, gate: str, attempts: int = 10**6) -> int:
    """Wait for a gate, on the first so many attempts."""
    note(ctx, "start")
    try:
        while ctx.attempt <= attempts and not is_open(gate):  # noqa: ASYNC110 - gates are files.
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        note(ctx, "cancelled")
        raise
    note(ctx, "end")
    return os.getpid()


@app.job(concurrency=4)
async def limited(ctx: Context, pause: float = 0.05) -> None:
    note(ctx, "start")
    await asyncio.sleep(pause)
    note(ctx, "end")


@app.job(rate="30/s")
async def paced(ctx: Context) -> None:
    note(ctx, "start")


@app.job(key="account", ordered=True, retry=Retry(max_retries=9, initial="50ms", max_delay="50ms"))
async def in_order(ctx: Context, account: str, fails: bool) -> None:
    note(ctx, f"start {account}")
    await asyncio.sleep(0.02)
    if fails and ctx.attempt == 1:
        note(ctx, f"failed {account}")
        raise ValueError("not yet")
    note(ctx, f"end {account}")


@app.job
async def labour(ctx: Context) -> None:
    """Keep the loop for as long as this process is slow."""
    note(ctx, "start")
    time.sleep(float(os.environ.get("TORTURE_LABOUR", "0")))  # noqa: ASYNC251 - on purpose.


@app.job
def wait_in_thread(ctx: SyncContext, gate: str) -> int:
    note(ctx, "start")
    while not is_open(gate):
        time.sleep(0.01)
    note(ctx, "end")
    return os.getpid()


# -- handlers that do not return ---------------------------------------------------------------


@app.job
async def block_loop_until(ctx: Context, gate: str, attempts: int) -> int:
    """Block the loop until a gate opens, on the first so many attempts."""
    note(ctx, "start")
    while ctx.attempt <= attempts and not is_open(gate):
        time.sleep(0.01)  # noqa: ASYNC251 - the very misbehaviour.
    note(ctx, "end")
    return os.getpid()


@app.job
async def block_loop_for(ctx: Context, seconds: float) -> int:
    note(ctx, "start")
    time.sleep(seconds)  # noqa: ASYNC251 - the very misbehaviour.
    note(ctx, "end")
    return os.getpid()


@app.job
async def hold_interpreter(ctx: Context, seconds: int) -> int:
    """Hold the interpreter's lock in C, so that no thread of this process runs any Python.

    A signal ends a sleep early, so that the sleep is begun again.
    """
    note(ctx, "start")
    library = ctypes.PyDLL(None)
    give_up = time.monotonic() + seconds
    while (left := give_up - time.monotonic()) > 0:
        library.usleep(int(left * 1e6))
    note(ctx, "end")
    return os.getpid()


@app.job(timeout="1s", retry=NEVER)
def loop_forever(ctx: SyncContext) -> None:
    note(ctx, "start")
    while True:
        time.sleep(0.001)


@app.job
async def swallow(ctx: Context) -> None:
    """Run for ever, and take no cancellation for an answer."""
    note(ctx, "start")
    while True:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            note(ctx, "swallowed")


@app.job
async def leave_a_thread(ctx: Context) -> None:
    """Wait for a thread that nobody but the interpreter's end waits for, and that never ends."""
    note(ctx, "start")
    await asyncio.to_thread(time.sleep, 600)


# -- handlers that take their process with them ------------------------------------------------


@app.job
async def die(ctx: Context) -> None:
    """End the process without a word: now by leaving, now by a segmentation fault."""
    note(ctx, "start")
    if ctx.attempt % 2:
        os._exit(3)
    ctypes.string_at(0)


@app.job
async def fork_and_go_on(ctx: Context) -> int:
    """Forget that a fork returns twice, and wait for something after it."""
    note(ctx, "start")
    pid = os.fork()
    note(ctx, "forked")
    await asyncio.sleep(0.3)
    note(ctx, "end")
    return pid


@app.job
def fork_in_thread(ctx: SyncContext) -> int:
    """Do the same in a thread, and return from it twice."""
    note(ctx, "start")
    pid = os.fork()
    note(ctx, "forked")
    return pid


@app.job
def leave_orphan(ctx: SyncContext) -> int:
    """Leave a process behind that ends after its parent, and whom nobody here waits for."""
    note(ctx, "start")
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        orphan = os.fork()
        if orphan == 0:
            time.sleep(0.2)
            os._exit(0)
        os.write(writes, str(orphan).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(reads, 20))


# -- handlers with effects ---------------------------------------------------------------------


@app.job
async def take_effect(ctx: Context, gate: str, attempts: int) -> None:
    """Have an effect that no transaction knows of, and a long way to the acknowledgement."""
    note(ctx, "start")
    note(ctx, f"effect {ctx.idempotency_key}")
    await held(ctx, gate, attempts)


@app.job
async def transact(
    ctx: Context, gate: str = "", attempts: int = 0, after: str = "", pause: float = 0.0
) -> None:
    """Have an effect in the transaction that completes the job; wait inside it, or after it."""
    note(ctx, "start")
    async with ctx.transaction() as conn:
        await conn.execute(EFFECT, (ctx.job_id, ctx.attempt))
        note(ctx, "inside")
        await asyncio.sleep(pause)
        await held(ctx, gate, attempts)
    note(ctx, "committed")
    await held(ctx, after, 10**6)


@app.job(retry=NEVER)
def transact_in_thread(ctx: SyncContext, gate: str = "", attempts: int = 0) -> None:
    """Do the same in a thread, which no cancellation can reach."""
    note(ctx, "start")
    with ctx.transaction() as conn:
        conn.execute(EFFECT, (ctx.job_id, ctx.attempt))
        note(ctx, "inside")
        while gate and ctx.attempt <= attempts and not is_open(gate):
            time.sleep(0.01)
    note(ctx, "committed")


EFFECT = "INSERT INTO public.effects (job, attempt) VALUES (%s, %s)"


async def held(ctx: Context, gate: str, attempts: int) -> None:
    while gate and ctx.attempt <= attempts and not is_open(gate):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@app.job(retry=NEVER)
async def fail(what: str) -> None:
    error = RAISED[what]()
    raise error


@app.job
async def fail_again(what: str) -> None:
    error = RAISED[what]()
    raise error


@app.job(retry=NEVER)
def fail_in_thread(what: str) -> None:
    error = RAISED[what]()
    raise error


@app.job(retry=NEVER)
async def give(what: str) -> Any:
    return RETURNED[what]()


@app.job(retry=NEVER)
async def take_text(ctx: Context, text: str) -> str:
    """Note that a text, which fits any text, got through to the handler."""
    note(ctx, "start")
    return text


@app.job(retry=NEVER)
async def take(ctx: Context, number: int) -> int:
    """Note that a payload got through to the handler."""
    note(ctx, "start")
    return number
