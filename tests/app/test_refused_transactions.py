"""Connections that are in no transaction of a user are refused, and the error names what to use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from tests.app.transaction_shop import Shop
from tests.support.libraries import ALL, Library, Users, of_sqlalchemy
from windlass import ConfigError, Windlass

on_postgres = pytest.mark.parametrize("bed", ["postgres"], indirect=True)
of_every_library = pytest.mark.parametrize("library", ALL, ids=str)


# -- what is no transaction ------------------------------------------------------------------------


@on_postgres
@of_every_library
def test_the_wrong_form_of_enqueue_names_the_right_one(shop: Shop, library: Library) -> None:
    async def body(users: Users) -> None:
        if library.awaited:
            with pytest.raises(ConfigError, match=r"is asynchronous; write await .*aenqueue"):
                shop.note.using(tx=users.tx).enqueue(1)
        else:
            with pytest.raises(
                ConfigError, match=r"is synchronous; write using\(tx=...\)\.enqueue"
            ):
                await shop.note.using(tx=users.tx).aenqueue(1)
        await users.commit()
        assert shop.seen() == []

    library.run(shop.url, body)


@on_postgres
@pytest.mark.parametrize(
    "tx", ["rubbish", 7, object(), Engine], ids=["text", "number", "object", "class"]
)
def test_the_error_for_an_unsupported_connection_lists_the_supported_ones(
    shop: Shop, tx: object
) -> None:
    with pytest.raises(ConfigError, match="pass a psycopg, asyncpg, SQLAlchemy or Django"):
        shop.note.using(tx=tx).enqueue(1)
    with pytest.raises(ConfigError, match="pass a psycopg, asyncpg, SQLAlchemy or Django"):
        asyncio.run(shop.note.using(tx=tx).aenqueue(1))


@on_postgres
def test_engines_and_pools_are_refused_since_they_are_in_no_transaction(shop: Shop) -> None:
    """Prevents: a job that is committed at once, although its producer meant to roll it back."""
    engine = create_engine(of_sqlalchemy(shop.url, "psycopg"))
    with pytest.raises(ConfigError, match="tx=Engine is not supported"):
        shop.note.using(tx=engine).enqueue(1)
    engine.dispose()

    async def main() -> None:
        async_engine = create_async_engine(of_sqlalchemy(shop.url, "asyncpg"))
        with pytest.raises(ConfigError, match="tx=AsyncEngine is not supported"):
            await shop.note.using(tx=async_engine).aenqueue(1)
        await async_engine.dispose()
        async with asyncpg.create_pool(shop.url, min_size=1, max_size=1) as pool:
            with pytest.raises(ConfigError, match="tx=Pool is not supported"):
                await shop.note.using(tx=pool).aenqueue(1)

    asyncio.run(main())
    assert shop.seen() == []


@pytest.mark.parametrize("url", ["memory://", "sqlite:///jobs.db"])
def test_a_store_without_transactions_says_what_has_them(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = Windlass(url)

    @app.job
    def note(n: int) -> None: ...

    told = r"using\(tx=...\) needs the jobs in the same database .* use a postgresql:// URL"
    with pytest.raises(ConfigError, match=told):
        note.using(tx=object()).enqueue(1)
    with pytest.raises(ConfigError, match=told):
        app.enqueue_many([note.draft(1)], tx=object())

    async def main() -> None:
        with pytest.raises(ConfigError, match=told):
            await note.using(tx=object()).aenqueue(1)
        with pytest.raises(ConfigError, match=told):
            await app.aenqueue_many([note.draft(1)], tx=object())

    asyncio.run(main())
    app.close()
