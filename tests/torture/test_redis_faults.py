"""A Redis that crashes, fails over, moves, is full or is emptied: what it promised is kept."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.app_on_store import serving
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_indexes import check_indexes
from tests.support.redis_sentinel import RedisSentinels
from tests.support.redis_server import RedisServer
from windlass import QueueFull, State, StoreUnavailable, Windlass
from windlass.store.redis import RedisStore
from windlass.store.redis.connections.servers.urls import parse

PATIENCE = 60.0
PRODUCERS = 4
PAUSE = 0.01
"""Seconds between two jobs of a producer: what matters are the faults, not how many jobs."""


class Trial:
    """A worker and producers on a Redis that is mistreated, and what it has promised them."""

    def __init__(self, url: str) -> None:
        self.app = Windlass("memory://")
        self.app.store = RedisStore(url)
        self.work = self.app.job(name="work")(self._work)
        self.runs: Counter[int] = Counter()
        self.promised: dict[int, UUID] = {}
        self.refused: list[StoreUnavailable | QueueFull] = []
        self.seen_done: dict[int, int] = {}
        """Jobs that the store said are done, and how often they had run by then."""
        self._number = 0
        self._over = False

    async def _work(self, number: int) -> None:
        self.runs[number] += 1

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Let producers and a worker go on around a block, and then finish what was promised."""
        async with serving(self.app, lease="3s"):
            producing = [asyncio.create_task(self._produce()) for _ in range(PRODUCERS)]
            try:
                yield
            finally:
                self._over = True
                await asyncio.gather(*producing)
            await self.until(lambda: self.runs.keys() >= self.promised.keys())
            await self.all_done()

    async def _produce(self) -> None:
        while not self._over:
            await asyncio.sleep(PAUSE)
            self._number += 1
            number = self._number
            try:
                handle = await self.work.aenqueue(number)
            except (StoreUnavailable, QueueFull) as error:
                self.refused.append(error)
            else:
                self.promised[number] = handle.id

    async def more(self, number: int = 200) -> None:
        """Wait until this number of further jobs was promised, and has run."""
        wanted = len(self.promised) + number
        await self.until(lambda: len(self.promised) >= wanted and len(self.runs) >= wanted)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, (len(self.promised), len(self.runs), self.refused)
            await asyncio.sleep(0.02)

    async def look(self) -> None:
        """Remember which jobs the store says are done."""
        for number, job in list(self.promised.items())[-500:]:
            found = await self.app.store.get(job)
            if found is not None and found.state is State.COMPLETED:
                self.seen_done.setdefault(number, self.runs[number])

    async def all_done(self) -> None:
        """Wait until every promised job is done; all of them are there."""
        deadline = time.monotonic() + PATIENCE
        while True:
            jobs = await self.app.store.get_many(list(self.promised.values()))
            states = Counter(job.state for job in jobs.values())
            if states == {State.COMPLETED: len(self.promised)}:
                return
            assert time.monotonic() < deadline, (len(self.promised), states)
            await asyncio.sleep(0.05)

    def check(self) -> None:
        """What was done stays done: no such job has run again."""
        again = {n: runs for n, runs in self.seen_done.items() if self.runs[n] != runs}
        assert not again
        assert self.seen_done


@pytest.mark.long
def test_a_server_that_is_killed_again_and_again_keeps_every_promise(tmp_path: Path) -> None:
    """Prevents jobs that are lost, and jobs that run again after their outcome was written."""
    server = RedisServer(tmp_path, appendonly="yes", appendfsync="always")

    async def test() -> None:
        trial = Trial(server.url)
        async with trial.going():
            for _ in range(4):
                await trial.more()
                await trial.look()
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await trial.more()
        trial.check()
        await trial.app.aclose()

    with server:
        asyncio.run(test())
        with server.client() as run:
            check_indexes(run, "windlass")


@pytest.mark.long
def test_writes_that_a_replica_confirmed_survive_failovers_by_sentinel(tmp_path: Path) -> None:
    """Prevents a promise that only the master knew, which has died since."""
    sentinels = RedisSentinels(tmp_path)

    async def test() -> None:
        trial = Trial(f"{sentinels.url}?wait_replicas=1")
        async with trial.going():
            for _ in range(2):
                await trial.more(100)
                former = sentinels.master
                await asyncio.to_thread(former.kill)
                await asyncio.to_thread(sentinels.wait_for_failover, former)
                await asyncio.to_thread(former.start)
                await asyncio.to_thread(sentinels.wait_for_replica, former)
            await trial.more(100)
        assert all(trial.runs[number] for number in trial.promised)
        await trial.app.aclose()

    with sentinels:
        asyncio.run(test())
        with sentinels.master.client() as run:
            check_indexes(run, "windlass")


@pytest.mark.long
def test_a_slot_that_moves_through_the_cluster_keeps_every_promise(tmp_path: Path) -> None:
    """Prevents scripts that see half of the jobs, and count, wake or claim by that."""
    cluster = RedisCluster(tmp_path)

    async def test() -> None:
        slot = parse(cluster.url).slot
        trial = Trial(cluster.url)
        async with trial.going():
            for _ in range(3):
                await trial.more()
                await trial.look()
                source = cluster.owner(slot)
                target = next(node for node in cluster.masters if node is not source)
                await asyncio.to_thread(cluster.begin_move, slot, source, target)
                await asyncio.to_thread(cluster.move_keys, slot, source, target)
                await asyncio.to_thread(cluster.end_move, slot, source, target)
            await trial.more()
        trial.check()
        await trial.app.aclose()
        with cluster.owner(slot).client() as run:
            check_indexes(run, "windlass")

    with cluster:
        asyncio.run(test())


@pytest.mark.long
def test_a_full_server_refuses_new_jobs_and_finishes_those_it_has(tmp_path: Path) -> None:
    """Prevents a Redis that is full for ever, since nothing in it can be settled."""
    server = RedisServer(tmp_path, maxmemory_policy="noeviction")

    async def test() -> None:
        trial = Trial(server.url)
        async with trial.going():
            await trial.more()
            server.call("CONFIG", "SET", "maxmemory", "1")
            await trial.until(
                lambda: sum(isinstance(error, QueueFull) for error in trial.refused) > 20
            )
            # Those that were there are done, although not a byte is left.
            before = dict(trial.promised)
            await trial.until(lambda: trial.runs.keys() >= before.keys())
            await trial.all_done()
            server.call("CONFIG", "SET", "maxmemory", "0")
            await trial.more()
        assert {type(error) for error in trial.refused} == {QueueFull}
        assert "raise it" in str(trial.refused[0])
        assert not [number for number, runs in trial.runs.items() if runs > 1]
        await trial.app.aclose()

    with server:
        asyncio.run(test())
        with server.client() as run:
            check_indexes(run, "windlass")


@pytest.mark.long
def test_a_script_cache_that_is_flushed_all_the_time_changes_nothing(tmp_path: Path) -> None:
    """Prevents calls that are lost, or made twice, when the server has forgotten a script."""
    server = RedisServer(tmp_path)

    async def test() -> None:
        trial = Trial(server.url)
        async with trial.going():
            for _ in range(100):
                await asyncio.to_thread(server.call, "SCRIPT", "FLUSH")
                await trial.more(5)
        assert not trial.refused
        assert not [number for number, runs in trial.runs.items() if runs > 1]
        await trial.app.aclose()

    with server:
        asyncio.run(test())
        with server.client() as run:
            check_indexes(run, "windlass")


@pytest.mark.long
def test_a_worker_goes_on_after_everything_was_deleted_by_somebody_else(tmp_path: Path) -> None:
    """Prevents a worker that spins, or stands idle, on a Redis that somebody has emptied."""
    server = RedisServer(tmp_path)

    async def test() -> None:
        trial = Trial(server.url)
        async with serving(trial.app, lease="2s"):
            await trial.work.aenqueue(1)
            await trial.until(lambda: trial.runs[1] == 1)
            server.call("FLUSHALL")
            deadline = time.monotonic() + PATIENCE
            while not trial.runs[2] and time.monotonic() < deadline:
                await trial.work.aenqueue(2)
                await asyncio.sleep(0.1)
            assert trial.runs[2]
            while time.monotonic() < deadline:
                findings = await trial.app.store.findings()
                if any("all jobs were deleted" in each.problem for each in findings):
                    break
                await asyncio.sleep(0.1)
            else:
                raise AssertionError("nobody says that all jobs were deleted")
        await trial.app.aclose()

    with server:
        asyncio.run(test())
        with server.client() as run:
            check_indexes(run, "windlass")


@pytest.mark.long
def test_writes_that_a_replica_confirmed_survive_a_failover_of_the_cluster(tmp_path: Path) -> None:
    """Prevents workers that stay with a dead master, and promises that only it knew."""
    cluster = RedisCluster(tmp_path)

    async def test() -> None:
        slot = parse(cluster.url).slot
        trial = Trial(f"{cluster.url}?wait_replicas=1")
        async with trial.going():
            await trial.more(100)
            former = cluster.owner(slot)
            successor = cluster.replica_of(former)
            await asyncio.to_thread(former.kill)
            await trial.until(lambda: cluster.owner(slot) is successor)
            await asyncio.to_thread(former.start)  # It comes back as a replica, and confirms again.
            await trial.more(100)
        assert all(trial.runs[number] for number in trial.promised)
        await trial.app.aclose()
        with cluster.owner(slot).client() as run:
            check_indexes(run, "windlass")

    with cluster:
        asyncio.run(test())


@pytest.mark.long
def test_connections_that_are_killed_all_the_time_cost_no_job(tmp_path: Path) -> None:
    """Prevents jobs that run twice, or never, when an answer is lost with its connection."""
    server = RedisServer(tmp_path)

    async def test() -> None:
        trial = Trial(server.url)
        async with trial.going():
            for _ in range(20):
                for kind in ("normal", "pubsub"):
                    await asyncio.to_thread(
                        server.call, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"
                    )
                await trial.more(5)
                await trial.look()
        trial.check()
        await trial.app.aclose()

    with server:
        asyncio.run(test())
        with server.client() as run:
            check_indexes(run, "windlass")
