"""Owns `app.schedules`: putting, pausing, running and removing schedules while workers run.

Each of them is a record in the store; a worker that knows the kind makes the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, TypeVar, Unpack

from windlass.app.control.audit_writer import Acting
from windlass.app.handle import Handle
from windlass.app.loop_thread import blocking
from windlass.app.producer import Draft
from windlass.core.audit import Actor, Note
from windlass.core.changes import Changes
from windlass.core.errors import ConfigError, UnknownSchedule
from windlass.core.jobs.job import NewJob
from windlass.core.records import Json
from windlass.core.schedules.cron import cadence
from windlass.core.schedules.definition import CatchUp, Manner, Overlap, Schedule
from windlass.core.schedules.schedule import (
    BATCH,
    RECORD,
    ScheduleRecord,
    is_late,
    pause,
    put,
    ran,
    read_record,
    record_of,
    resume,
)
from windlass.core.schedules.status import ScheduleStatus, upcoming
from windlass.core.values.durations import Duration
from windlass.core.values.names import check_name
from windlass.core.values.text import listed
from windlass.store import Store, store_of_queue

if TYPE_CHECKING:
    from windlass.app.app import Windlass

T = TypeVar("T")
_List = list
_Change = Callable[[str, ScheduleRecord | None, datetime], ScheduleRecord]


class Times(TypedDict, total=False):
    """When, and how, a schedule ticks."""

    every: Duration | None
    cron: str | None
    tz: str | None
    jitter: Duration
    catch_up: CatchUp
    catch_up_limit: int
    overlap: Overlap | None


class Schedules(Acting):
    """The schedules of a store. A method whose name begins with `a` is for coroutines."""

    _written: ClassVar[str] = "app.schedules"

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
            raise ConfigError(f"two schedules are named {name!r}; give one of them another name=")
        self.declared[name] = schedule

    async def aput(
        self, name: str, job: Draft[Any] | str, payload: Any = None, **times: Unpack[Times]
    ) -> ScheduleStatus:
        """Enqueue a job like this one repeatedly, beginning with the next tick.

        The job is a draft, or the name of a kind and a payload. It is enqueued `every` interval
        ("30s"), or by a `cron` line in a time zone (`tz`, else UTC). Putting the same again changes
        nothing; with other times, it begins anew. `jitter` delays each tick by up to that much.

        `catch_up` decides about ticks that no worker served in time: "skip" leaves them out,
        "latest" makes one job for all of them, "all" one for each of the latest `catch_up_limit`.
        `overlap` decides about a tick while the job of the last one is not finished: "skip" leaves
        it out, "queue" lets it wait, "allow" enqueues it. The default is "skip", or "queue" with
        catch_up="all".

        Raises:
            ConfigError: this cannot tick, or the name is that of a schedule in an app's code.
            PayloadError: the payload does not fit.
        """
        return (await self._put({name: self._job(job, payload)}, times))[0]

    put = blocking(aput)

    async def aput_many(
        self, jobs: Mapping[str, Draft[Any]], **times: Unpack[Times]
    ) -> _List[ScheduleStatus]:
        """Put many schedules by their names, with the same times, such as one for each tenant.

        Raises:
            ConfigError: one cannot tick, or is declared in an app's code; others may have been put.
        """
        return await self._put({name: self._job(job, None) for name, job in jobs.items()}, times)

    put_many = blocking(aput_many)

    async def aremove(self, name: str) -> bool:
        """Remove a schedule; return whether there was one. Its jobs stay."""
        record = RECORD + name
        applied = await self._act(
            self._note("remove", f"schedule:{name}"),
            [record],
            lambda known, _: Changes(answer=record in known, records={record: None}),
        )
        return applied.answer

    remove = blocking(aremove)

    async def apause(self, name: str) -> ScheduleStatus:
        """Pause a schedule until it is resumed; jobs that it enqueued already run.

        Raises:
            UnknownSchedule: there is none of that name.
        """
        return await self._change(
            name, lambda known, now: pause(_found(name, known), now), action="pause"
        )

    pause = blocking(apause)

    async def aresume(self, name: str) -> ScheduleStatus:
        """Resume a schedule from its next time on; ticks of the pause are not caught up.

        Raises:
            UnknownSchedule: there is none of that name.
        """
        return await self._change(
            name, lambda known, now: resume(name, _found(name, known), now), action="resume"
        )

    resume = blocking(aresume)

    async def arun(self, name: str) -> Handle[Any]:
        """Enqueue the job now, paused or not, and return it; the next tick stays the same.

        Raises:
            UnknownSchedule: there is none of that name.
        """
        found = await self._look(name)
        job = found.record.schedule.job_of(self._app.ids.next(), name, found.now)
        # Not within the change: only an enqueue finds the holder of the job's unique key.
        draft: Draft[Any] = Draft(job=job)
        (handle,) = await self._app.aenqueue_many([draft])
        await self._change(
            name,
            lambda known, _: ran(_found(name, known), handle.id, found.now),
            action="run",
            detail=f"job={handle.id}",
        )
        return handle

    run = blocking(arun)

    async def aget(self, name: str) -> ScheduleStatus:
        """Return the state of a schedule.

        Raises:
            UnknownSchedule: there is none of that name.
        """
        found = await self._look(name)
        return (await self._seen({name: found.record}, found.now))[0]

    get = blocking(aget)

    async def alist(self, prefix: str = "") -> _List[ScheduleStatus]:
        """Return the schedules whose names begin with a prefix, in the order of their names."""
        records = await self._app.store.records(RECORD + prefix)
        known = {name.removeprefix(RECORD): read_record(each) for name, each in records.items()}
        now = (await self._app.store.ringing(1)).now
        return await self._seen({name: each for name, each in known.items() if each}, now)

    list = blocking(alist)

    async def aupcoming(self, name: str, count: int = 10) -> _List[datetime]:
        """Return when a schedule will tick, paused or not; jitter may delay each of these.

        Raises:
            UnknownSchedule: there is none of that name.
        """
        return upcoming(await self._look(name), count)

    upcoming = blocking(aupcoming)

    # -- the parts -----------------------------------------------------------------------------

    def _default_actor(self) -> Actor:
        return self._app.control.actor

    def _block_on(self, work: Coroutine[Any, Any, T]) -> T:
        return self._app.portal.call(work)

    def _job(self, job: Draft[Any] | str, payload: Any) -> NewJob:
        if isinstance(job, Draft):
            if payload is not None:
                raise ConfigError("a draft already has its payload; leave out payload=")
            return job.job
        if not isinstance(job, str):
            raise ConfigError(
                f"a schedule needs a draft or the name of a kind, got {job!r}; write "
                "handler.draft(...)"
            )
        return self._app.producer(job).draft({} if payload is None else payload).job

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
                    f"schedule {name!r} is declared in an app's code; change it there, or choose "
                    "another name"
                )
            return put(name, known, wanted[name], now)

        subject = f"schedule:{next(iter(wanted))}" if len(wanted) == 1 else "schedules"
        detail = str(rhythm) if len(wanted) == 1 else f"{rhythm}: {listed(wanted)}"
        note = self._note("put", subject, detail=detail)
        names: dict[Store, list[str]] = {}
        for name, schedule in wanted.items():
            store = store_of_queue(self._app.store, schedule.job.queue)
            names.setdefault(store, []).append(name)
        put_so_far = {
            status.name: status
            for store, own in names.items()
            for begin in range(0, len(own), BATCH)
            for status in await self._change_all(store, own[begin : begin + BATCH], change, note)
        }
        return [put_so_far[name] for name in wanted]

    async def _look(self, name: str) -> ScheduleStatus:
        return await self._change(name, lambda known, _: _found(name, known), action="look")

    async def _change(
        self,
        name: str,
        change: Callable[[ScheduleRecord | None, datetime], ScheduleRecord],
        *,
        action: str,
        detail: str = "",
    ) -> ScheduleStatus:
        store, note = self._app.store, self._note(action, f"schedule:{name}", detail=detail)
        changed = await self._change_all(
            store, [name], lambda _, known, now: change(known, now), note
        )
        return changed[0]

    async def _change_all(
        self, store: Store, names: Sequence[str], change: _Change, note: Note
    ) -> _List[ScheduleStatus]:
        """Change all schedules in one transaction; unchanged ones are not written."""

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

        # In order, so that two callers that lock the same records cannot deadlock.
        locked = sorted(RECORD + name for name in names)
        return (await self._act(note, locked, decide, store)).answer

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
