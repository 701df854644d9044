"""Owns waiting: a process is listed as a sleeper, and woken by name for lanes that it serves.

Wake-ups are hints; polling is the truth. A sleeper that is woken is no longer listed. What waits
has a version, which every change that may wake a sleeper raises: a process that falls asleep
learns whether it has missed one since it looked.

A sleeper may leave a standing ask: then an enqueue claims its job for the sleeper's worker, and the
wake-up brings the job. The store keeps which asks of a sleeper were met until the sleeper says that
it has their jobs, so that a job whose wake-up was lost is found at the next poll.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from windlass.core.claims.lanes import Claim, Queues, StandingAsk, Sweep
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.workers import WorkerInfo
from windlass.store.redis import queries
from windlass.store.redis.connections.per_loop import LoopConnections
from windlass.store.redis.records import Turns
from windlass.store.redis.scripting.calls import Names, apump
from windlass.store.redis.scripting.rows import first_run, instant, read_rows
from windlass.store.redis.scripting.values import NO_VALUES

_BELIEVED_SECONDS = 0.02
"""Seconds for which a sweep is reused: claims notice by themselves that jobs are gone."""
_LISTED_SECONDS = 3_600.0
"""Seconds after which a sleeper is listed again; the store forgets a list after a day."""
_EVERYTHING = b"\2\2"
_MAX_REMEMBERED = 16
"""Number of asks, and of those that were met, which are remembered."""


class LoopState:
    """The state of one event loop: its waiters, and whether it is listed as a sleeper."""

    def __init__(self, names: Names, connections: LoopConnections) -> None:
        # Weak: the connections of a loop that has ended must not live on by what is known of them.
        self._connections = weakref.ref(connections)
        self.turns = Turns()
        self._names = names
        self._serves = _EVERYTHING
        self._group = _digest(_EVERYTHING)
        self._queues: Queues = None
        """The queues that its worker serves; None: all."""
        self._listed: tuple[int, int] | None = None
        """The listener's mark and the version of what waited, when it was listed as a sleeper."""
        self._listed_at = 0.0
        self._believed: tuple[Sweep, float, Queues] | None = None
        """The last sweep, when it was, and of which queues."""
        self._ask: StandingAsk | None = None
        """The ask that was left last, unless it was met."""
        self._may_be_met = False
        """Whether an ask was left since the process was listed no longer."""
        self._asks: dict[int, StandingAsk] = {}
        """The latest asks by token.

        More than one: a call that was cancelled, or that of another worker of this loop, may
        reach the server after the one that was sent last.
        """
        self._taken: dict[int, tuple[bytes, ...]] = {}
        """The ids of the latest jobs that came, by the token of their ask."""
        self._unacknowledged: set[bytes] = set()
        """Asks that were met, whose jobs have come, and of which the store does not know that."""
        connections.listener.on_job = self._take

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
        self._queues = frozenset(worker.queues) or None

    # -- sweeps --------------------------------------------------------------------------------

    async def sweep(self, *, fresh: bool, queues: Queues) -> Sweep:
        """Return the heads of the lanes of some queues, as they are or were a moment ago."""
        if not fresh and self._believed is not None:
            sweep, since, believed_queues = self._believed
            age = time.monotonic() - since
            if age < _BELIEVED_SECONDS and believed_queues == queues:
                return replace(sweep, now=sweep.now + timedelta(seconds=age))
        sweep = await apump(queries.sweep(self._names, queues), self.connections.run)
        is_worth_it = sweep.heads and sweep.next_due is None
        self._believed = (sweep, time.monotonic(), queues) if is_worth_it else None
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

    async def wait(self, mark: int, timeout: timedelta, ask: StandingAsk | None) -> None:
        """Return once something may have changed since the sweep with a mark, or time is up."""
        listener = self.connections.listener
        listener.start()
        listed = self._listed
        is_old = time.monotonic() - self._listed_at > _LISTED_SECONDS
        if listed is None or listed[0] != listener.mark or is_old or not self._stands(ask):
            heard, self._listed_at = listener.mark, time.monotonic()
            version = await self._sleep(ask)
            self._listed = listed = (heard, version)
            if version != mark or self._ask is not ask:
                return
        elif mark < listed[1]:
            return
        word = await listener.wait(listed[0], timeout.total_seconds())
        if word is not None and len(word) > 16:
            self._hear(word)
        elif self._ask is not None:
            # Time is up: the ask is left anew, which shows whether it was met and the job got lost.
            self._listed = None

    async def rise(self) -> None:
        """Leave wake-ups to other workers, since this one has no room."""
        listed, self._listed, self._ask = self._listed, None, None
        is_listed = listed is not None and listed[0] == self.connections.listener.mark
        if not is_listed and not self._may_be_met:
            return
        self._may_be_met = False
        try:
            _, met = await self._send(b"", None)
            await self._find(met)
        except BaseException:
            self._may_be_met = True  # So that it is done again.
            raise

    async def close(self) -> None:
        """Stop being woken."""
        await self.rise()
        await self.connections.listener.close()
        self._asks.clear()

    async def _sleep(self, ask: StandingAsk | None) -> int:
        self._listed = self._ask = None
        if ask is not None:  # Already now: it may be met before this call is answered.
            self._may_be_met = True
            self._asks[ask.token] = ask
            _forget_oldest(self._asks)
        version, met = await self._send(self._serves, ask)
        tokens = {*self._taken, *map(_token, met)}
        self._ask = None if ask is None or ask.token in tokens else ask
        await self._find(met)
        return version

    async def _send(self, serves: bytes, ask: StandingAsk | None) -> tuple[int, list[bytes]]:
        """Be listed or not, and return the version of what waits and asks that were met."""
        having = tuple(self._unacknowledged)
        left, token = (b"", b"") if ask is None else (_left(ask), b"%d" % ask.token)
        sleeper = self.connections.sleeper
        call = self._names.call("sleep", sleeper, self._group, serves, left, token, *having)
        replies: list[Any] = await self.connections.run(call, again=True)
        self._unacknowledged.difference_update(having)
        version, met = replies[0]
        return int(version), met

    # -- standing asks -------------------------------------------------------------------------

    def _stands(self, ask: StandingAsk | None) -> bool:
        """Return whether the ask that was left last serves for this one, too."""
        if ask is None or self._ask is None:
            return ask is self._ask
        return (ask.worker, ask.kinds) == (self._ask.worker, self._ask.kinds)

    def _take(self, word: bytes) -> None:
        """Take the job that a wake-up brings; if it comes too late, the job was found before."""
        token, _, row = word[9:].partition(b"\2")
        (found,) = read_rows(1, row)
        ask = self._answered(int(token), found[0])
        if ask is not None:
            (now,) = struct.unpack(">Q", word[1:9])
            self._hand_over(first_run(found, NO_VALUES, ask.worker, ask.token, instant(now)), ask)

    async def _find(self, met: Sequence[bytes]) -> None:
        """Take jobs that met an ask and did not arrive; one that cannot be read is found again."""
        for each in met:
            token, job_id = _token(each), each.partition(b"\2")[2]
            if job_id in self._taken.get(token, ()):
                continue
            job = await apump(queries.get(self._names, UUID(bytes=job_id)), self.connections.run)
            ask = self._answered(token, job_id)  # None if the wake-up came meanwhile.
            if ask is not None and job is not None and _is_held(job, ask):
                self._hand_over(job, ask)

    def _answered(self, token: int, job_id: bytes) -> StandingAsk | None:
        """Note that a job has come, and return the ask that it met; None if it came before.

        By token and job: a call that was repeated late may leave an ask again that was met.
        """
        taken = self._taken.get(token, ())
        if job_id in taken:
            return None
        self._taken[token] = (*taken, job_id)
        _forget_oldest(self._taken)
        self._unacknowledged.add(b"%d\2%b" % (token, job_id))
        if self._ask is not None and self._ask.token == token:
            self._ask = None
        return self._asks.get(token)

    def _hand_over(self, job: Job, ask: StandingAsk) -> None:
        try:
            ask.take(job)
        except Exception as error:  # noqa: BLE001 - the connection that has brought it must not end.
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"job {job.id} was claimed, and could not start", "exception": error}
            )

    def _hear(self, word: bytes) -> None:
        """Take the lane from a wake-up: it can be claimed from without a sweep."""
        now, version = struct.unpack(">QQ", word[:16])
        head = queries.head_of(word[16:], now)
        sweep = Sweep(heads=(head,), next_due=None, now=head.position, mark=version)
        self._believed = (sweep, time.monotonic(), self._queues)


def _left(ask: StandingAsk) -> bytes:
    """Return an ask as it is left in the store."""
    return b"\2".join((ask.worker.encode(), b"%d" % ask.token, _enclosed(ask.kinds)))


def _token(met: bytes) -> int:
    """Return the token of an ask that was met."""
    return int(met.partition(b"\2")[0])


def _forget_oldest(remembered: dict[int, Any]) -> None:
    if len(remembered) > _MAX_REMEMBERED:
        del remembered[next(iter(remembered))]


def _is_held(job: Job, ask: StandingAsk) -> bool:
    return (job.state, job.worker, job.token) == (State.RUNNING, ask.worker, ask.token)


def _enclosed(names: tuple[str, ...]) -> bytes:
    return b"\1" + "\1".join(names).encode() + b"\1" if names else b""


def _digest(serves: bytes) -> bytes:
    return hashlib.sha1(serves, usedforsecurity=False).hexdigest()[:16].encode()
