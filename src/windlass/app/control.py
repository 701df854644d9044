"""Owns what people do from outside: move jobs, pause and resume queues, change limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

from windlass.core.changes import FROM, Changes, Move, Verb
from windlass.core.errors import IllegalMove, UnknownJob
from windlass.core.job import ErrorGroup, Job, Json
from windlass.core.limits import OVERRIDE, RECORD, Change, Limit
from windlass.core.names import check_name
from windlass.core.text import storable
from windlass.core.usage import LimitState, limit_state
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

    def __init__(
        self,
        store: Callable[[], Store],
        *,
        limits: Callable[[], Mapping[str, Limit]] = lambda: MappingProxyType({}),
    ) -> None:
        self._store = store
        self._limits = limits

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

    async def set_limit(
        self,
        name: str,
        *,
        rate: str | None = None,
        burst: int | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Change a limit while workers run: `kind:crawl`, `queue:mail`, or a resource's name.

        What is not given stays as it was. Workers heed it within about a second; a lower limit
        takes effect as running jobs end, and as used tokens cool.

        Raises:
            ValueError: it is no limit, or this app has none of that name.
        """
        record = OVERRIDE + check_name("limit", name)
        change = Change.of(rate=rate, burst=burst, concurrency=concurrency)
        self._check_limit(name, change)
        told = change.written()
        if rate is not None:
            told = {"burst": None, **told}  # A burst that went with another rate goes with it.
        await self._store().apply(
            [record],
            lambda known, _: Changes(
                answer=None, records={record: _present(known.get(record, {}) | told)}
            ),
        )

    async def reset_limit(self, name: str) -> bool:
        """Let a limit be what the code says again; say whether it was changed."""
        record = OVERRIDE + name
        applied = await self._store().apply(
            [record], lambda known, _: Changes(answer=record in known, records={record: None})
        )
        return applied.answer

    async def limits(self) -> list[LimitState]:
        """Return the limits that this app defines, or that were changed, and what is in use."""
        store, known = self._store(), self._limits()
        changes = await store.records(OVERRIDE)
        accounts = await store.records(RECORD)
        names = known.keys() | {record.removeprefix(OVERRIDE) for record in changes}
        now = (await store.sweep()).now.timestamp()
        return [
            limit_state(name, known.get(name), changes.get(OVERRIDE + name), accounts, now)
            for name in sorted(names)
        ]

    def _check_limit(self, name: str, change: Change) -> None:
        known = self._limits()
        if not known:
            return  # An app that imports no handlers cannot know.
        if name not in known:
            raise ValueError(f"there is no limit {name!r}; there are: {', '.join(sorted(known))}")
        if change.burst is not None and change.rate is None and known[name].rate is None:
            raise ValueError(f"limit {name!r} has no rate, so it has no burst")
        if known[name].ordered and change.concurrency not in (None, 1):
            raise ValueError(f"limit {name!r} is ordered, so it is one at a time for each key")

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


def _present(record: Json) -> Json:
    return {name: value for name, value in record.items() if value is not None}
