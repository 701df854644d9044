"""Gives the tests of the stores their PostgreSQL, with the schema in it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.support.clocked_stores import Clocked, clocked, migrate, migrate_with_clock
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.fixtures import (
    migrated_url,
    postgres_scratches,
    postgres_server,
    postgres_url,
)
from tests.support.postgres.scratch import Prepare, Scratches
from tests.support.redis_fixtures import redis_clock

__all__ = [
    "migrated_url",
    "postgres_scratches",
    "postgres_server",
    "postgres_url",
    "redis_clock",
]


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    """Give the function that makes the schema."""
    return migrate


@pytest.fixture
def database(postgres_scratches: Scratches) -> Iterator[Clocked]:
    """Give a database with the schema and nothing else, whose clock the test can set."""
    with clocked(postgres_scratches.of(migrate_with_clock).fresh()) as database:
        yield database


@pytest.fixture(scope="session")
def shared_database(postgres_server: Cluster) -> Iterator[Clocked]:
    """Give such a database to many tests that leave nothing but rows, and empty it themselves."""
    name = f"windlass_{uuid4().hex[:12]}"
    url = postgres_server.create_database(name)
    migrate_with_clock(url)
    with clocked(url) as database:
        yield database
    postgres_server.drop_database(name)
