"""Owns the bridge from blocking code to coroutines: a thread with an event loop, one a process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from windlass.core.errors import CalledFromEventLoop

T = TypeVar("T")


class Portal:
    """Runs coroutines for threads that have no event loop. A forked child gets its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        os.register_at_fork(after_in_child=self._forget)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, and wait for what it returns."""
        return asyncio.run_coroutine_threadsafe(work, self._running()).result()

    def close(self) -> None:
        """End the loop and its thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="windlass-portal", daemon=True
                )
                self._thread.start()
            return self._loop

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop = None


async def _cancel_all() -> None:
    """End what is under way, so that nobody waits for ever for what a stopped loop never does."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def refuse_in_event_loop(called: str, instead: str, *names: str) -> None:
    """Keep a blocking call from stopping an event loop; `names` are put into what is said.

    Raises:
        CalledFromEventLoop: one is running in this thread.
    """
    # Not get_running_loop(): in the usual case that raises, which takes longer than all the rest.
    if asyncio._get_running_loop() is not None:
        raise CalledFromEventLoop(called.format(*names), instead.format(*names))
