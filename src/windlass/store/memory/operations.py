"""Owns the changes of the memory store that touch several of its tables; callers hold the lock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from msgspec.json import encode
from msgspec.structs import replace

from windlass.core.changes import Applied, Changes
from windlass.core.errors import LeaseLost
from windlass.core.jobs.job import FLOW, Checkpoint, Enqueued, Job, Lane, NewJob
from windlass.core.jobs.moves import Move, Verb, claimed, moved, unparked
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import FINISHED, LIVE, State
from windlass.core.jobs.streams import Appended, ChunkGroup, Position, StreamPage
from windlass.core.jobs.unique import amended
from windlass.core.records import News
from windlass.store.memory.job_index import JobIndex
from windlass.store.memory.leases import Leases
from windlass.store.memory.queries import is_prunable
from windlass.store.memory.records import Records, UnheardNews
from windlass.store.memory.streams import Streams
from windlass.store.memory.transitions import enqueued, settled
from windlass.store.memory.unique_keys import DoneKeys, UniqueKeys

T = TypeVar("T")


class Tables:
    """Everything that a memory store keeps."""

    def __init__(self, kept: int | None) -> None:
        self.jobs = JobIndex(kept)
        self.leases = Leases()
        self.records = Records()
        self.news = UnheardNews()
        self._streams = Streams()
        self._unique_keys = UniqueKeys()
        self._done_keys = DoneKeys(self.jobs.__contains__)

    def enqueue(self, jobs: Sequence[NewJob], now: datetime) -> list[Enqueued]:
        """Add jobs unless their ids or unique keys are taken."""
        return [self._add(job, now) for job in jobs]

    def claim(self, lane: Lane, count: int, worker: str, token: int, now: datetime) -> list[Job]:
        """Start the oldest jobs of a lane."""
        taken: list[Job] = []
        while len(taken) < count and (first := self.jobs.first(lane)) is not None:
            job = claimed(first, worker, token, now)
            self._put(job, now)
            self._unique_keys.free_on_claim(job)
            taken.append(job)
        return taken

    def checkpoint(self, added: Checkpoint) -> bool:
        """Add to a job's step log under its fence."""
        job = self.jobs.held(added.id, added.token)
        if job is not None:
            steps, saga = (*job.steps, *added.steps), added.saga or job.saga
            self.jobs.put(replace(job, steps=steps, saga=saga))
        return job is not None

    def stream_append(self, group: ChunkGroup, now: datetime) -> Appended | None:
        """Add to a job's stream under its fence."""
        if self.jobs.held(group.id, group.token) is None:
            return None
        return self._streams.append(group, now)

    def stream_read(self, job_id: UUID, after: Position, limit: int) -> StreamPage:
        """Return the chunks of a job after a position, and whether it has not ended."""
        job = self.jobs.get(job_id)
        is_live = job is not None and job.state in LIVE
        return StreamPage(self._streams.after(job_id, after, limit), is_live)

    def settle(self, move: Transition, now: datetime) -> bool:
        """Move a job out of running under its fence."""
        job = self.jobs.held(move.id, move.token)
        after = None if job is None else settled(job, move, now)
        if after is not None:
            self._put(after, now)
        return after is not None

    def rescue(self, worker: str, token: int, limit: int, now: datetime) -> list[Job]:
        """End leases that ran out, and take over the jobs of their workers."""
        if not self.leases.may_rescue(worker, now):
            return []
        self.leases.end_expired(now)
        running = (job for job in self.jobs if job.state is State.RUNNING)
        orphans = [job for job in running if self.leases.is_ended(job.worker)][:limit]
        for job in orphans:
            self.jobs.put(replace(job, worker=worker, token=token))
        return [replace(job, token=token) for job in orphans]

    def prune(self, retention: Retention, limit: int, now: datetime) -> int:
        """Delete finished jobs, spent keys and ended workers; return how many."""
        old = [job for job in self.jobs if is_prunable(job, retention, now)]
        old = sorted(old, key=lambda job: job.finished_at or now)[:limit]
        for job in old:
            self.jobs.forget(job)
        pruned = len(old) + self._unique_keys.prune(now) + self.leases.prune(now)
        pruned += self._streams.prune(self.jobs.get, now - retention.streams, limit)
        if retention.finished is not None:
            pruned += self._done_keys.prune(now - retention.finished)
        return pruned

    def done(self, kind: str, key: str) -> Job | None:
        """Return the job that was completed with an idempotency key, if it is still kept."""
        job_id = self._done_keys.by(kind, key)
        return None if job_id is None else self.jobs.get(job_id)

    def apply(self, changes: Changes[T], now: datetime) -> Applied[T]:
        """Carry out all changes, or raise `LeaseLost` before the first."""
        self.check_fences(changes)
        self.records.write(changes)
        for transition in changes.settle:
            self.settle(transition, now)
        self.enqueue(changes.enqueue, now)
        for waiting_for in changes.unpark:
            for job in self.jobs.parked(waiting_for):
                self._put(unparked(job, now), now)
        moves = tuple(self._move(move, now) for move in changes.moves)
        self.records.write(Changes(answer=None, records=changes.counted(moves)))
        return Applied(answer=changes.answer, moved=moves)

    def check_fences(self, changes: Changes[T]) -> None:
        """Raise `LeaseLost` if a settle among the changes has lost its fence."""
        seen: set[UUID] = set()
        for transition in changes.settle:
            if transition.id in seen or self.jobs.held(transition.id, transition.token) is None:
                raise LeaseLost(transition.id)
            seen.add(transition.id)

    def _add(self, new: NewJob, now: datetime) -> Enqueued:
        if new.id in self.jobs:
            return Enqueued(id=new.id)
        if new.unique is not None:
            holder = self._unique_keys.holder(new.unique.key, now)
            if holder is not None:
                self._amend(holder, new, now)
                return Enqueued(id=holder, is_duplicate=True)
            self._unique_keys.hold(new.unique, new.id, now)
        self._put(enqueued(new, now), now)
        return Enqueued(id=new.id)

    def _amend(self, holder: UUID, duplicate: NewJob, now: datetime) -> None:
        job = self.jobs.get(holder)
        after = None if job is None else amended(job, duplicate, now)
        if after is not None:
            self._put(after, now)

    def _move(self, move: Move, now: datetime) -> Job | None:
        job = self.jobs.get(move.id)
        after = None if job is None else moved(job, move, now)
        if job is None or after is None:
            return None
        if move.verb is Verb.PURGE:
            self.jobs.forget(job)
            self._streams.forget(job.id)
        else:
            self._put(after, now)
        if move.verb is Verb.TAKE:
            self._unique_keys.free_on_claim(after)
        return after

    def _put(self, job: Job, now: datetime) -> None:
        before = self.jobs.get(job.id)
        self.jobs.put(job)
        if job.state in FINISHED:
            self._unique_keys.free(job)
            if job.flow is not None and before is not None and before.state is not job.state:
                body = encode({"state": job.state})
                news = News(topic=f"{FLOW}{job.flow}", id=job.id, body=body)
                self.news.add(news, job.finished_at or now)
        if job.state is State.COMPLETED:
            self._done_keys.note(job)
