"""Owns the streams of jobs in Redis: sorted sets of groups, by attempt and number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from windlass.core.jobs.streams import Appended, ChunkGroup, Position, StoredGroup, StreamPage
from windlass.store.redis.connections.script import Argument
from windlass.store.redis.scripting.calls import Names, Talk

_SPAN = 1_048_576
"""The score of a group is its attempt times this, plus the number of its last chunk."""
_HEAD_BYTES = 12
"""Steps and total, before the chunks of a group."""
_GROUPS_AT_ONCE = 100
_BYTES_AT_ONCE = 128 * 1024


def append(names: Names, groups: Sequence[ChunkGroup]) -> Talk[list[Appended | None]]:
    """Add chunks to the streams of running jobs, each under its fence."""
    added: list[Appended | None] = []
    for piece in _pieces(groups):
        arguments: list[Argument] = []
        for group in piece:
            place = (group.attempt, group.offset, group.resumed, group.steps)
            chunks = (len(group.chunks), group.size, group.data)
            arguments += (group.id.bytes, group.token, *place, *chunks)
        (reply,) = yield [names.call("stream_append", *arguments)]
        added += [Appended(*answer) if answer else None for answer in reply]
    return added


def read(names: Names, job: UUID, after: Position, limit: int) -> Talk[StreamPage]:
    """Return the groups of a stream after a position."""
    place = after.attempt * _SPAN + after.number
    ((is_live, pairs),) = yield [names.call("stream_read", job.bytes, place, max(limit, 1))]
    groups = [
        StoredGroup.of(*divmod(int(pairs[at + 1]), _SPAN), pairs[at][_HEAD_BYTES:])
        for at in range(0, len(pairs), 2)
    ]
    return StreamPage(groups, bool(is_live))


def _pieces(groups: Sequence[ChunkGroup]) -> Iterator[Sequence[ChunkGroup]]:
    start = size = 0
    for at, group in enumerate(groups):
        if at > start and (at - start >= _GROUPS_AT_ONCE or size >= _BYTES_AT_ONCE):
            yield groups[start:at]
            start, size = at, 0
        size += group.size
    if start < len(groups):
        yield groups[start:]
