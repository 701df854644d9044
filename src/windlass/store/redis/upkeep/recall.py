"""Owns the recall of jobs that a clock set back has left behind later ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from windlass.core.jobs.states import State
from windlass.core.schedules.clock_step import LEAST, SPANS, Places, enqueued_before
from windlass.store.redis import queries
from windlass.store.redis.connections.script import Argument
from windlass.store.redis.scripting.calls import Names, Talk, jobs_in
from windlass.store.redis.scripting.rows import MICROSECOND, NUMBERS, lane_bytes, micros

_RECALLED_AT_ONCE = 250
_READ_AT_ONCE = 1_000
_EVERYTHING = ("+inf", "WITHSCORES")


def recall(names: Names, by: timedelta, ago: timedelta) -> Talk[int]:
    """Move jobs that a clock set back has left behind later ones; return how many."""
    looked = yield from queries.sweep(names)
    places = Places.after(by, ago, looked.now)
    begin = micros(places.begin)
    keys = [names.key("L:") + lane_bytes(head.lane) for head in looked.heads]
    lanes: list[list[tuple[int, bytes]]] = []
    for key in keys:
        lanes += [(yield from _above(key, begin))]
    # Read after the lanes: jobs that came meanwhile are not ahead of the clock.
    (now,) = yield [names.call("now")]
    ahead = now + LEAST // MICROSECOND
    late: list[tuple[int, bytes]] = []
    for placed in lanes:
        # A place begins with the number of its arrival.
        late += enqueued_before([(place, due, (due, place)) for due, place in placed], ahead)
    # The earliest first: should this be interrupted, none has overtaken another.
    late.sort()
    moves = [(place[6:], begin - len(late) + at) for at, (_, place) in enumerate(late)]
    recalled = yield from _move(names, State.PENDING, begin, moves)
    if not by:
        return recalled
    above = micros(places.retries_from)
    (queues,) = yield [("ZRANGE", names.key("due"), 0, -1)]
    for queue in queues:
        waiting = yield from _above(names.key("S:") + queue, above)
        retries = yield from _retries(names, places, waiting)
        recalled += yield from _move(names, State.SCHEDULED, above, retries)
    return recalled


def _above(key: bytes, moment: int) -> Talk[list[tuple[int, bytes]]]:
    """Return the jobs of a lane or queue that are due after a moment, by due time and arrival."""
    found: list[tuple[int, bytes]] = []
    while True:
        page = ("LIMIT", len(found), _READ_AT_ONCE)
        (pairs,) = yield [("ZRANGEBYSCORE", key, b"(%d" % moment, *_EVERYTHING, *page)]
        found += [(int(pairs[at + 1]), pairs[at]) for at in range(0, len(pairs), 2)]
        if len(pairs) < 2 * _READ_AT_ONCE:
            return found


def _retries(
    names: Names, places: Places, waiting: Sequence[tuple[int, bytes]]
) -> Talk[list[tuple[bytes, int]]]:
    """Return the jobs that wait for a duration, and when they are due by the current clock."""
    moves: list[tuple[bytes, int]] = []
    for start in range(0, len(waiting), _RECALLED_AT_ONCE):
        ids = [place[6:] for _, place in waiting[start : start + _RECALLED_AT_ONCE]]
        (reply,) = yield [names.call("get", 1, *ids)]
        jobs = yield from jobs_in(names, reply, brief=True)
        moves += [
            (job.id.bytes, micros(places.retry(job.due_at)))
            for job in jobs
            if job.waiting_for is None and job.reason in SPANS
        ]
    return moves


def _move(names: Names, state: State, above: int, moves: Sequence[tuple[bytes, int]]) -> Talk[int]:
    moved = 0
    for start in range(0, len(moves), _RECALLED_AT_ONCE):
        arguments: list[Argument] = [NUMBERS[state], above]
        for job, due in moves[start : start + _RECALLED_AT_ONCE]:
            arguments += (job, due)
        (count,) = yield [names.call("recall", *arguments)]
        moved += count
    return moved
