"""Owns the callbacks on a run's start, completion and failure, as a middleware."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from windlass.context import Context
from windlass.core.outcomes import Cancel, Snooze, Suspended
from windlass.observe.logs import get_logger
from windlass.registry import CallNext

log = get_logger("windlass.callbacks")
Started = Callable[[Context], Awaitable[None] | None]
Completed = Callable[[Context, Any], Awaitable[None] | None]
Failed = Callable[[Context, BaseException], Awaitable[None] | None]


class Callbacks:
    """Middleware that tells others about runs. An error in a callback is logged, and that is all.

    Example:
        `@app.job(middleware=[Callbacks(failed=lambda ctx, error: page_somebody(ctx.job_id))])`
    """

    def __init__(
        self,
        *,
        started: Started | None = None,
        completed: Completed | None = None,
        failed: Failed | None = None,
    ) -> None:
        self.started = [started] if started else []
        self.completed = [completed] if completed else []
        self.failed = [failed] if failed else []

    @property
    def wanted(self) -> bool:
        """Whether there is anybody to tell."""
        return bool(self.started or self.completed or self.failed)

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        """Iterate over all who are told."""
        return iter([*self.started, *self.completed, *self.failed])

    async def __call__(self, context: Context, call_next: CallNext) -> Any:
        """Call back around the run."""
        for started in self.started:
            await self._tell(started, context)
        try:
            value = await call_next()
        except asyncio.CancelledError:
            if context._timeout is not None:
                await self._tell_failed(context, context._timeout)
            raise
        except Suspended:
            raise  # It goes on later, which is neither.
        except BaseException as error:
            await self._tell_failed(context, error)
            raise
        if not isinstance(value, Snooze | Cancel):
            for completed in self.completed:
                await self._tell(completed, context, value)
        return value

    async def _tell_failed(self, context: Context, error: BaseException) -> None:
        for failed in self.failed:
            await self._tell(failed, context, error)

    async def _tell(self, callback: Callable[..., Any], context: Context, *args: Any) -> None:
        try:
            answer = callback(context, *args, **context.resources.given(callback))
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            log.exception("callback.failed", callback=getattr(callback, "__qualname__", "?"))
