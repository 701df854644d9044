"""Owns the context of `async def` handlers, of middleware and of callbacks: `Context`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, TypeVar, overload

from windlass.core.jobs.retry import Retry
from windlass.core.values.durations import Duration, duration, when
from windlass.handlers.any_context import AnyContext
from windlass.handlers.steps import Call
from windlass.handlers.steps.step import DEFAULT
from windlass.handlers.sync_context import in_thread
from windlass.observability.log_context import running

T = TypeVar("T")


class Context(AnyContext):
    """One run of one job, as an `async def` handler, middleware and callbacks see it."""

    async def already_done(self) -> bool:
        """Return whether a job of this kind was completed with the same idempotency key before.

        That is known for as long as finished jobs are kept. Two jobs that run at the same time both
        get False; a unique key prevents that.
        """
        return await self.run_state.environment.done.find(self.job) is not None

    async def results(self) -> list[Any]:
        """Return the results of the jobs after which this one comes in its flow, in their order.

        For a parent that failed or was cancelled the list holds its `JobDead` or `JobCancelled`. A
        job without parents gets an empty list.

        Raises:
            ResultError: a result is not kept any more, or is not what its handler declares.
        """
        return await self.run_state.environment.results.of(self.job)

    async def stream(self, chunk: Any) -> None:
        """Add a chunk, text or any value that JSON has, to the stream of the job.

        Listeners get it within moments: `async for chunk in handle.astream()`. It waits only while
        many chunks are not stored yet. A run that follows another one of the same job replaces its
        chunks; those from before a recorded step stay, and are not added again.

        Example:
            `async for token in model.reply(prompt): await ctx.stream(token)`

        Raises:
            StreamFull: the stream has as many chunks, or bytes, as it may.
            ChunkInvalid: the chunk has no JSON form.
            LeaseLost: the lease is gone, and others have the job.
        """
        await self.run_state.start_stream().add(chunk)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Do your own SQL and complete the job in one commit, so that both happen exactly once.

        `async with ctx.transaction() as conn:` gives an asynchronous psycopg connection to the
        database that holds the jobs. Leaving the block commits, and with that the job is completed,
        whatever the handler does or returns afterwards. If the block raises, everything is rolled
        back and the job fails as usual. PostgreSQL only.

        Raises:
            LeaseLost: on leaving, the lease was gone; nothing was committed.
            InvalidTransition: on entering, another such block has completed the job, or is open.
            ConfigError: this store has no transactions.
        """
        return self._transaction()

    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        undo: Callable[..., Any] | None = None,
        undo_retry: Retry = DEFAULT,
        timeout: Duration | None = None,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        undo: Callable[..., Any] | None = None,
        undo_retry: Retry = DEFAULT,
        timeout: Duration | None = None,
        **kwargs: Any,
    ) -> T: ...
    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        undo: Callable[..., Any] | None = None,
        undo_retry: Retry = DEFAULT,
        timeout: Duration | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function once in the life of the job, and return what it returned.

        Its result is stored, as JSON, before this returns: a retry, or a run after a crash, has it
        from there. A `def` function runs in a thread. If the job fails for good, or is cancelled,
        its `undo` is called with the same arguments, also if the function had started and not
        finished; `current_step()` in both tells a key that stays the same.

        Example:
            `charge = await ctx.step("charge", pay, order, undo=refund)`

        Raises:
            StepError: the name came before in this run, or this is inside of another step.
            StepsChanged: an earlier attempt has recorded another step at this place.
            LeaseLost: the lease is gone, and others have the job.
        """
        call = Call(
            name=name,
            function=function,
            args=args,
            kwargs=kwargs,
            undo=undo,
            undo_retry=undo_retry,
            timeout=None if timeout is None else duration(timeout, "timeout"),
        )
        return await self.run_state.start_steps().step(call)

    async def sleep(self, due: Duration | datetime, *, name: str | None = None) -> None:
        """Go on later, in another run, without a slot until then: for seconds, days, or until then.

        It ends this run by an exception that handlers let pass, and which `except Exception` does
        not catch. In the next run it returns at once. It needs a name only where code that changes
        may have more, or fewer, sleeps before it.

        Raises:
            StepError: this is not the handler's own task, or is inside of a step.
            StepsChanged: an earlier attempt has recorded something else at this place.
        """
        await self.run_state.start_steps().sleep(when(due, "due"), name)

    async def wait_for(
        self, event: str, *, timeout: Duration | None = None, name: str | None = None
    ) -> Any:
        """Wait for an event without a slot, and return what `app.send_event` sent with it.

        One that was sent since the job was enqueued, and that it has not had yet, is taken at once.
        Else this ends the run, as `sleep` does, and the next one begins when the event comes, or
        the time is up. It needs a name only where the same event is waited for in other places.

        Example:
            `paid = await ctx.wait_for(f"paid:{order}", timeout="3d")`

        Raises:
            EventTimeout: it did not come in time.
            StepError: this is not the handler's own task, or is inside of a step.
            StepsChanged: an earlier attempt has recorded something else at this place.
        """
        span = None if timeout is None else duration(timeout, "timeout")
        return await self.run_state.start_steps().wait(event, span, name)


def current_context() -> AnyContext:
    """Return the context of the job that is running here.

    In a coroutine it is a `Context`, in a thread a `SyncContext`.

    Raises:
        LookupError: no job is running here.
    """
    here = running.get()
    if isinstance(here, AnyContext):
        return in_thread(here) if asyncio._get_running_loop() is None else here
    raise LookupError("no job is running here, so there is no context; call this inside a handler")
