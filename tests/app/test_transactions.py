"""Jobs that are enqueued in a user's own transaction: there at its commit, gone at its rollback."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.app.transaction_shop import Shop
from tests.support.app_on_store import in_state, serving, until
from tests.support.libraries import ALL, USUAL, Library, Users, django_connections, of_sqlalchemy
from windlass import State

on_postgres = pytest.mark.parametrize("bed", ["postgres"], indirect=True)
of_every_library = pytest.mark.parametrize("library", ALL, ids=str)
of_each_sort = pytest.mark.parametrize("library", USUAL, ids=str)


@on_postgres
def test_a_connection_in_autocommit_commits_at_once_unless_a_transaction_is_begun(
    shop: Shop,
) -> None:
    with psycopg.connect(shop.url, autocommit=True) as db:
        first = shop.note.using(tx=db).enqueue(1)
        assert shop.seen() == [first.id]
        with db.transaction(force_rollback=True):
            shop.note.using(tx=db).enqueue(2)
        assert shop.seen() == [first.id]


@on_postgres
@of_every_library
def test_a_job_is_there_at_the_commit_and_not_before(shop: Shop, library: Library) -> None:
    async def body(users: Users) -> None:
        handle = await users.enqueue(shop.note, 1)
        assert (type(handle.id), handle.is_duplicate) == (UUID, False)
        assert shop.seen() == []
        await users.commit()
        assert shop.seen() == [handle.id]

    library.run(shop.url, body)


@on_postgres
@of_each_sort
def test_a_job_never_was_after_a_rollback(shop: Shop, library: Library) -> None:
    async def body(users: Users) -> None:
        await users.enqueue(shop.note.using(unique="lost"), 1)
        await users.rollback()
        assert shop.seen() == []
        # And its unique key is free again.
        again = await users.enqueue(shop.note.using(unique="lost"), 2)
        assert not again.is_duplicate

    library.run(shop.url, body)


@on_postgres
@of_every_library
def test_a_held_unique_key_gives_the_existing_job(shop: Shop, library: Library) -> None:
    holder = shop.note.using(unique="once").enqueue(1)

    async def body(users: Users) -> None:
        handle = await users.enqueue(shop.note.using(unique="once"), 2)
        assert (handle.id, type(handle.id), handle.is_duplicate) == (holder.id, UUID, True)
        first = await users.enqueue(shop.note.using(unique="other"), 3)
        second = await users.enqueue(shop.note.using(unique="other"), 4)
        assert (second.id, second.is_duplicate) == (first.id, True)
        await users.commit()
        assert shop.seen() == [holder.id, first.id]

    library.run(shop.url, body)


@on_postgres
@of_each_sort
def test_jobs_of_a_rolled_back_savepoint_are_not_enqueued(shop: Shop, library: Library) -> None:
    async def body(users: Users) -> None:
        kept = await users.enqueue(shop.note, 1)
        await users.execute("SAVEPOINT here")
        await users.enqueue(shop.note, 2)
        await users.execute("ROLLBACK TO SAVEPOINT here")
        after = await users.enqueue(shop.note, 3)
        await users.commit()
        assert shop.seen() == [kept.id, after.id]

    library.run(shop.url, body)


@on_postgres
@of_each_sort
def test_many_jobs_go_into_one_transaction(shop: Shop, library: Library) -> None:
    """More than the few above which our own connections use COPY."""

    async def body(users: Users) -> None:
        drafts = [shop.note.using(priority=n % 3).draft(n) for n in range(50)]
        handles = await users.enqueue_many(shop.app, drafts)
        assert [handle.id for handle in handles] == [draft.job.id for draft in drafts]
        assert shop.seen() == []
        await users.commit()
        assert shop.seen() == [handle.id for handle in handles]

    library.run(shop.url, body)


@on_postgres
@of_each_sort
def test_the_users_own_rows_and_the_job_are_one_commit(shop: Shop, library: Library) -> None:
    with psycopg.connect(shop.url) as db:
        db.execute("CREATE TABLE orders (id integer)")

    async def body(users: Users) -> None:
        await users.execute("INSERT INTO orders VALUES (7)")
        await users.enqueue(shop.note, 7)
        await users.rollback()

    library.run(shop.url, body)
    with psycopg.connect(shop.url) as db:
        assert db.execute("SELECT count(*) FROM orders").fetchone() == (0,)
        db.execute("DROP TABLE orders")
    assert shop.seen() == []


@on_postgres
def test_a_job_of_a_users_transaction_is_run(shop: Shop) -> None:
    async def main() -> None:
        async with serving(shop.app, poll_interval="5m"):
            await until(shop.has_a_sleeper)
            async with await psycopg.AsyncConnection.connect(shop.url) as db:
                handle = await shop.note.using(tx=db, headers={"a": "ü"}).aenqueue(7)
            job = await in_state(handle, State.COMPLETED)
            assert (job.result, job.headers) == (b"7", {"a": "ü"})

    asyncio.run(main())


@on_postgres
def test_options_go_with_a_job_into_a_users_transaction(shop: Shop) -> None:
    with psycopg.connect(shop.url) as db:
        handle = shop.note.using(
            tx=db, queue="q", priority=5, delay="1h", expires="2h", max_retries=1, timeout="3s"
        ).enqueue(7)
    job = handle.info()
    assert (job.queue, job.priority, job.max_retries) == ("q", 5, 1)
    assert job.timeout is not None
    assert job.timeout.total_seconds() == 3
    assert (job.due_at - job.created_at).total_seconds() == 3600
    assert job.expires_at is not None
    assert (job.expires_at - job.created_at).total_seconds() == 7200
    assert job.state is State.SCHEDULED


# -- one statement ---------------------------------------------------------------------------------


def heard_by_psycopg(shop: Shop, tmp_path: Path) -> list[str]:
    trace = tmp_path / "trace"
    with psycopg.connect(shop.url) as db, trace.open("w") as file:
        db.execute("SELECT")
        db.pgconn.trace(file.fileno())
        shop.note.using(tx=db).enqueue(1)
        db.pgconn.untrace()
    said = trace.read_text().splitlines()
    return [line for line in said if line.split("\t")[3:4] in (["Parse"], ["Query"])]


def heard_by_sqlalchemy(shop: Shop, tmp_path: Path) -> list[str]:
    heard: list[str] = []
    engine = create_engine(of_sqlalchemy(shop.url, "psycopg"))
    with Session(engine) as session:
        session.execute(text("SELECT 1"))
        event.listen(engine, "before_cursor_execute", lambda *said: heard.append(said[2]))
        shop.note.using(tx=session).enqueue(1)
    engine.dispose()
    return heard


def heard_by_asyncpg(shop: Shop, tmp_path: Path) -> list[str]:
    heard: list[str] = []

    async def main() -> None:
        db = await asyncpg.connect(shop.url)
        async with db.transaction():
            with db.query_logger(lambda query: heard.append(query.query)):
                await shop.note.using(tx=db).aenqueue(1)
        await db.close()

    asyncio.run(main())
    return heard


def heard_by_django(shop: Shop, tmp_path: Path) -> list[str]:
    heard: list[str] = []

    def hear(execute: Any, words: str, *rest: Any) -> Any:
        heard.append(words)
        return execute(words, *rest)

    db = django_connections(shop.url)["default"]
    with db.execute_wrapper(hear):
        shop.note.using(tx=db).enqueue(1)
    db.close()
    return heard


@on_postgres
@pytest.mark.parametrize(
    "heard", [heard_by_psycopg, heard_by_sqlalchemy, heard_by_asyncpg, heard_by_django]
)
def test_an_enqueue_costs_the_user_one_statement(shop: Shop, heard: Any, tmp_path: Path) -> None:
    (statement,) = heard(shop, tmp_path)
    assert "-- Add jobs." in statement


# -- from where ------------------------------------------------------------------------------------


@on_postgres
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_a_blocking_enqueue_works_inside_run_sync(shop: Shop, driver: str) -> None:
    """There is a running event loop, and yet this is blocking code: SQLAlchemy bridges the two."""

    async def main() -> None:
        engine = create_async_engine(of_sqlalchemy(shop.url, driver))
        async with AsyncSession(engine) as session:
            handle = await session.run_sync(
                lambda blocking: shop.note.using(tx=blocking).enqueue(1)
            )
            assert shop.seen() == []
            await session.commit()
        await engine.dispose()
        assert shop.seen() == [handle.id]

    asyncio.run(main())


DJANGO = """
import sys
from urllib.parse import urlsplit

import django
from django.conf import settings

parts = urlsplit(sys.argv[1])
settings.configure(USE_TZ=True, DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "HOST": parts.hostname,
    "PORT": parts.port, "USER": parts.username}})
django.setup()

from django.db import connection, transaction
from windlass import Windlass

app = Windlass(sys.argv[1])

@app.job
def note(n: int) -> None: ...

with transaction.atomic():
    print(note.using(tx=connection).enqueue(1).id)
    try:
        with transaction.atomic():
            note.using(tx=connection).enqueue(2)
            raise LookupError
    except LookupError:
        pass
try:
    with transaction.atomic():
        note.using(tx=connection).enqueue(3)
        raise LookupError
except LookupError:
    pass
connection.close()
"""


@on_postgres
def test_a_django_project_enqueues_in_atomic_blocks(shop: Shop) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(DJANGO), shop.url],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [str(each) for each in shop.seen()] == done.stdout.split()
