"""Owns the threads in which `def` handlers run, and what is done about one that does not return."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from windlass.observe.logs import get_logger
from windlass.runtime.forks import end_if_forked, forks

log = get_logger("windlass.threads")
_Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", "_Work"]


class Threads:
    """A fixed number of threads, made at start.

    A thread cannot be stopped from outside. When nobody waits any more for what runs in one, it
    counts as lost, another takes its place, and it ends by itself if it ever comes back.
    """

    def __init__(self, count: int, *, on_loss: Callable[[int], None] = lambda _: None) -> None:
        self._count = count
        self._forks = forks()
        self._on_loss = on_loss
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._serial = 0
        self.lost = 0
        """How many calls run on although nobody waits for them."""

    def start(self) -> None:
        """Make the threads."""
        for _ in range(self._count):
            self._add()

    def stop(self) -> None:
        """Let the threads end when they have nothing to do; nobody waits for the lost ones."""
        for _ in range(self._count):
            self._calls.put(None)

    async def run(self, call: Callable[[], Any], grace: timedelta) -> Any:
        """Run a call in a thread, in a copy of this task's context, and return what it returns.

        Once nobody waits for it any more, it has the `grace` to come back by itself.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        work = _Work(contextvars.copy_context(), call)
        self._calls.put((loop, answer, work))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            # It may look at ctx.cancelled, and come back by itself.
            if not answer.done():
                await asyncio.wait({answer}, timeout=grace.total_seconds())
            if answer.done():
                answer.exception()
            else:
                self._lose(work)
            raise

    def _add(self) -> None:
        self._serial += 1
        # A daemon: a handler that never returns must not keep the process from ending.
        name = f"windlass-handler-{self._serial}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _lose(self, work: _Work) -> None:
        if not work.lose():
            return  # It had not begun, and never will.
        self.lost += 1
        self._add()
        log.warning("thread.lost", lost=self.lost, stack=work.stack())
        self._on_loss(self.lost)

    def _serve(self) -> None:
        while self._serve_next():
            pass

    def _serve_next(self) -> bool:
        """Make one call, and keep nothing of it while waiting for another; False ends the thread.

        What a call returned, or what the frames of its error hold, may be all the memory there is.
        """
        call = self._calls.get()
        if call is None:
            return False
        loop, answer, work = call
        if not work.begin():
            return True
        value, error = work()
        end_if_forked(self._forks)
        try:
            loop.call_soon_threadsafe(self._deliver, answer, work, value, error)
        except RuntimeError:
            return False  # The loop is closed, so nobody waits and nothing more will come.
        return not work.lost

    def _deliver(
        self, answer: asyncio.Future[Any], work: _Work, value: Any, error: BaseException | None
    ) -> None:
        if work.lost:
            self.lost -= 1
        elif error is None:
            answer.set_result(value)
        elif isinstance(error, StopIteration | GeneratorExit):
            # They would end the coroutine that awaits this, not tell it that something was raised.
            answer.set_exception(RuntimeError(f"the handler raised {error!r}"))
        else:
            answer.set_exception(error)


class _Work:
    """A call in its context, and what is known about it from outside."""

    __slots__ = ("_begun", "_call", "_context", "_lock", "_thread", "lost")

    def __init__(self, context: contextvars.Context, call: Callable[[], Any]) -> None:
        self._context = context
        self._call = call
        self._thread: int | None = None
        self._lock = threading.Lock()
        self._begun = False
        self.lost = False

    def begin(self) -> bool:
        """Say, in a thread, that the call begins; False if nobody waits for it any more."""
        with self._lock:
            self._begun = not self.lost
            return self._begun

    def lose(self) -> bool:
        """Say that nobody waits for the call any more; False if it had not begun."""
        with self._lock:
            self.lost = True
            return self._begun

    def __call__(self) -> tuple[Any, BaseException | None]:
        """Make the call, and return what it returned and what it raised."""
        self._thread = threading.get_ident()
        try:
            return self._context.run(self._call), None
        except BaseException as raised:  # noqa: BLE001 - it is the job's, which waits for it.
            return None, raised

    def stack(self) -> str:
        """Return where the call is now."""
        frame = sys._current_frames().get(self._thread or 0)
        return "".join(traceback.format_stack(frame)) if frame else ""
