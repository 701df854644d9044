"""Owns what a race on a server asks of a queue, and the process that does it when told to.

Every queue runs in processes of its own, which take commands as lines of JSON on their standard
input and answer in the same way. So a queue may be written in any language: `serve` is what those
in Python share, and `peers/graphile_worker.mjs` is the same for one that is not.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Protocol

_INTERVAL = 0.02


class Starts:
    """Where handlers leave their traces, and how it is known that the last of them has started.

    A no-op notes the moment at which it started, a stamped job how long ago its enqueue began, both
    in nanoseconds of the clock that all processes of a machine share (`time.monotonic_ns`).
    """

    def __init__(self) -> None:
        self.noted: list[int] = []
        self.expected = 0
        self.reached = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def note(self, value: int) -> None:
        """Keep one trace."""
        self.noted.append(value)
        if len(self.noted) == self.expected:
            self.reached.set()

    def note_in_thread(self, value: int) -> None:
        """Keep one trace, from a thread that is not the event loop's."""
        self.noted.append(value)
        # Two threads may both have passed the number before either of them counts.
        if len(self.noted) >= self.expected > 0:
            self.loop.call_soon_threadsafe(self.reached.set)


class Peer(Protocol):
    """A queue in a database. One object serves one process, as producer or as worker.

    It knows three kinds of jobs: `noop`, `nap`, which waits for 10 ms, and `stamped`. `elsewhere`
    may be enqueued, too, by those who can: a kind that no worker of the race knows.
    """

    name: ClassVar[str]
    settings: ClassVar[str]
    left: ClassVar[str]
    """What says, by the queue's own tables or keys, whether anything is left: SQL, or Lua."""
    chunk: ClassVar[int]
    """How many jobs its bulk call takes at its best."""
    new_loop: ClassVar[Callable[[], asyncio.AbstractEventLoop] | None]

    def __init__(self, url: str, starts: Starts) -> None: ...

    async def install(self) -> None:
        """Make the schema."""
        ...

    async def open(self) -> None:
        """Connect."""
        ...

    async def enqueue(self) -> None:
        """Enqueue one no-op, and return when it is committed."""
        ...

    async def enqueue_bulk(self, count: int, *, kind: str, priority: int) -> None:
        """Enqueue many jobs by the fastest way that the library itself has."""
        ...

    async def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        ...

    async def work(self, slots: int | None, *, idle: bool) -> None:
        """Serve as a worker until cancelled, with so many slots or with its best number.

        It may be told that it will be idle most of the time, if other settings are best then.
        """
        ...

    async def close(self) -> None:
        """Let go of the connections."""
        ...


def serve(peer: type[Peer], url: str) -> None:
    """Do as told by the lines on standard input, until they end."""
    logging.disable(logging.WARNING)
    with asyncio.Runner(loop_factory=peer.new_loop) as runner:
        runner.run(_serve(peer, url))


async def _serve(peer: type[Peer], url: str) -> None:
    starts = Starts()
    process = _Process(peer(url, starts), starts)
    with ThreadPoolExecutor(max_workers=1) as reader:
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(reader, sys.stdin.readline):
            command = json.loads(line)
            do: Callable[..., Awaitable[Any]] = getattr(process, command.pop("do"))
            print(json.dumps(await do(**command)), flush=True)
    # Some libraries have threads and tasks that do not end, and nobody needs them any more.
    os._exit(0)


class _Process:
    """The commands, each with its arguments and its answer."""

    def __init__(self, peer: Peer, starts: Starts) -> None:
        self._peer = peer
        self._starts = starts
        self._work: asyncio.Task[None] | None = None

    async def install(self) -> None:
        await self._peer.install()

    async def open(self) -> None:
        await self._peer.open()

    async def close(self) -> None:
        await self._peer.close()

    async def enqueue(self, count: int) -> float:
        """Enqueue singly, each committed before the next; answer the seconds."""
        blocking: Callable[[], None] | None = getattr(self._peer, "enqueue_blocking", None)
        if blocking is not None:
            return await asyncio.to_thread(_time, blocking, count)
        began = time.perf_counter()
        for _ in range(count):
            await self._peer.enqueue()
        return time.perf_counter() - began

    async def crowd(self, count: int, threads: int) -> float:
        """Enqueue singly from blocking code in several threads at once; answer the seconds."""
        enqueue: Callable[[], None] = self._peer.enqueue_blocking  # type: ignore[attr-defined]
        barrier = threading.Barrier(threads + 1)

        def client() -> None:
            enqueue()
            barrier.wait()
            for _ in range(count // threads):
                enqueue()

        clients = [threading.Thread(target=client) for _ in range(threads)]
        for each in clients:
            each.start()
        await asyncio.to_thread(barrier.wait)
        began = time.perf_counter()
        for each in clients:
            await asyncio.to_thread(each.join)
        return time.perf_counter() - began

    async def bulk(self, count: int, kind: str = "noop", priorities: int = 1) -> float:
        """Enqueue by the bulk call, priorities taking turns chunk by chunk; answer the seconds."""
        chunk = min(self._peer.chunk, -(-count // priorities))
        began = time.perf_counter()
        for number, done in enumerate(range(0, count, chunk)):
            size, priority = min(chunk, count - done), number % priorities
            await self._peer.enqueue_bulk(size, kind=kind, priority=priority)
        return time.perf_counter() - began

    async def fan_in(self, count: int) -> float:
        """Enqueue many jobs and one that waits for all of them; answer the seconds."""
        began = time.perf_counter()
        await self._peer.enqueue_fan_in(count)  # type: ignore[attr-defined]
        return time.perf_counter() - began

    async def contend(self, names: list[str], count: int) -> list[float]:
        """Change records over and over; answer the seconds that each change took."""
        took: list[float] = await self._peer.contend(names, count)  # type: ignore[attr-defined]
        return took

    async def total(self, prefix: str) -> int:
        """Answer how many changes there were to records whose names begin with this."""
        total: int = await self._peer.total(prefix)  # type: ignore[attr-defined]
        return total

    async def send(self, count: int) -> None:
        """Enqueue a stamped job each 20 ms."""
        began = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(began + number * _INTERVAL - time.perf_counter(), 0))
            await self._peer.enqueue_stamped()

    async def work(self, slots: int | None = None, *, idle: bool = False) -> None:
        """Begin to work."""
        self._work = asyncio.create_task(self._peer.work(slots, idle=idle))

    async def reach(self, expected: int, patience: float) -> int:
        """Wait until so many handlers have started, or for so many seconds; answer how many."""
        starts, work = self._starts, self._work
        if work is None:
            raise RuntimeError("nobody works here")
        starts.reached.clear()  # It may have been reached before, by fewer.
        starts.expected = expected
        if len(starts.noted) >= expected:
            starts.reached.set()
        waiting = asyncio.create_task(starts.reached.wait())
        await asyncio.wait((waiting, work), timeout=patience, return_when="FIRST_COMPLETED")
        waiting.cancel()
        if work.done():
            await work
            raise RuntimeError("the worker ended by itself")
        return len(starts.noted)

    async def stop(self) -> list[int]:
        """Stop working, and answer with what the handlers noted."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait((self._work,))
        return self._starts.noted


def _time(call: Callable[[], None], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - began


if __name__ == "__main__":
    _module, _, _name = sys.argv[1].partition(":")
    serve(getattr(importlib.import_module(_module), _name), sys.argv[2])
