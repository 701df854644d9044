"""Owns the enqueue of one plain job, which most enqueues are: its call, packed by hand.

What all jobs of a lane have in common is packed once; packing the whole call by hiredis takes three
times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from windlass.core.jobs.job import AGING, Enqueued, NewJob
from windlass.store.redis.connections.script import Command, pack
from windlass.store.redis.scripting.calls import Names, Run
from windlass.store.redis.scripting.rows import MICROSECOND, body, is_plain, lane_bytes
from windlass.store.redis.scripting.values import check_written, item_of, writes

_PING: Command = ("PING",)
_PACKED_PING = pack(_PING, in_cluster=False)
_URGENCY = AGING // MICROSECOND
_MARK = b"\0" * 16
_MAX_CACHED_LANES = 10_000


class LoneCall(NamedTuple):
    """The commands that add a job, and their packed form, if they were packed by hand."""

    commands: Sequence[Command]
    packed: bytes | None


class LoneEnqueues:
    """Makes the calls that add one plain job each, and reads their answers."""

    def __init__(self, names: Names, *, in_cluster: bool) -> None:
        self._names = names
        self._may_pack = not in_cluster
        self._packed_lane = lru_cache(_MAX_CACHED_LANES)(self._pack_lane)
        self._may_wake = True
        """Whether somebody slept when the last job came."""

    def add_blocking(
        self, jobs: Sequence[NewJob], run: Callable[..., list[Any]], **how: Any
    ) -> list[Enqueued] | None:
        """Add one plain job; None if the jobs are something else, or the id is known already.

        Raises:
            StoreUnavailable: nothing was written, since a large payload got lost.
        """
        if len(jobs) != 1 or not is_plain(jobs[0]):
            return None
        call = self._call(jobs[0])
        return self._added(jobs[0], run(*call.commands, packed=call.packed, **how))

    async def add(self, jobs: Sequence[NewJob], run: Run, **how: Any) -> list[Enqueued] | None:
        """Add one plain job in an event loop, likewise."""
        if len(jobs) != 1 or not is_plain(jobs[0]):
            return None
        call = self._call(jobs[0])
        return self._added(jobs[0], await run(*call.commands, packed=call.packed, **how))

    def _call(self, job: NewJob) -> LoneCall:
        item = item_of(job.payload)
        lane, made = body(job, item.packed)
        number, bonus = job.id.bytes, job.priority * _URGENCY
        arguments = (lane, job.queue, number, made, bonus)
        if item.reference:
            call = self._names.call("enqueue_one", *arguments, item.reference)
            return LoneCall([*writes(self._names.namespace, [item]), call], None)
        call = self._names.call("enqueue_one", *arguments)
        packed = None
        if self._may_pack:
            before, after = self._packed_lane(job.queue, job.kind, job.priority, job.key)
            packed = b"%b%b\r\n$%d\r\n%b%b" % (before, number, len(made), made, after)
        if not self._may_wake:
            return LoneCall((call,), packed)
        # The server writes to the client that it had last something for first. A producer that is
        # owed an answer already, by PING, comes after the worker that is woken.
        return LoneCall((_PING, call), None if packed is None else _PACKED_PING + packed)

    def _added(self, job: NewJob, replies: Sequence[object]) -> list[Enqueued] | None:
        reply = replies[-1]
        if reply not in (1, 2):
            check_written(reply)
            return None
        self._may_wake = reply == 2
        return [Enqueued(id=job.id)]

    def _pack_lane(self, queue: str, kind: str, priority: int, key: str) -> tuple[bytes, bytes]:
        """Return what comes before the id of a job of a lane, and what after its body."""
        lane = lane_bytes((queue, kind, priority, key))
        call = self._names.call("enqueue_one", lane, queue, _MARK, b"", priority * _URGENCY)
        # The last one: a lane may have any name.
        before, _, after = pack(call, in_cluster=False).rpartition(_MARK)
        return before, after.removeprefix(b"\r\n$0\r\n")
