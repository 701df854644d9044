"""Owns how many jobs of a queue workers can run at once, by the pools that its kinds run in.

Each job takes a slot; one of a `def` handler takes a thread besides, an isolated one a child. So a
queue of `def` handlers has as many jobs running as there are threads, whatever slots there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.core.claims.room import Pool
from windlass.core.stats.shortage import SHARED, size_of, used_of
from windlass.core.workers import WorkerRecord

Shares = Mapping[Pool, float]
"""Which share of a queue's work, in seconds, is done in which pool."""


def pools_of(workers: Iterable[WorkerRecord]) -> dict[str, Pool]:
    """Return where kinds run that do not run in the event loop, as live workers report."""
    return {
        kind: Pool(pool)
        for worker in workers
        for kind, pool in worker.info.pools.items()
        if pool in SHARED
    }


def slots_of(worker: WorkerRecord, queue: str | None = None) -> int:
    """Return how many slots a worker has at present, or how many for one queue."""
    info = worker.info
    slots = worker.pulse.slots or info.least_slots or info.slots
    return slots if queue is None else min(slots, info.queue_slots.get(queue, slots))


def room_in(worker: WorkerRecord, queue: str, shares: Shares) -> float:
    """Return how many jobs of a queue a worker can run at once, given the past mix of kinds."""
    bounds = [
        size / shares[pool]
        for pool in SHARED
        if shares.get(pool) and (size := size_of(worker, pool)) is not None
    ]
    return min([float(slots_of(worker, queue)), *bounds])


def free_in(worker: WorkerRecord, queue: str, shares: Shares) -> float:
    """Return how many more jobs of a queue a worker could run at this moment."""
    bounds = [
        max(size - used_of(worker, pool), 0) / shares[pool]
        for pool in SHARED
        if shares.get(pool) and (size := size_of(worker, pool)) is not None
    ]
    return min([float(max(slots_of(worker, queue) - worker.pulse.running, 0)), *bounds])
