"""Owns what people do from outside: to jobs, queues and breakers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from windlass.core.breaker import OWN, Rule
from windlass.core.breaker_record import (
    RECORD,
    BreakerStatus,
    force,
    read_status,
    record_of,
)
from windlass.core.changes import FROM, Changes, Move, Verb
from windlass.core.errors import ConfigError, IllegalMove, UnknownJob
from windlass.core.job import Job, Json
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


class Control:
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

    async def breakers(self) -> list[BreakerStatus]:
        """Return how it stands with the breakers: those of this app, and those of any worker.

        Those that kinds have of their own are known once there was a system error.
        """
        records = await self._store().records(RECORD)
        known = {name.removeprefix(RECORD): record for name, record in records.items()}
        named = {rule.name for rule in self._rules() if not rule.name.startswith(OWN)}
        return [read_status(name, known.get(name)) for name in sorted(named | known.keys())]

    async def open_breaker(self, name: str, *, by: str = "an operator") -> BreakerStatus:
        """Keep a breaker open: nothing of its kinds starts until somebody says otherwise.

        Raises:
            ConfigError: there is no such breaker.
        """
        return await self._force(name, "open", by)

    async def close_breaker(self, name: str, *, by: str = "an operator") -> BreakerStatus:
        """Keep a breaker closed, whatever fails, until somebody says otherwise.

        Raises:
            ConfigError: there is no such breaker.
        """
        return await self._force(name, "closed", by)

    async def reset_breaker(self, name: str, *, by: str = "an operator") -> BreakerStatus:
        """Let a breaker go by itself again; one that was kept open begins with probes.

        Raises:
            ConfigError: there is no such breaker.
        """
        return await self._force(name, None, by)

    def _rules(self) -> Collection[Rule]:
        return self._registry.rules().values()

    async def _force(
        self, name: str, to: Literal["open", "closed"] | None, by: str
    ) -> BreakerStatus:
        breakers = {each.name for each in await self.breakers()}
        if name not in breakers and name not in {rule.name for rule in self._rules()}:
            known = ", ".join(sorted(breakers)) or "none"
            raise ConfigError(
                f"there is no breaker {name!r}; there are: {known}. One is known once a worker "
                "has it, or from the app that has it"
            )
        record, said = RECORD + name, storable(by, _REASON_LIMIT)

        def decide(known: Mapping[str, Json], now: datetime) -> Changes[BreakerStatus]:
            status = read_status(name, known.get(record))
            forced = force(status, to, by=said, now=now)
            return Changes(answer=forced, records={record: record_of(forced)})

        return (await self._store().apply([record], decide)).answer

    async def _move_one(self, verb: Verb, job_id: UUID, reason: str) -> Job:
        moved = await self._move(verb, [job_id], reason)
        if moved:
            return moved[0]
        job = await self._store().get(job_id)
        if job is None:
            raise UnknownJob(job_id)
        if job.state in FROM[verb]:
            raise IllegalMove(job_id, job.state, verb, f"it waits for {job.waiting_for!r}")
        raise IllegalMove(job_id, job.state, verb, _REMEDIES[verb])

    async def _move(self, verb: Verb, job_ids: Sequence[UUID], reason: str) -> list[Job]:
        said = storable(reason, _REASON_LIMIT)
        moves = [Move(verb=verb, id=job_id, reason=said) for job_id in job_ids]
        applied = await self._store().apply([], lambda _, __: Changes(answer=None, moves=moves))
        return [job for job in applied.moved if job is not None]
