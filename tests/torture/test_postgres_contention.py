"""Many at once: pools that are used up, rows that everybody wants, deadlocks made on purpose."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import CALM, LEASE, PATIENCE, WorkerProcess, until
from tests.torture.test_postgres_crashes import EFFECTS
from windlass import InvalidTransition, State, UnknownJob, Windlass
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.changes import Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import SCHEDULE, Job, Lane, NewJob
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.settle import Transition
from windlass.core.workers import WorkerInfo

LANE = Lane("default", "raced")

# -- case 27 -----------------------------------------------------------------------------------


def hold_every_connection(yard: PostgresYard) -> tuple[WorkerProcess, list[UUID]]:
    """Start a worker, and return it with the jobs that hold all of its pools' connections."""
    yard.ask(EFFECTS)
    pool = {"WINDLASS_POOL_SIZE": "1", "WINDLASS_POOL_OVERFLOW": "1"}
    worker = yard.worker(environ=pool, patches=CALM)
    worker.started()
    holders = [
        yard.enqueue(kind, gate="all", attempts=9)
        for kind in ("transact", "transact", "transact_in_thread", "transact_in_thread")
    ]
    for job in holders:
        until(lambda: yard.ledger.entries("inside", job), f"{job} in its transaction")  # noqa: B023
    return worker, holders


@pytest.mark.long
def test_handlers_that_hold_every_pooled_connection_keep_nobody_from_settling(
    postgres_yard: PostgresYard,
) -> None:
    """Case 27. Prevents user code from starving the heartbeat, and so from losing its own lease."""
    yard = postgres_yard
    rival = yard.worker(app="stranger")
    worker, holders = hold_every_connection(yard)
    worker_id, rival_id = worker.started(), rival.started()
    greedy = yard.enqueue("transact")
    yard.begun(greedy)
    until(lambda: idle_in_transactions(yard) == 4, "nobody in a transaction but them")
    since = _last_seen(yard, worker_id)

    yard.seasoned(rival_id, worker_id)
    settled = [yard.settled(yard.enqueue("quick")) for _ in range(3)]
    until(lambda: _last_seen(yard, worker_id) - since > 1.5 * LEASE, "a lease that is renewed")
    assert {job.state for job in settled} == {State.COMPLETED}
    assert not yard.ledger.entries("inside", greedy)

    yard.open_gate("all")
    done = [yard.settled(job) for job in (*holders, greedy)]
    assert [(job.state, job.attempt, job.crashes) for job in done] == [(State.COMPLETED, 1, 0)] * 5
    assert not worker.events("lease.lost")
    assert not rival.events("job.rescued")


@pytest.mark.long
def test_handlers_that_hold_every_pooled_connection_keep_nobody_from_limits_flows_and_ticks(
    postgres_yard: PostgresYard,
) -> None:
    """Case 27. Prevents tokens, flows and schedules that wait until some handler has committed."""
    yard = postgres_yard
    worker, holders = hold_every_connection(yard)
    limited = yard.enqueue_many("limited", 8)
    flow = yard.app.flow("pair")
    first = flow.add(yard.producer("quick").draft({}))
    flow.add(yard.producer("quick").draft({}), after=[first])
    flow.enqueue()
    yard.call(yard.app.schedules.aput("often", yard.producer("quick").draft({}), every="1s"))

    soon = 15.0  # Who waits for a connection of the pool is not there by then.
    done = [yard.settled(job, within=soon) for job in (*limited, flow.id)]
    assert {job.state for job in done} == {State.COMPLETED}
    until(lambda: len(ticks(yard)) > 1, "two ticks", within=soon)
    assert not any(yard.ledger.entries("committed", job) for job in holders), "they hold all still"
    assert not worker.events("lease.lost")


def ticks(yard: PostgresYard) -> list[Job]:
    found = yard.call(yard.app.store.find(JobFilter(kind="quick"), limit=1000)).jobs
    return [job for job in found if SCHEDULE in job.headers and job.state is State.COMPLETED]


def idle_in_transactions(yard: PostgresYard) -> int:
    return len(
        yard.ask(
            "SELECT 1 FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        )
    )


def _last_seen(yard: PostgresYard, worker: str) -> float:
    (seen,) = [each.last_seen for each in yard.workers() if each.info.id == worker]
    return seen.timestamp()


# -- case 28 -----------------------------------------------------------------------------------


CROWD = 16
ROUNDS = 6
NOW = Retention(finished=timedelta(0), dead=timedelta(0))


def info(name: str) -> WorkerInfo:
    return WorkerInfo(
        id=name, name=name, host="here", pid=1, release="1", lease=timedelta(minutes=5), slots=9
    )


class Worker:
    """A worker that does everything at once, by connections of its own."""

    def __init__(self, url: str, number: int) -> None:
        self.app = Windlass(url, listen_url="off", pool_size=2, pool_overflow=2)
        self.store = self.app.store
        self.name = f"worker-{number}"
        self._lost = 0
        self._ids = IdGenerator()
        self.done = {"completed": 0, "rescued": 0, "cancelled": 0, "pruned": 0}

    async def live(self) -> None:
        """Do every sort of write, round after round, and let whatever is raised be raised."""
        for _ in range(ROUNDS):
            await asyncio.gather(
                self._enqueue(), self._work(), self._lose(), self._rescue(), self._cancel()
            )
            self.done["pruned"] += await self.store.prune(NOW, 20)
        await self.app.aclose()

    async def _enqueue(self) -> None:
        new = [NewJob(id=self._ids.next(), kind=LANE.kind, payload=b"{}") for _ in range(8)]
        await self.store.enqueue(new)

    async def _claim(self, worker: str, count: int) -> list[Job]:
        claim = Claim(asks=(Ask(lane=LANE, count=count),))
        return await self.store.claim(claim, worker=worker, token=secrets.randbits(63))

    async def _work(self) -> None:
        """Claim some, and let each end in another way; none of them is anybody else's."""
        jobs = await self._claim(self.name, 6)
        ends = (State.COMPLETED, State.COMPLETED, State.PENDING, State.DEAD)
        moves = [move(job, ends[n % 4]) for n, job in enumerate(jobs)]
        assert all(await self.store.settle(moves))
        self.done["completed"] += len(moves)

    async def _lose(self) -> None:
        """Claim some as a worker that dies with them."""
        self._lost += 1
        lost = f"{self.name}-lost-{self._lost}"
        await self.store.register(info(lost))
        await self._claim(lost, 3)
        await self.store.retire(lost)

    async def _rescue(self) -> None:
        token = secrets.randbits(63)
        jobs = await self.store.rescue(worker=self.name, token=token, limit=10)
        moves = [move(job, State.PENDING, crashes=1) for job in jobs]
        assert all(await self.store.settle(moves))
        self.done["rescued"] += len(jobs)

    async def _cancel(self) -> None:
        page = await self.store.find(JobFilter(states=(State.PENDING,)), limit=4)
        for job in page.jobs:
            try:
                await self.app.control.acancel(job.id)
                self.done["cancelled"] += 1
            except (InvalidTransition, UnknownJob):
                continue  # Somebody else was faster.


def move(job: Job, state: State, crashes: int = 0) -> Transition:
    assert job.token is not None
    return Transition(id=job.id, token=job.token, state=state, crashes=crashes)


@pytest.mark.long
def test_sixteen_workers_that_write_the_same_rows_meet_no_deadlock(
    postgres_yard: PostgresYard,
) -> None:
    """Case 28. Prevents 40P01 from reaching anybody: locks are taken in one order, or skipped."""
    yard = postgres_yard
    workers = [Worker(yard.plain_url, number) for number in range(CROWD)]

    async def main() -> None:
        for worker in workers:
            await worker.store.register(info(worker.name))
        yard.ask("UPDATE workers SET since = since - 2 * lease")  # Now they may rescue.
        await asyncio.gather(*[worker.live() for worker in workers])

    asyncio.run(main())
    for what in ("completed", "rescued", "cancelled", "pruned"):
        assert sum(worker.done[what] for worker in workers) > CROWD, what
    assert yard.value("SELECT count(*) FROM jobs WHERE state = 'running' AND worker IS NULL") == 0


def set_default(yard: PostgresYard, name: str, value: str) -> None:
    with yard.raw() as db:
        db.execute(f"ALTER DATABASE \"{db.info.dbname}\" SET {name} = '{value}'".encode())


@contextmanager
def rival(yard: PostgresYard) -> Iterator[psycopg.Connection[Any]]:
    """Give a transaction that never finds a deadlock itself, so that others are its victims."""
    with psycopg.connect(yard.url) as db:
        db.execute("SET deadlock_timeout = '60s'")
        db.execute("SET search_path = windlass")
        db.commit()
        yield db


LOCK = "SELECT 1 FROM jobs WHERE id = %s FOR UPDATE"


@pytest.mark.parametrize("end", [State.COMPLETED, State.DEAD, State.CANCELLED])
def test_a_deadlock_that_somebody_else_makes_is_survived(
    postgres_yard: PostgresYard, end: State
) -> None:
    """Case 28. Prevents an outcome, or an order, from being lost to another's careless SQL.

    Somebody locks the second job and waits for the first, which we have: we are the victim. A
    session looks for a deadlock once, after its timeout: the other must wait by then.
    """
    yard = postgres_yard
    set_default(yard, "deadlock_timeout", "2s")
    ids, ours = prepared_to(yard, end)
    before = deadlocks(yard)
    with rival(yard) as db:
        db.execute(LOCK, (ids[1],))
        ours.start()
        until(lambda: waits(yard), "us, waiting for the second job")
        db.execute(LOCK, (ids[0],))
        db.commit()
    ours.join(PATIENCE)

    assert [yard.job(job).state for job in ids] == [end] * 2
    until(lambda: deadlocks(yard) > before, "a deadlock in the server's books")


@pytest.mark.parametrize("end", [State.COMPLETED, State.DEAD, State.CANCELLED])
def test_a_race_that_is_lost_under_repeatable_read_is_run_again(
    postgres_yard: PostgresYard, end: State
) -> None:
    """Case 28. Prevents 40001 from reaching anybody in a database that isolates more than ours."""
    yard = postgres_yard
    set_default(yard, "default_transaction_isolation", "repeatable read")
    ids, ours = prepared_to(yard, end)
    with rival(yard) as db:
        db.execute("UPDATE jobs SET updated_at = clock() WHERE id = %s", (ids[1],))
        ours.start()
        until(lambda: waits(yard), "us, waiting for the second job")
        db.commit()
    ours.join(PATIENCE)

    assert [yard.job(job).state for job in ids] == [end] * 2


def prepared_to(yard: PostgresYard, end: State) -> tuple[list[UUID], threading.Thread]:
    """Return two jobs, in the order in which they are locked, and a thread that will end both."""
    ids = sorted(yard.enqueue_many(LANE.kind, 2))
    app = Windlass(yard.plain_url, listen_url="off")

    async def claim() -> None:
        await app.store.register(info("victim"))
        ask = Claim(asks=(Ask(lane=LANE, count=2),))
        assert len(await app.store.claim(ask, worker="victim", token=7)) == 2
        await app.aclose()

    async def finish() -> None:
        if end is State.CANCELLED:
            moves = [Move(verb=Verb.CANCEL, id=job) for job in ids]
            await app.store.apply([], lambda _, __: Changes(answer=None, moves=moves))
        else:
            settled = [Transition(id=job, token=7, state=end) for job in ids]
            assert await app.store.settle(settled) == [True, True]
        await app.aclose()

    if end is not State.CANCELLED:
        asyncio.run(claim())
    return ids, threading.Thread(target=lambda: asyncio.run(finish()))


def waits(yard: PostgresYard) -> bool:
    return bool(
        yard.ask(
            "SELECT 1 FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    )


def deadlocks(yard: PostgresYard) -> int:
    found = yard.value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(found)
