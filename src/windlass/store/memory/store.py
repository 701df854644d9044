"""Owns the memory store: the contract's methods, under one lock and on plain dictionaries."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.core.changes import Applied, Decide, Hear
from windlass.core.claims.lanes import Claim, Head, Queues, StandingAsk, Sweep
from windlass.core.errors import QueueFull
from windlass.core.jobs.ids import first_id
from windlass.core.jobs.job import Checkpoint, Enqueued, Job, NewJob, Progress
from windlass.core.jobs.queries import MAX_GROUPED, ErrorGroups, Finding, JobFilter, Page, Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.jobs.streams import Appended, ChunkGroup, Position, StreamPage
from windlass.core.records import Json, News, RecordPage, Ringing
from windlass.core.schedules.clock_step import AHEAD, Places
from windlass.core.search.scan import Budget
from windlass.core.stats.depths import MAX_COUNTED, Depths, QueueCount, Standing
from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord
from windlass.store.depth_counts import depths_of
from windlass.store.memory import queries
from windlass.store.memory.job_index import MAX_FINISHED
from windlass.store.memory.operations import Tables
from windlass.store.non_transactional import NonTransactional
from windlass.store.protocol import Capabilities, Schema
from windlass.store.sql_files import Migration

T = TypeVar("T")


class _Producer(Struct):
    """A producer that waits until the store has capacity for its jobs."""

    jobs: Sequence[NewJob]
    answer: Future[list[Enqueued]] = field(default_factory=Future)


class MemoryStore(NonTransactional):
    """Keeps jobs in this process: for tests, for tools, and where losing them with it is fine."""

    capabilities = Capabilities(shared=False, durable=False, bounded=True, transactional=False)

    def __init__(
        self,
        *,
        size: int = 1000,
        kept: int | None = MAX_FINISHED,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Make an empty store that lets `size` jobs wait, and remembers `kept` finished ones."""
        self._size = size
        self._clock = clock
        self._latest = clock()
        self._lock = threading.RLock()
        self._tables = Tables(kept)
        self._producers: deque[_Producer] = deque()
        self._version = 0
        self._waiters: list[Future[None]] = []

    @property
    def location(self) -> str:
        """Return the URL: the jobs are in this process only."""
        return "memory://"

    async def open(self) -> None:
        """Do nothing: there is nothing to open."""

    async def schema(self) -> Schema:
        return Schema(found=0, wanted=0)

    async def migrate(self) -> list[str]:
        return []

    async def migrations(self) -> list[Migration]:
        return []

    async def close(self) -> None:
        """Do nothing: the jobs live as long as the process does."""

    # -- the hot path --------------------------------------------------------------------------

    async def enqueue(
        self, jobs: Sequence[NewJob], timeout: timedelta | None = None
    ) -> list[Enqueued]:
        answer = self._produce(jobs)
        if answer.done():
            await asyncio.sleep(0)  # A producer in a loop must let other tasks run.
            return answer.result()
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            self._admit_others()
            raise
        except TimeoutError:
            return self._give_up(answer)

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        answer = self._produce(jobs)
        try:
            return answer.result(timeout.total_seconds())
        except TimeoutError:
            return self._give_up(answer)

    async def sweep(self, *, fresh: bool = True, queues: Queues = None) -> Sweep:
        del fresh  # Reading costs nothing.
        with self._lock:
            due, firsts = self._tables.jobs.first_due(), self._tables.jobs.heads(queues)
            return Sweep(
                heads=tuple(Head(lane=job.lane, position=job.due_at) for job in firsts),
                next_due=None if due is None else due.due_at,
                now=self._clock(),
                mark=self._version,
            )

    async def wait(
        self, mark: int, timeout: timedelta, ask: StandingAsk | None = None, queues: Queues = None
    ) -> None:
        del ask, queues
        with self._lock:
            if self._version != mark:
                return
            waiter: Future[None] = Future()
            self._waiters.append(waiter)
        try:
            await asyncio.wait({asyncio.wrap_future(waiter)}, timeout=timeout.total_seconds())
        finally:
            waiter.cancel()
            with self._lock:
                self._waiters = [other for other in self._waiters if other is not waiter]

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        with self._changing() as now:
            if not self._tables.leases.is_live(worker, now):
                return []
            budgets = dict(claim.budgets)
            taken: list[Job] = []
            for ask in claim.asks:
                if (
                    ask.ordered
                    and now < self._latest
                    and self._tables.jobs.is_ahead(ask.lane, now + AHEAD)
                ):
                    continue  # The clock was set back: younger jobs seem to be older.
                count = min((ask.count, *(budgets[name] for name in ask.draws)))
                jobs = self._tables.claim(ask.lane, count, worker, token, now)
                taken += jobs
                for name in ask.draws:
                    budgets[name] -= len(jobs)
            return taken

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        with self._changing() as now:
            return [self._tables.settle(transition, now) for transition in transitions]

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        with self._lock:
            held = self._tables.jobs.held(job, token)
            if held is not None:
                self._tables.jobs.put(replace(held, progress=progress))
            return held is not None

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        with self._lock:
            return [self._tables.checkpoint(checkpoint) for checkpoint in checkpoints]

    async def stream_append(self, groups: Sequence[ChunkGroup]) -> list[Appended | None]:
        with self._lock:
            return [self._tables.stream_append(group, self._clock()) for group in groups]

    async def promote(self, limit: int) -> int:
        with self._changing() as now:
            count = 0
            while count < limit and (job := self._tables.jobs.first_due()) is not None:
                if job.due_at > now:
                    break
                self._tables.jobs.put(replace(job, state=State.PENDING, waiting_for=None))
                count += 1
            return count

    async def recall(self, by: timedelta, ago: timedelta) -> int:
        with self._changing() as now:
            recalled = self._tables.jobs.recalled(Places.after(by, ago, now))
            for job in recalled:
                self._tables.jobs.put(job)
            return len(recalled)

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        with self._changing() as now:
            return self._tables.rescue(worker, token, limit, now)

    async def prune(self, retention: Retention, limit: int) -> int:
        with self._changing() as now:
            return self._tables.prune(retention, limit, now)

    # -- leases --------------------------------------------------------------------------------

    async def register(self, worker: WorkerInfo) -> None:
        with self._lock:
            self._tables.leases.begin(worker, self._clock())

    def heartbeat(self, worker: str, pulse: WorkerPulse, timeout: timedelta) -> bool:
        del timeout  # The call does not block.
        with self._lock:
            return self._tables.leases.renew(worker, pulse, self._clock())

    async def retire(self, worker: str) -> None:
        with self._lock:
            self._tables.leases.end(worker)

    async def held(self, worker: str) -> list[Job]:
        with self._lock:
            return [job for job in self._tables.jobs if _is_held(job, worker)]

    async def cancel_requests(self, worker: str) -> list[UUID]:
        with self._lock:
            return [
                job.id
                for job in self._tables.jobs
                if _is_held(job, worker) and job.cancel_requested
            ]

    # -- records and whole changes -------------------------------------------------------------

    async def records(self, prefix: str, page: RecordPage | None = None) -> Mapping[str, Json]:
        with self._lock:
            return self._tables.records.starting_with(prefix, page)

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        with self._changing() as now:
            return self._tables.apply(decide(self._tables.records.named(names), now), now)

    async def ringing(self, limit: int) -> Ringing:
        with self._lock:
            return self._tables.records.ringing(limit, self._clock())

    async def topics(self, limit: int) -> list[str]:
        with self._lock:
            return self._tables.news.topics(limit)

    async def hear(self, topics: Sequence[str], decide: Hear[T]) -> Applied[T]:
        with self._changing() as now:
            changes = decide(
                self._tables.records.named(topics), self._tables.news.of(topics, now), now
            )
            self._tables.check_fences(changes)
            self._tables.news.forget(topics)
            return self._tables.apply(changes, now)

    async def send(self, news: Sequence[News]) -> None:
        self.send_blocking(news, timedelta(0))

    def send_blocking(self, news: Sequence[News], timeout: timedelta) -> None:
        del timeout  # The call does not block.
        with self._changing() as now:
            for item in news:
                self._tables.news.add(item, now)

    # -- queries -------------------------------------------------------------------------------

    def all_jobs(self) -> list[Job]:
        """Return every job in order of arrival; may be called from any thread."""
        with self._lock:
            return list(self._tables.jobs)

    async def get(self, job: UUID) -> Job | None:
        return self._tables.jobs.get(job)

    async def get_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        with self._lock:
            return {
                job_id: job for job_id in jobs if (job := self._tables.jobs.get(job_id)) is not None
            }

    async def done(self, kind: str, key: str) -> Job | None:
        with self._lock:
            return self._tables.done(kind, key)

    async def stream_read(self, job: UUID, after: Position, limit: int) -> StreamPage:
        with self._lock:
            return self._tables.stream_read(job, after, limit)

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
        return queries.find(
            self.all_jobs(),
            which,
            self._clock(),
            limit=limit,
            after=after,
            oldest_first=oldest_first,
            brief=brief,
            budget=budget,
        )

    async def error_groups(
        self, *, kind: str | None = None, limit: int, most: int = MAX_GROUPED
    ) -> ErrorGroups:
        return queries.error_groups(self.all_jobs(), kind, limit, most)

    async def counts(self, *, most: int = MAX_COUNTED) -> list[QueueCount]:  # noqa: ARG002
        return queries.counts(self.all_jobs())

    async def standing(self, job: UUID, *, limit: int) -> Standing:
        with self._lock:
            own, jobs, now = self._tables.jobs.get(job), list(self._tables.jobs), self._clock()
        return Standing() if own is None else queries.standing(jobs, own, now, limit)

    async def depths(self, most: int) -> Depths:
        counted = Counter((job.queue, job.state) for job in self.all_jobs())
        return depths_of(((*place, count) for place, count in counted.items()), most)

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        first, end = first_id(since), first_id(until)
        with self._lock:
            counted = Counter(job.queue for job in self._tables.jobs if first <= job.id < end)
        return counted if counted.total() <= most else None

    async def workers(self) -> list[WorkerRecord]:
        with self._lock:
            return self._tables.leases.workers(self._clock())

    async def findings(self) -> list[Finding]:
        return []

    # -- within the lock -----------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[datetime]:
        """Hold the lock, yield the time, then admit waiting producers and wake waiting workers."""
        with self._lock:
            now = self._clock()
            self._latest = max(self._latest, now)
            yield now
            self._admit()
            self._wake()

    def _wake(self) -> None:
        self._version += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(None)

    def _produce(self, jobs: Sequence[NewJob]) -> Future[list[Enqueued]]:
        if len(jobs) > self._size:
            raise QueueFull(self._size, f"{len(jobs):,} jobs at once can never fit; split them")
        producer = _Producer(jobs)
        with self._changing():
            self._producers.append(producer)
        return producer.answer

    def _give_up(self, answer: Future[list[Enqueued]]) -> list[Enqueued]:
        # Jobs admitted at the last moment count.
        if not answer.cancel():
            return answer.result()
        self._admit_others()
        message = "workers are too slow or missing; raise QUEUE_SIZE, or use a durable store"
        raise QueueFull(self._size, message)

    def _admit_others(self) -> None:
        with self._changing():
            pass  # This admits producers behind one that gave up: they may have fewer jobs.

    def _admit(self) -> None:
        """Add the jobs of waiting producers, first come first served, while there is capacity."""
        while self._producers:
            jobs, answer = self._producers[0].jobs, self._producers[0].answer
            if self._tables.jobs.waiting + len(jobs) > self._size and not answer.cancelled():
                return
            self._producers.popleft()
            if answer.set_running_or_notify_cancel():
                answer.set_result(self._tables.enqueue(jobs, self._clock()))


def _is_held(job: Job, worker: str) -> bool:
    return job.state is State.RUNNING and job.worker == worker
