"""Owns the memory store: the contract's methods, all under one lock and on plain dictionaries."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

from msgspec import DecodeError
from msgspec.json import decode, encode
from msgspec.structs import replace

from windlass.core.changes import Applied, Changes, Decide, Hear, Move, Verb, moved, unparked
from windlass.core.durations import resolve
from windlass.core.errors import Fenced, QueueFull
from windlass.core.job import (
    AGING,
    FLOW,
    HISTORY_KEPT,
    Checkpoint,
    Claim,
    Depths,
    Enqueued,
    ErrorGroup,
    Finding,
    Head,
    Job,
    JobFilter,
    Json,
    Lane,
    NewJob,
    News,
    Page,
    Progress,
    Pulse,
    QueueCount,
    Retention,
    Ringing,
    Saga,
    Standing,
    Sweep,
    WorkerInfo,
    WorkerRecord,
    first_id,
)
from windlass.core.settle import Transition
from windlass.core.states import FINISHED, WAITING, State, may_move
from windlass.core.unique import amended
from windlass.store.depths import depths_of
from windlass.store.memory.jobs import FINISHED_KEPT, Jobs
from windlass.store.memory.keys import DoneKeys, Keys
from windlass.store.protocol import WORKERS_KEPT, Capabilities, Plain, Schema
from windlass.store.sql import Migration

T = TypeVar("T")


@dataclass
class _Lease:
    """A worker, and since when it has renewed without a gap."""

    info: WorkerInfo
    pulse: Pulse
    started_at: datetime
    last_seen: datetime
    since: datetime
    until: datetime
    ended: bool = False

    def is_live(self, now: datetime) -> bool:
        # A clock that was set back must not keep the dead alive for as long as it went back.
        return not self.ended and self.until > now and self.last_seen <= now + self.info.lease


@dataclass
class _Producer:
    """A producer that waits for room."""

    jobs: Sequence[NewJob]
    answer: Future[list[Enqueued]] = field(default_factory=Future)


class MemoryStore(Plain):
    """Keeps jobs in this process: for tests, for tools, and where losing them with it is fine."""

    capabilities = Capabilities(shared=False, durable=False, bounded=True, transactional=False)

    def __init__(
        self,
        *,
        size: int = 1000,
        kept: int | None = FINISHED_KEPT,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Make an empty store that lets `size` jobs wait, and remembers `kept` finished ones."""
        self._size = size
        self._clock = clock
        self._lock = threading.RLock()
        self._jobs = Jobs(kept)
        self._keys = Keys()
        self._done = DoneKeys(self._jobs.__contains__)
        self._leases: dict[str, _Lease] = {}
        # As JSON, like in other stores: neither side can change what the other has.
        self._records: dict[str, bytes] = {}
        self._alarms: dict[str, datetime] = {}
        self._news: dict[str, dict[UUID, News]] = {}
        self._producers: deque[_Producer] = deque()
        self._version = 0
        self._sleepers: list[Future[None]] = []

    @property
    def location(self) -> str:
        """Nowhere but here."""
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

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        try:
            return await asyncio.wrap_future(self._produce(jobs))
        except asyncio.CancelledError:
            self._let_others_in()
            raise

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        answer = self._produce(jobs)
        try:
            return answer.result(timeout.total_seconds())
        except TimeoutError:
            if not answer.cancel():
                return answer.result()
            self._let_others_in()
            message = "a worker is too slow or absent; raise QUEUE_SIZE, or use a durable store"
            raise QueueFull(self._size, message) from None

    async def sweep(self, *, fresh: bool = True) -> Sweep:
        del fresh  # To look costs nothing.
        with self._lock:
            due = self._jobs.first_due()
            return Sweep(
                heads=tuple(Head(lane=job.lane, position=job.due_at) for job in self._jobs.heads()),
                next_due=None if due is None else due.due_at,
                now=self._clock(),
                mark=self._version,
            )

    async def wait(self, mark: int, timeout: timedelta) -> None:
        with self._lock:
            if self._version != mark:
                return
            bell: Future[None] = Future()
            self._sleepers.append(bell)
        try:
            await asyncio.wait({asyncio.wrap_future(bell)}, timeout=timeout.total_seconds())
        finally:
            bell.cancel()
            with self._lock:
                self._sleepers = [each for each in self._sleepers if each is not bell]

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        with self._changing() as now:
            lease = self._leases.get(worker)
            if lease is None or not lease.is_live(now):
                return []
            budgets = dict(claim.budgets)
            taken: list[Job] = []
            for ask in claim.asks:
                room = min((ask.count, *(budgets[name] for name in ask.draws)))
                got = self._take(ask.lane, room, worker, token, now)
                taken += got
                for name in ask.draws:
                    budgets[name] -= len(got)
            return taken

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        with self._changing() as now:
            return [self._settle(transition, now) for transition in transitions]

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        with self._lock:
            held = self._jobs.held(job, token)
            if held is not None:
                self._jobs.put(replace(held, progress=progress))
            return held is not None

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        with self._lock:
            return [self._checkpoint(each) for each in checkpoints]

    async def promote(self, limit: int) -> int:
        with self._changing() as now:
            count = 0
            while count < limit and (job := self._jobs.first_due()) is not None:
                if job.due_at > now:
                    break
                self._jobs.put(replace(job, state=State.PENDING, waiting_for=None))
                count += 1
            return count

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        with self._changing() as now:
            rescuer = self._leases.get(worker)
            if rescuer is None or not rescuer.is_live(now):
                return []
            if now - rescuer.since < rescuer.info.lease:
                return []
            for lease in self._leases.values():
                lease.ended |= not lease.is_live(now)
            orphans = [job for job in self._jobs if self._is_orphan(job)]
            for job in orphans[:limit]:
                self._jobs.put(replace(job, worker=worker, token=token))
            return [replace(job, token=token) for job in orphans[:limit]]

    async def prune(self, retention: Retention, limit: int) -> int:
        with self._changing() as now:
            old = [job for job in self._jobs if _is_past(job, retention, now)]
            old = sorted(old, key=lambda job: job.finished_at or now)[:limit]
            for job in old:
                self._jobs.forget(job)
            spent = self._keys.prune(now)
            if retention.finished is not None:
                spent += self._done.prune(now - retention.finished)
            gone = [
                name
                for name, lease in self._leases.items()
                if lease.ended and now - lease.last_seen > WORKERS_KEPT
            ]
            for name in gone:
                del self._leases[name]
            return len(old) + spent + len(gone)

    # -- leases --------------------------------------------------------------------------------

    async def register(self, worker: WorkerInfo) -> None:
        with self._lock:
            now = self._clock()
            self._leases[worker.id] = _Lease(
                info=worker,
                pulse=Pulse(),
                started_at=now,
                last_seen=now,
                since=now,
                until=now + worker.lease,
            )

    def heartbeat(self, worker: str, pulse: Pulse, timeout: timedelta) -> bool:
        del timeout  # Nothing here takes any time.
        with self._lock:
            now = self._clock()
            lease = self._leases.get(worker)
            if lease is None or lease.ended:
                return False
            if now - lease.last_seen > lease.info.lease or now < lease.since:
                lease.since = now
            lease.pulse = pulse
            lease.last_seen = now
            lease.until = now + lease.info.lease
            return True

    async def retire(self, worker: str) -> None:
        with self._lock:
            if (lease := self._leases.get(worker)) is not None:
                lease.ended = True

    async def held(self, worker: str) -> list[Job]:
        with self._lock:
            return [job for job in self._jobs if _is_held(job, worker)]

    async def cancel_requests(self, worker: str) -> list[UUID]:
        with self._lock:
            return [job.id for job in self._jobs if _is_held(job, worker) and job.cancel_requested]

    # -- records and whole changes -------------------------------------------------------------

    async def records(self, prefix: str) -> Mapping[str, Json]:
        with self._lock:
            return {
                name: _unpacked(record)
                for name, record in self._records.items()
                if name.startswith(prefix)
            }

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        with self._changing() as now:
            return self._carry_out(decide(self._known(names), now), now)

    async def ringing(self, limit: int) -> Ringing:
        with self._lock:
            now = self._clock()
            alarms = sorted(self._alarms.items(), key=lambda alarm: (alarm[1], alarm[0]))
            due = [name for name, at in alarms if at <= now][: max(limit, 1)]
            later = [at for _, at in alarms[len(due) :]]
            return Ringing(records=self._known(due), next=later[0] if later else None, now=now)

    async def topics(self, limit: int) -> list[str]:
        with self._lock:
            return list(self._news)[: max(limit, 1)]

    async def hear(self, topics: Sequence[str], decide: Hear[T]) -> Applied[T]:
        with self._changing() as now:
            news = [each for topic in topics for each in self._news.get(topic, {}).values()]
            news.sort(key=lambda each: each.at or now)
            changes = decide(self._known(topics), news, now)
            self._check_fences(changes)
            for topic in topics:
                self._news.pop(topic, None)
            return self._carry_out(changes, now)

    async def send(self, news: Sequence[News]) -> None:
        self.send_blocking(news, timedelta(0))

    def send_blocking(self, news: Sequence[News], timeout: timedelta) -> None:
        del timeout  # Nothing here takes any time.
        with self._changing() as now:
            for each in news:
                self._tell(each, now)

    # -- looking -------------------------------------------------------------------------------

    def all_jobs(self) -> list[Job]:
        """Return every job, in the order in which they came; from any thread, at once."""
        with self._lock:
            return list(self._jobs)

    async def get(self, job: UUID) -> Job | None:
        return self._jobs.get(job)

    async def get_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        with self._lock:
            found = [self._jobs.get(job) for job in jobs]
            return {job.id: job for job in found if job is not None}

    async def done(self, kind: str, key: str) -> Job | None:
        with self._lock:
            job_id = self._done.by(kind, key)
            return None if job_id is None else self._jobs.get(job_id)

    async def find(self, which: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        with self._lock:
            fitting = [
                job for job in self._jobs if _fits(job, which) and (after is None or job.id < after)
            ]
        fitting.sort(key=lambda job: job.id, reverse=True)
        limit = max(limit, 1)
        page = fitting[:limit]
        return Page(jobs=tuple(page), after=page[-1].id if len(fitting) > limit else None)

    async def error_groups(self, *, kind: str | None = None, limit: int) -> list[ErrorGroup]:
        which = JobFilter(states=(State.DEAD,), kind=kind)
        with self._lock:
            dead = [job for job in self._jobs if _fits(job, which)]
        groups: dict[tuple[str, str], list[Job]] = {}
        for job in sorted(dead, key=lambda job: job.id):
            groups.setdefault((_fingerprint_of(job), job.kind), []).append(job)
        found = [_group(*names, jobs) for names, jobs in groups.items()]
        found.sort(key=lambda group: (-group.count, group.kind, group.fingerprint))
        return found[: max(limit, 1)]

    async def counts(self) -> list[QueueCount]:
        with self._lock:
            jobs = list(self._jobs)
        counted = Counter((job.queue, job.state) for job in jobs)
        oldest: dict[tuple[str, State], datetime] = {}
        for job in jobs:
            if job.state in WAITING:
                place = (job.queue, job.state)
                oldest[place] = min(job.due_at, oldest.get(place, job.due_at))
        return [
            QueueCount(queue=queue, state=state, count=count, oldest=oldest.get((queue, state)))
            for (queue, state), count in sorted(counted.items())
        ]

    async def standing(self, job: UUID, *, limit: int) -> Standing:
        with self._lock:
            own, jobs, now = self._jobs.get(job), list(self._jobs), self._clock()
        none = Standing()
        if own is None:
            return none
        others = [each for each in jobs if each.queue == own.queue]
        # A stable sort: their arrival decides between those that were due together.
        waiting = [each for each in others if each.state is State.PENDING or each is own]
        ahead = sorted(waiting, key=_urgency).index(own)
        ended = [each for each in others if each.finished_at and now - each.finished_at < none.span]
        return Standing(ahead=min(ahead, limit), ended=len(ended))

    async def depths(self, most: int) -> Depths:
        with self._lock:
            counted = Counter((job.queue, job.state) for job in self._jobs)
        return depths_of(((*place, count) for place, count in counted.items()), most)

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        first, end = first_id(since), first_id(until)
        with self._lock:
            counted = Counter(job.queue for job in self._jobs if first <= job.id < end)
        return counted if counted.total() <= most else None

    async def workers(self) -> list[WorkerRecord]:
        with self._lock:
            now = self._clock()
            known = [
                WorkerRecord(
                    info=lease.info,
                    pulse=lease.pulse,
                    started_at=lease.started_at,
                    last_seen=lease.last_seen,
                    lease_until=lease.until,
                    alive=lease.is_live(now),
                    ended=lease.ended,
                )
                for lease in self._leases.values()
            ]
        return sorted(known, key=lambda worker: worker.started_at, reverse=True)

    async def findings(self) -> list[Finding]:
        return []

    # -- within the lock -----------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[datetime]:
        """Hold the lock, give the time, and tell those who wait for room or for work."""
        with self._lock:
            yield self._clock()
            self._admit()
            self._ring()

    def _ring(self) -> None:
        self._version += 1
        sleepers, self._sleepers = self._sleepers, []
        for bell in sleepers:
            if bell.set_running_or_notify_cancel():
                bell.set_result(None)

    def _produce(self, jobs: Sequence[NewJob]) -> Future[list[Enqueued]]:
        if len(jobs) > self._size:
            raise QueueFull(self._size, f"{len(jobs):,} jobs at once will never fit; split them")
        producer = _Producer(jobs)
        with self._changing():
            self._producers.append(producer)
        return producer.answer

    def _let_others_in(self) -> None:
        """Look again after a producer gave up: those behind it may want less room."""
        with self._changing():
            pass

    def _admit(self) -> None:
        """Let producers in, first come first served, as long as there is room."""
        while self._producers:
            jobs, answer = self._producers[0].jobs, self._producers[0].answer
            if self._jobs.waiting + len(jobs) > self._size and not answer.cancelled():
                return
            self._producers.popleft()
            if answer.set_running_or_notify_cancel():
                answer.set_result(self._add_all(jobs, self._clock()))

    def _add_all(self, jobs: Sequence[NewJob], now: datetime) -> list[Enqueued]:
        return [self._add(job, now) for job in jobs]

    def _add(self, new: NewJob, now: datetime) -> Enqueued:
        if new.id in self._jobs:
            return Enqueued(id=new.id)
        if new.unique is not None:
            holder = self._keys.holder(new.unique.key, now)
            if holder is not None:
                self._amend(holder, new, now)
                return Enqueued(id=holder, existing=True)
            self._keys.hold(new.unique, new.id, now)
        due_at = now if new.due is None else max(resolve(new.due, now), now)
        self._put(
            Job(
                id=new.id,
                kind=new.kind,
                queue=new.queue,
                priority=new.priority,
                key=new.key,
                state=State.SCHEDULED if due_at > now or new.waiting_for else State.PENDING,
                payload=new.payload,
                due_at=due_at,
                created_at=now,
                expires_at=None if new.expires is None else resolve(new.expires, now),
                max_retries=new.max_retries,
                timeout=new.timeout,
                unique_key=None if new.unique is None else new.unique.key,
                headers=new.headers,
                waiting_for=new.waiting_for,
            )
        )
        return Enqueued(id=new.id)

    def _amend(self, holder: UUID, duplicate: NewJob, now: datetime) -> None:
        job = self._jobs.get(holder)
        after = None if job is None else amended(job, duplicate, now)
        if after is not None:
            self._put(after)

    def _put(self, job: Job) -> None:
        before = self._jobs.get(job.id)
        self._jobs.put(job)
        if job.state in FINISHED:
            self._keys.free(job)
            if job.flow is not None and before is not None and before.state is not job.state:
                body = encode({"state": job.state})
                news = News(topic=f"{FLOW}{job.flow}", id=job.id, body=body)
                self._tell(news, job.finished_at or self._clock())
        if job.state is State.COMPLETED:
            self._done.note(job)

    def _take(self, lane: Lane, room: int, worker: str, token: int, now: datetime) -> list[Job]:
        taken: list[Job] = []
        while len(taken) < room and (first := self._jobs.first(lane)) is not None:
            job = replace(
                first,
                state=State.RUNNING,
                attempt=first.attempt + 1,
                worker=worker,
                token=token,
                started_at=now,
                progress=None,
            )
            self._put(job)
            self._keys.free_on_claim(job)
            taken.append(job)
        return taken

    def _is_orphan(self, job: Job) -> bool:
        if job.state is not State.RUNNING:
            return False
        lease = self._leases.get(job.worker or "")
        return lease is None or lease.ended

    def _known(self, names: Sequence[str]) -> dict[str, Json]:
        return {name: _unpacked(self._records[name]) for name in names if name in self._records}

    def _tell(self, news: News, now: datetime) -> None:
        self._news.setdefault(news.topic, {}).setdefault(news.id, replace(news, at=now))

    def _checkpoint(self, added: Checkpoint) -> bool:
        job = self._jobs.held(added.id, added.token)
        if job is not None:
            steps, saga = (*job.steps, *added.steps), added.saga or job.saga
            self._jobs.put(replace(job, steps=steps, saga=saga))
        return job is not None

    def _carry_out(self, changes: Changes[T], now: datetime) -> Applied[T]:
        self._check_fences(changes)
        for name, record in changes.records.items():
            if record is None:
                self._records.pop(name, None)
                self._alarms.pop(name, None)
            else:
                self._records[name] = _packed(record)
        for name, alarm in changes.alarms.items():
            self._alarms.pop(name, None)
            if alarm is not None and name in self._records:
                self._alarms[name] = alarm
        for transition in changes.settle:
            self._settle(transition, now)
        self._add_all(changes.enqueue, now)
        for waiting_for in changes.unpark:
            for job in self._jobs.parked(waiting_for):
                self._put(unparked(job, now))
        moved = tuple(self._move(move, now) for move in changes.moves)
        return Applied(answer=changes.answer, moved=moved)

    def _check_fences(self, changes: Changes[T]) -> None:
        settled: set[UUID] = set()
        for transition in changes.settle:
            if transition.id in settled or self._jobs.held(transition.id, transition.token) is None:
                raise Fenced(transition.id)
            settled.add(transition.id)

    def _settle(self, move: Transition, now: datetime) -> bool:
        job = self._jobs.held(move.id, move.token)
        if job is None or not may_move(job.state, move.state):
            return False
        state, reason, due = move.state, move.reason, move.due
        saga = move.saga or job.saga
        asked = job.cancel_requested and saga is not Saga.UNDOING
        if asked and state in (*WAITING, State.CANCELLED):
            reason = job.reason
            # One that has something to undo is started once more, for that.
            undo = saga is Saga.READY and state is not State.CANCELLED
            state, due = (State.PENDING, None) if undo else (State.CANCELLED, due)
        history = job.history if move.attempt is None else (*job.history, move.attempt)
        waits = state in WAITING
        self._put(
            replace(
                job,
                state=state,
                due_at=job.due_at if due is None else max(resolve(due, now), now),
                waiting_for=move.waiting_for if state is State.SCHEDULED else None,
                cancel_requested=asked,
                failures=job.failures + move.failures,
                crashes=job.crashes + move.crashes,
                worker=None if waits else job.worker,
                token=None,
                started_at=None if waits else job.started_at,
                finished_at=None if waits else now,
                result=move.result,
                error=None if state is State.COMPLETED else move.error or job.error,
                reason=reason,
                history=history[-HISTORY_KEPT:],
                steps=(*job.steps, *move.steps),
                saga=saga,
            )
        )
        return True

    def _move(self, move: Move, now: datetime) -> Job | None:
        job = self._jobs.get(move.id)
        if job is None:
            return None
        after = moved(job, move, now)
        if after is None:
            return None
        if move.verb is Verb.PURGE:
            self._jobs.forget(job)
        else:
            self._put(after)
        return after


def _is_held(job: Job, worker: str) -> bool:
    return job.state is State.RUNNING and job.worker == worker


def _urgency(job: Job) -> float:
    return job.due_at.timestamp() - job.priority * AGING.total_seconds()


def _is_past(job: Job, retention: Retention, now: datetime) -> bool:
    if job.state not in FINISHED or job.finished_at is None:
        return False
    if job.state is State.DEAD and job.saga is Saga.UNDOING:
        return False  # Somebody has yet to see to what could not be undone.
    kept = retention.dead if job.state is State.DEAD else retention.finished
    return kept is not None and now - job.finished_at > kept


def _fits(job: Job, which: JobFilter) -> bool:
    return (
        (not which.states or job.state in which.states)
        and which.kind in (None, job.kind)
        and which.queue in (None, job.queue)
        and which.worker in (None, job.worker)
        and which.fingerprint in (None, _fingerprint_of(job))
    )


def _fingerprint_of(job: Job) -> str:
    return "" if job.error is None else job.error.fingerprint


def _group(fingerprint: str, kind: str, jobs: Sequence[Job]) -> ErrorGroup:
    times = [job.finished_at for job in jobs if job.finished_at is not None]
    return ErrorGroup(
        fingerprint=fingerprint,
        kind=kind,
        count=len(jobs),
        first_seen=min(times),
        last_seen=max(times),
        newest=jobs[-1].id,
        error=jobs[-1].error,
        reason=jobs[-1].reason,
    )


def _packed(record: Json) -> bytes:
    """Return what is kept of a record, so that nobody changes it who has read it."""
    try:
        return encode(record)
    except UnicodeEncodeError:  # Names that no other store could keep may come into this one.
        return json.dumps(record).encode()


def _unpacked(kept: bytes) -> Json:
    try:
        record: Json = decode(kept)
    except DecodeError:
        record = json.loads(kept)
    return record
