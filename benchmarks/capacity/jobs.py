"""Owns the app whose workers are measured: handlers that do nothing, each in its way."""

from __future__ import annotations

import asyncio
import time

from windlass import Context, Windlass

app = Windlass()


@app.job(name="noop")
async def noop() -> None:
    """Do nothing, in the event loop."""


@app.job(name="threaded")
def threaded() -> None:
    """Do nothing, in a thread."""


@app.job(name="isolated", isolate=True)
def isolated() -> None:
    """Do nothing, in a child process."""


@app.job(name="nap")
async def nap(ms: float) -> None:
    """Wait, as for a network."""
    await asyncio.sleep(ms / 1000)


@app.job(name="carry")
async def carry(text: str) -> None:
    """Take a payload of some size."""
    del text


@app.job(name="stamped")
async def stamped(sent: int) -> int:
    """Tell how many nanoseconds ago the enqueue began, by the clock that all processes share."""
    return time.monotonic_ns() - sent


@app.job(name="hold", timeout="10m")
async def hold(ctx: Context) -> int:
    """Run until killed; the second time, tell at once when that began."""
    began = time.monotonic_ns()
    if ctx.attempt == 1:
        await asyncio.sleep(600)
    return began


@app.job(name="produce")
async def produce() -> None:
    """Enqueue, through the pool of the worker process."""
    await noop.aenqueue()
