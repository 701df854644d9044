"""Which queues a worker serves, with how many of its slots, and when it is done with them."""

from __future__ import annotations

import asyncio
from collections import Counter

import psycopg
import pytest

from tests.support.app_on_store import QUICK, STORES, Bed, log_lines, serving, until
from windlass import ConfigError, Handle, Retry, State, Windlass
from windlass.core.claims.lanes import Sweep
from windlass.worker.engine.claimer import Claimer

pytestmark = pytest.mark.stores(*STORES)


async def work_off(app: Windlass, **flags: object) -> None:
    """Run a worker that ends by itself, and see that it does."""
    await asyncio.wait_for(app.arun_worker(burst=True, **QUICK | flags), 60)


# -- slots of a queue's own ------------------------------------------------------------------------


@pytest.mark.parametrize("claim_size", [2, 100])
def test_never_more_jobs_of_a_queue_than_its_slots(bed: Bed, claim_size: int) -> None:
    """Jobs of both kinds count; claims that are under way at once do not add up to more."""
    app = bed.app()
    now, most = Counter[str](), Counter[str]()

    @app.job
    async def work(queue: str) -> None:
        now[queue] += 1
        most[queue] = max(most[queue], now[queue])
        await asyncio.sleep(0.02)
        now[queue] -= 1

    @app.job
    async def other(queue: str) -> None:
        await work(queue)

    async def main() -> None:
        await app.aenqueue_many(
            kind.using(queue=queue).draft(queue)
            for _ in range(25)
            for queue in ("mail", "default", "rest")
            for kind in (work, other)
        )
        await work_off(app, concurrency=10, queues="mail=3,default=5,rest", claim_size=claim_size)
        counts = {each.state: each.count for each in await app.store.counts()}
        assert set(counts) == {State.COMPLETED}

    asyncio.run(main())
    assert most["mail"] == 3
    assert 3 < most["default"] <= 5
    assert most["rest"] > 3


def test_a_queue_that_is_full_leaves_the_rest_of_the_slots_to_others(bed: Bed) -> None:
    app = bed.app()
    go, held = asyncio.Event(), 0

    @app.job(queue="mail")
    async def hold() -> None:
        nonlocal held
        held += 1
        await go.wait()

    @app.job
    async def quick() -> int:
        return 1

    async def main() -> None:
        handles = await app.aenqueue_many(hold.draft() for _ in range(9))
        async with serving(app, concurrency=5, queues={"mail": 2, "default": None}) as worker:
            await until(lambda: held == 2)
            assert await (await quick.aenqueue()).aresult("60s") == 1
            states = [await handle.astate() for handle in handles]
            assert (states.count(State.RUNNING), states.count(State.PENDING)) == (2, 7)
            (record,) = await app.store.workers()
            assert record.info.queues == ("default", "mail")
            assert record.info.queue_slots == {"mail": 2}
            go.set()
            for handle in handles:
                await handle.aresult("60s")
            await until(lambda: worker._parts.engine.queue_slots.free == {"mail": 2})

    asyncio.run(main())


def test_more_queues_with_slots_than_one_claim_can_tell_apart_are_all_served(bed: Bed) -> None:
    """Prevents: the 30th queue, whose budget has no bit in the claim."""
    app = bed.app()
    names = [f"queue-{number}" for number in range(40)]
    now, most = Counter[str](), Counter[str]()

    @app.job
    async def work(queue: str) -> None:
        now[queue] += 1
        most[queue] = max(most[queue], now[queue])
        await until(lambda: most[queue] >= 2)
        await asyncio.sleep(0.001)
        now[queue] -= 1

    async def main() -> None:
        await app.aenqueue_many(
            work.using(queue=queue).draft(queue) for _ in range(5) for queue in names
        )
        await work_off(app, queues=dict.fromkeys(names, 2))
        counts = {each.state for each in await app.store.counts()}
        assert counts == {State.COMPLETED}

    asyncio.run(main())
    assert most == dict.fromkeys(names, 2)


def test_a_worker_logs_the_kinds_that_were_registered(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    app.job(name="work")(lambda: None)
    caplog.set_level("INFO")
    asyncio.run(work_off(app))
    (line,) = log_lines(caplog, "worker.started")
    assert line["kinds"] == ["work"], "not those that every app has"


# -- queues that are left out ----------------------------------------------------------------------


def test_a_queue_that_is_excluded_is_left_to_others(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        left = await work.using(queue="mail").aenqueue()
        async with serving(app, exclude=["mail"]):
            for queue in ("default", "new"):
                assert await (await work.using(queue=queue).aenqueue()).aresult("60s") == 1
            job = await left.ainfo()
            assert (job.state, job.attempt) == (State.PENDING, 0)
            (record,) = await app.store.workers()
            assert (record.info.queues, record.info.excluded) == ((), ("mail",))
            assert [record.info.serves(job.lane)] == [False]
        async with serving(app, queues=["mail", "default"], exclude="default"):
            assert await left.aresult("60s") == 1
            newest = (await app.store.workers())[0]
            assert (newest.info.queues, newest.info.excluded) == (("mail",), ())

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["postgres"], indirect=True)
def test_a_job_of_an_excluded_queue_wakes_a_worker_that_serves_it(bed: Bed) -> None:
    """Prevents: a wake-up spent on who may not take the job, while who may sleeps on."""
    serves, excludes = bed.app(), bed.app(store=bed.store())

    @serves.job(queue="mail", name="work")
    async def work() -> int:
        return 1

    @excludes.job(name="work")
    async def never() -> int:
        return 0

    async def are_asleep() -> bool:
        with psycopg.connect(bed.url) as db:
            return db.execute("SELECT FROM windlass.sleepers").rowcount == 2

    async def main() -> None:
        patient = {"poll_interval": "5m"}
        async with (
            serving(serves, queues="mail", **patient),
            serving(excludes, exclude="mail", **patient),
        ):
            await until(are_asleep)
            for _ in range(20):
                assert await (await work.aenqueue()).aresult("60s") == 1

    asyncio.run(main())


def test_a_worker_of_one_queue_sweeps_its_lanes_and_promotes_the_jobs_of_all(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: lanes of other queues delay its jobs; or what is due elsewhere stays scheduled
    while only this worker runs.
    """
    app = bed.app()
    looked_at: set[str] = set()
    whole_sweep = Claimer._sweep

    async def sweep(claimer: Claimer) -> Sweep:
        found = await whole_sweep(claimer)
        looked_at.update(head.lane.queue for head in found.heads)
        return found

    monkeypatch.setattr(Claimer, "_sweep", sweep)

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        await app.aenqueue_many(work.using(queue=f"other-{n}").draft() for n in range(50))
        due = await work.using(queue="other-due", delay="0.2s").aenqueue()
        async with serving(app, queues=["mail"]):
            assert await (await work.using(queue="mail").aenqueue()).aresult("60s") == 1
            await until(lambda: is_pending(due))
            assert await (await work.using(queue="mail").aenqueue()).aresult("60s") == 1

    async def is_pending(job: Handle[int]) -> bool:
        return await job.astate() is State.PENDING

    asyncio.run(main())
    # On Redis a job may come by a standing ask, and be in no lane.
    assert looked_at <= {"mail"}


def test_to_exclude_every_queue_that_is_served_is_refused(bed: Bed) -> None:
    app = bed.app(queues=["mail=3"])
    with pytest.raises(ConfigError, match=r"no queue is left to serve: queues is mail=3"):
        app.worker(exclude=["mail"])


# -- a burst ---------------------------------------------------------------------------------------


def test_a_burst_ends_when_all_is_done_that_it_may_do(bed: Bed) -> None:
    app = bed.app()
    runs = Counter[str]()

    @app.job
    async def parent(number: int) -> None:
        runs["parent"] += 1
        await asyncio.sleep(0.02)
        await child.aenqueue(number)

    @app.job
    def child(number: int) -> None:
        runs["child"] += number >= 0

    @app.job(retry=Retry(max_retries=5, initial="1h", max_delay="1h"))
    async def fails() -> None:
        runs["fails"] += 1
        raise ValueError("not now")

    async def main() -> None:
        await app.aenqueue_many(parent.draft(number) for number in range(30))
        later = await parent.using(delay="1h").aenqueue(1)
        elsewhere = await parent.using(queue="elsewhere").aenqueue(1)
        failing = await fails.aenqueue()
        await work_off(app, exclude="elsewhere", concurrency=4)
        assert runs == {"parent": 30, "child": 30, "fails": 1}
        assert await later.astate() is State.SCHEDULED
        assert await failing.astate() is State.SCHEDULED
        assert await elsewhere.astate() is State.PENDING
        assert not [worker for worker in await app.store.workers() if worker.alive]

    asyncio.run(main())


def test_a_burst_with_nothing_to_do_ends_at_once(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work() -> None: ...

    asyncio.run(work_off(app, poll_interval="5m"))


def test_a_burst_takes_what_has_become_due_and_leaves_what_is_paused(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def work() -> int:
        return 1

    async def main() -> None:
        due = await work.using(delay="1ms").aenqueue()
        paused = await work.using(queue="paused").aenqueue()
        await app.control.apause("paused")
        await asyncio.sleep(0.01)
        await work_off(app, poll_interval="5m")
        assert await due.astate() is State.COMPLETED
        assert await paused.astate() is State.PENDING

    asyncio.run(main())


def test_a_burst_finds_what_was_given_back_while_it_ran(bed: Bed) -> None:
    """Prevents: a worker that ends with a job in the store that it has itself put back there."""
    app = bed.app()
    runs = 0

    @app.job(retry=Retry(max_retries=5, initial="0s"))
    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 4:
            raise ValueError("again")

    async def main() -> None:
        handle = await work.aenqueue()
        await work_off(app)
        assert await handle.astate() is State.COMPLETED

    asyncio.run(main())
