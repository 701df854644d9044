"""Owns the form of operations: generators that yield commands and are sent their replies.

So an operation is written once for producers' threads and for event loops.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from windlass.core.jobs.job import Job
from windlass.store.redis.connections.script import Argument, Command, Script
from windlass.store.redis.scripting.rows import Lists, Row, job_of, read_rows, references
from windlass.store.redis.scripting.values import NO_VALUES, paired, reads

T = TypeVar("T")
Talk = Generator[Sequence[Command], Sequence[Any], T]
"""Yields commands for one round trip, is sent their replies, and returns the result."""
Run = Callable[..., Awaitable[list[Any]]]
_VALUES_AT_ONCE = 50


class Names(Struct, frozen=True):
    """The prefix of all keys, and the scripts."""

    namespace: bytes
    scripts: Mapping[str, Script]

    def key(self, name: str) -> bytes:
        """Return a key."""
        return self.namespace + name.encode()

    def call(self, script: str, *arguments: Argument) -> Command:
        """Return the command that calls a script."""
        return (self.scripts[script], self.namespace, *arguments)


async def apump(talk: Talk[T], run: Run, **how: Any) -> T:
    """Run an operation in an event loop."""
    try:
        commands = next(talk)
        while True:
            commands = talk.send(await run(*commands, **how))
    except StopIteration as done:
        result: T = done.value
        return result


async def overlapped(talks: Iterable[Talk[list[T]]], run: Run, *, most: int, **how: Any) -> list[T]:
    """Run operations, some of them at a time; return what they return, in their order.

    The server carries out one while the next is made. If one fails, those under way are waited
    for, and no further ones begin.
    """
    under_way: deque[asyncio.Task[list[T]]] = deque()
    results: list[T] = []
    try:
        for talk in talks:
            if len(under_way) == most:
                results += await under_way.popleft()
            under_way.append(asyncio.create_task(apump(talk, run, **how)))
            await asyncio.sleep(0)  # So that it is sent now.
        while under_way:
            results += await under_way.popleft()
    finally:
        if under_way:
            await asyncio.wait(under_way)
            _ = [task.exception() for task in under_way if not task.cancelled()]
    return results


def pump(talk: Talk[T], run: Callable[..., Sequence[Any]], *, deadline: float, **how: Any) -> T:
    """Run an operation in a thread, all of its calls until a deadline."""
    try:
        commands = next(talk)
        while True:
            left = max(deadline - time.monotonic(), 0.001)
            commands = talk.send(run(*commands, timeout=left, **how))
    except StopIteration as done:
        result: T = done.value
        return result


def values_of(names: Names, rows: Sequence[Row]) -> Talk[Mapping[str, bytes]]:
    """Read the large values that rows refer to."""
    wanted = references(rows)
    if not wanted:
        return NO_VALUES
    return paired(wanted, (yield list(reads(names.namespace, wanted, _VALUES_AT_ONCE))))


def jobs_in(names: Names, reply: Sequence[Any], *, brief: bool = False) -> Talk[list[Job]]:
    """Return the jobs of a reply that begins with their number, rows and lists."""
    rows = read_rows(reply[0], reply[1])
    values = NO_VALUES if brief else (yield from values_of(names, rows))
    lists = by_id(reply[2])
    return [job_of(row, values, lists.get(row[0])) for row in rows]


def by_id(lists: Lists) -> dict[bytes, tuple[list[bytes], list[bytes]]]:
    """Return steps and histories by the id of their job."""
    return {job: (steps, history) for job, steps, history in lists}
