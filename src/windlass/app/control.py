"""Owns what people do from outside: move jobs, pause and resume queues, pull the levers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from windlass.app.breaker_levers import BreakerLevers
from windlass.app.limit_levers import LimitLevers
from windlass.app.why import WhyLevers
from windlass.core.changes import FROM, Changes, Move, Verb
from windlass.core.durations import Duration, duration
from windlass.core.errors import IllegalMove, UnknownJob
from windlass.core.flow import topic_of
from windlass.core.job import ErrorGroup, Job, Json, Saga
from windlass.core.pauses import PAUSES, Pauses, pause_record
from windlass.core.redaction import Redaction
from windlass.core.text import storable
from windlass.registry import Registry
from windlass.runtime.flows import Flows
from windlass.store import Store

_HEEDED = timedelta(seconds=2)
"""After how long workers heed a pause, and what they had claimed before is seen to run."""
_LOOK = 0.25
_REASON_LIMIT = 500
_REMEDIES = {
    Verb.CANCEL: "only jobs that wait or run can be cancelled",
    Verb.RETRY: "only scheduled jobs can be retried now; a dead one is redriven",
    Verb.REDRIVE: "only dead jobs are redriven; enqueue a new one",
    Verb.PURGE: "only dead jobs are purged; finished ones go when their retention is over",
}
_BEING_UNDONE = "what it did is being undone, and that is done to the end"
_WITH_ANOTHER_PAYLOAD = "redrive with another payload"
_BOUND = (
    "what its steps did, they did with the payload that it has: redrive it as it is, or purge it "
    "and enqueue a new one"
)


class Control(LimitLevers, BreakerLevers, WhyLevers):
    """The levers of a store. All of them are coroutines."""

    def __init__(
        self,
        store: Callable[[], Store],
        registry: Registry,
        redaction: Callable[[], Redaction] = Redaction,
    ) -> None:
        self._store = store
        self._registry = registry
        self._redaction = redaction

    async def cancel(self, job_id: UUID, *, reason: str = "cancelled by an operator") -> Job:
        """Cancel a waiting job, or ask a running one to end; so with all jobs of a flow.

        Raises:
            UnknownJob: there is no such job.
            IllegalMove: it is finished.
        """
        job = await self._move_one(Verb.CANCEL, job_id, reason)
        if job.flow == job.id:
            # What a worker would do, too, but somewhat later, and only if there is one.
            await Flows(self._store()).hear([topic_of(job.id)])
        return job

    async def retry(self, job_id: UUID, *, reason: str = "retried by an operator") -> Job:
        """Make a scheduled job due now.

        Raises:
            UnknownJob: there is no such job.
            IllegalMove: it is not scheduled.
        """
        return await self._move_one(Verb.RETRY, job_id, reason)

    async def redrive(
        self, job_ids: Iterable[UUID], *, reason: str = "redriven by an operator"
    ) -> list[Job]:
        """Give dead jobs a new life; return those that were dead."""
        return await self._move(Verb.REDRIVE, list(job_ids), reason)

    async def redrive_with(
        self, job_id: UUID, payload: bytes, *, reason: str = "mended by an operator"
    ) -> Job:
        """Give a dead job a new life with another payload, as JSON.

        Raises:
            UnknownJob: there is no such job.
            IllegalMove: it is not dead, or its steps were done with the payload that it has.
        """
        return await self._move_one(Verb.REDRIVE, job_id, reason, payload)

    async def error_groups(self, *, kind: str | None = None, limit: int = 100) -> list[ErrorGroup]:
        """Return the errors of which jobs are dead, those that most died of first."""
        return await self._store().error_groups(kind=kind, limit=limit)

    async def purge(self, job_ids: Iterable[UUID]) -> list[Job]:
        """Delete dead jobs for ever; return those that were dead."""
        return await self._move(Verb.PURGE, list(job_ids), "")

    async def pause(
        self, queue: str | None = None, *, kind: str | None = None, key: str | None = None
    ) -> bool:
        """Keep workers from starting jobs of a queue, a kind or a key; say whether that is new.

        They heed it within a second. What runs goes on, and enqueueing works.

        Raises:
            ValueError: it is not one of them that is named.
        """
        name = pause_record(queue, kind, key)
        applied = await self._store().apply([name], partial(_paused, name))
        return applied.answer is None

    async def resume(
        self, queue: str | None = None, *, kind: str | None = None, key: str | None = None
    ) -> bool:
        """Let workers start jobs of a queue, a kind or a key again; say whether it was paused.

        Raises:
            ValueError: it is not one of them that is named.
        """
        name = pause_record(queue, kind, key)
        applied = await self._store().apply(
            [name], lambda known, _: Changes(answer=name in known, records={name: None})
        )
        return applied.answer

    async def paused(self) -> Pauses:
        """Return what is paused: `queues`, `kinds` and `keys`."""
        return Pauses.of(await self._store().records(PAUSES))

    async def drain(
        self,
        queue: str,
        *,
        timeout: Duration | None = None,
        told: Callable[[int], None] = lambda _: None,
    ) -> bool:
        """Pause a queue, and wait until nothing of it runs; say whether that is so.

        It is not if time was up first. In either case the queue stays paused. `told` is called time
        and again with the number of its jobs that run.
        """
        name = pause_record(queue, None, None)
        patience = math.inf if timeout is None else duration(timeout).total_seconds()
        deadline = time.monotonic() + patience
        while True:
            # Looked at before the jobs: what is claimed by now, is running by then.
            applied = await self._store().apply([name], partial(_paused, name))
            running = await self._running(queue)
            told(running)
            if not running and applied.answer is not None and applied.answer >= _HEEDED:
                return True
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(min(_LOOK, max(deadline - time.monotonic(), 0.0)))

    async def _running(self, queue: str) -> int:
        """Count the jobs of a queue that run, by their holders: that is found at once."""
        workers = await self._store().workers()
        held = [await self._store().held(worker.info.id) for worker in workers]
        return sum(job.queue == queue for jobs in held for job in jobs)

    async def _move_one(
        self, verb: Verb, job_id: UUID, reason: str, payload: bytes | None = None
    ) -> Job:
        moved = await self._move(verb, [job_id], reason, payload)
        if moved:
            return moved[0]
        job = await self._store().get(job_id)
        if job is None:
            raise UnknownJob(job_id)
        if verb is Verb.CANCEL and job.saga is Saga.UNDOING and job.state in FROM[verb]:
            raise IllegalMove(job_id, job.state, verb, _BEING_UNDONE)
        if verb is Verb.REDRIVE and job.state in FROM[verb]:
            raise IllegalMove(job_id, job.state, _WITH_ANOTHER_PAYLOAD, _BOUND)
        if job.state in FROM[verb]:
            raise IllegalMove(job_id, job.state, verb, f"it waits for {job.waiting_for!r}")
        raise IllegalMove(job_id, job.state, verb, _REMEDIES[verb])

    async def _move(
        self, verb: Verb, job_ids: Sequence[UUID], reason: str, payload: bytes | None = None
    ) -> list[Job]:
        said = storable(reason, _REASON_LIMIT)
        moves = [Move(verb=verb, id=job_id, reason=said, payload=payload) for job_id in job_ids]
        applied = await self._store().apply([], lambda _, __: Changes(answer=None, moves=moves))
        return [job for job in applied.moved if job is not None]


def _paused(name: str, known: Mapping[str, Json], now: datetime) -> Changes[timedelta | None]:
    """Pause what is not paused, and answer how long it was before."""
    if name not in known:
        return Changes(answer=None, records={name: {"since": now.isoformat()}})
    return Changes(answer=now - datetime.fromisoformat(known[name]["since"]))
