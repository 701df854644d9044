"""Gives pages programs that start at once, and the one on PostgreSQL a database of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg import sql

from tests.docs.roles import prefix_of
from tests.docs.warm import warm_programs
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.fixtures import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="session")
def programs() -> Iterator[str]:
    """Give a directory for the path, whose programs start at once and mind every warning."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    with warm_programs({**kept, "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "error"}) as directory:
        yield directory


@pytest.fixture
def own_database(postgres_server: Cluster, postgres_url: str) -> Iterator[str]:
    """Give an empty database; the roles that were made for it are dropped with it."""
    yield postgres_url
    database = postgres_url.rpartition("/")[2]
    with postgres_server.connection(database) as db:
        wanted = "SELECT rolname FROM pg_roles WHERE starts_with(rolname, %s)"
        for (role,) in db.execute(wanted, [prefix_of(postgres_url)]).fetchall():
            db.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(role)))
            db.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
