"""Owns what people do from outside: move jobs, pause and resume queues, pull the levers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from windlass.app.breaker_levers import BreakerLevers
from windlass.app.limit_levers import LimitLevers
from windlass.core.changes import FROM, Changes, Move, Verb
from windlass.core.errors import IllegalMove, UnknownJob
from windlass.core.job import ErrorGroup, Job
from windlass.core.names import check_name
from windlass.core.text import storable
from windlass.registry import Registry
from windlass.runtime.chores import PAUSED_QUEUE
from windlass.store import Store

_REASON_LIMIT = 500
_REMEDIES = {
    Verb.CANCEL: "only jobs that wait or run can be cancelled",
    Verb.RETRY: "only scheduled jobs can be retried now; a dead one is redriven",
    Verb.REDRIVE: "only dead jobs are redriven; enqueue a new one",
    Verb.PURGE: "only dead jobs are purged; finished ones go when their retention is over",
}


class Control(LimitLevers, BreakerLevers):
    """The levers of a store. All of them are coroutines."""

    def __init__(self, store: Callable[[], Store], registry: Registry) -> None:
        self._store = store
        self._registry = registry

    async def cancel(self, job_id: UUID, *, reason: str = "cancelled by an operator") -> Job:
        """Cancel a waiting job, or ask a running one to end.

        Raises:
            UnknownJob: there is no such job.
            IllegalMove: it is finished.
        """
        return await self._move_one(Verb.CANCEL, job_id, reason)

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
            IllegalMove: it is not dead.
        """
        return await self._move_one(Verb.REDRIVE, job_id, reason, payload)

    async def error_groups(self, *, kind: str | None = None, limit: int = 100) -> list[ErrorGroup]:
        """Return the errors of which jobs are dead, those that most died of first."""
        return await self._store().error_groups(kind=kind, limit=limit)

    async def purge(self, job_ids: Iterable[UUID]) -> list[Job]:
        """Delete dead jobs for ever; return those that were dead."""
        return await self._move(Verb.PURGE, list(job_ids), "")

    async def pause(self, queue: str) -> bool:
        """Keep workers from starting jobs of a queue; say whether that is new."""
        name = PAUSED_QUEUE + check_name("queue", queue)
        applied = await self._store().apply(
            [name],
            lambda known, now: Changes(
                answer=name not in known, records={name: {"since": now.isoformat()}, **known}
            ),
        )
        return applied.answer

    async def resume(self, queue: str) -> bool:
        """Let workers start jobs of a queue again; say whether it was paused."""
        name = PAUSED_QUEUE + queue
        applied = await self._store().apply(
            [name], lambda known, _: Changes(answer=name in known, records={name: None})
        )
        return applied.answer

    async def paused(self) -> list[str]:
        """Return the queues that are paused."""
        records = await self._store().records(PAUSED_QUEUE)
        return sorted(name.removeprefix(PAUSED_QUEUE) for name in records)

    async def _move_one(
        self, verb: Verb, job_id: UUID, reason: str, payload: bytes | None = None
    ) -> Job:
        moved = await self._move(verb, [job_id], reason, payload)
        if moved:
            return moved[0]
        job = await self._store().get(job_id)
        if job is None:
            raise UnknownJob(job_id)
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
