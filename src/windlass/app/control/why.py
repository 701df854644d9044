"""Owns how `app.control.why` gathers the facts about one job; `core.why` explains them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Struct

from windlass.app.control.limits import KnownLimits
from windlass.app.workflows.flow_view import before
from windlass.core.documents import Facts, iso, job_summary, reason_facts
from windlass.core.errors import ConfigError, UnknownJob
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.payloads.masked_job import masked_texts
from windlass.core.payloads.redaction import Redaction
from windlass.core.policies.breaker_record import RECORD as BREAKERS
from windlass.core.policies.breaker_record import BreakerStatus, read_status
from windlass.core.policies.limit import OVERRIDE, RECORD
from windlass.core.policies.limit_usage import Hold, holds_on
from windlass.core.policies.pauses import PAUSES, Pauses
from windlass.core.records import Json
from windlass.core.stats.depths import Standing
from windlass.core.why.explain import AHEAD_COUNTED, Scene, explain
from windlass.core.why.reason import Reason
from windlass.core.workers import WorkerRecord
from windlass.handlers.registry import Registry
from windlass.store import Store

_MAX_WORKERS = 20
"""The most workers whose jobs are read; the heartbeats of others suffice."""


class Why(Struct, frozen=True, kw_only=True):
    """Why a job does not run, or what became of it; the most important reason is the first."""

    job: Job
    now: datetime
    """By the store's clock."""
    reasons: tuple[Reason, ...]
    knows_limits: bool = True
    """Whether the limits of the job's kind are known: from the app, or from workers."""


def why_facts(found: Why) -> Facts:
    """Return the document of an answer, for scripts."""
    return {
        "job": job_summary(found.job),
        "now": iso(found.now),
        "reasons": [reason_facts(each) for each in found.reasons],
        "knows_limits": found.knows_limits,
    }


async def why(
    store: Store,
    registry: Registry,
    redaction: Redaction,
    job_id: UUID,
    queues: Collection[str] | None = None,
) -> Why:
    """Return why a job does not run, or what became of it: see `Control.why`."""
    job = await store.get(job_id)
    if job is None or (queues is not None and job.queue not in queues):
        raise UnknownJob(job_id)
    workers = await store.workers()
    known = KnownLimits(registry, workers)
    scene = await _Gathering(store, registry, known, workers).scene(job)
    if queues is not None:
        scene = _without_others(scene, queues)
    seen = masked_texts(job, redaction)
    if scene.head is not None:
        scene = msgspec.structs.replace(scene, head=masked_texts(scene.head, redaction))
    return Why(
        job=seen,
        now=scene.now,
        reasons=explain(seen, scene),
        knows_limits=known.knows(job.kind),
    )


def _without_others(scene: Scene, queues: Collection[str]) -> Scene:
    """Return a scene that names no job of other queues, and quotes none of their errors."""
    return msgspec.structs.replace(
        scene,
        breakers=[msgspec.structs.replace(each, history=()) for each in scene.breakers],
        holds=[
            # `wanted` keeps the answer whether it binds, which rests on all of its jobs.
            msgspec.structs.replace(
                each,
                jobs=tuple(job for job in each.jobs if job.queue in queues),
                wanted=each.binds,
            )
            for each in scene.holds
        ],
        before=[job for job in scene.before if job.queue in queues],
        head=scene.head if scene.head is None or scene.head.queue in queues else None,
    )


class _Gathering:
    def __init__(
        self, store: Store, registry: Registry, limits: KnownLimits, workers: list[WorkerRecord]
    ) -> None:
        self._store = store
        self._registry = registry
        self._limits = limits
        self._workers = workers

    async def scene(self, job: Job) -> Scene:
        now = (await self._store.sweep()).now
        accounts = await self._accounts(job)
        held = await self._held(job, self._workers, accounts)
        standing, head = Standing(), None
        if job.state is State.PENDING:
            standing = await self._store.standing(job.id, limit=AHEAD_COUNTED)
            if standing.head is not None and self._limits.order_of(job.kind, job.queue):
                head = await self._store.get(standing.head)
        changes = await self._store.records(OVERRIDE)
        return Scene(
            now=now,
            workers=self._workers,
            held=held,
            paused=Pauses.of(await self._store.records(PAUSES)),
            kind=self._registry[job.kind].kind if job.kind in self._registry else None,
            breakers=await self._breakers(job.kind),
            holds=tuple(self._holds(job, accounts, changes, held, now)),
            standing=standing,
            head=head,
            before=await before(self._store, job),
        )

    async def _accounts(self, job: Job) -> dict[str, Json]:
        found: dict[str, Json] = {}
        if job.state is State.PENDING:
            for name in self._limits.of(job.kind, job.queue):
                found.update(await self._store.records(RECORD + name))
        return found

    async def _held(
        self, job: Job, workers: list[WorkerRecord], accounts: Mapping[str, Json]
    ) -> dict[str, list[Job]]:
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
        names = list(dict.fromkeys(each.info.id for each in near))[:_MAX_WORKERS]
        return {name: await self._store.held(name) for name in names}

    async def _breakers(self, kind: str) -> list[BreakerStatus]:
        own = ""
        if kind in self._registry:
            try:
                rule = self._registry.rule_of(kind)
            except ConfigError:
                rule = None  # Not defined in this app; workers may report it.
            own = "" if rule is None else rule.name
        known = await self._store.records(BREAKERS)
        found = [read_status(name.removeprefix(BREAKERS), each) for name, each in known.items()]
        return [each for each in found if kind in each.kinds or each.name == own]

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
        for name, amount in self._limits.of(job.kind, job.queue).items():
            running = {
                worker: tuple(each for each in jobs if self._goes_by(name, each))
                for worker, jobs in held.items()
            }
            yield from holds_on(
                job,
                name,
                self._limits.get(name),
                change=changes.get(OVERRIDE + name),
                accounts=accounts,
                running=running,
                amount=amount,
                now=now,
            )

    def _goes_by(self, name: str, job: Job) -> bool:
        return name in self._limits.of(job.kind, job.queue)
