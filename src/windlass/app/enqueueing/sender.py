"""Owns the way of new work into a store: enqueueing jobs, sending events, composing flows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload
from uuid import UUID

from windlass.app.enqueueing.fan_out import (
    CHUNK_JOBS,
    MAX_JOBS,
    FanOut,
    Plan,
    astream,
    counted,
    stream,
)
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.app.enqueueing.options import Options
from windlass.app.enqueueing.uncertain import uncertain
from windlass.app.handle import Handle
from windlass.app.loop_thread import refuse_in_event_loop
from windlass.app.producer import Draft, Producer, checked_drafts, iterable
from windlass.app.registration.job_decorator import Given
from windlass.app.registration.kind import Kind
from windlass.app.secrets.encryption import Encryption
from windlass.app.workflows import flow as flows
from windlass.app.workflows import pipeline as pipelines
from windlass.core.errors import WriteUncertain
from windlass.core.jobs.job import Enqueued, NewJob
from windlass.core.jobs.unique import identity_of
from windlass.core.payloads.codec import PayloadCodec
from windlass.core.values.durations import human
from windlass.core.values.names import check_name
from windlass.core.workflows.events import news_of
from windlass.core.workflows.flow_graph import OnFailure
from windlass.handlers.registry import Registry
from windlass.handlers.signatures import whole_payload
from windlass.observability.traces import sending, tracing_in_force
from windlass.settings import Settings
from windlass.store import Store

if TYPE_CHECKING:
    from windlass.app.app import Windlass

R = TypeVar("R")
T = TypeVar("T")


class Sender:
    """The part of an app that brings new work into its store."""

    _store: Store | None
    settings: Settings
    registry: Registry
    encryption: Encryption
    ids: IdGenerator

    @property
    def store(self) -> Store:
        """The store that the URL names."""
        raise NotImplementedError

    @property
    def _app(self) -> Windlass:
        return cast("Windlass", self)

    # -- enqueue -------------------------------------------------------------------------------

    @overload
    def producer(self, kind: Kind[T]) -> Producer[[T], Any]: ...
    @overload
    def producer(self, kind: str) -> Producer[[Any], Any]: ...
    def producer(self, kind: Kind[Any] | str) -> Producer[[Any], Any]:
        """Return a producer for a kind whose handler need not be imported here.

        It takes the whole payload. A name is checked against the handlers of this app; an app
        without any cannot check.

        Raises:
            TypeError: this is neither a `Kind` nor a name.
            UnknownKind: this app has handlers, and none of that name.

        Example:
            `app.producer(SEND_EMAIL).using(delay="5m").enqueue(Email(...))`
        """
        if isinstance(kind, str):
            check_name("kind", kind)
            if list(self.registry):
                return self._producer_of_handler(kind)
            kind = Kind(kind, Any)
        if not isinstance(kind, Kind):
            raise TypeError(
                f"producer must be given a Kind or the name of one, got {kind!r}; write "
                "Kind(name, payload)"
            )
        return Producer(
            self._app,
            kind.name,
            codec=PayloadCodec(kind.name, kind.payload, whole=True, cipher=self.encryption),
            payload=partial(whole_payload, kind.name),
            key=kind.key,
            identity=identity_of(
                kind.name, unique=kind.unique, idempotency_key=kind.idempotency_key
            ),
        )

    def _producer_of_handler(self, kind: str) -> Producer[[Any], Any]:
        known = self.registry[kind]
        return Producer(
            self._app,
            known.kind,
            codec=known.target.codec,
            payload=partial(whole_payload, kind),
            options=Options(queue=known.queue, priority=known.priority, tags=known.tags),
            key=known.key,
            identity=known.identity,
        )

    @overload
    def enqueue(self, kind: Kind[T], payload: T, /) -> Handle[Any]: ...
    @overload
    def enqueue(self, kind: str, payload: Any, /) -> Handle[Any]: ...
    def enqueue(self, kind: Kind[Any] | str, payload: Any, /) -> Handle[Any]:
        """Enqueue a job of a kind by its name, with its whole payload: see `producer`.

        Raises:
            UnknownKind: this app has handlers, and none of that name.
            PayloadError: the payload does not fit.
            StoreError, EnqueueUncertain, CalledFromEventLoop: as `Producer.enqueue`.

        Example:
            `app.enqueue("send_email", {"to": "ada@example.org"})`
        """
        return self.producer(kind).enqueue(payload)

    @overload
    async def aenqueue(self, kind: Kind[T], payload: T, /) -> Handle[Any]: ...
    @overload
    async def aenqueue(self, kind: str, payload: Any, /) -> Handle[Any]: ...
    async def aenqueue(self, kind: Kind[Any] | str, payload: Any, /) -> Handle[Any]:
        """Enqueue a job of a kind by its name from a coroutine; raises what `enqueue` does."""
        return await self.producer(kind).aenqueue(payload)

    def enqueue_many(self, drafts: Iterable[Draft[R]], *, tx: object = None) -> list[Handle[R]]:
        """Enqueue any mix of jobs, all or none, from blocking code.

        `tx` is a connection of your own, in whose transaction it happens: see `Producer.using`.

        Raises:
            EnqueueUncertain: the store did not answer within `enqueue_timeout`; `error.retry()`
                enqueues the same again, and none of them twice.
            StoreError: the store did not take them, and has not written any.
            CalledFromEventLoop: this would block an event loop.
        """
        listed = checked_drafts(drafts)
        if tx is None:
            refuse_in_event_loop("app.enqueue_many(...)", "await app.aenqueue_many(...)")
        with sending([draft.job for draft in listed], self.settings.traces) as jobs:
            if tx is not None:
                answers = self.store.enqueue_in(tx, jobs)
            else:
                answers = self._enqueue_blocking(jobs, listed)
        return [self._handle(draft, answer) for draft, answer in zip(listed, answers, strict=True)]

    def enqueue_draft(self, draft: Draft[R]) -> Handle[R]:
        """Enqueue one job from blocking code, in a thread that is known to run no event loop."""
        # Without a context manager for no traces, which would take time of its own.
        if (tracing := tracing_in_force(self.settings.traces)) is None:
            (answer,) = self._enqueue_blocking([draft.job], [draft])
        else:
            with tracing.sending([draft.job]) as jobs:
                (answer,) = self._enqueue_blocking(jobs, [draft])
        return self._handle(draft, answer)

    async def aenqueue_draft(self, draft: Draft[R]) -> Handle[R]:
        """Enqueue one job from a coroutine."""
        if (tracing := tracing_in_force(self.settings.traces)) is None:
            (answer,) = await self._enqueue([draft.job], [draft])
        else:
            with tracing.sending([draft.job]) as jobs:
                (answer,) = await self._enqueue(jobs, [draft])
        return self._handle(draft, answer)

    async def aenqueue_many(
        self, drafts: Iterable[Draft[R]], *, tx: object = None
    ) -> list[Handle[R]]:
        """Enqueue any mix of jobs, all or none, from a coroutine.

        `tx` is a connection of your own, in whose transaction it happens: see `Producer.using`.

        Raises:
            EnqueueUncertain: the store did not answer within `enqueue_timeout`;
                `await error.aretry()` enqueues the same again, and none of them twice.
            StoreError: the store did not take them, and has not written any.
        """
        listed = checked_drafts(drafts)
        with sending([draft.job for draft in listed], self.settings.traces) as jobs:
            answers = await (
                self._enqueue(jobs, listed) if tx is None else self.store.aenqueue_in(tx, jobs)
            )
        return [self._handle(draft, answer) for draft, answer in zip(listed, answers, strict=True)]

    def fan_out(
        self,
        drafts: Iterable[Draft[Any]],
        *,
        atomic: bool = False,
        at_most: int = MAX_JOBS,
        chunk: int = CHUNK_JOBS,
        rate: str | None = None,
        progress: Callable[[FanOut], None] = lambda _: None,
        tx: object = None,
    ) -> FanOut:
        """Enqueue whatever an iterable yields, from blocking code, without holding it all.

        Jobs go in chunks, each in one transaction, no faster than the `rate` ("100/s"); after
        each, `progress` is called. `atomic=True` adds all or none. Where there are more
        than `at_most`, it stops with an error rather than flood the queue.

        Raises:
            FanOutTooLarge: there are more than `at_most`; chunks before that are enqueued.
            EnqueueUncertain: the store did not answer for a chunk within `enqueue_timeout`.
            StoreError: the store did not take a chunk.
            CalledFromEventLoop: this would block an event loop.
        """
        plan = Plan.of(atomic=atomic, at_most=at_most, chunk=chunk, rate=rate)
        if tx is None:
            refuse_in_event_loop("app.fan_out(...)", "await app.afan_out(...)")
        source = iterable(drafts)
        return stream(
            source, plan, lambda piece: counted(self.enqueue_many(piece, tx=tx)), progress
        )

    async def afan_out(
        self,
        drafts: Iterable[Draft[Any]] | AsyncIterable[Draft[Any]],
        *,
        atomic: bool = False,
        at_most: int = MAX_JOBS,
        chunk: int = CHUNK_JOBS,
        rate: str | None = None,
        progress: Callable[[FanOut], None] = lambda _: None,
        tx: object = None,
    ) -> FanOut:
        """Enqueue whatever an iterable yields, async or not, from a coroutine: see `fan_out`.

        Raises:
            FanOutTooLarge: there are more than `at_most`; chunks before that are enqueued.
            EnqueueUncertain: the store did not answer for a chunk within `enqueue_timeout`.
            StoreError: the store did not take a chunk.
        """
        plan = Plan.of(atomic=atomic, at_most=at_most, chunk=chunk, rate=rate)

        async def enqueue(piece: list[Draft[Any]]) -> FanOut:
            return counted(await self.aenqueue_many(piece, tx=tx))

        return await astream(iterable(drafts), plan, enqueue, progress)

    def _handle(self, draft: Draft[R], answer: Enqueued) -> Handle[R]:
        app: Any = self  # Without `_app`, since every enqueue comes here.
        return Handle(app, answer.id, draft.hint, is_duplicate=answer.is_duplicate)

    def _enqueue_blocking(
        self, jobs: Sequence[NewJob], drafts: Sequence[Draft[Any]]
    ) -> list[Enqueued]:
        store = self._store or self.store
        try:
            return store.enqueue_blocking(jobs, self.settings.enqueue_timeout)
        except WriteUncertain as error:
            raise uncertain(self._app, error, drafts) from error.__cause__

    async def _enqueue(self, jobs: list[NewJob], drafts: list[Draft[Any]]) -> list[Enqueued]:
        store = self._store or self.store
        try:
            return await store.enqueue(jobs, self.settings.enqueue_timeout)
        except WriteUncertain as error:
            raise uncertain(self._app, error, drafts) from error.__cause__

    async def _in_time(self, taking: Awaitable[T], what: str) -> T:
        patience = self.settings.enqueue_timeout
        try:
            async with asyncio.timeout(patience.total_seconds()):
                return await taking
        except TimeoutError:
            raise WriteUncertain(
                f"{self.store.location} did not accept {what} within {human(patience)}, or the "
                "event loop was blocked for that long; it may still be written"
            ) from None

    # -- events --------------------------------------------------------------------------------

    def send_event(self, name: str, payload: object = None, *, tx: object = None) -> None:
        """Send an event to all jobs that wait for it, or will, from blocking code.

        `ctx.wait_for(name)` returns the payload, which is anything that JSON can hold. `tx` is a
        connection of your own, in whose transaction it happens: see `Producer.using`.

        Raises:
            ValueError: this is no name for an event.
            PayloadError: the payload cannot be JSON, or is too large.
            WriteUncertain: the store did not answer within `enqueue_timeout`; it may be sent.
            StoreError: the store did not take it.
            CalledFromEventLoop: this would block an event loop.

        Example:
            `app.send_event("paid:42", {"by": "card"})`
        """
        news = news_of(name, payload, event_id=self.ids.next(), limit=self.settings.max_payload)
        if tx is not None:
            self.store.send_in(tx, [news])
        else:
            refuse_in_event_loop("app.send_event(...)", "await app.asend_event(...)")
            self.store.send_blocking([news], self.settings.enqueue_timeout)

    async def asend_event(self, name: str, payload: object = None, *, tx: object = None) -> None:
        """Send an event from a coroutine; raises what `send_event` does."""
        news = news_of(name, payload, event_id=self.ids.next(), limit=self.settings.max_payload)
        if tx is not None:
            await self.store.asend_in(tx, [news])
        else:
            await self._in_time(self.store.send([news]), "the event")

    def handle(self, job_id: UUID | str) -> Handle[Any]:
        """Return a handle on a job whose id is known.

        Raises:
            ValueError: this is not an id.
        """
        try:
            return Handle(self._app, job_id if isinstance(job_id, UUID) else UUID(job_id))
        except (AttributeError, TypeError, ValueError):
            raise ValueError(
                f"job_id must be a UUID, or the text of one, got {job_id!r}; app.jobs.job_id() "
                "finds one by its prefix"
            ) from None

    # -- flows ---------------------------------------------------------------------------------

    def pipeline(
        self,
        name: str,
        steps: Sequence[pipelines.AnyHandler | pipelines.Stage | str],
        **options: Unpack[Given],
    ) -> Producer[[dict[str, Any]], Any]:
        """Register a kind that runs others one after the other, each as a durable step.

        A step is called with what it takes, by name, from the context that they share: what
        `enqueue` was given, and the outputs of the steps before it, each under the step's name. The
        output of the last one is the job's result.

        Raises:
            ConfigError: these are no steps, or the name is taken.

        Example:
            `imports = app.pipeline("import", [fetch, parse, save], timeout="10m")`, then
            `imports.enqueue({"url": "https://example.org"})`
        """
        return pipelines.define(self._app, name, steps, options)

    def flow(
        self, name: str, *, on_failure: OnFailure = "cancel", queue: str | None = None
    ) -> flows.Flow:
        """Return a flow to add jobs to that wait for each other; see `Flow.add`.

        `on_failure` holds where a job says nothing else. The queue is that of its own job, which
        sums up what came of it: that of its first job, unless one is given.

        Example:
            `flow = app.flow("nightly")`, `a = flow.add(extract.draft())`,
            `flow.add(load.draft(), after=[a])`, `flow.enqueue()`
        """
        return flows.Flow(self._app, name, queue=queue, on_failure=on_failure)

    def chain(
        self, *drafts: Draft[Any], on_failure: OnFailure = "cancel", name: str = "chain"
    ) -> flows.Flow:
        """Return a flow of jobs one after the other; each gets the result of the one before.

        Example:
            `app.chain(extract.draft(day), clean.draft(), load.draft()).enqueue()`
        """
        return flows.chain(self._app, drafts, on_failure=on_failure, name=name)

    def group(
        self,
        drafts: Iterable[Draft[Any]],
        *,
        then: Draft[Any] | None = None,
        on_failure: OnFailure = "cancel",
        name: str = "group",
    ) -> flows.Flow:
        """Return a flow of jobs side by side, and one that gets all of their results afterwards.

        Example:
            `app.group([part.draft(p) for p in parts], then=join.draft()).enqueue()`
        """
        return flows.group(self._app, drafts, then=then, on_failure=on_failure, name=name)
