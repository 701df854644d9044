"""Nothing is ever stranded below a floor, whatever transactions, clocks and roles do.

Each case brings a worker's floor above a job that it can see only later; then the worker goes on as
the claimer does, and must find the job by a later sweep. That each case can fail is tested, too:
without sweeps none of the jobs is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.clocked_stores import Clocked, opened
from tests.support.database_roles import MAY_ENQUEUE, role
from windlass.core.changes import Changes
from windlass.core.claims.plan import Policies, plan
from windlass.core.claims.room import Pool, Room
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Job, NewJob
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.postgres import PostgresStore
from windlass.store.postgres.lane_cache import LaneCache

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=30)
POLL = timedelta(milliseconds=200)
PATIENCE = 60.0
POLICIES = Policies(kinds={"work": Pool.LOOP})
MANY = 1_000


class Hunter:
    """A worker that looks for jobs as the claimer does, and keeps what it claimed."""

    def __init__(self, store: PostgresStore, database: Clocked) -> None:
        self.store = store
        self.database = database
        self.claimed: dict[UUID, Job] = {}
        self._numbers = count(1)

    # -- as the claimer does -------------------------------------------------------------------

    async def look(self, slots: int = MANY) -> None:
        """Do one round: sweep, promote, plan, claim; or rest."""
        sweep = await self.store.sweep(fresh=False)
        if sweep.next_due is not None and sweep.next_due <= sweep.now:
            await self.store.promote(MANY)
            sweep = await self.store.sweep(fresh=False)
        claim = plan(sweep.heads, POLICIES, Room(slots=slots, threads=0), at_most=MANY)
        if not claim.asks:
            await self.store.wait(sweep.mark, POLL)
            return
        jobs = await self.store.claim(claim, worker="hunter", token=next(self._numbers))
        self.claimed |= {job.id: job for job in jobs}

    async def find(self, job: UUID) -> None:
        """Go on until a job is found."""
        async with asyncio.timeout(PATIENCE):
            while job not in self.claimed:
                await self.look()

    # -- what happens --------------------------------------------------------------------------

    async def register(self, name: str = "hunter") -> None:
        await self.store.register(
            WorkerInfo(id=name, name=name, host="h", pid=1, release="1", lease=LEASE, slots=9)
        )

    async def beat(self) -> None:
        beaten = await asyncio.to_thread(self.store.heartbeat, "hunter", WorkerPulse(), LEASE)
        assert beaten

    def new(self, **fields: object) -> NewJob:
        milliseconds = int(self.database().timestamp() * 1_000)
        identity = job_id(milliseconds, next(self._numbers))
        return NewJob(id=identity, kind="work", payload=b"{}", **fields)  # type: ignore[arg-type]

    async def enqueue(self, **fields: object) -> UUID:
        """Enqueue a job, a second after the last thing that happened."""
        await self.database.advance(SECOND)
        (answer,) = await self.store.enqueue([self.new(**fields)])
        return answer.id

    async def raise_floor(self) -> None:
        """Claim a job that has just come, and leave one in the lane, so that it is not dry."""
        newer, last = await self.enqueue(), await self.enqueue()
        async with asyncio.timeout(PATIENCE):
            while newer not in self.claimed:
                await self.look(slots=1)
        assert last not in self.claimed

    async def settle(self, job: UUID, state: State, due: timedelta | None = None) -> None:
        claim = self.claimed.pop(job)
        assert claim.token is not None
        move = Transition(id=job, token=claim.token, state=state, due=due)
        assert await self.store.settle([move]) == [True]

    async def move(self, verb: Verb, job: UUID) -> None:
        changes = Changes(answer=None, moves=[Move(verb=verb, id=job, waiting_for="event")])
        applied = await self.store.apply([], lambda _records, _now: changes)
        assert applied.moved[0] is not None


# -- how a job comes to be below a floor -------------------------------------------------------


async def a_late_commit(hunter: Hunter) -> UUID:
    """An enqueue in a transaction that stays open while later jobs are claimed."""
    with psycopg.connect(hunter.database.url) as user:
        (answer,) = hunter.store.enqueue_in(user, [hunter.new()])
        await hunter.raise_floor()
        user.commit()
    return answer.id


async def a_late_commit_in_a_batch(hunter: Hunter) -> UUID:
    """The same, of many jobs by COPY."""
    with psycopg.connect(hunter.database.url) as user:
        ids = [hunter.new().id for _ in range(30)]
        with user.cursor().copy("COPY windlass.jobs (id, kind, payload) FROM STDIN") as copy:
            for each in ids:
                copy.write_row((each, "work", "{}"))
        await hunter.raise_floor()
        user.commit()
    return ids[17]


async def a_prepared_transaction(hunter: Hunter) -> UUID:
    """An enqueue that a transaction manager commits in two phases, the second much later."""
    with psycopg.connect(hunter.database.url) as user:
        # Its name is the whole server's, and other tests run beside this one.
        user.tpc_begin(user.xid(1, uuid4().hex, "branch"))
        (answer,) = hunter.store.enqueue_in(user, [hunter.new()])
        user.tpc_prepare()
        await hunter.raise_floor()
        user.tpc_commit()
    return answer.id


async def another_role(hunter: Hunter) -> UUID:
    """A late commit of a role whose transactions a worker is not allowed to see."""
    with role(hunter.database.url, MAY_ENQUEUE) as url, psycopg.connect(url) as user:
        (answer,) = hunter.store.enqueue_in(user, [hunter.new()])
        await hunter.raise_floor()
        user.commit()
    return answer.id


async def a_released_job(hunter: Hunter) -> UUID:
    """A job that is given back keeps its place, which is behind the floor by then."""
    job = await hunter.enqueue()
    await hunter.find(job)
    await hunter.raise_floor()
    await hunter.settle(job, State.PENDING)
    return job


async def a_rescued_job(hunter: Hunter) -> UUID:
    """A job whose worker was lost is taken over, and goes back to its place."""
    await hunter.register("mortal")
    job = await hunter.enqueue()
    claim = plan((await hunter.store.sweep()).heads, POLICIES, Room(slots=1, threads=0), at_most=1)
    assert len(await hunter.store.claim(claim, worker="mortal", token=99)) == 1
    for _ in range(4):
        await hunter.database.advance(LEASE / 3)
        await hunter.beat()
    await hunter.raise_floor()
    rescued = await hunter.store.rescue(worker="hunter", token=100, limit=MANY)
    hunter.claimed |= {job.id: job for job in rescued}
    await hunter.settle(job, State.PENDING)
    return job


async def a_promoted_job(hunter: Hunter) -> UUID:
    """A scheduled job that is promoted late, by somebody else, after younger ones were claimed."""
    job = await hunter.enqueue(due=SECOND / 2)
    await hunter.database.advance(SECOND)
    newer, last = await hunter.enqueue(), await hunter.enqueue()
    sweep = await hunter.store.sweep()
    assert sweep.next_due is not None
    claim = plan(sweep.heads, POLICIES, Room(slots=1, threads=0), at_most=1)
    (claimed,) = await hunter.store.claim(claim, worker="hunter", token=98)
    assert claimed.id == newer
    async with opened(hunter.database.url) as sibling:
        assert await sibling.promote(MANY) == 1
    assert (await hunter.store.get(last)) is not None
    return job


async def an_unparked_job(hunter: Hunter) -> UUID:
    """A job that waited for something else than time gets its old place back."""
    job = await hunter.enqueue()
    await hunter.move(Verb.PARK, job)
    await hunter.raise_floor()
    await hunter.move(Verb.UNPARK, job)
    async with opened(hunter.database.url) as sibling:
        await sibling.promote(MANY)
    return job


async def a_clock_that_steps_back(hunter: Hunter) -> UUID:
    """What comes after the server's clock was set back is due before what came earlier."""
    await hunter.raise_floor()
    await hunter.database.advance(-HOUR)
    await hunter.beat()
    return await hunter.enqueue()


Case = Callable[[Hunter], Awaitable[UUID]]
CASES: tuple[Case, ...] = (
    a_late_commit,
    a_late_commit_in_a_batch,
    a_prepared_transaction,
    another_role,
    a_released_job,
    a_rescued_job,
    a_promoted_job,
    an_unparked_job,
    a_clock_that_steps_back,
)


def name_of(case: Case) -> str:
    name: str = getattr(case, "__name__", "")
    return name


# -- what holds --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_later_sweep_finds(case: Case, database: Clocked) -> None:
    async def main() -> None:
        # Nobody tells it: what is found is found by looking.
        async with opened(database.url, listen_url="off") as store:
            hunter = Hunter(store, database)
            await hunter.register()
            await hunter.find(await case(hunter))

    asyncio.run(main())


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_without_a_sweep_a_late_commit_is_not_found(
    case: Case, database: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cases can fail: each brings a job below a floor that only a sweep lowers."""

    async def main() -> None:
        async with opened(database.url, listen_url="off") as store:
            hunter = Hunter(store, database)
            await hunter.register()
            job = await case(hunter)
            monkeypatch.setattr(LaneCache, "is_due", lambda _self, _now: False)
            before = len(hunter.claimed)
            for _ in range(5):
                await hunter.look()
            assert len(hunter.claimed) > before, "the lane's other jobs are still found"
            assert job not in hunter.claimed
            found = await store.get(job)
            assert found is not None
            assert found.state is State.PENDING

    asyncio.run(main())


def test_a_job_below_the_floor_of_a_dry_lane_is_found_without_waiting_for_a_poll(
    database: Clocked,
) -> None:
    """Prevents: a job that was given back waits for the poll although its worker knows of it."""

    async def main() -> None:
        async with opened(database.url, listen_url="off") as store:
            hunter = Hunter(store, database)
            await hunter.register()
            job = await hunter.enqueue()
            await hunter.find(job)
            await hunter.settle(job, State.PENDING)
            async with asyncio.timeout(PATIENCE):
                sweep = await store.sweep(fresh=False)
                while not sweep.heads:
                    await store.wait(sweep.mark, HOUR)
                    sweep = await store.sweep(fresh=False)

    asyncio.run(main())


def test_a_remembered_due_job_is_promoted_once(
    database: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: as long as a sweep is too dear, the claimer promotes in vain and claims nothing."""
    promotions = 0

    async def main() -> None:
        nonlocal promotions
        async with opened(database.url, listen_url="off") as store:
            hunter = Hunter(store, database)
            await hunter.register()
            await hunter.enqueue(due=timedelta(microseconds=1))
            await store.sweep()
            monkeypatch.setattr(LaneCache, "is_due", lambda _self, _now: False)
            sweep = await store.sweep(fresh=False)
            while sweep.next_due is not None:
                await database.advance(SECOND)
                promotions += 1
                assert promotions < 3
                await store.promote(MANY)
                sweep = await store.sweep(fresh=False)

    asyncio.run(main())
    assert promotions == 1


def test_a_transaction_in_two_phases_turns_wake_ups_off(database: Clocked) -> None:
    """PostgreSQL prepares none that has notified, so whoever commits in two phases says so."""
    sleeper = "INSERT INTO windlass.sleepers (id, until) VALUES ('s', 'infinity')"
    database.db.execute(sleeper)
    job = """SELECT windlass.enqueue('{"kind": "work"}')"""
    with psycopg.connect(database.url, autocommit=True) as user:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="PREPARE"):
            user.execute(f"BEGIN; {job}; PREPARE TRANSACTION 'loud'".encode())
        user.execute("ROLLBACK")
        name = uuid4().hex
        quiet = f"BEGIN; SET LOCAL windlass.wake = 'off'; {job}; PREPARE TRANSACTION '{name}'"
        user.execute(quiet.encode())
        user.execute(f"COMMIT PREPARED '{name}'".encode())
    assert database.db.execute("SELECT count(*) FROM windlass.jobs").fetchone() == (1,)
