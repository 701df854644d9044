"""Owns `app.control`: moving jobs, pausing and resuming queues, limits and breakers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from windlass.app.control.audit_reader import AuditControl
from windlass.app.control.breakers import BreakerControl
from windlass.app.control.bulk import check_job_id
from windlass.app.control.bulk_operations import BulkOperationControl
from windlass.app.control.deploys import DeployControl
from windlass.app.control.limits import LimitControl
from windlass.app.control.ordered_retry import retry_in_place
from windlass.app.control.why import Why, why
from windlass.app.loop_thread import blocking
from windlass.app.restored import RestoredControl
from windlass.core.changes import Changes
from windlass.core.errors import InvalidTransition, UnknownJob
from windlass.core.jobs.job import Job, Saga
from windlass.core.jobs.moves import FROM, Verb
from windlass.core.jobs.queries import ErrorGroups
from windlass.core.jobs.states import State
from windlass.core.payloads.redaction import Redaction
from windlass.core.policies.pauses import PAUSES, Pauses, pause_record
from windlass.core.records import Json
from windlass.core.values.durations import Duration, duration
from windlass.store import Store, store_of_job, store_of_queue

_OBSERVED_AFTER = timedelta(seconds=2)
"""The time after which workers observe a pause, and their earlier claims are visible as running."""
_POLL_SECONDS = 0.25
_REMEDIES = {
    Verb.CANCEL: "only waiting and running jobs can be cancelled",
    Verb.REDRIVE: "only dead jobs can be redriven; enqueue a new job",
    Verb.PURGE: "only finished jobs can be purged; cancel it first",
}
_RETRY_REMEDIES = {
    State.PENDING: "it already waits for a worker; see what holds it back: windlass why {}",
    State.RUNNING: "it has already started; see how far it is: windlass why {}",
    State.COMPLETED: "a completed job does not run again; enqueue a new job",
    State.CANCELLED: "a cancelled job does not run again; enqueue a new job",
    State.DEAD: "give it a new life: windlass dead redrive {}",
}
_BEING_UNDONE = "its compensation is running and cannot be interrupted"
_WITH_ANOTHER_PAYLOAD = "redrive with another payload"
_BOUND = (
    "its completed steps used the current payload; redrive it unchanged, or purge it and enqueue "
    "a new job"
)


class Control(
    RestoredControl,
    BulkOperationControl,
    LimitControl,
    BreakerControl,
    DeployControl,
    AuditControl,
):
    """Operations on a store: `app.control.pause("mail")`, or `await app.control.apause("mail")`."""

    async def acancel(self, job_id: UUID, *, reason: str | None = None) -> Job:
        """Cancel a waiting job, or ask a running one to end; a flow with all of its jobs.

        Raises:
            UnknownJob: there is no such job.
            InvalidTransition: it is finished.
        """
        return await self._move_one(Verb.CANCEL, job_id, reason)

    cancel = blocking(acancel)

    async def aretry(self, job_id: UUID, *, reason: str | None = None) -> Job:
        """Make a scheduled job due now, or an `ordered=True` one that keeps its place.

        Raises:
            UnknownJob: there is no such job.
            InvalidTransition: it does not wait for a time, or another job of its key goes first.
        """
        check_job_id(job_id)
        store = await store_of_job(self._app.store, job_id)
        job = await store.get(job_id)
        if job is not None:
            note = self._note(Verb.RETRY, f"job:{job_id}", reason=reason)
            act = partial(self._act, note, store=store)
            if await retry_in_place(store, self._app.registry, job, act):
                return job
        return await self._move_one(Verb.RETRY, job_id, reason)

    retry = blocking(aretry)

    async def aredrive_with(
        self, job_id: UUID, payload: bytes, *, reason: str | None = None
    ) -> Job:
        """Give a dead job a new life with another payload, as JSON.

        Raises:
            UnknownJob: there is no such job.
            InvalidTransition: it is not dead, or its steps were done with the payload that it has.
        """
        return await self._move_one(Verb.REDRIVE, job_id, reason, payload)

    redrive_with = blocking(aredrive_with)

    async def awhy(self, job_id: UUID, *, queues: Collection[str] | None = None) -> Why:
        """Return why a job does not run, or what became of it, and what would change that.

        Limits are those of this app's handlers; for other kinds, those that workers report. With
        `queues`, jobs of other queues are neither explained nor named.

        Raises:
            UnknownJob: there is no such job.
        """
        store = await store_of_job(self._app.store, job_id)
        redaction = Redaction(self._app.settings.redact)
        return await why(store, self._app.registry, redaction, job_id, queues)

    why = blocking(awhy)

    async def aerror_groups(self, *, kind: str | None = None, limit: int = 100) -> ErrorGroups:
        """Return the errors that jobs died of, the most frequent first.

        The jobs that died last are looked at, 10,000 of them; `searched_to` says how far back that
        was, and is None if those were all.
        """
        return await self._app.store.error_groups(kind=kind, limit=limit)

    error_groups = blocking(aerror_groups)

    async def apause(
        self, queue: str | None = None, *, kind: str | None = None, key: str | None = None
    ) -> bool:
        """Keep workers from starting jobs of a queue, a kind or a key; return whether that is new.

        Workers observe it within a second. Running jobs continue, and enqueueing works.

        Raises:
            ValueError: it is not one of them that is named.
        """
        name = pause_record(queue, kind, key)
        note = self._note("pause", name.removeprefix(PAUSES))
        applied = await self._act(note, [name], partial(_paused, name), self._store_of(queue))
        return applied.answer is None

    pause = blocking(apause)

    async def aresume(
        self, queue: str | None = None, *, kind: str | None = None, key: str | None = None
    ) -> bool:
        """Let workers start jobs of a queue, a kind or a key again; return whether it was paused.

        Raises:
            ValueError: it is not one of them that is named.
        """
        name = pause_record(queue, kind, key)
        note = self._note("resume", name.removeprefix(PAUSES))
        applied = await self._act(
            note,
            [name],
            lambda known, _: Changes(answer=name in known, records={name: None}),
            self._store_of(queue),
        )
        return applied.answer

    resume = blocking(aresume)

    async def apaused(self) -> Pauses:
        """Return the pauses: `queues`, `kinds` and `keys`."""
        return Pauses.of(await self._app.store.records(PAUSES))

    paused = blocking(apaused)

    async def apause_and_wait(
        self,
        queue: str,
        *,
        timeout: Duration | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> bool:
        """Pause a queue, and wait until none of its jobs runs; return False on timeout.

        In either case the queue stays paused. `progress` is called repeatedly with the number of
        its running jobs.
        """
        name = pause_record(queue, None, None)
        patience = math.inf if timeout is None else duration(timeout, "timeout").total_seconds()
        deadline = time.monotonic() + patience
        note = self._note("pause", name.removeprefix(PAUSES))
        while True:
            # Before the jobs are counted: those claimed by now are running by then.
            applied = await self._act(note, [name], partial(_paused, name), self._store_of(queue))
            running = await self._running(queue)
            progress(running)
            if not running and applied.answer is not None and applied.answer >= _OBSERVED_AFTER:
                return True
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(min(_POLL_SECONDS, max(deadline - time.monotonic(), 0.0)))

    pause_and_wait = blocking(apause_and_wait)

    async def _running(self, queue: str) -> int:
        store = self._store_of(queue)
        held = [await store.held(worker.info.id) for worker in await store.workers()]
        return sum(job.queue == queue for jobs in held for job in jobs)

    def _store_of(self, queue: str | None) -> Store:
        store = self._app.store
        return store if queue is None else store_of_queue(store, queue)

    async def _move_one(
        self, verb: Verb, job_id: UUID, reason: str | None, payload: bytes | None = None
    ) -> Job:
        moved = await self._move(verb, [job_id], reason, payload)
        if moved:
            return moved[0]
        job = await self._app.store.get(job_id)
        if job is None:
            raise UnknownJob(job_id)
        if verb is Verb.CANCEL and job.saga is Saga.UNDOING and job.state in FROM[verb]:
            raise InvalidTransition(job_id, job.state, verb, _BEING_UNDONE)
        if verb is Verb.REDRIVE and job.state in FROM[verb]:
            raise InvalidTransition(job_id, job.state, _WITH_ANOTHER_PAYLOAD, _BOUND)
        if job.state in FROM[verb]:
            raise InvalidTransition(job_id, job.state, verb, f"it waits for {job.waiting_for!r}")
        remedy = _RETRY_REMEDIES[job.state] if verb is Verb.RETRY else _REMEDIES[verb]
        raise InvalidTransition(job_id, job.state, verb, remedy.format(job_id))


def _paused(name: str, known: Mapping[str, Json], now: datetime) -> Changes[timedelta | None]:
    if name not in known:
        return Changes(answer=None, records={name: {"since": now.isoformat()}})
    return Changes(answer=now - datetime.fromisoformat(known[name]["since"]))
