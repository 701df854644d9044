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
from windlass.core.errors import EventTimeout, LeaseLost, StoreUnavailable
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.records import Json
from windlass.core.values.names import check_name
from windlass.core.workflows.events import FOREVER, Event, next_event, topic_of
from windlass.core.workflows.step_log import Finished, Waited, Waiting, written

if TYPE_CHECKING:
    from windlass.handlers.steps.step_runner import StepRunner

_PARKED = object()
_RETRY_SECONDS = (0.1, 0.3, 1.0)


class Wait:
    """One call of `ctx.wait_for`."""

    def __init__(
        self, runner: StepRunner, event: str, timeout: timedelta | None, name: str
    ) -> None:
        self._runner = runner
        self._event = check_name("event", event)
        self._timeout = timeout
        self._name = name

    async def result(self) -> Any:
        """Return what the event brings along, in this run or the next.

        Raises:
            EventTimeout: it did not come in time.
            Suspended: it has not come yet; the run ends.
        """
        runner = self._runner
        main = runner.is_in_main()
        recorded = runner.reach(self._name, main=main)
        await runner.replay(recorded)
        if recorded is not None:
            return self._recorded(recorded)
        self._check_place(main=main)
        return await self._take()

    def result_blocking(self) -> Any:
        """Do the same in the thread of a handler."""
        runner = self._runner
        main = runner.is_in_main()
        recorded = runner.reach(self._name, main=main)
        runner.replay_blocking(recorded)
        if recorded is not None:
            return self._recorded(recorded)
        self._check_place(main=main)
        return asyncio.run_coroutine_threadsafe(self._take(), runner.environment.loop).result()

    def _check_place(self, *, main: bool) -> None:
        if self._runner.environment.ordered:
            raise self._runner.refuse(
                "a job of an ordered kind cannot wait for an event, since it keeps its place; "
                "wait in a kind without ordered=True that enqueues this one afterwards"
            )
        if not main:
            raise self._runner.refuse(
                "ctx.wait_for ends the run, so it must be called in the handler's own task, not "
                "in another one"
            )

    async def _take(self) -> Any:
        await self._runner.flush_stream()
        try:
            answer = await self._answer()
        except LeaseLost:
            # Parked by the same word before, whose answer was lost; or others have the job.
            raise self._runner.suspend(None) from None
        if answer is _PARKED:
            raise self._runner.suspend(None)
        return await self._record(answer)

    async def _answer(self) -> Any:
        """Ask the store; if it does not answer, ask again, since it may have parked the job."""
        store, names = self._runner.environment.store(), [topic_of(self._event)]
        for pause in _RETRY_SECONDS:
            try:
                return (await store.apply(names, self._decide)).answer
            except StoreUnavailable:
                await asyncio.sleep(pause)
        return (await store.apply(names, self._decide)).answer

    def _decide(self, records: Mapping[str, Json], now: datetime) -> Changes[Any]:
        steps, job = self._runner.steps, self._runner.job
        record = records.get(topic_of(self._event))
        event = next_event(record, since=job.created_at, had=steps.events)
        if event is not None:
            return Changes(answer=event)
        until = steps.deadlines.get(self._name)
        if until is not None and until <= now:
            return Changes(answer=None)
        return Changes(answer=_PARKED, settle=[self._park(until, now)])

    def _park(self, until: datetime | None, now: datetime) -> Transition:
        job, entries = self._runner.job, self._runner.unrecorded
        if job.token is None:
            raise LeaseLost(job.id)
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

    async def _record(self, event: Event | None) -> Any:
        raw = Raw(b"null" if event is None else msgspec.json.encode(event.payload))
        entry = Waited(name=self._name, event=None if event is None else event.id, result=raw)
        await self._runner.write(entry)
        if event is not None:
            self._runner.steps.events.add(event.id)
        return self._recorded(entry)

    def _recorded(self, recorded: Finished) -> Any:
        if not isinstance(recorded, Waited):
            raise self._runner.refuse(
                f"{self._name!r} was a step or a sleep in an earlier attempt and is now a wait; "
                "give the wait another name="
            )
        if recorded.event is None:
            raise EventTimeout(self._event)
        return msgspec.json.decode(recorded.result)
