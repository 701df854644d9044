"""Owns the fixtures that give tests a PostgreSQL; a conftest imports those that it needs.

One server of a version serves the whole session, all of its xdist workers included. If the
environment has WINDLASS_TEST_POSTGRES, the URL of a superuser, that server is used, none started.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.postgres.cluster import Cluster
from tests.support.postgres.scratch import Prepare, Scratches
from tests.support.postgres.server import newest, versions
from tests.support.postgres.shared import joined

__all__ = [
    "each_version",
    "migrated_url",
    "postgres_scratches",
    "postgres_server",
    "postgres_url",
    "prepare_postgres",
]


@pytest.fixture(scope="session")
def postgres_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Give the session's server: of the version that it is parametrized with, else the newest."""
    wanted = getattr(request, "param", None)
    if given := os.environ.get("WINDLASS_TEST_POSTGRES"):
        cluster = Cluster(given)
        if wanted is not None and wanted != cluster.major():
            pytest.skip(f"WINDLASS_TEST_POSTGRES is not a PostgreSQL {wanted}")
        yield cluster
        return
    directory = session_directory(request.config, tmp_path_factory)
    with joined(directory, version=newest() if wanted is None else wanted) as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres_server: Cluster) -> Iterator[str]:
    """Give an empty database, and drop it afterwards."""
    name = f"windlass_{uuid4().hex[:12]}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def prepare_postgres() -> Prepare:
    """Give the function that makes the schema; a conftest that wants `migrated_url` overrides it.

    It must give the same function each time, not a new lambda: a database is made for each.
    """
    raise pytest.UsageError("define a fixture prepare_postgres that gives prepare(url)")


@pytest.fixture(scope="session")
def postgres_scratches(postgres_server: Cluster) -> Iterator[Scratches]:
    """Give the databases that this process uses again for test after test."""
    scratches = Scratches(postgres_server)
    yield scratches
    scratches.close()


@pytest.fixture
def migrated_url(postgres_scratches: Scratches, prepare_postgres: Prepare) -> str:
    """Give a database with the schema and nothing else, which this test has for itself."""
    return postgres_scratches.of(prepare_postgres).fresh()


def each_version() -> list[Any]:
    """Return what parametrizes a test by `postgres_server`: every version, by default the newest.

    The others are for `make torture`: a law is broken on all of them, or by a rare difference.
    """
    *older, latest = versions()
    return [latest, *(pytest.param(version, marks=pytest.mark.long) for version in older)]


def session_directory(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """Return the directory that all processes of a test session share."""
    base = factory.getbasetemp()
    # An xdist worker has a directory of its own within the session's.
    return base.parent if hasattr(config, "workerinput") else base
