"""Owns the threads in which `def` handlers run, and the handling of a thread that does
not return.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from windlass.handlers.registry import Registry
from windlass.observability.logs import get_logger
from windlass.process.fork_guard import end_if_forked, forks
from windlass.process.waits import deliver

if TYPE_CHECKING:
    from windlass.worker.state import WorkerState

log = get_logger("windlass.threads")
_Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", "_Work"]


class Threads:
    """A fixed number of threads, made at start.

    A thread cannot be stopped from outside. Once its run is abandoned, the thread counts as lost
    and is replaced; it ends when its call returns.
    """

    def __init__(self, count: int, state: WorkerState | None = None) -> None:
        self._count = count
        self._forks = forks()
        self._state = state
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._serial = 0
        self.lost = 0
        """Number of calls that still run although their runs were abandoned."""

    def start(self) -> None:
        """Make the threads."""
        for _ in range(self._count):
            self._add()

    def stop(self) -> None:
        """Let idle threads end; lost threads are not waited for."""
        for _ in range(self._count):
            self._calls.put(None)

    async def run(self, call: Callable[[], Any], grace: timedelta) -> Any:
        """Run a call in a thread, in a copy of this task's context, and return its result.

        A call whose run was cancelled has `grace` to return before it counts as lost.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        work = _Work(contextvars.copy_context(), call)
        self._calls.put((loop, answer, work))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            # A handler may check ctx.cancelled and return by itself.
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
            return  # The call had not begun, and will not.
        self.lost += 1
        self._add()
        log.warning("thread.lost", lost=self.lost, stack=work.stack())
        if self._state is not None:
            self._leave_if_crowded(self._state)

    def _leave_if_crowded(self, state: WorkerState) -> None:
        """Ask for another process when lost threads accumulate, since they use memory.

        Without a supervisor nothing would replace this process.
        """
        supervised = state.channel is not None and state.channel.is_held
        if supervised and self.lost >= max(self._count, 2) and not state.stopping.is_set():
            log.warning("worker.recycling", worker_id=state.id, lost_threads=self.lost)
            state.leave(f"{self.lost} threads are lost", replace=True)

    def _serve(self) -> None:
        while self._serve_next():
            pass

    def _serve_next(self) -> bool:
        """Make one call; False ends the thread.

        Nothing of the call is kept while the thread waits for another: a result, or the frames of
        an error, may hold a lot of memory.
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
            # The loop is closed: no run waits for this result, and no call will follow.
            return False
        return not work.lost

    def _deliver(
        self, answer: asyncio.Future[Any], work: _Work, value: Any, error: BaseException | None
    ) -> None:
        if work.lost:
            self.lost -= 1
        else:
            deliver(answer, value, error)


class _Work:
    """A call in its context, with the state that other threads see."""

    __slots__ = ("_begun", "_call", "_context", "_lock", "_thread", "lost")

    def __init__(self, context: contextvars.Context, call: Callable[[], Any]) -> None:
        self._context = context
        self._call = call
        self._thread: int | None = None
        self._lock = threading.Lock()
        self._begun = False
        self.lost = False

    def begin(self) -> bool:
        """Mark the call as begun; return False if its run was abandoned before."""
        with self._lock:
            self._begun = not self.lost
            return self._begun

    def lose(self) -> bool:
        """Mark the call as lost; return False if it had not begun."""
        with self._lock:
            self.lost = True
            return self._begun

    def __call__(self) -> tuple[Any, BaseException | None]:
        self._thread = threading.get_ident()
        try:
            return self._context.run(self._call), None
        except BaseException as raised:  # noqa: BLE001 - it is the job's, which waits for it.
            return None, raised

    def stack(self) -> str:
        frame = sys._current_frames().get(self._thread or 0)
        return "".join(traceback.format_stack(frame)) if frame else ""


def with_thread_hooks(call: Callable[[], Any], registry: Registry) -> Callable[[], Any]:
    """Wrap a call in the thread hooks of an app and in the cleaning of its database connections.

    An error in a hook before the call fails the job; an error in a hook after it is logged.
    """

    def run() -> Any:
        close_stale = _django_close_old_connections()
        if close_stale is None and not registry.has_call_hooks:
            return call()
        if close_stale is not None:
            close_stale()
        try:
            for hook in registry.on_call_start:
                hook()
            return call()
        finally:
            for hook in registry.on_call_end:
                _call_after(hook)
            if close_stale is not None:
                _call_after(close_stale)

    return run


def _django_close_old_connections() -> Callable[[], None] | None:
    """Return Django's function that closes dead connections, if the program uses Django's ORM.

    Django calls it around each request; in a worker's threads only this does.
    """
    db, conf = sys.modules.get("django.db"), sys.modules.get("django.conf")
    if db is None or conf is None or not conf.settings.configured:
        return None
    return getattr(db, "close_old_connections", None)


def _call_after(hook: Callable[[], object]) -> None:
    try:
        hook()
    except (Exception, SystemExit, asyncio.CancelledError):
        log.exception("callback.failed", callback=getattr(hook, "__qualname__", "?"))
