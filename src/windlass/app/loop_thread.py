"""Owns the bridge from blocking code to coroutines: a thread with an event loop, one a process.

`blocking` makes the plain name of a coroutine method: `pause = blocking(apause)`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar

from windlass.core.errors import CalledFromEventLoop

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
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
            asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
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


async def _end_all() -> None:
    # Otherwise callers would wait for ever for coroutines of a stopped loop.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    # As asyncio.run() does: a store's connections close when their loop ends, by a generator.
    await asyncio.get_running_loop().shutdown_asyncgens()


class Blocks(Protocol):
    """Something that programs call, in a blocking way or awaited."""

    _written: ClassVar[str]
    """What it is called in a program: `app.control`."""

    def _block_on(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine where that does not stop another one, and wait for what it returns."""


BlocksT = TypeVar("BlocksT", bound=Blocks)


def blocking(
    method: Callable[Concatenate[BlocksT, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlocksT, P], T]:
    """Return the blocking twin of a coroutine method: `pause = blocking(apause)`.

    It has the same signature, and refuses to block an event loop: the error names the method that
    is awaited.
    """
    awaited: str = getattr(method, "__name__", "")
    plain = awaited.removeprefix("a")

    @wraps(method)
    def call(self: BlocksT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # First, so that no coroutine is made that nobody awaits.
        written = self._written
        refuse_in_event_loop(f"{written}.{plain}(...)", f"await {written}.{awaited}(...)")
        return self._block_on(method(self, *args, **kwargs))

    call.__name__ = plain
    call.__qualname__ = call.__qualname__.removesuffix(awaited) + plain
    return call


def refuse_in_event_loop(called: str, instead: str, *names: str) -> None:
    """Raise if a blocking call would stop an event loop; `names` are put into the message.

    Raises:
        CalledFromEventLoop: one is running in this thread.
    """
    # Not get_running_loop(): in the usual case that raises, which takes longer than all the rest.
    if asyncio._get_running_loop() is not None:
        raise CalledFromEventLoop(called.format(*names), instead.format(*names))
