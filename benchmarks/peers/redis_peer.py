"""Owns what the peers on Redis in Python have in common: nothing to install, threads that serve."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import ClassVar


class RedisPeer:
    """A queue that makes its keys by itself."""

    chunk: ClassVar[int] = 1_000
    new_loop: ClassVar[Callable[[], asyncio.AbstractEventLoop] | None] = None

    async def install(self) -> None:
        """Nothing: it makes its keys when it has to."""

    async def open(self) -> None:
        """Nothing: it connects when it has to."""

    async def close(self) -> None:
        """Nothing: its connections end with the process."""


class BlockingPeer(RedisPeer):
    """A queue whose calls block."""

    def enqueue_blocking(self) -> None:
        """Enqueue one no-op, and return when Redis has it."""
        raise NotImplementedError

    async def enqueue(self) -> None:
        """Enqueue one no-op, and return when Redis has it."""
        self.enqueue_blocking()


async def serve_in_thread(run: Callable[[], object], stop: Callable[[], object]) -> None:
    """Let a worker that blocks serve in a thread of its own, until cancelled."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def serve() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - it is raised where the worker is awaited.
            loop.call_soon_threadsafe(ended.set_exception, error)
        else:
            loop.call_soon_threadsafe(_end, ended)

    # A daemon: a worker that does not end by itself must not keep the process alive.
    threading.Thread(target=serve, daemon=True).start()
    try:
        await asyncio.shield(ended)
    finally:
        stop()


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
