"""What endangers jobs on a Redis is found, named, and known to everybody who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.app_on_store import in_state, serving, until
from tests.support.redis_server import RedisServer
from windlass import State, Windlass
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.redis import RedisStore, health
from windlass.store.redis.connections.listener import Listener

SECONDS = timedelta(seconds=30)
WORKER = WorkerInfo(id="w", name="w", host="h", pid=1, release="1", lease=SECONDS, slots=1)
SOUND = {"aof_enabled": "1", "maxmemory": "1000", "used_memory": "1", "role": "master"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


class Hearing(Listener):
    """A listener that hears."""

    def __init__(self) -> None:
        """Make no connection."""

    is_deaf = False


def names(info: dict[str, str], *, emptied: datetime | None = None) -> list[str]:
    return [each.name for each in health.findings(info, Hearing(), emptied=emptied)]


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ({"maxmemory_policy": "volatile-lru"}, "eviction"),
        ({"maxmemory_policy": "allkeys-lru"}, "eviction"),
        ({"aof_enabled": "0"}, "persistence_off"),
        ({"aof_last_write_status": "err"}, "persistence_failing"),
        ({"aof_last_bgrewrite_status": "err"}, "persistence_failing"),
        ({"rdb_last_bgsave_status": "err"}, "persistence_failing"),
        ({"maxmemory": "0"}, "memory_unlimited"),
        ({"used_memory": "901"}, "memory_short"),
        ({"role": "slave"}, "replica"),
        ({"slave0": "ip=10.0.0.2,port=6379,state=online,offset=1,lag=11"}, "replica_behind"),
    ],
)
def test_each_danger_has_a_name_of_its_own(info: dict[str, str], name: str) -> None:
    assert names(SOUND | info) == [name]


def test_a_sound_server_has_no_findings() -> None:
    assert not names(SOUND | {"slave0": "ip=10.0.0.2,port=6379,state=online,offset=1,lag=1"})


def test_an_emptied_server_is_named_first() -> None:
    assert names(SOUND | {"maxmemory": "0"}, emptied=datetime.now(UTC))[0] == "emptied"


@asynccontextmanager
async def opened(server: RedisServer) -> Any:
    store = RedisStore(server.url)
    try:
        yield store
    finally:
        await store.close()


def test_every_worker_reports_an_emptied_server(
    server: RedisServer,
) -> None:
    """Prevents: only the supervisor knows, which renews leases, and says nothing."""

    async def main() -> None:
        async with opened(server) as worker, opened(server) as supervisor, opened(server) as doctor:
            await worker.open()
            await worker.register(WORKER)
            server.call("FLUSHALL")
            await doctor.migrate()  # As a producer that starts meanwhile does.
            assert not supervisor.heartbeat("w", WorkerPulse(), SECONDS)
            for store in (worker, doctor):
                assert "emptied" in [each.name for each in await store.findings()]
            assert (await doctor.schema()).found == 1

    asyncio.run(main())


def test_a_worker_puts_back_its_schedules_and_says_at_once_that_all_was_deleted(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents: schedules in an app's code never tick again, until somebody restarts a worker."""
    app = Windlass(server.url)

    @app.every("1h")
    async def hourly() -> None: ...

    async def main() -> None:
        async def scheduled() -> list[str]:
            return [each.name for each in await app.schedules.alist()]

        async def is_said() -> bool:
            errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
            return any("all jobs were deleted" in each for each in errors)

        async with serving(app, lease="1s"):
            await until(scheduled)
            server.call("FLUSHALL")
            await until(scheduled)
            await until(is_said)
        await app.aclose()

    asyncio.run(main())


def test_a_lease_that_is_not_known_is_no_sign_of_an_emptied_server(server: RedisServer) -> None:
    async def main() -> None:
        async with opened(server) as store:
            await store.open()
            await store.register(WORKER)
            assert not store.heartbeat("another", WorkerPulse(), SECONDS)
            assert "emptied" not in [each.name for each in await store.findings()]

    asyncio.run(main())


@pytest.mark.parametrize("enqueue", ["blocking", "awaited"])
def test_a_producer_alone_makes_a_store_that_commands_find(
    server: RedisServer, enqueue: str
) -> None:
    """Prevents: jobs wait, and every command says that there is no store yet."""
    app = Windlass(server.url)

    @app.job
    async def work() -> None: ...

    async def main() -> None:
        if enqueue == "awaited":
            await work.aenqueue()
        else:
            await asyncio.to_thread(work.enqueue)
        assert (await app.store.schema()).found == 1
        await app.aclose()

    asyncio.run(main())


def test_a_worker_has_no_more_connections_than_the_docs_say(server: RedisServer) -> None:
    """D8: three of its own, and a pool of twenty, however many handlers enqueue at once."""
    app = Windlass(server.url)
    counts: list[int] = []

    @app.job
    async def noop() -> None: ...

    @app.job
    async def produce() -> None:
        await asyncio.gather(*(noop.aenqueue() for _ in range(10)))
        lines = await asyncio.to_thread(server.call, "CLIENT", "LIST")
        counts.append(lines.count(b"name=windlass"))

    async def main() -> None:
        async with serving(app, concurrency=100):
            handles = await app.aenqueue_many(produce.draft() for _ in range(100))
            for handle in handles:
                await in_state(handle, State.COMPLETED, within=60)
        await app.aclose()

    asyncio.run(main())
    assert 10 < max(counts) <= 23
