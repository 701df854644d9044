"""Handlers with steps for child processes, which import this file; each test gets a copy of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from windlass import Context, PermanentError, Retry, SyncContext, Windlass, current_step

NOTES = Path(__file__).parent / "notes"
AT_ONCE = Retry(max_retries=5, initial="1ms")
app = Windlass()


def note(text: str) -> None:
    with NOTES.open("a") as notes:
        notes.write(f"{text}\n")


def do(name: str) -> str:
    note(f"do {name}")
    return name.upper()


async def do_async(name: str) -> str:
    return do(name)


def undo(name: str) -> None:
    step = current_step()
    note(f"undo {name} {step.result} {step.key.endswith(f'/{name}')}")


@app.job(isolate=True, retry=AT_ONCE)
def blocking(ctx: SyncContext) -> str:
    first = ctx.step("first", do, "first")
    ctx.sleep("1ms")
    if ctx.attempt == 2:
        raise ConnectionError
    return first + ctx.step("second", do, "second")


@app.job(isolate=True, retry=AT_ONCE)
async def awaiting(ctx: Context) -> str:
    first = await ctx.step("first", do, "first")
    await ctx.sleep("1ms")
    return first + await ctx.step("second", do_async, "second")


@app.job(isolate=True)
def failing(ctx: SyncContext) -> None:
    ctx.step("hotel", do, "hotel", undo=undo)
    ctx.step("flight", do, "flight", undo=undo)
    raise PermanentError("no seats")


@app.job(isolate=True)
async def dying(ctx: Context) -> None:
    await ctx.step("hotel", do_async, "hotel", undo=undo)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(isolate=True, timeout="2s", max_retries=0)
def late(ctx: SyncContext) -> None:
    ctx.step("hotel", do, "hotel", undo=undo)
    signal.pause()


@app.job(isolate=True)
async def changing(ctx: Context) -> None:
    await ctx.step("twice", do, "once")
    await ctx.step("twice", do, "twice")


@app.job(isolate=True)
def parking(ctx: SyncContext) -> object:
    return ctx.wait_for("paid", timeout="1d")


@app.job(isolate=True, retry=AT_ONCE)
def streaming(ctx: SyncContext) -> str:
    for number in range(1_000):
        ctx.stream(number)
    ctx.step("first", ctx.stream, "in a step")
    ctx.stream(f"attempt {ctx.attempt}")
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


@app.job(isolate=True, retry=AT_ONCE)
async def streaming_async(ctx: Context) -> str:
    for number in range(1_000):
        await ctx.stream(number)
    await ctx.step("first", ctx.stream, "in a step")
    await ctx.stream(f"attempt {ctx.attempt}")
    if ctx.attempt == 1:
        raise ConnectionError
    return "done"
