"""Owns the PostgreSQL store: the contract's methods, and which connection carries each.

Claims and settles go by the hot line, a worker's rounds by a line of their own, the lease by a
third connection: nothing that users do with the pool can keep a worker from its duties.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import psycopg

from windlass.core.changes import Applied, Decide
from windlass.core.errors import StoreUnavailable
from windlass.core.job import (
    Claim,
    Enqueued,
    Finding,
    Job,
    JobFilter,
    Json,
    NewJob,
    Page,
    Progress,
    Pulse,
    QueueCount,
    Retention,
    Sweep,
    WorkerInfo,
    WorkerRecord,
)
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.store.postgres import schema, work
from windlass.store.postgres.enqueueing import Enqueueing
from windlass.store.postgres.home import Home
from windlass.store.postgres.line import Speak
from windlass.store.postgres.pool import Limits, Pool
from windlass.store.postgres.rows import (
    as_json,
    instant,
    is_plain_success,
    job_of,
    worker_of,
)
from windlass.store.postgres.schema import Names
from windlass.store.postgres.transaction import Transaction
from windlass.store.postgres.wire import (
    AsyncWire,
    Row,
    Wire,
    conninfo_of,
    location_of,
    translate,
    translated,
)
from windlass.store.protocol import WORKERS_KEPT, Capabilities, Schema
from windlass.store.sql import Migration

T = TypeVar("T")
_MIGRATION = 3600.0
_TRIES = 5
_ID = attrgetter("id.int")


class PostgresStore:
    """Keeps jobs in a PostgreSQL database, for any number of hosts.

    `listen_url` is where notifications are listened for if `url` leads through a pooler; "off"
    does without them, and polls.
    """

    capabilities = Capabilities(
        shared=True, durable=True, bounded=False, transactional=True, makes_itself=False
    )

    def __init__(
        self,
        url: str,
        *,
        schema: str = "windlass",
        listen_url: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._names = Names(schema)
        self._conninfo = conninfo_of(url)
        self._listen = None if listen_url == "off" else conninfo_of(listen_url or url)
        self._location = location_of(self._conninfo, schema)
        self._limits = limits or Limits()
        self._sql = self._names.statements()
        self._served: WorkerInfo | None = None
        self._start_anew()
        _stores.add(self)

    def _start_anew(self) -> None:
        """Own no connection; those of a parent process are its own, and left alone."""
        self._homes: dict[int, Home] = {}
        self._homes_lock = threading.Lock()
        self._pool = Pool(self._conninfo, self._location, self._limits)
        self._enqueueing = Enqueueing(self._sql)
        self._heart: Wire | None = None
        self._heart_lock = threading.Lock()
        self._checked = False

    @property
    def location(self) -> str:
        """The server, database and schema, without secrets."""
        return self._location

    @property
    def listening(self) -> bool:
        """Whether any event loop of this process hears of new jobs."""
        with self._homes_lock:
            return any(home.ear.listening for home in self._homes.values())

    @property
    def statements(self) -> Mapping[str, str]:
        """The statements of this store, with the schema's name filled in."""
        return self._sql

    async def open(self) -> None:
        if not self._checked:
            await self._home().borrow(lambda wire: schema.check(wire, self._names, self._location))
            self._checked = True

    async def schema(self) -> Schema:
        return await self._home().borrow(lambda wire: schema.look(wire, self._names))

    async def migrate(self) -> list[str]:
        return await self._home().borrow(
            lambda wire: schema.migrate(wire, self._names, self._location), patience=_MIGRATION
        )

    async def migrations(self) -> list[Migration]:
        steps = await self._home().borrow(
            lambda wire: schema.steps(wire, self._names, self._location)
        )
        return [step._replace(sql=schema.script(step)) for step in steps]

    async def close(self) -> None:
        key = id(asyncio.get_running_loop())
        home = self._homes.get(key)
        if home is not None:
            # Forgotten only afterwards: to close an ear takes one more word by this home's line.
            await home.close()
            with self._homes_lock:
                self._homes.pop(key, None)
        self._leave_abandoned()
        self._pool.close()
        self._pool = Pool(self._conninfo, self._location, self._limits)
        with self._heart_lock:
            heart, self._heart = self._heart, None
        if heart is not None:
            heart.close()

    # -- the hot path --------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        # Safe to repeat: an id that is known already is not added again.
        return await self._home().borrow(
            lambda wire: self._enqueueing.carry(wire, jobs), again=True
        )

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        deadline = time.monotonic() + timeout.total_seconds()
        for attempt in range(_TRIES):
            left = deadline - time.monotonic()
            try:
                return self._enqueue_once(jobs, max(left, 0.001))
            except StoreUnavailable:
                # Safe to repeat: an id that is known already is not added again.
                pause = 0.05 * 2**attempt * random.uniform(0.5, 1)  # noqa: S311 - spreads load.
                if attempt == _TRIES - 1 or time.monotonic() + pause >= deadline:
                    raise
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _enqueue_once(self, jobs: Sequence[NewJob], patience: float) -> list[Enqueued]:
        try:
            with self._pool.connection(patience) as wire:
                return self._enqueueing.carry_blocking(wire, jobs)
        except psycopg.Error as error:
            raise translate(error, self._location) from error

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._enqueueing.carry_in(transaction, jobs)

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._enqueueing.acarry_in(transaction, jobs)

    async def sweep(self, *, fresh: bool = True) -> Sweep:
        home = self._home()
        if fresh:
            return await self._sweep(home)
        now = time.monotonic()
        if home.lanes.are_believed_empty and home.lanes.is_due(now):
            await self._sweep(home)
        elif home.lanes.is_due(now):
            # It travels along with the next claim, which need not wait for it.
            home.sweep_along(self._sweep)
        return home.lanes.believed(home.ear.mark, time.monotonic())

    async def _sweep(self, home: Home) -> Sweep:
        mark = home.ear.mark

        async def send(wire: AsyncWire, _durable: bool) -> Callable[[], Awaitable[list[Row]]]:
            cursor = wire.cursor(binary=True)
            await cursor.execute(self._sql["sweep"])
            return cursor.fetchall

        sweep, heads, cost = work.swept(await home.hot.carry(send), mark)
        home.lanes.swept(heads, sweep, cost=cost, now=time.monotonic())
        if home.ear.mark != mark:
            home.lanes.doubt()  # What we were told of meanwhile, it may not have seen.
        return sweep

    async def wait(self, mark: int, timeout: timedelta) -> None:
        await self._home().wait(mark, timeout.total_seconds())

    async def busy(self) -> None:
        await self._home().ear.rest_no_more()

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        home = self._home()
        values = work.claim_values(claim, worker, token)

        async def send(wire: AsyncWire, durable: bool) -> Callable[[], Awaitable[list[Row]]]:
            cursor = wire.cursor(binary=True)
            await cursor.execute(self._sql["claim"], values | {"lazily": not durable})
            return cursor.fetchall

        answers = work.met(claim, await home.hot.carry(send, heavy=True), worker, token)
        home.lanes.claimed(answers)
        if unreadable := [each for answer in answers for each in answer.unreadable]:
            await self.settle([work.burial(each, token) for each in unreadable])
        return [job for answer in answers for job in answer.jobs]

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        if len({move.id.int for move in transitions}) < len(transitions):
            # In a group that settles a job twice, the first settle counts; so its order matters.
            return [(await self._settle([move]))[0] for move in transitions]
        return await self._settle(transitions)

    async def _settle(self, transitions: Sequence[Transition]) -> list[bool]:
        # In the order of ids, so that two who settle the same jobs cannot wait for each other.
        moves = sorted(transitions, key=_ID)
        successes: list[Transition] = []
        others: list[Transition] = []
        for move in moves:
            (successes if is_plain_success(move) else others).append(move)

        async def send(wire: AsyncWire, _durable: bool) -> Callable[[], Awaitable[set[UUID]]]:
            return await work.send_settles(wire, self._sql, successes, others)

        refused = await self._home().hot.carry(send, durable=True, many=bool(successes and others))
        return [not refused or move.id not in refused for move in transitions]

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        values = (as_json(progress), job, token)
        return (
            await self._chore(lambda cursor: work.count(cursor, self._sql["progress"], values)) > 0
        )

    async def promote(self, limit: int) -> int:
        promoted = int(await self._value("promote", limit))
        if promoted < limit:
            # Else who believes in a job that is due would promote in vain until the next sweep.
            self._home().lanes.promoted()
        return promoted

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        values = (worker, token, limit)
        rows = await self._chore(lambda cursor: work.fetch(cursor, self._sql["rescue"], values))
        return [job_of(row) for row in rows]

    async def prune(self, retention: Retention, limit: int) -> int:
        values = (retention.finished, retention.dead, WORKERS_KEPT, limit)
        # Not among the chores, which it would hold up: it may wait for whoever reads a whole room.
        ((pruned,),) = await self._look(
            lambda cursor: work.fetch(cursor, self._sql["prune"], values)
        )
        return int(pruned)

    # -- leases --------------------------------------------------------------------------------

    async def register(self, worker: WorkerInfo) -> None:
        values = {
            "id": worker.id,
            "info": as_json(worker),
            "pulse": as_json(Pulse()),
            "lease": worker.lease,
        }
        await self._chore(lambda cursor: work.count(cursor, self._sql["register"], values))
        self._served = worker
        self._home().ear.start()

    def heartbeat(self, worker: str, pulse: Pulse, timeout: timedelta) -> bool:
        with self._heart_lock, translated(self._location):
            deadline = time.monotonic() + timeout.total_seconds()
            if self._heart is not None and not self._heart.closed:
                try:
                    return self._beat(self._heart, worker, pulse, deadline)
                except psycopg.OperationalError:
                    # It may have died long ago. Whoever has to wait for the next beat to find a new
                    # one may find that dead, too, and so lose a lease that nobody wanted to take.
                    if time.monotonic() >= deadline:
                        raise
            self._heart = Wire.knock(self._conninfo, deadline)
            return self._beat(self._heart, worker, pulse, deadline)

    def _beat(self, heart: Wire, worker: str, pulse: Pulse, deadline: float) -> bool:
        heart.deadline = deadline
        try:
            row = heart.execute(self._sql["beat"], (worker, as_json(pulse))).fetchone()
        except psycopg.Error:
            self._heart = None
            heart.pgconn.finish()
            raise
        return row is not None and bool(row[0])

    async def retire(self, worker: str) -> None:
        await self._chore(lambda cursor: work.count(cursor, self._sql["retire"], (worker,)))
        # Else wake-ups would go to who does not work any more, and miss who does.
        await self._home().ear.close()

    async def held(self, worker: str) -> list[Job]:
        rows = await self._chore(lambda cursor: work.fetch(cursor, self._sql["held"], (worker,)))
        return [job_of(row) for row in rows]

    async def cancel_requests(self, worker: str) -> list[UUID]:
        text = self._sql["cancel_requests"]
        rows = await self._chore(lambda cursor: work.fetch(cursor, text, (worker,)))
        return [row[0] for row in rows]

    # -- records and whole changes -------------------------------------------------------------

    async def records(self, prefix: str) -> Mapping[str, Json]:
        text = self._sql["list_records"]
        rows = await self._chore(lambda cursor: work.fetch(cursor, text, (prefix,)))
        return {name: msgspec.json.decode(value) for name, value in rows}

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        return await self._home().look(
            lambda cursor: work.apply(cursor, self._sql, self._names.schema, names, decide),
            again=False,
        )

    def transaction(self, settling: Transition) -> Transaction:
        return Transaction(
            self._pool,
            lambda: self._home().pool,
            self._sql,
            settling,
            location=self._location,
        )

    # -- looking -------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        async def speak(cursor: work.Cursor) -> Job | None:
            values = {"id": job}
            for room in ("get_live", "get_finished", "get_live"):
                # Looked for twice in the first room: it may have moved back between two looks.
                for row in await work.fetch(cursor, self._sql[room], values):
                    return job_of(row)
            return None

        return await self._look(speak)

    async def find(self, which: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        limit = max(limit, 1)
        values = {
            "after": after,
            "states": [state.value for state in which.states] or None,
            "kind": which.kind,
            "queue": which.queue,
            "worker": which.worker,
            "limit": limit + 1,
        }
        rows = await self._look(lambda cursor: work.fetch(cursor, self._sql["find"], values))
        jobs = tuple(job_of(row) for row in rows)
        more = len(jobs) > limit
        return Page(jobs=jobs[:limit], after=jobs[limit - 1].id if more else None)

    async def counts(self) -> list[QueueCount]:
        rows = await self._look(lambda cursor: work.fetch(cursor, self._sql["count_jobs"]))
        return [
            QueueCount(
                queue=queue,
                state=State(state),
                count=count,
                oldest=None if oldest is None else instant(oldest),
            )
            for queue, state, count, oldest in rows
        ]

    async def workers(self) -> list[WorkerRecord]:
        rows = await self._look(lambda cursor: work.fetch(cursor, self._sql["list_workers"]))
        return [worker_of(row) for row in rows]

    async def findings(self) -> list[Finding]:
        rows = await self._look(lambda cursor: work.fetch(cursor, self._sql["old_snapshots"]))
        found = [
            Finding(
                problem=f"process {pid} ({application or user}) has held a transaction open for "
                f"{seconds / 60:,.0f} minutes, so that nothing deleted since can be cleaned up",
                remedy=f"end it, or: SELECT pg_terminate_backend({pid})",
            )
            for pid, user, application, seconds in rows
        ]
        if self._home().ear.is_deaf:
            found.append(
                Finding(
                    problem="notifications do not arrive, so that new jobs are found by polling: "
                    f"{self._home().ear.trouble}",
                    remedy="if this is a pooler, set WINDLASS_LISTEN_URL to the server's own URL, "
                    "or to off",
                )
            )
        return found

    # -- connections ---------------------------------------------------------------------------

    def _home(self) -> Home:
        """Return the connections of the running event loop, which nobody else can use."""
        key = id(asyncio.get_running_loop())
        home = self._homes.get(key)
        if home is None or home.is_abandoned:
            self._leave_abandoned()
            home = Home(
                self._conninfo,
                self._listen,
                self._location,
                self._limits,
                self._names.channel,
                sleep=self._sleep,
                rise=self._rise,
                tell=self._tell,
            )
            with self._homes_lock:
                self._homes[key] = home
        return home

    def _leave_abandoned(self) -> None:
        """Close what event loops have left behind that are closed themselves."""
        with self._homes_lock:
            for key, home in list(self._homes.items()):
                if home.is_abandoned:
                    home.hang_up()
                    del self._homes[key]

    async def _chore(self, speak: Speak[T]) -> T:
        return await self._home().chores.run(speak)

    async def _value(self, statement: str, *values: object) -> Any:
        ((value,),) = await self._chore(
            lambda cursor: work.fetch(cursor, self._sql[statement], values)
        )
        return value

    async def _look(self, speak: Speak[T]) -> T:
        return await self._home().look(speak)

    async def _sleep(self, sleeper: str, span: timedelta) -> None:
        served = self._served
        queues = None if served is None or not served.queues else list(served.queues)
        others = None if served is None or not served.excluded else list(served.excluded)
        kinds = None if served is None or not served.kinds else list(served.kinds)
        worker = None if served is None else served.id
        await self._value("sleep", sleeper, worker, queues, others, kinds, span)

    async def _rise(self, sleeper: str) -> None:
        await self._value("rise", sleeper)

    async def _tell(self, word: str) -> None:
        await self._value("tell", word)

    def after_fork_in_child(self) -> None:
        """Begin anew: a connection belongs to the process that made it."""
        _inherited.append((list(self._homes.values()), self._pool, self._heart))
        self._start_anew()


_inherited: list[object] = []
"""Kept, so that nothing of a parent process is closed by the child's garbage collection."""
_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for store in list(_stores):
        store.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
