"""Owns what a handler can know and say about its own run: `Context`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any
from uuid import UUID

from windlass.core.errors import CalledFromEventLoop, IllegalMove
from windlass.core.job import Job, Progress
from windlass.core.redaction import Redaction
from windlass.core.secret import secrets_in, texts_of
from windlass.core.settle import Transition, completed
from windlass.core.text import storable
from windlass.observe.discretion import job_redaction
from windlass.observe.logs import Logger, get_logger, job_fields
from windlass.resources import Resources
from windlass.store import DoneBefore, Transaction

_log = get_logger("windlass.job")
_current: ContextVar[Context] = ContextVar("windlass_context")


class Context:
    """One run of one job, as its handler and middleware see it."""

    __slots__ = (
        "_cancelled", "_done", "_in_transaction", "_redaction", "_report", "_timeout", "_transact",
        "arguments", "job", "resources", "secrets", "settled", "worker_id",
    )  # fmt: skip

    log: Logger = _log
    """A logger whose lines carry the ids of job, flow and worker, the kind, queue and attempt."""

    def __init__(
        self,
        *,
        job: Job,
        worker_id: str,
        arguments: Mapping[str, Any],
        report: Callable[[Job, Progress], None],
        transact: Callable[[Transition], Transaction],
        done: DoneBefore,
        resources: Resources,
        redaction: Redaction,
        has_secrets: bool = False,
    ) -> None:
        self.job = job
        self.worker_id = worker_id
        self.arguments = arguments
        self.resources = resources
        """What handlers share in this process: `ctx.resources[Pool]` is the pool."""
        self._report = report
        self._transact = transact
        self._done = done
        self._cancelled = False
        self.settled = False
        """Whether the job was completed by a transaction of its handler."""
        self._in_transaction = False
        self._timeout: TimeoutError | None = None
        self.secrets: tuple[str, ...] = ()
        """The texts by which the secrets among the arguments would be known."""
        if has_secrets:
            found = secrets_in(arguments)
            self.secrets = tuple(text for each in found for text in texts_of(each))
            redaction = redaction.knowing(self.secrets)
        self._redaction = redaction

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
        return await self._done.find(self.job) is not None

    def already_done_blocking(self) -> bool:
        """Do what `already_done` does, from a handler without an event loop.

        Raises:
            CalledFromEventLoop: this would block an event loop.
        """
        if asyncio._get_running_loop() is not None:
            raise CalledFromEventLoop("ctx.already_done_blocking()", "await ctx.already_done()")
        return self._done.find_blocking(self.job) is not None

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
        self._report(self.job, Progress(fraction=fraction, message=said))

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
        return JobTransaction(self, self._transact(completed(self.job)))

    def _fields(self) -> Mapping[str, object]:
        job = self.job
        fields = {
            "job_id": job.id,
            "kind": job.kind,
            "queue": job.queue,
            "attempt": job.attempt,
            "worker_id": self.worker_id,
        }
        flow = job.flow
        return fields if flow is None else {**fields, "flow": flow}

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
    try:
        return _current.get()
    except LookupError:
        raise LookupError("no job is running here, so there is no context") from None


def enter(context: Context) -> None:
    """Make a context the current one, for the task that runs its job and what that task starts."""
    _current.set(context)
    job_fields.set(context._fields)
    job_redaction.set(context.redaction)
