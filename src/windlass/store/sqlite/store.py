"""Owns the SQLite store: the contract's methods, each an operation for the writer or a reader."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from windlass.core.changes import Applied, Decide, Hear
from windlass.core.claims.lanes import Claim, Queues, StandingAsk, Sweep
from windlass.core.jobs.job import Checkpoint, Enqueued, Job, NewJob, Progress
from windlass.core.jobs.queries import MAX_GROUPED, ErrorGroups, Finding, JobFilter, Page, Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.streams import Appended, ChunkGroup, Position, StreamPage
from windlass.core.records import Json, News, RecordPage, Ringing
from windlass.core.schedules.clock_step import Places
from windlass.core.search.scan import Budget
from windlass.core.stats.depths import MAX_COUNTED, Depths, Disk, QueueCount, Standing
from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord
from windlass.store.json_columns import as_json
from windlass.store.non_transactional import NonTransactional
from windlass.store.protocol import Capabilities, Schema
from windlass.store.sql_files import Migration
from windlass.store.sqlite import operations, queries, streams
from windlass.store.sqlite.connections.file import MIGRATIONS, SCHEMA, prepare, schema_at
from windlass.store.sqlite.connections.file_access import FileAccess, in_thread
from windlass.store.sqlite.connections.write_lock import WriteLock
from windlass.store.sqlite.find import find
from windlass.store.sqlite.findings import disk_of, findings_of
from windlass.store.sqlite.queries import sql
from windlass.store.sqlite.repair import bury_unreadable
from windlass.store.sqlite.rows import micros, worker_values
from windlass.store.sqlite.settle_group import SettleGroup

T = TypeVar("T")
_SMALL_JOBS = 4
_SMALL_BYTES = 4 * 1024
"""Most jobs, and bytes of payloads, of an enqueue that an event loop may write itself."""


class SqliteStore(NonTransactional):
    """Keeps jobs in one file on one machine, for any number of its processes."""

    capabilities = Capabilities(shared=True, durable=True, bounded=False, transactional=False)

    def __init__(
        self, path: Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._path = path.absolute()
        self._clock = clock
        self._file = FileAccess(self._path)

    @property
    def location(self) -> str:
        """Return the absolute path of the file."""
        return str(self._path)

    async def open(self) -> None:
        await self._file.opened()

    async def close(self) -> None:
        await asyncio.wrap_future(in_thread(self._file.close))

    async def schema(self) -> Schema:
        found = await asyncio.wrap_future(in_thread(lambda: schema_at(self._path)))
        return Schema(found=found, wanted=SCHEMA)

    async def migrate(self) -> list[str]:
        return await asyncio.wrap_future(in_thread(self._migrate))

    async def migrations(self) -> list[Migration]:
        applied = (await self.schema()).found or 0
        return [step for step in MIGRATIONS if step.number > applied]

    # -- the hot path --------------------------------------------------------------------------

    async def enqueue(
        self, jobs: Sequence[NewJob], timeout: timedelta | None = None
    ) -> list[Enqueued]:
        if timeout is None:
            return await self._file.write(lambda db: self._insert(db, jobs))
        if len(jobs) <= _SMALL_JOBS and _payload_bytes(jobs) <= _SMALL_BYTES:
            is_statement = _is_lone(jobs)
            added = self._file.write_alone(jobs, self._insert, is_statement=is_statement)
            if added is not None:
                return added
            return await self._file.write_small_within(
                jobs, self._insert, timeout, "enqueue", is_statement=is_statement
            )
        return await self._file.write_within(lambda db: self._insert(db, jobs), timeout, "enqueue")

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        return self._file.write_blocking(
            lambda db: self._insert(db, jobs),
            timeout,
            "enqueue",
            is_statement=_is_lone(jobs),
        )

    async def sweep(self, *, fresh: bool = True, queues: Queues = None) -> Sweep:
        del fresh  # Reading costs less than a cache.
        sweep = await self._file.run(
            lambda threads: threads.sweeper.submit(
                lambda db: queries.sweep(db, threads.watch.version(), self._clock(), queues)
            )
        )
        if sweep is not None:
            return sweep
        await self._file.write(lambda db: bury_unreadable(db, self._micros(), "pending"))
        return await self.sweep(queues=queues)

    async def wait(
        self, mark: int, timeout: timedelta, ask: StandingAsk | None = None, queues: Queues = None
    ) -> None:
        del ask, queues
        await self._file.wait_for_commit(mark, timeout)

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        seqs: list[int] = []

        def take(db: sqlite3.Connection) -> None:
            seqs[:] = operations.claim(db, claim, worker, token, self._micros())

        # The jobs are read when other processes may write again.
        jobs = await self._file.write_then_read(
            take, lambda db: operations.claimed(db, seqs, token)
        )
        if jobs is None:
            jobs = await self._file.write(
                lambda db: operations.claimed_again(db, seqs, token, self._micros()), durable=False
            )
        return jobs

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        group = SettleGroup.of(transitions)
        return await self._file.write(lambda db: operations.settle_all(db, group, self._clock()))

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        values = (as_json(progress), str(job), token)
        return await self._file.write(
            lambda db: db.execute(sql["record_progress"], values).rowcount > 0, durable=False
        )

    async def promote(self, limit: int) -> int:
        return await self._file.write(
            lambda db: db.execute(sql["promote_jobs"], (self._micros(), limit)).rowcount,
            durable=False,
        )

    async def recall(self, by: timedelta, ago: timedelta) -> int:
        return await self._file.write(
            lambda db: operations.recall(db, Places.after(by, ago, self._clock())), durable=False
        )

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        return await self._file.write(lambda db: operations.checkpoint(db, checkpoints))

    async def stream_append(self, groups: Sequence[ChunkGroup]) -> list[Appended | None]:
        return await self._file.write(
            lambda db: [streams.append(db, group, self._micros()) for group in groups],
            durable=False,
        )

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        due = await self._file.read(
            lambda db: queries.holds(db, "rescue_is_due", {"now": self._micros()})
        )
        if not due:
            return []
        return await self._file.write(
            lambda db: operations.rescue(db, worker, token, limit, self._micros()), durable=False
        )

    async def prune(self, retention: Retention, limit: int) -> int:
        def horizons() -> dict[str, int | None]:
            return operations.horizons(retention, self._clock())

        if not await self._file.read(lambda db: queries.holds(db, "prune_is_due", horizons())):
            return 0
        return await self._file.write(
            lambda db: operations.prune(db, horizons(), limit), durable=False
        )

    # -- leases --------------------------------------------------------------------------------

    async def register(self, worker: WorkerInfo) -> None:
        def insert(db: sqlite3.Connection) -> None:
            db.execute(sql["register_worker"], worker_values(worker, self._clock()))

        await self._file.write(insert, durable=False)

    def heartbeat(self, worker: str, pulse: WorkerPulse, timeout: timedelta) -> bool:
        def renew(db: sqlite3.Connection) -> bool:
            values = {"id": worker, "pulse": as_json(pulse), "now": self._micros()}
            return db.execute(sql["renew_lease"], values).rowcount > 0

        return self._file.write_blocking(renew, timeout, "the heartbeat", durable=False)

    async def retire(self, worker: str) -> None:
        await self._file.write(lambda db: db.execute(sql["end_lease"], (worker,)), durable=False)

    async def held(self, worker: str) -> list[Job]:
        return await self._file.read(lambda db: queries.held(db, worker))

    async def cancel_requests(self, worker: str) -> list[UUID]:
        return await self._file.read(lambda db: queries.cancel_requests(db, worker))

    # -- records and whole changes -------------------------------------------------------------

    async def records(self, prefix: str, page: RecordPage | None = None) -> Mapping[str, Json]:
        return await self._file.read(lambda db: queries.records(db, prefix, page))

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        return await self._file.write(lambda db: operations.apply(db, names, decide, self._clock()))

    async def ringing(self, limit: int) -> Ringing:
        return await self._file.read(lambda db: queries.ringing(db, limit, self._clock()))

    async def topics(self, limit: int) -> list[str]:
        return await self._file.read(lambda db: queries.topics(db, limit))

    async def hear(self, topics: Sequence[str], decide: Hear[T]) -> Applied[T]:
        return await self._file.write(lambda db: operations.hear(db, topics, decide, self._clock()))

    async def send(self, news: Sequence[News]) -> None:
        await self._file.write(lambda db: operations.send(db, news, self._clock()))

    def send_blocking(self, news: Sequence[News], timeout: timedelta) -> None:
        self._file.write_blocking(
            lambda db: operations.send(db, news, self._clock()), timeout, "send_event"
        )

    # -- queries -------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        return await self._file.read(lambda db: queries.get(db, job))

    async def get_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        return await self._file.read(lambda db: queries.get_many(db, jobs))

    async def done(self, kind: str, key: str) -> Job | None:
        return await self._file.read(lambda db: queries.done(db, kind, key))

    async def stream_read(self, job: UUID, after: Position, limit: int) -> StreamPage:
        return await self._file.read(lambda db: streams.read(db, job, after, limit))

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
        return await self._file.read(
            lambda db: find(
                db,
                which,
                self._clock(),
                limit=limit,
                after=after,
                oldest_first=oldest_first,
                brief=brief,
                budget=budget,
            )
        )

    async def error_groups(
        self, *, kind: str | None = None, limit: int, most: int = MAX_GROUPED
    ) -> ErrorGroups:
        return await self._file.read(lambda db: queries.error_groups(db, kind, limit, most))

    async def counts(self, *, most: int = MAX_COUNTED) -> list[QueueCount]:
        return await self._file.read(lambda db: queries.counts(db, most))

    async def standing(self, job: UUID, *, limit: int) -> Standing:
        return await self._file.read(lambda db: queries.standing(db, job, limit, self._clock()))

    async def depths(self, most: int) -> Depths:
        return await self._file.read(lambda db: queries.depths(db, most))

    async def disk(self) -> Disk | None:
        # In a thread of its own: a file system on a network may not answer.
        return await asyncio.wrap_future(in_thread(lambda: disk_of(self._path)))

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        return await self._file.read(lambda db: queries.arrivals(db, since, until, most))

    async def workers(self) -> list[WorkerRecord]:
        return await self._file.read(lambda db: queries.workers(db, self._clock()))

    async def findings(self) -> list[Finding]:
        def look() -> list[Finding]:
            threads = self._file.ready()
            return list(findings_of(self._path, threads.write_lock, threads.replaced_at))

        return await asyncio.wrap_future(in_thread(look))

    # -- internals -----------------------------------------------------------------------------

    def _insert(self, db: sqlite3.Connection, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if _is_lone(jobs):
            return [operations.enqueue_alone(db, jobs[0], self._clock())]
        return operations.enqueue(db, jobs, self._clock())

    def _micros(self) -> int:
        return micros(self._clock())

    def _migrate(self) -> list[str]:
        write_lock = WriteLock(self._path)
        try:
            with write_lock:
                return [f"{step.number:04}_{step.name}" for step in prepare(self._path)]
        finally:
            write_lock.close()


def _is_lone(jobs: Sequence[NewJob]) -> bool:
    """Return whether `_insert` adds these jobs by a single statement."""
    return len(jobs) == 1 and jobs[0].unique is None


def _payload_bytes(jobs: Sequence[NewJob]) -> int:
    size = 0
    for job in jobs:  # Not a generator: most have one job, and this is on the way of every enqueue.
        size += len(job.payload)
    return size
