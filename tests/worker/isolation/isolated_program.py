"""Handlers for child processes, which import this file; each test gets a copy of its own."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from windlass import (
    Callbacks,
    CallNext,
    Context,
    Inject,
    PermanentError,
    RetryAfter,
    Snooze,
    SyncContext,
    Windlass,
    current_context,
)

HERE = Path(__file__).parent
NOTES = HERE / "notes"
started: list[str] = []


def note(text: str) -> None:
    with NOTES.open("a") as notes:
        notes.write(f"{text}\n")


async def around(ctx: Context, call_next: CallNext) -> Any:
    value = await call_next()
    return value + 40 if ctx.kind == "surrounded" else value


app = Windlass(middleware=[around])
app.on_job_error(lambda ctx, error: note(f"error {ctx.kind} {type(error).__name__}"))


@app.on_child_start
async def prepare() -> None:
    started.append("prepared")


class Pool: ...


class Broken(BaseException):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("nobody looks at this")

    def __str__(self) -> str:
        sys.exit(3)


@app.provide
def pool() -> Iterator[Pool]:
    yield Pool()
    if (HERE / "clings").exists() and started:  # Only in children there was a start.
        time.sleep(60)
    (HERE / f"closed-{os.getpid()}").touch()


@app.job(isolate=True)
def where() -> tuple[int, int, bool]:
    is_main = threading.current_thread() is threading.main_thread()
    return os.getpid(), os.getppid(), is_main


@app.job(isolate=True)
def rest() -> int:
    time.sleep(0.5)
    return os.getpid()


@app.job(isolate=True)
async def where_async() -> tuple[int, int]:
    await asyncio.sleep(0)
    return os.getpid(), os.getppid()


@app.job(isolate=True, middleware=[Callbacks(completed=lambda ctx, value: note(f"done {value}"))])
def surrounded(n: int) -> int:
    assert current_context().job.kind == "surrounded"
    return n + 1


def linger(ctx: Context, *_: object) -> None:
    note(f"heard {ctx.kind} in {'a child' if started else 'the worker'}")
    if ctx.kind.startswith("kill") and started:
        os.kill(os.getpid(), signal.SIGKILL)
    if started:
        time.sleep(60)


lingering = Callbacks(completed=linger, failed=linger)


@app.job(isolate=True, middleware=[lingering], timeout="1s", grace="100ms", max_retries=0)
def linger_after_success() -> int:
    return 7


@app.job(isolate=True, middleware=[lingering], timeout="1s", grace="100ms", max_retries=0)
def linger_after_failure() -> None:
    raise ValueError("no")


@app.job(isolate=True, middleware=[lingering], max_retries=0)
async def kill_after_success() -> int:
    return 7


@app.job(isolate=True)
def already_done(ctx: SyncContext) -> bool:
    return ctx.already_done()


@app.job(isolate=True)
async def already_done_async(ctx: Context) -> bool:
    return await ctx.already_done()


@app.job(isolate=True, idempotent="result", idempotency_key="n")
def once(n: int) -> int:
    note(f"once {n}")
    return os.getpid()


@app.job(isolate=True)
def hooked() -> list[str]:
    return started


@app.job(isolate=True)
def tell_progress(ctx: SyncContext) -> None:
    for step in range(1000):
        ctx.progress(step / 1000, f"step {step}")
    while not (HERE / "gate").exists():
        time.sleep(0.01)


@app.job(isolate=True, max_retries=0)
async def cancel_itself(ctx: Context, place: str) -> None:
    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0.01)

    await (ctx.step("cancel", cancel) if place == "step" else cancel())


@app.job(isolate=True, max_retries=0)
async def end_the_loop(way: str) -> None:
    loop = asyncio.get_running_loop()
    if way == "stop":
        loop.stop()
    elif way == "callback":
        loop.call_soon(sys.exit, 3)
    else:
        for task in asyncio.all_tasks():
            task.cancel()
    await asyncio.sleep(60)


@app.job(isolate=True, max_retries=0)
async def exit_in_a_task() -> None:
    async def leave() -> None:
        sys.exit(3)

    await asyncio.gather(leave(), asyncio.sleep(60))


@app.job(isolate=True)
def raise_it(what: str) -> None:
    raise {
        "RetryAfter": RetryAfter("1h"),
        "PermanentError": PermanentError("never"),
        "ValueError": ValueError("no"),
        "SystemExit": SystemExit(3),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "CancelledError": asyncio.CancelledError(),
        "StopIteration": StopIteration(),
        "Broken": Broken(),
    }[what]


@app.job(isolate=True, max_retries=0)
async def raise_it_async(what: str) -> None:
    raise_it(what)


@app.job(isolate=True, max_retries=0)
def return_an_object() -> object:
    return object()


@app.job(isolate=True)
def snooze() -> Snooze:
    return Snooze("1h")


@app.job(isolate=True)
def enqueue_another() -> str:
    return str(where.enqueue().id)


@app.job(isolate=True)
def transact(ctx: SyncContext) -> str:
    with ctx.transaction() as db:
        db.execute("CREATE TABLE public.done AS SELECT 1 AS n")
    return "ignored"


@app.job(isolate=True)
async def transact_async(ctx: Context) -> None:
    async with ctx.transaction() as db:
        await db.execute("CREATE TABLE public.done AS SELECT 1 AS n")


@app.job(isolate=True, timeout="300ms", max_retries=0)
def overrun(ctx: SyncContext) -> None:
    try:
        time.sleep(60)
    except TimeoutError as error:
        note(f"cleaned up: {error}, {ctx.cancelled}")
        raise


@app.job(isolate=True, timeout="300ms", max_retries=0)
async def overrun_async(ctx: Context) -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        note(f"cleaned up: {ctx.cancelled}")
        raise


@app.job(isolate=True, timeout="300ms", grace="300ms", max_retries=0)
def ignore_everything() -> None:
    note(f"pid {os.getpid()}")
    while True:
        try:
            time.sleep(60)
        except TimeoutError:
            note("ignored")


@app.job(isolate=True, timeout="300ms", max_retries=0)
def finish_in_grace(ctx: SyncContext) -> str:
    while True:
        try:
            time.sleep(60)
        except TimeoutError:
            return "finished after all"


@app.job(isolate=True, timeout=None)
def wait(ctx: SyncContext) -> None:
    note(f"pid {os.getpid()}")
    try:
        while not (HERE / "gate").exists():
            time.sleep(0.01)
    except asyncio.CancelledError:
        note(f"cancelled {ctx.cancelled}")
        raise


@app.job(memory="150MB", max_retries=0)
def hoard() -> None:
    hoarded = []
    while True:
        hoarded.append(os.urandom(2**20))


@app.job(memory="150MB", max_retries=0)
def hoard_in_a_fork() -> None:
    if os.fork() == 0:
        hoard()
    os.wait()


@app.job(memory="150MB")
def share_with_forks() -> str:
    kept = os.urandom(60 * 2**20)
    forks = [pid for _ in range(3) if (pid := _linger(0.5, kept))]
    for pid in forks:
        os.waitpid(pid, 0)
    return "kept"


def _linger(seconds: float, kept: bytes) -> int:
    pid = os.fork()
    if pid == 0:
        time.sleep(seconds)
        os._exit(len(kept) > 0)
    return pid


kept: list[bytes] = []


@app.job(memory="200MB", max_retries=0)
def keep() -> int:
    kept.append(os.urandom(90_000_000))
    return os.getpid()


@app.job(isolate=True)
def die(how: str) -> None:
    logging.getLogger("nursery").warning("the last line of %s", how)
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    else:
        os.kill(os.getpid(), getattr(signal, how))


async def loop_dependency() -> AsyncIterator[int]:
    yield os.getpid()
    note("loop closed")


def main_dependency(pid: int = Inject(loop_dependency)) -> Iterator[tuple[int, bool]]:
    yield pid, threading.current_thread() is threading.main_thread()
    note("main closed")


@app.job(isolate=True)
def with_dependencies(found: tuple[int, bool] = Inject(main_dependency)) -> tuple[int, bool, int]:
    note("run")
    return *found, os.getpid()


@app.job
async def ordinary(how: str = "") -> int:
    if how:
        die(how)
    return os.getpid()


@app.job
def ordinary_in_thread() -> int:
    return os.getpid()
