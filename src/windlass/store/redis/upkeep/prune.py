"""Owns pruning: jobs past their retention, or beyond the number kept, are deleted, oldest first.

Jobs are listed by plain commands and put in order here, and deleted by scripts in pieces, so that
no call holds the server for long, however many jobs and queues there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import repeat

from windlass.core.jobs.queries import Retention
from windlass.core.jobs.states import State
from windlass.store.protocol import WORKERS_KEPT
from windlass.store.redis.connections.script import Argument, Command
from windlass.store.redis.scripting.calls import Names, Talk
from windlass.store.redis.scripting.rows import MICROSECOND, NUMBERS

_DELETED_AT_ONCE = 100
_COMMANDS_AT_ONCE = 200
_LEAST_PAGE = 20
"""Jobs listed of each queue, at least."""
_MAX_UNDOING = 1_000
"""Dead jobs with steps left to undo that a prune looks past, in each queue."""
_FINISHED = tuple(b"%d" % NUMBERS[state] for state in (State.COMPLETED, State.CANCELLED))
_DEAD = b"%d" % NUMBERS[State.DEAD]

Ended = tuple[int, bytes, bytes]
"""A job that ended: when, in microseconds, its id and its queue."""


def prune(names: Names, retention: Retention, limit: int, kept: int) -> Talk[int]:
    """Delete finished jobs, ended streams, spent keys and workers; return how many."""
    (now,) = yield [names.call("now")]
    counts = yield from _counts(names)
    finished = _Finished(names, _horizon(now, retention.finished), kept)
    jobs = yield from finished.prune(counts, limit)
    if retention.dead is not None:
        queues = [field[1:] for field in counts if field[:1] == _DEAD]
        horizon = _horizon(now, retention.dead)
        jobs += yield from _prune_dead(names, queues, horizon, limit - jobs)
    return jobs + (yield from _prune_others(names, retention, limit))


def _counts(names: Names) -> Talk[dict[bytes, int]]:
    """Return the number of jobs by state and queue."""
    (fields,) = yield [("HGETALL", names.key("n"))]
    return {fields[at]: int(fields[at + 1]) for at in range(0, len(fields), 2)}


# -- finished jobs ---------------------------------------------------------------------------------


class _Finished:
    """The finished jobs of all queues, of which the oldest are listed.

    A few jobs of each queue are listed, since those of many queues are put in order together. Where
    a queue has more, the order is not known behind the last of its listed jobs.
    """

    def __init__(self, names: Names, horizon: int, kept: int) -> None:
        self._names = names
        self._horizon = horizon
        self._kept = kept
        self._listed: dict[bytes, list[Ended]] = {}
        self._has_more: set[bytes] = set()

    def prune(self, counts: Mapping[bytes, int], limit: int) -> Talk[int]:
        """Delete jobs, oldest first; return how many."""
        queues = sorted({field[1:] for field in counts if field[:1] in _FINISHED})
        is_excess = self._excess(counts) > 0
        pruned = 0
        while queues and pruned < limit and (self._horizon or is_excess):
            yield from self._list(queues, limit - pruned, is_excess=is_excess)
            oldest = self._oldest()[: limit - pruned]
            # Counted after they were listed: other workers prune as well, and the jobs that one of
            # them deletes are not in excess any more.
            excess = self._excess((yield from _counts(self._names)))
            old = [job for at, job in enumerate(oldest) if at < excess or job[0] < self._horizon]
            deleted = yield from _delete(self._names, "F:", old)
            pruned += deleted
            if not deleted or len(old) < len(oldest):
                break
            queues = self._drop(old)
        return pruned

    def _excess(self, counts: Mapping[bytes, int]) -> int:
        finished = sum(count for field, count in counts.items() if field[:1] in _FINISHED)
        return finished - self._kept

    def _list(self, queues: Sequence[bytes], most: int, *, is_excess: bool) -> Talk[None]:
        """List the oldest jobs of some queues: of any age, or only those past their retention."""
        page = min(most, 2 * most // len(queues) + _LEAST_PAGE)
        for start in range(0, len(queues), _COMMANDS_AT_ONCE):
            piece = queues[start : start + _COMMANDS_AT_ONCE]
            replies = yield [self._listing(queue, page, is_excess=is_excess) for queue in piece]
            for queue, pairs in zip(piece, replies, strict=True):
                self._listed[queue] = _jobs_in(pairs, queue)
                if len(self._listed[queue]) == page:
                    self._has_more.add(queue)
                else:
                    self._has_more.discard(queue)

    def _listing(self, queue: bytes, page: int, *, is_excess: bool) -> Command:
        key = self._names.key("F:") + queue
        if is_excess:
            return ("ZRANGE", key, 0, page - 1, "WITHSCORES")
        before = b"(%d" % self._horizon
        return ("ZRANGEBYSCORE", key, "-inf", before, "WITHSCORES", "LIMIT", 0, page)

    def _oldest(self) -> list[Ended]:
        """Return the listed jobs whose order is known, oldest first."""
        # By time and id, as each queue is listed: many jobs end in the same microsecond.
        jobs = sorted(job for listed in self._listed.values() for job in listed)
        if not self._has_more:
            return jobs
        last_known = min(self._listed[queue][-1] for queue in self._has_more)
        return jobs[: bisect_right(jobs, last_known)]

    def _drop(self, old: Sequence[Ended]) -> list[bytes]:
        """Forget deleted jobs; return the queues of which others have to be listed."""
        for queue, number in Counter(queue for _, _, queue in old).items():
            del self._listed[queue][:number]
        return [queue for queue in self._has_more if not self._listed[queue]]


def _jobs_in(pairs: Sequence[bytes], queue: bytes) -> list[Ended]:
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
    pruned = undoing = 0
    while pruned < limit and undoing < _MAX_UNDOING:
        page = ("LIMIT", undoing, min(limit - pruned, _DELETED_AT_ONCE))
        key = names.key("D:") + queue
        (pairs,) = yield [("ZRANGEBYSCORE", key, "-inf", before, "WITHSCORES", *page)]
        listed = _jobs_in(pairs, queue)
        if not listed:
            break
        deleted = yield from _delete(names, "D:", listed)
        pruned += deleted
        # Jobs that a person has yet to handle stay where they are, ahead of the next page.
        undoing += len(listed) - deleted
    return pruned


def _delete(names: Names, index: str, jobs: Sequence[Ended]) -> Talk[int]:
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
