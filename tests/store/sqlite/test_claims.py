"""What a claim does under the write lock and what after it, and how groups of outcomes are kept."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.sqlite.jobs_in_a_file import claim, new
from windlass.core.jobs.ids import flow_id, member_id
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.store.sqlite import SqliteStore, operations
from windlass.store.sqlite.connections.write_lock import WriteLock

Claimed = Callable[[sqlite3.Connection, Sequence[int], int], list[Job] | None]


def before_reading(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let something happen after a claim was committed, and before its jobs are read."""
    read: Claimed = operations.claimed

    def claimed(db: sqlite3.Connection, seqs: Sequence[int], token: int) -> list[Job] | None:
        act()
        return read(db, seqs, token)

    monkeypatch.setattr(operations, "claimed", claimed)


def test_claimed_jobs_are_read_while_other_processes_may_write(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, free = WriteLock(path), []

    def look() -> None:
        free.append(other.acquire_if_free())
        if free[-1]:
            other.release()

    before_reading(monkeypatch, look)
    asyncio.run(store.enqueue([new(n + 1) for n in range(3)]))
    assert len(asyncio.run(claim(store))) == 3
    assert free == [True]
    other.close()


def test_a_claimed_job_that_was_taken_over_before_it_is_read_is_not_brought(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, left = new(1), new(2)

    def take_over() -> None:
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE jobs SET token = 8 WHERE id = ?", (str(taken.id),))
            db.commit()

    before_reading(monkeypatch, take_over)
    asyncio.run(store.enqueue([taken, left]))
    assert [job.id for job in asyncio.run(claim(store))] == [left.id]


def test_a_claim_brings_its_jobs_as_the_lane_has_them(store: SqliteStore) -> None:
    async def scenario() -> tuple[list[Job], list[Job]]:
        # The older ids come later, so that the order is that of arrival.
        await store.enqueue([new(n) for n in range(300, 0, -1)])
        return await claim(store, 100), await claim(store, token=8)

    first, rest = asyncio.run(scenario())
    brought = [job.id for job in first + rest]
    assert brought == [new(n).id for n in range(300, 0, -1)]
    assert {(job.state, job.worker, job.attempt) for job in first} == {(State.RUNNING, "w", 1)}
    assert [job.token for job in first + rest] == [7] * 100 + [8] * 200


@pytest.mark.parametrize("headers", ["'no JSON'", "CAST(x'ff' AS TEXT)"])
def test_an_unreadable_job_of_a_claim_is_buried_and_the_others_are_brought(
    store: SqliteStore, path: Path, headers: str
) -> None:
    jobs = [new(n + 1) for n in range(5)]
    asyncio.run(store.enqueue(jobs))
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE jobs SET headers = {headers} WHERE id = ?", (str(jobs[2].id),))
        db.commit()
    brought = asyncio.run(claim(store))
    assert [job.id for job in brought] == [job.id for job in jobs if job is not jobs[2]]
    (dead,) = asyncio.run(store.find(JobFilter(states=(State.DEAD,)), limit=10)).jobs
    assert dead.id == jobs[2].id
    assert "its row cannot be read" in (dead.reason or "")


@pytest.mark.parametrize("headers", ["'no JSON'", "CAST(x'ff' AS TEXT)"])
def test_an_unreadable_job_that_a_worker_holds_does_not_hide_its_others(
    store: SqliteStore, path: Path, headers: str
) -> None:
    """Prevents: jobs of a lost claim that nobody gives back, since one of them cannot be read."""
    jobs = [new(n + 1) for n in range(3)]
    asyncio.run(store.enqueue(jobs))
    asyncio.run(claim(store))
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE jobs SET headers = {headers} WHERE id = ?", (str(jobs[1].id),))
        db.commit()
    assert {job.id for job in asyncio.run(store.held("w"))} == {jobs[0].id, jobs[2].id}


def succeed(job: Job, **fields: object) -> Transition:
    base = {"id": job.id, "token": 7, "state": State.COMPLETED, "result": b"null"}
    return Transition(**base | fields)  # type: ignore[arg-type]


def test_successes_with_the_same_result_and_with_others_are_all_recorded(
    store: SqliteStore,
) -> None:
    async def scenario() -> list[bytes | None]:
        await store.enqueue([new(n + 1) for n in range(30)])
        jobs = await claim(store)
        moves = [succeed(job) for job in jobs[:20]]
        moves += [succeed(job, result=b"%d" % n) for n, job in enumerate(jobs[20:])]
        assert await store.settle(moves[::2] + moves[1::2]) == [True] * 30
        done = await store.get_many([job.id for job in jobs])
        assert {job.state for job in done.values()} == {State.COMPLETED}
        return [done[job.id].result for job in jobs]

    assert asyncio.run(scenario()) == [b"null"] * 20 + [b"%d" % n for n in range(10)]


def test_a_lost_fence_among_successes_with_the_same_result_costs_the_others_nothing(
    store: SqliteStore,
) -> None:
    async def scenario() -> None:
        await store.enqueue([new(n + 1) for n in range(20)])
        jobs = await claim(store)
        stale = [succeed(job, token=7 if n != 4 else 6) for n, job in enumerate(jobs)]
        assert await store.settle(stale) == [n != 4 for n in range(20)]
        done = await store.get_many([job.id for job in jobs])
        states = [done[job.id].state for job in jobs]
        assert states == [State.COMPLETED] * 4 + [State.RUNNING] + [State.COMPLETED] * 15

    asyncio.run(scenario())


def test_successes_with_the_same_result_record_their_keys_and_tell_their_flow(
    store: SqliteStore,
) -> None:
    flow = flow_id(1, 1)

    async def scenario() -> None:
        keyed = [new(n + 1, headers={"idempotency-key": str(n)}) for n in range(10)]
        members = [new(99, id=member_id(flow, n + 1)) for n in range(10)]
        await store.enqueue([*keyed, *members])
        assert await store.topics(10) == []
        assert await store.settle([succeed(job) for job in await claim(store)]) == [True] * 20
        for number, job in enumerate(keyed):
            done = await store.done("work", str(number))
            assert done is not None
            assert done.id == job.id
        assert await store.topics(10) == [f"flow:{flow}"]

    asyncio.run(scenario())


def test_a_claim_runs_no_trigger(store: SqliteStore, path: Path) -> None:
    asyncio.run(store.enqueue([new(1)]))
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        claiming = db.execute(
            "EXPLAIN UPDATE jobs SET state = 'running', started_at = 1 WHERE seq = 1"
        ).fetchall()
    assert {"jobs_done", "jobs_ended"} <= {name for (name,) in rows}
    assert not [step for step in claiming if step[1] == "Program"], "a claim runs a trigger"
