"""Gives the page on PostgreSQL a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg import sql

from tests.docs.roles import prefix_of
from tests.postgres.cluster import Cluster
from tests.postgres.fixtures import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


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
