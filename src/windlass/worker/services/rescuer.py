"""Owns the rescue of running jobs whose worker has lost its lease."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec.structs import replace

from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import Crashed
from windlass.core.jobs.settle import Transition, settle
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger
from windlass.observability.settled_log import RESCUED
from windlass.process.exits.exit_reasons import settle_or_give_up
from windlass.process.service import Service
from windlass.store import Store
from windlass.worker.engine.settler import Settler
from windlass.worker.engine.writing.completer import Completer
from windlass.worker.state import WorkerState

log = get_logger("windlass.rescuer")

_MAX_RESCUED = 100


class Rescuer(Service):
    """Takes over the jobs of workers that lost their lease, and settles them as lost."""

    name = "rescuer"

    def __init__(
        self,
        store: Store,
        *,
        interval: timedelta,
        state: WorkerState,
        settler: Settler,
        completer: Completer,
    ) -> None:
        super().__init__()
        self._store = store
        self._interval = interval.total_seconds()
        self._state = state
        self._settler = settler
        self._completer = completer

    async def tick(self) -> float:
        worker, token = self._state.id, secrets.randbits(63)
        jobs = await self._store.rescue(worker=worker, token=token, limit=_MAX_RESCUED)
        hosts = await self._living_hosts() if jobs else {}
        for job in jobs:
            move = settle_or_give_up(job, partial(self._crashed, job, hosts))
            ours = replace(job, worker=worker)
            log.warning(RESCUED, **fields_of(ours), lost_by=job.worker, state=move.state.value)
            # Through the completer: this worker holds the job now, so its outcome must not get lost
            # either.
            self._completer.add(ours, move)
        return 0 if len(jobs) == _MAX_RESCUED else self._interval

    async def _living_hosts(self) -> dict[str, bool]:
        """Return for each worker whether its host has a live worker, maybe one that replaced it.

        If it has none, the host is gone, which says nothing against the jobs that ran there.
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
        # The end of the run is unknown, so it is recorded without a duration.
        now = job.started_at or datetime.now(UTC)
        return settle(job, outcome, self._settler.policy(job), now=now, jitter=random.random())  # noqa: S311
