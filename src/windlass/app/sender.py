"""Owns what an app does about new work: it enqueues jobs, sends events, and composes flows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast
from uuid import UUID

from windlass.app import flow as flows
from windlass.app import pipeline as pipelines
from windlass.app.decorator import Given
from windlass.app.fan_out import CHUNK, MOST, FanOut, Plan, astream, stream
from windlass.app.handle import Handle
from windlass.app.ids import Ids
from windlass.app.kind import Kind
from windlass.app.portal import refuse_in_event_loop
from windlass.app.producer import Draft, Options, Producer
from windlass.app.vault import Vault
from windlass.core.durations import human
from windlass.core.errors import StoreUnavailable
from windlass.core.events import news_of
from windlass.core.flow import OnFailure
from windlass.core.job import Enqueued, NewJob
from windlass.core.payload import PayloadCodec
from windlass.core.unique import identity_of
from windlass.observe.traces import sending
from windlass.registry import Registry, whole_payload
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
    vault: Vault
    ids: Ids

    @property
    def store(self) -> Store:
        """The store that the URL names."""
        raise NotImplementedError

    @property
    def _app(self) -> Windlass:
        """The whole of it, which producers and handles know."""
        return cast("Windlass", self)

    # -- enqueue -------------------------------------------------------------------------------

    def of(self, kind: Kind[T]) -> Producer[[T], Any]:
        """Return a producer for a kind whose handler need not be imported here."""
        return Producer(
            self._app,
            kind.name,
            codec=PayloadCodec(kind.name, kind.payload, whole=True, cipher=self.vault),
            payload=partial(whole_payload, kind.name),
            key=kind.key,
            identity=identity_of(
                kind.name, unique=kind.unique, idempotency_key=kind.idempotency_key
            ),
        )

    def named(self, kind: str) -> Producer[[Any], Any]:
        """Return a producer for a kind by its name, which takes the whole payload.

        What this app has a handler for is checked against that; an app without any cannot check.

        Raises:
            UnknownKind: this app has handlers, and none of that kind.
        """
        if not list(self.registry):
            return self.of(Kind(kind, Any))
        known = self.registry[kind]
        return Producer(
            self._app,
            known.kind,
            codec=known.target.codec,
            payload=partial(whole_payload, kind),
            options=Options(queue=known.queue, priority=known.priority),
            key=known.key,
            identity=known.identity,
        )

    def enqueue_many(self, drafts: Iterable[Draft[R]], *, tx: object = None) -> list[Handle[R]]:
        """Enqueue any mix of jobs, all or none, from blocking code.

        `tx` is a connection of your own, in whose transaction it happens: see `Producer.using`.

        Raises:
            StoreError: the store did not take them within `enqueue_timeout`.
            CalledFromEventLoop: this would block an event loop.
        """
        listed = list(drafts)
        if tx is None:
            refuse_in_event_loop("app.enqueue_many(...)", "await app.aenqueue_many(...)")
        with sending([draft.job for draft in listed], self.settings.traces) as jobs:
            if tx is not None:
                answers = self.store.enqueue_in(tx, jobs)
            else:
                answers = self.store.enqueue_blocking(jobs, self.settings.enqueue_timeout)
        return [
            Handle(self._app, answer.id, draft.hint, existing=answer.existing)
            for draft, answer in zip(listed, answers, strict=True)
        ]

    def enqueue_draft(self, draft: Draft[R]) -> Handle[R]:
        """Enqueue one job from blocking code, in a thread that is known to run no event loop."""
        store = self._store or self.store
        with sending([draft.job], self.settings.traces) as jobs:
            (answer,) = store.enqueue_blocking(jobs, self.settings.enqueue_timeout)
        return Handle(self._app, answer.id, draft.hint, existing=answer.existing)

    async def aenqueue_many(
        self, drafts: Iterable[Draft[R]], *, tx: object = None
    ) -> list[Handle[R]]:
        """Enqueue any mix of jobs, all or none, from a coroutine.

        `tx` is a connection of your own, in whose transaction it happens: see `Producer.using`.

        Raises:
            StoreError: the store did not take them.
        """
        listed = list(drafts)
        with sending([draft.job for draft in listed], self.settings.traces) as jobs:
            answers = await (
                self._enqueue(jobs) if tx is None else self.store.aenqueue_in(tx, jobs)
            )
        return [
            Handle(self._app, answer.id, draft.hint, existing=answer.existing)
            for draft, answer in zip(listed, answers, strict=True)
        ]

    def fan_out(
        self,
        drafts: Iterable[Draft[Any]],
        *,
        atomic: bool = False,
        at_most: int = MOST,
        chunk: int = CHUNK,
        rate: str | None = None,
        progress: Callable[[FanOut], None] = lambda _: None,
        tx: object = None,
    ) -> FanOut:
        """Enqueue whatever an iterable yields, from blocking code, without holding it all.

        It goes in chunks, each of which is added whole, no faster than the `rate` ("100/s"); after
        each, `progress` is told how far it is. `atomic=True` adds all or none. Where there are more
        than `at_most`, it stops with an error rather than flood the queue.

        Raises:
            FanOutTooLarge: there are more than `at_most`; chunks before that are enqueued.
            StoreError: the store did not take a chunk within `enqueue_timeout`.
            CalledFromEventLoop: this would block an event loop.
        """
        plan = Plan.of(atomic=atomic, at_most=at_most, chunk=chunk, rate=rate)
        if tx is None:
            refuse_in_event_loop("app.fan_out(...)", "await app.afan_out(...)")
        return stream(drafts, plan, lambda piece: _told(self.enqueue_many(piece, tx=tx)), progress)

    async def afan_out(
        self,
        drafts: Iterable[Draft[Any]] | AsyncIterable[Draft[Any]],
        *,
        atomic: bool = False,
        at_most: int = MOST,
        chunk: int = CHUNK,
        rate: str | None = None,
        progress: Callable[[FanOut], None] = lambda _: None,
        tx: object = None,
    ) -> FanOut:
        """Enqueue whatever an iterable yields, async or not, from a coroutine: see `fan_out`.

        Raises:
            FanOutTooLarge: there are more than `at_most`; chunks before that are enqueued.
            StoreError: the store did not take a chunk.
        """
        plan = Plan.of(atomic=atomic, at_most=at_most, chunk=chunk, rate=rate)

        async def enqueue(piece: list[Draft[Any]]) -> FanOut:
            return _told(await self.aenqueue_many(piece, tx=tx))

        return await astream(drafts, plan, enqueue, progress)

    async def _enqueue(self, jobs: list[NewJob]) -> list[Enqueued]:
        """Enqueue within a bounded time, unless the store is bounded: then one waits for room."""
        if self.store.capabilities.bounded:
            return await self.store.enqueue(jobs)
        return await self._in_time(self.store.enqueue(jobs), "the jobs")

    async def _in_time(self, taking: Awaitable[T], what: str) -> T:
        patience = self.settings.enqueue_timeout
        try:
            async with asyncio.timeout(patience.total_seconds()):
                return await taking
        except TimeoutError:
            raise StoreUnavailable(
                f"{self.store.location} did not take {what} within {human(patience)}, "
                "or the event loop was blocked for as long: it may still have been written"
            ) from None

    # -- events --------------------------------------------------------------------------------

    def send_event(self, name: str, payload: object = None, *, tx: object = None) -> None:
        """Send an event to all jobs that wait for it, or will, from blocking code.

        `ctx.wait_for(name)` returns the payload, which is anything that JSON can hold. `tx` is a
        connection of your own, in whose transaction it happens: see `Producer.using`.

        Raises:
            ValueError: this is no name for an event.
            PayloadError: the payload cannot be JSON, or is too large.
            StoreError: the store did not take it within `enqueue_timeout`.
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
        """Send an event to all jobs that wait for it, or will, from a coroutine: see `send_event`.

        Raises:
            ValueError: this is no name for an event.
            PayloadError: the payload cannot be JSON, or is too large.
            StoreError: the store did not take it.
        """
        news = news_of(name, payload, event_id=self.ids.next(), limit=self.settings.max_payload)
        if tx is not None:
            await self.store.asend_in(tx, [news])
        else:
            await self._in_time(self.store.send([news]), "the event")

    def job_by_id(self, job_id: UUID | str) -> Handle[Any]:
        """Return a handle on a job whose id is known.

        Raises:
            ValueError: this is not an id.
        """
        try:
            return Handle(self._app, job_id if isinstance(job_id, UUID) else UUID(job_id))
        except ValueError:
            raise ValueError(f"{job_id!r} is not a job id") from None

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
        self, name: str, *, on_failure: OnFailure = "stop", queue: str | None = None
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
        self, *drafts: Draft[Any], on_failure: OnFailure = "stop", name: str = "chain"
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
        on_failure: OnFailure = "stop",
        name: str = "group",
    ) -> flows.Flow:
        """Return a flow of jobs side by side, and one that gets all of their results afterwards.

        Example:
            `app.group([part.draft(p) for p in parts], then=join.draft()).enqueue()`
        """
        return flows.group(self._app, drafts, then=then, on_failure=on_failure, name=name)


def _told(handles: Sequence[Handle[Any]]) -> FanOut:
    existing = sum(handle.existing for handle in handles)
    return FanOut(added=len(handles) - existing, existing=existing)
