"""Puts the repository on the path, so that tests and their children import the same harness."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from tests.support.network_proxy import Proxy  # noqa: E402
from tests.support.postgres.fixtures import (  # noqa: E402 - found by the path above.
    migrated_url,
    postgres_scratches,
    postgres_server,
    postgres_url,
)
from tests.support.postgres.scratch import Prepare  # noqa: E402
from tests.support.postgres_workers import PostgresYard, SqliteYard  # noqa: E402
from tests.support.worker_processes import Yard  # noqa: E402
from windlass.store.postgres import PostgresStore  # noqa: E402

__all__ = ["migrated_url", "postgres_scratches", "postgres_server", "postgres_url"]


@pytest.fixture
def sqlite_yard(tmp_path: Path) -> Iterator[SqliteYard]:
    """Give a test a database file, a ledger and worker processes, and leave none of them behind."""
    with closing(SqliteYard(tmp_path)) as yard:
        yield yard


@pytest.fixture
def postgres_yard(tmp_path: Path, migrated_url: str) -> Iterator[PostgresYard]:
    """Do the same with a PostgreSQL database that has the schema."""
    with closing(PostgresYard(tmp_path, migrated_url)) as yard:
        yield yard


@pytest.fixture
def proxy(migrated_url: str) -> Iterator[Proxy]:
    """Give a network to the server that can be broken."""
    with Proxy(migrated_url) as proxy:
        yield proxy


@pytest.fixture
def far_yard(tmp_path: Path, migrated_url: str, proxy: Proxy) -> Iterator[PostgresYard]:
    """Give a yard whose workers reach the server by that network."""
    through = proxy.url(migrated_url)
    with closing(PostgresYard(tmp_path, migrated_url, workers_url=through)) as yard:
        yield yard


@pytest.fixture(params=["sqlite", "postgres"])
def yard(request: pytest.FixtureRequest) -> Yard:
    """Give a test one yard after the other."""
    given: Yard = request.getfixturevalue(f"{request.param}_yard")
    return given


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    """Give the function that makes the schema."""
    return migrate


def migrate(url: str) -> None:
    """Make the schema in an empty database."""

    async def run() -> None:
        store = PostgresStore(url)
        await store.migrate()
        await store.close()

    asyncio.run(run())
