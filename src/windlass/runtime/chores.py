"""Owns the rounds that every worker makes beside its jobs: rescue, orders, progress, pruning."""

from __future__ import annotations

import heapq
import random
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from msgspec.structs import replace

from windlass.core.job import Job, Progress, Retention
from windlass.core.outcomes import Crashed, Released
from windlass.core.pauses import PAUSES, Pauses
from windlass.core.settle import Policy, Transition, settle
from windlass.observe.logs import get_logger
from windlass.observe.running import fields_of
from windlass.runtime.lines import RESCUED
from windlass.runtime.postmortem import certainly, last_moves
from windlass.runtime.service import Service
from windlass.store import Store

log = get_logger("windlass.chores")
_RESCUED_AT_ONCE = 100
_PRUNED_AT_ONCE = 1_000
_ORDERS = 0.5
_PRUNING = 60.0
_KINDS_NAMED = 20
"""Of those nobody serves. Who invents thousands must not keep the event loop at writing lines."""


class Rescuer(Service):
    """Takes over the jobs of workers that lost their lease, and settles them as lost."""

    name = "rescuer"

    def __init__(
        self,
        store: Store,
        *,
        interval: timedelta,
        worker_id: Callable[[], str],
        policy: Callable[[Job], Policy],
        settle: Callable[[Job, Transition], None],
    ) -> None:
        super().__init__()
        self._store = store
        self._interval = interval.total_seconds()
        self._worker_id = worker_id
        self._policy = policy
        self._settle = settle

    async def tick(self) -> float:
        worker, token = self._worker_id(), secrets.randbits(63)
        jobs = await self._store.rescue(worker=worker, token=token, limit=_RESCUED_AT_ONCE)
        hosts = await self._living_hosts() if jobs else {}
        for job in jobs:
            move = certainly(job, partial(self._crashed, job, hosts))
            ours = replace(job, worker=worker)
            log.warning(RESCUED, **fields_of(ours), lost_by=job.worker, state=move.state.value)
            # Not settled here: the job is ours now, so its outcome must not get lost either.
            self._settle(ours, move)
        return 0 if len(jobs) == _RESCUED_AT_ONCE else self._interval

    async def _living_hosts(self) -> dict[str, bool]:
        """Say of each worker whether any worker of its host is alive, maybe one that replaced it.

        If none is, the host is gone, and that tells nothing about the jobs that ran there.
        """
        workers = await self._store.workers()
        alive = {worker.info.host for worker in workers if worker.alive}
        return {worker.info.id: worker.info.host in alive for worker in workers}

    def _crashed(self, job: Job, host_lives: Mapping[str, bool]) -> Transition:
        gone = not host_lives.get(job.worker or "", True)
        reason = f"the lease of worker {job.worker} ran out"
        outcome = Crashed(
            cause="host" if gone else "lease",
            reason=f"{reason}, and no worker of its host is left" if gone else reason,
        )
        # When the run ended nobody knows, so it is recorded without a duration.
        now = job.started_at or datetime.now(UTC)
        return settle(job, outcome, self._policy(job), now=now, jitter=random.random())  # noqa: S311


class Orders(Service):
    """Learns what people asked for: jobs to cancel; queues, kinds and keys to pause."""

    name = "orders"

    def __init__(
        self,
        store: Store,
        *,
        worker_id: Callable[[], str],
        is_busy: Callable[[], bool],
        cancel: Callable[[UUID], None],
        pause: Callable[[Pauses], None],
        asked: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._store = store
        self._worker_id = worker_id
        self._is_busy = is_busy
        self._cancel = cancel
        self._pause = pause
        self._asked = asked
        self._wanted = store.capabilities.wakes
        self._listening: bool | None = None

    @property
    def listening(self) -> bool | None:
        """Whether wake-ups arrive; None where nobody wants them."""
        return bool(self._listening) if self._wanted else None

    async def tick(self) -> float:
        self._mind_wakeups()
        self._pause(Pauses.of(await self._store.records(PAUSES)))
        self._asked()
        if self._is_busy():
            for job_id in await self._store.cancel_requests(self._worker_id()):
                self._cancel(job_id)
        return _ORDERS

    def _mind_wakeups(self) -> None:
        """Say when news cease to arrive, since jobs start later then, and when they are back."""
        listening = self._store.listening
        if listening != self._listening and self._listening is not None:
            if listening:
                log.info("wakeups.restored")
            else:
                log.warning("wakeups.lost", why="new jobs are found by polling until they are back")
        if listening or self._listening is not None:
            self._listening = listening


class Reporter(Service):
    """Writes how far jobs are: the latest word of each, twice a second at most."""

    name = "reporter"

    def __init__(self, store: Store, *, fenced: Callable[[Job], None]) -> None:
        super().__init__()
        self._store = store
        self._fenced = fenced
        self._latest: dict[UUID, tuple[Job, Progress]] = {}

    def report(self, job: Job, progress: Progress) -> None:
        """Take a word from a handler, in whatever thread that runs."""
        self._latest[job.id] = (job, progress)

    def forget(self, job: Job) -> None:
        """Drop the word of a run that has ended: it would come too late."""
        if self._latest:
            self._latest.pop(job.id, None)

    async def tick(self) -> float:
        while self._latest:
            job_id, (job, progress) = self._latest.popitem()
            if job.token is not None and not await self._store.progress(
                job_id, job.token, progress
            ):
                self._fenced(job)
        return _ORDERS


class Keeper(Service):
    """Gives back jobs that this worker holds by the store's account, and knows nothing of.

    The answer to a claim can get lost after the claim was made. Such a job would be held for as
    long as the worker lives. What is seen twice in a row is not on its way any more.
    """

    name = "keeper"

    def __init__(
        self,
        store: Store,
        *,
        interval: timedelta,
        worker_id: Callable[[], str],
        is_known: Callable[[Job], bool],
        settle: Callable[[Job, Transition], None],
    ) -> None:
        super().__init__()
        self._store = store
        self._interval = interval.total_seconds()
        self._worker_id = worker_id
        self._is_known = is_known
        self._settle = settle
        self._seen: set[tuple[UUID, int | None]] = set()

    async def tick(self) -> float:
        held = await self._store.held(self._worker_id())
        unknown = {(job.id, job.token): job for job in held if not self._is_known(job)}
        for each in self._seen & unknown.keys():
            self.give_back(unknown[each])
        self._seen = set(unknown)
        return self._interval

    def give_back(self, job: Job) -> None:
        """Release a job that nobody here runs."""
        (move,) = last_moves([job], lambda _: Released(reason="claimed, and never started"))
        self._settle(job, move)


class Pruner(Service):
    """Deletes what is past its retention, and says what is wrong with the store."""

    name = "pruner"

    def __init__(self, store: Store, retention: Retention) -> None:
        super().__init__()
        self._store = store
        self._retention = retention

    async def tick(self) -> float:
        pruned = await self._store.prune(self._retention, _PRUNED_AT_ONCE)
        if pruned >= _PRUNED_AT_ONCE:
            return 0
        for finding in await self._store.findings():
            log.warning("store.finding", problem=finding.problem, remedy=finding.remedy)
        return _PRUNING


class Census(Service):
    """Warns of pending kinds that no live worker knows: nobody will ever run them."""

    name = "census"

    def __init__(self, store: Store, *, known: Mapping[str, object]) -> None:
        super().__init__()
        self._store = store
        self._known = known
        self._warned: set[str] = set()

    async def tick(self) -> float:
        sweep = await self._store.sweep()
        unknown = {head.lane.kind for head in sweep.heads} - self._known.keys() - self._warned
        if unknown:
            workers = await self._store.workers()
            unknown -= {kind for worker in workers if worker.alive for kind in worker.info.kinds}
        for kind in heapq.nsmallest(_KINDS_NAMED, unknown):
            log.warning(
                "kind.unserved",
                kind=kind,
                remedy="no live worker has a handler for it; is its module imported?",
            )
        if (others := len(unknown) - _KINDS_NAMED) > 0:
            log.warning(
                "kinds.unserved",
                others=others,
                remedy="no live worker has a handler for these either; see: windlass doctor",
            )
        self._warned |= unknown
        return _PRUNING
