"""The hot line's round trip: answers reach those who asked, whatever happens to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from windlass.core.errors import StoreError, StoreUnavailable
from windlass.store.postgres.exchange import Answer, Query, exchange
from windlass.store.postgres.line import HotLine
from windlass.store.postgres.wire import AsyncWire, conninfo_of

ECHO = "SELECT %s::text"
SLEEP = "SELECT %s::text, pg_sleep(5)"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AsyncWire]:
    wire = await AsyncWire.knock(conninfo_of(url))
    try:
        yield wire
    finally:
        wire.pgconn.finish()


async def said(wire: AsyncWire, *queries: Query) -> list[Any]:
    answers = await exchange(wire, queries, lambda: None)
    return [answer.rows()[0][0] for answer in answers]


def read(answers: Sequence[Answer]) -> Any:
    return answers[0].rows()[0][0]


@pytest.mark.parametrize("pooled", [False, True], ids=["prepared", "pooled"])
def test_answers_come_in_the_order_of_queries(migrated_url: str, pooled: bool) -> None:
    async def main() -> None:
        async with connected(migrated_url) as wire:
            if pooled:
                wire.prepare_threshold = None
            for word in ("one", 'two "\\ é', "", "three"):
                assert await said(wire, Query(ECHO, (word,))) == [word]
                queries = (
                    Query(ECHO, (word,)),
                    Query("SELECT %s::int", ("7",)),
                    Query(ECHO, (None,)),
                )
                assert await said(wire, *queries) == [word, 7, None]
            assert bool(wire.prepared) is not pooled

    asyncio.run(main())


def test_more_than_the_sockets_hold_goes_through(migrated_url: str) -> None:
    """Prevents two who both wait until the other one reads."""

    async def main() -> None:
        long = "x" * 3_000_000
        async with connected(migrated_url) as wire:
            queries = [Query(ECHO, (f"{number}{long}",)) for number in range(6)]
            assert await said(wire, *queries) == [f"{number}{long}" for number in range(6)]

    asyncio.run(main())


def test_one_that_fails_leaves_a_connection_that_goes_on(migrated_url: str) -> None:
    async def main() -> None:
        async with connected(migrated_url) as wire:
            bad = Query("SELECT 1 / %s::int", ("0",))
            for queries in ([bad], [Query(ECHO, ("a",)), bad, Query(ECHO, ("b",))]):
                with pytest.raises(psycopg.errors.DivisionByZero):
                    await said(wire, *queries)
                assert await said(wire, Query(ECHO, ("c",)), Query(ECHO, ("d",))) == ["c", "d"]

    asyncio.run(main())


def test_who_gives_up_leaves_no_answer_for_the_next(migrated_url: str) -> None:
    async def main() -> None:
        async with connected(migrated_url) as wire:
            waits = asyncio.create_task(said(wire, Query(SLEEP, ("a",)), Query(ECHO, ("b",))))
            await asyncio.sleep(0.2)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            assert wire.closed

    asyncio.run(main())


def test_an_error_of_our_own_closes_the_connection(migrated_url: str) -> None:
    """Prevents the next group from reading what was meant for this one."""

    def fail() -> None:
        raise MemoryError

    async def main() -> None:
        async with connected(migrated_url) as wire:
            await said(wire, Query(ECHO, ("a",)))
            with pytest.raises(MemoryError):
                await exchange(wire, [Query(ECHO, ("a",)), Query(ECHO, ("b",))], fail)
            assert wire.closed

    asyncio.run(main())


def test_the_servers_last_word_is_told(migrated_url: str) -> None:
    async def main() -> None:
        async with connected(migrated_url) as wire, connected(migrated_url) as other:
            end = "SELECT pg_terminate_backend(%s::int)::text"
            waits = asyncio.create_task(said(wire, Query(SLEEP, ("a",)), Query(ECHO, ("b",))))
            await asyncio.sleep(0.2)
            await said(other, Query(end, (str(wire.pgconn.backend_pid),)))
            with pytest.raises(psycopg.errors.AdminShutdown):
                await waits

    asyncio.run(main())


def test_notifications_do_not_pile_up(migrated_url: str) -> None:
    async def main() -> None:
        async with connected(migrated_url) as wire:
            await wire.execute("LISTEN words")
            await said(wire, Query(ECHO, ("a",)))  # To be prepared is psycopg's, which reads them.
            notify = Query("SELECT pg_notify('words', %s)::text", ("x",))
            for _ in range(3):
                await said(wire, notify, notify)
            await said(wire, Query(ECHO, ("a",)), Query(ECHO, ("b",)))
            assert wire.pgconn.notifies() is None

    asyncio.run(main())


def test_only_plain_placeholders_are_taken(migrated_url: str) -> None:
    async def main() -> None:
        async with connected(migrated_url) as wire:
            for statement in ("SELECT %(a)s", "SELECT 5 %% 3", "SELECT %b"):
                with pytest.raises(ValueError, match="only %s"):
                    await said(wire, Query(statement))
            assert await said(wire, Query(ECHO, ("a",))) == ["a"]

    asyncio.run(main())


# -- the line --------------------------------------------------------------------------------------


def test_one_of_a_group_that_cannot_be_taken_costs_the_others_nothing(migrated_url: str) -> None:
    async def main() -> None:
        line = HotLine(conninfo_of(migrated_url), "here")
        good = [
            line.carry(lambda _, word=word: [Query(ECHO, (word,))], read)  # type: ignore[misc]
            for word in "abc"
        ]
        bad = line.carry(lambda _: [Query("SELECT 1 / %s::int", ("0",))], read, durable=True)
        *words, error = await asyncio.gather(*good, bad, return_exceptions=True)
        assert words == ["a", "b", "c"]
        assert isinstance(error, StoreError)
        line.close()

    asyncio.run(main())


def test_a_line_whose_statements_were_dropped_makes_new_ones(migrated_url: str) -> None:
    async def main() -> None:
        line = HotLine(conninfo_of(migrated_url), "here")
        assert await line.carry(lambda _: [Query(ECHO, ("a",))], read) == "a"
        await line.run(lambda cursor: cursor.execute("DEALLOCATE ALL"))
        with pytest.raises(StoreUnavailable, match="prepared"):
            await line.carry(lambda _: [Query(ECHO, ("b",))], read)
        assert await line.carry(lambda _: [Query(ECHO, ("c",))], read) == "c"
        line.close()

    asyncio.run(main())
