"""Owns the PostgreSQL store: the contract's methods, and which connection carries each.

Claims and settles go by the pipeline, a worker's chores and the lease by connections of their own,
and the pool keeps some spare ones for a worker's duties: users of the pool cannot block a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import psycopg
from msgspec.structs import replace

from windlass.core.changes import Applied, Decide, Hear
from windlass.core.claims.lanes import Claim, Queues, StandingAsk, Sweep
from windlass.core.jobs.job import Checkpoint, Enqueued, Job, NewJob, Progress
from windlass.core.jobs.queries import MAX_GROUPED, ErrorGroups, Finding, JobFilter, Page, Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.streams import Appended, ChunkGroup, Position, StreamPage
from windlass.core.records import Json, News, RecordPage, Ringing
from windlass.core.schedules.clock_step import LATE, SPANS
from windlass.core.search.scan import Budget
from windlass.core.stats.depths import MAX_COUNTED, Connections, Depths, Disk, QueueCount, Standing
from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord
from windlass.store.json_columns import as_json
from windlass.store.postgres import claim_and_settle, health, queries, records
from windlass.store.postgres import migrate as schema
from windlass.store.postgres.connections.connection import (
    BlockingConnection,
    LoopConnection,
    Row,
    conninfo_of,
    location_of,
)
from windlass.store.postgres.connections.dedicated import CursorWork
from windlass.store.postgres.connections.forks import start_anew_in_children
from windlass.store.postgres.connections.heartbeat import Heartbeat
from windlass.store.postgres.connections.per_loop import ConnectionsPerLoop, LoopConnections
from windlass.store.postgres.connections.pool import AsyncPool, Pool, PoolSize
from windlass.store.postgres.connections.retrying import Fate, apersist, persist
from windlass.store.postgres.connections.server_errors import translate
from windlass.store.postgres.connections.user_connections import arun_on, run_on
from windlass.store.postgres.enqueue import Enqueuer
from windlass.store.postgres.find import find
from windlass.store.postgres.migrate import Names
from windlass.store.postgres.parameters import news_document, register_values, stream_document
from windlass.store.postgres.rows import job_of, stream_page, worker_of
from windlass.store.postgres.transaction import Transaction
from windlass.store.protocol import WORKERS_KEPT, Capabilities, Schema
from windlass.store.sql_files import Migration

T = TypeVar("T")
_MIGRATION_SECONDS = 3600.0


class PostgresStore:
    """Keeps jobs in a PostgreSQL database, for any number of hosts.

    `listen_url` is where to listen for notifications if `url` leads through a pooler; with "off",
    workers poll.
    """

    capabilities = Capabilities(
        shared=True, durable=True, bounded=False, transactional=True, makes_itself=False
    )

    def __init__(
        self,
        url: str,
        *,
        schema: str = "windlass",
        listen_url: str | None = None,
        limits: PoolSize | None = None,
    ) -> None:
        self._names = Names(schema)
        self._conninfo = conninfo_of(url)
        self._listen = None if listen_url == "off" else conninfo_of(listen_url or url)
        self.capabilities = replace(type(self).capabilities, wakes=self._listen is not None)
        self._location = location_of(self._conninfo, schema)
        self._limits = limits or PoolSize()
        self.sql = self._names.statements()
        self._served: WorkerInfo | None = None
        self._drop_connections()
        start_anew_in_children(self)

    def _drop_connections(self) -> None:
        """Drop all connections; those of a parent process are left to it."""
        self._by_loop = ConnectionsPerLoop()
        self._pool = Pool(self._conninfo, self._location, self._limits)
        self._enqueueing = Enqueuer(self.sql)
        self._heartbeat = Heartbeat(self._conninfo, self._location, self.sql["beat"])
        self._checked = False

    @property
    def location(self) -> str:
        return self._location

    @property
    def listening(self) -> bool:
        """Whether any event loop of this process receives notifications of new jobs."""
        return self._by_loop.listening

    @property
    def connections(self) -> Connections:
        pools: list[Pool | AsyncPool] = [self._pool, *self._by_loop.pools]
        return Connections(
            open=sum(pool.open for pool in pools),
            in_use=sum(pool.in_use for pool in pools),
            limit=self._limits.most * len(pools),
        )

    async def open(self) -> None:
        if not self._checked:
            await self._here().borrow(
                lambda connection: schema.check(connection, self._names, self._location)
            )
            self._checked = True

    async def schema(self) -> Schema:
        return await self._here().borrow(lambda connection: schema.look(connection, self._names))

    async def migrate(self) -> list[str]:
        return await self._here().borrow(
            lambda connection: schema.migrate(connection, self._names, self._location),
            timeout=_MIGRATION_SECONDS,
        )

    async def migrations(self) -> list[Migration]:
        return await self._here().borrow(
            lambda connection: schema.scripts(connection, self._names, self._location)
        )

    async def close(self) -> None:
        await self._by_loop.close_here()
        self._pool.close()
        self._pool = Pool(self._conninfo, self._location, self._limits)
        self._heartbeat.close()

    # -- the hot path --------------------------------------------------------------------------

    async def enqueue(
        self, jobs: Sequence[NewJob], timeout: timedelta | None = None
    ) -> list[Enqueued]:
        async def say(fate: Fate) -> list[Enqueued]:
            async def carry(connection: LoopConnection) -> list[Enqueued]:
                fate.sent = True
                return await self._enqueueing.enqueue(connection, jobs)

            return await self._here().borrow(carry)

        return await apersist(say, timeout, self._location)

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        return self._persist(
            lambda connection: self._enqueueing.enqueue_blocking(connection, jobs), timeout
        )

    def _persist(self, speak: Callable[[BlockingConnection], T], timeout: timedelta) -> T:
        def say(fate: Fate, timeout: float) -> T:
            try:
                with self._pool.connection(timeout) as connection:
                    fate.sent = True
                    return speak(connection)
            except psycopg.Error as error:
                raise translate(error, self._location) from error

        return persist(say, timeout)

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._enqueueing.enqueue_in(transaction, jobs)

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._enqueueing.aenqueue_in(transaction, jobs)

    async def sweep(self, *, fresh: bool = True, queues: Queues = None) -> Sweep:
        look = claim_and_settle.sweep if fresh else claim_and_settle.believed_sweep
        return await look(self._here(), self.sql, queues)

    async def wait(
        self, mark: int, timeout: timedelta, ask: StandingAsk | None = None, queues: Queues = None
    ) -> None:
        del ask
        await self._here().wait(mark, timeout.total_seconds(), queues)

    async def busy(self) -> None:
        await self._here().listener.rest_no_more()

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        return await claim_and_settle.claim(self._here(), self.sql, claim, worker, token)

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        return await claim_and_settle.settle(self._here(), self.sql, transitions)

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        values = (as_json(progress), job, token)
        text = self.sql["progress"]
        return await self._chore(lambda cursor: records.count(cursor, text, values)) > 0

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        return await claim_and_settle.checkpoint(self._here(), self.sql, checkpoints)

    async def stream_append(self, groups: Sequence[ChunkGroup]) -> list[Appended | None]:
        rows = await self._duty_rows("stream_append", (stream_document(groups),))
        return [None if row[0] is None else Appended(*row) for row in rows]

    async def promote(self, limit: int) -> int:
        ((promoted,),) = await self._chore_rows("promote", limit)
        if promoted < limit:
            # Otherwise a caller that believes in a due job would promote nothing until the next
            # sweep.
            self._here().lanes.promoted()
        return int(promoted)

    async def recall(self, by: timedelta, ago: timedelta) -> int:
        values = {"by": by, "ago": ago, "late": LATE, "spans": sorted(SPANS)}
        ((recalled,),) = await self._duty_rows("recall", values)
        self._here().lanes.doubt()
        return int(recalled)

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        return [job_of(row) for row in await self._chore_rows("rescue", worker, token, limit)]

    async def prune(self, retention: Retention, limit: int) -> int:
        values = (retention.finished, retention.dead, retention.streams, WORKERS_KEPT, limit)
        # Not among the chores, which it would hold up: it may wait for readers of a whole table.
        ((pruned,),) = await self._duty_rows("prune", values)
        return int(pruned)

    # -- leases --------------------------------------------------------------------------------

    async def register(self, worker: WorkerInfo) -> None:
        values = register_values(worker)
        await self._chore(lambda cursor: records.count(cursor, self.sql["register"], values))
        self._served = worker
        listener = self._here().listener
        listener.served = worker
        listener.start()

    def heartbeat(self, worker: str, pulse: WorkerPulse, timeout: timedelta) -> bool:
        return self._heartbeat.beat(worker, pulse, timeout)

    async def retire(self, worker: str) -> None:
        await self._chore(lambda cursor: records.count(cursor, self.sql["retire"], (worker,)))
        # Else wake-ups would go to a worker that has stopped, and miss those that work.
        await self._here().listener.close()

    async def held(self, worker: str) -> list[Job]:
        return [job_of(row) for row in await self._chore_rows("held", worker)]

    async def cancel_requests(self, worker: str) -> list[UUID]:
        return [row[0] for row in await self._chore_rows("cancel_requests", worker)]

    # -- records and whole changes -------------------------------------------------------------

    async def records(self, prefix: str, page: RecordPage | None = None) -> Mapping[str, Json]:
        return await self._chore(lambda cursor: records.read(cursor, self.sql, prefix, page))

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        return await self._duty(
            lambda cursor: records.apply(cursor, self.sql, names, decide), again=False
        )

    async def ringing(self, limit: int) -> Ringing:
        return await self._chore(lambda cursor: records.ringing(cursor, self.sql, limit))

    async def topics(self, limit: int) -> list[str]:
        return [row[0] for row in await self._chore_rows("news_topics", max(limit, 1))]

    async def hear(self, topics: Sequence[str], decide: Hear[T]) -> Applied[T]:
        return await self._duty(
            lambda cursor: records.hear(cursor, self.sql, topics, decide), again=False
        )

    async def send(self, news: Sequence[News]) -> None:
        values = (news_document(news),)
        await self._here().run(lambda cursor: records.fetch(cursor, self.sql["send_news"], values))

    def send_blocking(self, news: Sequence[News], timeout: timedelta) -> None:
        values = (news_document(news),)
        self._persist(lambda connection: connection.execute(self.sql["send_news"], values), timeout)

    def send_in(self, transaction: object, news: Sequence[News]) -> None:
        run_on(transaction, self.sql["send_news"], news_document(news))

    async def asend_in(self, transaction: object, news: Sequence[News]) -> None:
        await arun_on(transaction, self.sql["send_news"], news_document(news))

    def transaction(self, settling: Transition) -> Transaction:
        return Transaction(
            self._pool, lambda: self._here().pool, self.sql, settling, location=self._location
        )

    # -- queries -------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        return await self._here().run(lambda cursor: queries.get(cursor, self.sql, job))

    async def get_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        return await self._duty(lambda cursor: queries.get_many(cursor, self.sql, jobs))

    async def done(self, kind: str, key: str) -> Job | None:
        rows = await self._duty_rows("done", {"kind": kind, "key": key})
        return job_of(rows[0]) if rows else None

    async def stream_read(self, job: UUID, after: Position, limit: int) -> StreamPage:
        values = {"job": job, **after._asdict(), "limit": max(limit, 1)}
        return stream_page(await self._duty_rows("stream_read", values))

    async def find(
        self,
        which: JobFilter,
        *,
        limit: int,
        after: UUID | None = None,
        oldest_first: bool = False,
        brief: bool = False,
        budget: Budget | None = None,
    ) -> Page:
        return await self._duty(
            lambda cursor: find(cursor, self.sql, which, limit, after, oldest_first, brief, budget)
        )

    async def error_groups(
        self, *, kind: str | None = None, limit: int, most: int = MAX_GROUPED
    ) -> ErrorGroups:
        return await self._here().run(
            lambda cursor: queries.error_groups(cursor, self.sql, kind, limit, most)
        )

    async def counts(self, *, most: int = MAX_COUNTED) -> list[QueueCount]:
        return await self._here().run(lambda cursor: queries.counts(cursor, self.sql, most))

    async def standing(self, job: UUID, *, limit: int) -> Standing:
        return await self._here().run(lambda cursor: queries.standing(cursor, self.sql, job, limit))

    async def depths(self, most: int) -> Depths:
        return await self._duty(lambda cursor: queries.depths(cursor, self.sql, most))

    async def disk(self) -> Disk | None:
        return None  # PostgreSQL does not report the free space of its host.

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        return await self._duty(
            lambda cursor: queries.arrivals(cursor, self.sql, since, until, most)
        )

    async def workers(self) -> list[WorkerRecord]:
        return [worker_of(row) for row in await self._duty_rows("list_workers", None)]

    async def findings(self) -> list[Finding]:
        listener = self._here().listener
        return await self._duty(lambda cursor: health.findings(cursor, self.sql, listener))

    async def lineage(self) -> str | None:
        return await self._duty(lambda cursor: health.lineage(cursor, self.sql))

    # -- connections ---------------------------------------------------------------------------

    def _here(self) -> LoopConnections:
        return self._by_loop.here(self._make_connections)

    def _make_connections(self) -> LoopConnections:
        return LoopConnections(
            self._conninfo,
            self._listen,
            self._location,
            self._limits,
            self._names.channel,
            statements=self.sql,
            served=self._served,
        )

    async def _chore(self, work: CursorWork[T]) -> T:
        return await self._here().chores.run(work)

    async def _chore_rows(self, statement: str, *values: object) -> list[Row]:
        return await self._chore(lambda cursor: records.fetch(cursor, self.sql[statement], values))

    async def _duty(self, work: CursorWork[T], *, again: bool = True) -> T:
        """Do a worker's duty, even if handlers hold all their connections of the pool."""
        return await self._here().run(work, again=again, duty=True)

    async def _duty_rows(self, statement: str, values: object) -> list[Row]:
        return await self._duty(lambda cursor: records.fetch(cursor, self.sql[statement], values))

    def after_fork_in_child(self) -> object:
        """Start anew: a connection belongs to the process that opened it."""
        inherited = (self._by_loop, self._pool, self._heartbeat)
        self._drop_connections()
        return inherited
