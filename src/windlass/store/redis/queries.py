"""Owns the answers to queries: jobs, counts, standings and workers; nothing here writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from windlass.core.claims.lanes import Head, Queues, Sweep
from windlass.core.jobs.ids import first_id, uuid_of
from windlass.core.jobs.job import AGING, Job
from windlass.core.jobs.queries import ErrorGroup, ErrorGroups
from windlass.core.jobs.states import State
from windlass.core.stats.depths import QueueCount, Standing
from windlass.core.workers import WorkerRecord
from windlass.store.redis.scripting.calls import Names, Talk, jobs_in
from windlass.store.redis.scripting.rows import (
    MICROSECOND,
    NUMBERS,
    STATES,
    instant,
    lane_bytes,
    lane_of,
    micros,
    queue_bytes,
    read_rows,
    worker_of,
)

_LANES_AT_ONCE = 1_000
_JOBS_AT_ONCE = 100
_LOOKED_AT = 250
_COMMANDS_AT_ONCE = 200
_STARTS_SAMPLED = 100
"""Number of recently ended jobs that are read to find when the first of them began."""
_STEP = AGING // MICROSECOND
_WORKER_FIELDS = ("info", "pulse", "started", "seen", "until", "ended", "lease")


# -- lanes -----------------------------------------------------------------------------------------


def sweep(names: Names, queues: Queues = None) -> Talk[Sweep]:
    """Return the heads of all lanes, or of those of some queues, the most urgent first.

    There is one set of all heads: others are left out here, before their names are read.
    """
    (reply,) = yield [names.call("sweep", _LANES_AT_ONCE)]
    now, version, due, page = reply
    beginnings = None if queues is None else tuple(map(queue_bytes, queues))
    heads = dict(_heads(page, beginnings))
    first = 0
    while len(page) == 2 * _LANES_AT_ONCE:
        # Lanes may have changed since the last page: then one is missed until the next sweep.
        first += _LANES_AT_ONCE
        (page,) = yield [
            (
                "ZRANGE",
                names.key("heads"),
                first,
                first + _LANES_AT_ONCE - 1,
                "WITHSCORES",
            )
        ]
        heads |= dict(_heads(page, beginnings))
    return Sweep(
        heads=tuple(heads.values()),
        next_due=instant(int(due)) if due else None,
        now=instant(now),
        mark=int(version),
    )


def head_of(name: bytes, due: int) -> Head:
    """Return the head of a lane with a name."""
    return Head(lane=lane_of(name), position=instant(due))


def _heads(
    page: Sequence[bytes], beginnings: tuple[bytes, ...] | None
) -> Iterator[tuple[bytes, Head]]:
    for at in range(0, len(page), 2):
        if beginnings is not None and not page[at].startswith(beginnings):
            continue
        lane = lane_of(page[at])
        position = instant(int(page[at + 1]) + lane.priority * _STEP)
        yield page[at], Head(lane=lane, position=position)


# -- jobs ------------------------------------------------------------------------------------------


def get_many(names: Names, ids: Sequence[UUID], *, brief: bool = False) -> Talk[list[Job]]:
    """Return the given jobs that exist, in this order."""
    jobs: list[Job] = []
    for start in range(0, len(ids), _JOBS_AT_ONCE):
        piece = [job.bytes for job in ids[start : start + _JOBS_AT_ONCE]]
        (reply,) = yield [names.call("get", int(brief), *piece)]
        jobs += yield from jobs_in(names, reply, brief=brief)
    return jobs


def get(names: Names, job: UUID) -> Talk[Job | None]:
    """Return a job."""
    jobs = yield from get_many(names, [job])
    return jobs[0] if jobs else None


def done(names: Names, kind: str, key: str) -> Talk[Job | None]:
    """Return the job that was completed with an idempotency key, if it is still kept."""
    (entry,) = yield [("HGET", names.key("dk"), f"{kind}\0{key}")]
    return None if entry is None else (yield from get(names, UUID(bytes=entry[:16])))


def error_groups(names: Names, kind: str | None, limit: int, most: int) -> Talk[ErrorGroups]:
    """Return the dead jobs that died last grouped by error, the largest group first."""
    most = max(most, 1)
    died = yield from _died_last(names, most + 1)
    groups: dict[tuple[str, str], ErrorGroup] = {}
    for start in range(0, min(len(died), most), _JOBS_AT_ONCE):
        piece = [job for _, job in died[start : min(start + _JOBS_AT_ONCE, most)]]
        for job in (yield from get_many(names, piece, brief=True)):
            if kind in (None, job.kind) and job.finished_at is not None:
                _group(groups, job, job.finished_at)
    largest = sorted(groups.values(), key=lambda each: (-each.count, each.kind, each.fingerprint))
    return ErrorGroups(
        groups=tuple(largest[: max(limit, 1)]),
        searched_to=instant(died[most][0]) if len(died) > most else None,
    )


def _died_last(names: Names, most: int) -> Talk[list[tuple[int, UUID]]]:
    """Return the ids of the dead jobs that died last, with when that was, the last one first."""
    (fields,) = yield [("HKEYS", names.key("n"))]
    dead = f"{NUMBERS[State.DEAD]}".encode()
    queues = sorted(field[1:] for field in fields if field.startswith(dead))
    died: list[tuple[int, UUID]] = []
    for queue in queues:
        key, end = names.key("D:") + queue, most - 1
        (page,) = yield [("ZRANGE", key, 0, end, "REV", "WITHSCORES")]
        died += [(int(page[at + 1]), UUID(bytes=page[at])) for at in range(0, len(page), 2)]
        # Cut after each queue: there may be thousands of them.
        died = sorted(died, reverse=True)[:most]
    return died


def _group(groups: dict[tuple[str, str], ErrorGroup], job: Job, died: datetime) -> None:
    fingerprint = "" if job.error is None else job.error.fingerprint
    before = groups.get((fingerprint, job.kind))
    is_newest = before is None or job.id > before.newest
    newest = job if before is None or is_newest else before
    groups[fingerprint, job.kind] = ErrorGroup(
        fingerprint=fingerprint,
        kind=job.kind,
        count=1 if before is None else before.count + 1,
        first_seen=died if before is None else min(before.first_seen, died),
        last_seen=died if before is None else max(before.last_seen, died),
        newest=job.id if before is None or is_newest else before.newest,
        error=newest.error,
        reason=newest.reason,
    )


def held(names: Names, worker: str) -> Talk[list[Job]]:
    """Return the running jobs that a worker holds."""
    (ids,) = yield [("SMEMBERS", names.key("run:") + worker.encode())]
    return (yield from get_many(names, [UUID(bytes=each) for each in ids]))


# -- counts ----------------------------------------------------------------------------------------


def counts(names: Names) -> Talk[list[QueueCount]]:
    """Count jobs by queue and state, with the due time of the oldest that waits."""
    (fields,) = yield [("HGETALL", names.key("n"))]
    found = {
        (fields[at][1:].decode(), STATES[int(fields[at][:1])] or State.DEAD): int(fields[at + 1])
        for at in range(0, len(fields), 2)
    }
    oldest: dict[tuple[str, State], datetime] = {}
    for head in (yield from sweep(names)).heads:
        place = (head.lane.queue, State.PENDING)
        oldest[place] = min(head.position, oldest.get(place, head.position))
    queues = [queue for queue, state in found if state is State.SCHEDULED]
    for start in range(0, len(queues), _COMMANDS_AT_ONCE):
        piece = queues[start : start + _COMMANDS_AT_ONCE]
        replies = yield [
            ("ZRANGE", names.key(kind) + queue.encode(), 0, 0, "WITHSCORES")
            for queue in piece
            for kind in ("S:", "K:")
        ]
        for number, queue in enumerate(piece):
            first = [int(reply[1]) for reply in replies[2 * number : 2 * number + 2] if reply]
            if first:
                oldest[queue, State.SCHEDULED] = instant(min(first))
    return [
        QueueCount(queue=queue, state=state, count=count, oldest=oldest.get((queue, state)))
        for (queue, state), count in sorted(found.items())
    ]


def state_counts(names: Names) -> Talk[list[tuple[str, State, int]]]:
    """Count jobs by queue and state, without a look at any of them."""
    (fields,) = yield [("HGETALL", names.key("n"))]
    return [
        (
            fields[at][1:].decode(),
            STATES[int(fields[at][:1])] or State.DEAD,
            int(fields[at + 1]),
        )
        for at in range(0, len(fields), 2)
    ]


def standing(names: Names, job: UUID, limit: int) -> Talk[Standing]:
    """Count the jobs of its queue that are ahead of a job, and those that ended lately."""
    (reply,) = yield [names.call("get", 0, job.bytes)]
    own = yield from jobs_in(names, reply, brief=True)
    if not own:
        return Standing()
    arrival = read_rows(reply[0], reply[1])[0][7]
    looked = yield from sweep(names)
    lanes = [head.lane for head in looked.heads if head.lane.queue == own[0].queue]
    ahead = yield from _ahead(names, own[0], arrival, lanes, limit)
    first = ("ZRANGE", names.key("L:") + lane_bytes(own[0].lane), 0, 0)
    ((head,),) = (yield [first]) or ([],) if own[0].lane in lanes else ((None,),)
    ended, span = yield from _ended(names, own[0], looked.now)
    return Standing(
        ahead=min(ahead, limit),
        ended=ended,
        span=span,
        head=None if head is None else UUID(bytes=head[6:]),
    )


def _ahead(
    names: Names, own: Job, arrival: int, lanes: Sequence[tuple[str, str, int, str]], limit: int
) -> Talk[int]:
    ahead = 0
    for start in range(0, len(lanes), _COMMANDS_AT_ONCE):
        commands = []
        for lane in lanes[start : start + _COMMANDS_AT_ONCE]:
            edge = micros(own.due_at) - (own.priority - lane[2]) * _STEP
            key = names.key("L:") + lane_bytes(lane)
            commands += [
                ("ZCOUNT", key, b"-inf", b"(%d" % edge),
                ("ZRANGEBYSCORE", key, edge, edge, "LIMIT", 0, limit),
            ]
        replies = yield commands
        ahead += sum(replies[::2])
        # Among jobs that were due together, arrival decides.
        ahead += sum(
            int.from_bytes(member[:6]) < arrival for alike in replies[1::2] for member in alike
        )
        if ahead >= limit:
            break
    return ahead


def _ended(names: Names, own: Job, now: datetime) -> Talk[tuple[int, timedelta]]:
    """Return how many jobs of the queue ended since a job was due, and in which span."""
    span = min(max(now - own.due_at, timedelta(0)), Standing().span)
    queue, since = own.queue.encode(), b"(%d" % micros(now - span)
    keys = [names.key(kind) + queue for kind in ("F:", "D:")]
    replies = yield [
        command
        for key in keys
        for command in (
            ("ZCOUNT", key, since, "+inf"),
            ("ZRANGEBYSCORE", key, since, "+inf", "LIMIT", 0, _STARTS_SAMPLED),
        )
    ]
    sampled = [UUID(bytes=job) for found in replies[1::2] for job in found]
    jobs = yield from get_many(names, sampled, brief=True)
    starts = [job.started_at for job in jobs if job.started_at is not None]
    return sum(replies[::2]), min(span, now - min(starts, default=now - span))


def arrivals(
    names: Names, since: datetime, until: datetime, most: int
) -> Talk[Mapping[str, int] | None]:
    """Count by queue the jobs created between two instants; None if there are more than `most`."""
    first, end = b"[" + first_id(since).bytes, b"(" + first_id(until).bytes
    (total,) = yield [("ZLEXCOUNT", names.key("all"), first, end)]
    if total > most:
        return None
    counted: Counter[str] = Counter()
    while True:
        page = ("ZRANGE", names.key("all"), first, end, "BYLEX", "LIMIT", 0, _LOOKED_AT)
        (ids,) = yield [page]
        if not ids:
            return counted
        found = yield from get_many(
            names, [uuid_of(int.from_bytes(each)) for each in ids], brief=True
        )
        counted.update(job.queue for job in found)
        first = b"(" + ids[-1]


def workers(names: Names) -> Talk[list[WorkerRecord]]:
    """Return the known workers, newest first."""
    now, ids = yield [names.call("now"), ("SMEMBERS", names.key("workers"))]
    replies: list[Any] = []
    for start in range(0, len(ids), _COMMANDS_AT_ONCE):
        replies += yield [
            ("HMGET", names.key("w:") + worker, *_WORKER_FIELDS)
            for worker in ids[start : start + _COMMANDS_AT_ONCE]
        ]
    known = [worker_of(fields, now) for fields in replies if fields[0] is not None]
    return sorted(known, key=lambda worker: worker.started_at, reverse=True)
