"""Owns records and atomic changes: read with versions, decided here, written if nothing changed.

The script checks everything before its first write, since nothing that it wrote would be undone.
Callers of one process take turns by name, so that they do not spoil each other's tries.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct, field

from windlass.core.changes import Applied, Changes, MoveCount
from windlass.core.errors import LeaseLost
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import Move, Verb, moved
from windlass.core.jobs.states import State
from windlass.core.records import Json, News, RecordPage, Ringing
from windlass.store.json_columns import as_json
from windlass.store.redis.connections.script import Argument
from windlass.store.redis.scripting.calls import Names, Talk, jobs_in, values_of
from windlass.store.redis.scripting.rows import (
    body,
    encode,
    instant,
    job_of,
    micros,
    options,
    read_row,
    transition,
)
from windlass.store.redis.scripting.stages import carry_out
from windlass.store.redis.scripting.values import Item, check_written, item_of, writes

T = TypeVar("T")
_VERSION_BYTES = 8
_TRIES_BEFORE_A_PAUSE = 4
_MAX_PAUSE_SECONDS = 0.001
_HEAD = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])
_REFUSED = "refused"
_ANY_HEAD = b"*"
Decision = Callable[[Mapping[str, Json], Sequence[News], datetime], Changes[T]]


class Seen(Struct, frozen=True):
    """The named records as they are, with their versions, and news that were read with them."""

    now: int
    records: Sequence[bytes]
    news: Sequence[Sequence[bytes]] = ()


class _Document(Struct, Generic[T]):
    """A change as the script takes it: one document, and arguments in a fixed order."""

    changes: Changes[T]
    items: list[Item] = field(default_factory=list)
    moves: list[list[Any]] = field(default_factory=list)
    move_arguments: list[Argument] = field(default_factory=list)

    def item(self, value: bytes | None) -> bytes:
        """Return the item of a value, which is written before the script runs."""
        item = item_of(value)
        self.items.append(item)
        return item.packed


class Turns:
    """Lets callers in one event loop take turns at names."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def at(self, names: Sequence[str]) -> AsyncIterator[None]:
        """Wait for the turn at all of some names."""
        async with AsyncExitStack() as stack:
            for name in sorted(set(names)):
                await stack.enter_async_context(self._at(name))
            yield

    @asynccontextmanager
    async def _at(self, name: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(name, (None, 0))
        lock = lock or asyncio.Lock()
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)


async def pause(attempt: int, seen: Seen | None) -> Seen | None:
    """Wait a little after every few tries, so that callers of other processes get through.

    Return what was seen, or None after a pause: others have changed it meanwhile.
    """
    if not attempt or attempt % _TRIES_BEFORE_A_PAUSE:
        return seen
    await asyncio.sleep(random.uniform(0, _MAX_PAUSE_SECONDS))  # noqa: S311 - spreads load.
    return None


def apply(
    names: Names,
    wanted: Sequence[str],
    decide: Decision[T],
    *,
    heard: bool,
    seen: Seen | None = None,
) -> Talk[Applied[T] | Seen | None]:
    """Let a reducer decide, and apply its changes.

    If something changed meanwhile, nothing was applied: return what is there now, for another try,
    or None if that has to be read. `seen`: what the last try returned.
    """
    seen = seen or (yield from _read(names, wanted, heard=heard))
    records = {
        name: msgspec.json.decode(value[_VERSION_BYTES:])
        for name, value in zip(wanted, seen.records, strict=True)
        if value
    }
    changes = decide(records, _news(wanted, seen), instant(seen.now))
    document = _Document(changes)
    yield from _plan_moves(names, document, seen.now)
    arguments = _arguments(document, wanted, seen)
    call = names.call("apply", *arguments)
    replies = yield [*writes(names.namespace, document.items), call]
    verdict, *rest = replies[-1]
    check_written(verdict)
    if verdict == b"stale":
        return None if heard else Seen(*rest)
    if verdict == b"fenced":
        raise LeaseLost(UUID(bytes=rest[0]))
    packed, lists, todo = rest
    after = yield from _moved(names, packed, lists)
    for entry in todo:
        yield from carry_out(names, entry)
    return Applied(answer=changes.answer, moved=after)


def _read(names: Names, wanted: Sequence[str], *, heard: bool) -> Talk[Seen]:
    (reply,) = yield [names.call("news" if heard else "read", *wanted)]
    return Seen(*reply)


def _news(topics: Sequence[str], seen: Seen) -> list[News]:
    """Return the news that were read, oldest first."""
    ordered = []
    for topic, entries in zip(topics, seen.news, strict=False):
        for at in range(0, len(entries), 2):
            job, entry = entries[at], entries[at + 1]
            sent, arrival = struct.unpack(">QQ", entry[:16])
            news = News(topic=topic, id=UUID(bytes=job), body=entry[16:], at=instant(sent))
            ordered.append((sent, arrival, news))
    return [news for _, _, news in sorted(ordered, key=lambda each: each[:2])]


def _plan_moves(names: Names, document: _Document[Any], now: int) -> Talk[None]:
    """Decide about redrives, which need the log of steps; scripts decide about all other moves."""
    settled = {each.id for each in document.changes.settle}
    for move in document.changes.moves:
        steps: object = False
        expected = b""
        if move.verb is Verb.REDRIVE:
            if move.id in settled:
                expected = _ANY_HEAD  # It is dead, or not, by this very change.
            else:
                steps, expected = yield from _plan_redrive(names, move, now)
        payload = b"" if move.payload is None else document.item(move.payload)
        given = (move.payload is not None, move.before is not None)
        holder = (move.worker, str(move.token))
        said = (move.verb.value, move.reason, move.waiting_for)
        document.moves.append([*said, *given, steps, *holder])
        document.move_arguments += (move.id.bytes, payload, move.before or b"", expected)


def _plan_redrive(names: Names, move: Move, now: int) -> Talk[tuple[object, bytes]]:
    """Return the steps of the job's next life, or a refusal, and the head that this is about."""
    (reply,) = yield [names.call("get", 0, move.id.bytes)]
    jobs: list[Job] = yield from jobs_in(names, reply)
    if not jobs:
        return _REFUSED, b""
    after = moved(jobs[0], move, instant(now)) if jobs[0].state is State.DEAD else None
    fields = _HEAD.decode(reply[1])
    return _REFUSED if after is None else list(after.steps), bytes(fields[8]) + bytes(fields[9])


def _arguments(document: _Document[Any], wanted: Sequence[str], seen: Seen) -> list[Argument]:
    changes = document.changes
    arguments: list[Argument] = [value[:_VERSION_BYTES] for value in seen.records]
    heard = []
    for topic, entries in zip(wanted, seen.news, strict=False):
        heard.append([topic, len(entries) // 2])
        arguments += entries[::2]
    for move in changes.settle:
        arguments += (move.id.bytes, move.token, document.item(move.result))
    for job in changes.enqueue:
        arguments += (job.id.bytes, body(job, document.item(job.payload))[1])
    records = [
        [name, False if value is None else as_json(value)]
        for name, value in changes.records.items()
    ]
    alarms = [
        [name, False if alarm is None else micros(alarm)] for name, alarm in changes.alarms.items()
    ]
    packed = encode(
        [
            list(wanted),
            records,
            alarms,
            [transition(move) for move in changes.settle],
            [options(job) for job in changes.enqueue],
            list(changes.unpark),
            document.moves,
            heard,
            [_counted(name, count) for name, count in changes.move_counts.items()],
        ]
    )
    return [packed, *arguments, *document.move_arguments]


def _counted(name: str, count: MoveCount) -> list[object]:
    """Return a record up to the number of moves, its last field, which the script adds."""
    rest = as_json(count.rest).removesuffix("}")
    comma = "," if count.rest else ""
    return [name, f'{rest}{comma}"{count.field}":', count.before, count.always]


def _moved(
    names: Names, packed: Sequence[bytes], lists: Sequence[tuple[int, list[bytes], list[bytes]]]
) -> Talk[tuple[Job | None, ...]]:
    """Return the jobs after their moves."""
    rows = [read_row(each) if each else None for each in packed]
    values = yield from values_of(names, [row for row in rows if row is not None])
    more = {number: (steps, history) for number, steps, history in lists}
    return tuple(
        None if row is None else job_of(row, values, more.get(number))
        for number, row in enumerate(rows, 1)
    )


def ringing(names: Names, limit: int) -> Talk[Ringing]:
    """Return records whose alarm has gone off, and the time of the next alarm."""
    limit = max(limit, 1)
    alarms = ("ZRANGE", names.key("alarm"), 0, limit, "WITHSCORES")
    now, pairs = yield [names.call("now"), alarms]
    times = [(pairs[at], int(pairs[at + 1])) for at in range(0, len(pairs), 2)]
    due = [name for name, time in times if time <= now][:limit]
    later = [time for _, time in times[len(due) :]]
    (values,) = (yield [("HMGET", names.key("rec"), *due)]) if due else ([],)
    return Ringing(
        records={
            name.decode(): msgspec.json.decode(value[_VERSION_BYTES:])
            for name, value in zip(due, values, strict=True)
            if value is not None
        },
        next=instant(later[0]) if later else None,
        now=instant(now),
    )


def records(names: Names, prefix: str, page: RecordPage | None = None) -> Talk[dict[str, Json]]:
    """Return the records whose names begin with a prefix, or a page of them."""
    first = b"[" + prefix.encode() if prefix else b"-"
    last = b"[" + prefix.encode() + b"\xff" if prefix else b"+"
    search: tuple[Argument, ...] = (first, last, "BYLEX")
    if page is not None:
        last = b"(" + page.end(prefix).encode()
        search = (last, first, "BYLEX", "REV", "LIMIT", 0, page.limit)
    (found,) = yield [("ZRANGE", names.key("recn"), *search)]
    if not found:
        return {}
    (values,) = yield [("HMGET", names.key("rec"), *found)]
    return {
        name.decode(): msgspec.json.decode(value[_VERSION_BYTES:])
        for name, value in zip(found, values, strict=True)
        if value is not None
    }
