"""Owns the PostgreSQL store: the contract's methods, and which connection carries each.

Claims and settles go by the hot line, a worker's rounds by a line of their own, the lease by a
third connection, and the pool has some to spare for what else a worker has to do: nothing that
users do with it can keep a worker from its duties.
"""

from __future__ import annotations

import os
import random
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import psycopg

from windlass.core.changes import Applied, Decide, Hear
from windlass.core.errors import StoreUnavailable
from windlass.core.job import (
    Checkpoint,
    Claim,
    Connections,
    Depths,
    Enqueued,
    ErrorGroup,
    Finding,
    Job,
    JobFilter,
    Json,
    NewJob,
    News,
    Page,
    Progress,
    Pulse,
    QueueCount,
    Retention,
    Ringing,
    Standing,
    Sweep,
    WorkerInfo,
    WorkerRecord,
)
from windlass.core.settle import Transition
from windlass.store.columns import as_json
from windlass.store.postgres import health, hot, looking, schema, work
from windlass.store.postgres.enqueueing import Enqueueing
from windlass.store.postgres.foreign import aforeign, foreign
from windlass.store.postgres.heartbeat import Heartbeat
from windlass.store.postgres.home import Home
from windlass.store.postgres.homes import Homes
from windlass.store.postgres.line import Speak
from windlass.store.postgres.pool import AsyncPool, Limits, Pool
from windlass.store.postgres.rows import (
    job_of,
    news_document,
    worker_of,
)
from windlass.store.postgres.schema import Names
from windlass.store.postgres.transaction import Transaction
from windlass.store.postgres.wire import (
    Wire,
    conninfo_of,
    location_of,
    translate,
)
from windlass.store.protocol import WORKERS_KEPT, Capabilities, Schema
from windlass.store.sql import Migration

T = TypeVar("T")
_MIGRATION = 3600.0
_TRIES = 5


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
        self.capabilities = replace(type(self).capabilities, wakes=self._listen is not None)
        self._location = location_of(self._conninfo, schema)
        self._limits = limits or Limits()
        self._sql = self._names.statements()
        self._served: WorkerInfo | None = None
        self._start_anew()
        _stores.add(self)

    def _start_anew(self) -> None:
        """Own no connection; those of a parent process are its own, and left alone."""
        self._homes = Homes()
        self._pool = Pool(self._conninfo, self._location, self._limits)
        self._enqueueing = Enqueueing(self._sql)
        self._heartbeat = Heartbeat(self._conninfo, self._location, self._sql["beat"])
        self._checked = False

    @property
    def location(self) -> str:
        """The server, database and schema, without secrets."""
        return self._location

    @property
    def listening(self) -> bool:
        """Whether any event loop of this process hears of new jobs."""
        return self._homes.listening

    @property
    def connections(self) -> Connections:
        """Those of the pools of this process, for blocking and for awaited use."""
        pools: list[Pool | AsyncPool] = [self._pool, *self._homes.pools]
        return Connections(
            open=sum(pool.open for pool in pools),
            in_use=sum(pool.in_use for pool in pools),
            limit=self._limits.most * len(pools),
        )

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
        await self._homes.close_here()
        self._pool.close()
        self._pool = Pool(self._conninfo, self._location, self._limits)
        self._heartbeat.close()

    # -- the hot path --------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        # Safe to repeat: an id that is known already is not added again.
        return await self._home().borrow(
            lambda wire: self._enqueueing.carry(wire, jobs), again=True
        )

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        return self._persist(lambda wire: self._enqueueing.carry_blocking(wire, jobs), timeout)

    def _persist(self, speak: Callable[[Wire], T], timeout: timedelta) -> T:
        """Say something in a user's thread, again and again if the server is away for a moment."""
        deadline = time.monotonic() + timeout.total_seconds()
        for attempt in range(_TRIES):
            left = deadline - time.monotonic()
            try:
                return self._say(speak, max(left, 0.001))
            except StoreUnavailable:
                # Safe to repeat: an id that is known already is not added again.
                pause = 0.05 * 2**attempt * random.uniform(0.5, 1)  # noqa: S311 - spreads load.
                if attempt == _TRIES - 1 or time.monotonic() + pause >= deadline:
                    raise
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _say(self, speak: Callable[[Wire], T], patience: float) -> T:
        try:
            with self._pool.connection(patience) as wire:
                return speak(wire)
        except psycopg.Error as error:
            raise translate(error, self._location) from error

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._enqueueing.carry_in(transaction, jobs)

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._enqueueing.acarry_in(transaction, jobs)

    async def sweep(self, *, fresh: bool = True) -> Sweep:
        look = hot.sweep if fresh else hot.believed_sweep
        return await look(self._home(), self._sql)

    async def wait(self, mark: int, timeout: timedelta) -> None:
        await self._home().wait(mark, timeout.total_seconds())

    async def busy(self) -> None:
        await self._home().ear.rest_no_more()

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        return await hot.claim(self._home(), self._sql, claim, worker, token)

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        return await hot.settle(self._home(), self._sql, transitions)

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        values = (as_json(progress), job, token)
        return (
            await self._chore(lambda cursor: work.count(cursor, self._sql["progress"], values)) > 0
        )

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        return await hot.checkpoint(self._home(), self._sql, checkpoints)

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
        ((pruned,),) = await self._duty(
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
        return self._heartbeat.beat(worker, pulse, timeout)

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
        return await self._duty(
            lambda cursor: work.apply(cursor, self._sql, self._names.schema, names, decide),
            again=False,
        )

    async def ringing(self, limit: int) -> Ringing:
        return await self._chore(lambda cursor: work.ringing(cursor, self._sql, limit))

    async def topics(self, limit: int) -> list[str]:
        text = self._sql["news_topics"]
        rows = await self._chore(lambda cursor: work.fetch(cursor, text, (max(limit, 1),)))
        return [row[0] for row in rows]

    async def hear(self, topics: Sequence[str], decide: Hear[T]) -> Applied[T]:
        return await self._duty(
            lambda cursor: work.hear(cursor, self._sql, self._names.schema, topics, decide),
            again=False,
        )

    async def send(self, news: Sequence[News]) -> None:
        values = (news_document(news),)
        await self._look(lambda cursor: work.fetch(cursor, self._sql["send_news"], values))

    def send_blocking(self, news: Sequence[News], timeout: timedelta) -> None:
        values = (news_document(news),)
        self._persist(lambda wire: wire.execute(self._sql["send_news"], values), timeout)

    def send_in(self, transaction: object, news: Sequence[News]) -> None:
        foreign(transaction, self._sql["send_news"], news_document(news))

    async def asend_in(self, transaction: object, news: Sequence[News]) -> None:
        await aforeign(transaction, self._sql["send_news"], news_document(news))

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
        return await self._look(lambda cursor: looking.get(cursor, self._sql, job))

    async def get_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        return await self._duty(lambda cursor: looking.get_many(cursor, self._sql, jobs))

    async def done(self, kind: str, key: str) -> Job | None:
        values = {"kind": kind, "key": key}
        rows = await self._duty(lambda cursor: work.fetch(cursor, self._sql["done"], values))
        return job_of(rows[0]) if rows else None

    async def find(self, which: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        return await self._duty(lambda cursor: looking.find(cursor, self._sql, which, limit, after))

    async def error_groups(self, *, kind: str | None = None, limit: int) -> list[ErrorGroup]:
        return await self._look(lambda cursor: looking.error_groups(cursor, self._sql, kind, limit))

    async def counts(self) -> list[QueueCount]:
        return await self._look(lambda cursor: looking.counts(cursor, self._sql))

    async def standing(self, job: UUID, *, limit: int) -> Standing:
        return await self._look(lambda cursor: looking.standing(cursor, self._sql, job, limit))

    async def depths(self, most: int) -> Depths:
        return await self._duty(lambda cursor: looking.depths(cursor, self._sql, most))

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        return await self._duty(
            lambda cursor: looking.arrivals(cursor, self._sql, since, until, most)
        )

    async def workers(self) -> list[WorkerRecord]:
        rows = await self._duty(lambda cursor: work.fetch(cursor, self._sql["list_workers"]))
        return [worker_of(row) for row in rows]

    async def findings(self) -> list[Finding]:
        ear = self._home().ear
        return await self._duty(lambda cursor: health.findings(cursor, self._sql, ear))

    # -- connections ---------------------------------------------------------------------------

    def _home(self) -> Home:
        return self._homes.here(self._make_home)

    def _make_home(self) -> Home:
        return Home(
            self._conninfo,
            self._listen,
            self._location,
            self._limits,
            self._names.channel,
            sleep=self._sleep,
            rise=self._rise,
            tell=self._tell,
        )

    async def _chore(self, speak: Speak[T]) -> T:
        return await self._home().chores.run(speak)

    async def _value(self, statement: str, *values: object) -> Any:
        ((value,),) = await self._chore(
            lambda cursor: work.fetch(cursor, self._sql[statement], values)
        )
        return value

    async def _look(self, speak: Speak[T]) -> T:
        return await self._home().look(speak)

    async def _duty(self, speak: Speak[T], *, again: bool = True) -> T:
        """Say what a worker has to, though handlers may hold all that is theirs of the pool."""
        return await self._home().look(speak, again=again, duty=True)

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
        _inherited.append((self._homes, self._pool, self._heartbeat))
        self._start_anew()


_inherited: list[object] = []
"""Kept, so that nothing of a parent process is closed by the child's garbage collection."""
_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for store in list(_stores):
        store.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
