"""The hot line's round trip: answers reach those who asked, whatever happens to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from windlass.core.errors import StoreError, StoreUnavailable
from windlass.store.postgres.connections.connection import LoopConnection, conninfo_of
from windlass.store.postgres.connections.pipeline import Answer, Pipeline, Query, round_trip

ECHO = "SELECT %s::text"
SLEEP = "SELECT %s::text, pg_sleep(5)"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[LoopConnection]:
    connection = await LoopConnection.open(conninfo_of(url))
    try:
        yield connection
    finally:
        connection.pgconn.finish()


async def said(connection: LoopConnection, *queries: Query) -> list[Any]:
    answers = await round_trip(connection, queries, lambda: None)
    return [answer.rows()[0][0] for answer in answers]


def read(answers: Sequence[Answer]) -> Any:
    return answers[0].rows()[0][0]


@pytest.mark.parametrize("pooled", [False, True], ids=["prepared", "pooled"])
def test_answers_come_in_the_order_of_queries(migrated_url: str, pooled: bool) -> None:
    async def main() -> None:
        async with connected(migrated_url) as connection:
            if pooled:
                connection.prepare_threshold = None
            for word in ("one", 'two "\\ é', "", "three"):
                assert await said(connection, Query(ECHO, (word,))) == [word]
                queries = (
                    Query(ECHO, (word,)),
                    Query("SELECT %s::int", ("7",)),
                    Query(ECHO, (None,)),
                )
                assert await said(connection, *queries) == [word, 7, None]
            assert bool(connection.prepared) is not pooled

    asyncio.run(main())


def test_more_than_the_sockets_hold_goes_through(migrated_url: str) -> None:
    """Prevents two who both wait until the other one reads."""

    async def main() -> None:
        long = "x" * 3_000_000
        async with connected(migrated_url) as connection:
            queries = [Query(ECHO, (f"{number}{long}",)) for number in range(6)]
            assert await said(connection, *queries) == [f"{number}{long}" for number in range(6)]

    asyncio.run(main())


def test_one_that_fails_leaves_a_connection_that_goes_on(migrated_url: str) -> None:
    async def main() -> None:
        async with connected(migrated_url) as connection:
            bad = Query("SELECT 1 / %s::int", ("0",))
            for queries in ([bad], [Query(ECHO, ("a",)), bad, Query(ECHO, ("b",))]):
                with pytest.raises(psycopg.errors.DivisionByZero):
                    await said(connection, *queries)
                assert await said(connection, Query(ECHO, ("c",)), Query(ECHO, ("d",))) == [
                    "c",
                    "d",
                ]

    asyncio.run(main())


def test_a_cancelled_query_leaves_no_answer_for_the_next(migrated_url: str) -> None:
    async def main() -> None:
        async with connected(migrated_url) as connection:
            waits = asyncio.create_task(said(connection, Query(SLEEP, ("a",)), Query(ECHO, ("b",))))
            await asyncio.sleep(0.2)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            assert connection.closed

    asyncio.run(main())


def test_an_error_of_our_own_closes_the_connection(migrated_url: str) -> None:
    """Prevents the next group from reading what was meant for this one."""

    def fail() -> None:
        raise MemoryError

    async def main() -> None:
        async with connected(migrated_url) as connection:
            await said(connection, Query(ECHO, ("a",)))
            with pytest.raises(MemoryError):
                await round_trip(connection, [Query(ECHO, ("a",)), Query(ECHO, ("b",))], fail)
            assert connection.closed

    asyncio.run(main())


def test_the_servers_last_error_is_reported(migrated_url: str) -> None:
    async def main() -> None:
        async with connected(migrated_url) as connection, connected(migrated_url) as other:
            end = "SELECT pg_terminate_backend(%s::int)::text"
            waits = asyncio.create_task(said(connection, Query(SLEEP, ("a",)), Query(ECHO, ("b",))))
            await asyncio.sleep(0.2)
            await said(other, Query(end, (str(connection.pgconn.backend_pid),)))
            with pytest.raises(psycopg.errors.AdminShutdown):
                await waits

    asyncio.run(main())


def test_notifications_do_not_pile_up(migrated_url: str) -> None:
    async def main() -> None:
        async with connected(migrated_url) as connection:
            await connection.execute("LISTEN words")
            await said(
                connection, Query(ECHO, ("a",))
            )  # To be prepared is psycopg's, which reads them.
            notify = Query("SELECT pg_notify('words', %s)::text", ("x",))
            for _ in range(3):
                await said(connection, notify, notify)
            await said(connection, Query(ECHO, ("a",)), Query(ECHO, ("b",)))
            assert connection.pgconn.notifies() is None

    asyncio.run(main())


def test_only_plain_placeholders_are_taken(migrated_url: str) -> None:
    async def main() -> None:
        async with connected(migrated_url) as connection:
            for statement in ("SELECT %(a)s", "SELECT 5 %% 3", "SELECT %b"):
                with pytest.raises(ValueError, match="only %s"):
                    await said(connection, Query(statement))
            assert await said(connection, Query(ECHO, ("a",))) == ["a"]

    asyncio.run(main())


# -- groups --------------------------------------------------------------------------------------


def test_one_of_a_group_that_cannot_be_taken_costs_the_others_nothing(migrated_url: str) -> None:
    async def main() -> None:
        pipeline = Pipeline(conninfo_of(migrated_url), "here")
        good = [pipeline.send([Query(ECHO, (word,))]) for word in "abc"]
        bad = pipeline.send([Query("SELECT 1 / %s::int", ("0",))], durable=True)
        *answers, error = await asyncio.gather(*good, bad, return_exceptions=True)
        assert [read(each) for each in answers if isinstance(each, list)] == ["a", "b", "c"]
        assert isinstance(error, StoreError)
        pipeline.close()

    asyncio.run(main())


def test_a_pipeline_whose_statements_were_dropped_makes_new_ones(migrated_url: str) -> None:
    async def main() -> None:
        pipeline = Pipeline(conninfo_of(migrated_url), "here")
        assert read(await pipeline.send([Query(ECHO, ("a",))])) == "a"
        await pipeline.run(lambda cursor: cursor.execute("DEALLOCATE ALL"))
        with pytest.raises(StoreUnavailable, match="prepared"):
            await pipeline.send([Query(ECHO, ("b",))])
        assert read(await pipeline.send([Query(ECHO, ("c",))])) == "c"
        pipeline.close()

    asyncio.run(main())
