"""Owns what can be asked of any PostgreSQL that answers at a URL, whoever runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql

NAME = "windlass-tests"
"""The application name of our own connections, by which a test tells them from those it made."""


class Cluster:
    """A PostgreSQL in which a superuser makes and drops databases."""

    def __init__(self, url: str) -> None:
        self._maintenance = url

    def url(self, database: str = "postgres", user: str | None = None) -> str:
        """Return the URL of a database, for another user if one is given."""
        parts = urlsplit(self._maintenance)
        login, at, place = parts.netloc.rpartition("@")
        if user is not None:
            login, at = quote(user, safe=""), "@"
        place = f"{login}{at}{place}"
        return parts._replace(netloc=place, path=f"/{quote(database, safe='')}").geturl()

    def create_database(
        self, name: str, template: str | None = None, strategy: LiteralString | None = None
    ) -> str:
        """Create a database, as a copy of a template if one is given, and return its URL."""
        words = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            words += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        if strategy is not None:
            words += sql.SQL(" STRATEGY {}").format(sql.SQL(strategy))
        with self.connection() as db:
            db.execute(words)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        words = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        with self.connection() as db:
            db.execute(words)

    def major(self) -> int:
        """Return the server's major version."""
        with self.connection() as db:
            return db.info.server_version // 10_000

    @contextmanager
    def connection(self, database: str | None = None) -> Iterator[psycopg.Connection[Any]]:
        """Connect as the superuser, to a database if one is given, with autocommit."""
        url = self._maintenance if database is None else self.url(database)
        # Closed at once: a connection kept open would hold up a smart stop and a DROP DATABASE.
        with psycopg.connect(url, autocommit=True, application_name=NAME) as db:
            yield db
