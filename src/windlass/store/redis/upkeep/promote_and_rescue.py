"""Owns the ways back of jobs to workers: those that are due, and those whose worker is gone."""

from __future__ import annotations

from windlass.core.jobs.job import Job
from windlass.store.redis.scripting.calls import Names, Talk, jobs_in
from windlass.store.redis.scripting.stages import carry_out

_PROMOTED_AT_ONCE = 50
_RESCUED_AT_ONCE = 100


def promote(names: Names, limit: int) -> Talk[int]:
    """Make scheduled jobs that are due pending, earliest first; return how many."""
    promoted = 0
    while promoted < limit:
        piece = min(limit - promoted, _PROMOTED_AT_ONCE)
        ((count, entry, may_be_more),) = yield [names.call("promote", piece)]
        promoted += count
        if entry:
            yield from carry_out(names, entry)
        elif not may_be_more:
            break
    return promoted


def rescue(names: Names, worker: str, token: int, limit: int) -> Talk[list[Job]]:
    """Take over jobs of workers without a live lease."""
    jobs: list[Job] = []
    while True:
        piece = min(limit - len(jobs), _RESCUED_AT_ONCE)
        (reply,) = yield [names.call("rescue", worker, token, piece)]
        taken = yield from jobs_in(names, reply)
        jobs += taken
        if len(taken) < piece or len(jobs) >= limit:
            return jobs
