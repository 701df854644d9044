"""Owns users' transactions in every library that can carry an enqueue, all to be used alike.

What a test does with one is a coroutine. For a library that blocks it is run without an event loop,
as blocking code is; so it may await nothing but what is given here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
from django.db.utils import ConnectionHandler
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.support.django_settings import configure_django
from windlass import Handle

Verb = Callable[..., Any]


class Users:
    """A connection of a user's in a transaction, whatever library it is from."""

    def __init__(
        self, tx: Any, *, awaited: bool, execute: Verb, commit: Verb, rollback: Verb
    ) -> None:
        self.tx = tx
        self._awaited = awaited
        self._execute = execute
        self._commit = commit
        self._rollback = rollback

    async def enqueue(self, producer: Any, *args: Any) -> Handle[Any]:
        """Enqueue a job in the transaction."""
        using = producer.using(tx=self.tx)
        handle: Handle[Any]
        handle = await using.aenqueue(*args) if self._awaited else using.enqueue(*args)
        return handle

    async def enqueue_many(self, app: Any, drafts: list[Any]) -> list[Handle[Any]]:
        """Enqueue many jobs in the transaction."""
        if self._awaited:
            return list(await app.aenqueue_many(drafts, tx=self.tx))
        return list(app.enqueue_many(drafts, tx=self.tx))

    async def execute(self, statement: str) -> None:
        """Run a statement of the user's own."""
        await done(self._execute(statement))

    async def commit(self) -> None:
        """End the transaction well."""
        await done(self._commit())

    async def rollback(self) -> None:
        """End the transaction as if it had never been."""
        await done(self._rollback())


async def done(answer: Any) -> Any:
    """Return what a call gave, at once or after a while."""
    return await answer if inspect.isawaitable(answer) else answer


Opens = Callable[[str], AbstractAsyncContextManager[Users]]
Body = Callable[[Users], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Library:
    """A way to open a user's transaction."""

    name: str
    awaited: bool
    opens: Opens

    def __str__(self) -> str:
        return self.name

    def run(self, url: str, body: Body) -> None:
        """Open a transaction in a database, and do something with it."""

        async def main() -> None:
            async with self.opens(url) as users:
                await body(users)

        if self.awaited:
            asyncio.run(main())
        else:
            run_without_a_loop(main())


def run_without_a_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("something was awaited that only an event loop can do")


def of_sqlalchemy(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


def on_psycopg(**options: Any) -> Opens:
    @asynccontextmanager
    async def opens(url: str) -> AsyncIterator[Users]:
        with psycopg.connect(url, **options) as db:
            yield Users(
                db,
                awaited=False,
                execute=lambda words: psycopg.Cursor(db).execute(words),
                commit=db.commit,
                rollback=db.rollback,
            )

    return opens


def on_psycopg_async(**options: Any) -> Opens:
    @asynccontextmanager
    async def opens(url: str) -> AsyncIterator[Users]:
        async with await psycopg.AsyncConnection.connect(url, **options) as db:
            yield Users(
                db,
                awaited=True,
                execute=lambda words: psycopg.AsyncCursor(db).execute(words),
                commit=db.commit,
                rollback=db.rollback,
            )

    return opens


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Users]:
    db = await asyncpg.connect(url)
    try:
        yield await in_asyncpg(db)
    finally:
        await db.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Users]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as db:
        yield await in_asyncpg(db)


@asynccontextmanager
async def asyncpg_with_texts_for_ids(url: str) -> AsyncIterator[Users]:
    db = await asyncpg.connect(url)
    try:
        await db.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str)
        yield await in_asyncpg(db)
    finally:
        await db.close()


async def in_asyncpg(db: Any) -> Users:
    transaction = db.transaction()
    await transaction.start()
    return Users(
        db,
        awaited=True,
        execute=db.execute,
        commit=transaction.commit,
        rollback=transaction.rollback,
    )


@asynccontextmanager
async def sqlalchemy_connection(url: str) -> AsyncIterator[Users]:
    engine = create_engine(of_sqlalchemy(url, "psycopg"))
    with engine.connect() as db:
        yield in_sqlalchemy(db)
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_session(url: str) -> AsyncIterator[Users]:
    engine = create_engine(of_sqlalchemy(url, "psycopg"))
    with Session(engine) as session:
        yield in_sqlalchemy(session)
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_scoped_session(url: str) -> AsyncIterator[Users]:
    engine = create_engine(of_sqlalchemy(url, "psycopg"))
    session = scoped_session(sessionmaker(engine))
    yield in_sqlalchemy(session)
    session.remove()
    engine.dispose()


def on_async_sqlalchemy(driver: str) -> tuple[Opens, Opens]:
    @asynccontextmanager
    async def connection(url: str) -> AsyncIterator[Users]:
        engine = create_async_engine(of_sqlalchemy(url, driver))
        async with engine.connect() as db:
            yield in_sqlalchemy(db, awaited=True)
        await engine.dispose()

    @asynccontextmanager
    async def session(url: str) -> AsyncIterator[Users]:
        engine = create_async_engine(of_sqlalchemy(url, driver))
        async with AsyncSession(engine) as db:
            yield in_sqlalchemy(db, awaited=True)
        await engine.dispose()

    return connection, session


def in_sqlalchemy(db: Any, *, awaited: bool = False) -> Users:
    return Users(
        db,
        awaited=awaited,
        execute=lambda words: db.execute(text(words)),
        commit=db.commit,
        rollback=db.rollback,
    )


@asynccontextmanager
async def django_connection(url: str) -> AsyncIterator[Users]:
    db = django_connections(url)["default"]
    db.set_autocommit(False)
    try:
        yield Users(
            db,
            awaited=False,
            execute=lambda words: db.cursor().execute(words),
            commit=db.commit,
            rollback=db.rollback,
        )
    finally:
        db.close()


def django_connections(url: str) -> Any:
    """Return connections of Django's that are nobody else's, without a project."""
    configure_django()
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": parts.username,
    }
    return ConnectionHandler({"default": database})


_psycopg_connection, _psycopg_session = on_async_sqlalchemy("psycopg")
_asyncpg_connection, _asyncpg_session = on_async_sqlalchemy("asyncpg")
BLOCKING: dict[str, Opens] = {
    "psycopg": on_psycopg(),
    "psycopg with other rows": on_psycopg(row_factory=dict_row),
    "psycopg with other placeholders": on_psycopg(cursor_factory=psycopg.RawCursor),
    "SQLAlchemy Connection": sqlalchemy_connection,
    "SQLAlchemy Session": sqlalchemy_session,
    "SQLAlchemy scoped_session": sqlalchemy_scoped_session,
    "Django": django_connection,
}
AWAITED: dict[str, Opens] = {
    "async psycopg": on_psycopg_async(),
    "async psycopg with other rows": on_psycopg_async(row_factory=dict_row),
    "async psycopg with other placeholders": on_psycopg_async(
        cursor_factory=psycopg.AsyncRawCursor
    ),
    "asyncpg": asyncpg_connection,
    "asyncpg from a pool": asyncpg_pool,
    "asyncpg with texts for ids": asyncpg_with_texts_for_ids,
    "SQLAlchemy AsyncConnection, psycopg": _psycopg_connection,
    "SQLAlchemy AsyncSession, psycopg": _psycopg_session,
    "SQLAlchemy AsyncConnection, asyncpg": _asyncpg_connection,
    "SQLAlchemy AsyncSession, asyncpg": _asyncpg_session,
}
ALL = [
    *(Library(name=name, awaited=False, opens=opens) for name, opens in BLOCKING.items()),
    *(Library(name=name, awaited=True, opens=opens) for name, opens in AWAITED.items()),
]
SPECIAL = ("with", "from", "scoped", "AsyncSession, psycopg", "AsyncConnection, asyncpg")
USUAL = [each for each in ALL if not any(word in each.name for word in SPECIAL)]
"""One of each sort; what is special about the others is how statements go in and rows come out."""
