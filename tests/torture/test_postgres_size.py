"""Much of everything: history, lanes, waiting jobs. What a claim touches is counted, not timed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, LiteralString, TypeVar

import psycopg
import pytest

from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import until
from windlass import State
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.claims.plan import Policies, plan
from windlass.core.claims.room import Pool, Room
from windlass.core.jobs.job import Job, Lane, NewJob
from windlass.core.jobs.settle import Transition
from windlass.core.workers import WorkerInfo
from windlass.store.postgres import PostgresStore, claim_and_settle

T = TypeVar("T")
BATCH = 500
WORKER = "counter"
POLICIES = Policies(kinds={"passed": Pool.LOOP})


class Bench:
    """A store in this process, and a second look at what its statements touch."""

    def __init__(self, yard: PostgresYard, url: str | None = None) -> None:
        self._yard = yard
        self._runner = asyncio.Runner()
        self.store = PostgresStore(url or yard.plain_url, listen_url="off")
        self.run(self.store.register(info(WORKER)))

    def close(self) -> None:
        self.run(self.store.close())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def next_claim(self, at_most: int = BATCH) -> Claim:
        """Return what a worker asks for as soon as it believes that there is something."""
        room = Room(slots=at_most, threads=1)
        claim = until(lambda: self._plan(room, at_most), "a lane with jobs")
        assert claim is not None
        return claim

    def _plan(self, room: Room, at_most: int) -> Claim | None:
        heads = self.run(self.store.sweep(fresh=False)).heads
        claim = plan(heads, POLICIES, room, at_most=at_most)
        return claim if claim.asks else None

    def pass_jobs(self, count: int, priorities: int) -> None:
        """Let jobs pass, from their enqueue to their end."""
        ids = IdGenerator()
        for _ in range(count // BATCH):
            new = [
                NewJob(id=ids.next(), kind="passed", payload=b"{}", priority=n % priorities)
                for n in range(BATCH)
            ]
            self.run(self.store.enqueue(new))
            self.drain(BATCH)

    def drain(self, count: int) -> None:
        """Claim as many jobs, and complete them."""
        while count > 0:
            token = secrets.randbits(63)
            jobs = self.run(self.store.claim(self.next_claim(), worker=WORKER, token=token))
            moves = [Transition(id=job.id, token=token, state=State.COMPLETED) for job in jobs]
            assert all(self.run(self.store.settle(moves)))
            count -= len(jobs)

    def touched_by_claim(self, claim: Claim) -> int:
        """Count the pages that a claim touches, which gets what it asks for; it is rolled back."""
        values = (*claim_and_settle.claim_values(claim, WORKER, 1), "f")
        rows = min(claim.budgets.get("slots", 10**6), sum(ask.count for ask in claim.asks))
        return self.touched(self.store.sql["claim"], values, rows=rows)

    def touched(
        self,
        statement: str,
        values: Any = None,
        rows: int | None = None,
        *,
        by_index_only: bool = False,
    ) -> int:
        """Count the pages that a statement touches, those of its functions included."""
        explain = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}".encode()
        with self._yard.raw() as db:
            for _ in range(2):  # The first time a session reads much of the catalog.
                with db.transaction(force_rollback=True):
                    if by_index_only:
                        db.execute(self.store.sql["by_index_only"].encode(), {"timeout": "60s"})
                    row = db.execute(explain, values).fetchone()
        assert row is not None
        told = row[0][0]["Plan"]
        assert rows in (None, told["Actual Rows"])
        return sum(told[f"Shared {what} Blocks"] for what in ("Hit", "Read"))


def info(name: str) -> WorkerInfo:
    return WorkerInfo(
        id=name, name=name, host="here", pid=1, release="1", lease=timedelta(hours=1), slots=9
    )


@pytest.fixture
def bench(postgres_yard: PostgresYard) -> Iterator[Bench]:
    """Give a store in this process."""
    bench = Bench(postgres_yard)
    yield bench
    bench.close()


# -- case 29 -----------------------------------------------------------------------------------


PASSED = 30_000
PRIORITIES = 3


@contextmanager
def old_snapshot(yard: PostgresYard) -> Iterator[None]:
    """Hold a snapshot, so that nothing that is deleted meanwhile can be cleaned up."""
    with psycopg.connect(yard.url) as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT 1")
        yield


@pytest.mark.long
def test_an_old_snapshot_does_not_make_claims_walk_through_what_has_passed(
    postgres_yard: PostgresYard, bench: Bench
) -> None:
    """Case 29. Prevents a forgotten transaction elsewhere from slowing every claim, more and more.

    The claim without floors shows what it is spared: it walks past everything that was deleted.
    """
    yard = postgres_yard
    bench.pass_jobs(BATCH, PRIORITIES)
    first = _touched(bench)
    with old_snapshot(yard):
        bench.pass_jobs(PASSED, PRIORITIES)
        last = _touched(bench)
        bottom = _touched(bench, floors=False)

    assert last < 2 * first + 100, (first, last)
    assert bottom > 4 * last, (last, bottom)


def _touched(bench: Bench, *, floors: bool = True) -> int:
    """Count the pages that the claim of ten new jobs touches, and let them pass."""
    ids = IdGenerator()
    new = [
        NewJob(id=ids.next(), kind="passed", payload=b"{}", priority=n % PRIORITIES)
        for n in range(BATCH)
    ]
    bench.run(bench.store.enqueue(new))
    claim = bench.next_claim(at_most=10)
    if not floors:
        claim = Claim(asks=tuple(_without_floor(ask) for ask in claim.asks), budgets=claim.budgets)
    touched = bench.touched_by_claim(claim)
    bench.drain(BATCH)
    return touched


def _without_floor(ask: Ask) -> Ask:
    return Ask(lane=ask.lane, count=ask.count, draws=ask.draws)


# -- case 30 -----------------------------------------------------------------------------------


HOSTILE = {
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_tidscan": "off",
    "enable_nestloop": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "random_page_cost": "1e6",
    "cpu_index_tuple_cost": "1e6",
    "join_collapse_limit": "1",
    "from_collapse_limit": "1",
    "cursor_tuple_fraction": "1",
    "work_mem": "64kB",
    "plan_cache_mode": "force_generic_plan",
    "search_path": "pg_temp",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "array_nulls": "off",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
}


def quoted(value: str) -> str:
    return value if "," in value else f"'{value}'"


@contextmanager
def hostile_role(yard: PostgresYard) -> Iterator[str]:
    """Make a role whose sessions are set against us, and return the URL for it."""
    name = f"hostile_{secrets.token_hex(5)}"
    with yard.raw() as db:
        db.execute(f"CREATE ROLE {name} LOGIN SUPERUSER".encode())
        for setting, value in HOSTILE.items():
            db.execute(f"ALTER ROLE {name} SET {setting} = {quoted(value)}".encode())
        host, port, database = db.info.host, db.info.port, db.info.dbname
        try:
            yield f"postgresql://{name}@{host}:{port}/{database}"
        finally:
            db.execute(f"DROP ROLE {name}".encode())


def test_a_session_with_hostile_settings_never_claims_more_than_it_asked_for(
    postgres_yard: PostgresYard,
) -> None:
    """Case 30. Prevents a plan that claims rows twice, or a whole table, from ever being chosen."""
    yard = postgres_yard
    lanes = [Lane("default", "passed", priority) for priority in range(3)]
    ids = IdGenerator()
    new = [
        NewJob(id=ids.next(), kind="passed", payload=b"{}", priority=n % 3, timeout=timedelta(1))
        for n in range(600)
    ]
    with hostile_role(yard) as url:
        benches = [Bench(yard, url) for _ in range(2)]
        benches[0].run(benches[0].store.enqueue(new))
        yard.ask("ANALYZE jobs")
        taken: list[Job] = []
        for number in range(12):
            bench = benches[number % 2]
            asks = tuple(Ask(lane=lane, count=7, draws=("slots",)) for lane in lanes)
            claim = Claim(asks=asks, budgets={"slots": 11})
            jobs = bench.run(bench.store.claim(claim, worker=WORKER, token=number + 1))
            assert [job.priority for job in jobs] == [0] * 7 + [1] * 4
            moves = [Transition(id=job.id, token=number + 1, state=State.COMPLETED) for job in jobs]
            assert all(bench.run(bench.store.settle(moves)))
            taken += jobs
        for bench in benches:
            bench.close()
    assert len({job.id for job in taken}) == len(taken) == 12 * 11
    assert {job.timeout for job in taken} == {timedelta(1)}
    oldest = sorted(job.id for job in taken if job.priority == 0)
    assert oldest == sorted(job.id for job in new if job.priority == 0)[: len(oldest)]


# -- case 47 -----------------------------------------------------------------------------------


FEW = 10_000
MANY = 200_000
"""Of the million, as many as can be had in a second or two; the benchmark has all of them."""
QUEUES = 10_000
COUNTED = 1_000
"""How many jobs of each state a count looks at."""
FILL: LiteralString = """
INSERT INTO jobs (id, kind, queue, payload)
SELECT ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'passed',
       'queue-' || n %% %s, '{}'
FROM generate_series(%s::int, %s::int) AS n
"""


def fill(yard: PostgresYard, first: int, last: int) -> None:
    """Put jobs into ten thousand queues."""
    with yard.unindexed() as db:
        db.execute(FILL, (QUEUES, first, last))


def test_a_long_queue_costs_a_claim_no_more_than_a_short_one(
    postgres_yard: PostgresYard, bench: Bench
) -> None:
    """Case 47. Prevents a backlog from feeding itself: the longer the queue, the slower its end.

    A sweep costs by the lane, not by the job. A count looks at a bounded number of jobs.
    """
    yard = postgres_yard
    fill(yard, 1, FEW)
    few = Costs(yard, bench)
    fill(yard, FEW + 1, MANY)
    many = Costs(yard, bench)

    assert many.claim < few.claim + 20, vars(many)
    assert many.sweep < 2 * few.sweep, vars(many)
    assert many.sweep < 8 * QUEUES, vars(many)
    assert many.counts < 3 * COUNTED < many.table, vars(many)


class Costs:
    """How many pages are touched by what workers and people do."""

    def __init__(self, yard: PostgresYard, bench: Bench) -> None:
        one = Claim(asks=(Ask(lane=Lane("queue-7", "passed"), count=1),))
        self.claim = bench.touched_by_claim(one)
        self.sweep = bench.touched(bench.store.sql["sweep"])
        self.table = int(yard.value("SELECT pg_relation_size('jobs') / 8192"))
        bounds = {"most": COUNTED, "queues": 100}
        self.counts = bench.touched(bench.store.sql["depths"], bounds, by_index_only=True)
