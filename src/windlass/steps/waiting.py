"""Owns a handler's wait for an event: it takes one that came, or ends the run and is parked.

Both is decided under the lock of the event's record, under which events are heard as well: so none
comes between a look and the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from windlass.core.changes import Changes
from windlass.core.errors import EventTimeout, Fenced, StoreUnavailable
from windlass.core.events import FOREVER, Event, next_event, topic_of
from windlass.core.job import Json
from windlass.core.names import check_name
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.core.steps import Finished, Waited, Waiting, written

if TYPE_CHECKING:
    from windlass.steps.course import Course

_PARKED = object()
_PAUSES = (0.1, 0.3, 1.0)
"""Seconds to wait before a store is asked again that did not answer."""


class Wait:
    """One call of `ctx.wait_for`."""

    def __init__(self, course: Course, event: str, timeout: timedelta | None, name: str) -> None:
        self._course = course
        self._event = check_name("event", event)
        self._timeout = timeout
        self._name = name

    async def result(self) -> Any:
        """Return what the event brings along, in this run or the next.

        Raises:
            EventTimeout: it did not come in time.
            Suspended: it has not come yet; the run ends.
        """
        course = self._course
        main = course.is_home()
        recorded = course.come(self._name, main=main)
        await course.replay(recorded)
        if recorded is not None:
            return self._recorded(recorded)
        self._check_place(main=main)
        return await self._take()

    def result_blocking(self) -> Any:
        """Do the same in the thread of a handler."""
        course = self._course
        main = course.is_home()
        recorded = course.come(self._name, main=main)
        course.replay_blocking(recorded)
        if recorded is not None:
            return self._recorded(recorded)
        self._check_place(main=main)
        return asyncio.run_coroutine_threadsafe(self._take(), course.means.loop).result()

    def _check_place(self, *, main: bool) -> None:
        if self._course.means.ordered:
            raise self._course.refuse(
                "a job of an ordered kind keeps its place, and cannot leave it to wait for an "
                "event: let a kind without ordered=True wait, and enqueue this one afterwards"
            )
        if not main:
            raise self._course.refuse(
                "ctx.wait_for ends the run, which other tasks of the handler cannot do for it: "
                "call it in the handler's own task"
            )

    async def _take(self) -> Any:
        try:
            answer = await self._answer()
        except Fenced:
            # Parked by the same word before, whose answer was lost; or others have the job.
            raise self._course.suspend(None) from None
        if answer is _PARKED:
            raise self._course.suspend(None)
        return await self._note(answer)

    async def _answer(self) -> Any:
        """Ask the store; if it does not answer, ask again, since it may have parked the job."""
        store, names = self._course.means.store(), [topic_of(self._event)]
        for pause in _PAUSES:
            try:
                return (await store.apply(names, self._decide)).answer
            except StoreUnavailable:
                await asyncio.sleep(pause)
        return (await store.apply(names, self._decide)).answer

    def _decide(self, records: Mapping[str, Json], now: datetime) -> Changes[Any]:
        steps, job = self._course.steps, self._course.job
        record = records.get(topic_of(self._event))
        event = next_event(record, since=job.created_at, had=steps.events)
        if event is not None:
            return Changes(answer=event)
        until = steps.deadlines.get(self._name)
        if until is not None and until <= now:
            return Changes(answer=None)
        return Changes(answer=_PARKED, settle=[self._park(until, now)])

    def _park(self, until: datetime | None, now: datetime) -> Transition:
        job, entries = self._course.job, self._course.unsaid
        if job.token is None:
            raise Fenced(job.id)
        if until is None:
            until = now + (FOREVER if self._timeout is None else self._timeout)
            entries = (*entries, written(Waiting(name=self._name, until=until)))
        return Transition(
            id=job.id,
            token=job.token,
            state=State.SCHEDULED,
            due=until,
            waiting_for=topic_of(self._event),
            steps=entries,
            reason=f"waiting for event {self._event}",
        )

    async def _note(self, event: Event | None) -> Any:
        raw = Raw(b"null" if event is None else msgspec.json.encode(event.payload))
        entry = Waited(name=self._name, event=None if event is None else event.id, result=raw)
        await self._course.write(entry)
        if event is not None:
            self._course.steps.events.add(event.id)
        return self._recorded(entry)

    def _recorded(self, recorded: Finished) -> Any:
        if not isinstance(recorded, Waited):
            raise self._course.refuse(
                f"{self._name!r} was a step or a sleep in an earlier attempt, and is a wait now: "
                "give the wait another name="
            )
        if recorded.event is None:
            raise EventTimeout(self._event)
        return msgspec.json.decode(recorded.result)
