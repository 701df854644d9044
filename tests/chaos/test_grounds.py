"""The stores of chaos: what a failover and a step of the clock really do to them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from windlass.chaos.grounds.postgres import PostgresGround
from windlass.chaos.grounds.redis import RedisGround
from windlass.chaos.grounds.redis_server import call
from windlass.chaos.grounds.sqlite import SqliteGround
from windlass.chaos.plan import FaultKind
from windlass.store.postgres import PostgresStore

CLOCK = "SELECT extract(epoch FROM windlass_chaos.clock() - statement_timestamp())"


@pytest.mark.long
def test_a_failover_keeps_what_a_replica_confirmed_and_the_next_one_too(tmp_path: Path) -> None:
    """Prevents a failover to a server that has nothing, and one that cannot be repeated."""

    async def main() -> None:
        ground = RedisGround(tmp_path)
        await ground.prepare()
        try:
            for number in range(3):
                replies = await asyncio.to_thread(
                    call, ground.url, [("RPUSH", "list", number), ("WAIT", 1, 60_000)]
                )
                assert replies == [number + 1, 1]
                await ground.fail_over(0.0)
            for url in (ground.url, ground.workers_url):
                (kept,) = await asyncio.to_thread(call, url, [("LRANGE", "list", 0, -1)])
                assert kept == [b"0", b"1", b"2"]
        finally:
            await ground.close()

    asyncio.run(main())


def test_a_write_that_no_replica_confirmed_is_gone_after_a_failover(tmp_path: Path) -> None:
    """Prevents a failover that loses nothing, and so would prove nothing about `wait_replicas`."""

    async def main() -> None:
        ground = RedisGround(tmp_path)
        await ground.prepare()
        try:
            await ground.promote_replica()
            commands = [("SET", "lost", "value"), ("WAIT", 1, 100)]
            assert await asyncio.to_thread(call, ground.workers_url, commands) == [b"OK", 0]
            await ground.replace_primary()
            (lost,) = await asyncio.to_thread(call, ground.workers_url, [("EXISTS", "lost")])
            assert lost == 0
        finally:
            await ground.close()

    asyncio.run(main())


def test_the_clock_of_chaos_s_schema_is_set_and_that_of_no_other(
    postgres_url: str, tmp_path: Path
) -> None:
    async def main() -> None:
        ground = PostgresGround(tmp_path, postgres_url)
        await ground.prepare()
        store = PostgresStore(postgres_url, schema="windlass_chaos")
        try:
            await store.migrate()
            with psycopg.connect(postgres_url, autocommit=True) as db:
                for step, ahead in ((7.5, 7.5), (-10.0, -2.5)):
                    await ground.step_clock(step)
                    assert db.execute(CLOCK).fetchone() == (ahead,)
        finally:
            await store.close()
            await ground.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("ground", "left_out"),
    [
        (SqliteGround, {FaultKind.STEP_CLOCK, FaultKind.FAIL_OVER}),
        (PostgresGround, {FaultKind.FAIL_OVER}),
        (RedisGround, {FaultKind.STEP_CLOCK}),
    ],
)
def test_a_fault_that_is_left_out_has_its_reason(
    ground: type[SqliteGround | PostgresGround | RedisGround],
    left_out: set[FaultKind],
    tmp_path: Path,
) -> None:
    made = ground(tmp_path)

    assert left_out <= made.impossible.keys()
    assert all(made.impossible[kind] for kind in left_out)
    assert FaultKind.KILL_PRODUCER in made.faults
