"""The recipe for the request's transaction, as docs/asgi.md has it, on a real database."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from tests.docs.test_docs import blocks_of
from tests.support.postgres.fixtures import postgres_server, postgres_url
from windlass.core.jobs.queries import JobFilter
from windlass.store.postgres import PostgresStore

__all__ = ["postgres_server", "postgres_url"]


def orders(monkeypatch: pytest.MonkeyPatch, url: str) -> dict[str, Any]:
    """Return the names of the recipe, on a database with its table."""
    monkeypatch.setenv("DATABASE_URL", url)
    (text,) = [each.text for each in blocks_of("docs/asgi.md") if "# orders.py" in each.text]
    names: dict[str, Any] = {}
    exec(text, names)
    return names


async def migrate(url: str) -> None:
    store = PostgresStore(url)
    await store.migrate()
    await store.close()


def test_an_order_and_its_job_are_committed_together_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    asyncio.run(migrate(postgres_url))
    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE TABLE orders (number int PRIMARY KEY)")
    names = orders(monkeypatch, postgres_url)
    jobs = names["jobs"]

    async def dispose() -> None:
        await names["engine"].dispose()

    with TestClient(names["api"], raise_server_exceptions=False) as client:
        assert client.post("/orders/1").status_code == 202
        monkeypatch.setattr(names["AsyncSession"], "commit", _refuse)
        assert client.post("/orders/2").status_code == 500
        assert client.portal is not None
        found = client.portal.call(lambda: jobs.store.find(JobFilter(), limit=10))
        client.portal.call(dispose)
    assert [job.payload for job in found.jobs] == [b'{"order":1}']
    with psycopg.connect(postgres_url) as db:
        assert db.execute("SELECT number FROM orders").fetchall() == [(1,)]


async def _refuse(_: object) -> None:
    raise RuntimeError("the connection is gone")
