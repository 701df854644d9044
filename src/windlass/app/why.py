"""Owns how `app.control.why` gathers what has to do with one job; `core.why` makes words of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from windlass.core.breaker_record import RECORD as BREAKERS
from windlass.core.breaker_record import BreakerStatus, read_status
from windlass.core.errors import ConfigError, UnknownJob
from windlass.core.holds import Hold, holds_on
from windlass.core.job import ErrorInfo, Job, Json, Standing, WorkerRecord
from windlass.core.limits import OVERRIDE, RECORD, queue_limit
from windlass.core.pauses import PAUSES, Pauses
from windlass.core.reasons import Reason
from windlass.core.redaction import Redaction
from windlass.core.states import State
from windlass.core.why import AHEAD_COUNTED, Scene, explain
from windlass.registry import Registry
from windlass.store import Store

_LOOKED_AT = 20
"""At how many workers' jobs one looks; of the others their heartbeats tell."""


@dataclass(frozen=True, kw_only=True)
class Why:
    """Why a job does not run, or what became of it; the most telling reason is the first."""

    job: Job
    now: datetime
    """By the store's clock."""
    reasons: tuple[Reason, ...]


class WhyLevers:
    """What `app.control` knows about one job."""

    _store: Callable[[], Store]
    _registry: Registry
    _redaction: Callable[[], Redaction]

    async def why(self, job_id: UUID) -> Why:
        """Say why a job does not run, or what became of it, and what would change that.

        Limits that only the code knows of are those of this app's handlers.

        Raises:
            UnknownJob: there is no such job.
        """
        store = self._store()
        job = await store.get(job_id)
        if job is None:
            raise UnknownJob(job_id)
        scene = await _Gathering(store, self._registry).scene(job)
        seen = _discreet(job, self._redaction())
        return Why(job=seen, now=scene.now, reasons=explain(seen, scene))


class _Gathering:
    """One look at a store, for one job."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    async def scene(self, job: Job) -> Scene:
        now = (await self._store.sweep()).now
        workers = await self._store.workers()
        accounts = await self._accounts(job)
        held = await self._held(job, workers, accounts)
        standing = Standing()
        if job.state is State.PENDING:
            standing = await self._store.standing(job.id, limit=AHEAD_COUNTED)
        changes = await self._store.records(OVERRIDE)
        return Scene(
            now=now,
            workers=workers,
            held=held,
            paused=Pauses.of(await self._store.records(PAUSES)),
            kind=self._registry[job.kind].kind if job.kind in self._registry else None,
            breakers=await self._breakers(job.kind),
            holds=tuple(self._holds(job, accounts, changes, held, now)),
            standing=standing,
        )

    async def _accounts(self, job: Job) -> dict[str, Json]:
        found: dict[str, Json] = {}
        if job.state is State.PENDING:
            for name in self._limits(job):
                found.update(await self._store.records(RECORD + name))
        return found

    async def _held(
        self, job: Job, workers: list[WorkerRecord], accounts: Mapping[str, Json]
    ) -> dict[str, list[Job]]:
        """Return what those run who would run the job, or have tokens that it may need."""
        if job.state is not State.PENDING:
            return {}
        holders = {
            holder
            for account in accounts.values()
            for part in account.values()
            for holder in part.get("holds", {})
        }
        near = [each for each in workers if each.info.id in holders]
        near += [each for each in workers if each.alive and each.info.serves(job.lane)]
        names = list(dict.fromkeys(each.info.id for each in near))[:_LOOKED_AT]
        return {name: await self._store.held(name) for name in names}

    async def _breakers(self, kind: str) -> list[BreakerStatus]:
        """Return the breakers that a kind goes by, as workers told, or as this app says."""
        own = ""
        if kind in self._registry:
            try:
                rule = self._registry.rule_of(kind)
            except ConfigError:
                rule = None  # Nobody here defines it; workers may have told of it.
            own = "" if rule is None else rule.name
        known = await self._store.records(BREAKERS)
        found = [read_status(name.removeprefix(BREAKERS), each) for name, each in known.items()]
        return [each for each in found if kind in each.kinds or each.name == own]

    def _limits(self, job: Job) -> dict[str, int]:
        """Return the names of the limits that a job goes by, and how much it takes of each."""
        names = {queue_limit(job.queue): 1, f"kind:{job.kind}": 1}
        if job.kind in self._registry:
            registration = self._registry[job.kind]
            if registration.limit is not None:
                names[registration.limit.name] = 1
            if registration.resource is not None:
                names[registration.resource] = registration.amount
        return names

    def _holds(
        self,
        job: Job,
        accounts: Mapping[str, Json],
        changes: Mapping[str, Json],
        held: Mapping[str, list[Job]],
        now: datetime,
    ) -> Iterator[Hold]:
        if job.state is not State.PENDING:
            return
        for name, amount in self._limits(job).items():
            running = {
                worker: tuple(each for each in jobs if name in self._limits(each))
                for worker, jobs in held.items()
            }
            yield from holds_on(
                job,
                name,
                self._registry.limits.get(name),
                change=changes.get(OVERRIDE + name),
                accounts=accounts,
                running=running,
                amount=amount,
                now=now,
            )


def _discreet(job: Job, redaction: Redaction) -> Job:
    """Mask what the words about a job would tell."""
    progress, error = job.progress, job.error
    if progress is not None:
        progress = replace(progress, message=redaction.text(progress.message))
    return replace(
        job,
        reason=None if job.reason is None else redaction.text(job.reason),
        error=None if error is None else _masked(error, redaction),
        progress=progress,
    )


def _masked(error: ErrorInfo, redaction: Redaction) -> ErrorInfo:
    return replace(error, message=redaction.text(error.message))
