"""Owns shortages: threads or child processes, all in use while jobs wait that need one.

Slots do not show that: a worker whose two threads are busy has 98 slots free, and cannot start
another `def` handler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from windlass.core.claims.room import Pool
from windlass.core.jobs.job import Lane
from windlass.core.policies.pauses import Pauses
from windlass.core.values.text import listed
from windlass.core.why.reason import START
from windlass.core.workers import WorkerRecord

SHARED = (Pool.THREADS, Pool.ISOLATED)
"""The pools of which a worker may have fewer than slots."""
_NAMES = {Pool.THREADS: ("thread", "threads"), Pool.ISOLATED: ("child process", "child processes")}
_REMEDIES = {
    Pool.THREADS: f"more threads: {START} --threads N, or WORKER_COUNT=N; or more workers",
    Pool.ISOLATED: f"more child processes: {START} --isolated-processes N; or more workers",
}


class Shortage(Struct, frozen=True, kw_only=True):
    """A pool that is all in use, at every worker that would run the jobs that wait for it."""

    pool: str
    """`threads` or `isolated_processes`, like the option that adds more."""
    count: int
    """How many these workers have, all of them in use."""
    kinds: tuple[str, ...]
    """The kinds whose jobs wait for one."""
    workers: tuple[str, ...]
    message: str
    remedy: str


def shortages(
    workers: Iterable[WorkerRecord], waiting: Iterable[Lane], pauses: Pauses | None = None
) -> tuple[Shortage, ...]:
    """Return the shortages, as workers last reported; `waiting` are lanes with jobs that are due.

    A kind is short of a pool if all workers that would run it run it there and have none left.
    """
    taking = [each for each in workers if each.alive and each.pulse.state == "running"]
    free = (each for each in waiting if pauses is None or not any(pauses.holding(each)))
    # Keys and priorities make many lanes of which the same workers would run the jobs.
    lanes = {Lane(each.queue, each.kind) for each in free}
    found = []
    for pool in SHARED:
        kinds, full = set[str](), dict[str, WorkerRecord]()
        for lane in lanes:
            serving = [each for each in taking if each.info.serves(lane)]
            if serving and all(_is_used_up(each, pool, lane.kind) for each in serving):
                kinds.add(lane.kind)
                full |= {each.info.id: each for each in serving}
        if full:
            found.append(_shortage(pool, sorted(kinds), list(full.values())))
    return tuple(found)


def size_of(worker: WorkerRecord, pool: Pool) -> int | None:
    """Return the size of a worker's pool; None: its release does not report it."""
    return worker.info.threads if pool is Pool.THREADS else worker.info.isolated_processes


def used_of(worker: WorkerRecord, pool: Pool) -> int:
    """Return how much of a worker's pool runs a job."""
    return worker.pulse.in_threads if pool is Pool.THREADS else worker.pulse.in_isolated_processes


def _is_used_up(worker: WorkerRecord, pool: Pool, kind: str) -> bool:
    size = size_of(worker, pool)
    is_known = size is not None and worker.info.pools.get(kind) == pool
    return is_known and used_of(worker, pool) >= (size or 0)


def _shortage(pool: Pool, kinds: Sequence[str], full: Sequence[WorkerRecord]) -> Shortage:
    count = sum(size_of(each, pool) or 0 for each in full)
    one, many = _NAMES[pool]
    all_used = f"all {count} {many} are" if count != 1 else f"the only {one} is"
    what = "kind" if len(kinds) == 1 else "kinds"
    return Shortage(
        pool=pool.value,
        count=count,
        kinds=tuple(kinds),
        workers=tuple(each.info.id for each in full),
        message=f"{all_used} in use, and jobs of {what} {listed(kinds)} are waiting for one",
        remedy=_REMEDIES[pool],
    )
