"""Owns what a worker's process leaves behind: the jobs that it held, and its lease."""

from __future__ import annotations

import asyncio
import time

from windlass.core.errors import WindlassError
from windlass.core.job import Job
from windlass.core.outcomes import Crashed, Released
from windlass.observe.logs import get_logger
from windlass.observe.running import fields_of
from windlass.runtime.lines import event_of
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
    moves = last_moves(held, lambda job: _outcome(ward, job, reason))
    moved = await store.settle(moves)
    await store.retire(ward.worker)
    for job, move, is_moved in zip(held, moves, moved, strict=True):
        if is_moved:
            told = fields_of(job)
            log.warning(event_of(move), **told, state=move.state.value, reason=move.reason)
            ward.meters.settled(job, move)


def _outcome(ward: Ward, job: Job, reason: str) -> Crashed | Released:
    if ward.was_let_go:
        return Released(reason=ward.leaving)
    return Crashed(cause="process", reason=f"its process {reason}", log=ward.last_words(job))
