"""Gives every test here its PostgreSQL."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.postgres.fixtures import (
    migrated_url,
    postgres_scratches,
    postgres_server,
    postgres_url,
)
from tests.support.postgres.scratch import Prepare

__all__ = ["migrated_url", "postgres_scratches", "postgres_server", "postgres_url"]


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    """Give a schema with all that is hard to make as good as new."""
    return prepare


def prepare(url: str) -> None:
    with psycopg.connect(url) as db:
        db.execute("CREATE TABLE queues (name text PRIMARY KEY, paused bool DEFAULT false)")
        db.execute("INSERT INTO queues VALUES ('default'), ('it''s\todd')")
        db.execute(
            "CREATE TABLE jobs (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            " queue text NOT NULL REFERENCES queues, twice bigint GENERATED ALWAYS AS (1) STORED)"
        )
        db.execute("INSERT INTO jobs (queue) VALUES ('default')")
