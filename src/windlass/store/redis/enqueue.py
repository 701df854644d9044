"""Owns enqueueing: which script adds the jobs, and how many at once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from windlass.core.jobs.job import Enqueued, NewJob
from windlass.core.records import News
from windlass.store.redis.connections.script import Argument, Command
from windlass.store.redis.scripting import stages
from windlass.store.redis.scripting.calls import Names, Talk
from windlass.store.redis.scripting.rows import body, encode, is_plain, options
from windlass.store.redis.scripting.values import LARGE, Item, check_written, item_of, writes

PLAIN_AT_ONCE = 200
ANY_AT_ONCE = 50
BYTES_AT_ONCE = 131_072
"""Bounds of a script: the server does nothing else meanwhile."""
PLAIN_OVERLAPPING = 100
"""Most plain jobs of a script where others are under way, which share its sync of the file."""
LARGE_BYTES_AT_ONCE = 1 << 20
_LARGE_WEIGHT = 2.0
"""Cost of a job whose payload has a key of its own, in jobs without one."""
_LANE_WEIGHT = 1.0
"""Cost of another lane in a piece, where pieces overlap; likewise."""
PIECES_UNDER_WAY = 16
"""Calls under way, each on a connection of its own: the server syncs its file for all of them."""


class Places(NamedTuple):
    """The first of the places that were reserved, and the time of that."""

    first: int
    due: int


def enqueue(names: Names, jobs: Sequence[NewJob]) -> Talk[list[Enqueued]]:
    """Add jobs, and return the result for each; one job of its own may be known already."""
    plain = len(jobs) > 1 and _are_plain(jobs)
    if not plain and len(jobs) > ANY_AT_ONCE:
        return (yield from _staged(names, jobs))
    if not plain:
        return (yield from _any_pieces(names, jobs))
    added: list[Enqueued] = []
    for piece in pieces(jobs, PLAIN_AT_ONCE):
        added += yield from plain_piece(names, piece)
    return added


def may_overlap(jobs: Sequence[NewJob]) -> bool:
    """Return whether jobs may be added by several calls at a time.

    Jobs with a key come one call after the other: a worker must not see a later one first.
    """
    return len(jobs) > PLAIN_AT_ONCE and not any(job.key for job in jobs) and _are_plain(jobs)


def reserve(names: Names, jobs: int) -> Talk[Places]:
    """Reserve the places of jobs, so that calls in any order add them in their order."""
    (reply,) = yield [names.call("reserve", jobs)]
    return Places(*reply)


def reserved_pieces(
    names: Names, jobs: Sequence[NewJob], places: Places
) -> Iterator[Talk[list[Enqueued]]]:
    """Return the calls that add plain jobs at their places."""
    first = places.first
    for piece in pieces(jobs, PLAIN_OVERLAPPING, of_lane=_LANE_WEIGHT):
        yield plain_piece(names, piece, places._replace(first=first))
        first += 2 * len(piece)


def plain_piece(
    names: Names, jobs: Sequence[NewJob], places: Places | None = None
) -> Talk[list[Enqueued]]:
    """Add plain jobs within the bounds of a script."""
    replies = yield _plain(names, jobs, places)
    check_written(replies[-1])
    if replies[-1]:
        return [Enqueued(id=job.id) for job in jobs]
    return (yield from _any_pieces(names, jobs))


def send(names: Names, news: Sequence[News]) -> Talk[None]:
    """Add news, each once."""
    arguments: list[Argument] = []
    for item in news:
        arguments += (item.topic, item.id.bytes, item.body)
    yield [names.call("send", *arguments)]


def pieces(
    jobs: Sequence[NewJob], most: int, *, of_lane: float = 0.0
) -> Iterator[Sequence[NewJob]]:
    """Cut jobs into pieces, each within the bounds of a script."""
    start, weight, size, large = 0, 0.0, 0, 0
    lanes: set[tuple[str, str, int]] = set()
    for at, job in enumerate(jobs):
        length = len(job.payload)
        is_full = size >= BYTES_AT_ONCE or large >= LARGE_BYTES_AT_ONCE
        if at > start and (weight >= most or is_full):
            yield jobs[start:at]
            start, weight, size, large = at, 0.0, 0, 0
            lanes.clear()
        weight += 1 if length <= LARGE else _LARGE_WEIGHT
        if of_lane and (lane := (job.queue, job.kind, job.priority)) not in lanes:
            weight += of_lane if lanes else 0.0
            lanes.add(lane)
        size += min(length, LARGE) + sum(map(len, job.headers.values()))
        large += length
    if start < len(jobs):
        yield jobs[start:]


def _plain(names: Names, jobs: Sequence[NewJob], places: Places | None) -> list[Command]:
    by_lane: dict[bytes, list[bytes]] = {}
    items: list[Item] = []
    for job in jobs:
        item = item_of(job.payload)
        if item.reference:
            items.append(item)
        lane, made = body(job, item.packed)
        by_lane.setdefault(lane, []).extend((job.id.bytes, made))
    arguments: list[Argument] = [len(by_lane), len(items), len(jobs)]
    for lane, made_jobs in by_lane.items():
        arguments += (lane, len(made_jobs) // 2)
    arguments += [item.reference for item in items]
    for made_jobs in by_lane.values():
        arguments += made_jobs
    arguments += places or ()
    return [*writes(names.namespace, items), names.call("enqueue", *arguments)]


def _are_plain(jobs: Sequence[NewJob]) -> bool:
    return all(map(is_plain, jobs)) and len({job.id.int for job in jobs}) == len(jobs)


def _any_pieces(names: Names, jobs: Sequence[NewJob]) -> Talk[list[Enqueued]]:
    added: list[Enqueued] = []
    for piece in pieces(jobs, ANY_AT_ONCE):
        added += yield from _any(names, piece)
    return added


def _any(names: Names, jobs: Sequence[NewJob]) -> Talk[list[Enqueued]]:
    items = [item_of(job.payload) for job in jobs]
    arguments: list[Argument] = []
    for job, item in zip(jobs, items, strict=True):
        arguments += (job.id.bytes, body(job, item.packed)[1], encode(options(job)))
    replies = yield [*writes(names.namespace, items), names.call("enqueue_any", *arguments)]
    check_written(replies[-1])
    return enqueued(replies[-1])


def _staged(names: Names, jobs: Sequence[NewJob]) -> Talk[list[Enqueued]]:
    """Add more jobs than one script can: write them all, commit, then carry them out in pieces.

    Jobs that may start come last: one that ends must find all those that wait for it.
    """
    order = sorted(range(len(jobs)), key=lambda at: jobs[at].waiting_for is None)
    batch = secrets.token_hex(8)
    parts = list(pieces([jobs[at] for at in order], ANY_AT_ONCE))
    for number, part in enumerate(parts):
        items = [item_of(job.payload) for job in part]
        packed = [
            stages.pack(job.id.bytes, body(job, item.packed)[1], encode(options(job)))
            for job, item in zip(part, items, strict=True)
        ]
        yield [*writes(names.namespace, items), stages.write(names, batch, number, packed)]
    yield from stages.commit(names, batch, len(parts))
    replies: list[Any] = []
    for number in range(len(parts)):
        replies += yield from stages.carry_out_piece(names, batch, number, len(parts))
    added = dict(zip(order, enqueued(replies), strict=True))
    return [added[at] for at in range(len(jobs))]


def enqueued(reply: Sequence[Any]) -> list[Enqueued]:
    """Return the results in a reply: id and 1 if it is that of a holder, for each job."""
    return [
        Enqueued(id=UUID(bytes=reply[at]), is_duplicate=bool(reply[at + 1]))
        for at in range(0, len(reply), 2)
    ]
