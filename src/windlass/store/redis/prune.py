"""Owns pruning: what is past its retention, or beyond the number of jobs kept, is deleted.

Jobs are listed by plain commands and put in order here, and deleted by scripts in pieces, so that
no call holds the server for long, however many jobs and queues there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import repeat
from math import inf

from windlass.core.jobs.queries import Retention
from windlass.core.jobs.states import State
from windlass.store.protocol import WORKERS_KEPT
from windlass.store.redis.connections.script import Argument
from windlass.store.redis.scripting.calls import Names, Talk
from windlass.store.redis.scripting.rows import MICROSECOND, NUMBERS

_DELETED_AT_ONCE = 100
_COMMANDS_AT_ONCE = 200
_LEAST_PAGE = 20
"""Jobs listed of each queue at least: of fewer, little is known about their common order."""
_FINISHED = tuple(b"%d" % NUMBERS[state] for state in (State.COMPLETED, State.CANCELLED))
_DEAD = b"%d" % NUMBERS[State.DEAD]


Ended = tuple[int, bytes, bytes]
"""A job that ended: when, in microseconds, its id and its queue."""


def prune(names: Names, retention: Retention, limit: int, kept: int) -> Talk[int]:
    """Delete finished jobs, ended streams, spent keys and workers; return how many."""
    now, fields = yield [names.call("now"), ("HGETALL", names.key("n"))]
    counts = {fields[at]: int(fields[at + 1]) for at in range(0, len(fields), 2)}
    finished = {field: count for field, count in counts.items() if field[:1] in _FINISHED}
    excess = sum(finished.values()) - kept
    queues = sorted({field[1:] for field in finished})
    horizon = _horizon(now, retention.finished)
    jobs = yield from _prune_finished(names, queues, horizon, excess, limit)
    if retention.dead is not None:
        queues = [field[1:] for field in counts if field[:1] == _DEAD]
        horizon = _horizon(now, retention.dead)
        jobs += yield from _prune_dead(names, queues, horizon, limit - jobs)
    return jobs + (yield from _prune_others(names, retention, limit))


# -- finished jobs ---------------------------------------------------------------------------------


def _prune_finished(
    names: Names, queues: Sequence[bytes], horizon: int, excess: int, limit: int
) -> Talk[int]:
    """Delete the jobs that ended before the horizon, and as many as are in excess, oldest first."""
    pruned = 0
    while queues and pruned < limit and (horizon or excess > pruned):
        oldest = yield from _oldest(names, queues, limit - pruned)
        old = [job for at, job in enumerate(oldest, pruned) if at < excess or job[0] < horizon]
        deleted = yield from delete(names, "F:", old)
        pruned += deleted
        if not deleted or len(old) < len(oldest):
            break
    return pruned


def _oldest(names: Names, queues: Sequence[bytes], most: int) -> Talk[list[Ended]]:
    """Return jobs that ended first, oldest first, and at least one if there are any.

    A few of each queue are listed, since those of many queues are put in order together. Behind the
    last one of a queue that has more, the order is not known.
    """
    page = min(most, 2 * most // len(queues) + _LEAST_PAGE)
    found: list[Ended] = []
    known_until = inf
    for start in range(0, len(queues), _COMMANDS_AT_ONCE):
        piece = queues[start : start + _COMMANDS_AT_ONCE]
        replies = yield [
            ("ZRANGE", names.key("F:") + queue, 0, page - 1, "WITHSCORES") for queue in piece
        ]
        for queue, pairs in zip(piece, replies, strict=True):
            listed = _listed(pairs, queue)
            if len(listed) == page:
                known_until = min(known_until, listed[-1][0])
            found += listed
    return sorted(job for job in found if job[0] <= known_until)[:most]


def _listed(pairs: Sequence[bytes], queue: bytes) -> list[Ended]:
    return list(zip(map(int, pairs[1::2]), pairs[::2], repeat(queue), strict=False))


# -- dead jobs -------------------------------------------------------------------------------------


def _prune_dead(names: Names, queues: Sequence[bytes], horizon: int, limit: int) -> Talk[int]:
    pruned = 0
    before = b"(%d" % horizon
    for start in range(0, len(queues), _COMMANDS_AT_ONCE):
        piece = queues[start : start + _COMMANDS_AT_ONCE]
        counts = yield [("ZCOUNT", names.key("D:") + queue, "-inf", before) for queue in piece]
        for queue, count in zip(piece, counts, strict=True):
            if count and pruned < limit:
                pruned += yield from _prune_dead_of(names, queue, before, limit - pruned)
    return pruned


def _prune_dead_of(names: Names, queue: bytes, before: bytes, limit: int) -> Talk[int]:
    pruned = left = 0
    while pruned < limit:
        page = ("LIMIT", left, min(limit - pruned, _DELETED_AT_ONCE))
        key = names.key("D:") + queue
        (pairs,) = yield [("ZRANGEBYSCORE", key, "-inf", before, "WITHSCORES", *page)]
        listed = _listed(pairs, queue)
        if not listed:
            break
        deleted = yield from delete(names, "D:", listed)
        pruned += deleted
        # Those that a person has yet to handle stay ahead of the next page.
        left += len(listed) - deleted
    return pruned


def delete(names: Names, index: str, jobs: Sequence[Ended]) -> Talk[int]:
    """Delete jobs that are still where they were listed; return how many."""
    deleted = 0
    for start in range(0, len(jobs), _DELETED_AT_ONCE):
        piece = jobs[start : start + _DELETED_AT_ONCE]
        by_queue: dict[bytes, list[bytes]] = {}
        for _, job, queue in piece:
            by_queue.setdefault(queue, []).append(job)
        groups: list[Argument] = []
        for queue, ids in by_queue.items():
            groups += (queue, len(ids), *ids)
        (count,) = yield [names.call("prune_jobs", index, piece[-1][0], *groups)]
        deleted += count
    return deleted


# -- other things ----------------------------------------------------------------------------------


def _prune_others(names: Names, retention: Retention, limit: int) -> Talk[int]:
    finished = "" if retention.finished is None else retention.finished // MICROSECOND
    spans = (finished, retention.streams // MICROSECOND, WORKERS_KEPT // MICROSECOND)
    pruned = 0
    while pruned < limit:
        piece = min(limit - pruned, _DELETED_AT_ONCE)
        ((count, may_be_more),) = yield [names.call("prune_others", piece, *spans)]
        pruned += count
        if not may_be_more:
            break
    return pruned


def _horizon(now: int, span: timedelta | None) -> int:
    """Return before when jobs must have ended to be past their retention; 0 if none is."""
    return 0 if span is None else now - span // MICROSECOND
