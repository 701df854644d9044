"""Owns what a worker's process leaves behind: the jobs that it held, and its lease."""

from __future__ import annotations

import asyncio
import time

from windlass.core.errors import WindlassError
from windlass.core.job import Job
from windlass.core.outcomes import Crashed, Released
from windlass.observe.logs import get_logger
from windlass.runtime.postmortem import last_moves
from windlass.runtime.ward import Ward
from windlass.store import Store

log = get_logger("windlass.supervisor")
_LAST_WORDS = 5.0


async def see_to_jobs(ward: Ward, reason: str) -> None:
    """Give back what a process held when it ended: nobody else runs it, and nobody is charged.

    What cannot be given back, since the store is away, is rescued when the lease has run out.
    """
    if not ward.worker or ward.store is None:
        return
    store, deadline = ward.store, time.monotonic() + _LAST_WORDS
    while True:
        try:
            await _give_back(store, ward, reason)
        except WindlassError as error:
            if time.monotonic() > deadline:
                log.warning("jobs.not_given_back", worker_id=ward.worker, error=str(error))
                return
            await asyncio.sleep(0.5)
        else:
            return


async def _give_back(store: Store, ward: Ward, reason: str) -> None:
    held = await store.held(ward.worker)
    await store.settle(last_moves(held, _outcome(ward, reason)))
    await store.retire(ward.worker)
    for job in held:
        _tell(job, ward, reason)


def _outcome(ward: Ward, reason: str) -> Crashed | Released:
    if ward.was_let_go:
        return Released(reason=ward.leaving)
    return Crashed(cause="process", reason=f"its process {reason}", log=ward.last_words())


def _tell(job: Job, ward: Ward, reason: str) -> None:
    event = "job.released" if ward.was_let_go else "job.suspected"
    log.warning(
        event,
        job_id=job.id,
        worker_id=ward.worker,
        kind=job.kind,
        queue=job.queue,
        attempt=job.attempt,
        reason=ward.leaving if ward.was_let_go else f"its process {reason}",
    )
