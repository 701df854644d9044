"""Owns the lease of a local run that is recorded: a worker that takes one job, and no other."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.core.changes import Changes
from windlass.core.errors import InvalidTransition, WindlassError
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.states import State
from windlass.core.records import Json
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.observability.logs import get_logger
from windlass.store import Store
from windlass.worker.options import WorkerOptions

if TYPE_CHECKING:
    from windlass.app.app import Windlass

log = get_logger("windlass.local_run")
_BEFORE = {State.SCHEDULED: Verb.RETRY, State.DEAD: Verb.REDRIVE}
"""What makes a job pending that is taken."""
_BEATS_PER_LEASE = 3


@asynccontextmanager
async def lease_of(store: Store, options: WorkerOptions) -> AsyncIterator[str]:
    """Register a worker that serves no kind, renew its lease, and retire it at the end."""
    host, pid = socket.gethostname(), os.getpid()
    worker = f"{host}:{pid}:{secrets.token_hex(4)}"
    info = WorkerInfo(
        id=worker,
        name=f"{host}:{pid}",
        host=host,
        pid=pid,
        release=options.release,
        lease=options.lease,
        slots=1,
    )
    await store.register(info)
    ended = threading.Event()
    # In a thread: a handler, or its debugger, may block the event loop.
    heart = threading.Thread(target=_renew, args=(store, info, ended), daemon=True)
    heart.start()
    try:
        yield worker
    finally:
        ended.set()
        await asyncio.to_thread(heart.join)
        await store.retire(worker)


def _renew(store: Store, info: WorkerInfo, ended: threading.Event) -> None:
    interval = info.lease / _BEATS_PER_LEASE
    while not ended.wait(interval.total_seconds()):
        try:
            if not store.heartbeat(info.id, WorkerPulse(), interval):
                log.error("lease.lost", worker_id=info.id)
                return
        except WindlassError as error:
            log.warning("heartbeat.failed", worker_id=info.id, error=str(error))


async def take(app: Windlass, store: Store, job: Job, worker: str) -> Job:
    """Start a job under the lease of a worker, with an entry in the audit log.

    Raises:
        InvalidTransition: it waits for something else than its time, or another worker was faster.
    """
    token = secrets.randbits(63)
    moves = [Move(verb=Verb.TAKE, id=job.id, worker=worker, token=token)]
    if job.state in _BEFORE:
        moves.insert(0, Move(verb=_BEFORE[job.state], id=job.id, reason="run by an operator"))

    def decide(_records: Mapping[str, Json], _now: datetime) -> Changes[None]:
        return Changes(answer=None, moves=moves)

    control = app.control
    note = control._note("run", f"job:{job.id}", jobs=[job.id])
    applied = await control._act(note, [], decide, store)
    if (taken := applied.moved[-1]) is not None:
        return taken
    raise await _refusal(store, job.id)


async def _refusal(store: Store, job_id: UUID) -> InvalidTransition:
    now = await store.get(job_id)
    if now is None:
        return InvalidTransition(job_id, "gone", "take it", "it was purged meanwhile")
    if now.waiting_for is not None:
        remedy = f"it waits for {now.waiting_for!r}; run it without --settle"
        return InvalidTransition(job_id, now.state, "take it", remedy)
    remedy = "a worker was faster; look again with windlass jobs show"
    return InvalidTransition(job_id, now.state, "take it", remedy)
