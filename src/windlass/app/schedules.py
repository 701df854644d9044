"""Owns `app.schedules`: schedules that are put there while everything runs, and the levers of all.

Each of them is a record in the store; a worker that knows the kind makes the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

from windlass.app.handle import Handle
from windlass.app.portal import refuse_in_event_loop
from windlass.app.producer import Draft
from windlass.core.cadence import cadence
from windlass.core.changes import Changes
from windlass.core.durations import Duration
from windlass.core.errors import CalledFromEventLoop, ConfigError, UnknownSchedule
from windlass.core.job import Json, NewJob
from windlass.core.names import check_name
from windlass.core.schedule import (
    BATCH,
    RECORD,
    CatchUp,
    Manner,
    Overlap,
    Schedule,
    ScheduleRecord,
    is_late,
    pause,
    put,
    ran,
    read_record,
    record_of,
    resume,
)

if TYPE_CHECKING:
    from windlass.app.app import Windlass

T = TypeVar("T")
_List = list
_Change = Callable[[str, ScheduleRecord | None, datetime], ScheduleRecord]


@dataclass(frozen=True, kw_only=True)
class ScheduleStatus:
    """How it stands with a schedule."""

    name: str
    record: ScheduleRecord
    now: datetime
    """When this was so, by the store's clock."""
    served: bool = True
    """Whether a live worker ticks it."""

    @property
    def kind(self) -> str:
        """The kind of its jobs."""
        return self.record.schedule.job.kind

    @property
    def paused(self) -> bool:
        """Whether somebody has paused it."""
        return self.record.paused_at is not None

    @property
    def state(self) -> Literal["active", "paused", "unserved"]:
        """Whether it ticks; unserved is one that is due, or will be, and no worker minds."""
        if self.paused:
            return "paused"
        return "active" if self.served else "unserved"

    @property
    def next(self) -> datetime | None:
        """When it ticks next; None if it is paused, or never will."""
        return None if self.paused else self.record.next


class Times(TypedDict, total=False):
    """When, and how, a schedule ticks."""

    every: Duration | None
    cron: str | None
    tz: str | None
    jitter: Duration
    catch_up: CatchUp
    catch_up_limit: int
    overlap: Overlap | None


class Schedules:
    """The schedules of a store. A method whose name begins with `a` is for coroutines."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self.declared: dict[str, Schedule] = {}
        """Those that are part of this app's code, by `@app.every` and `@app.cron`."""

    def declare(self, name: str, schedule: Schedule) -> None:
        """Make a schedule part of this app's code; its workers write it to the store.

        Raises:
            ConfigError: there is one of that name.
        """
        if check_name("schedule", name) in self.declared:
            raise ConfigError(
                f"two schedules are called {name!r}; give one another name, with name="
            )
        self.declared[name] = schedule

    async def aput(
        self, name: str, job: Draft[Any] | str, payload: Any = None, **times: Unpack[Times]
    ) -> ScheduleStatus:
        """Enqueue a job like this one time and again, beginning with the next tick.

        The job is a draft, or the name of a kind and a payload. It is enqueued `every` interval
        ("30s"), or by a `cron` line in a time zone (`tz`, else UTC). To put the same again changes
        nothing; with other times, it begins anew. `jitter` delays each tick by up to so much.

        `catch_up` says what becomes of ticks for which no worker was there in time: "skip" leaves
        them out, "latest" makes one job for all of them, "all" one for each of the latest
        `catch_up_limit`. `overlap` says what becomes of a tick while the job of the one before is
        not finished: "skip" leaves it out, "queue" lets it wait, "allow" does not mind. It is
        "skip" unless it is said, or "queue" with catch_up="all".

        Raises:
            ConfigError: this cannot tick, or the name is that of a schedule in somebody's code.
            PayloadError: the payload does not fit.
        """
        return (await self._put({name: self._job(job, payload)}, times))[0]

    async def aput_many(
        self, jobs: Mapping[str, Draft[Any]], **times: Unpack[Times]
    ) -> _List[ScheduleStatus]:
        """Put many schedules by their names, with the same times: say one for each tenant.

        Raises:
            ConfigError: one cannot tick, or is part of somebody's code; others may have been put.
        """
        return await self._put({name: self._job(job, None) for name, job in jobs.items()}, times)

    async def aremove(self, name: str) -> bool:
        """Remove a schedule for ever; say whether there was one. Its jobs stay."""
        record = RECORD + name
        applied = await self._app.store.apply(
            [record], lambda known, _: Changes(answer=record in known, records={record: None})
        )
        return applied.answer

    async def apause(self, name: str) -> ScheduleStatus:
        """Let a schedule tick no more until it is resumed; what it enqueued already is run.

        Raises:
            UnknownSchedule: there is none of that name.
        """
        return await self._change(name, lambda known, now: pause(_found(name, known), now))

    async def aresume(self, name: str) -> ScheduleStatus:
        """Let a schedule tick again, from its next time on; what came before is not caught up.

        Raises:
            UnknownSchedule: there is none of that name.
        """
        return await self._change(name, lambda known, now: resume(name, _found(name, known), now))

    async def arun(self, name: str) -> Handle[Any]:
        """Tick now, paused or not, and return the job; the other ticks come as they would.

        Raises:
            UnknownSchedule: there is none of that name.
        """
        found = await self._look(name)
        job = found.record.schedule.job_of(self._app.ids.next(), name, found.now)
        # Not within the change: only an enqueue says who holds the job's unique key.
        draft: Draft[Any] = Draft(job=job)
        (handle,) = await self._app.aenqueue_many([draft])
        await self._change(name, lambda known, _: ran(_found(name, known), handle.id, found.now))
        return handle

    async def aget(self, name: str) -> ScheduleStatus:
        """Return how it stands with a schedule.

        Raises:
            UnknownSchedule: there is none of that name.
        """
        found = await self._look(name)
        return (await self._seen({name: found.record}, found.now))[0]

    async def alist(self, prefix: str = "") -> _List[ScheduleStatus]:
        """Return the schedules whose names begin with a prefix, in the order of their names."""
        records = await self._app.store.records(RECORD + prefix)
        known = {name.removeprefix(RECORD): read_record(each) for name, each in records.items()}
        now = (await self._app.store.ringing(1)).now
        return await self._seen({name: each for name, each in known.items() if each}, now)

    async def aupcoming(self, name: str, count: int = 10) -> _List[datetime]:
        """Return when a schedule will tick, paused or not; jitter may delay each of these.

        Raises:
            UnknownSchedule: there is none of that name.
        """
        found = await self._look(name)
        times: list[datetime] = []
        tick, rhythm = found.record.next, found.record.schedule.cadence
        if tick is not None and found.paused:
            tick = rhythm.resumed(tick, found.now)
        while tick is not None and len(times) < count:
            times.append(tick)
            tick = rhythm.following(tick)
        return times

    # -- from a thread without an event loop ---------------------------------------------------

    def put(
        self, name: str, job: Draft[Any] | str, payload: Any = None, **times: Unpack[Times]
    ) -> ScheduleStatus:
        """Do what `aput` does, from a thread without an event loop."""
        return self._call("put", self.aput(name, job, payload, **times))

    def put_many(
        self, jobs: Mapping[str, Draft[Any]], **times: Unpack[Times]
    ) -> _List[ScheduleStatus]:
        """Do what `aput_many` does, from a thread without an event loop."""
        return self._call("put_many", self.aput_many(jobs, **times))

    def remove(self, name: str) -> bool:
        """Do what `aremove` does, from a thread without an event loop."""
        return self._call("remove", self.aremove(name))

    def pause(self, name: str) -> ScheduleStatus:
        """Do what `apause` does, from a thread without an event loop."""
        return self._call("pause", self.apause(name))

    def resume(self, name: str) -> ScheduleStatus:
        """Do what `aresume` does, from a thread without an event loop."""
        return self._call("resume", self.aresume(name))

    def run(self, name: str) -> Handle[Any]:
        """Do what `arun` does, from a thread without an event loop."""
        return self._call("run", self.arun(name))

    def get(self, name: str) -> ScheduleStatus:
        """Do what `aget` does, from a thread without an event loop."""
        return self._call("get", self.aget(name))

    def list(self, prefix: str = "") -> _List[ScheduleStatus]:
        """Do what `alist` does, from a thread without an event loop."""
        return self._call("list", self.alist(prefix))

    def upcoming(self, name: str, count: int = 10) -> _List[datetime]:
        """Do what `aupcoming` does, from a thread without an event loop."""
        return self._call("upcoming", self.aupcoming(name, count))

    # -- the parts -----------------------------------------------------------------------------

    def _call(self, method: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            refuse_in_event_loop(
                f"app.schedules.{method}(...)", f"await app.schedules.a{method}(...)"
            )
        except CalledFromEventLoop:
            work.close()
            raise
        return self._app.portal.call(work)

    def _job(self, job: Draft[Any] | str, payload: Any) -> NewJob:
        if isinstance(job, Draft):
            if payload is not None:
                raise ConfigError("a draft has its payload already; leave the other one out")
            return job.job
        if not isinstance(job, str):
            raise ConfigError(
                f"{job!r} is no job: give handler.draft(...), or the name of a kind and a payload"
            )
        return self._app.named(job).draft({} if payload is None else payload).job

    async def _put(self, jobs: Mapping[str, NewJob], times: Times) -> _List[ScheduleStatus]:
        options: dict[str, Any] = dict(times)
        rhythm = cadence(**{each: options.pop(each, None) for each in ("every", "cron", "tz")})
        manner = Manner(**options)
        wanted = {
            check_name("schedule", name): manner.schedule(job, rhythm, declared=False)
            for name, job in jobs.items()
        }

        def change(name: str, known: ScheduleRecord | None, now: datetime) -> ScheduleRecord:
            is_declared = known is not None and known.schedule.declared
            if is_declared or name in self.declared:
                raise ConfigError(
                    f"schedule {name!r} is part of an app's code: change it there, or choose "
                    "another name"
                )
            return put(name, known, wanted[name], now)

        put_so_far: list[ScheduleStatus] = []
        names = list(wanted)
        for begin in range(0, len(names), BATCH):
            put_so_far += await self._change_all(names[begin : begin + BATCH], change)
        return put_so_far

    async def _look(self, name: str) -> ScheduleStatus:
        return await self._change(name, lambda known, _: _found(name, known))

    async def _change(
        self, name: str, change: Callable[[ScheduleRecord | None, datetime], ScheduleRecord]
    ) -> ScheduleStatus:
        return (await self._change_all([name], lambda _, known, now: change(known, now)))[0]

    async def _change_all(self, names: Sequence[str], change: _Change) -> _List[ScheduleStatus]:
        """Change schedules together, or none; what stays as it was is not written."""

        def decide(known: Mapping[str, Json], now: datetime) -> Changes[_List[ScheduleStatus]]:
            before = {name: read_record(known.get(RECORD + name)) for name in names}
            after = {name: change(name, each, now) for name, each in before.items()}
            changed = {name: each for name, each in after.items() if each != before[name]}
            return Changes(
                answer=[
                    ScheduleStatus(name=name, record=each, now=now) for name, each in after.items()
                ],
                records={RECORD + name: record_of(each) for name, each in changed.items()},
                alarms={RECORD + name: each.alarm for name, each in changed.items()},
            )

        # In order, so that two who lock the same ones cannot wait for each other.
        locked = sorted(RECORD + name for name in names)
        return (await self._app.store.apply(locked, decide)).answer

    async def _seen(
        self, known: Mapping[str, ScheduleRecord], now: datetime
    ) -> _List[ScheduleStatus]:
        workers = await self._app.store.workers()
        kinds = {kind for worker in workers if worker.alive for kind in worker.info.kinds}
        return [
            ScheduleStatus(name=name, record=each, now=now, served=_is_served(each, kinds, now))
            for name, each in sorted(known.items())
        ]


def _is_served(known: ScheduleRecord, kinds: Container[str], now: datetime) -> bool:
    return known.schedule.job.kind in kinds and not known.unserved and not is_late(known, now)


def _found(name: str, known: ScheduleRecord | None) -> ScheduleRecord:
    if known is None:
        raise UnknownSchedule(name)
    return known
