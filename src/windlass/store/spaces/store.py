"""Owns the store of an app with spaces: it picks the space of a queue, and lets nothing cross one.

A worker is given the store of its space, not this one. So what only workers do needs a chosen space
here: a supervisor renews the leases of its workers by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from windlass.core.changes import Applied, Changes, Decide, Hear
from windlass.core.claims.lanes import Claim, Queues, StandingAsk
from windlass.core.errors import ConfigError, StoreError
from windlass.core.jobs.job import Checkpoint, Enqueued, Job, NewJob, Progress
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.spaces import Space, one_space_of, space_of
from windlass.core.jobs.streams import Appended, ChunkGroup
from windlass.core.records import News
from windlass.core.stats.depths import Connections
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.protocol import Capabilities, Schema, Store
from windlass.store.spaces.queries import SpaceQueries
from windlass.store.sql_files import Migration

T = TypeVar("T")
_GLOBAL_KEY = ":global:"


class SpacedStore(SpaceQueries):
    """Keeps the jobs of each space in a store of its own.

    New jobs go to the space of their queue, and events to all spaces. Everything else is about the
    chosen space; without one, about all of them, as far as that needs no change across spaces.
    """

    def __init__(
        self, stores: Mapping[str, Store], spaces: tuple[Space, ...], *, chosen: str | None
    ) -> None:
        super().__init__(stores, chosen)
        self._of_queues = spaces

    @property
    def capabilities(self) -> Capabilities:
        """Those of each space."""
        return next(iter(self._spaces.values())).capabilities

    @property
    def location(self) -> str:
        """The servers, the prefixes and the spaces, without secrets."""
        return ", ".join(store.location for store in self._looked_at.values())

    @property
    def listening(self) -> bool:
        """Whether this process hears of new jobs in every space that it looks at."""
        return all(store.listening for store in self._looked_at.values())

    @property
    def connections(self) -> Connections:
        """Those of all spaces."""
        each = [store.connections for store in self._spaces.values()]
        pools = [pool for pool in each if pool is not None]
        return Connections(
            open=sum(pool.open for pool in pools),
            in_use=sum(pool.in_use for pool in pools),
            limit=sum(pool.limit for pool in pools),
        )

    def of_space(self, name: str) -> Store:
        """Return the store of a space."""
        return self._spaces[name]

    def of_queue(self, queue: str) -> Store:
        """Return the store of a queue's space."""
        return self._spaces[space_of(self._of_queues, queue)]

    async def open(self) -> None:
        await self._ask(lambda store: store.open())

    async def schema(self) -> Schema:
        """Return the oldest schema of the spaces that are looked at."""
        schemas = await self._ask(lambda store: store.schema())
        return min(schemas, key=lambda schema: -1 if schema.found is None else schema.found)

    async def migrate(self) -> list[str]:
        steps = await self._ask(lambda store: store.migrate())
        return [
            f"{name}: {step}"
            for name, taken in zip(self._looked_at, steps, strict=True)
            for step in taken
        ]

    async def migrations(self) -> list[Migration]:
        steps = await self._ask(lambda store: store.migrations())
        return [step for each in steps for step in each]

    async def close(self) -> None:
        await self._ask_all(lambda store: store.close())

    # -- new work ------------------------------------------------------------------------------

    async def enqueue(
        self, jobs: Sequence[NewJob], timeout: timedelta | None = None
    ) -> list[Enqueued]:
        return await self._of_jobs(jobs).enqueue(jobs, timeout)

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        return self._of_jobs(jobs).enqueue_blocking(jobs, timeout)

    async def send(self, news: Sequence[News]) -> None:
        await self._ask_all(lambda store: store.send(news))

    def send_blocking(self, news: Sequence[News], timeout: timedelta) -> None:
        for store in self._spaces.values():
            store.send_blocking(news, timeout)

    def _of_jobs(self, jobs: Sequence[NewJob]) -> Store:
        name = one_space_of(
            self._of_queues,
            (job.queue for job in jobs),
            "jobs that are enqueued together",
            "enqueue those of each space apart, or put the queues into one space",
        )
        for job in jobs:
            if job.unique is not None and job.unique.key.startswith(_GLOBAL_KEY):
                raise ConfigError(
                    f"the unique key of {job.kind!r} must have a scope within one space, got "
                    "scope='global'; use scope='kind' or scope='queue'"
                )
        return self._spaces[name]

    # -- whole changes -------------------------------------------------------------------------

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        """Change records of one space, or move jobs, those of each space as a whole.

        Raises:
            ConfigError: it is unknown which space is meant.
        """
        if names:
            return await (await self._of_records(names)).apply(names, decide)
        changes = decide({}, await self._now())
        others = changes.records or changes.move_counts
        if changes.enqueue or changes.settle or changes.unpark or others:
            return await self._only("a change of more than single jobs").apply(names, decide)
        return await self._move(changes)

    async def hear(self, topics: Sequence[str], decide: Hear[T]) -> Applied[T]:
        return await self._only("reading news").hear(topics, decide)

    async def topics(self, limit: int) -> list[str]:
        return await self._only("reading news").topics(limit)

    async def _now(self) -> datetime:
        *others, last = self._spaces.values()
        for store in others:
            with suppress(StoreError):
                return (await store.sweep(fresh=False)).now
        return (await last.sweep(fresh=False)).now

    async def _of_records(self, names: Sequence[str]) -> Store:
        if self._chosen is not None:
            return self._spaces[self._chosen]

        async def has_any(store: Store) -> bool:
            known = await asyncio.gather(*(store.records(name) for name in names))
            return any(name in each for name, each in zip(names, known, strict=True))

        has = await self._ask_all(has_any)
        owners = [store for store, known in zip(self._spaces.values(), has, strict=True) if known]
        if len(owners) != 1:
            number = "several spaces have" if owners else "no space has"
            raise self._unchosen(f"{number} a record {names[0]!r}")
        return owners[0]

    async def _move(self, changes: Changes[T]) -> Applied[T]:
        ids = [move.id for move in changes.moves]
        moved: dict[int, Job | None] = {}
        for name, found in (await self._find_by_id(ids)).items():
            store, places = self._spaces[name], [n for n, each in enumerate(ids) if each in found]
            if not places:
                continue
            part = Changes(answer=None, moves=[changes.moves[n] for n in places])
            applied = await store.apply([], lambda _, __, part=part: part)  # type: ignore[misc]
            moved |= dict(zip(places, applied.moved, strict=True))
        return Applied(
            answer=changes.answer, moved=tuple(moved.get(n) for n in range(len(changes.moves)))
        )

    # -- what workers do -----------------------------------------------------------------------

    def _only(self, what: str) -> Store:
        if self._chosen is None:
            raise self._unchosen(f"{what} is the work of one space")
        return self._spaces[self._chosen]

    async def wait(
        self, mark: int, timeout: timedelta, ask: StandingAsk | None = None, queues: Queues = None
    ) -> None:
        await self._only("waiting for jobs").wait(mark, timeout, ask, queues=queues)

    async def busy(self) -> None:
        await self._only("waiting for jobs").busy()

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        return await self._only("claiming").claim(claim, worker=worker, token=token)

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        return await self._only("settling").settle(transitions)

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        return await (await self.of_job(job)).progress(job, token, progress)

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        return await self._only("a checkpoint").checkpoint(checkpoints)

    async def stream_append(self, groups: Sequence[ChunkGroup]) -> list[Appended | None]:
        return await self._only("a stream").stream_append(groups)

    async def promote(self, limit: int) -> int:
        return await self._only("promoting").promote(limit)

    async def recall(self, by: timedelta, ago: timedelta) -> int:
        return await self._only("recalling").recall(by, ago)

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        return await self._only("rescuing").rescue(worker=worker, token=token, limit=limit)

    async def prune(self, retention: Retention, limit: int) -> int:
        return await self._only("pruning").prune(retention, limit)

    async def register(self, worker: WorkerInfo) -> None:
        await self._only("a lease").register(worker)

    def heartbeat(self, worker: str, pulse: WorkerPulse, timeout: timedelta) -> bool:
        return self._only("a lease").heartbeat(worker, pulse, timeout)

    async def retire(self, worker: str) -> None:
        await self._only("a lease").retire(worker)

    async def cancel_requests(self, worker: str) -> list[UUID]:
        return await self._only("a lease").cancel_requests(worker)


def store_of_space(store: Store, name: str) -> Store:
    """Return the store of a space; a store without spaces is its own."""
    return store.of_space(name) if isinstance(store, SpacedStore) else store


def store_of_queue(store: Store, queue: str) -> Store:
    """Return the store that has the jobs and the records of a queue."""
    return store.of_queue(queue) if isinstance(store, SpacedStore) else store


async def stores_of_jobs(store: Store, jobs: Sequence[UUID]) -> dict[Store, list[UUID]]:
    """Return jobs by the store that has them; of those that no space has, nothing is returned."""
    if not isinstance(store, SpacedStore):
        return {store: list(jobs)}
    return await store.by_space(jobs)


async def store_of_job(store: Store, job: UUID) -> Store:
    """Return the store that has a job, and the records of its flow and its limits."""
    return await store.of_job(job) if isinstance(store, SpacedStore) else store
