"""Owns the callbacks on a run's start, completion and failure, as a middleware."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

from windlass.handlers.context import Context
from windlass.handlers.middleware.watching import RunEnd, Watcher
from windlass.handlers.provided import Inject
from windlass.handlers.registry import CallNext
from windlass.observability.logs import get_logger

log = get_logger("windlass.callbacks")
_Answer = Awaitable[None] | None
Started = Callable[[Context], _Answer]
Completed = Callable[[Context, Any], _Answer] | Callable[[Context, Any, timedelta], _Answer]
Failed = (
    Callable[[Context, BaseException], _Answer]
    | Callable[[Context, BaseException, timedelta], _Answer]
)
_WITH_DURATION = 3


class Callbacks(Watcher):
    """Middleware that calls back at the start and end of runs. Errors in callbacks are only logged.

    `started(ctx)` is called before the handler. `completed(ctx, result)` and `failed(ctx, error)`
    are called once the outcome of the job is known; with a third parameter they are given the
    duration of the run, too.

    Example: `@app.job(middleware=[Callbacks(failed=lambda ctx, error: page_on_call(ctx.job_id))])`
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
        """Whether any callback is registered."""
        return bool(self.started or self.completed or self.failed)

    @property
    def is_around(self) -> bool:  # type: ignore[override]
        """Whether a callback is to be called before the handler."""
        return bool(self.started)

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        """Iterate over all callbacks."""
        return iter([*self.started, *self.completed, *self.failed])

    async def __call__(self, context: Context, call_next: CallNext) -> Any:
        """Call back before the run."""
        for started in self.started:
            await self._call(started, context)
        return await call_next()

    async def ended(self, context: Context, end: RunEnd) -> None:
        """Call back after the run."""
        if end.completed:
            for completed in self.completed:
                await self._call(completed, context, end.result, end.duration)
        elif end.error is not None:
            for failed in self.failed:
                await self._call(failed, context, end.error, end.duration)

    async def _call(self, callback: Callable[..., Any], context: Context, *arguments: Any) -> None:
        try:
            given = arguments if _takes_duration(callback) else arguments[:1]
            answer = callback(context, *given, **context.provided.given(callback))
            if inspect.isawaitable(answer):
                await answer
        except (asyncio.CancelledError, GeneratorExit) as error:
            task = asyncio.current_task()
            if isinstance(error, GeneratorExit) or (task is not None and task.cancelling()):
                raise
            log.exception("callback.failed", callback=_name(callback))
        except BaseException:
            # SystemExit, too: a callback cannot change the outcome of the job.
            log.exception("callback.failed", callback=_name(callback))


def _takes_duration(callback: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):
        return False  # Written in C, like `list.append`.
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [each for each in parameters if each.kind in by_position and each.default is not Inject]
    return len(given) >= _WITH_DURATION


def _name(callback: Callable[..., Any]) -> str:
    return str(getattr(callback, "__qualname__", "?"))
