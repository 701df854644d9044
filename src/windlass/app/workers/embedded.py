"""Owns how a program runs a worker inside itself: until it ends, or for the length of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Unpack, cast

from windlass.app.enqueueing.sender import Sender
from windlass.app.loop_thread import refuse_in_event_loop
from windlass.settings import FlagArguments

if TYPE_CHECKING:
    from windlass.worker import Worker


class EmbeddedWorkers(Sender):
    """The part of an app that runs workers in the process that calls it."""

    def run_worker(
        self, *, name: str = "", burst: bool = False, **flags: Unpack[FlagArguments]
    ) -> None:
        """Do what `arun_worker` does, in this thread; Ctrl-C drains it first."""
        refuse_in_event_loop("app.run_worker(...)", "await app.arun_worker(...)")
        asyncio.run(self.arun_worker(name=name, burst=burst, **flags))

    async def arun_worker(
        self, *, name: str = "", burst: bool = False, **flags: Unpack[FlagArguments]
    ) -> None:
        """Serve as a worker inside this program until cancelled; then drain, and return.

        Takes the settings as flags (`concurrency=10`, `queues={"mail": 5, "default": None}`). A
        `burst` ends by itself: see `worker`. The program's signals are left alone. A thread
        renews its lease: C code that holds the interpreter's lock for longer costs it its jobs.
        """
        await self._app.worker(name=name, burst=burst, **flags).run()

    @asynccontextmanager
    async def running(
        self, *, name: str = "", **flags: Unpack[FlagArguments]
    ) -> AsyncIterator[Worker]:
        """Run a worker inside this program for the length of a block; takes a worker's flags.

        The block begins when the worker is ready. At its end, running jobs may finish within the
        shutdown timeout; if the block is cancelled once more meanwhile, they are given back at
        once. What keeps the worker from starting or ending is raised here.

        Raises:
            ConfigError: a setting is wrong.
            StoreError: the store does not answer, or cannot be used.

        Example:
            `async with app.running(concurrency=10): await serve_requests()`
        """
        # Imported here: a program that only enqueues needs no worker.
        from windlass.app.workers.making import AnnouncedWorker

        made = self._app.worker(name=name, worker_class=AnnouncedWorker, **flags)
        worker = cast("AnnouncedWorker", made)
        serving = asyncio.create_task(worker.run(), name="windlass-worker")
        try:
            await asyncio.wait({serving, worker.started}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            yield worker
        finally:
            await _end(worker, serving)


async def _end(worker: Worker, serving: asyncio.Task[None]) -> None:
    """Stop the worker, wait until it has drained, and raise what went wrong with that."""
    if not serving.done():
        worker.stop()
        try:
            await asyncio.wait({serving})
        except asyncio.CancelledError:
            worker.stop()
            await asyncio.wait({serving})
            raise
    if not serving.cancelled():
        serving.result()
