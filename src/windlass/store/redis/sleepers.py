"""Owns waiting: a process is listed as a sleeper, and woken by name for lanes that it serves.

Wake-ups are hints; polling is the truth. A sleeper that is woken is no longer listed. What waits
has a version, which every change that may wake somebody raises: a process that falls asleep
learns whether it has missed one since it looked.
"""

from __future__ import annotations

import hashlib
import struct
import time
import weakref
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from windlass.core.claims.lanes import Claim, Sweep
from windlass.core.workers import WorkerInfo
from windlass.store.redis import queries
from windlass.store.redis.calls import Names, apump
from windlass.store.redis.connections.per_loop import LoopConnections
from windlass.store.redis.records import Turns

_BELIEVED_SECONDS = 0.02
"""Seconds for which a sweep is reused: claims notice by themselves that jobs are gone."""
_EVERYTHING = b"\2\2"


class LoopState:
    """The state of one event loop: its waiters, and whether it is listed as a sleeper."""

    def __init__(self, names: Names, connections: LoopConnections) -> None:
        # Weak: the connections of a loop that has ended must not live on by what is known of them.
        self._connections = weakref.ref(connections)
        self.turns = Turns()
        self._names = names
        self._serves = _EVERYTHING
        self._group = _digest(_EVERYTHING)
        self._listed: tuple[int, int] | None = None
        """The listener's mark and the version of what waited, when it was listed as a sleeper."""
        self._believed: tuple[Sweep, float] | None = None

    @property
    def connections(self) -> LoopConnections:
        """The connections of the event loop."""
        connections = self._connections()
        if connections is None:
            raise RuntimeError("the event loop has ended")
        return connections

    def serve(self, worker: WorkerInfo) -> None:
        """Be woken only for lanes that a worker serves."""
        fields = (worker.queues, worker.excluded, worker.kinds)
        self._serves = b"\2".join(map(_enclosed, fields))
        self._group = _digest(self._serves)

    # -- sweeps --------------------------------------------------------------------------------

    async def sweep(self, *, fresh: bool) -> Sweep:
        """Return the heads of all lanes, as they are or as they were a moment ago."""
        if not fresh and self._believed is not None:
            sweep, since = self._believed
            age = time.monotonic() - since
            if age < _BELIEVED_SECONDS:
                return replace(sweep, now=sweep.now + timedelta(seconds=age))
        sweep = await apump(queries.sweep(self._names), self.connections.run)
        is_worth_it = sweep.heads and sweep.next_due is None
        self._believed = (sweep, time.monotonic()) if is_worth_it else None
        return sweep

    def doubt(self) -> None:
        """Forget the last sweep."""
        self._believed = None

    def claimed(self, claim: Claim, jobs: int) -> None:
        """Keep the last sweep only while claims return as many jobs as they asked for."""
        first, *others = claim.asks
        wanted = min((first.count, *(claim.budgets[name] for name in first.draws)))
        if others or jobs < wanted:
            self._believed = None

    # -- waiting -------------------------------------------------------------------------------

    async def wait(self, mark: int, timeout: timedelta) -> None:
        """Return once something may have changed since the sweep with a mark, or time is up."""
        listener = self.connections.listener
        listener.start()
        listed = self._listed
        if listed is None or listed[0] != listener.mark:
            heard = listener.mark
            version = await self._sleep()
            self._listed = listed = (heard, version)
            if version != mark:
                return
        elif mark < listed[1]:
            return
        word = await listener.wait(listed[0], timeout.total_seconds())
        if word is not None and len(word) > 16:
            self._hear(word)

    async def rise(self) -> None:
        """Leave wake-ups to other workers, since this one has no room."""
        listed, self._listed = self._listed, None
        if listed is not None and listed[0] == self.connections.listener.mark:
            key = self._names.namespace + b"z:" + self._group
            await self.connections.run(("SREM", key, self.connections.sleeper))

    async def close(self) -> None:
        """Stop being woken."""
        await self.rise()
        await self.connections.listener.close()

    async def _sleep(self) -> int:
        call = self._names.call("sleep", self.connections.sleeper, self._group, self._serves)
        replies: list[Any] = await self.connections.run(call, again=True)
        return int(replies[0])

    def _hear(self, word: bytes) -> None:
        """Take the lane from a wake-up: it can be claimed from without a sweep."""
        now, version = struct.unpack(">QQ", word[:16])
        head = queries.head_of(word[16:], now)
        sweep = Sweep(heads=(head,), next_due=None, now=head.position, mark=version)
        self._believed = (sweep, time.monotonic())


def _enclosed(names: tuple[str, ...]) -> bytes:
    return b"\1" + "\1".join(names).encode() + b"\1" if names else b""


def _digest(serves: bytes) -> bytes:
    return hashlib.sha1(serves, usedforsecurity=False).hexdigest()[:16].encode()
