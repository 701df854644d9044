"""Owns how the jobs of a restored store are parked, counted and released."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Unpack
from uuid import UUID

import msgspec
from msgspec.structs import replace

from windlass.app.control.audit_writer import log_action
from windlass.app.control.bulk import BulkControl
from windlass.app.jobs.searching import BOUNDED, CHUNK, store_now
from windlass.app.loop_thread import blocking
from windlass.core.audit import Note
from windlass.core.changes import Changes
from windlass.core.errors import ConfigError
from windlass.core.jobs.bulk import RECORD as BULK
from windlass.core.jobs.bulk import BulkState, paused, read_operation, record_of
from windlass.core.jobs.job import EVENT, FLOW, Job
from windlass.core.jobs.moves import Move
from windlass.core.jobs.queries import JobFilter, Where, filter_of
from windlass.core.jobs.states import State
from windlass.core.records import Json
from windlass.core.restored import (
    REASON,
    RECORD,
    WAKING,
    Parked,
    is_following,
    is_parked,
    park_running,
    park_waiting,
    release,
    without_missed_ticks,
)
from windlass.core.schedules.schedule import BATCH, read_record
from windlass.core.schedules.schedule import RECORD as SCHEDULE
from windlass.core.schedules.schedule import record_of as schedule_record_of
from windlass.core.values.durations import brief
from windlass.core.values.text import listed
from windlass.core.workers import WorkerRecord
from windlass.store import Store, StoreQueries
from windlass.worker.services.event_delivery import EventDelivery
from windlass.worker.services.flow_advancer import FlowAdvancer
from windlass.worker.services.outbox_relay import OutboxRelay

_MAX_TOPICS = 1_000
_MAX_ROUNDS = 1_000
_MILLISECOND = timedelta(milliseconds=1)
"""Jobs that were enqueued at this very moment are parked, too."""


class RestoredControl(BulkControl):
    """The methods of `app.control` for a store that was restored from a backup."""

    async def apark_restored(self, *, dry_run: bool = False, reason: str | None = None) -> Parked:
        """Park all jobs that are running or waiting, until a person releases or cancels them.

        For a store that was restored from a backup, before its workers are started. Ticks that
        schedules have missed are left out, and bulk operations are paused. Jobs that are enqueued
        from now on are not parked. It can be repeated. With `dry_run`, it only counts.

        Raises:
            ConfigError: a worker is alive, or the app has spaces and none is chosen.
        """
        store = self._app.store
        await store.topics(1)  # Of one space: an app that has several must have chosen one.
        now = (await store.sweep()).now
        _check_no_worker(await store.workers(), now)
        before = JobFilter(created_before=now + _MILLISECOND)
        if dry_run:
            return replace(
                await _counted(store, before),
                schedules=tuple([name for name, _ in await _late_schedules(store, now)]),
                bulk_operations=tuple(await _running_bulks(store)),
                is_dry_run=True,
            )
        note = self._note("park", "jobs", reason=reason or self.actor.reason or REASON)
        await self._mark(note, store)
        bulks = await self._pause_bulks(store)
        schedules = await self._skip_ticks(store, now)
        await _hear_all(store)
        parked = await self._park_all(note, store, before)
        log_action(note)
        return replace(parked, schedules=schedules, bulk_operations=bulks)

    park_restored = blocking(apark_restored)

    async def arestored(self, *, limit: int | None = None, **where: Unpack[Where]) -> list[Job]:
        """Return the jobs that are parked since a restore, the oldest first, without their payload.

        Raises:
            TypeError: a condition is none, or has the wrong type.
            ValueError: a search cannot be read.
        """
        which = await self._which(where)
        found: list[Job] = []
        async for page in _pages(self._app.store, which):
            found += filter(is_parked, page)
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found

    restored = blocking(arestored)

    async def arelease_restored(
        self,
        job_ids: Iterable[UUID] | None = None,
        *,
        limit: int | None = None,
        reason: str | None = None,
        **where: Unpack[Where],
    ) -> list[UUID]:
        """Let jobs that are parked since a restore run; return which. Others are left alone.

        Those with the given ids, or else those that meet all conditions; without any, all of them.

        Raises:
            TypeError: a condition is none, or has the wrong type.
            ValueError: a search cannot be read.
        """
        if job_ids is None:
            jobs = await self.arestored(limit=limit, **where)
        else:
            jobs = list((await self._app.store.get_many(list(job_ids))).values())
        note = self._note("release", "jobs", reason=reason)
        released: list[UUID] = []
        for start in range(0, len(jobs), CHUNK):
            chunk = jobs[start : start + CHUNK]
            moves = [move for job in chunk if (move := release(job)) is not None]
            released += await self._moved(note, self._app.store, moves)
        await self._app.store.apply([], lambda _, __: Changes(answer=None, unpark=[WAKING]))
        await self._forget_mark()
        log_action(note)
        return released

    release_restored = blocking(arelease_restored)

    async def acancel_restored(
        self, job_ids: Iterable[UUID], *, reason: str | None = None
    ) -> list[UUID]:
        """Cancel jobs that are parked since a restore; return which. Others are left alone."""
        jobs = (await self._app.store.get_many(list(job_ids))).values()
        parked = [job.id for job in jobs if is_parked(job)]
        moved = await self.acancel_many(parked, reason=reason) if parked else []
        await self._forget_mark()
        return [job.id for job in moved]

    cancel_restored = blocking(acancel_restored)

    async def _which(self, where: Where) -> JobFilter:
        given = {**where, "states": [State.SCHEDULED]}
        return filter_of(given, await store_now(self._app.store, given))  # type: ignore[arg-type]

    async def _mark(self, note: Note, store: Store) -> None:
        def decide(_known: Mapping[str, Json], now: datetime) -> Changes[None]:
            mark = {"at": now.isoformat(), "by": self.actor.by}
            return Changes(answer=None, records={RECORD: mark})

        await self._apply(note, [RECORD], decide, store)

    async def _forget_mark(self) -> None:
        store = self._app.store
        if RECORD in await store.records(RECORD) and not await self.arestored(limit=1):
            await store.apply([RECORD], lambda _, __: Changes(answer=None, records={RECORD: None}))

    async def _park_all(self, note: Note, store: Store, before: JobFilter) -> Parked:
        running = waiting = following = 0
        async for page in _pages(store, replace(before, states=(State.RUNNING,))):
            lost = [park_running(job) for job in page if job.token is not None]
            running += sum(await store.settle(lost))
        async for page in _pages(store, replace(before, states=(State.SCHEDULED, State.PENDING))):
            moves = [move for job in page if (move := park_waiting(job)) is not None]
            waiting += len(await self._moved(note, store, moves))
            following += sum(map(is_following, page))
        return Parked(running=running, waiting=waiting, following=following)

    async def _moved(self, note: Note, store: Store, moves: Sequence[Move]) -> list[UUID]:
        if not moves:
            return []
        changes: Changes[None] = Changes(answer=None, moves=moves)
        applied = await self._apply(note, [], lambda _, __: changes, store)
        return [job.id for job in applied.moved if job is not None]

    async def _pause_bulks(self, store: Store) -> tuple[str, ...]:
        names = await _running_bulks(store)

        def decide(known: Mapping[str, Json], now: datetime) -> Changes[None]:
            read = {name: read_operation(known.get(name)) for name in names}
            after = {name: paused(each, now, REASON) for name, each in read.items() if each}
            return Changes(
                answer=None,
                records={name: record_of(each) for name, each in after.items()},
                alarms={name: each.alarm for name, each in after.items()},
            )

        if names:
            await store.apply(sorted(names), decide)
        return tuple(name.removeprefix(BULK) for name in names)

    async def _skip_ticks(self, store: Store, now: datetime) -> tuple[str, ...]:
        late = [name for name, _ in await _late_schedules(store, now)]
        for start in range(0, len(late), BATCH):
            await _skip_some(store, late[start : start + BATCH])
        return tuple(late)


async def _skip_some(store: Store, names: Collection[str]) -> None:
    def decide(known: Mapping[str, Json], now: datetime) -> Changes[None]:
        read = {name: read_record(known.get(SCHEDULE + name)) for name in names}
        after = {
            SCHEDULE + name: changed
            for name, each in read.items()
            if each is not None and (changed := without_missed_ticks(name, each, now)) is not None
        }
        return Changes(
            answer=None,
            records={name: schedule_record_of(each) for name, each in after.items()},
            alarms={name: each.alarm for name, each in after.items()},
        )

    await store.apply(sorted(SCHEDULE + name for name in names), decide)


async def _late_schedules(store: StoreQueries, now: datetime) -> list[tuple[str, datetime]]:
    records = await store.records(SCHEDULE)
    known = {name.removeprefix(SCHEDULE): read_record(each) for name, each in records.items()}
    return [
        (name, each.next)
        for name, each in sorted(known.items())
        if each is not None
        and each.next is not None
        and without_missed_ticks(name, each, now) is not None
    ]


async def _running_bulks(store: StoreQueries) -> list[str]:
    read = {name: read_operation(each) for name, each in (await store.records(BULK)).items()}
    return [name for name, each in read.items() if each and each.state is BulkState.RUNNING]


async def _hear_all(store: Store) -> None:
    """Handle the ends of jobs and the events that no worker has handled.

    Else jobs that waited for them would start when the first worker does.
    """
    relay = OutboxRelay(store, {FLOW: FlowAdvancer(store), EVENT: EventDelivery(store)})
    for _ in range(_MAX_ROUNDS):  # A round hears a bounded number of each topic.
        topics = await store.topics(_MAX_TOPICS)
        if not any(topic.startswith((FLOW, EVENT)) for topic in topics):
            return
        await relay.round()


async def _counted(store: StoreQueries, before: JobFilter) -> Parked:
    running = waiting = following = 0
    live = (State.RUNNING, State.SCHEDULED, State.PENDING)
    async for page in _pages(store, replace(before, states=live)):
        running += sum(job.state is State.RUNNING for job in page)
        waiting += sum(park_waiting(job) is not None for job in page)
        following += sum(map(is_following, page))
    return Parked(running=running, waiting=waiting, following=following)


async def _pages(store: StoreQueries, which: JobFilter) -> AsyncIterator[tuple[Job, ...]]:
    """Return all jobs that match, the oldest first, without their large fields."""
    after: UUID | None = None
    while True:
        page = await store.find(
            which, limit=CHUNK, after=after, oldest_first=True, brief=True, budget=BOUNDED
        )
        yield page.jobs
        after = page.after
        if after is None:
            return


def _check_no_worker(workers: Iterable[WorkerRecord], now: datetime) -> None:
    alive = [worker for worker in workers if worker.alive]
    if alive:
        left = brief(max(worker.lease_until for worker in alive) - now)
        names = listed(sorted(worker.info.id for worker in alive))
        raise ConfigError(
            f"workers must be stopped before jobs are parked, got {len(alive)} alive ({names}); "
            f"stop them; a lease that is only in the backup ends by itself within {left}"
        )


def parked_facts(parked: Parked) -> dict[str, object]:
    """Return what was parked for scripts."""
    facts: dict[str, object] = msgspec.to_builtins(parked)
    return {**facts, "jobs": parked.jobs}
