"""Events in a transaction of one's own, and from SQL."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.app.workflows.test_sending_events import kept
from windlass import Windlass


def test_an_event_sent_in_a_transaction_is_there_when_it_commits(migrated_url: str) -> None:
    app = Windlass(migrated_url)

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(migrated_url) as connection:
            await app.asend_event("paid:42", 1, tx=connection)
            assert await kept(app) == {}
            await connection.rollback()
            await app.asend_event("paid:42", 2, tx=connection)
        assert await kept(app) == {"event:paid:42": [b"2"]}
        with psycopg.connect(migrated_url) as blocking:
            app.send_event("paid:42", 3, tx=blocking)
            blocking.rollback()
            app.send_event("paid:42", 4, tx=blocking)
        assert await kept(app) == {"event:paid:42": [b"4"]}
        await app.aclose()

    asyncio.run(main())


def test_an_event_is_sent_by_sql(migrated_url: str) -> None:
    app = Windlass(migrated_url)
    with psycopg.connect(migrated_url) as db:
        db.execute("SELECT windlass.send_event('paid:42', '{\"by\": \"card\"}')")
        db.execute("SELECT windlass.send_event('paid:42')")
        for wrong in ("''", "NULL", "repeat('x', 201)", "E'a\\nb'"):
            with pytest.raises(psycopg.errors.InvalidParameterValue), db.transaction():
                db.execute(f"SELECT windlass.send_event({wrong})".encode())
        with pytest.raises(psycopg.errors.UntranslatableCharacter), db.transaction():
            db.execute("SELECT windlass.send_event('paid:42', '\"\\u0000\"')")

    async def main() -> None:
        assert await kept(app) == {"event:paid:42": [b'{"by":"card"}', b"null"]}
        await app.aclose()

    asyncio.run(main())
