"""Owns jobs that end the event loop of the process which they run in, each in a way of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.support.ledger import Ledger
from windlass import Context, ErrorClass, Retry, Windlass

YARD = Path(os.environ["TORTURE_YARD"])
ledger = Ledger(YARD / "ledger")
app = Windlass()
AT_ONCE = Retry(max_retries=2, initial="1ms")


def leave(error: BaseException) -> bool:
    """End the program in the middle of a decision about an error."""
    sys.exit(3)


def classify(error: LookupError) -> ErrorClass:
    """Do the same where the class of an error is asked for."""
    raise KeyboardInterrupt


@app.job
async def neighbour(ctx: Context) -> None:
    """Run beside the others, and mind nothing."""
    ledger.write("start", ctx.job_id, ctx.attempt)
    while not (YARD / "gate-done").exists():  # noqa: ASYNC110 - gates are files.
        await asyncio.sleep(0.01)


# -- what ends the process -----------------------------------------------------------------------


@app.job(retry=AT_ONCE)
async def stop_the_loop() -> None:
    """Stop the loop, as a script does that is done."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(60)


@app.job(retry=AT_ONCE)
async def exit_in_a_callback() -> None:
    """End the program from a callback, which no task awaits."""
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.sleep(60)


@app.job(retry=AT_ONCE)
async def cancel_all_tasks() -> None:
    """Cancel whatever there is, as a shutdown does that somebody copied."""
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(60)


@app.job(retry=Retry(max_retries=1, initial="1ms"))
async def exit_in_a_signal_handler() -> None:
    """End the program from a signal handler, which runs in the middle of anything."""
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(3))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    await asyncio.sleep(60)


@app.job
async def signal_its_process(ctx: Context) -> None:
    """Ask the own process to end, as a program does that restarts itself."""
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60 if ctx.attempt == 1 else 0.01)


# -- what only fails -----------------------------------------------------------------------------


async def interrupted() -> None:
    """Be a task that ends the program."""
    await asyncio.sleep(0)
    raise KeyboardInterrupt


async def leaving() -> None:
    """Do the same by another exception."""
    await asyncio.sleep(0)
    sys.exit(3)


@app.job(retry=AT_ONCE)
async def gather_an_interrupt() -> None:
    """Await a task that raises KeyboardInterrupt."""
    await asyncio.gather(interrupted(), asyncio.sleep(60))


@app.job(retry=AT_ONCE)
async def await_an_exit() -> None:
    """Await a task that exits."""
    await asyncio.create_task(leaving())


@app.job
async def leave_an_exit_behind() -> None:
    """Start a task that exits, and do not await it."""
    app.__dict__["task"] = asyncio.create_task(leaving())
    await asyncio.sleep(0.05)


@app.job(retry=Retry(max_retries=2, when=leave, initial="1ms"))
async def exit_in_retry_when() -> None:
    """Fail, and exit where it is decided what becomes of that."""
    raise ValueError("no")


@app.job(retry=AT_ONCE, errors={LookupError: classify})
async def exit_in_a_classifier() -> None:
    """Fail, and exit where the class of the error is asked for."""
    raise LookupError("no")
