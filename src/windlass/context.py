"""Owns what a handler can know and say about its own run: `Context`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, TypeVar, overload
from uuid import UUID

from windlass.core.durations import Duration, duration, when
from windlass.core.errors import CalledFromEventLoop, IllegalMove, StepError
from windlass.core.job import TICK, Job, Progress, Saga
from windlass.core.redaction import Redaction
from windlass.core.retry import Retry
from windlass.core.secret import secrets_in, texts_of
from windlass.core.settle import Transition, completed
from windlass.core.text import storable
from windlass.observe.logs import Logger, get_logger
from windlass.observe.run_lines import RUNS
from windlass.observe.running import fields_of, running
from windlass.resources import Resources
from windlass.steps import Call, Course, Means
from windlass.steps.course import is_async
from windlass.steps.step import DEFAULT
from windlass.store import DoneBefore, Transaction

T = TypeVar("T")
_log = get_logger(RUNS)


class ParentResults(Protocol):
    """What finds the results of a job's parents in its flow."""

    async def of(self, job: Job) -> list[Any]:
        """Return them, in the order of the parents."""

    def of_blocking(self, job: Job) -> list[Any]:
        """Do the same from a thread that runs no event loop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """What all runs have in common that take place in one process."""

    report: Callable[[Job, Progress], None]
    transact: Callable[[Transition], Transaction]
    done: DoneBefore
    results: ParentResults
    resources: Resources
    redaction: Redaction


class Context:
    """One run of one job, as its handler and middleware see it."""

    # Most runs change none of these, and to set them for each would take longer than the rest.
    arguments: Any = None
    """What the handler is given: a dict by names, or the one payload."""
    secrets: tuple[str, ...] = ()
    """The texts by which the secrets among the arguments would be known."""
    settled: bool = False
    """Whether the job was completed by a transaction of its handler."""
    _cancelled: bool = False
    _course: Course | None = None
    _home: asyncio.Task[Any] | None = None
    _in_transaction: bool = False
    _thread: int = 0
    _timeout: TimeoutError | None = None

    log: Logger = _log
    """A logger whose lines carry the ids of job, flow and worker, the kind, queue and attempt."""

    def __init__(self, job: Job, site: Site, means: Means | None) -> None:
        self.job = job
        self._site = site
        self._means = means
        """What its steps need; None if its kind can have none."""
        self._redaction = site.redaction

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self.job.id

    @property
    def kind(self) -> str:
        """The job's kind."""
        return self.job.kind

    @property
    def queue(self) -> str:
        """The queue that the job came from."""
        return self.job.queue

    @property
    def attempt(self) -> int:
        """Which run of the job this is, from 1 on."""
        return self.job.attempt

    @property
    def headers(self) -> Mapping[str, str]:
        """What the producer sent along beside the payload."""
        return self.job.headers

    @property
    def worker_id(self) -> str:
        """The worker that runs it."""
        return self.job.worker or ""

    @property
    def log_fields(self) -> Mapping[str, object]:
        """What every line carries that is written inside of this run."""
        return fields_of(self.job)

    @property
    def resources(self) -> Resources:
        """What handlers share in this process: `ctx.resources[Pool]` is the pool."""
        return self._site.resources

    @property
    def tick(self) -> datetime | None:
        """The time that this job of a schedule is for, in UTC; None for a job of no schedule.

        It is the time that was meant: jitter, or a worker that came late, does not change it.
        """
        told = self.job.headers.get(TICK)
        return None if told is None else datetime.fromisoformat(told)

    @property
    def redaction(self) -> Redaction:
        """What masks text that this run leaves behind: fields by their names, and its secrets."""
        return self._redaction

    def mask_by(self, redaction: Redaction) -> None:
        """Mask more in what this run leaves behind, like the secrets of others in its batch."""
        self._redaction = redaction

    @property
    def idempotency_key(self) -> str:
        """A key that is the same in every run of this job; hand it to services that take one.

        The job's own, unless its producer gave one: then jobs of the same kind can share it.
        """
        return self.job.idempotency_key or f"windlass-{self.job.id}"

    async def already_done(self) -> bool:
        """Say whether a job of this kind was completed with the same idempotency key before.

        That is known for as long as finished jobs are kept. Two that run at once both hear no: a
        unique key keeps the second one out.
        """
        return await self._site.done.find(self.job) is not None

    def already_done_blocking(self) -> bool:
        """Do what `already_done` does, from a handler without an event loop.

        Raises:
            CalledFromEventLoop: this would block an event loop.
        """
        if asyncio._get_running_loop() is not None:
            raise CalledFromEventLoop("ctx.already_done_blocking()", "await ctx.already_done()")
        return self._site.done.find_blocking(self.job) is not None

    async def results(self) -> list[Any]:
        """Return the results of the jobs after which this one comes in its flow, in their order.

        A job that failed, and after which this one goes on nevertheless, has there what tells it: a
        `JobDead` or a `JobCancelled`. What comes after nothing gets an empty list.

        Raises:
            ResultError: a result is not kept any more, or is not what its handler declares.
        """
        return await self._site.results.of(self.job)

    def results_blocking(self) -> list[Any]:
        """Do what `results` does, from a handler without an event loop.

        Raises:
            CalledFromEventLoop: this would block an event loop.
        """
        if asyncio._get_running_loop() is not None:
            raise CalledFromEventLoop("ctx.results_blocking()", "await ctx.results()")
        return self._site.results.of_blocking(self.job)

    @property
    def cancelled(self) -> bool:
        """Whether this run shall end: time is up, an operator cancelled it, or the lease is lost.

        An `async def` handler is also told by `asyncio.CancelledError`; one in a thread looks here.
        A `def` handler in a child process is interrupted, by `TimeoutError` if its time is up.
        """
        return self._cancelled

    def raise_if_cancelled(self) -> None:
        """End a handler that runs in a thread, if its run shall end.

        Raises:
            asyncio.CancelledError: this run shall end.
        """
        if self._cancelled:
            raise asyncio.CancelledError

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the job is, from 0 to 1. Returns at once; only the latest word is stored."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress goes from 0 to 1, and {fraction!r} does not")
        said = storable(self._redaction.text(message), 500) if message else ""
        self._site.report(self.job, Progress(fraction=fraction, message=said))

    def transaction(self) -> JobTransaction:
        """Do your own SQL and complete the job in one commit, so that both happen exactly once.

        `async with ctx.transaction() as conn:` in a coroutine, `with` in a thread, gives a psycopg
        connection to the database that holds the jobs. Leaving the block commits, and with that
        the job is completed, whatever the handler does or returns afterwards. If the block raises,
        everything is rolled back and the job fails as usual. PostgreSQL only.

        Raises:
            Fenced: on leaving, the lease was gone; nothing was committed.
            IllegalMove: on entering, another such block has completed the job, or is still open.
            CalledFromEventLoop: on entering, `with` would block an event loop.
            ConfigError: this store has no transactions.
        """
        if self.job.saga is Saga.UNDOING:
            raise self._steps().suspend(None)  # Whatever is left to undo came before this.
        return JobTransaction(self, self._site.transact(completed(self.job)))

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
            Fenced: the lease is gone, and others have the job.
        """
        call = Call(
            name=name,
            function=function,
            args=args,
            kwargs=kwargs,
            undo=undo,
            undo_retry=undo_retry,
            timeout=None if timeout is None else duration(timeout),
        )
        return await self._steps().step(call)

    def step_blocking(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        undo: Callable[..., Any] | None = None,
        undo_retry: Retry = DEFAULT,
        **kwargs: Any,
    ) -> T:
        """Do what `step` does, from a `def` handler: the function runs in its own thread.

        Raises:
            CalledFromEventLoop: this would block an event loop.
            StepError: as `step` does; or the function is `async def`.
        """
        if asyncio._get_running_loop() is not None:
            raise CalledFromEventLoop("ctx.step_blocking(...)", "await ctx.step(...)")
        if is_async(function):
            raise StepError(f"the step {name!r} is `async def`: call it in an `async def` handler")
        call = Call(
            name=name,
            function=function,
            args=args,
            kwargs=kwargs,
            undo=undo,
            undo_retry=undo_retry,
        )
        result: T = self._steps().step_blocking(call)
        return result

    async def sleep(self, due: Duration | datetime, *, name: str | None = None) -> None:
        """Go on later, in another run, without a slot until then: for seconds, days, or until then.

        It ends this run by an exception that handlers let pass, and which `except Exception` does
        not catch. In the next run it returns at once. It needs a name only where code that changes
        may have more, or fewer, sleeps before it.

        Raises:
            StepError: this is not the handler's own task, or is inside of a step.
            StepsChanged: an earlier attempt has recorded something else at this place.
        """
        await self._steps().sleep(when(due), name)

    def sleep_blocking(self, due: Duration | datetime, *, name: str | None = None) -> None:
        """Do what `sleep` does, from a `def` handler.

        Raises:
            CalledFromEventLoop: this is called in an event loop.
            StepError: as `sleep` does.
        """
        if asyncio._get_running_loop() is not None:
            raise CalledFromEventLoop("ctx.sleep_blocking(...)", "await ctx.sleep(...)")
        self._steps().sleep_blocking(when(due), name)

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
        span = None if timeout is None else duration(timeout)
        return await self._steps().wait(event, span, name)

    def wait_for_blocking(
        self, event: str, *, timeout: Duration | None = None, name: str | None = None
    ) -> Any:
        """Do what `wait_for` does, from a `def` handler.

        Raises:
            CalledFromEventLoop: this is called in an event loop.
            EventTimeout: it did not come in time.
            StepError: as `wait_for` does.
        """
        if asyncio._get_running_loop() is not None:
            raise CalledFromEventLoop("ctx.wait_for_blocking(...)", "await ctx.wait_for(...)")
        span = None if timeout is None else duration(timeout)
        return self._steps().wait_blocking(event, span, name)

    def _steps(self) -> Course:
        """Return this run's way along its steps, which begins with the first of them."""
        if self._course is None:
            if self._means is None:
                raise StepError(
                    f"{self.job.kind!r} is handled in batches, where a call has many jobs, and no "
                    "steps of its own: use steps in a kind without batch="
                )
            self._course = Course(
                self.job,
                self._means,
                task=lambda: self._home,
                thread=lambda: self._thread,
                redaction=lambda: self._redaction,
                learn=self._learn,
            )
        return self._course

    def _learn(self, found: Any) -> None:
        """Mask the secrets in arguments, or in a step's result, wherever this run shows them."""
        texts = tuple(text for each in secrets_in(found) for text in texts_of(each))
        self.secrets += texts
        self._redaction = self._redaction.knowing(texts)

    @property
    def is_over(self) -> bool:
        """Whether what becomes of the job is in the store already, by this run itself."""
        suspended = None if self._course is None else self._course.suspended
        return self.settled or (suspended is not None and suspended.outcome is None)

    def _end_steps(self) -> None:
        """Come to the end of the handler; raises if it has left out what was recorded."""
        if self._course is not None or self.job.steps:
            self._steps().end()

    def _begin_transaction(self) -> None:
        if self.settled or self._in_transaction:
            state = "completed" if self.settled else "being completed"
            remedy = "do all of its work in one ctx.transaction()"
            raise IllegalMove(self.job.id, state, "other transaction", remedy)
        self._in_transaction = True

    def _end_transaction(self, *, settled: bool) -> None:
        self._in_transaction = False
        self.settled = settled

    def _cancel(self, why: TimeoutError | None) -> None:
        self._cancelled = True
        self._timeout = why


class JobTransaction:
    """A transaction that completes the job of a context with its commit."""

    def __init__(self, context: Context, inner: Transaction) -> None:
        self._context = context
        self._inner = inner

    def __enter__(self) -> Any:
        if asyncio._get_running_loop() is not None:
            raise CalledFromEventLoop("with ctx.transaction()", "async with ctx.transaction()")
        self._context._begin_transaction()
        try:
            return self._inner.__enter__()
        except BaseException:
            self._context._end_transaction(settled=False)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        settled = False
        try:
            self._inner.__exit__(kind, error, trace)
            settled = error is None
        finally:
            self._context._end_transaction(settled=settled)

    async def __aenter__(self) -> Any:
        self._context._begin_transaction()
        try:
            return await self._inner.__aenter__()
        except BaseException:
            self._context._end_transaction(settled=False)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        settled = False
        try:
            await self._inner.__aexit__(kind, error, trace)
            settled = error is None
        finally:
            self._context._end_transaction(settled=settled)


def current_context() -> Context:
    """Return the context of the job that is running here.

    Raises:
        LookupError: no job is running here.
    """
    here = running.get()
    if isinstance(here, Context):
        return here
    raise LookupError("no job is running here, so there is no context")
