"""Owns the return of the jobs and the lease of a worker's process that ended."""

from __future__ import annotations

import asyncio

from windlass.core.errors import WindlassError
from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import Crashed, Released
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger
from windlass.observability.settled_log import event_of
from windlass.process.exits.exit_reasons import transitions_after_crash
from windlass.store import Store
from windlass.supervisor.worker_process import WorkerProcess

log = get_logger("windlass.supervisor")
_GIVE_BACK_SECONDS = 5.0


async def give_back_jobs(process: WorkerProcess, reason: str) -> None:
    """Give back the jobs that a process held when it ended, without a charge.

    Jobs that cannot be given back because the store is unreachable are rescued once the lease runs
    out.
    """
    if not process.worker or process.store is None:
        return
    error = f"the store did not answer in {_GIVE_BACK_SECONDS:g} s"
    try:
        async with asyncio.timeout(_GIVE_BACK_SECONDS):
            while True:
                try:
                    await _give_back(process.store, process, reason)
                except WindlassError as failure:
                    error = str(failure)
                    await asyncio.sleep(0.5)
                else:
                    return
    except TimeoutError:
        log.warning("jobs.not_given_back", worker_id=process.worker, error=error)


async def _give_back(store: Store, process: WorkerProcess, reason: str) -> None:
    held = await store.held(process.worker)
    begun = process.begun(held)
    moves = transitions_after_crash(
        held, lambda job: _outcome(process, job, reason, has_begun=job.id in begun)
    )
    moved = await store.settle(moves)
    await store.retire(process.worker)
    for job, move, is_moved in zip(held, moves, moved, strict=True):
        if is_moved:
            fields = fields_of(job)
            log.warning(event_of(move), **fields, state=move.state.value, reason=move.reason)
            process.meters.settled(job, move)


def _outcome(
    process: WorkerProcess, job: Job, reason: str, *, has_begun: bool
) -> Crashed | Released:
    if process.was_let_go:
        return Released(reason=process.leaving)
    if not has_begun:
        return Crashed(cause="waited", reason=f"its process {reason} before the job began")
    return Crashed(cause="process", reason=f"its process {reason}", log=process.last_words(job))
