"""Owns what a step is while it runs, as its own function, its handler and its place see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from windlass.core.jobs.job import Job, Saga
from windlass.core.jobs.retry import Retry
from windlass.core.payloads.secret import Cipher
from windlass.core.values.durations import human
from windlass.store import Store

DEFAULT = Retry()
"""How an undo is tried again that says nothing of it: exponentially, ten times."""
_step: ContextVar[Step | None] = ContextVar("windlass_step", default=None)


class Step(Struct, frozen=True, kw_only=True):
    """The step, or the undo of one, that runs here."""

    name: str
    job_id: UUID
    life: int = 0
    """How often the job was undone, and began anew: then it does something else than before."""
    result: Any = None
    """In an undo: what the step returned; None if it did not finish."""
    finished: bool = False
    """In an undo: whether the step had finished. If not, its effect is unknown."""

    @property
    def key(self) -> str:
        """The same in every try of a step, and of its undo; hand it to services that take one."""
        key = f"{self.job_id}/{self.name}"
        return key if self.life == 0 else f"{key}#{self.life}"


def current_step() -> Step:
    """Return the step, or the undo, that is running here.

    Raises:
        LookupError: no step is running here.
    """
    step = _step.get()
    if step is None:
        raise LookupError(
            "no step is running here; call this inside a function passed to ctx.step(...)"
        )
    return step


def is_inside() -> bool:
    """Return whether a step is running here."""
    return _step.get() is not None


def enter(step: Step | None) -> None:
    """Let a step be the current one, or none: a step is in no other."""
    _step.set(step)


class Call(Struct, frozen=True, kw_only=True):
    """A step as its handler calls it."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    undo: Callable[..., Any] | None = None
    undo_retry: Retry = DEFAULT
    timeout: timedelta | None = None

    async def within_timeout(self, result: Awaitable[Any], *, is_undo: bool) -> Any:
        """Return the result of the step, or of its undo, if it comes in time.

        Raises:
            TimeoutError: it did not; the error names the step.
        """
        if self.timeout is None:
            return await result
        try:
            async with asyncio.timeout(self.timeout.total_seconds()) as limit:
                return await result
        except TimeoutError as error:
            if not limit.expired():
                raise  # The function's own.
            what = "the undo of step" if is_undo else "step"
            late = f"{what} {self.name!r} had no result within {human(self.timeout)}"
            raise TimeoutError(late) from error


class StepEnvironment(Struct, frozen=True, kw_only=True):
    """The place where a run's steps are: a way into the store, and a thread."""

    record: Callable[[Job, tuple[str, ...], Saga | None], Awaitable[None]]
    """Adds to the log of a job; raises `LeaseLost` if its lease is gone."""
    elsewhere: Callable[[Callable[[], Any]], Awaitable[Any]]
    """Makes a call where it does not block the event loop."""
    cipher: Cipher | None
    loop: asyncio.AbstractEventLoop
    ordered: bool
    """Whether no job of the kind may be overtaken by another of its key."""
    store: Callable[[], Store]
    """Makes, when it is first asked, what keeps the jobs."""
