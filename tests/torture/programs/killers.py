"""Owns the isolated handlers that the torture tests run: each would take a worker with it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

from tests.torture.programs.handlers import NEVER, YARD, is_open, note
from windlass import Context, SyncContext, Windlass

app = Windlass()


@app.job
async def neighbour(ctx: Context) -> int:
    """Run on the loop of the worker."""
    return os.getpid()


@app.job(isolate=True)
def quiet(ctx: SyncContext) -> int:
    return os.getpid()


@app.job(isolate=True, timeout=None)
def wait(ctx: SyncContext, gate: str) -> int:
    note(ctx, "start")
    while not is_open(gate):
        time.sleep(0.01)
    return os.getpid()


@app.job(isolate=True, timeout=None)
def wait_holding_the_lock(ctx: SyncContext) -> None:
    """Keep every other thread of the child from running, so that none notices anything."""
    note(ctx, "start")
    ctypes.PyDLL(None).sleep(600)


# -- those that die ----------------------------------------------------------------------------


@app.job(isolate=True)
def segfault(ctx: SyncContext) -> None:
    ctx.log.warning("famous.last_words")
    ctypes.string_at(0)


@app.job(isolate=True)
def leave(ctx: SyncContext) -> None:
    ctx.log.warning("famous.last_words")
    os._exit(3)


@app.job(isolate=True)
def close_everything(ctx: SyncContext) -> None:
    ctx.log.warning("famous.last_words")
    os.closerange(3, 1000)


# -- those that do not return ------------------------------------------------------------------


@app.job(isolate=True, timeout="500ms", grace="500ms", retry=NEVER)
def loop_in_python(ctx: SyncContext) -> None:
    note(ctx, "start")
    while True:
        try:
            while True:
                time.sleep(0.001)
        except TimeoutError:
            continue


@app.job(isolate=True, timeout="500ms", grace="500ms", retry=NEVER)
def loop_in_c(ctx: SyncContext) -> None:
    note(ctx, "start")
    ctypes.PyDLL(None).sleep(600)


@app.job(isolate=True, timeout="500ms", grace="500ms", retry=NEVER)
async def loop_in_a_coroutine(ctx: Context) -> None:
    note(ctx, "start")
    while True:
        time.sleep(0.001)  # noqa: ASYNC251 - the very misbehaviour.


@app.job(isolate=True, timeout="500ms", grace="500ms", retry=NEVER)
def stand_still(ctx: SyncContext) -> None:
    note(ctx, "start")
    os.kill(os.getpid(), signal.SIGSTOP)


@app.job(isolate=True, timeout="500ms", grace="500ms", retry=NEVER)
def leave_it_to_a_program(ctx: SyncContext) -> None:
    """Wait for a program that outlives the handler, but not the child."""
    note(ctx, "start")
    program = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    (YARD / "program").write_text(str(program))
    os.waitpid(program, 0)


@app.job(memory="150MB", retry=NEVER)
def eat(ctx: SyncContext) -> None:
    eaten = []
    while True:
        eaten.append(os.urandom(2**20))


# -- those that only look bad ------------------------------------------------------------------


@app.job(isolate=True)
def fork_and_exit(ctx: SyncContext) -> str:
    if (fork := os.fork()) == 0:
        sys.exit(3)
    os.waitpid(fork, 0)
    return "forked"


@app.job(isolate=True)
def fork_and_return(ctx: SyncContext) -> str:
    """Return twice: the answer of the fork is nobody's."""
    fork = os.fork()
    if fork != 0:
        os.waitpid(fork, 0)
    return "parent" if fork else "fork"


@app.job(isolate=True)
async def fork_in_a_coroutine(ctx: Context) -> str:
    return "parent" if os.fork() else "fork"


@app.job(isolate=True)
def print_a_lot(ctx: SyncContext) -> str:
    for _ in range(100):
        print("x" * 100_000)
    return "printed"


@app.job(isolate=True)
def close_some(ctx: SyncContext) -> str:
    os.closerange(3, 51)
    return "closed"
