"""Workers that die, stand still or come back too late: no job is lost, none is settled twice."""

from __future__ import annotations

import asyncio
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.worker_processes import LEASE, NOISE, PATIENCE, WorkerProcess, Yard, until
from windlass import Context, Handler, Snooze, State, StoreUnavailable, Windlass
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Job, Lane, NewJob
from windlass.core.jobs.settle import Transition
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.handlers.registry import Registry
from windlass.store.memory import MemoryStore
from windlass.store.postgres import PostgresStore
from windlass.store.protocol import Store
from windlass.store.sqlite import SqliteStore
from windlass.worker import Worker, WorkerOptions


def two_workers(yard: Yard, job: UUID) -> tuple[WorkerProcess, str, WorkerProcess, str]:
    """Start two workers, and return the one that runs a job, then the one that may rescue it."""
    workers = [yard.worker(), yard.worker()]
    ids = {worker.pid: worker.started() for worker in workers}
    pid = yard.begun(job)
    holder, other = sorted(workers, key=lambda worker: worker.pid != pid)
    yard.seasoned(ids[other.pid])
    return holder, ids[holder.pid], other, ids[other.pid]


def test_a_job_whose_worker_was_killed_runs_again_within_two_leases_and_once(yard: Yard) -> None:
    """Case 1. Prevents the job that is lost, or run twice more, when a machine loses a process."""
    job = yard.enqueue("wait", gate="never", attempts=1)
    holder, holder_id, other, other_id = two_workers(yard, job)

    killed_at = datetime.now(UTC).timestamp()
    holder.kill()
    done = yard.settled(job)

    assert (done.state, done.attempt, done.crashes, done.failures) == (State.COMPLETED, 2, 0, 0)
    assert done.worker == other_id
    assert [attempt.outcome for attempt in done.history] == ["lost"]
    first, second = yard.ledger.entries("start", job)
    assert (first.pid, second.pid) == (holder.pid, other.pid)
    assert len(yard.ledger.entries("end", job)) == 1
    assert second.at - killed_at < 2 * LEASE + NOISE
    assert other.event("job.rescued", job_id=str(job))["lost_by"] == holder_id


@pytest.mark.long
def test_a_late_acknowledgement_changes_nothing_and_is_logged(yard: Yard) -> None:
    """Case 2. Prevents a worker that stood still from overwriting the outcome of its successor.

    The handler blocks the loop until the end, so that the stale worker acknowledges before it
    can learn that its lease is lost.
    """
    job = yard.enqueue("block_loop_until", gate="late", attempts=1)
    holder, _, other, other_id = two_workers(yard, job)

    yard.freeze(holder)
    before = yard.settled(job)
    yard.open_gate("late")
    holder.thaw()
    fenced = holder.event("job.fenced", job_id=str(job))

    assert fenced["outcome"] == "completed"
    assert (before.state, before.worker, before.attempt) == (State.COMPLETED, other_id, 2)
    assert before.result == str(other.pid).encode()
    assert yard.job(job) == before
    assert [entry.pid for entry in yard.ledger.entries("end", job)] == [other.pid, holder.pid]


@pytest.mark.long
def test_a_worker_that_lost_its_lease_gives_its_jobs_up_and_goes_on_under_a_new_id(
    yard: Yard,
) -> None:
    """Case 3. Prevents a lease from coming back to life, and jobs from running under none."""
    job = yard.enqueue("wait", gate="never", attempts=1)
    holder, holder_id, other, other_id = two_workers(yard, job)

    yard.freeze(holder)
    done = yard.settled(job)
    holder.thaw()
    assert holder.event("lease.lost")["worker_id"] == holder_id
    again = holder.event("worker.registered_again")["worker_id"]
    until(lambda: yard.ledger.entries("cancelled", job), "the cancellation of the stale run")
    holder.event("job.fenced", job_id=str(job))

    assert yard.job(job) == done
    assert (done.state, done.worker) == (State.COMPLETED, other_id)
    assert again not in (holder_id, other_id)
    other.kill()
    next_job = yard.settled(yard.enqueue("quick"))
    assert (next_job.state, next_job.worker) == (State.COMPLETED, again)
    assert [each.info.id for each in yard.workers() if each.info.id == again and each.alive]


def test_a_job_that_was_claimed_and_never_started_runs_after_the_lease(yard: Yard) -> None:
    """Case 13. Prevents the job that is stranded because its worker died with it in hand."""
    job = yard.enqueue("quick")
    claimer, output = yard.python("claim_and_wait.py", "quick")
    until(lambda: "claimed" in output.read_text(), "the claim of a process that will die")
    claimer.kill()
    claimer.wait()
    assert yard.job(job).state is State.RUNNING

    worker = yard.worker()
    worker_id = worker.started()
    done = yard.settled(job)

    assert (done.state, done.attempt, done.crashes, done.failures) == (State.COMPLETED, 2, 0, 0)
    assert done.worker == worker_id
    assert len(yard.ledger.entries("start", job)) == 1


def test_a_late_word_of_progress_does_not_cancel_the_next_run_of_its_job() -> None:
    """Case 3. Prevents a run from being given up because an earlier one of the same job was fenced.

    The first attempt reports and snoozes for no time at all, so that its word is written when the
    second attempt, under a fence of its own, runs already in the same worker.
    """
    app = Windlass("memory://")

    @app.job
    async def snoozed_once(ctx: Context) -> int | Snooze:
        if ctx.attempt == 1:
            ctx.progress(0.5, "half")
            return Snooze("0s")
        await asyncio.sleep(1.5)  # Three times as long as a word waits at most.
        return ctx.attempt

    assert run_one(app, snoozed_once) == 2


def run_one(app: Windlass, handler: Handler[[], Any, Any, Any]) -> Any:
    """Run a job in a worker of this process, and return its result."""

    async def main() -> Any:
        worker = app.worker(lease=f"{LEASE}s", threads=1)
        running = asyncio.ensure_future(worker.run())
        try:
            return await (await handler.aenqueue()).aresult(timeout=PATIENCE)
        finally:
            worker.stop()
            await running

    return asyncio.run(main())


class Fickle(MemoryStore):
    """A store that is away for the first tries to register again."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0
        self.registered: list[str] = []

    async def register(self, worker: WorkerInfo) -> None:
        self.tries += 1
        if self.tries in (2, 3):
            raise StoreUnavailable("away")
        await super().register(worker)
        self.registered.append(worker.id)


def test_a_worker_that_cannot_register_again_at_once_still_does_so_only_once() -> None:
    """Case 3. Prevents a worker from claiming under a second id that it forgets to renew."""
    store = Fickle()

    async def main() -> str:
        registry = Registry()
        options = WorkerOptions(lease=timedelta(seconds=1))
        worker = Worker(
            store=store, registry=registry, options=options, schedules={}, ids=IdGenerator().next
        )
        running = asyncio.ensure_future(worker.run())
        await eventually(lambda: bool(store.registered))
        await store.retire(worker.id)
        await eventually(lambda: len(store.registered) > 1)
        await asyncio.sleep(2)  # Nothing is awaited here but what must not happen.
        worker.stop()
        await running
        return worker.id

    last = asyncio.run(main())
    assert len(store.registered) == 2
    assert last == store.registered[-1]


async def eventually(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not look():  # noqa: ASYNC110 - it looks at what has no event.
            await asyncio.sleep(0.01)


# -- case 4: on the stores themselves, where the race is a thousandth of a second wide -------------


ROUNDS = 12
JOBS = 30
LANE = Lane("default", "raced")


class Clock:
    """A clock that both sides of a race share, so that a lease runs out exactly when told."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_lease(self, store: Store, keeps: str) -> None:
        """Let a lease go by, which only one worker renews."""
        for _ in range(4):
            self.now += timedelta(seconds=LEASE / 3)
            assert store.heartbeat(keeps, WorkerPulse(), timedelta(seconds=10))


Track = tuple[Store, Store, Callable[[], None]]
"""The store of each side of a race, and what lets every lease pass but the rescuer's."""


@contextmanager
def in_memory(_: pytest.FixtureRequest) -> Iterator[Track]:
    clock = Clock()
    store = MemoryStore(size=10 * JOBS, clock=clock)
    yield store, store, lambda: clock.pass_lease(store, "rescuer")


@contextmanager
def on_one_file(request: pytest.FixtureRequest) -> Iterator[Track]:
    clock = Clock()
    file = request.getfixturevalue("tmp_path") / "raced.db"
    mine, theirs = (SqliteStore(file, clock=clock) for _ in range(2))
    yield mine, theirs, lambda: clock.pass_lease(theirs, "rescuer")
    for store in (mine, theirs):
        asyncio.run(store.close())


PASS_LEASES = """
UPDATE windlass.workers SET since = since - 2 * lease,
    lease_until = CASE WHEN id = 'rescuer' THEN windlass.clock() + interval '1 hour'
                       ELSE windlass.clock() - interval '1 second' END
"""


@contextmanager
def on_one_database(request: pytest.FixtureRequest) -> Iterator[Track]:
    url = request.getfixturevalue("migrated_url")
    with psycopg.connect(url, autocommit=True) as db:
        mine, theirs = (PostgresStore(url, listen_url="off") for _ in range(2))
        yield mine, theirs, lambda: db.execute(PASS_LEASES).close()
        for store in (mine, theirs):
            asyncio.run(store.close())


OpenStores = Callable[[pytest.FixtureRequest], AbstractContextManager[Track]]


def register(store: Store, worker: str) -> None:
    info = WorkerInfo(
        id=worker,
        name=worker,
        host="here",
        pid=1,
        release="1",
        lease=timedelta(seconds=LEASE),
        slots=JOBS,
    )
    asyncio.run(store.register(info))


def move(job: Job, state: State, crashes: int = 0) -> Transition:
    assert job.token is not None
    return Transition(id=job.id, token=job.token, state=state, crashes=crashes)


async def complete(store: Store, jobs: list[Job]) -> set[UUID]:
    """Acknowledge jobs one by one, and return those that were taken."""
    won = set()
    for job in jobs:
        (settled,) = await store.settle([move(job, State.COMPLETED)])
        if settled:
            won.add(job.id)
    return won


async def rescue(store: Store, worker: str) -> set[UUID]:
    """Rescue jobs in small handfuls until there are none, and return those that were settled."""
    won: set[UUID] = set()
    while jobs := await store.rescue(worker=worker, token=secrets.randbits(63), limit=2):
        settled = await store.settle([move(job, State.DEAD, crashes=1) for job in jobs])
        assert all(settled), "a rescued job was taken away again"
        won |= {job.id for job in jobs}
    return won


@pytest.mark.parametrize(
    "open_stores",
    [in_memory, on_one_file, on_one_database],
    ids=["memory", "sqlite", "postgres"],
)
def test_of_a_rescue_and_a_completion_exactly_one_wins(
    open_stores: OpenStores, request: pytest.FixtureRequest, frequent_switches: None
) -> None:
    """Case 4. Prevents a job that is recorded as completed and run again for its crash as well.

    Rescue walks from the oldest job on. In even rounds completions come from the other end, so
    that each side wins some; in odd rounds they race for the same job all the way. On a busy
    machine one side may win all of a round, so there are more until both have won.
    """
    ids, wins = IdGenerator(), {"complete": 0, "rescue": 0}
    with open_stores(request) as (mine, theirs, pass_leases):
        register(theirs, "rescuer")
        for number in range(10 * ROUNDS):
            if number >= ROUNDS and all(wins.values()):
                break
            register(mine, f"late-{number}")
            new = [NewJob(id=ids.next(), kind=LANE.kind, payload=b"{}") for _ in range(JOBS)]
            asyncio.run(mine.enqueue(new))
            ask = Claim(asks=(Ask(lane=LANE, count=JOBS),))
            jobs = asyncio.run(mine.claim(ask, worker=f"late-{number}", token=number + 1))
            assert len(jobs) == JOBS
            pass_leases()

            completed, rescued = race(mine, theirs, jobs if number % 2 else jobs[::-1])

            assert not completed & rescued
            assert completed | rescued == {job.id for job in jobs}
            for job, after in zip(jobs, asyncio.run(look(mine, jobs)), strict=True):
                assert after is not None
                won = State.COMPLETED if job.id in completed else State.DEAD
                assert (after.state, after.crashes) == (won, int(job.id in rescued))
            wins["complete"] += len(completed)
            wins["rescue"] += len(rescued)
    assert wins["complete"] > 0
    assert wins["rescue"] > 0


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let threads take turns so often that none does all of its work in one turn."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


async def look(store: Store, jobs: list[Job]) -> list[Job | None]:
    return [await store.get(job.id) for job in jobs]


def race(mine: Store, theirs: Store, jobs: list[Job]) -> tuple[set[UUID], set[UUID]]:
    """Complete and rescue the same jobs at once, and return what each side won."""
    barrier = threading.Barrier(2)
    won: dict[str, set[UUID]] = {}

    async def completing() -> None:
        barrier.wait()  # Here, where the loop runs already: to make one takes as long as a race.
        won["complete"] = await complete(mine, jobs)

    async def rescuing() -> None:
        barrier.wait()
        won["rescue"] = await rescue(theirs, "rescuer")

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # In memory all is over before a thread would make way by itself.
    threads = [
        threading.Thread(target=asyncio.run, args=[side()]) for side in (completing, rescuing)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(switching)
    return won["complete"], won["rescue"]
