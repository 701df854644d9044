"""Owns the context of `def` handlers: `SyncContext`, whose methods block.

They have the names of those of `Context`, which are awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, TypeVar

from windlass.core.errors import CalledFromEventLoop, StepError
from windlass.core.jobs.retry import Retry
from windlass.core.values.durations import Duration, duration, when
from windlass.handlers.any_context import AnyContext
from windlass.handlers.steps import Call, StepRunner
from windlass.handlers.steps.step import DEFAULT
from windlass.handlers.steps.step_runner import is_async

T = TypeVar("T")


class SyncContext(AnyContext):
    """One run of one job, as a `def` handler sees it: the methods of `Context` block here.

    All of them raise `CalledFromEventLoop` where they would block an event loop.
    """

    def already_done(self) -> bool:
        """Return whether a job of this kind was completed with the same idempotency key before.

        That is known for as long as finished jobs are kept. Two jobs that run at the same time both
        get False; a unique key prevents that.
        """
        _refuse_in_event_loop("already_done()")
        return self.run_state.environment.done.find_blocking(self.job) is not None

    def results(self) -> list[Any]:
        """Return the results of the jobs after which this one comes in its flow, in their order.

        For a parent that failed or was cancelled the list holds its `JobDead` or `JobCancelled`. A
        job without parents gets an empty list.

        Raises:
            ResultError: a result is not kept any more, or is not what its handler declares.
        """
        _refuse_in_event_loop("results()")
        return self.run_state.environment.results.of_blocking(self.job)

    def stream(self, chunk: Any) -> None:
        """Add a chunk, text or any value that JSON has, to the stream of the job.

        Listeners get it within moments: `for chunk in handle.stream()`. It blocks only while many
        chunks are not stored yet. A run that follows another one of the same job replaces its
        chunks; those from before a recorded step stay, and are not added again.

        Example:
            `for row in table: ctx.stream({"imported": row.id})`

        Raises:
            StreamFull: the stream has as many chunks, or bytes, as it may.
            ChunkInvalid: the chunk has no JSON form.
            LeaseLost: the lease is gone, and others have the job.
        """
        _refuse_in_event_loop("stream(...)")
        self.run_state.start_stream().add_blocking(chunk)

    def transaction(self) -> AbstractContextManager[Any]:
        """Do your own SQL and complete the job in one commit, so that both happen exactly once.

        `with ctx.transaction() as conn:` gives a psycopg connection to the database that holds the
        jobs. Leaving the block commits, and with that the job is completed, whatever the handler
        does or returns afterwards. If the block raises, everything is rolled back and the job fails
        as usual. PostgreSQL only.

        Raises:
            LeaseLost: on leaving, the lease was gone; nothing was committed.
            InvalidTransition: on entering, another such block has completed the job, or is open.
            CalledFromEventLoop: on entering, this would block an event loop.
            ConfigError: this store has no transactions.
        """
        return self._transaction()

    def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        undo: Callable[..., Any] | None = None,
        undo_retry: Retry = DEFAULT,
        **kwargs: Any,
    ) -> T:
        """Call a function once in the life of the job, and return what it returned.

        It runs in the handler's own thread. Its result is stored, as JSON, before this returns: a
        retry, or a run after a crash, has it from there. If the job fails for good, or is
        cancelled, its `undo` is called with the same arguments, also if the function had started
        and not finished; `current_step()` in both tells a key that stays the same.

        Example:
            `charge = ctx.step("charge", pay, order, undo=refund)`

        Raises:
            StepError: the name came before in this run, this is inside of another step, or the
                function is `async def`.
            StepsChanged: an earlier attempt has recorded another step at this place.
            LeaseLost: the lease is gone, and others have the job.
        """
        steps = self._steps("step(...)")
        if is_async(function):
            raise StepError(f"the step {name!r} is `async def`; call it in an `async def` handler")
        call = Call(
            name=name,
            function=function,
            args=args,
            kwargs=kwargs,
            undo=undo,
            undo_retry=undo_retry,
        )
        result: T = steps.step_blocking(call)
        return result

    def sleep(self, due: Duration | datetime, *, name: str | None = None) -> None:
        """Go on later, in another run, without a slot until then: for seconds, days, or until then.

        It ends this run by an exception that handlers let pass, and which `except Exception` does
        not catch. In the next run it returns at once. It needs a name only where code that changes
        may have more, or fewer, sleeps before it.

        Raises:
            StepError: this is not the handler's own thread, or is inside of a step.
            StepsChanged: an earlier attempt has recorded something else at this place.
        """
        self._steps("sleep(...)").sleep_blocking(when(due, "due"), name)

    def wait_for(
        self, event: str, *, timeout: Duration | None = None, name: str | None = None
    ) -> Any:
        """Wait for an event without a slot, and return what `app.send_event` sent with it.

        One that was sent since the job was enqueued, and that it has not had yet, is taken at once.
        Else this ends the run, as `sleep` does, and the next one begins when the event comes, or
        the time is up. It needs a name only where the same event is waited for in other places.

        Example:
            `paid = ctx.wait_for(f"paid:{order}", timeout="3d")`

        Raises:
            EventTimeout: it did not come in time.
            StepError: this is not the handler's own thread, or is inside of a step.
            StepsChanged: an earlier attempt has recorded something else at this place.
        """
        span = None if timeout is None else duration(timeout, "timeout")
        return self._steps("wait_for(...)").wait_blocking(event, span, name)

    def _steps(self, called: str) -> StepRunner:
        _refuse_in_event_loop(called)
        return self.run_state.start_steps()


def in_thread(context: AnyContext) -> SyncContext:
    """Return the context of the same run for code in a thread."""
    view = SyncContext.__new__(SyncContext)
    # The same state: a handler finds what middleware has set on its own context.
    view.__dict__ = context.__dict__
    return view


def _refuse_in_event_loop(called: str) -> None:
    if asyncio._get_running_loop() is not None:
        raise CalledFromEventLoop(f"ctx.{called}", f"await ctx.{called} in an `async def` handler")
